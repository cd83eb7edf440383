//! Changes of a daemon that runs: what the plan says is done, what is done shows, and the way back leads back.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use api::access::Role;
use api::control::Control as _;
use api::figures::Range;
use api::plan::{Change, Effect, Origin, Step};
use api::problem::{Problem, ProblemKind};
use api::request::{Rollback, Tracing};

use super::living::{Living, without_ports};
use super::rows::{BASE, ROWS};
use crate::Daemon;

fn steps_in_words(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        let effect = serde_json::to_string(&step.effect).unwrap();
        let _infallible = writeln!(text, "  {} {effect}", crate::views::step_line(step));
        if let Some(reason) = &step.reason {
            let _infallible = writeln!(text, "    {reason}");
        }
        if let Some(fate) = step.data {
            let _infallible = writeln!(text, "    data: {}", serde_json::to_string(&fate).unwrap());
        }
    }
    text
}

/// The lines that only one of two lists has.
fn difference(before: &[String], after: &[String]) -> String {
    let mut counts: BTreeMap<&String, i32> = BTreeMap::new();
    for line in before {
        *counts.entry(line).or_default() -= 1;
    }
    for line in after {
        *counts.entry(line).or_default() += 1;
    }
    let mut text = String::new();
    for (line, count) in counts {
        let sign = if count < 0 { '-' } else { '+' };
        for _ in 0..count.abs() {
            let _infallible = writeln!(text, "  {sign} {line}");
        }
    }
    text
}

/// One row of the transcript.
fn changed(living: &Living, old: &str, new: &str) -> String {
    let mut text = format!("== {old:?} -> {new:?}\n");
    let (before, shown) = (living.text(), living.shown());
    let wanted = living.text_with(old, new);
    let plan = match living.plan(&wanted) {
        Ok(plan) => plan,
        Err(problem) => {
            let refused = living.apply(&wanted).unwrap_err();
            assert_eq!(refused.to_string(), problem.to_string(), "{new:?}");
            let _infallible = writeln!(text, "{problem}");
            return text;
        }
    };
    assert_eq!(living.shown(), shown, "a plan changes nothing: {new:?}");
    assert_eq!(plan.changes_text, before != wanted, "{new:?}");
    let is_refused = plan.steps.iter().any(|step| step.effect == Effect::Refused);
    text += &steps_in_words(&plan.steps);
    for warning in plan.warnings.iter().chain(&plan.not_probed) {
        let _infallible = writeln!(text, "  warning: {warning}");
    }
    for mistake in &plan.mistakes {
        let _infallible = writeln!(
            text,
            "  mistake: {}",
            serde_json::to_string(mistake).unwrap()
        );
    }
    let revision = living.daemon.document().revision;
    match living.apply(&wanted) {
        Ok(applied) => {
            assert!(plan.is_applicable && !is_refused, "{new:?}");
            assert_eq!(applied.steps.len(), plan.steps.len(), "{new:?}");
            assert_eq!(applied.warnings, plan.warnings, "{new:?}");
            assert_eq!(living.daemon.document().revision, revision + 1, "{new:?}");
            text += &difference(&shown, &living.shown());
            living.apply(&before).unwrap();
            let left = difference(&shown, &living.shown());
            assert_eq!(left, "", "the way back of {new:?}");
        }
        Err(problem) => {
            assert!(!plan.is_applicable, "{new:?}: {problem}");
            assert_eq!(plan.outcome, Some(problem.kind), "{new:?}");
            assert_eq!(difference(&shown, &living.shown()), "", "refused: {new:?}");
            assert_eq!(living.daemon.document().revision, revision, "{new:?}");
            let _infallible = writeln!(text, "  refused: {problem}");
        }
    }
    text
}

/// Compares with a file beside the sources, or writes it where `BLESS` is set.
pub(super) fn assert_written(name: &str, text: &str) {
    let path = format!("{}/src/serve/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    for (line, (found, expected)) in text.lines().zip(written.lines()).enumerate() {
        assert_eq!(found, expected, "line {} of {name}", line + 1);
    }
    assert_eq!(text.len(), written.len(), "{name} is another one");
}

#[test]
fn what_a_plan_says_is_done_and_shows_and_the_way_back_leads_back() {
    let living = Living::new(BASE);
    let mut text = String::new();
    let directory = living.scratch.path().display().to_string();
    for (old, new) in ROWS {
        let row = changed(&living, old, new);
        text += &without_ports(&row.replace(&directory, "{dir}"));
    }
    assert_written("changes.txt", &text);
    living.stop();
}

/// Sessions that are not there by then do not come.
const HANGS_AFTER: Duration = Duration::from_secs(30);

/// What has something for the gateway of each transport.
const SERVER: &str = r#"
[[lun]]
id = "di"
store = "file:{dir}/di.img?size=8M"
serial = "DI"
naa = "3000000000000011"
[[lun]]
id = "dn"
store = "file:{dir}/dn.img?size=8M"
[[lun]]
id = "dh"
store = "file:{dir}/dh.img?size=8M"
serial = "DH"
naa = "3000000000000013"
[[target]]
name = "iqn.2026-11.example.tarn:far"
portals = ["127.0.0.1:0"]
luns = [{ lun = 0, id = "di" }]
[[nbd]]
bind = "127.0.0.1:0"
luns = ["dn"]
[[hyperscsi.group]]
name = "FAR"
udp = "127.0.0.1:0"
password_file = "a.secret"
[[hyperscsi.group.device]]
id = "dh"
level = "crc"
[server]
state = "{dir}/state"
cores = 2
[admin]
enabled = false
[limits]
pool_per_core_bytes = "16M"
"#;

fn gateway(server: &Living) -> Living {
    let now = server.daemon.in_force();
    let iscsi = server.daemon.targets().unwrap()[0].bound[0].clone();
    let nbd = crate::nbd_places(&now.running)[0].clone();
    let udp = server.daemon.hyperscsi().unwrap()[0]
        .place
        .replace("udp:", "");
    Living::new(&format!(
        r#"
[[lun]]
id = "gi"
store = "iscsi://{iscsi}/iqn.2026-11.example.tarn:far/0?retry=1"
[[lun]]
id = "gn"
store = "nbd://{nbd}/dn?retry=1"
[[lun]]
id = "gh"
store = "hyperscsi://FAR/dh?udp={udp}&level=crc&retry=1&password_file=a.secret"
[[target]]
name = "iqn.2026-11.example.tarn:gate"
portals = ["127.0.0.1:0"]
luns = [{{ lun = 0, id = "gi" }}, {{ lun = 1, id = "gn" }}, {{ lun = 2, id = "gh" }}]
[server]
state = "{{dir}}/state"
cores = 1
[admin]
enabled = false
[limits]
pool_per_core_bytes = "16M"
"#
    ))
}

/// The units and transports of the sessions of a server.
fn seen_by(server: &Living) -> Vec<(String, Vec<String>)> {
    let sessions = server.daemon.sessions().unwrap();
    let mut seen: Vec<_> = sessions
        .iter()
        .map(|one| {
            let luns = one.luns.iter().map(|lun| lun.id.clone());
            (one.transport.as_str().to_owned(), luns.collect())
        })
        .collect();
    seen.sort();
    seen.dedup();
    seen
}

fn of_each_transport() -> Vec<(String, Vec<String>)> {
    [("hyperscsi", "dh"), ("iscsi", "di"), ("nbd", "dn")]
        .map(|(transport, lun)| (transport.to_owned(), vec![lun.to_owned()]))
        .to_vec()
}

/// Waits until the sessions that the server has are these.
fn until(server: &Living, expected: &[(String, Vec<String>)]) {
    let end = Instant::now() + HANGS_AFTER;
    while seen_by(server) != expected {
        assert!(
            Instant::now() < end,
            "{:?} is not {expected:?}",
            seen_by(server)
        );
        crate::attempts::pause(Duration::from_millis(5));
    }
}

#[test]
fn a_plan_names_what_sessions_of_each_transport_lose_and_they_lose_it() {
    let server = Living::new(SERVER);
    let gateway = gateway(&server);
    until(&server, &of_each_transport());
    for (old, new, id) in [
        ("luns = [{ lun = 0, id = \"di\" }]", "luns = []", "di"),
        ("{ lun = 0, id = \"di\" }", "{ lun = 5, id = \"di\" }", "di"),
        ("luns = [\"dn\"]", "luns = [\"di\"]", "dn"),
        ("id = \"dh\"\nlevel", "id = \"dn\"\nlevel", "dh"),
        ("/di.img", "/other.img", "di"),
        ("tarn:far\"", "tarn:near\"", "di"),
    ] {
        let before = server.text();
        let wanted = server.text_with(old, new);
        let plan = server.plan(&wanted).unwrap();
        assert!(plan.is_applicable, "{new}");
        let takes = |step: &&Step| step.effect == Effect::TakesAway;
        let steps: Vec<_> = plan.steps.iter().filter(takes).collect();
        let loses = |step: &Step| {
            let taken = step.taken.iter().filter_map(|one| one.id.clone());
            taken
                .chain(step.sessions_ended.iter().map(|_| id.to_owned()))
                .any(|one| one == id)
        };
        assert!(
            steps.iter().any(|step| loses(step)),
            "{new}: {:?}",
            plan.steps
        );
        for step in &steps {
            assert!(step.taken_count >= step.taken.len() as u64, "{new}");
        }
        let applied = server.apply(&wanted).unwrap();
        let ended = |steps: &[Step]| {
            steps
                .iter()
                .flat_map(|step| step.sessions_ended.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(ended(&applied.steps), ended(&plan.steps), "{new}");
        let there = server.daemon.sessions().unwrap();
        assert!(
            ended(&plan.steps)
                .iter()
                .all(|id| there.iter().all(|one| one.id != *id)),
            "{new}"
        );
        server.apply(&before).unwrap();
        until(&server, &of_each_transport());
    }
    gateway.stop();
    until(&server, &[]);
    server.stop();
}

/// Two disks and a log.
const SMALL: &str = r#"
[[lun]]
id = "a"
store = "file:{dir}/a.img?size=8M"
[[lun]]
id = "b"
store = "mem:1M?removable"
[[lun]]
id = "l"
store = "file:{dir}/l.img?size=8M"
log = "file:{dir}/l.log?size=16M"
[[target]]
name = "iqn.2026-11.example.tarn:small"
portals = ["127.0.0.1:0"]
luns = [{ lun = 0, id = "a" }, { lun = 1, id = "b" }, { lun = 2, id = "l" }]
[server]
state = "{dir}/state"
cores = 2
[admin]
enabled = false
[limits]
pool_per_core_bytes = "16M"
"#;

fn identities(living: &Living) -> Vec<(String, String)> {
    let luns = living.daemon.luns().into_iter();
    luns.map(|lun| (lun.serial, lun.naa)).collect()
}

#[test]
fn a_restart_finds_what_was_in_force_and_has_the_effect_of_what_is_pending() {
    let living = Living::new(SMALL);
    let before = identities(&living);
    living
        .apply(&living.text_with("/a.img?size=8M", "/a.img?size=16M"))
        .unwrap();
    living
        .apply(
            &living
                .text_with("id = \"b\"\nstore", "id = \"c\"\nstore")
                .replace("id = \"b\" }", "id = \"c\" }"),
        )
        .unwrap();
    assert_eq!(living.daemon.status().pending, Vec::<String>::new());
    living
        .apply(&living.text_with("cores = 2", "cores = 1"))
        .unwrap();
    assert_eq!(living.daemon.status().cores, 2);
    let pending = living.daemon.status().pending;
    assert_eq!(pending.len(), 1, "{pending:?}");
    assert!(pending[0].contains("cores"), "{pending:?}");
    let codes = |living: &Living| {
        living
            .daemon
            .findings()
            .into_iter()
            .map(|one| one.code)
            .collect::<Vec<_>>()
    };
    assert!(
        codes(&living).contains(&"restart-pending".to_owned()),
        "{:?}",
        codes(&living)
    );
    assert_eq!(identities(&living), before, "a rename keeps the identity");
    let (text, history) = (living.text(), living.daemon.history());
    assert_eq!(
        history.iter().map(|one| one.revision).collect::<Vec<_>>(),
        [4, 3, 2, 1]
    );
    assert!(history[0].summary[0].contains("cores"), "{history:?}");
    assert_eq!(
        (history[0].author.as_str(), history[3].author.as_str()),
        ("tester", "start")
    );

    let living = Living::again(living.stop());
    assert_eq!(living.text(), text);
    assert_eq!(living.daemon.document().revision, 4);
    assert_eq!(living.daemon.history(), history);
    assert_eq!(living.daemon.status().cores, 1);
    assert_eq!(living.daemon.status().pending, Vec::<String>::new());
    assert!(!codes(&living).contains(&"restart-pending".to_owned()));
    assert_eq!(identities(&living), before);
    assert_eq!(living.daemon.luns()[0].size_bytes, 16 << 20);
    living.stop();
}

#[test]
fn the_way_back_leaves_a_larger_size() {
    let living = Living::new(SMALL);
    let size = living.text_with("/a.img?size=8M", "/a.img?size=16M");
    living
        .apply(
            &size
                .replace("lun = 1,", "lun = 4,")
                .replace("cores = 2", "cores = 1"),
        )
        .unwrap();
    let back = Rollback {
        revision: 1,
        comment: None,
    };
    assert_eq!(
        living
            .daemon
            .roll_back(back, None, "tester")
            .unwrap()
            .revision,
        3
    );
    let lun = living.daemon.luns().swap_remove(0);
    assert_eq!(lun.size_bytes, 16 << 20);
    assert!(living.text().contains("lun = 1,"));
    assert_eq!(living.daemon.status().pending, Vec::<String>::new());
    let comment = living.daemon.history()[0].comment.clone();
    assert_eq!(comment.as_deref(), Some("back to revision 1"));
    living.stop();
}

#[test]
fn a_file_edited_by_hand_stands_in_the_way_and_is_kept_beside_by_a_rollback() {
    let living = Living::new(SMALL);
    let file = living.path("tarn.toml");
    let running = living.text();
    let wanted = living.text_with("lun = 1, id", "lun = 4, id");
    let read = |name: &str| std::fs::read_to_string(living.path(name)).ok();
    let back = |revision| {
        let back = Rollback {
            revision,
            comment: None,
        };
        living.daemon.roll_back(back, None, "tester")
    };
    for kept in ["tarn.toml.edited", "tarn.toml.edited.2"] {
        let edited = format!("{running}# by hand, for {kept}\n");
        std::fs::write(&file, &edited).unwrap();
        assert_eq!(
            living.apply(&wanted).unwrap_err().kind,
            ProblemKind::Conflict
        );
        let plan = living.plan(&wanted).unwrap();
        assert_eq!(
            (plan.is_applicable, plan.outcome),
            (false, Some(ProblemKind::Conflict))
        );
        assert_eq!(read("tarn.toml").as_deref(), Some(edited.as_str()));
        assert_eq!(read(kept), None);
        let applied = back(1).unwrap();
        assert_eq!(applied.revision, 1);
        assert!(
            applied.warnings.iter().any(|one| one.contains(kept)),
            "{:?}",
            applied.warnings
        );
        assert_eq!(read("tarn.toml").as_deref(), Some(running.as_str()));
        assert_eq!(read(kept).as_deref(), Some(edited.as_str()));
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!(
        living.apply(&wanted).unwrap_err().kind,
        ProblemKind::Conflict
    );
    assert_eq!(back(1).unwrap().warnings, Vec::<String>::new());
    assert_eq!(read("tarn.toml").as_deref(), Some(running.as_str()));
    assert_eq!(back(9).unwrap_err().kind, ProblemKind::NotFound);
    living.stop();
}

#[test]
fn the_file_is_applied_as_it_is_and_a_change_only_to_the_revision_it_was_made_for() {
    let living = Living::new(SMALL);
    let file = living.path("tarn.toml");
    let running = living.text();
    let wanted = living.text_with("lun = 1, id", "lun = 4, id");
    let read = || std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &wanted).unwrap();
    assert_eq!(living.daemon.apply_file().unwrap().revision, 2);
    assert_eq!(living.text(), wanted);
    assert_eq!(living.daemon.history()[0].author, "SIGHUP");
    assert_eq!(
        living.daemon.apply_file().unwrap().revision,
        2,
        "again is no change"
    );
    let change = |text: &str| Change {
        text: text.to_owned(),
        comment: Some("why".to_owned()),
    };
    let at = |revision| {
        living
            .daemon
            .apply(change(&running), Origin::Written, Some(revision), "tester")
    };
    assert_eq!(at(1).unwrap_err().kind, ProblemKind::RevisionMismatch);
    assert_eq!(at(3).unwrap_err().kind, ProblemKind::RevisionMismatch);
    assert_eq!(at(2).unwrap().revision, 3);
    assert_eq!(read(), running);
    assert_eq!(living.daemon.history()[0].comment.as_deref(), Some("why"));
    assert_eq!(
        living.daemon.document_of(2).map(|document| document.text),
        Some(wanted)
    );
    std::fs::write(&file, "[[lun]]\n").unwrap();
    assert_eq!(
        living.daemon.apply_file().unwrap_err().kind,
        ProblemKind::InvalidConfig
    );
    assert_eq!(living.daemon.document().revision, 3);
    living.stop();
}

/// What an edit does counts, whatever it is called.
#[test]
fn edits_of_a_role_do_what_it_may_and_nothing_else() {
    let living = Living::new(SMALL);
    let apply = |role, old: &str, new: &str| {
        let change = Change {
            text: living.text_with(old, new),
            comment: None,
        };
        let renames = BTreeMap::new();
        let origin = Origin::Edited { renames, role };
        let applied = living.daemon.apply(change, origin, None, "tester");
        applied
            .map(|applied| applied.revision)
            .map_err(|problem| problem.kind)
    };
    let may_not = Err(ProblemKind::Forbidden);
    let owned = ("id = \"a\"\nstore", "id = \"a\"\nowner = \"carol\"\nstore");
    assert_eq!(apply(Role::Operator, owned.0, owned.1), may_not);
    assert_eq!(apply(Role::Operator, "lun = 1, id", "lun = 4, id"), may_not);
    assert_eq!(
        apply(Role::Operator, "a.img?size=8M", "a.img?size=16M"),
        Ok(2)
    );
    assert_eq!(
        apply(Role::Viewer, "a.img?size=16M", "a.img?size=24M"),
        may_not
    );
    assert_eq!(apply(Role::Admin, "lun = 1, id", "lun = 4, id"), Ok(3));
    living.stop();
}

/// Why a unit is not served, or how large it is.
fn trouble(living: &Living, at: usize) -> Result<u64, String> {
    let lun = living.daemon.luns().swap_remove(at);
    lun.trouble
        .map_or(Ok(lun.size_bytes), |trouble| Err(trouble.code))
}

#[test]
fn a_unit_whose_store_is_another_one_is_held_and_keeps_no_other_from_being_served() {
    let (a, l) = (0, 2);
    let living = Living::new(SMALL);
    let scratch = living.stop();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(scratch.path().join("a.img"));
    file.unwrap().set_len(4 << 20).unwrap();
    let living = Living::again(scratch);
    assert_eq!(trouble(&living, a), Err("medium-changed".to_owned()));
    assert_eq!(trouble(&living, l), Ok(8 << 20));
    let found = |code: &str| {
        living
            .daemon
            .findings()
            .into_iter()
            .filter(|one| one.code == code)
            .count()
    };
    assert_eq!(found("medium-changed"), 1);
    assert_eq!(
        living.daemon.adopt("l").unwrap_err().kind,
        ProblemKind::Conflict
    );
    living
        .apply(&living.text_with("lun = 1, id", "lun = 4, id"))
        .unwrap();
    assert_eq!(trouble(&living, a), Err("medium-changed".to_owned()));
    living.daemon.adopt("a").unwrap();
    assert_eq!(trouble(&living, a), Ok(8 << 20));
    assert_eq!(found("medium-changed"), 0);

    // One that is back is served by itself.
    let scratch = living.stop();
    let [there, away] = ["a.img", "away.img"].map(|name| scratch.path().join(name));
    std::fs::rename(&there, &away).unwrap();
    let living = Living::again(scratch);
    assert!(trouble(&living, a).is_err());
    living.daemon.reopen_outdated();
    assert!(trouble(&living, a).is_err());
    assert!(!there.exists(), "nothing is made in its place");
    std::fs::rename(&away, &there).unwrap();
    let end = Instant::now() + HANGS_AFTER;
    while trouble(&living, a).is_err() && Instant::now() < end {
        living.daemon.reopen_outdated();
        crate::attempts::pause(Duration::from_millis(50));
    }
    assert_eq!(trouble(&living, a), Ok(8 << 20));

    // A log that is gone.
    let scratch = living.stop();
    std::fs::remove_file(scratch.path().join("l.log")).unwrap();
    let living = Living::again(scratch);
    assert_eq!(trouble(&living, l), Err("log-lost".to_owned()));
    assert_eq!(trouble(&living, a), Ok(8 << 20));
    assert_eq!(
        living.daemon.replay_log("l").unwrap_err().kind,
        ProblemKind::Conflict
    );
    living.daemon.discard_log("l").unwrap();
    assert_eq!(trouble(&living, l), Ok(8 << 20));
    assert!(living.path("l.log").exists());
    let living = Living::again(living.stop());
    assert_eq!(trouble(&living, l), Ok(8 << 20));
    living.stop();
}

type Order = fn(&Daemon) -> Result<(), Problem>;

#[rustfmt::skip]
const ORDERS: &[(&str, Order, Result<(), ProblemKind>)] = &[
    ("eject fixed", |d| d.eject("a", false), Err(ProblemKind::Conflict)),
    ("eject fixed by force", |d| d.eject("a", true), Err(ProblemKind::Conflict)),
    ("eject none", |d| d.eject("x", false), Err(ProblemKind::NotFound)),
    ("load fixed", |d| d.load("a"), Err(ProblemKind::Conflict)),
    ("load none", |d| d.load("x"), Err(ProblemKind::NotFound)),
    ("reservations", |d| d.reservations("a").map(drop), Ok(())),
    ("reservations of none", |d| d.reservations("x").map(drop), Err(ProblemKind::NotFound)),
    ("clear", |d| d.clear_reservations("a"), Ok(())),
    ("clear none", |d| d.clear_reservations("x"), Err(ProblemKind::NotFound)),
    ("take over a file", |d| d.take_over("a"), Err(ProblemKind::Conflict)),
    ("discard no log", |d| d.discard_log("a"), Err(ProblemKind::Conflict)),
    ("discard a good log", |d| d.discard_log("l"), Err(ProblemKind::Conflict)),
    ("replay none", |d| d.replay_log("x"), Err(ProblemKind::NotFound)),
    ("adopt none", |d| d.adopt("x"), Err(ProblemKind::NotFound)),
    ("snapshots of memory", |d| d.snapshots(Some("b")).map(drop), Err(ProblemKind::Conflict)),
    ("snapshots of none", |d| d.snapshots(Some("x")).map(drop), Err(ProblemKind::NotFound)),
    ("snapshots of all", |d| d.snapshots(None).map(|all| assert!(all.is_empty())), Ok(())),
    ("remove no snapshot", |d| d.remove_snapshot("a", "s"), Err(ProblemKind::NotFound)),
    ("restore no snapshot", |d| d.restore_snapshot("a", "s").map(drop), Err(ProblemKind::NotFound)),
    ("restore memory", |d| d.restore_snapshot("b", "s").map(drop), Err(ProblemKind::Conflict)),
    ("flatten a file", |d| d.flatten("a").map(drop), Err(ProblemKind::Conflict)),
    ("end no session", |d| d.end_session(9), Err(ProblemKind::NotFound)),
    ("trace no session", |d| d.start_trace("9", Tracing::default()).map(drop), Err(ProblemKind::NotFound)),
    ("stop no trace", |d| d.stop_trace("9"), Err(ProblemKind::NotFound)),
    ("read no trace", |d| d.read_trace("9").map(drop), Err(ProblemKind::NotFound)),
    ("figures", |d| d.figures(Range::Hour, Some("a")).map(drop), Ok(())),
    ("figures of none", |d| d.figures(Range::Hour, Some("x")).map(drop), Err(ProblemKind::NotFound)),
];

#[test]
fn an_order_that_cannot_be_carried_out_changes_nothing() {
    let living = Living::new(SMALL);
    let shown = living.shown();
    for (name, order, expected) in ORDERS {
        let kind = order(&living.daemon).map_err(|problem| problem.kind);
        assert_eq!(kind, *expected, "{name}");
        assert_eq!(difference(&shown, &living.shown()), "", "{name}");
    }
    let is_loaded = || {
        living.daemon.luns()[1]
            .medium
            .as_ref()
            .map(|medium| medium.loaded)
    };
    assert_eq!(is_loaded(), Some(true));
    living.daemon.eject("b", false).unwrap();
    assert_eq!(is_loaded(), Some(false));
    living.daemon.eject("b", false).unwrap();
    living.daemon.load("b").unwrap();
    assert_eq!(is_loaded(), Some(true));
    assert_eq!(difference(&shown, &living.shown()), "");
    living.stop();
}

#[test]
fn a_secret_that_is_another_one_in_its_file_is_a_change() {
    let living = Living::new(BASE);
    let text = living.text();
    let named = |steps: &[Step]| -> Vec<String> {
        let named = steps
            .iter()
            .map(|step| format!("{:?} {}", step.kind, step.name));
        named.map(|name| without_ports(&name)).collect()
    };
    assert_eq!(named(&living.plan(&text).unwrap().steps), [""; 0]);
    for (file, secret, changed) in [
        (
            "a.secret",
            "yet another secret",
            &["User alice", "HyperScsi ABC at udp:127.0.0.1:0"][..],
        ),
        ("b.secret", "that of the target", &["User alice"]),
        ("b.secret", "that of the target", &[]),
    ] {
        std::fs::write(living.path(file), secret).unwrap();
        assert_eq!(
            named(&living.plan(&text).unwrap().steps),
            changed,
            "{secret}"
        );
        assert_eq!(
            named(&living.apply(&text).unwrap().steps),
            changed,
            "{secret}"
        );
        assert_eq!(
            named(&living.plan(&text).unwrap().steps),
            [""; 0],
            "{secret}"
        );
    }
    let revision = living.daemon.document().revision;
    std::fs::write(living.path("a.secret"), "short").unwrap();
    let plan = living.plan(&text).unwrap();
    assert_eq!(
        (plan.is_applicable, plan.mistakes.len()),
        (false, 2),
        "{plan:?}"
    );
    assert!(living.apply(&text).is_err());
    assert_eq!(living.daemon.document().revision, revision);
    living.stop();
}
