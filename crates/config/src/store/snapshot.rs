//! `snap:LUN@NAME`: a snapshot of a unit of the same configuration, as a store.
//!
//! The STORE names the unit. What is opened follows from the store of that unit ([`StoreSpec::snapshot_at`]) and is
//! known once all units are read; until then such a store leads nowhere.

use std::path::PathBuf;

use super::kind::StoreKind;
use super::rule::StoreRule;
use super::spec::{SnapshotOf, StoreAt, StorePlace, StoreSpec};

/// What the name of the directory of the snapshots of a file ends with.
const DIRECTORY: &str = ".snapshots";

/// The longest name of a snapshot in bytes.
const NAME_BYTES_MAX: usize = 64;

impl SnapshotOf {
    /// Reads `LUN@NAME`, or gives what is wrong with it.
    pub(super) fn parse(place: &str) -> Result<Self, &'static str> {
        let Some((lun, name)) = place.split_once('@') else {
            return Err("names no snapshot");
        };
        let is_in_it = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if lun.is_empty() || !lun.chars().all(is_in_it) {
            return Err("names no lun");
        }
        let is_name = name.len() <= NAME_BYTES_MAX
            && name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(is_in_it);
        if !is_name {
            return Err("has no name that a snapshot may have");
        }
        Ok(Self {
            lun: lun.to_owned(),
            name: name.to_owned(),
            at: None,
        })
    }
}

impl StoreSpec {
    /// The snapshot that the store is, if it is one.
    pub fn snapshot(&self) -> Option<&SnapshotOf> {
        let StorePlace::Snapshot(snapshot) = &self.at.place else {
            return None;
        };
        Some(snapshot)
    }

    /// What has the data of a snapshot of a unit that has this store.
    pub(crate) fn snapshot_at(&self, name: &str) -> Result<StoreAt, StoreRule> {
        let none = |remedy: String| StoreRule::SnapshotOfOther {
            store: self.text.clone(),
            remedy,
        };
        match &self.at.place {
            StorePlace::Path(_)
                if self
                    .at
                    .local_device()
                    .or_else(|| self.at.handler())
                    .is_some() =>
            {
                Err(none("name a lun whose store is a file".to_owned()))
            }
            StorePlace::Path(_) if !self.is_disk() => Err(none(
                "show the file of the disc in another drive".to_owned(),
            )),
            StorePlace::Path(path) => match self.at.kind.row().node {
                Some(node) if node.takes_files() => {
                    let mut directory = path.clone().into_os_string();
                    directory.push(DIRECTORY);
                    Ok(StoreAt {
                        kind: StoreKind::File,
                        place: StorePlace::Path(PathBuf::from(directory).join(name)),
                    })
                }
                Some(_) | None => Err(none(
                    "serve that of its volume manager by its path".to_owned(),
                )),
            },
            StorePlace::Image(_) => {
                let image = self.at.before_options();
                Err(none(format!("write {image}@{name}")))
            }
            StorePlace::Snapshot(_) => {
                Err(none("name the lun that it is a snapshot of".to_owned()))
            }
            StorePlace::Size(_)
            | StorePlace::Export(_)
            | StorePlace::Device(_)
            | StorePlace::Lun(_)
            | StorePlace::Members(_)
            | StorePlace::Empty => Err(none("name a lun whose store is a file".to_owned())),
        }
    }

    /// What the snapshot that the store is leads to.
    pub(crate) fn lead_to(&mut self, at: StoreAt) {
        if let StorePlace::Snapshot(snapshot) = &mut self.at.place {
            snapshot.at = Some(Box::new(at));
        }
    }

    /// The store that is opened for this one: of a snapshot, what has its data.
    pub fn opened(&self) -> Self {
        let at = self.snapshot().and_then(SnapshotOf::at);
        Self {
            at: at.unwrap_or(&self.at).clone(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{ConfigError, Draft, Model, Node};

    fn read(old: &str) -> Result<Model, ConfigError> {
        let text = format!(
            r#"lun = [
    {{ id = "old", store = "{old}" }},
    {{ id = "web", store = "web.img?blocksize=4096&format=raw" }},
    {{ id = "dev", store = "block:/dev/sdx" }},
    {{ id = "img", store = "rbd:p/i" }},
    {{ id = "mem", store = "mem:1M" }},
]"#
        );
        Model::from_toml(&text, Path::new("/srv/t.toml"))
    }

    #[test]
    fn a_snapshot_is_the_file_beside_that_of_its_unit_and_is_only_read() {
        let model = read("snap:web@before-upgrade").unwrap();
        let store = &model.units()[0].store;
        let path = Path::new("/srv/web.img.snapshots/before-upgrade");
        assert_eq!(store.at.node(), Some((path, Node::File)));
        assert_eq!(
            (store.read_only, store.block_size.bytes(), store.format_raw),
            (true, 4096, true)
        );
        assert_eq!(store.at.to_string(), "snap:web@before-upgrade");
        assert_eq!(
            store.opened().at,
            StoreSpec::parse(&format!("file:{}", path.display()))
                .unwrap()
                .at
        );
        let again = Model::from_toml(&model.effective(), Path::new("/srv/t.toml")).unwrap();
        assert!(
            crate::diff(&model, &again).is_empty(),
            "{}",
            model.effective()
        );
    }

    #[test]
    fn a_snapshot_that_leads_nowhere_is_refused_with_the_remedy() {
        for (store, error) in [
            ("snap:web", "names no snapshot"),
            ("snap:@a", "names no lun"),
            ("snap:w/b@a", "names no lun"),
            ("snap:web@../a", "no name that a snapshot may have"),
            ("snap:web@", "no name that a snapshot may have"),
            ("snap:wep@a", "did you mean \"web\""),
            ("snap:nothing-like-it@a", "name a [[lun]]"),
            ("snap:old@a", "name the lun that it is a snapshot of"),
            ("snap:dev@a", "volume manager"),
            ("snap:img@a", "write rbd:p/i@a"),
            ("snap:mem@a", "whose store is a file"),
            ("snap:web@a?size=1M", "size"),
            ("snap:web@a?readonly=false", "readonly"),
            ("snap:web@a?blocksize=512", "blocksize"),
        ] {
            let found = read(store).unwrap_err().to_string();
            assert!(found.starts_with("/srv/t.toml:2: lun[0].store"), "{found}");
            assert!(found.contains(error), "{store}: {found}");
        }
    }

    #[test]
    fn one_file_is_not_served_twice_under_two_kinds() {
        let text = r#"lun = [
    { id = "web", store = "web.img" },
    { id = "old", store = "snap:web@a" },
    { id = "same", store = "file:web.img.snapshots/a?readonly" },
]"#;
        let found = Model::from_toml(text, Path::new("/srv/t.toml")).unwrap_err();
        assert!(found.to_string().contains("is already used at"), "{found}");
    }

    #[test]
    fn a_unit_whose_snapshot_is_served_is_renamed_with_it_and_not_removed() {
        let text = "lun = [{ id = \"web\", store = \"web.img\" }, { id = \"old\", store = \"snap:web@a?serial=S\" }]\n";
        let mut draft = Draft::parse(text).unwrap();
        let error = draft.remove_lun("web").unwrap_err().to_string();
        assert!(error.contains("lun old"), "{error}");
        draft.rename_lun("web", "www").unwrap();
        assert_eq!(draft.luns()[1].store, "snap:www@a?serial=S");
        let model = |text: &str| Model::from_toml(text, Path::new("/srv/t.toml")).unwrap();
        let (before, after) = (model(text), model(&draft.to_string()));
        let differences = crate::diff_with(&before, &after, Some(&draft.renames()), |_| {
            crate::NewSecrets::default()
        });
        assert!(differences.units.is_empty(), "{differences:?}");
        // Another file of the unit is another medium of the snapshot.
        let moved = model(&text.replace("web.img", "new.img"));
        assert_eq!(crate::diff(&before, &moved).units.len(), 2);
        draft.remove_lun("old").unwrap();
        draft.remove_lun("www").unwrap();
    }
}
