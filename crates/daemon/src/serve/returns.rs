//! What comes back: media, earlier revisions, and units whose log has to be used.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use api::control::Control as _;
use api::problem::ProblemKind;
use api::request::{EventQuestion, Rollback};
use api::view::Lun;
use durable::scratch::Scratch;

use super::living::Living;
use crate::Daemon;

const REST: &str = r#"
[server]
state = "{dir}/state"
cores = 2
[admin]
enabled = false
[limits]
pool_per_core_bytes = "16M"
"#;

fn living(luns: &str) -> Living {
    Living::new(&format!("{luns}{REST}"))
}

/// Events of a unit after one of this number: their kinds, and the number of the last.
fn noted(daemon: &Daemon, after: u64) -> (Vec<String>, u64) {
    let events = daemon.events(EventQuestion::after(after, 1000));
    let last = events.last().map_or(after, |event| event.number);
    let of_units = events.into_iter().filter(|event| event.lun.is_some());
    (of_units.map(|event| event.kind).collect(), last)
}

#[test]
fn a_medium_that_was_replaced_while_it_was_out_is_served_and_one_that_is_gone_is_not() {
    let living = living("[[lun]]\nid = \"c\"\nstore = \"file:{dir}/c.img?size=1M&removable\"\n");
    let daemon = &living.daemon;
    let is_in = || daemon.luns()[0].medium.as_ref().unwrap().loaded;
    let [there, other] = ["c.img", "other.img"].map(|name| living.path(name));
    let move_it = |is_load: bool| {
        let before = noted(daemon, 0).1;
        let moved = match is_load {
            true => daemon.load("c"),
            false => daemon.eject("c", false),
        };
        let kinds = noted(daemon, before).0;
        let reopened = kinds.iter().filter(|kind| *kind == "medium-loaded").count();
        (moved.map_err(|problem| problem.kind), is_in(), reopened)
    };
    let same = move_it(true);
    assert_eq!((same.0, same.1), (Ok(()), true));
    let usual = {
        assert_eq!(move_it(false), (Ok(()), false, 0));
        move_it(true).2
    };
    assert_eq!(move_it(false), (Ok(()), false, 0));
    fs::write(&other, vec![7; 1 << 20]).unwrap();
    fs::rename(&other, &there).unwrap();
    assert_eq!(move_it(true), (Ok(()), true, usual + 1));
    assert_eq!(move_it(false), (Ok(()), false, 0));
    fs::rename(&there, &other).unwrap();
    assert_eq!(move_it(true), (Err(ProblemKind::Conflict), false, 0));
    assert!(daemon.load("c").unwrap_err().detail.contains("is gone: "));
    fs::rename(&other, &there).unwrap();
    assert_eq!(move_it(true), (Ok(()), true, usual));

    // A file that is another one at the next start is served, and said to be.
    let scratch = living.stop();
    let [there, other] = ["c.img", "other.img"].map(|name| scratch.path().join(name));
    fs::copy(&there, &other).unwrap();
    fs::rename(&other, &there).unwrap();
    edit(&scratch, |text| text.replace("size=1M", "size=2M"));
    let living = Living::again(scratch);
    assert_eq!(
        living.daemon.luns()[0].size_bytes,
        2 << 20,
        "it is made larger"
    );
    let before = noted(&living.daemon, 0).1;
    living.daemon.note_other_files();
    let kinds = noted(&living.daemon, before).0;
    let trouble = living.daemon.luns().swap_remove(0).trouble;
    assert_eq!((kinds, trouble), (vec!["medium-replaced".to_owned()], None));
    living.stop();
}

/// Two drives, memory and a file.
const DRIVES: &str = r#"
[[lun]]
id = "d"
store = "cdrom:"
[[lun]]
id = "e"
store = "cdrom:"
[[lun]]
id = "m"
store = "mem:1M"
[[lun]]
id = "f"
store = "file:{dir}/f.img?size=1M"
"#;

/// With a disc in each drive.
fn drives() -> (Living, String) {
    let living = living(DRIVES);
    for (name, blocks) in [("x.iso", 10), ("y.iso", 20), ("z.iso", 30)] {
        fs::write(living.path(name), vec![0; 2048 * blocks]).unwrap();
    }
    let disc = |name: &str| format!("store = \"cdrom:{}\"", living.path(name).display());
    let empty = "store = \"cdrom:\"";
    let text = living.text().replacen(empty, &disc("x.iso"), 1);
    let text = text.replacen(empty, &disc("y.iso"), 1);
    living.apply(&text).unwrap();
    (living, text)
}

#[test]
fn a_drive_gets_another_disc_while_it_is_served() {
    let (living, text) = drives();
    let sizes = || {
        let luns = living.daemon.luns().into_iter().take(2);
        let is_in = |lun: &Lun| lun.medium.as_ref().is_some_and(|medium| medium.loaded);
        let sizes = luns.map(|lun| (lun.size_bytes, is_in(&lun)));
        sizes.collect::<Vec<_>>()
    };
    let units = || {
        let in_force = living.daemon.in_force();
        let units = in_force.running.units.iter().map(|one| one.index);
        units.collect::<Vec<_>>()
    };
    let before = units();
    assert_eq!(sizes(), [(20_480, true), (40_960, true)]);
    living.apply(&text.replace("x.iso", "z.iso")).unwrap();
    assert_eq!(sizes(), [(61_440, true), (40_960, true)]);
    assert_eq!(units(), before, "they are the units that they were");
    living.daemon.eject("d", false).unwrap();
    assert!(!sizes()[0].1);
    living.apply(&text).unwrap();
    assert_eq!(sizes()[1], (40_960, true));
    living.stop();
}

#[test]
fn the_space_of_files_is_known_and_that_of_their_file_system() {
    let (living, _) = drives();
    let space = living.daemon.space();
    let luns = space.luns.iter().map(|one| {
        let is_known = one.allocated_bytes.is_some();
        (
            one.lun.as_str(),
            one.device_type.as_str(),
            one.size_bytes,
            is_known,
        )
    });
    let expected = [
        ("d", "cdrom", 20_480, true),
        ("e", "cdrom", 40_960, true),
        ("m", "disk", 1 << 20, false),
        ("f", "disk", 1 << 20, true),
    ];
    assert_eq!(luns.collect::<Vec<_>>(), expected);
    let systems = &space.file_systems;
    assert_eq!(systems.len(), 1, "{systems:?}");
    let directory = living.scratch.path().display().to_string();
    assert!(systems[0].path.starts_with(&directory), "{systems:?}");
    assert!(systems[0].size_bytes > systems[0].free_bytes, "{systems:?}");
    living.stop();
}

#[test]
fn a_way_back_keeps_what_has_grown_and_leaves_out_what_is_gone() {
    let base = "[[store]]\nid = \"left\"\nstore = \"file:{dir}/left.img?size=1M\"\n\
                [[store]]\nid = \"right\"\nstore = \"file:{dir}/right.img?size=1M\"\n\
                [[lun]]\nid = \"w\"\nstore = \"concat:left,right\"\nvendor = \"OLD\"\n";
    let living = living(base);
    let gone = living.path("g.img");
    let path = gone.display();
    let lun = format!("[[lun]]\nid = \"g\"\nstore = \"file:{path}\"\n");
    let target = "[[target]]\nname = \"iqn.2026-11.example.tarn:g\"\nportals = [\"127.0.0.1:0\"]\n";
    let shown =
        format!("{lun}{target}luns = [{{ lun = 0, id = \"g\" }}, {{ lun = 1, id = \"w\" }}]\n");
    fs::write(&gone, vec![0; 1 << 20]).unwrap();
    living.apply(&format!("{}{shown}", living.text())).unwrap();
    let server = "[[nbd]]\nbind = \"127.0.0.1:0\"\nluns = [\"g\"]\n";
    living.apply(&format!("{}{server}", living.text())).unwrap();
    let without = living.text().replace(&shown, "").replace(server, "");
    let grown = without.replace("right.img?size=1M", "right.img?size=2M");
    living.apply(&grown.replace("\"OLD\"", "\"NEW\"")).unwrap();
    fs::remove_file(&gone).unwrap();
    let back = |revision| {
        let back = Rollback {
            revision,
            comment: None,
        };
        living.daemon.roll_back(back, None, "tester")
    };
    assert!(back(3).is_err(), "a server names what cannot come back");
    assert_eq!(living.daemon.document().revision, 4);
    let warnings = back(2).unwrap().warnings;
    for words in ["lun g is left out: ", "lun w stays as it is: "] {
        let said = warnings.iter().filter(|one| one.contains(words)).count();
        assert_eq!(said, 1, "{words}: {warnings:?}");
    }
    let text = living.text();
    for (part, is_there) in [
        ("id = \"g\"", false),
        (target, true),
        ("right.img?size=2M", true),
        ("\"OLD\"", true),
        ("\"NEW\"", false),
    ] {
        assert_eq!(text.contains(part), is_there, "{part}: {text}");
    }
    let luns = living.daemon.luns();
    assert_eq!((luns.len(), luns[0].size_bytes), (1, 3 << 20));
    assert_eq!(luns[0].shown_by.len(), 1);
    living.stop();
}

/// What the files below a directory have.
fn contents(directory: &Path, all: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            contents(&path, all);
        } else if path.is_file() {
            all.insert(path.clone(), fs::read(path).unwrap());
        }
    }
}

/// Stops it as a crash does: its files are as they were while it ran.
fn crash(living: Living) -> Scratch {
    let mut before = BTreeMap::new();
    contents(living.scratch.path(), &mut before);
    let scratch = living.stop();
    for (path, bytes) in before {
        fs::write(path, bytes).unwrap();
    }
    scratch
}

const LOGGED: &str = r#"
[[lun]]
id = "l"
store = "file:{dir}/l.img?size=1M"
log = "file:{dir}/l.log?size=16M"
[[lun]]
id = "m"
store = "file:{dir}/m.img?size=1M"
log = "file:{dir}/m.log?size=16M"
"#;

fn edit(scratch: &Scratch, change: impl FnOnce(String) -> String) {
    let file = scratch.path().join("tarn.toml");
    let text = fs::read_to_string(&file).unwrap();
    let edited = change(text.clone());
    assert_ne!(edited, text);
    fs::write(file, edited).unwrap();
}

fn log_line(scratch: &Scratch) -> String {
    let path = scratch.path().display();
    format!("log = \"file:{path}/l.log?size=16M\"\n")
}

type Accident = fn(&Scratch);

/// Stopped by a crash or not, what happens then, why the unit is held if it is, and whether to discard its log helps.
#[rustfmt::skip]
const ACCIDENTS: &[(bool, Accident, &str, bool)] = &[
    (true, |_| (), "", false),
    (true, |all| edit(all, |text| text.replace(&log_line(all), "")), "the configuration does not name it", true),
    (true, |all| edit(all, |text| text.replace("/l.img", "/other.img")), "and now its store is", true),
    (true, |all| fs::remove_file(all.path().join("l.log")).unwrap(), "l.log is lost; put it back", true),
    (false, |all| fs::remove_file(all.path().join("l.log")).unwrap(), "l.log is lost; put it back", true),
    (true, |all| cut(all, 4096), "l.log was cut: ", true),
    (true, |all| fill(all, "l.log", 0), "the log that the unit was served with is not there", true),
    (false, |all| edit(all, |text| text.replace(&log_line(all), "")), "", false),
    (true, swap_logs, "it is the log of another unit", false),
    (false, swap_logs, "it is the log of another unit", false),
    (false, junk, "clear it if nobody needs what it holds", false),
];

fn cut(scratch: &Scratch, bytes: u64) {
    let file = fs::OpenOptions::new()
        .write(true)
        .open(scratch.path().join("l.log"));
    file.unwrap().set_len(bytes).unwrap();
}

fn fill(scratch: &Scratch, name: &str, byte: u8) {
    fs::write(scratch.path().join(name), vec![byte; 16 << 20]).unwrap();
}

fn swap_logs(scratch: &Scratch) {
    edit(scratch, |text| {
        text.replace("/l.log", "/x")
            .replace("/m.log", "/l.log")
            .replace("/x", "/m.log")
    });
}

fn junk(scratch: &Scratch) {
    fill(scratch, "junk.log", 0xff);
    edit(scratch, |text| text.replace("/l.log", "/junk.log"));
}

#[test]
fn a_unit_is_held_where_its_log_may_have_what_its_store_has_not_and_its_reason_says_what_helps() {
    for (number, (is_crash, accident, words, may_discard)) in ACCIDENTS.iter().enumerate() {
        let before = living(LOGGED);
        let scratch = match is_crash {
            true => crash(before),
            false => before.stop(),
        };
        accident(&scratch);
        let living = Living::again(scratch);
        let trouble = |at: usize| living.daemon.luns().swap_remove(at).trouble;
        let (code, why) = match trouble(0) {
            Some(trouble) => (trouble.code, trouble.why),
            None => (String::new(), String::new()),
        };
        assert!(why.contains(words), "{number}: {why}");
        let expected = if words.is_empty() { "" } else { "log-lost" };
        assert_eq!(code, expected, "{number}: {why}");
        let said = "or do without what the log has: tarn lun log discard l";
        assert_eq!(why.contains(said), *may_discard, "{number}: {why}");
        let replayed = living
            .daemon
            .replay_log("l")
            .map_err(|problem| problem.kind);
        assert_eq!(replayed, Err(ProblemKind::Conflict), "{number}");
        let discarded = living.daemon.discard_log("l");
        assert_eq!(discarded.is_ok(), *may_discard, "{number}: {discarded:?}");
        assert_eq!(
            trouble(0).is_some(),
            !words.is_empty() && !may_discard,
            "{number}"
        );
        living.stop();
    }
}
