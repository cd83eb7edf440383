//! The sections of the file that have a list: one mechanism reads, adds, changes and removes them all; a section says
//! what names it, what is wrong with it by itself, and what refers to it.

use api::patch::{Patch, Patched};
use api::spec;
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml_edit::Item;

use super::draft::{Draft, GROUP, Kind, LUN, NBD, QUOTA, STORE, TARGET, USER};
use super::error::EditError;
use super::list::{Keys, Row, rows, texts};
use super::walk;
use crate::address::parse_nbd_bind;
use crate::group::{NO_INITIATORS, initiator_user};
use crate::{IscsiName, QuotaRule, Rule, StoreSpec, parse_size};

/// A section of the file as the API says it.
pub(super) trait Section: Clone + Default + DeserializeOwned + Serialize {
    const KIND: Kind;

    /// Its name, by which it is found.
    fn named(&self) -> Result<String, EditError>;

    /// What is wrong with it by itself.
    fn check(&self) -> Result<(), EditError> {
        Ok(())
    }

    /// The same, with what stays of the one that is there where this does not say it.
    fn completed(&self, _there: Option<&Self>) -> Result<Self, EditError> {
        Ok(self.clone())
    }

    /// Changes what the API never says.
    fn write_rest(&self, _keys: &mut Keys<'_>) {}

    /// What refers to the one of this name.
    fn uses(_draft: &Draft, _name: &str) -> Vec<String> {
        Vec::new()
    }
}

impl Draft {
    /// The units, as the text has them.
    pub fn luns(&self) -> Vec<spec::Lun> {
        self.sections()
    }

    /// The named stores, as the text has them.
    pub fn stores(&self) -> Vec<spec::Store> {
        self.sections()
    }

    /// The servers of NBD, as the text has them.
    pub fn nbd(&self) -> Vec<spec::Nbd> {
        self.sections()
    }

    /// The quotas, as the text has them.
    pub fn quotas(&self) -> Vec<spec::Quota> {
        self.sections()
    }

    /// The targets, as the text has them.
    pub fn targets(&self) -> Vec<spec::Target> {
        self.sections()
    }

    /// The groups, as the text has them.
    pub fn groups(&self) -> Vec<spec::Group> {
        self.sections()
    }

    /// The users, as the text has them, without secrets.
    pub fn users(&self) -> Vec<spec::User> {
        self.sections()
    }

    /// All of a kind, as the text has them.
    pub(super) fn sections<S: Section>(&self) -> Vec<S> {
        let rows = rows(self.list(S::KIND)).into_iter();
        rows.filter_map(|row| match row {
            Row::Table(table) => walk::read(S::KIND.keys, table).ok(),
            Row::Text(_) => None,
        })
        .collect()
    }

    /// The section of this name.
    pub(super) fn section<S: Section>(&self, name: &str) -> Result<S, EditError> {
        self.one(S::KIND, name, |table| walk::read(S::KIND.keys, table))?
    }

    /// Adds a section, or changes the one of its name. True when it was made.
    pub(super) fn put_section<S: Section>(&mut self, section: &S) -> Result<bool, EditError> {
        section.check()?;
        let name = section.named()?;
        let there = match self.section(&name) {
            Ok(there) => Some(there),
            Err(EditError::NotFound { .. }) => None,
            // What cannot be read would be overwritten.
            Err(error) => return Err(error),
        };
        let wanted = section.completed(there.as_ref())?;
        let (mut keys, is_made) = self.find_or_add(S::KIND, &name)?;
        wanted.write_rest(&mut keys);
        walk::write(&mut keys, S::KIND.keys, &wanted, S::KIND.identity.keys());
        Ok(is_made)
    }

    /// Sets keys of the section of this name.
    pub(super) fn set_section<S: Section + Patched>(
        &mut self,
        name: &str,
        patch: &Patch<S>,
    ) -> Result<(), EditError> {
        let there = self.section(name)?;
        let section = patch.applied(&there);
        let section = section.map_err(|error| EditError::Value {
            why: error.to_string(),
        })?;
        self.put_section(&section).map(drop)
    }

    /// Removes the section of this name, if nothing refers to it.
    pub(super) fn remove_section<S: Section>(&mut self, name: &str) -> Result<(), EditError> {
        self.remove(S::KIND, name, |draft| S::uses(draft, name))
    }

    fn uses_of_user(&self, name: &str) -> Vec<String> {
        let is_name = |user: &String| user == name;
        let targets = self.targets().into_iter();
        let of_targets = targets
            .filter(|target| target.auth.iter().any(is_name))
            .map(|target| format!("auth of target {}", target.name));
        let is_entry = |entry: &String| initiator_user(entry) == Some(name);
        let groups = self.groups().into_iter();
        let of_groups = groups
            .filter(|group| group.initiators.iter().any(is_entry))
            .map(|group| format!("group {}", group.id));
        let server = self.document.get("server").and_then(Item::as_table_like);
        let discovery = server.map(|server| texts(server, "discovery_auth"));
        let of_server = discovery
            .filter(|users| users.iter().any(is_name))
            .map(|_| "discovery_auth".to_owned());
        of_targets.chain(of_groups).chain(of_server).collect()
    }

    /// The units that are snapshots of the one with this `id`, each with what follows that in its store.
    pub(super) fn snapshots_of(&self, id: &str) -> Vec<(String, String)> {
        let rows = rows(self.list(LUN)).into_iter();
        rows.filter_map(|row| {
            let rest = snapshot_of(row.text("store")?, id)?;
            Some((row.text("id")?.to_owned(), rest))
        })
        .collect()
    }
}

/// What follows the `id` in the store of a unit that is a snapshot of the unit with this one.
fn snapshot_of(store: &str, id: &str) -> Option<String> {
    let rest = store.strip_prefix("snap:")?.strip_prefix(id)?;
    rest.starts_with('@').then(|| rest.to_owned())
}

impl Section for spec::Lun {
    const KIND: Kind = LUN;

    fn named(&self) -> Result<String, EditError> {
        Ok(self.id.clone())
    }

    fn check(&self) -> Result<(), EditError> {
        StoreSpec::parse(&self.store)?;
        Ok(())
    }

    fn uses(draft: &Draft, id: &str) -> Vec<String> {
        let targets = draft.targets_with(id).into_iter();
        let targets = targets.map(|target| format!("target {target}"));
        let snapshots = draft.snapshots_of(id).into_iter();
        let snapshots = snapshots.map(|(lun, _)| format!("lun {lun}"));
        let shown = targets.chain(draft.nbd_with("luns", id));
        let shown = shown.chain(draft.hyperscsi_with(id));
        shown.chain(snapshots).collect()
    }
}

impl Section for spec::Store {
    const KIND: Kind = STORE;

    fn named(&self) -> Result<String, EditError> {
        Ok(self.id.clone())
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

impl Section for spec::Target {
    const KIND: Kind = TARGET;

    fn named(&self) -> Result<String, EditError> {
        Ok(self.name.clone())
    }

    fn check(&self) -> Result<(), EditError> {
        IscsiName::parse(&self.name)?;
        Ok(())
    }
}

impl Section for spec::Group {
    const KIND: Kind = GROUP;

    fn named(&self) -> Result<String, EditError> {
        Ok(self.id.clone())
    }

    fn check(&self) -> Result<(), EditError> {
        match self.initiators.is_empty() {
            true => Err(NO_INITIATORS.into()),
            false => Ok(()),
        }
    }

    fn uses(draft: &Draft, id: &str) -> Vec<String> {
        let targets = draft.targets();
        let entries = targets
            .iter()
            .flat_map(|target| target.luns.iter().map(move |entry| (target, entry)));
        entries
            .filter(|(_, entry)| entry.groups.iter().any(|group| group == id))
            .map(|(target, entry)| format!("lun {} of target {}", entry.lun, target.name))
            .chain(draft.nbd_with("groups", id))
            .collect()
    }
}

impl Section for spec::User {
    const KIND: Kind = USER;

    fn named(&self) -> Result<String, EditError> {
        Ok(self.name.clone())
    }

    /// Secrets are not for this text: only the files that hold them are; one that is not given stays. A client that
    /// does not know `initiators` does not free the user of its names.
    fn completed(&self, there: Option<&Self>) -> Result<Self, EditError> {
        let missing = || EditError::SecretMissing {
            name: self.name.clone(),
        };
        let mut user = self.clone();
        user.secret = None;
        if user.secret_file.is_none() {
            user.secret_file = there.and_then(|there| there.secret_file.clone());
            user.secret_file.as_ref().ok_or_else(missing)?;
        }
        if let Some(mutual) = &mut user.mutual {
            mutual.secret = None;
            if mutual.secret_file.is_none() {
                let there = there.and_then(|there| there.mutual.as_ref());
                mutual.secret_file = there.and_then(|there| there.secret_file.clone());
                mutual.secret_file.as_ref().ok_or_else(missing)?;
            }
        }
        if user.initiators.is_none() {
            user.initiators = there.and_then(|there| there.initiators.clone());
        }
        Ok(user)
    }

    fn uses(draft: &Draft, name: &str) -> Vec<String> {
        draft.uses_of_user(name)
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
}

impl Section for spec::Quota {
    const KIND: Kind = QUOTA;

    fn named(&self) -> Result<String, EditError> {
        match (&self.owner, &self.pool) {
            (Some(_), None) | (None, Some(_)) => Ok(Self::name(self)),
            (Some(_), Some(_)) => Err(QuotaRule::OfTwo.into()),
            (None, None) => Err(QuotaRule::OfNothing.into()),
        }
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
    use crate::nbd_name;

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
            Edit::Set(Keys::Store(StoreKeys::of(["s"]).with("store", "mem:2M"))),
            // The place that is not written, in another form.
            Edit::Set(Keys::Nbd(
                NbdKeys::of(["127.0.0.1"]).with("groups", Vec::<String>::new()),
            )),
            Edit::Set(Keys::Quota(
                QuotaKeys::of(["owner:accounts"])
                    .with("used", "2M")
                    .with("soft", 80),
            )),
        ];
        let (new, old) = made(&edits);
        assert_eq!(
            new,
            [
                "store = \"mem:2M\" # small",
                "used = \"2M\" # a MiB",
                "soft = 80"
            ]
        );
        assert_eq!(
            old,
            ["store = \"mem:1M\" # small", "used = 1048576 # a MiB"]
        );
        let same = Edit::Set(Keys::Quota(
            QuotaKeys::of(["owner:accounts"]).with("used", "1048576"),
        ));
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
