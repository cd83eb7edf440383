//! Sections that are nothing but their keys: named stores, servers of NBD, quotas, groups of HyperSCSI. One mechanism
//! adds, changes and removes them all; a section says which keys it has and what names it.

use std::net::SocketAddr;

use api::spec;
use toml_edit::{Item, TableLike, Value};

use super::table::{Keys, text, texts};
use super::target::set_flag;
use super::{Draft, EditError, Kind, NBD, QUOTA, STORE, hyperscsi, read};
use crate::address::parse_nbd_bind;
use crate::{Rule, StoreSpec, parse_size};

/// Where a server of NBD listens that does not say it.
const NBD_PLACE_DEFAULT: &str = "127.0.0.1:10809";

/// What names the things of a kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Identity {
    /// The text of this key.
    Key(&'static str),
    /// The address or the path of a server of NBD.
    Place,
    /// What a quota counts: `owner:NAME` or `pool:PLACE`.
    Counted,
    /// The name and the place of a group of HyperSCSI: `NAME at PLACE`.
    Group,
}

impl Identity {
    /// The name of a thing.
    pub(super) fn of(self, table: &dyn TableLike) -> Option<String> {
        match self {
            Self::Key(key) => text(table, key),
            Self::Place => {
                let place = text(table, "socket").or_else(|| text(table, "bind"));
                Some(place.unwrap_or_else(|| NBD_PLACE_DEFAULT.to_owned()))
            }
            Self::Counted => {
                let of = |key: &str| text(table, key).map(|text| format!("{key}:{text}"));
                of("owner").or_else(|| of("pool"))
            }
            Self::Group => hyperscsi::name_of(table),
        }
    }

    /// The keys that say a name, and their values.
    pub(super) fn key(self, name: &str) -> Option<Vec<(&'static str, Value)>> {
        let (key, text) = match self {
            Self::Key(key) => (key, name),
            Self::Place if parse_nbd_bind(name).is_ok() => ("bind", name),
            Self::Place => ("socket", name),
            Self::Counted => match name.split_once(':')? {
                ("owner", owner) => ("owner", owner),
                ("pool", pool) => ("pool", pool),
                _ => return None,
            },
            Self::Group => return hyperscsi::first_keys(name),
        };
        Some(vec![(key, Value::from(text))])
    }
}

/// The address of a server of NBD that is given so, with or without a port. `None`: it is none, as a path.
pub fn nbd_address(place: &str) -> Option<SocketAddr> {
    parse_nbd_bind(place).ok()
}

/// What a server of NBD is known by, as plans call it: its address with a port, or the path of its socket.
pub fn nbd_name(place: &str) -> String {
    nbd_address(place).map_or_else(|| place.to_owned(), |address| address.to_string())
}

/// What a section has under a key.
pub(super) enum Field<'a> {
    Text(Option<&'a str>),
    /// A number of bytes, with or without a unit.
    Size(Option<&'a str>),
    Texts(&'a [String]),
    Number(Option<u16>),
    /// A key that is absent where it is not so.
    Flag(bool),
    Devices(&'a [spec::HyperscsiDevice]),
}

/// A section of the file as the API says it.
pub(super) trait Section: Sized {
    const KIND: Kind;

    /// Its name, by which it is found.
    fn named(&self) -> Result<String, EditError>;

    fn read(table: &dyn TableLike) -> Self;

    /// Its keys, but the one that names it.
    fn fields(&self) -> Vec<(&'static str, Field<'_>)>;

    /// What is wrong with it by itself.
    fn check(&self) -> Result<(), EditError> {
        Ok(())
    }

    /// What refers to the one of this name.
    fn uses(_draft: &Draft, _name: &str) -> Vec<String> {
        Vec::new()
    }
}

impl Draft {
    /// All of a kind, as the text has them.
    pub(super) fn sections<S: Section>(&self) -> Vec<S> {
        self.read(S::KIND, S::read)
    }

    /// Adds a section, or changes the one of its name. True when it was made.
    pub(super) fn put_section<S: Section>(&mut self, section: &S) -> Result<bool, EditError> {
        section.check()?;
        let (mut keys, is_made) = self.find_or_add(S::KIND, &section.named()?)?;
        for (key, field) in section.fields() {
            set(&mut keys, key, &field);
        }
        Ok(is_made)
    }

    /// Changes the section of this name.
    pub(super) fn set_section<S: Section>(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut S),
    ) -> Result<(), EditError> {
        let mut section = self.one(S::KIND, name, S::read)?;
        change(&mut section);
        self.put_section(&section).map(drop)
    }

    /// Removes the section of this name, if nothing refers to it.
    pub(super) fn remove_section<S: Section>(&mut self, name: &str) -> Result<(), EditError> {
        self.remove(S::KIND, name, |draft| S::uses(draft, name))
    }
}

fn set(keys: &mut Keys<'_>, key: &str, field: &Field<'_>) {
    match *field {
        Field::Text(text) => keys.set_text(key, text, str::eq),
        Field::Size(wanted) => {
            let is_same = |a: &str, b: &str| a == b || is_same_size(a, b);
            if size(keys.read(), key).as_deref() != wanted {
                keys.set_text(key, wanted, is_same);
            }
        }
        Field::Texts([]) => keys.remove(key),
        Field::Texts(wanted) => keys.set_texts(key, wanted, str::to_owned),
        Field::Number(wanted) => {
            if read::number(keys.read(), key) != wanted {
                keys.set(key, wanted.map(|number| Value::from(i64::from(number))));
            }
        }
        Field::Flag(wanted) => set_flag(keys, key, wanted),
        Field::Devices(wanted) => hyperscsi::set_devices(keys, key, wanted),
    }
}

fn is_same_size(a: &str, b: &str) -> bool {
    parse_size(a).is_ok_and(|bytes| parse_size(b) == Ok(bytes))
}

/// A number of bytes in either form, as text.
fn size(table: &dyn TableLike, key: &str) -> Option<String> {
    let number = || table.get(key).and_then(Item::as_integer);
    text(table, key).or_else(|| number().map(|bytes| bytes.to_string()))
}

impl Section for spec::Store {
    const KIND: Kind = STORE;

    fn named(&self) -> Result<String, EditError> {
        Ok(self.id.clone())
    }

    fn read(table: &dyn TableLike) -> Self {
        Self {
            id: text(table, "id").unwrap_or_default(),
            store: text(table, "store").unwrap_or_default(),
        }
    }

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        vec![("store", Field::Text(Some(&self.store)))]
    }

    fn check(&self) -> Result<(), EditError> {
        StoreSpec::parse(&self.store)?;
        Ok(())
    }

    fn uses(draft: &Draft, name: &str) -> Vec<String> {
        let has = |lun: &spec::Lun| {
            let store = StoreSpec::parse(&lun.store);
            store.is_ok_and(|store| store.member_ids().iter().any(|member| member == name))
        };
        let luns = draft.luns().into_iter().filter(has);
        luns.map(|lun| format!("lun {}", lun.id)).collect()
    }
}

impl Section for spec::Nbd {
    const KIND: Kind = NBD;

    fn named(&self) -> Result<String, EditError> {
        match (&self.bind, &self.socket) {
            (Some(_), Some(_)) => Err(Rule::NotBoth { other: "bind" }.into()),
            (None, Some(path)) => match parse_nbd_bind(path) {
                // It would be read as an address.
                Ok(_) => Ok(format!("./{path}")),
                Err(_) => Ok(path.clone()),
            },
            (Some(address), None) => {
                parse_nbd_bind(address)?;
                Ok(address.clone())
            }
            (None, None) => Ok(self.place().to_owned()),
        }
    }

    fn read(table: &dyn TableLike) -> Self {
        Self {
            bind: text(table, "bind"),
            socket: text(table, "socket"),
            mode: text(table, "mode"),
            luns: texts(table, "luns"),
            groups: texts(table, "groups"),
            certificate: text(table, "certificate"),
            key: text(table, "key"),
            ca: text(table, "ca"),
        }
    }

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        vec![
            ("mode", Field::Text(self.mode.as_deref())),
            ("luns", Field::Texts(&self.luns)),
            ("groups", Field::Texts(&self.groups)),
            ("certificate", Field::Text(self.certificate.as_deref())),
            ("key", Field::Text(self.key.as_deref())),
            ("ca", Field::Text(self.ca.as_deref())),
        ]
    }
}

impl Section for spec::Quota {
    const KIND: Kind = QUOTA;

    fn named(&self) -> Result<String, EditError> {
        match (&self.owner, &self.pool) {
            (Some(_), None) | (None, Some(_)) => Ok(Self::name(self)),
            (Some(_), Some(_)) => Err(Rule::QuotaOfTwo.into()),
            (None, None) => Err(Rule::QuotaOfNothing.into()),
        }
    }

    fn read(table: &dyn TableLike) -> Self {
        Self {
            owner: text(table, "owner"),
            pool: text(table, "pool"),
            provisioned: size(table, "provisioned"),
            used: size(table, "used"),
            soft: read::number(table, "soft"),
        }
    }

    fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        vec![
            ("provisioned", Field::Size(self.provisioned.as_deref())),
            ("used", Field::Size(self.used.as_deref())),
            ("soft", Field::Number(self.soft)),
        ]
    }

    fn check(&self) -> Result<(), EditError> {
        for size in [&self.provisioned, &self.used].into_iter().flatten() {
            parse_size(size)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use api::edit::{Edit, Keys, Name, NbdKeys, QuotaKeys, StoreKeys, Thing};

    use super::*;

    const TEXT: &str = r#"
[[lun]]
id = "a"
store = "mem:1M"
owner = "accounts"

# Of the stripe.
[[store]]
id = "s"
store = "mem:1M" # small

# Of the machine itself.
[[nbd]]
luns = ["a"] # all

# Of accounts.
[[quota]]
owner = "accounts"
used = 1048576 # a MiB
"#;

    fn draft() -> Draft {
        Draft::parse(TEXT).unwrap()
    }

    /// The lines that an edit makes, and those that it takes away.
    fn made(edits: &[Edit]) -> (Vec<String>, Vec<String>) {
        let mut draft = draft();
        for edit in edits {
            draft.make(edit).unwrap();
        }
        let after = draft.to_string();
        Draft::parse(&after).unwrap();
        let lines = |of: &str, without: &str| {
            let lines = of
                .lines()
                .filter(|line| !without.lines().any(|other| other == *line));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        (lines(&after, TEXT), lines(TEXT, &after))
    }

    fn nbd(bind: Option<&str>, socket: Option<&str>) -> spec::Nbd {
        spec::Nbd {
            bind: bind.map(str::to_owned),
            socket: socket.map(str::to_owned),
            luns: vec!["a".to_owned()],
            ..spec::Nbd::default()
        }
    }

    #[test]
    fn a_server_of_nbd_has_one_name_however_its_place_is_written() {
        for (written, name) in [
            ("127.0.0.1", "127.0.0.1:10809"),
            ("127.0.0.1:10809", "127.0.0.1:10809"),
            ("::1", "[::1]:10809"),
            ("[0::1]:7", "[::1]:7"),
            ("/run/disk.sock", "/run/disk.sock"),
        ] {
            assert_eq!(nbd_name(written), name);
        }
    }

    #[test]
    fn a_key_of_one_section_is_changed_and_all_else_stays() {
        let edits = [
            Edit::Set(Keys::Store(StoreKeys {
                id: "s".to_owned(),
                store: Some("mem:2M".to_owned()),
            })),
            // The place that is not written, in another form.
            Edit::Set(Keys::Nbd(NbdKeys {
                nbd: "127.0.0.1".to_owned(),
                groups: Some(Vec::new()),
                ..NbdKeys::default()
            })),
            Edit::Set(Keys::Quota(QuotaKeys {
                quota: "owner:accounts".to_owned(),
                used: Some("1M".to_owned()),
                soft: Some(80),
                ..QuotaKeys::default()
            })),
        ];
        let (new, old) = made(&edits);
        assert_eq!(
            new,
            [
                "store = \"mem:2M\" # small",
                "used = \"1M\" # a MiB",
                "soft = 80"
            ]
        );
        assert_eq!(
            old,
            ["store = \"mem:1M\" # small", "used = 1048576 # a MiB"]
        );
        let same = Edit::Set(Keys::Quota(QuotaKeys {
            quota: "owner:accounts".to_owned(),
            used: Some("1048576".to_owned()),
            ..QuotaKeys::default()
        }));
        assert_eq!(made(&[same]), (Vec::new(), Vec::new()));
    }

    #[test]
    fn sections_are_made_and_removed_by_their_names() {
        let quota = spec::Quota {
            pool: Some("/srv".to_owned()),
            provisioned: Some("1G".to_owned()),
            ..spec::Quota::default()
        };
        let edits = [
            Edit::Add(Thing::Nbd(nbd(None, Some("nbd.sock")))),
            Edit::Put(Thing::Quota(quota)),
            Edit::Remove(Name::Nbd("127.0.0.1:10809".to_owned())),
            Edit::Remove(Name::Quota("owner:accounts".to_owned())),
            Edit::Remove(Name::Store("s".to_owned())),
        ];
        let (new, old) = made(&edits);
        let expected = [
            "socket = \"nbd.sock\"",
            "luns = [\"a\"]",
            "pool = \"/srv\"",
            "provisioned = \"1G\"",
        ];
        assert_eq!(new, expected);
        assert!(old.contains(&"# Of accounts.".to_owned()), "{old:?}");
    }

    #[test]
    fn a_section_that_cannot_be_is_refused_and_nothing_is_changed() {
        let wrong_size = spec::Quota {
            owner: Some("b".to_owned()),
            used: Some("much".to_owned()),
            ..spec::Quota::default()
        };
        let store = Thing::Store(spec::Store {
            id: "s".to_owned(),
            store: "mem:1M".to_owned(),
        });
        for (edit, why) in [
            (
                Edit::Add(Thing::Nbd(nbd(Some("127.0.0.1"), None))),
                "exists already",
            ),
            (
                Edit::Put(Thing::Nbd(nbd(Some("127.0.0.1:1"), Some("s")))),
                "bind",
            ),
            (Edit::Put(Thing::Nbd(nbd(Some("nowhere"), None))), "nowhere"),
            (Edit::Put(Thing::Quota(spec::Quota::default())), "owner"),
            (Edit::Put(Thing::Quota(wrong_size)), "much"),
            (Edit::Add(store), "exists already"),
            (
                Edit::Remove(Name::Quota("accounts".to_owned())),
                "there is no quota",
            ),
            (
                Edit::Remove(Name::Nbd("127.0.0.1:1".to_owned())),
                "there is no nbd",
            ),
        ] {
            let mut draft = draft();
            let error = draft.make(&edit).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert_eq!(draft.to_string(), TEXT);
        }
    }
}
