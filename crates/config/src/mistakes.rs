//! All mistakes of a file, where [`Model::from_toml`] names the first.
//!
//! The readers stop at the first broken rule, and stay as simple as that. Here what is wrong is taken out and the rest
//! is read again, until nothing is wrong any more. A key that must be there has a value that stands in for it. What
//! breaks a rule only because something was taken out is not a mistake of the file: a list that is empty now, a
//! reference to a section that is gone.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::edit::shown_url;
use crate::reader::{Source, joined};
use crate::seal::SealRule;
use crate::views::ViewRule;
use crate::{AddressRule, ConfigError, Model, Place, Rule, StoreRule};

/// Mistakes that are named. At the limit the rest is found when these have been put right.
const MISTAKES_MAX: usize = 64;

/// Times that the file is read: each takes out one thing, and up to two above it that make no sense without.
const READS_MAX: usize = 4 * MISTAKES_MAX;
/// A text of any length is read so often.
const READS_MIN: usize = 8;
/// Bytes that are read in all, beyond that.
const READ_BYTES_MAX: usize = 4 << 20;

/// The lists whose entries are named by others, with the key that has the name.
const NAMED: [(&str, &str); 4] = [
    ("lun", "id"),
    ("store", "id"),
    ("group", "id"),
    ("user", "name"),
];

/// What stands in for values that are wrong and must be there. Where one makes no sense, its section is taken out.
const STAND_INS: &str = r#"
    bind = "127.0.0.1"
    id = "x"
    initiators = ["*"]
    lun = 16383
    name = "iqn.2026-11.x:x"
    secret_file = "x"
    store = "null:1M"
    url = "https://x"
"#;

impl Model {
    /// Reads the text of a configuration file, as [`Model::from_toml`].
    ///
    /// # Errors
    ///
    /// All broken rules, in the order of their lines; at most 64.
    pub fn read(text: &str, file: &Path) -> Result<Self, Vec<ConfigError>> {
        let file_name = file.display().to_string();
        let source = Source::new(&file_name, text);
        let root = source.parse().map_err(|error| vec![error])?;
        let stand_ins = Source::new("", STAND_INS).parse();
        let stand_ins = stand_ins.map_err(|error| vec![error])?;
        let mut source = source.with_stand_ins(stand_ins.get_ref());
        let mut mistakes = Vec::new();
        let mut gone = Gone::default();
        // A long text is read fewer times, so that its mistakes cost no more than those of a short one.
        let reads = (READ_BYTES_MAX / text.len().max(1)).clamp(READS_MIN, READS_MAX);
        for _read in 0..reads {
            let error = match Self::from_tree(&source, &root, file) {
                Ok(model) if mistakes.is_empty() => return Ok(model),
                Ok(_) => break,
                Err(error) => error,
            };
            let is_caused = gone.causes(&error, &source);
            let goes_on = gone.take_out(&error, &mut source, &root);
            if !is_caused {
                mistakes.push(error);
            }
            if mistakes.len() >= MISTAKES_MAX || !goes_on {
                break;
            }
        }
        mistakes.sort_by_key(|error| line_of(&error.place));
        Err(mistakes)
    }
}

/// The names of the entries of a text, which is read when the first is asked for.
#[derive(Debug)]
pub struct SpokenPaths<'a> {
    text: &'a str,
    root: OnceCell<Option<Spanned<DeTable<'a>>>>,
}

impl<'a> SpokenPaths<'a> {
    /// Those of this text.
    pub const fn of(text: &'a str) -> Self {
        Self {
            text,
            root: OnceCell::new(),
        }
    }

    /// The path of a key with the name of its entry, for readers without the text: `lun "a": store` for
    /// `lun[0].store`. Of the URL of a web server only what everybody may see.
    pub fn spoken(&self, path: &str) -> String {
        let found = self.entry(path);
        found.unwrap_or_else(|| path.to_owned())
    }

    fn entry(&self, path: &str) -> Option<String> {
        let (list, rest) = path.split_once('[')?;
        let (at, rest) = rest.split_once(']')?;
        let names = ["id", "name", "bind", "socket", "owner", "pool"];
        let read = || Source::new("", self.text).parse().ok();
        let root = self.root.get_or_init(read).as_ref()?;
        let at = at.parse().ok()?;
        let name = names.iter().find_map(|key| name_of(root, list, at, key));
        let name = name.or_else(|| Some(shown_url(&name_of(root, list, at, "url")?)))?;
        Some(match rest.strip_prefix('.') {
            Some(key) => format!("{list} {name:?}: {key}"),
            None => format!("{list} {name:?}"),
        })
    }
}

fn line_of(place: &Place) -> usize {
    match place {
        Place::File { line, .. } => *line,
        Place::Argument { .. } => 0,
    }
}

fn path_of(place: &Place) -> &str {
    match place {
        Place::File { key, .. } => key,
        Place::Argument { .. } => "",
    }
}

/// The path above one: that of the entry or section that a key is in, or that of the list that an entry is in.
fn above(path: &str) -> Option<&str> {
    let at = path.rfind(['.', '['])?;
    path.get(..at)
}

/// The place of what was there before, of a rule that there is one of it.
fn first_of(error: &ConfigError) -> Option<&Place> {
    if let Some(Rule::Twice { first, .. }) = error.broken() {
        return Some(first);
    }
    if let Some(ViewRule::Twice { first, .. } | ViewRule::Overlap { first, .. }) = error.broken() {
        return Some(first);
    }
    if let Some(StoreRule::Twice { first, .. }) = error.broken() {
        return Some(first);
    }
    let (SealRule::IdentityTwice { first, .. } | SealRule::PortalsOverlap { first, .. }) =
        error.broken()?;
    Some(first)
}

/// The key of a section that a rule is about, where its place is that of the section.
fn key_of(error: &ConfigError) -> Option<&str> {
    if let Rule::UnknownKey { key, .. } = error.broken()? {
        return Some(key);
    }
    if let Rule::MissingKey { key, .. } = error.broken()? {
        return Some(key);
    }
    None
}

/// What references lead to no more.
#[derive(Default)]
struct Gone {
    /// Names of entries.
    names: BTreeSet<String>,
    /// Lists as a whole.
    lists: BTreeSet<&'static str>,
}

impl Gone {
    /// Whether a rule is broken only because something was taken out, or by what stands in for it.
    fn causes(&self, error: &ConfigError, source: &Source<'_>) -> bool {
        let path = path_of(&error.place);
        let is_out = |path: &str| {
            let mut up = std::iter::successors(Some(path), |path| above(path));
            up.any(|path| source.is_masked(path))
        };
        if is_out(path) || first_of(error).is_some_and(|first| is_out(path_of(first))) {
            return true;
        }
        if let Some(Rule::MissingKey { key, .. }) = error.broken() {
            return source.is_masked(&joined(path, key));
        }
        if let Some(Rule::NotWithout { missing } | Rule::NotAlone { missing }) = error.broken() {
            let section = above(path).unwrap_or_default();
            return source.is_masked(&joined(section, missing));
        }
        if let Some(Rule::Unknown { what, name, .. }) = error.broken() {
            return self.names.contains(name) || self.lists.contains(what);
        }
        if let Some(AddressRule::InitiatorUnknown { pattern }) = error.broken() {
            return self.names.contains(pattern) || self.lists.contains("user");
        }
        !matches!(error.broken(), Some(Rule::UnknownKey { .. })) && source.is_masked_below(path)
    }

    /// Takes out what an error is about. False if nothing is left to take out.
    fn take_out(
        &mut self,
        error: &ConfigError,
        source: &mut Source<'_>,
        root: &Spanned<DeTable<'_>>,
    ) -> bool {
        let path = path_of(&error.place);
        let mut path = match key_of(error) {
            Some(key) => joined(path, key),
            None => path.to_owned(),
        };
        while !path.is_empty() {
            if source.mask(path.clone()) {
                self.note(&path, root);
                return true;
            }
            path = above(&path).unwrap_or_default().to_owned();
        }
        false
    }

    /// Notes what had a name there.
    fn note(&mut self, path: &str, root: &Spanned<DeTable<'_>>) {
        for (list, key) in NAMED {
            let Some(rest) = path.strip_prefix(list) else {
                continue;
            };
            if rest.is_empty() {
                self.lists.insert(list);
            }
            let entry = rest
                .strip_suffix(key)
                .and_then(|rest| rest.strip_suffix('.'));
            let number = entry.unwrap_or(rest).strip_prefix('[');
            let number = number.and_then(|rest| rest.strip_suffix(']')?.parse().ok());
            self.names
                .extend(number.and_then(|at| name_of(root, list, at, key)));
        }
    }
}

/// The name that an entry of a list has in the text.
fn name_of(root: &Spanned<DeTable<'_>>, list: &str, at: usize, key: &str) -> Option<String> {
    fn of<'t, 'a>(table: &'t DeTable<'a>, name: &str) -> Option<&'t DeValue<'a>> {
        let mut keys = table.iter();
        let (_, value) = keys.find(|(key, _)| key.get_ref().as_ref() == name)?;
        Some(value.get_ref())
    }
    let mut table = root.get_ref();
    let (sections, list) = list.rsplit_once('.').unwrap_or(("", list));
    for section in sections.split('.').filter(|name| !name.is_empty()) {
        table = of(table, section)?.as_table()?;
    }
    let entry = of(table, list)?.as_array()?.get(at)?;
    let name = of(entry.get_ref().as_table()?, key)?.as_str()?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> Vec<String> {
        let all = Model::read(text, Path::new("t.toml"))
            .err()
            .unwrap_or_default();
        let text = |error: &ConfigError| error.to_string();
        all.iter().map(text).collect()
    }

    #[test]
    fn every_mistake_is_named_once_with_its_line_and_nothing_that_follows_from_it() {
        let text = r#"
            colour = "red"
            [server]
            cores = 0
            log = "loud"
            [[lun]]
            id = "a"
            store = "mem:10X"
            naa = "5"
            [[lun]]
            id = "b/c"
            store = "mem:1M"
            [[lun]]
            id = "d"
            store = "/srv/d.img"
            [[lun]]
            id = "e"
            store = "/srv/d.img"
            [[lun]]
            store = "mem:1M"
            [[user]]
            name = "u"
            [[group]]
            id = "g"
            initiators = ["u", "nobody"]
            [[target]]
            name = "iqn.2026-11.a:t"
            portals = ["300.0.0.1", "127.0.0.1:99999"]
            auth = ["u", "v"]
            luns = [
                { lun = 0, id = "a", groups = ["g"] },
                { lun = 1, id = "b/c" },
                { lun = 2, id = "f" },
                { lun = 3, id = "d" },
                { lun = 3, id = "e" },
            ]
        "#;
        let found = mistakes(text);
        let starts = [
            "t.toml:2: unknown key \"colour\"",
            "t.toml:4: server.cores: 0 is outside",
            "t.toml:5: server.log: \"loud\" is not known",
            "t.toml:8: lun[0].store: ",
            "t.toml:9: lun[0].naa: ",
            "t.toml:11: lun[1].id: ",
            "t.toml:18: lun[3].store: store \"/srv/d.img\" is already used at t.toml:15",
            "t.toml:19: lun[4]: key \"id\" is missing",
            "t.toml:21: user[0]: key \"secret_file\" is missing",
            "t.toml:25: group[0].initiators[1]: ",
            "t.toml:28: target[0].portals[0]: ",
            "t.toml:28: target[0].portals[1]: ",
            "t.toml:29: target[0].auth[1]: ",
            "t.toml:33: target[0].luns[2].id: ",
            "t.toml:35: target[0].luns[4].lun: ",
        ];
        for (at, start) in starts.iter().enumerate() {
            let found = found.get(at).map(String::as_str).unwrap_or_default();
            assert!(
                found.starts_with(start),
                "{at}: {start:?} is not at the start of {found:?}"
            );
        }
        assert_eq!(found.len(), starts.len(), "{found:#?}");
    }

    #[test]
    fn the_first_mistake_is_among_all() {
        for text in [
            "[admin]\ncertificate = 5\nkey = \"k\"",
            "user = 5\n[[target]]\nname = \"iqn.2026-11.a:t\"\nauth = [\"u\"]",
            "lun = 5\n[limits]\nqueue_depth = \"a\"\nconnections_max = -1",
            "[[quota]]\nowner = \"a\"\nprovisioned = \"x\"\n[[notify]]\nurl = \"ftp://a\"",
            "[[nbd]]\nluns = [\"a\"]\nsocket = \"s\"\nmode = \"9999\"\n[confine]\nuser = \"\"\nroots = 5",
        ] {
            let first = Model::from_toml(text, Path::new("t.toml")).unwrap_err();
            let all = mistakes(text);
            assert!(all.contains(&first.to_string()), "{first}: {all:#?}");
        }
        let both = mistakes("[admin]\ncertificate = 5\nkey = \"k\"");
        assert_eq!(both.len(), 1, "{both:#?}");
        let of_list = mistakes("user = 5\n[[target]]\nname = \"iqn.2026-11.a:t\"\nauth = [\"u\"]");
        assert_eq!(of_list.len(), 1, "{of_list:#?}");
    }

    #[test]
    fn a_path_is_called_by_the_name_of_its_entry() {
        let text = "[[lun]]\nid = \"a\"\n[[lun]]\nid = \"b\"\n[[target]]\nname = \"iqn.2026-11.a:t\"\n[[nbd]]\n\
                    [[hyperscsi.group]]\nname = \"ABC\"\n[[notify]]\nurl = \"https://a.example:8443/hook/horse\"\n\
                    [[notify]]\nurl = \"https://b.example\"\n";
        let paths = SpokenPaths::of(text);
        for (path, spoken) in [
            ("lun[1].store", "lun \"b\": store"),
            ("lun[0]", "lun \"a\""),
            (
                "target[0].luns[2].id",
                "target \"iqn.2026-11.a:t\": luns[2].id",
            ),
            ("nbd[0].luns", "nbd[0].luns"),
            (
                "hyperscsi.group[0].device[1].id",
                "hyperscsi.group \"ABC\": device[1].id",
            ),
            ("hyperscsi.group[1].name", "hyperscsi.group[1].name"),
            ("lun[7].store", "lun[7].store"),
            (
                "notify[0].secret_file",
                "notify \"https://a.example:8443/(not shown)\": secret_file",
            ),
            ("notify[1]", "notify \"https://b.example\""),
            ("limits.queue_depth", "limits.queue_depth"),
        ] {
            assert_eq!(paths.spoken(path), spoken);
        }
    }

    #[test]
    fn a_text_that_is_not_toml_and_one_that_is_right() {
        assert_eq!(mistakes("a = = 1").len(), 1);
        assert!(
            Model::read(
                "[[lun]]\nid = \"a\"\nstore = \"mem:1M\"",
                Path::new("t.toml")
            )
            .is_ok()
        );
    }

    #[test]
    fn the_number_of_mistakes_is_bounded() {
        let text = "[[lun]]\nid = \"a\"\nstore = \"mem:\"\n".repeat(200);
        assert_eq!(mistakes(&text).len(), MISTAKES_MAX);
    }
}
