//! Stores that are one: a stripe or a concat of `[[store]]` sections.

use super::kind::{StoreKind, StoreOption};
use super::rule::StoreRule;
use super::spec::{Members, NamedStore, StorePlace, StoreSpec};
use crate::error::At as _;
use crate::{ConfigError, Place};

/// The most members of a composition.
pub(super) const MEMBERS_MAX: usize = 16;

impl Members {
    /// Reads `A,B,...`.
    pub(super) fn parse(text: &str, place: &str, count_min: usize) -> Result<Self, StoreRule> {
        let wrong = |problem: String| StoreRule::Members {
            text: text.to_owned(),
            problem,
        };
        let ids: Vec<String> = place.split(',').map(str::to_owned).collect();
        for (position, id) in ids.iter().enumerate() {
            if id.is_empty() {
                return Err(wrong("has a member without a name".to_owned()));
            }
            if ids.iter().take(position).any(|other| other == id) {
                return Err(wrong(format!("has the member {id:?} twice")));
            }
        }
        match ids.len() {
            count if (count_min..=MEMBERS_MAX).contains(&count) => Ok(Self {
                ids,
                stores: Vec::new(),
            }),
            count => Err(wrong(format!(
                "has {count} of {count_min} to {MEMBERS_MAX} members"
            ))),
        }
    }
}

impl StoreSpec {
    /// The members of a composition; of any other store, none.
    pub fn members(&self) -> &[NamedStore] {
        let StorePlace::Members(members) = &self.at.place else {
            return &[];
        };
        &members.stores
    }

    /// The ids of the members of a composition.
    pub(crate) fn member_ids(&self) -> &[String] {
        let StorePlace::Members(members) = &self.at.place else {
            return &[];
        };
        &members.ids
    }

    /// Gives a composition its members, in the order of its ids. Whether they can be written is the disk's to say.
    pub(crate) fn set_members(
        &mut self,
        mut stores: Vec<NamedStore>,
        place: &Place,
    ) -> Result<(), ConfigError> {
        self.check_members(&stores).at(|| place.clone())?;
        for one in &mut stores {
            one.store.read_only = self.read_only;
        }
        if let Some(first) = stores.first() {
            self.block_size = first.store.block_size;
        }
        if let StorePlace::Members(members) = &mut self.at.place {
            members.stores = stores;
        }
        Ok(())
    }

    fn check_members(&self, stores: &[NamedStore]) -> Result<(), StoreRule> {
        let Some((last, before)) = stores.split_last() else {
            return Ok(());
        };
        let block = last.store.block_size;
        if let Some(other) = before.iter().find(|one| one.store.block_size != block) {
            return Err(StoreRule::MembersUnlike {
                id: other.id.clone(),
                bytes: other.store.block_size.bytes(),
                other: last.id.clone(),
                other_bytes: block.bytes(),
            });
        }
        let is_open = |one: &&NamedStore| one.store.configured_size_bytes().is_none();
        match before.iter().find(is_open) {
            Some(one) if self.at.kind == StoreKind::Concat => Err(StoreRule::MemberWithoutSize {
                id: one.id.clone(),
                takes_size: one.store.takes(StoreOption::Size),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether the data of this store is that of `before`, byte for byte as far as that went, so that one that is open
    /// as `before` serves for this one.
    ///
    /// Options are not compared. Of a composition the members count in their order, and how the data is laid over
    /// them; a concat may have further ones behind.
    pub fn continues(&self, before: &Self) -> bool {
        let (old, new) = (before.members(), self.members());
        if old.is_empty() || new.is_empty() {
            return old.len() == new.len() && self.at.medium() == before.at.medium();
        }
        let is_same = |(old, new): (&NamedStore, &NamedStore)| {
            let (old, new) = (&old.store, &new.store);
            match (old.at.medium(), new.at.medium()) {
                (None, None) => old.at == new.at,
                (old, new) => old == new,
            }
        };
        let is_longer = self.at.kind == StoreKind::Concat && new.len() > old.len();
        self.at.kind == before.at.kind
            && self.chunk_bytes == before.chunk_bytes
            && (new.len() == old.len() || is_longer)
            && old.iter().zip(new).all(is_same)
    }
}

impl NamedStore {
    /// What belongs to a disk and not to a member of one is refused.
    pub(crate) fn check(&self) -> Result<(), StoreRule> {
        let wrong = |found| StoreRule::OfDisk {
            id: self.id.clone(),
            found,
        };
        let StoreSpec {
            read_only,
            serial,
            removable,
            ..
        } = &self.store;
        match (self.store.member_ids(), read_only, serial, removable) {
            ([_, ..], ..) => Err(wrong("members of its own")),
            _ if !self.store.is_disk() => Err(wrong("a disc")),
            (_, true, ..) => Err(wrong("readonly")),
            (_, _, Some(_), _) => Err(wrong("a serial number")),
            (_, _, _, true) => Err(wrong("removable")),
            ([], false, None, false) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Model;

    const STORES: &str = r#"
store = [
    { id = "a", store = "file:a.img?size=1M" },
    { id = "b", store = "mem:2M" },
    { id = "c", store = "file:c.img" },
    { id = "d", store = "block:/dev/sdx?blocksize=4096" },
]
"#;

    fn read(luns: &str) -> Result<Model, ConfigError> {
        Model::from_toml(
            &format!("{STORES}\nlun = [{luns}]\n"),
            Path::new("/srv/t.toml"),
        )
    }

    /// The model of one LUN with this store.
    fn of(store: &str) -> Result<Model, ConfigError> {
        read(&format!("{{ id = \"x\", store = \"{store}\" }}"))
    }

    #[test]
    fn members_are_found_in_their_order_with_their_places() {
        let model = of("stripe:b,a?chunk=16k&readonly").unwrap();
        let unit = model.units().first().unwrap();
        let parts: Vec<String> = unit
            .parts()
            .map(|(store, place)| format!("{place} {store}"))
            .collect();
        assert_eq!(
            parts,
            [
                "/srv/t.toml:4: store[1].store mem:2M",
                "/srv/t.toml:3: store[0].store file:a.img?size=1M"
            ]
        );
        assert_eq!(unit.store.chunk_bytes, 16 << 10);
        assert!(
            unit.parts().all(|(store, _)| store.read_only),
            "the disk says so"
        );
        let media: Vec<String> = unit.media().map(|medium| medium.to_string()).collect();
        assert_eq!(media, ["/srv/a.img"]);
        assert_eq!(unit.memory_bytes(), 2 << 20);
        assert_eq!(
            of("stripe:a,b")
                .unwrap()
                .units()
                .first()
                .unwrap()
                .store
                .chunk_bytes,
            64 << 10
        );
    }

    #[test]
    fn what_makes_no_composition_is_refused_with_the_remedy() {
        #[rustfmt::skip]
        let cases = [
            ("stripe:a", "has 1 of 2 to 16 members; write the ids of [[store]]"),
            ("concat:", "has a member without a name"),
            ("stripe:a,,b", "has a member without a name"),
            ("stripe:a,b,a", "has the member \"a\" twice"),
            ("stripe:1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "has 17 of 2 to 16 members"),
            ("stripe:a,x", "store \"x\" does not exist"),
            ("stripe:a,b?chunk=48k", "store option chunk has the wrong value \"48k\"; use a power of two from 4k to 16M"),
            ("stripe:a,b?chunk=2k", "use a power of two"),
            ("stripe:a,b?chunk=32M", "use a power of two"),
            ("concat:a,b?chunk=64k", "a concat has no chunks"),
            ("mem:1M?chunk=64k", "there are no members"),
            ("stripe:a,b?size=1M", "write it in the [[store]] of each member"),
            ("stripe:a,b?blocksize=4096", "write it in the [[store]]"),
            ("stripe:a,b?retry=1", "there is no server"),
            ("stripe:a,d", "store \"a\" has blocks of 512 bytes and store \"d\" has 4096; give all members one blocksize="),
            ("concat:c,b", "store \"c\" is not the last member and has no size of its own"),
        ];
        for (store, message) in cases {
            let error = of(store).unwrap_err().to_string();
            assert!(error.contains(message), "{store}: {error}");
            assert!(
                error.starts_with("/srv/t.toml:9: lun[0].store: "),
                "{store}: {error}"
            );
        }
        for store in ["concat:a,b,c", "concat:c", "stripe:c,a"] {
            of(store).unwrap();
        }
    }

    #[test]
    fn a_device_before_the_last_member_goes_last() {
        let text = "store = [{ id = \"a\", store = \"block:/dev/a\" }, { id = \"b\", store = \"nbd://h\" }]\n";
        let read = |order: &str| {
            let text = format!("{text}lun = [{{ id = \"x\", store = \"concat:{order}\" }}]");
            Model::from_toml(&text, Path::new("t.toml"))
        };
        for order in ["a,b", "b,a"] {
            let error = read(order).unwrap_err().to_string();
            assert!(
                error.ends_with("could move; make it the last member"),
                "{error}"
            );
        }
        read("a").unwrap();
    }

    #[test]
    fn one_store_is_a_member_once_and_one_medium_has_one_use() {
        let error =
            read("{ id = \"x\", store = \"stripe:a,b\" }, { id = \"y\", store = \"concat:a\" }")
                .unwrap_err();
        assert_eq!(
            error.to_string(),
            "/srv/t.toml:9: lun[1].store: store \"a\" is already used at /srv/t.toml:9: lun[0].store; keep one, and \
             show its unit under several LUN numbers or targets instead"
        );
        for (store, used) in [
            ("a.img", "store[0]"),
            ("file:./c.img", "store[2]"),
            ("block:/dev/sdx", "store[3]"),
        ] {
            let error = of(store).unwrap_err().to_string();
            let used = format!("{used}.store; keep one");
            assert!(
                error.contains("is already used at") && error.contains(&used),
                "{error}"
            );
        }
        let twice = "store = [{ id = \"a\", store = \"f\" }, { id = \"b\", store = \"file:f\" }]";
        let error = Model::from_toml(twice, Path::new("t.toml"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("\"f\" is already used at t.toml:1: store[0].store"),
            "{error}"
        );
    }

    #[test]
    fn what_is_of_a_disk_is_refused_at_a_member() {
        for (store, found) in [
            ("mem:1M?readonly", "readonly"),
            ("mem:1M?serial=X", "a serial number"),
            ("mem:1M?removable", "removable"),
            ("stripe:a,b", "members of its own"),
        ] {
            let text = format!("store = [{{ id = \"a\", store = \"{store}\" }}]");
            let error = Model::from_toml(&text, Path::new("t.toml"))
                .unwrap_err()
                .to_string();
            let expected = format!(
                "t.toml:1: store[0].store: store \"a\" has {found}, which only a disk has; write it at the [[lun]]"
            );
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn a_command_line_names_no_members() {
        let name = crate::IscsiName::parse("iqn.2026-11.example.tarn:t").unwrap();
        let error = Model::from_stores(&["stripe:a,b".to_owned()], name, &[]).unwrap_err();
        assert!(
            error.to_string().ends_with("start with --config FILE"),
            "{error}"
        );
    }

    #[test]
    fn a_store_that_no_lun_has_is_warned_of() {
        let warnings = of("concat:a").unwrap().warnings();
        let words: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        for id in ["b", "c", "d"] {
            let expected = format!("store \"{id}\" is in no lun, so it is not opened");
            assert!(
                words.iter().any(|one| one.ends_with(&expected)),
                "{words:?}"
            );
        }
        assert!(
            !words.iter().any(|one| one.contains("store \"a\"")),
            "{words:?}"
        );
    }

    #[test]
    fn data_goes_on_where_members_keep_their_order() {
        #[rustfmt::skip]
        let cases = [
            ("stripe:a,b", "stripe:a,b", true),
            ("stripe:a,b", "stripe:a,b?readonly", true),
            ("stripe:a,b", "stripe:b,a", false),
            ("stripe:a,b", "stripe:a,b?chunk=16k", false),
            ("stripe:a,b", "stripe:a,b,c", false),
            ("stripe:a,b", "concat:a,b", false),
            ("concat:a", "concat:a,b,c", true),
            ("concat:a,b", "concat:a", false),
            ("concat:a", "mem:2M", false),
            ("concat:a", "other.img", false),
            ("null:1M", "null:2M", true),
        ];
        for (before, after, expected) in cases {
            let (before_model, after_model) = (of(before).unwrap(), of(after).unwrap());
            let (old, new) = (before_model.units().first(), after_model.units().first());
            let continues = new.unwrap().store.continues(&old.unwrap().store);
            assert_eq!(continues, expected, "{before} -> {after}");
        }
    }

    #[test]
    fn the_effective_configuration_reads_back() {
        let model = of("stripe:b,a?chunk=16k").unwrap();
        let again = Model::from_toml(&model.effective(), Path::new("t.toml")).unwrap();
        assert!(
            crate::diff(&model, &again).is_empty(),
            "{}",
            model.effective()
        );
        assert_eq!(again.stores().len(), 4);
    }
}
