//! A daemon in the process of a test: what `serve` starts, without confinement, signals and the threads that look for
//! themselves. And what all of it shows, as lines that can be compared.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::OnceLock;

use api::plan::{Applied, Change, Inspection, Origin, Plan};
use api::problem::Problem;
use config::LogLevel;
use durable::scratch::Scratch;
use serde::Serialize;
use serde_json::Value;

use super::*;
use crate::Asked;
use crate::daemon::InForce;

/// Who changes the configuration.
const AUTHOR: &str = "tester";

pub(crate) struct Living {
    plane: DataPlane,
    administration: Option<Administration>,
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) scratch: Scratch,
}

impl Living {
    /// A daemon with this file, in which `{dir}` is a directory of its own.
    pub(crate) fn new(text: &str) -> Self {
        let scratch = Scratch::new();
        for (name, secret) in [
            ("a.secret", "secret of alice"),
            ("b.secret", "another secret"),
        ] {
            write_private(&scratch, name, secret);
        }
        write_private(&scratch, "tarn.toml", &placed(&scratch, text));
        Self::begin(scratch)
    }

    fn begin(scratch: Scratch) -> Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        let asked = Asked {
            config: Some(scratch.path().join("tarn.toml")),
            log: Some(LogLevel::Error),
            ..Asked::default()
        };
        let environment = Environment {
            uid: rustix::process::geteuid().as_raw(),
            host: "san1".to_owned(),
            ..Environment::default()
        };
        let prepared = prepare(&asked, &environment).unwrap();
        let log = LOG.get_or_init(|| logging::start(&prepared.log).unwrap());
        let (settings, note) = sized(&prepared.model).unwrap();
        let inherited = Inherited::default();
        let Loaded { sockets, first } =
            opening(|| load(&prepared, &inherited, settings.cores)).unwrap();
        let rest = (crate::Doctor::open(note), log.switch());
        let (plane, daemon) = connect(prepared, inherited, first, settings, rest).unwrap();
        let control = Arc::clone(&daemon) as Arc<dyn Control>;
        let administration = sockets.map(|sockets| administration(sockets, control, &daemon));
        Self {
            plane,
            administration: administration.and_then(Result::unwrap),
            daemon,
            scratch,
        }
    }

    /// Stops it. Gives its directory.
    pub(crate) fn stop(self) -> Scratch {
        end(self.plane, &self.daemon, self.administration).unwrap();
        self.scratch
    }

    /// Starts one again in the directory of one that was stopped.
    pub(crate) fn again(scratch: Scratch) -> Self {
        Self::begin(scratch)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub(crate) fn text(&self) -> String {
        self.daemon.document().text
    }

    /// The text that runs with one replacement.
    pub(crate) fn text_with(&self, old: &str, new: &str) -> String {
        let (old, new) = (placed(&self.scratch, old), placed(&self.scratch, new));
        let text = self.text();
        assert_eq!(text.matches(&old).count(), 1, "places of {old:?}");
        text.replace(&old, &new)
    }

    /// Has the daemon take what it serves for this: nothing is opened or changed for that.
    pub(crate) fn pretend(&self, text: &str, change: impl FnOnce(&mut Running)) {
        let text = placed(&self.scratch, text);
        let now = self.daemon.in_force();
        let mut running = now.running.clone();
        running.model = Arc::new(Model::from_toml(&text, &self.path("tarn.toml")).unwrap());
        change(&mut running);
        let (document, past) = (now.document.clone(), now.past.clone());
        *self.daemon.in_force.write().unwrap() = Arc::new(InForce {
            running,
            document,
            past,
        });
    }

    pub(crate) fn plan(&self, text: &str) -> Result<Plan, Problem> {
        self.daemon.plan(text, &Origin::Written, Inspection::Files)
    }

    pub(crate) fn apply(&self, text: &str) -> Result<Applied, Problem> {
        let change = Change {
            text: text.to_owned(),
            comment: None,
        };
        let mut applied = self.daemon.apply(change, Origin::Written, None, AUTHOR)?;
        while applied.unsettled.is_some() {
            self.daemon.settle(&mut applied);
        }
        Ok(applied)
    }

    /// Everything that the administration shows of it, one fact on a line, without what differs from run to run.
    pub(crate) fn shown(&self) -> Vec<String> {
        let mut shown = Shown {
            directory: self.scratch.path().display().to_string(),
            lines: Vec::new(),
        };
        shown.all("lun", &self.daemon.luns(), "/spec/id");
        shown.all("target", &self.daemon.targets().unwrap(), "/spec/name");
        shown.all("hyperscsi", &self.daemon.hyperscsi().unwrap(), "/name");
        shown.all("quota", &self.daemon.quotas(), "/name");
        let status = self.daemon.status();
        shown.value("pending", &serde_json::to_value(&status.pending).unwrap());
        shown.value("luns", &status.luns.into());
        shown.value("targets", &status.targets.into());
        shown.all("finding", &self.daemon.findings(), "/code");
        for line in self.daemon.effective().text.lines() {
            shown.line(format!("effective: {line}"));
        }
        shown.lines
    }
}

fn write_private(scratch: &Scratch, name: &str, text: &str) {
    let path = scratch.path().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn placed(scratch: &Scratch, text: &str) -> String {
    text.replace("{dir}", &scratch.path().display().to_string())
}

/// Facts as lines.
struct Shown {
    directory: String,
    lines: Vec<String>,
}

impl Shown {
    fn all(&mut self, what: &str, all: &[impl Serialize], name: &str) {
        for one in all {
            let value = serde_json::to_value(one).unwrap();
            let name = value.pointer(name).and_then(Value::as_str);
            self.value(&format!("{what} {}", name.unwrap_or_default()), &value);
        }
    }

    fn value(&mut self, path: &str, value: &Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields.iter().filter(|(name, _)| !differs(name)) {
                    self.value(&format!("{path}.{name}"), value);
                }
            }
            Value::Array(all) => {
                for (at, value) in all.iter().enumerate() {
                    self.value(&format!("{path}[{at}]"), value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.line(format!("{path} = {value}"));
            }
        }
    }

    fn line(&mut self, line: String) {
        // How many files a process may open differs from machine to machine; how long a query takes, by its load.
        let of_machine = ["finding descriptors.", "finding file-system."];
        if of_machine.iter().any(|start| line.starts_with(start)) {
            return;
        }
        self.lines
            .push(without_ports(&line.replace(&self.directory, "{dir}")));
    }
}

/// Whether a fact differs from run to run.
fn differs(name: &str) -> bool {
    name.ends_with("_ms") || ["serial", "naa"].contains(&name)
}

/// A port that the system has chosen is `PORT`.
pub(crate) fn without_ports(line: &str) -> String {
    let mut parts = line.split("127.0.0.1:");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let port = part.strip_suffix(rest).unwrap_or_default();
        text += "127.0.0.1:";
        text += if port.len() < 5 { port } else { "PORT" };
        text += rest;
    }
    text
}
