//! What the media of a unit were when it was served last: kept beside its state, so that another medium in their place
//! is not taken for them.

use std::io;
use std::path::PathBuf;

use durable::Found;

use super::State;
use super::ledger::Record;
use super::repair::entries;
use super::unit::{MEDIUM, UnitState, damaged, name_of};
use crate::StartError;
use crate::medium::Medium;

const MAGIC: &str = "tarn-medium 1";

impl UnitState {
    fn medium_path(&self) -> Option<(PathBuf, &str)> {
        Some((self.directory()?.join(MEDIUM), self.name()?))
    }

    /// The media that the unit had, in the order of its parts; `None`: nothing was recorded.
    ///
    /// # Errors
    ///
    /// The record cannot be read, or is damaged.
    pub(crate) fn media(&self) -> io::Result<Option<Vec<Medium>>> {
        let Some((path, unit)) = self.medium_path() else {
            return Ok(None);
        };
        let text = match durable::read(&path)? {
            Found::Absent => return Ok(None),
            Found::Whole(text) => text,
            Found::Damaged(_) => return Err(damaged(&path, "is damaged")),
        };
        let facts = text.strip_prefix(&format!("{MAGIC} {unit}\n"));
        let media = facts.and_then(Medium::of_text);
        let media =
            media.ok_or_else(|| damaged(&path, "is damaged, of another unit or version"))?;
        Ok(Some(media))
    }

    /// Records the media that the unit has now. A record that says so already is not written again. With no media, what
    /// the unit has next is compared with nothing.
    ///
    /// # Errors
    ///
    /// It may not be recorded.
    pub(crate) fn note_media(&self, media: &[Medium]) -> io::Result<()> {
        let Some((path, unit)) = self.medium_path() else {
            return Ok(());
        };
        if !matches!(self.media(), Ok(Some(known)) if known == media) {
            let facts: String = media.iter().map(Medium::to_text).collect();
            durable::write(&path, &format!("{MAGIC} {unit}\n{facts}"))?;
        }
        *self.lock_sizes() = media.iter().map(|one| one.size_bytes).collect();
        Ok(())
    }

    /// Records media that have grown since they were recorded. One that has become smaller has lost data, and counts
    /// with the size that it had.
    ///
    /// # Errors
    ///
    /// As [`UnitState::note_media`].
    pub(crate) fn note_growth(&self, media: &[Medium]) -> io::Result<()> {
        let sizes: Vec<_> = media.iter().map(|one| one.size_bytes).collect();
        let known = self.lock_sizes().clone();
        let (mut is_larger, mut is_smaller) = (false, known.len() != sizes.len());
        for (now, was) in sizes.iter().zip(&known) {
            is_larger |= now > was;
            is_smaller |= now < was;
        }
        match is_larger && !is_smaller {
            true => self.note_media(media),
            false => Ok(()),
        }
    }

    /// Whether one of these media is smaller than it was.
    pub(crate) fn has_shrunk(&self, media: &[Medium]) -> bool {
        let known = self.lock_sizes();
        let mut pairs = media.iter().zip(&*known);
        pairs.any(|(medium, &was)| medium.size_bytes < was)
    }

    /// Has the unit served with whatever is there next, but not with what is missing.
    fn forget_media(&self) -> io::Result<()> {
        let Some((path, _)) = self.medium_path() else {
            return Ok(());
        };
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Records, where nothing is recorded, that the unit has not been served yet: an empty record.
    ///
    /// # Errors
    ///
    /// As [`UnitState::note_media`].
    pub(crate) fn note_unserved(&self) -> io::Result<()> {
        match self.media() {
            Ok(None) => self.note_media(&[]),
            Ok(Some(_)) | Err(_) => Ok(()),
        }
    }
}

impl State {
    /// Records of all units that are `wanted` that nothing of their media is known. They are called by their ids, or by
    /// their directory. Gives what they are called, and those that a process serves, which stay as they are.
    ///
    /// # Errors
    ///
    /// The directory cannot be used.
    pub fn adopt(
        &self,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<(Vec<String>, Vec<String>), StartError> {
        let (ledger, _) = self.read_ledger()?;
        let (mut adopted, mut served) = (Vec::new(), Vec::new());
        let units = self.directory.join("units");
        let unusable = |source| StartError::StateUnusable {
            path: units.clone(),
            source,
        };
        for directory in entries(&units).map_err(unusable)? {
            let name = name_of(&directory);
            let is_its =
                |record: &&Record| record.naa == name || record.saved_in.as_deref() == Some(name);
            let id = ledger
                .records
                .iter()
                .find(is_its)
                .and_then(|record| record.id.clone());
            // A unit with an NAA in the configuration is in a directory that the ledger may not know.
            let called = [id.as_deref(), Some(name)];
            let Some(id) = called.into_iter().flatten().find(|word| wanted(word)) else {
                continue;
            };
            let id = id.to_owned();
            match UnitState::lock(&directory).map_err(unusable)? {
                Some(state) => {
                    state.forget_media().map_err(unusable)?;
                    adopted.push(id);
                }
                None => served.push(id),
            }
        }
        Ok((adopted, served))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use crate::serve::living::Living;

    #[test]
    fn a_record_comes_back_and_a_damaged_one_does_not() {
        let scratch = Scratch::new();
        let directory = scratch.path().join("3000000000000001");
        let state = UnitState::lock(&directory).unwrap().unwrap();
        assert_eq!(state.media().unwrap(), None);
        state.note_unserved().unwrap();
        assert_eq!(state.media().unwrap(), Some(Vec::new()));
        let media = [
            Medium {
                store: "/srv/a.img".to_owned(),
                size_bytes: 512,
                ..Medium::default()
            },
            Medium::default(),
        ];
        state.note_media(&media).unwrap();
        assert_eq!(state.media().unwrap().as_deref(), Some(&media[..]));
        durable::write(&directory.join(MEDIUM), "tarn-medium 1 3000000000000002\n").unwrap();
        assert!(state.media().is_err());
        state.note_media(&media).unwrap();
        state.note_unserved().unwrap();
        assert_eq!(state.media().unwrap().as_deref(), Some(&media[..]));
    }

    fn of_sizes(sizes: &[u64]) -> Vec<Medium> {
        let medium = |&size_bytes| Medium {
            store: "/srv/a.img".to_owned(),
            size_bytes,
            ..Medium::default()
        };
        sizes.iter().map(medium).collect()
    }

    #[test]
    fn growth_is_recorded_where_nothing_has_become_smaller() {
        let scratch = Scratch::new();
        let state = UnitState::lock(&scratch.path().join("3000000000000001"));
        let state = state.unwrap().unwrap();
        state.note_media(&of_sizes(&[512, 1024])).unwrap();
        for (now, recorded, has_shrunk) in [
            (&[512, 1024][..], &[512, 1024][..], false),
            (&[512, 1025], &[512, 1025], false),
            (&[511, 4096], &[512, 1025], true),
            (&[4096, 1024], &[512, 1025], true),
            (&[4096], &[512, 1025], false),
            (&[513, 1026], &[513, 1026], false),
        ] {
            let media = of_sizes(now);
            assert_eq!(state.has_shrunk(&media), has_shrunk, "{now:?}");
            state.note_growth(&media).unwrap();
            assert_eq!(state.media().unwrap(), Some(of_sizes(recorded)), "{now:?}");
        }
        state.forget_media().unwrap();
        assert_eq!(state.media().unwrap(), None);
        state.forget_media().unwrap();
    }

    #[test]
    fn only_units_that_are_wanted_and_that_nobody_serves_are_adopted() {
        let living = Living::new(
            "[[lun]]\nid = \"a\"\nstore = \"file:{dir}/a.img?size=1M\"\n\
             [[lun]]\nid = \"b\"\nstore = \"file:{dir}/b.img?size=1M\"\nnaa = \"3000000000000002\"\n\
             [server]\nstate = \"{dir}/state\"\ncores = 1\n[admin]\nenabled = false\n\
             [limits]\npool_per_core_bytes = \"16M\"\n",
        );
        let adopt = |living: &Living, wanted: &[&str]| {
            let adopted = living.daemon.state.adopt(|word| wanted.contains(&word));
            adopted.unwrap()
        };
        let text =
            |all: &[&str]| -> Vec<String> { all.iter().map(|&one| one.to_owned()).collect() };
        assert_eq!(
            adopt(&living, &["a"]),
            (Vec::new(), text(&["a"])),
            "it is served"
        );
        living
            .apply(
                &living
                    .text()
                    .replace("id = \"a\"", "id = \"c\"")
                    .replace("a.img", "c.img"),
            )
            .unwrap();
        assert_eq!(adopt(&living, &["x"]), (Vec::new(), Vec::new()));
        let scratch = living.stop();
        let kept = scratch.path().join("state/units");
        let records = |kept: &std::path::Path| {
            let all = entries(kept).unwrap().into_iter();
            all.filter(|one| one.join(MEDIUM).exists()).count()
        };
        let before = records(&kept);
        let state = State::open(scratch.path().join("state")).unwrap();
        assert_eq!(
            state.adopt(|word| word == "x").unwrap(),
            (Vec::new(), Vec::new())
        );
        assert_eq!(records(&kept), before);
        assert_eq!(
            state
                .adopt(|word| word == "3000000000000002")
                .unwrap()
                .0
                .len(),
            1
        );
        assert_eq!(records(&kept), before - 1);
    }
}
