//! The whole configuration as one text, with every default that is known written out.

use serde::Serialize;

use crate::admin::ADMIN;
use crate::confine::CONFINE;
use crate::keyed::{SERVER, keyed};
use crate::keys::{
    SECTION_GROUP, SECTION_HYPERSCSI_GROUP, SECTION_LUN, SECTION_NBD, SECTION_QUOTA, SECTION_STORE,
    SECTION_TARGET, SECTION_USER, SectionKeys,
};
use crate::limits::LIMIT_VALUES;
use crate::notify::NOTIFY;
use crate::specs::Said;
use crate::value::{KeyOf, Keyed, quoted, values};
use crate::{Model, NotifyTo, specs};

impl Model {
    /// The configuration with its defaults written out and without comments. The text parses to
    /// the same model, if the file it is read as has no directory: paths are those of the model.
    ///
    /// What the model leaves to others is left out: the state directory, the cores and the log
    /// level of the process, identities that are made, and whether an unnamed kind of store is thin. A
    /// unit of a command line has its STORE as `id`, which no file can have.
    pub fn effective(&self) -> String {
        let mut text = Text {
            text: String::new(),
        };
        text.section("[server]", None, SERVER, self);
        text.section("[limits]", None, &LIMIT_VALUES, &self.limits);
        text.section("[admin]", None, &ADMIN, &self.admin);
        text.section("[confine]", None, &CONFINE, &self.confine);
        for named in &self.stores {
            text.thing("[[store]]", &SECTION_STORE, &specs::store(named));
        }
        for unit in &self.units {
            text.thing("[[lun]]", &SECTION_LUN, &specs::lun(unit, Said::Whole));
        }
        for user in &self.users {
            text.thing("[[user]]", &SECTION_USER, &specs::user(user, Said::Whole));
        }
        for group in &self.groups {
            text.thing("[[group]]", &SECTION_GROUP, &specs::group(self, group));
        }
        for target in &self.targets {
            text.thing("[[target]]", &SECTION_TARGET, &specs::target(self, target));
        }
        for server in &self.nbd {
            text.thing("[[nbd]]", &SECTION_NBD, &specs::nbd(self, server));
        }
        for group in &self.hyperscsi {
            let heading = "[[hyperscsi.group]]";
            let group = specs::hyperscsi(group, Said::Whole);
            text.thing(heading, &SECTION_HYPERSCSI_GROUP, &group);
        }
        for quota in &self.quotas {
            text.thing("[[quota]]", &SECTION_QUOTA, &specs::quota(quota));
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
struct Text {
    text: String,
}

impl Text {
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
        self.lines(values(keys, thing));
    }

    fn lines(&mut self, keys: Keyed) {
        for (key, value) in keys {
            if let Some(value) = value {
                self.line(key, &value);
            }
        }
    }

    fn line(&mut self, key: &str, value: &str) {
        self.text.push_str(&format!("{key} = {value}\n"));
    }

    fn thing<T: Serialize>(&mut self, heading: &str, section: &SectionKeys, thing: &T) {
        self.section_of(heading, None);
        self.lines(keyed(section, thing, &[]));
    }
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
