//! The directory as several starts and several processes see it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use config::{IscsiName, Model, Naa};
use durable::copy_of;
use plane::{Save, StateAuthority as _};

use super::*;
use crate::StartError;
use crate::locate::{Location, locate_for_start};
use crate::scratch::Scratch;

fn locations(model: &Model) -> Result<Vec<Option<Location>>, StartError> {
    locate_for_start(model, false).map(|found| found.locations)
}

/// Saves the first state of a unit.
fn save(identity: &UnitIdentity, content: &[u8]) {
    let first = Save {
        state: content.to_vec(),
        replaces: None,
    };
    identity.state.save(&first).unwrap();
}

/// A directory with a state directory and images in it.
struct World {
    scratch: Scratch,
    state: State,
}

impl World {
    fn new() -> Self {
        let scratch = Scratch::new();
        let state = State::open(scratch.path().join("state/tarn")).unwrap();
        Self { scratch, state }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn make(&self, name: &str) {
        fs::write(self.at(name), name).unwrap();
    }

    /// Replaces the file at `name` by one that was made elsewhere.
    fn restore(&self, name: &str) {
        self.make("restored");
        fs::rename(self.at("restored"), self.at(name)).unwrap();
    }

    /// A start with these stores, the given one made by `meanwhile`.
    fn start_and(
        &self,
        stores: &[&str],
        meanwhile: impl FnOnce(),
    ) -> Result<Vec<UnitIdentity>, StartError> {
        let stores: Vec<_> = stores
            .iter()
            .map(|store| match store.split_once(':') {
                Some(_) => (*store).to_owned(),
                None => self.at(store).display().to_string(),
            })
            .collect();
        let name = IscsiName::parse("iqn.2026-11.example.tarn:t").unwrap();
        let model = Model::from_stores(&stores, name, &[]).unwrap();
        let identities = self.state.identities(&model, &locations(&model)?)?;
        meanwhile();
        self.state.note_files(&model, &locations(&model)?)?;
        Ok(identities)
    }

    fn start(&self, stores: &[&str]) -> Result<Vec<UnitIdentity>, StartError> {
        self.start_and(stores, || ())
    }

    /// What the stores are known by in a start that ends at once.
    fn naas(&self, stores: &[&str]) -> Vec<Naa> {
        let identities = self.start(stores).unwrap();
        identities.iter().map(|identity| identity.naa).collect()
    }

    fn naa(&self, store: &str) -> Naa {
        self.naas(&[store])[0]
    }

    fn ledger(&self) -> String {
        fs::read_to_string(self.state.directory().join("identities.toml")).unwrap_or_default()
    }
}

#[test]
fn an_identity_is_made_once() {
    let world = World::new();
    world.make("a");
    world.make("b");
    let first = world.naas(&["a", "b"]);
    assert_ne!(first[0], first[1]);
    assert_eq!(world.naas(&["b", "a"]), [first[1], first[0]]);
    let ledger = world.ledger();
    world.naas(&["a"]);
    assert_eq!(world.ledger(), ledger, "nothing new, nothing written");
}

#[test]
fn a_port_has_its_number_again_after_a_restart() {
    let world = World::new();
    world.make("a");
    world.naa("a");
    let port = |target: &str| (target.to_owned(), 1);
    let both = BTreeSet::from([port("t1"), port("t2")]);
    let first = world.state.port_numbers(&both).unwrap();
    let again = State::open(world.state.directory().to_owned()).unwrap();
    let more = BTreeSet::from([port("t0"), port("t2")]);
    let second = again.port_numbers(&more).unwrap();
    assert_eq!(second[&port("t2")], first[&port("t2")]);
    assert!(!first.values().any(|number| *number == second[&port("t0")]));
    world.naa("a");
    assert_eq!(
        again.port_numbers(&both).unwrap(),
        first,
        "kept beside the units"
    );
}

#[test]
fn a_moved_image_keeps_its_identity_and_its_old_place_is_free() {
    let world = World::new();
    world.make("a");
    let naa = world.naa("a");
    fs::rename(world.at("a"), world.at("b")).unwrap();
    world.make("a");
    assert_eq!(world.naa("b"), naa);
    assert_ne!(world.naa("a"), naa);
    assert_eq!(world.naa("b"), naa);
}

#[test]
fn images_that_change_places_change_identities_with_them() {
    let world = World::new();
    world.make("a");
    world.make("b");
    let before = world.naas(&["a", "b"]);
    fs::rename(world.at("a"), world.at("c")).unwrap();
    fs::rename(world.at("b"), world.at("a")).unwrap();
    fs::rename(world.at("c"), world.at("b")).unwrap();
    assert_eq!(world.naas(&["a", "b"]), [before[1], before[0]]);
    assert_eq!(world.naas(&["b", "a"]), before);
}

#[test]
fn a_restored_image_keeps_its_identity_by_its_path() {
    let world = World::new();
    world.make("a");
    let naa = world.naa("a");
    world.restore("a");
    assert_eq!(world.naa("a"), naa);
    fs::rename(world.at("a"), world.at("b")).unwrap();
    assert_eq!(world.naa("b"), naa, "its new mark was noted");
}

#[test]
fn an_image_that_tarn_makes_is_a_new_disk_and_is_known_from_then_on() {
    let world = World::new();
    let make = || {
        let identities = world.start_and(&["new?size=1M"], || world.make("new"));
        identities.unwrap()[0].naa
    };
    let first = make();
    assert_eq!(world.naa("new"), first);
    fs::rename(world.at("new"), world.at("moved")).unwrap();
    assert_eq!(world.naa("moved"), first);
    fs::remove_file(world.at("moved")).unwrap();
    let second = make();
    assert_ne!(second, first);
}

#[test]
fn memory_is_a_new_disk_each_time_and_leaves_no_trace() {
    let world = World::new();
    let first = world.naas(&["mem:1M", "mem:1M"]);
    assert_ne!(first[0], first[1]);
    assert_ne!(world.naa("mem:1M"), first[0]);
    assert_eq!(world.ledger(), "");
    let identities = world.start(&["null:1M"]).unwrap();
    assert!(!identities[0].state.is_kept());
}

fn with_id(id: &str, store: &str) -> Model {
    let text = format!(
        "[[lun]]\nid = \"{id}\"\nstore = \"{store}\"\n[[target]]\nname = \"iqn.2026-11.a:t\"\n"
    );
    Model::from_toml(&text, Path::new("t.toml")).unwrap()
}

#[test]
fn a_unit_with_an_id_keeps_its_identity_whatever_its_store() {
    let world = World::new();
    let naa = |id: &str, store: &str| {
        let model = with_id(id, store);
        let locations = locations(&model).unwrap();
        world.state.identities(&model, &locations).unwrap()[0].naa
    };
    let demo = naa("demo", "mem:1M");
    assert_eq!(naa("demo", "null:1M"), demo);
    assert_ne!(naa("other", "mem:1M"), demo);
}

#[test]
fn what_the_administrator_says_wins_over_what_was_made() {
    let world = World::new();
    let text = "[[lun]]\nid = \"a\"\nstore = \"mem:1M\"\nserial = \"S\"\n\
                naa = \"5000000000000001\"\n[[target]]\nname = \"iqn.2026-11.a:t\"\n";
    let model = Model::from_toml(text, Path::new("t.toml")).unwrap();
    let identities = world.state.identities(&model, &[None]).unwrap();
    assert_eq!(identities[0].serial.as_str(), "S");
    assert_eq!(identities[0].naa.to_string(), "5000000000000001");
}

#[test]
fn two_daemons_share_the_directory_and_no_unit() {
    let world = World::new();
    world.make("a");
    world.make("b");
    let a = world.start(&["a"]).unwrap();
    let b = world.start(&["b"]).unwrap();
    assert_ne!(a[0].naa, b[0].naa);
    let error = world.start(&["b", "a"]).unwrap_err();
    assert!(matches!(error, StartError::UnitBusy { .. }), "{error}");
    drop(a);
    drop(b);
    assert!(world.start(&["b", "a"]).is_ok());
}

#[test]
fn what_is_saved_of_a_unit_is_found_by_its_identity() {
    let world = World::new();
    world.make("a");
    save(&world.start(&["a"]).unwrap()[0], b"keys");
    fs::rename(world.at("a"), world.at("b")).unwrap();
    let loaded = world.start(&["b"]).unwrap()[0].state.load();
    assert_eq!(loaded.unwrap().unwrap().state, b"keys");
}

/// What two processes do at once: neither loses the other's entry.
#[test]
fn daemons_that_start_together_keep_each_other_s_identities() {
    let world = World::new();
    let names: Vec<_> = (0..8).map(|n| format!("disk{n}")).collect();
    for name in &names {
        world.make(name);
    }
    let naas: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = names
            .iter()
            .map(|name| scope.spawn(|| world.naa(name)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    assert_eq!(world.naas(&names), naas);
}

#[test]
fn everything_is_private_to_its_owner() {
    let world = World::new();
    world.make("a");
    let identities = world.start(&["a"]).unwrap();
    save(&identities[0], b"x");
    let mut left = vec![world.state.directory().to_owned()];
    let mut files = 0;
    while let Some(path) = left.pop() {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}", path.display());
        if path.is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            left.extend(entries.map(|entry| entry.unwrap().path()));
        } else {
            files += 1;
        }
    }
    assert_eq!(
        files, 6,
        "identities and their copy, their lock, the unit's lock, its saved state and the copy"
    );
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let scratch = Scratch::new();
    for mode in [0o770, 0o707, 0o1777] {
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(mode)).unwrap();
        let error = State::open(scratch.path().to_owned())
            .unwrap_err()
            .to_string();
        assert!(error.contains(&format!("has mode {mode:04o}")), "{error}");
        assert!(error.contains("run chmod 700"), "{error}");
    }
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(State::open(scratch.path().to_owned()).is_ok());
}

#[test]
fn a_newer_ledger_is_refused_and_left_alone() {
    let world = World::new();
    world.make("a");
    let path = world.state.directory().join("identities.toml");
    fs::write(&path, "version = 2\n").unwrap();
    let error = world.start(&["a"]).unwrap_err().to_string();
    assert!(
        error.contains("has version 2, this program knows version 1"),
        "{error}"
    );
    assert_eq!(world.ledger(), "version = 2\n");
}

#[test]
fn a_damaged_ledger_is_left_alone_and_its_copy_is_used() {
    for is_gone in [false, true] {
        let world = World::new();
        for name in ["a", "new"] {
            world.make(name);
        }
        let naa = world.naa("a");
        let path = world.state.directory().join("identities.toml");
        let whole = fs::read(&path).unwrap();
        let ends = if is_gone { 0..1 } else { 0..whole.len() };
        for end in ends.step_by(7) {
            if is_gone {
                fs::remove_file(&path).unwrap();
            } else {
                fs::write(&path, &whole[..end]).unwrap();
            }
            let found = world.start(&["a", "new"]).unwrap();
            assert_eq!((found[0].naa, found[0].is_withheld), (naa, false), "{end}");
            assert!(found[1].is_withheld, "{end}: no identity is made");
            assert!(!found[1].state.is_kept());
            drop(found);
            assert_eq!(path.exists(), !is_gone);
        }
        let codes: Vec<_> = world
            .state
            .troubles()
            .list()
            .iter()
            .map(|one| one.code)
            .collect();
        assert!(codes.contains(&"state-damaged") && codes.contains(&"lun-withheld"));
        let (lines, left) = world.state.restore(false).unwrap();
        assert_eq!((lines.len(), left), (1, 0), "{lines:?}");
        assert_eq!(fs::read(&path).unwrap(), whole);
        let found = world.start(&["a", "new"]).unwrap();
        assert_eq!(found[0].naa, naa);
        assert!(!found[1].is_withheld);
    }
}

#[test]
fn without_a_copy_no_identity_is_made_until_the_ledger_is_discarded() {
    let world = World::new();
    world.make("a");
    let naa = world.naa("a");
    let path = world.state.directory().join("identities.toml");
    fs::remove_file(copy_of(&path)).unwrap();
    for text in ["", "version = 1\n[[unit]]\n"] {
        fs::write(&path, text).unwrap();
        let found = world.start(&["a", "mem:1M"]).unwrap();
        assert!(found[0].is_withheld);
        assert!(!found[1].is_withheld, "memory has a new identity each time");
    }
    let (lines, left) = world.state.restore(false).unwrap();
    assert_eq!((lines.len(), left), (1, 1), "{lines:?}");
    let (_, left) = world.state.restore(true).unwrap();
    assert_eq!(left, 0);
    let found = world.start(&["a"]).unwrap();
    assert!(!found[0].is_withheld);
    assert_ne!(found[0].naa, naa);
}

#[test]
fn a_ledger_of_an_earlier_version_is_read_and_sealed_when_it_is_written() {
    let world = World::new();
    world.make("a");
    world.make("b");
    let naa = world.naa("a");
    let path = world.state.directory().join("identities.toml");
    let text = world.ledger();
    let (_, plain) = text.split_once('\n').unwrap();
    fs::write(&path, plain).unwrap();
    fs::remove_file(copy_of(&path)).unwrap();
    assert_eq!(world.naa("a"), naa);
    assert_eq!(world.ledger(), plain, "nothing new, nothing written");
    world.naa("b");
    assert!(world.ledger().starts_with("# sum = "));
    assert_eq!(world.naa("a"), naa);
}

#[test]
fn a_full_directory_keeps_no_known_disk_from_starting() {
    let world = World::new();
    world.make("a");
    world.make("new");
    let naa = world.naa("a");
    // No temporary file can be made.
    let blocked = world.state.directory().join("identities.toml.tarn-new/x");
    fs::create_dir_all(&blocked).unwrap();
    let found = world.start(&["a", "new"]).unwrap();
    assert_eq!((found[0].naa, found[0].is_withheld), (naa, false));
    assert!(found[1].is_withheld);
    let troubles = world.state.troubles().list();
    assert!(troubles.iter().any(|one| one.code == "state-unwritable"));
}

#[test]
fn a_directory_of_another_configuration_is_noticed() {
    let world = World::new();
    let (one, both) = (
        model_of(&[("a", "/a")]),
        model_of(&[("a", "/a"), ("b", "/b")]),
    );
    for (model, is_foreign) in [
        (&one, false),
        (&both, false),
        (&model_of(&[("z", "/z")]), true),
    ] {
        world.found(model);
        let troubles = world.state.troubles().list();
        assert_eq!(
            troubles.iter().any(|one| one.code == "state-foreign"),
            is_foreign
        );
    }
}

#[test]
fn a_state_that_a_later_version_has_saved_is_told_of() {
    let world = World::new();
    world.make("a");
    let identity = world.start(&["a"]).unwrap().remove(0);
    save(&identity, b"TARNUNIT\xff");
    drop(identity);
    world.start(&["a"]).unwrap();
    let troubles = world.state.troubles().list();
    let lost = troubles.iter().find(|one| one.code == "reservations-lost");
    let message = &lost.unwrap().message;
    assert!(message.contains("version 255"), "{message}");
}

#[test]
fn damaged_reservations_are_found_and_restored() {
    let world = World::new();
    world.make("a");
    let saved = {
        let identity = world.start(&["a"]).unwrap().remove(0);
        save(&identity, b"keys");
        let units = world.state.directory().join("units");
        units.join(identity.naa.to_string()).join("saved")
    };
    fs::write(&saved, "tarn-state").unwrap();
    let served = world.start(&["a"]).unwrap();
    let troubles = world.state.troubles().list();
    assert!(troubles.iter().any(|one| one.code == "reservations-lost"));
    let (lines, left) = world.state.restore(false).unwrap();
    assert_eq!((lines.len(), left), (1, 1), "it is served: {lines:?}");
    drop(served);
    assert_eq!(world.state.restore(false).unwrap().1, 0);
    let loaded = world.start(&["a"]).unwrap()[0].state.load();
    assert_eq!(loaded.unwrap().unwrap().state, b"keys");
    assert!(world.state.damaged_files().unwrap().is_empty());
}

#[test]
fn a_unit_counts_as_served_when_it_was_and_not_when_a_start_ended_before() {
    let world = World::new();
    world.make("a");
    for _ in 0..2 {
        let identities = world.start(&["a"]).unwrap();
        assert!(!identities[0].was_served);
    }
    world.state.note_served(&world.start(&["a"]).unwrap());
    assert!(world.start(&["a"]).unwrap()[0].was_served);
}

#[test]
fn a_damaged_record_of_a_medium_or_a_log_is_found_and_left_to_an_administrator() {
    let world = World::new();
    world.make("a");
    let identity = world.start(&["a"]).unwrap().remove(0);
    let unit = world.state.directory().join("units");
    let unit = unit.join(identity.naa.to_string());
    drop(identity);
    for (name, remedy) in [
        ("medium", "tarn lun adopt"),
        ("log", "tarn lun log discard"),
    ] {
        let path = unit.join(name);
        durable::write(&path, "whole").unwrap();
        assert!(world.state.damaged_files().unwrap().is_empty());
        let text = fs::read_to_string(&path).unwrap();
        let changed = text.replace("whole", "whale");
        fs::write(&path, &changed).unwrap();
        let found = world.state.damaged_files().unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        let (lines, left) = world.state.restore(true).unwrap();
        assert!(lines[0].contains(remedy), "{lines:?}");
        assert_eq!((lines.len(), left), (1, 1));
        assert_eq!(fs::read_to_string(&path).unwrap(), changed);
        fs::remove_file(&path).unwrap();
    }
}

/// A unit with an id and a file.
fn unit_text(id: &str, path: &str) -> String {
    format!("[[lun]]\nid = \"{id}\"\nstore = \"file:{path}?size=1M\"\n")
}

fn model_of(units: &[(&str, &str)]) -> Model {
    let mut text: String = units.iter().map(|(id, path)| unit_text(id, path)).collect();
    text += "[[target]]\nname = \"iqn.2026-11.a:t\"\n";
    Model::from_toml(&text, Path::new("/t.toml")).unwrap()
}

impl World {
    /// What a start of this configuration finds, for units whose files are not looked at.
    fn found(&self, model: &Model) -> Vec<Naa> {
        let locations: Vec<_> = model.units().iter().map(|_| None).collect();
        let found = self.state.identities(model, &locations).unwrap();
        found.iter().map(|identity| identity.naa).collect()
    }

    /// What a change from `old` to `new` writes before it replaces the file.
    fn begin(&self, old: &Model, new: &Model, served: &[UnitIdentity], renames: &[Rename]) {
        let from: Vec<_> = new
            .units()
            .iter()
            .map(|unit| {
                let id = unit.id.as_deref()?;
                let renamed = renames.iter().find(|rename| rename.new == id);
                let id = renamed.map_or(id, |rename| rename.old.as_str());
                old.units()
                    .iter()
                    .position(|unit| unit.id.as_deref() == Some(id))
            })
            .collect();
        let locations: Vec<_> = new.units().iter().map(|_| None).collect();
        let change = LedgerChange {
            old,
            new,
            locations: &locations,
            served: served.to_vec(),
            from: &from,
            renames: renames.to_vec(),
        };
        self.state.identities_of_change(&change).unwrap();
    }
}

fn rename(old: &str, new: &str, path: &str) -> Rename {
    Rename {
        old: old.to_owned(),
        new: new.to_owned(),
        path: Some(path.to_owned()),
    }
}

#[test]
fn a_crash_at_any_step_of_a_rename_leaves_the_unit_its_identity() {
    let (old, new) = (
        model_of(&[("a", "/a"), ("b", "/b")]),
        model_of(&[("z", "/a"), ("b", "/b")]),
    );
    // The steps: the ledger, the file, the ledger again. A crash leaves what was done before it.
    for done in 0..4 {
        let world = World::new();
        // The new id has belonged to another disk.
        let stale = world.found(&model_of(&[("z", "/old")]))[0];
        let served = world.state.identities(&old, &[None, None]).unwrap();
        let before: Vec<_> = served.iter().map(|identity| identity.naa).collect();
        if done > 0 {
            world.begin(&old, &new, &served, &[rename("a", "z", "/a")]);
        }
        let on_disk = if done > 1 { &new } else { &old };
        if done > 2 {
            world.state.settle(on_disk).unwrap();
        }
        drop(served);
        for start in 0..2 {
            assert_eq!(world.found(on_disk), before, "step {done}, start {start}");
        }
        assert_ne!(before[0], stale);
        assert!(!world.ledger().contains("renaming"), "{}", world.ledger());
    }
}

#[test]
fn a_rename_that_was_cut_short_and_an_edit_by_hand_do_not_mix_up_disks() {
    let old = model_of(&[("a", "/a")]);
    for (after, position) in [
        (model_of(&[("a", "/a"), ("z", "/new")]), 0),
        (model_of(&[("a", "/new"), ("z", "/a")]), 1),
    ] {
        let world = World::new();
        let served = world.state.identities(&old, &[None]).unwrap();
        let naa = served[0].naa;
        let new = model_of(&[("z", "/a")]);
        world.begin(&old, &new, &served, &[rename("a", "z", "/a")]);
        drop(served);
        let found = world.found(&after);
        assert_eq!(found[position], naa);
        assert_ne!(found[1 - position], naa);
    }
}

#[test]
fn a_rename_of_another_daemon_is_left_to_it() {
    let world = World::new();
    let old = model_of(&[("a", "/a")]);
    let served = world.state.identities(&old, &[None]).unwrap();
    let new = model_of(&[("z", "/a")]);
    world.begin(&old, &new, &served, &[rename("a", "z", "/a")]);
    let naa = served[0].naa;
    drop(served);
    world.found(&model_of(&[("other", "/o")]));
    assert_eq!(world.found(&new), [naa]);
}

#[test]
fn units_that_exchange_names_keep_their_identities_where_a_change_is_cut_short() {
    let (old, new) = (
        model_of(&[("a", "/a"), ("b", "/b")]),
        model_of(&[("b", "/a"), ("a", "/b")]),
    );
    for on_disk in [&old, &new] {
        let world = World::new();
        let served = world.state.identities(&old, &[None, None]).unwrap();
        let before: Vec<_> = served.iter().map(|identity| identity.naa).collect();
        let renames = [rename("a", "b", "/a"), rename("b", "a", "/b")];
        world.begin(&old, &new, &served, &renames);
        drop(served);
        assert_eq!(world.found(on_disk), before);
    }
}

#[test]
fn a_served_unit_is_never_given_a_new_identity_and_comes_back_into_a_ledger_without_it() {
    let world = World::new();
    let old = model_of(&[("a", "/a")]);
    let served = world.state.identities(&old, &[None]).unwrap();
    let naa = served[0].naa;
    let new = model_of(&[("z", "/a")]);
    let path = world.state.directory().join("identities.toml");
    fs::write(path, "version = 1\n").unwrap();
    world.begin(&old, &new, &served, &[rename("a", "z", "/a")]);
    assert_eq!(world.ledger().matches("[[unit]]").count(), 1);
    drop(served);
    assert_eq!(world.found(&new), [naa]);
}

/// A ledger in which `name` was used last so many days ago.
fn age(world: &World, name: &str, days: u64) {
    let path = world.state.ledger_path();
    let durable::Found::Whole(text) = durable::read(&path).unwrap() else {
        panic!("no ledger");
    };
    let mut ledger = ledger::Ledger::parse(&text, &path).unwrap();
    let name = world.at(name).display().to_string();
    let is_it = |record: &&mut ledger::Record| record.path.as_deref() == Some(&name);
    ledger.records.iter_mut().find(is_it).unwrap().last_used -= days;
    let text = durable::seal(&ledger.to_text().unwrap());
    durable::write_with_copy(&path, text.as_bytes()).unwrap();
}

#[test]
fn what_nobody_has_used_for_long_is_pruned_and_nothing_else() {
    let world = World::new();
    for name in ["old", "served", "young"] {
        world.make(name);
    }
    let naas = world.naas(&["old", "served", "young"]);
    let served = world.start(&["served"]).unwrap();
    age(&world, "old", 40);
    age(&world, "served", 40);
    assert_eq!(world.state.prune(41).unwrap().len(), 0);
    let pruned = world.state.prune(40).unwrap();
    assert_eq!(pruned.len(), 1, "{pruned:?}");
    assert_eq!(
        (pruned[0].naa.clone(), pruned[0].unused_days),
        (naas[0].to_string(), 40)
    );
    assert!(
        !world
            .state
            .directory()
            .join("units")
            .join(&pruned[0].naa)
            .exists()
    );
    drop(served);
    let after = world.naas(&["old", "served", "young"]);
    assert_ne!(after[0], naas[0]);
    assert_eq!(after[1..], naas[1..]);
}

#[test]
fn a_use_is_noted_and_needs_no_room() {
    let world = World::new();
    world.make("disk");
    world.naa("disk");
    age(&world, "disk", 40);
    world.naa("disk");
    assert_eq!(world.state.prune(1).unwrap().len(), 0, "it was used today");
}

#[test]
fn the_longest_unused_go_when_there_are_too_many() {
    let world = World::new();
    let model = |ids: std::ops::Range<usize>| {
        let luns: String = ids
            .map(|n| format!("[[lun]]\nid = \"m{n}\"\nstore = \"mem:1M\"\n"))
            .collect();
        Model::from_toml(&luns, Path::new("tarn.toml")).unwrap()
    };
    let naa = |world: &World, n: usize| {
        let model = model(n..n + 1);
        let locations = vec![None];
        world.state.identities(&model, &locations).unwrap()[0].naa
    };
    let first = naa(&world, 0);
    let filled = model(1..prune::UNUSED_MAX + 1);
    let locations = vec![None; prune::UNUSED_MAX];
    drop(world.state.identities(&filled, &locations).unwrap());
    assert_eq!(
        naa(&world, 0),
        first,
        "there is room for as many, and for those in use"
    );
    let last = naa(&world, prune::UNUSED_MAX + 1);
    assert_eq!(naa(&world, prune::UNUSED_MAX + 1), last);
    assert_ne!(naa(&world, 1), first);
    let ledger = world.ledger();
    assert!(ledger.matches("[[unit]]").count() <= prune::UNUSED_MAX + 2);
}
