//! The whole configuration as one text, with every default that is known written out.

use crate::admin::ADMIN;
use crate::confine::CONFINE;
use crate::limits::LIMIT_VALUES;
use crate::value::{
    GROUP, HYPERSCSI, KeyOf, NBD, NOTIFY, PORTAL, QUOTA, SERVER, STORE, TARGET, TARGET_LUN,
    UNIT_SECTION, USER, list, quoted,
};
use crate::{Model, NbdPlace, NotifyTo, Portal, TargetLun};

impl Model {
    /// The configuration with its defaults written out and without comments. The text parses to
    /// the same model, if the file it is read as has no directory: paths are those of the model.
    ///
    /// What the model leaves to others is left out: the state directory, the cores and the log
    /// level of the process, identities that are made, and whether an unnamed kind of store is thin. A
    /// unit of a command line has its STORE as `id`, which no file can have.
    pub fn effective(&self) -> String {
        let mut text = Text {
            model: self,
            text: String::new(),
        };
        text.section("[server]", None, SERVER, &self.server);
        text.section("[limits]", None, &LIMIT_VALUES, &self.limits);
        text.section("[admin]", None, &ADMIN, &self.admin);
        text.section("[confine]", None, &CONFINE, &self.confine);
        for named in &self.stores {
            text.section("[[store]]", Some(("id", &named.id)), STORE, named);
        }
        for unit in &self.units {
            let id = unit.to_string();
            text.section("[[lun]]", Some(("id", &id)), UNIT_SECTION, unit);
        }
        for user in &self.users {
            text.section("[[user]]", Some(("name", &user.name)), USER, user);
        }
        for group in &self.groups {
            text.section("[[group]]", Some(("id", &group.id)), GROUP, group);
        }
        for target in &self.targets {
            let name = Some(("name", target.name.as_str()));
            text.section("[[target]]", name, TARGET, target);
            let portals = target.portals.iter().map(|portal| text.portal(portal));
            let portals = list(portals);
            text.line("portals", &portals);
            let luns = target.luns.entries().iter();
            let luns = luns.map(|entry| text.target_lun(entry));
            let luns = lines(luns);
            text.line("luns", &luns);
        }
        for server in &self.nbd {
            let key = match server.at {
                NbdPlace::Address(_) => "bind",
                NbdPlace::Socket { .. } => "socket",
            };
            let place = server.at.to_string();
            text.section("[[nbd]]", Some((key, &place)), NBD, server);
        }
        for group in &self.hyperscsi {
            let name = Some(("name", group.name.as_str()));
            let (key, place) = group.at.key_and_value();
            text.section_of("[[hyperscsi.group]]", name);
            text.line(key, &quoted(&place));
            text.keys(HYPERSCSI, group);
        }
        for quota in &self.quotas {
            let (key, value) = quota.of.key_and_value();
            text.section("[[quota]]", Some((key, &value)), QUOTA, quota);
        }
        for notify in &self.notify {
            let key = match notify.to {
                NotifyTo::Webhook { .. } => "url",
                NotifyTo::Mail(_) => "mail",
            };
            text.section("[[notify]]", Some((key, notify.whole())), NOTIFY, notify);
        }
        text.text
    }
}

/// The text as far as it is written.
struct Text<'a> {
    model: &'a Model,
    text: String,
}

impl Text<'_> {
    /// A section with what it is found by, and its keys.
    fn section<T>(
        &mut self,
        heading: &str,
        identity: Option<(&str, &str)>,
        keys: &[KeyOf<T>],
        thing: &T,
    ) {
        self.section_of(heading, identity);
        self.keys(keys, thing);
    }

    fn section_of(&mut self, heading: &str, identity: Option<(&str, &str)>) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(heading);
        self.text.push('\n');
        if let Some((key, name)) = identity {
            self.line(key, &quoted(name));
        }
    }

    fn keys<T>(&mut self, keys: &[KeyOf<T>], thing: &T) {
        for (key, value) in values(self.model, keys, thing) {
            self.line(key, &value);
        }
    }

    fn line(&mut self, key: &str, value: &str) {
        self.text.push_str(&format!("{key} = {value}\n"));
    }

    fn portal(&self, portal: &Portal) -> String {
        let bind = quoted(&portal.bind.to_string());
        inline("bind", bind, values(self.model, PORTAL, portal))
    }

    fn target_lun(&self, entry: &TargetLun) -> String {
        let values = values(self.model, TARGET_LUN, entry);
        inline("lun", entry.lun.to_string(), values)
    }
}

/// The keys of a thing that have a value.
fn values<'a, T>(
    model: &'a Model,
    keys: &'a [KeyOf<T>],
    thing: &'a T,
) -> impl Iterator<Item = (&'static str, String)> + 'a {
    keys.iter()
        .filter_map(move |key| Some((key.name, (key.value)(model, thing)?)))
}

/// A table on one line.
fn inline(
    first_key: &str,
    first: String,
    rest: impl Iterator<Item = (&'static str, String)>,
) -> String {
    let mut line = format!("{{ {first_key} = {first}");
    for (key, value) in rest {
        line.push_str(&format!(", {key} = {value}"));
    }
    line.push_str(" }");
    line
}

/// A list with one entry on each line.
fn lines(values: impl Iterator<Item = String>) -> String {
    let mut lines = String::from("[");
    for value in values {
        lines.push_str(&format!("\n    {value},"));
    }
    if lines.len() > 1 {
        lines.push('\n');
    }
    lines.push(']');
    lines
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::diff;

    fn model(text: &str) -> Model {
        Model::from_toml(text, Path::new("tarn.toml")).unwrap()
    }

    #[test]
    fn the_effective_text_gives_the_same_model_and_itself() {
        for text in [
            include_str!("../../../examples/tarn.toml"),
            "lun = [{ id = \"a\", store = \"./mem:1?size=1M\" }]\n\
             [[target]]\nname = \"iqn.2026-11.example.tarn:t\"\n\
             luns = [{ lun = 3, id = \"a\" }]\n",
        ] {
            let model = model(text);
            let effective = model.effective();
            let again = Model::from_toml(&effective, Path::new("x")).unwrap();
            assert!(diff(&model, &again).is_empty(), "{effective}");
            assert_eq!(again.effective(), effective);
        }
    }

    #[test]
    fn defaults_are_written_out() {
        let effective = model("[[target]]\nname = \"iqn.2026-11.example.tarn:t\"\n").effective();
        for line in [
            "coalescing = \"adaptive\"",
            "queue_depth = 128",
            "pool_per_core_bytes = \"256M\"",
            "data_digest = \"allow\"",
            "chap_algorithms = [\"sha3-256\", \"sha256\", \"sha1\", \"md5\"]",
            "portals = [{ bind = \"127.0.0.1:3260\", group = 1 }]",
            "luns = []",
        ] {
            assert!(effective.lines().any(|l| l == line), "{line}\n{effective}");
        }
    }
}
