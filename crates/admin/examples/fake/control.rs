//! A daemon without a data plane: the document is real, all else is invented.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::control::Control;
use api::event::{Event, Finding, Severity};
use api::plan::{Action, Applied, Change, Document, Effect, Kind, Plan, Revision, Step};
use api::problem::{Problem, ProblemKind};
use api::stats::{Core, LATENCY_BOUNDS_US, LoginFailures, Logins, Operations, Series, Stats};
use api::view::{Access, AccessQuestion, Lun, LunPath, Session, SessionLun, Status, Target};
use config::{Model, Specs};

/// Revisions and events that are kept.
const KEPT_MAX: usize = 500;

/// What it begins with.
const START: &str = r#"# The fake begins with this.
[[lun]]
id = "demo"
store = "mem:64M"

[[group]]
id = "lab"
initiators = ["iqn.1993-08.org.debian:*"]

[[target]]
name = "iqn.2026-11.example.tarn:demo"
luns = [{ lun = 0, id = "demo" }]
"#;

struct State {
    document: Document,
    past: VecDeque<(Revision, String)>,
    events: VecDeque<Event>,
    event_count: u64,
    sessions: Vec<Session>,
    stats_count: u64,
}

/// The daemon.
pub(crate) struct Fake(Mutex<State>);

impl Default for Fake {
    fn default() -> Self {
        let mut state = State {
            document: Document {
                revision: 0,
                text: String::new(),
            },
            past: VecDeque::new(),
            events: VecDeque::new(),
            event_count: 0,
            sessions: (1..=4).map(session).collect(),
            stats_count: 0,
        };
        state.run(START.to_owned(), "start", None, Vec::new());
        Self(Mutex::new(state))
    }
}

impl State {
    fn run(&mut self, text: String, author: &str, comment: Option<String>, steps: Vec<Step>) {
        let revision = self.document.revision + 1;
        let summary = steps
            .iter()
            .map(|step| format!("{:?} {}", step.action, step.name));
        let entry = Revision {
            revision,
            applied_ms: revision,
            author: author.to_owned(),
            comment,
            summary: summary.collect(),
        };
        self.past.push_front((entry, text.clone()));
        self.past.truncate(KEPT_MAX);
        self.document = Document { revision, text };
    }

    fn note(&mut self, mut event: Event) {
        self.event_count += 1;
        event.number = self.event_count;
        self.events.push_back(event);
        if self.events.len() > KEPT_MAX {
            self.events.pop_front();
        }
    }

    fn specs(&self) -> Specs {
        model(&self.document.text)
            .map(|model| model.to_specs())
            .unwrap_or_default()
    }
}

impl Fake {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control for Fake {
    fn status(&self) -> Status {
        let state = self.state();
        let specs = state.specs();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started_ms: 1_700_000_000_000,
            now_ms: 1_700_000_001_000,
            revision: state.document.revision,
            config_file: None,
            state_directory: "/nowhere".to_owned(),
            cores: 2,
            luns: count(specs.luns.len()),
            targets: count(specs.targets.len()),
            sessions: count(state.sessions.len()),
            findings: findings(),
        }
    }

    fn document(&self) -> Document {
        self.state().document.clone()
    }

    fn effective(&self) -> Document {
        let document = self.document();
        let text = model(&document.text).map(|model| model.effective());
        Document {
            text: text.unwrap_or_default(),
            ..document
        }
    }

    fn plan(&self, text: &str) -> Result<Plan, Problem> {
        let state = self.state();
        let steps = steps(&state.specs(), &model(text)?.to_specs());
        Ok(Plan {
            revision: state.document.revision,
            steps,
            is_applicable: true,
            warnings: Vec::new(),
        })
    }

    fn apply(
        &self,
        change: Change,
        only_at: Option<u64>,
        author: &str,
    ) -> Result<Applied, Problem> {
        let mut state = self.state();
        let runs = state.document.revision;
        if only_at.is_some_and(|wanted| wanted != runs) {
            let mut problem = Problem::new(ProblemKind::RevisionMismatch, "another revision runs");
            problem.revision = Some(runs);
            return Err(problem);
        }
        let steps = steps(&state.specs(), &model(&change.text)?.to_specs());
        if change.text != state.document.text {
            state.run(change.text, author, change.comment, steps.clone());
        }
        Ok(Applied {
            revision: state.document.revision,
            steps,
            warnings: Vec::new(),
        })
    }

    fn history(&self) -> Vec<Revision> {
        let state = self.state();
        state.past.iter().map(|(entry, _)| entry.clone()).collect()
    }

    fn document_of(&self, revision: u64) -> Option<Document> {
        let state = self.state();
        let found = state
            .past
            .iter()
            .find(|(entry, _)| entry.revision == revision);
        found.map(|(_, text)| Document {
            revision,
            text: text.clone(),
        })
    }

    fn luns(&self) -> Vec<Lun> {
        let specs = self.state().specs();
        let lun = |spec: &api::spec::Lun| Lun {
            spec: spec.clone(),
            kind: "memory".to_owned(),
            size_bytes: 64 << 20,
            block_bytes: 512,
            readonly: false,
            cache: None,
            thin: true,
            serial: "0123456789abcdef".to_owned(),
            naa: "6".repeat(32),
            shown_by: paths(&specs, &spec.id),
        };
        specs.luns.iter().map(lun).collect()
    }

    fn targets(&self) -> Vec<Target> {
        let specs = self.state().specs();
        let target = |spec: api::spec::Target| Target {
            bound: spec
                .portals
                .iter()
                .flatten()
                .map(|portal| portal.bind.clone())
                .collect(),
            spec,
            sessions: 0,
        };
        specs.targets.into_iter().map(target).collect()
    }

    fn sessions(&self) -> Result<Vec<Session>, Problem> {
        Ok(self.state().sessions.clone())
    }

    fn end_session(&self, id: u16) -> Result<(), Problem> {
        let mut state = self.state();
        let before = state.sessions.len();
        state.sessions.retain(|session| session.id != id);
        if state.sessions.len() == before {
            let detail = format!("there is no session {id}");
            return Err(Problem::new(ProblemKind::NotFound, detail));
        }
        Ok(())
    }

    fn keep_secret(&self, user: &str, secret: &str, is_mutual: bool) -> Result<String, Problem> {
        if !(12..=128).contains(&secret.len()) {
            let detail = "a secret has 12 to 128 bytes";
            return Err(Problem::new(ProblemKind::BadRequest, detail));
        }
        let name: Vec<_> = user.bytes().map(|byte| format!("{byte:02x}")).collect();
        let kind = if is_mutual { "mutual" } else { "user" };
        Ok(format!("/nowhere/{kind}-{}", name.concat()))
    }

    fn access(&self, question: &AccessQuestion) -> Result<Vec<Access>, Problem> {
        if !question.initiator.starts_with("iqn.") {
            let detail = format!("{:?} is no InitiatorName", question.initiator);
            return Err(Problem::new(ProblemKind::BadRequest, detail));
        }
        let access = |target: api::spec::Target| Access {
            target: target.name,
            may_login: true,
            needs_chap: !target.auth.is_empty(),
            is_discovered: true,
            reason: "everybody may".to_owned(),
            luns: Vec::new(),
        };
        Ok(self
            .state()
            .specs()
            .targets
            .into_iter()
            .map(access)
            .collect())
    }

    fn stats(&self) -> Stats {
        let mut state = self.state();
        state.stats_count += 1;
        let turn = state.stats_count;
        let specs = state.specs();
        Stats {
            at_ms: 1_700_000_000_000 + turn,
            cores: (0..2).map(|number| core(number, turn)).collect(),
            series: specs.luns.iter().map(|lun| series(&lun.id, turn)).collect(),
            logins: Logins {
                accepted: turn,
                succeeded: turn,
                failed: vec![LoginFailures {
                    cause: "not-found".to_owned(),
                    count: turn,
                }],
            },
            sessions: count(state.sessions.len()),
        }
    }

    fn events(&self, after: u64, most: usize) -> Vec<Event> {
        let state = self.state();
        let later = state.events.iter().filter(|event| event.number > after);
        later.take(most).cloned().collect()
    }

    fn note(&self, event: Event) {
        self.state().note(event);
    }

    fn findings(&self) -> Vec<Finding> {
        findings()
    }
}

fn model(text: &str) -> Result<Model, Problem> {
    Model::from_toml(text, Path::new("tarn.toml"))
        .map_err(|error| Problem::new(ProblemKind::InvalidConfig, error.to_string()))
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// What differs in four lists.
fn steps(old: &Specs, new: &Specs) -> Vec<Step> {
    let mut steps = differ(Kind::Lun, &old.luns, &new.luns, |lun| &lun.id);
    steps.extend(differ(Kind::Target, &old.targets, &new.targets, |target| {
        &target.name
    }));
    steps.extend(differ(Kind::Group, &old.groups, &new.groups, |group| {
        &group.id
    }));
    steps.extend(differ(Kind::User, &old.users, &new.users, |user| {
        &user.name
    }));
    steps
}

fn differ<T: PartialEq>(kind: Kind, old: &[T], new: &[T], name: fn(&T) -> &String) -> Vec<Step> {
    let step = |action, thing: &T| Step {
        action,
        kind,
        name: name(thing).clone(),
        detail: String::new(),
        effect: Effect::Online,
        reason: None,
        sessions_ended: Vec::new(),
    };
    let find = |all: &[T], thing: &T| all.iter().position(|own| name(own) == name(thing));
    let removed = old.iter().filter(|thing| find(new, thing).is_none());
    let mut steps: Vec<_> = removed.map(|thing| step(Action::Remove, thing)).collect();
    for thing in new {
        match find(old, thing) {
            None => steps.push(step(Action::Add, thing)),
            Some(at) if old[at] != *thing => steps.push(step(Action::Change, thing)),
            Some(_) => {}
        }
    }
    steps
}

fn paths(specs: &Specs, id: &str) -> Vec<LunPath> {
    let entries = specs.targets.iter().flat_map(|target| {
        let own = target.luns.iter().filter(|entry| entry.id == id);
        own.map(|entry| LunPath {
            target: target.name.clone(),
            lun: entry.lun,
            groups: entry.groups.clone(),
            readonly: entry.readonly,
        })
    });
    entries.collect()
}

fn session(id: u16) -> Session {
    Session {
        id,
        initiator: format!("iqn.1993-08.org.debian:01:{id}"),
        address: format!("192.0.2.{id}:40000"),
        target: Some("iqn.2026-11.example.tarn:demo".to_owned()),
        portal_group: 1,
        isid: "023d00000000".to_owned(),
        user: None,
        core: 0,
        connections: 1,
        since_ms: 1_700_000_000_000,
        luns: vec![SessionLun {
            lun: 0,
            id: "demo".to_owned(),
            readonly: false,
        }],
        header_digest: false,
        data_digest: false,
        commands: 1,
        window: 32,
        violations: 0,
        reinstatements: 0,
    }
}

fn core(core: u32, turn: u64) -> Core {
    Core {
        core,
        busy_us: turn * 1000,
        turns: turn,
        sessions: 2,
        pool_bytes: 32 << 20,
        pool_free_bytes: 31 << 20,
        starved: 0,
    }
}

fn series(lun: &str, turn: u64) -> Series {
    Series {
        lun: lun.to_owned(),
        initiator: "iqn.1993-08.org.debian:01:1".to_owned(),
        depth: 1,
        slow: 0,
        read: operations(turn),
        write: operations(2 * turn),
        other: Operations::default(),
    }
}

fn operations(count: u64) -> Operations {
    let mut latency = vec![0; LATENCY_BOUNDS_US.len() + 1];
    latency[9] = count;
    Operations {
        count,
        bytes: 4096 * count,
        errors: 0,
        latency_us: 90 * count,
        latency,
    }
}

fn findings() -> Vec<Finding> {
    vec![Finding {
        severity: Severity::Info,
        code: "fake".to_owned(),
        subject: String::new(),
        message: "this daemon has no data plane".to_owned(),
        remedy: "start tarn".to_owned(),
    }]
}
