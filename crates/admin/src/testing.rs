//! What the unit tests of this crate share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use api::access::{NewToken, Role};
use api::control::Control;
use api::edit::SecretOf;
use api::event::{Event, Finding, Severity};
use api::figures::{Figures, Range};
use api::plan::{Applied, Change, Document, Inspection, Origin, Plan, Revision};
use api::problem::{Problem, ProblemKind};
use api::request::{EventQuestion, Rollback, TakeSnapshots, Tracing};
use api::stats::Stats;
use api::view::{
    Access, AccessQuestion, Check, Flattened, Hyperscsi, Lun, Places, Quota, Reservations,
    RolledBack, Session, Snapshot, SnapshotsTaken, Status, Target, Trace,
};
use durable::scratch::Scratch;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::app::App;
use crate::peer::Peer;
use crate::tokens::Tokens;

/// An event of this kind.
pub(crate) fn event(kind: &str) -> Event {
    Event {
        number: 0,
        at_ms: 0,
        severity: Severity::Info,
        kind: kind.to_owned(),
        message: String::new(),
        lun: None,
        target: None,
        initiator: None,
        user: None,
        author: None,
        command: None,
    }
}

/// What the requests share, before this daemon and with tokens in this directory.
pub(crate) fn app(daemon: &Arc<Double>, scratch: &Scratch) -> Arc<App> {
    app_that_stops(daemon, scratch).0
}

/// The same, with what has all of it end.
pub(crate) fn app_that_stops(
    daemon: &Arc<Double>,
    scratch: &Scratch,
) -> (Arc<App>, watch::Sender<bool>) {
    let tokens = Tokens::open(&scratch.path().join("tokens.toml")).unwrap().0;
    let control = Arc::clone(daemon) as Arc<dyn Control>;
    let stop = watch::Sender::new(false);
    let app = App::new(control, tokens, Vec::new(), stop.subscribe());
    (Arc::new(app), stop)
}

/// A new token of this role, by its name.
pub(crate) fn token(app: &App, name: &str, role: Role) -> String {
    let name = name.to_owned();
    let made = app.tokens.make(NewToken { name, role }, 0);
    made.unwrap().token.unwrap()
}

/// A peer on this machine.
pub(crate) fn local(is_tls: bool) -> Peer {
    let address: SocketAddr = "127.0.0.1:3262".parse().unwrap();
    Peer::Tcp {
        address,
        local: address,
        is_tls,
    }
}

/// What a double does where it is asked for more than whether it answers.
#[derive(Debug, Default, Eq, PartialEq)]
enum Manner {
    /// It panics: no test asks that of it.
    #[default]
    Panics,
    /// It says what it always says.
    Answers,
    /// It refuses what can be refused.
    Refuses,
}

/// A daemon that has no sessions and keeps the notes that it gets.
#[derive(Debug, Default)]
pub(crate) struct Double {
    manner: Manner,
    is_silent: bool,
    is_fixed: bool,
    /// How often another one changes the configuration before a change of this one.
    races: AtomicU32,
    asked_sessions: AtomicU32,
    pub(crate) document_bytes: AtomicUsize,
    /// How often it was to give memory back.
    pub(crate) given_back: AtomicU32,
    asked: Mutex<Vec<String>>,
    noted: Mutex<Vec<Event>>,
}

/// The configuration of one that answers.
pub(crate) const DOCUMENT: &str = r#"
[[lun]]
id = "a"
store = "mem:1M"
[[lun]]
id = "b"
store = "mem:2M"
[[store]]
id = "left"
store = "file:/srv/left?size=1M"
[[store]]
id = "right"
store = "file:/srv/right?size=1M"
[[group]]
id = "known"
initiators = ["iqn.2026-11.x:k"]
[[group]]
id = "other"
initiators = ["iqn.2026-11.x:o"]
[[user]]
name = "alice"
secret_file = "a.secret"
[[user]]
name = "bob"
secret_file = "b.secret"
[[target]]
name = "iqn.2026-11.x:one"
portals = ["127.0.0.1:3260", "[::1]:3260"]
luns = [{ lun = 0, id = "a" }]
[[nbd]]
bind = "127.0.0.1"
luns = ["a"]
[[nbd]]
socket = "/run/nbd"
luns = ["b"]
[[quota]]
owner = "bob"
provisioned = "20M"
[[hyperscsi.group]]
name = "ABC"
udp = "127.0.0.1"
password = "secret of ABC"
[[hyperscsi.group.device]]
id = "a"
level = "crc"
"#;

impl Double {
    /// One whose data plane hangs.
    pub(crate) fn that_answers_nothing() -> Self {
        Self {
            is_silent: true,
            ..Self::default()
        }
    }

    /// One whose configuration cannot be changed.
    pub(crate) fn that_is_fixed() -> Self {
        Self {
            is_fixed: true,
            ..Self::default()
        }
    }

    /// One that says something to everything, and remembers what it was asked.
    pub(crate) fn that_answers() -> Self {
        Self {
            manner: Manner::Answers,
            ..Self::default()
        }
    }

    /// One that remembers what it was asked, and refuses it.
    pub(crate) fn that_refuses() -> Self {
        Self {
            manner: Manner::Refuses,
            ..Self::default()
        }
    }

    /// One that answers, and whose configuration somebody else changes so often before this change is made.
    pub(crate) fn that_others_change(races: u32) -> Self {
        Self {
            races: AtomicU32::new(races),
            ..Self::that_answers()
        }
    }

    /// How often it was asked for its sessions.
    pub(crate) fn asked_sessions(&self) -> u32 {
        self.asked_sessions.load(Ordering::Relaxed)
    }

    /// The notes that it got.
    pub(crate) fn noted(&self) -> Vec<Event> {
        self.noted.lock().unwrap().clone()
    }

    /// What it was asked since this was asked last.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    fn hear(&self, question: String) {
        assert_ne!(
            self.manner,
            Manner::Panics,
            "{question}: it is not to be asked"
        );
        self.asked.lock().unwrap().push(question);
    }

    /// What it always says.
    fn say<T: DeserializeOwned>(&self, question: String, json: &str) -> T {
        self.hear(question);
        serde_json::from_str(json).unwrap()
    }

    /// The same, unless it refuses.
    fn may<T: DeserializeOwned>(&self, question: String, json: &str) -> Result<T, Problem> {
        self.hear(question);
        match self.manner {
            Manner::Refuses => Err(Problem::new(ProblemKind::Failed, "the double refuses")),
            Manner::Panics | Manner::Answers => Ok(serde_json::from_str(json).unwrap()),
        }
    }

    fn applied(&self, question: String) -> Result<Applied, Problem> {
        self.may(
            question,
            r#"{"revision": 8, "steps": [], "changes_text": true, "warnings": ["w"], "unsettled": "it waits"}"#,
        )
    }
}

/// The lines that only one of two texts has, or how many they are.
fn difference(before: &str, after: &str) -> String {
    let only = |sign: char, one: &str, other: &str| {
        let is_other = |line: &&str| !other.lines().any(|it| it == *line);
        let lines: Vec<_> = one.lines().filter(is_other).collect();
        match lines.len() {
            0..9 => lines
                .iter()
                .map(|line| format!("\n{sign} {line}"))
                .collect(),
            many => format!("\n{sign} {many} lines"),
        }
    };
    only('-', before, after) + &only('+', after, before)
}

const LUNS: &str = r#"[
    {"spec": {"id": "b", "store": "mem:2M"}, "kind": "memory", "type": "disk", "size_bytes": 2, "block_bytes": 512,
        "readonly": false, "thin": true, "serial": "S2", "naa": "N2", "shown_by": [], "served_by": []},
    {"spec": {"id": "a", "store": "mem:1M"}, "kind": "memory", "type": "disk", "size_bytes": 1, "block_bytes": 512,
        "readonly": false, "thin": true, "serial": "S1", "naa": "N1", "shown_by": [], "served_by": []}]"#;
const FINDING: &str =
    r#"{"severity": "warning", "code": "c", "subject": "s", "message": "m", "remedy": "r"}"#;
const SNAPSHOT: &str =
    r#"{"lun": "a", "name": "s", "taken_ms": 5, "size_bytes": 6, "path": "/srv/a@s"}"#;
const TRACE: &str =
    r#"{"subject": "1", "since_ms": 1, "data_bytes": 2, "keep_bytes": 3, "pdus": 4, "dropped": 5}"#;
const SESSION: &str = r#"{"initiator": "iqn.2026-11.x:k", "address": "192.0.2.1:5", "core": 0, "since_ms": 1,
    "luns": [], "commands": 0, "window": 1, "transport": {"nbd": {"export": "a", "service": "s", "names": []}}"#;

impl Control for Double {
    fn sessions(&self) -> Result<Vec<Session>, Problem> {
        self.asked_sessions.fetch_add(1, Ordering::Relaxed);
        if self.is_silent || self.manner == Manner::Refuses {
            return Err(Problem::new(ProblemKind::Unavailable, "it does not answer"));
        }
        if self.manner == Manner::Panics {
            return Ok(Vec::new());
        }
        let asked = self.asked.lock().unwrap().clone();
        let is_there = |id: &u32| !asked.contains(&format!("end session {id}"));
        let sessions = [2, 1].into_iter().filter(is_there);
        let sessions = sessions.map(|id| format!("{SESSION}, \"id\": {id}}}"));
        let sessions = sessions.collect::<Vec<_>>().join(", ");
        Ok(self.say("sessions".to_owned(), &format!("[{sessions}]")))
    }

    fn events(&self, question: EventQuestion) -> Vec<Event> {
        if self.manner != Manner::Panics {
            self.hear(format!("events {question:?}"));
        }
        let after = usize::try_from(question.after.unwrap_or(0)).unwrap();
        self.noted()
            .into_iter()
            .skip(after)
            .take(question.most)
            .collect()
    }

    fn note(&self, mut event: Event) {
        let mut noted = self.noted.lock().unwrap();
        event.number = u64::try_from(noted.len()).unwrap() + 1;
        noted.push(event);
    }

    fn status(&self) -> Status {
        self.say(
            "status".to_owned(),
            &format!(
                r#"{{"version": "1.2.3", "pid": 7, "started_ms": 1, "now_ms": 2, "revision": 7, "state_directory": "/s",
                "cores": 2, "luns": 3, "targets": 4, "sessions": 5, "findings": [{FINDING}],
                "certificates": [{{"of": "administration", "not_after_ms": 6}}]}}"#
            ),
        )
    }

    fn document(&self) -> Document {
        assert_ne!(self.manner, Manner::Panics, "it has no document");
        Document {
            revision: 7,
            text: DOCUMENT.to_owned(),
        }
    }

    fn check_changeable(&self) -> Result<(), Problem> {
        let detail = "it has no document";
        let problem = || Problem::new(ProblemKind::Refused, detail);
        (!self.is_fixed).then_some(()).ok_or_else(problem)
    }

    fn document_bytes(&self) -> usize {
        self.document_bytes.load(Ordering::Relaxed)
    }

    fn give_memory_back(&self) {
        self.given_back.fetch_add(1, Ordering::Relaxed);
    }

    fn effective(&self) -> Document {
        self.hear("effective".to_owned());
        Document {
            revision: 7,
            text: "[[hyperscsi.group]]\nname = \"ABC\"\npassword = \"secret of ABC\"\n".to_owned(),
        }
    }

    fn plan(&self, text: &str, origin: &Origin, inspection: Inspection) -> Result<Plan, Problem> {
        let difference = difference(DOCUMENT, text);
        self.may(
            format!("plan {inspection:?} {origin:?}{difference}"),
            r#"{"revision": 7, "steps": [], "is_applicable": true, "changes_text": true, "warnings": ["w"]}"#,
        )
    }

    fn apply(
        &self,
        change: Change,
        origin: Origin,
        only_at: Option<u64>,
        author: &str,
    ) -> Result<Applied, Problem> {
        let races = self.races.load(Ordering::Relaxed);
        self.races.store(races.saturating_sub(1), Ordering::Relaxed);
        if races > 0 {
            let detail = "somebody else was quicker";
            return Err(Problem::new(ProblemKind::RevisionMismatch, detail));
        }
        let (comment, difference) = (change.comment, difference(DOCUMENT, &change.text));
        self.applied(format!(
            "apply at {only_at:?} by {author}, {comment:?}, {origin:?}{difference}"
        ))
    }

    fn roll_back(
        &self,
        back: Rollback,
        only_at: Option<u64>,
        author: &str,
    ) -> Result<Applied, Problem> {
        let (revision, comment) = (back.revision, back.comment);
        self.applied(format!(
            "roll back to {revision} at {only_at:?} by {author}, {comment:?}"
        ))
    }

    fn settle(&self, applied: &mut Applied) {
        self.hear(format!("settle {}", applied.revision));
        applied.unsettled = None;
    }

    fn history(&self) -> Vec<Revision> {
        let json = r#"[{"revision": 7, "applied_ms": 1, "author": "uid 0", "summary": ["s"]}]"#;
        self.say("history".to_owned(), json)
    }

    fn document_of(&self, revision: u64) -> Option<Document> {
        self.hear(format!("document of {revision}"));
        (revision == 6).then(|| Document {
            revision,
            text: "[[hyperscsi.group]]\nname = \"ABC\"\npassword = \"an older secret\"\n"
                .to_owned(),
        })
    }

    fn luns(&self) -> Vec<Lun> {
        self.say("luns".to_owned(), LUNS)
    }

    fn quotas(&self) -> Vec<Quota> {
        let quota = |name: &str, spec: &str| {
            format!(
                r#"{{"name": "{name}", "spec": {spec}, "luns": [], "provisioned_bytes": 1, "space": "thin"}}"#
            )
        };
        let pool = quota("pool:/srv", r#"{"pool": "/srv", "used": "1M"}"#);
        let owner = quota("owner:bob", r#"{"owner": "bob", "provisioned": "20M"}"#);
        self.say("quotas".to_owned(), &format!("[{pool}, {owner}]"))
    }

    fn eject(&self, lun: &str, force: bool) -> Result<(), Problem> {
        self.may(format!("eject {lun} {force}"), "null")
    }

    fn load(&self, lun: &str) -> Result<(), Problem> {
        self.may(format!("load {lun}"), "null")
    }

    fn reservations(&self, lun: &str) -> Result<Reservations, Problem> {
        self.may(
            format!("reservations {lun}"),
            r#"{"registered": 1, "aptpl": true, "lost": false}"#,
        )
    }

    fn clear_reservations(&self, lun: &str) -> Result<(), Problem> {
        self.may(format!("clear reservations {lun}"), "null")
    }

    fn take_over(&self, lun: &str) -> Result<(), Problem> {
        self.may(format!("take over {lun}"), "null")
    }

    fn discard_log(&self, lun: &str) -> Result<(), Problem> {
        self.may(format!("discard log {lun}"), "null")
    }

    fn adopt(&self, lun: &str) -> Result<(), Problem> {
        self.may(format!("adopt {lun}"), "null")
    }

    fn replay_log(&self, lun: &str) -> Result<(), Problem> {
        self.may(format!("replay log {lun}"), "null")
    }

    fn snapshots(&self, lun: Option<&str>) -> Result<Vec<Snapshot>, Problem> {
        self.may(format!("snapshots {lun:?}"), &format!("[{SNAPSHOT}]"))
    }

    fn take_snapshots(
        &self,
        wanted: TakeSnapshots,
        author: &str,
    ) -> Result<SnapshotsTaken, Problem> {
        self.may(
            format!("take snapshots {wanted:?} by {author}"),
            &format!(r#"{{"snapshots": [{SNAPSHOT}], "paused_us": 3}}"#),
        )
    }

    fn remove_snapshot(&self, lun: &str, name: &str) -> Result<(), Problem> {
        self.may(format!("remove snapshot {lun}@{name}"), "null")
    }

    fn restore_snapshot(&self, lun: &str, name: &str) -> Result<RolledBack, Problem> {
        self.may(
            format!("restore snapshot {lun}@{name}"),
            r#"{"lun": "a", "unsettled": "u"}"#,
        )
    }

    fn clone_snapshot(&self, (lun, name): (&str, &str), store: &str) -> Result<(), Problem> {
        // What is not made needs not be discarded: that shows where only the change is refused.
        self.hear(format!("clone snapshot {lun}@{name} to {store}"));
        match name {
            "unmade" => Err(Problem::new(ProblemKind::Conflict, "it is not made")),
            _ => Ok(()),
        }
    }

    fn discard_clone(&self, lun: &str, store: &str) {
        self.hear(format!("discard clone {store} of {lun}"));
    }

    fn flatten(&self, lun: &str) -> Result<Flattened, Problem> {
        self.may(
            format!("flatten {lun}"),
            r#"{"lun": "a", "done": false, "percent": 9}"#,
        )
    }

    fn release_secret(&self, path: &str) {
        self.hear(format!("release secret {path}"));
    }

    fn targets(&self) -> Result<Vec<Target>, Problem> {
        self.may(
            "targets".to_owned(),
            r#"[{"spec": {"name": "iqn.2026-11.x:two"}, "bound": [], "sessions": 2},
                {"spec": {"name": "iqn.2026-11.x:one"}, "bound": [], "sessions": 1}]"#,
        )
    }

    fn hyperscsi(&self) -> Result<Vec<Hyperscsi>, Problem> {
        let group = |name: &str| {
            format!(
                r#"{{"name": "{name}", "spec": {{"name": "ABC", "device": []}}, "place": "p", "password": "file",
                    "sessions": []}}"#
            )
        };
        let groups = ["DEF at udp:127.0.0.1:5674", "ABC at udp:127.0.0.1:5674"].map(group);
        self.may("hyperscsi".to_owned(), &format!("[{}]", groups.join(", ")))
    }

    fn hyperscsi_stats(&self) -> api::stats::Hyperscsi {
        self.hear("hyperscsi stats".to_owned());
        api::stats::Hyperscsi {
            events: vec![("question", 3)],
            ..Default::default()
        }
    }

    fn end_session(&self, id: u64) -> Result<(), Problem> {
        self.may(format!("end session {id}"), "null")
    }

    fn traces(&self) -> Vec<Trace> {
        self.say("traces".to_owned(), &format!("[{TRACE}]"))
    }

    fn start_trace(&self, subject: &str, how: Tracing) -> Result<(Trace, bool), Problem> {
        let is_new = subject == "1";
        self.may(
            format!("start trace {subject} {how:?}"),
            &format!("[{TRACE}, {is_new}]"),
        )
    }

    fn read_trace(&self, subject: &str) -> Result<Vec<u8>, Problem> {
        self.may(format!("read trace {subject}"), "[112, 99, 97, 112]")
    }

    fn stop_trace(&self, subject: &str) -> Result<(), Problem> {
        self.may(format!("stop trace {subject}"), "null")
    }

    fn keep_secret(&self, of: SecretOf<'_>, secret: &str) -> Result<String, Problem> {
        self.hear(format!("keep secret {of:?} {secret}"));
        Ok(format!("kept/{}", secret.len()))
    }

    fn access(&self, question: &AccessQuestion) -> Result<Vec<Access>, Problem> {
        self.may(
            format!("access {question:?}"),
            r#"[{"protocol": "iscsi", "target": "t", "may_login": true, "needs_chap": false, "is_discovered": true,
                "reason": "r", "luns": []}]"#,
        )
    }

    fn space(&self) -> api::stats::Space {
        let json =
            r#"{"luns": [{"lun": "a", "type": "disk", "size_bytes": 1}], "file_systems": []}"#;
        self.say("space".to_owned(), json)
    }

    fn stats(&self) -> Stats {
        let json = r#"{"at_ms": 1, "cores": [], "series": [], "sessions": 2,
            "logins": {"accepted": 3, "succeeded": 4, "failed": []}}"#;
        self.say("stats".to_owned(), json)
    }

    fn checks(&self) -> Vec<Check> {
        self.say("checks".to_owned(), r#"[{"code": "c", "finding": "f"}]"#)
    }

    fn places(&self) -> Places {
        self.say(
            "places".to_owned(),
            r#"{"directories": ["/srv"], "devices": []}"#,
        )
    }

    fn figures(&self, range: Range, lun: Option<&str>) -> Result<Figures, Problem> {
        self.may(
            format!("figures {range:?} {lun:?}"),
            r#"{"range": "24h", "step_ms": 1, "points": []}"#,
        )
    }

    fn findings(&self) -> Vec<Finding> {
        self.say("findings".to_owned(), &format!("[{FINDING}]"))
    }
}
