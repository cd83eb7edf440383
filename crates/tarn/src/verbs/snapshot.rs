//! `tarn snapshot`

use std::str::FromStr;

use api::request::TakeSnapshots;
use api::view::{Flattened, RolledBack, Snapshot, SnapshotsTaken};
use clap::{Args, Subcommand};
use client::{Path, path};

use super::api_session::ApiSession;
use super::exit::Exit;
use super::remote::Ask;
use super::table::{Column, figures, words};
use super::{Outcome, human, terminal};

const CREATE_HELP: &str = "\
Commands of the units wait until the copies are made, which takes some milliseconds as a rule. The
store must be a file on XFS or btrfs, or an RBD image; the snapshot is a file in a directory beside
it, or one of the image, and takes space as the two diverge. File systems that are mounted from the
unit are in the state of a power cut: freeze or unmount them first to have all their data
(fsfreeze).

Examples:
  tarn snapshot create web before-upgrade
  tarn snapshot create data --with log --with index";

const ROLLBACK_HELP: &str = "\
Initiators log in again by themselves and find other data: unmount the unit there first. Take a
snapshot first to keep the data of now.

Examples:
  tarn snapshot create web after-all
  tarn snapshot rollback web@before-upgrade";

const FLATTEN_HELP: &str = "\
Clones of RBD images share data with their snapshot. Clones of files need nothing of it.

Examples:
  tarn lun add test rbd:rbd/test --clone web@before-upgrade
  tarn snapshot flatten test
  tarn snapshot rm web@before-upgrade";

/// `tarn snapshot`
#[derive(Debug, Subcommand)]
pub enum SnapshotVerb {
    /// Take a snapshot of a unit, or of several at one moment.
    Create(Create),
    /// List snapshots.
    List {
        /// Only those of this unit. [default: those of all]
        lun: Option<String>,
    },
    /// Give a unit the data of a snapshot back. What was written since is gone; sessions that see it
    /// end first.
    #[command(after_help = ROLLBACK_HELP)]
    Rollback {
        /// The snapshot, as LUN@NAME.
        snapshot: Which,
        /// Do not ask for confirmation. Use it in scripts.
        #[arg(long)]
        yes: bool,
    },
    /// Give a unit that is a clone all data of its snapshot, so that it does not need that any more. It
    /// is served meanwhile; a flatten that is interrupted goes on with the next one.
    #[command(after_help = FLATTEN_HELP)]
    Flatten {
        /// The unit.
        lun: String,
    },
    /// Remove a snapshot that nobody uses, with its data.
    Rm {
        /// The snapshot, as LUN@NAME.
        snapshot: Which,
        /// Do not ask for confirmation. Use it in scripts.
        #[arg(long)]
        yes: bool,
    },
}

/// `tarn snapshot create`
#[derive(Args, Debug)]
#[command(after_help = CREATE_HELP)]
pub struct Create {
    /// The unit.
    lun: String,
    /// What the snapshot is called: letters, digits, '.', '_' and '-'. [default: the time in UTC]
    name: Option<String>,
    /// Another unit, of which a snapshot of the same name and moment is taken; repeat the flag for
    /// several. Use it for units whose data belongs together.
    #[arg(long, value_name = "LUN")]
    with: Vec<String>,
}

/// A snapshot of a unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Which {
    lun: String,
    name: String,
}

impl FromStr for Which {
    type Err = String;

    /// The name has no `@`, while that of the unit may have one.
    fn from_str(text: &str) -> Result<Self, String> {
        let (lun, name) = text
            .rsplit_once('@')
            .filter(|(lun, name)| !lun.is_empty() && !name.is_empty())
            .ok_or("a snapshot is named LUN@NAME, as web@before-upgrade")?;
        Ok(Self {
            lun: lun.to_owned(),
            name: name.to_owned(),
        })
    }
}

const COLUMNS: &[Column<Snapshot>] = &[
    words("snapshot", label),
    words("taken", |s| human::moment(s.taken_ms)),
    figures("size", |s| human::size(s.size_bytes)),
    words("file", |s| s.path.clone()),
];

fn label(snapshot: &Snapshot) -> String {
    format!("{}@{}", snapshot.lun, snapshot.name)
}

impl Ask for SnapshotVerb {
    fn ask(&self, api: &ApiSession) -> Outcome {
        match self {
            Self::Create(create) => create.ask(api),
            Self::List { lun: None } => api.list(&path(&["snapshots"]), COLUMNS),
            Self::List { lun: Some(lun) } => api.list(&path(&["luns", lun, "snapshots"]), COLUMNS),
            Self::Flatten { lun } => flatten(api, lun),
            Self::Rollback { snapshot, yes } => snapshot.roll_back(api, *yes),
            Self::Rm { snapshot, yes } => snapshot.remove(api, *yes),
        }
    }
}

/// Asks until it is done: each answer comes after some seconds.
fn flatten(api: &ApiSession, lun: &str) -> Outcome {
    let at = path(&["luns", lun, "flatten"]);
    let answer = terminal::busy("flattening", || {
        loop {
            match api.client.order::<Flattened>(&at) {
                Ok(answer) if !answer.value.done => {}
                ended => return ended,
            }
        }
    })?;
    api.output.print(&answer.json, || {
        format!("lun {lun}: has all of its data, and needs no snapshot\n")
    });
    Ok(Exit::Done)
}

impl Create {
    fn ask(&self, api: &ApiSession) -> Outcome {
        let wanted = TakeSnapshots {
            luns: [std::slice::from_ref(&self.lun), &self.with].concat(),
            name: self.name.clone(),
        };
        let at = path(&["snapshots"]);
        let answer = terminal::busy("taking the snapshot", || {
            api.client.post::<SnapshotsTaken>(&at, &wanted, None)
        })?;
        api.output.print(&answer.json, || taken(&answer.value));
        Ok(Exit::Done)
    }
}

fn taken(taken: &SnapshotsTaken) -> String {
    // Whole numbers of microseconds that a person waits for.
    let paused = human::latency(taken.paused_us as f64);
    let lines = taken.snapshots.iter();
    let lines = lines.map(|one| format!("{}: taken, commands waited {paused}\n", label(one)));
    lines.collect()
}

impl Which {
    /// The path of something below it; of itself without more.
    pub(super) fn path(&self, more: &[&str]) -> Path {
        let own = ["luns", &self.lun, "snapshots", &self.name];
        path(&[&own, more].concat())
    }

    fn roll_back(&self, api: &ApiSession, is_said: bool) -> Outcome {
        let Self { lun, name } = self;
        let question = format!(
            "Roll lun {lun} back to {name}? What was written since is gone, and sessions that see it end."
        );
        api.confirm_loss(is_said, &question)?;
        let at = self.path(&["rollback"]);
        let answer = terminal::busy("rolling back", || api.client.order::<RolledBack>(&at))?;
        let unsettled = answer.value.unsettled;
        unsettled.iter().for_each(|words| api.note(words));
        api.output.print(&answer.json, || match unsettled {
            Some(_) => format!("lun {lun}: not known yet\n"),
            None => format!("lun {lun}: has the data of {name} again\n"),
        });
        Ok(Exit::Done)
    }

    fn remove(&self, api: &ApiSession, is_said: bool) -> Outcome {
        let Self { lun, name } = self;
        api.confirm(
            is_said,
            &format!("Remove snapshot {lun}@{name} with its data?"),
        )?;
        let answer = api.client.delete::<()>(&self.path(&[]), None)?;
        api.output
            .print(&answer.json, || format!("{lun}@{name}: removed\n"));
        Ok(Exit::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_named_by_its_unit_and_its_name() {
        for (text, lun, name) in [("web@a", "web", "a"), ("a@b@c", "a@b", "c")] {
            let which: Which = text.parse().unwrap();
            assert_eq!((&*which.lun, &*which.name), (lun, name));
        }
        for text in ["web", "@a", "web@", "@"] {
            let error = text.parse::<Which>().unwrap_err();
            assert!(error.contains("LUN@NAME"), "{text}: {error}");
        }
    }

    #[test]
    fn who_takes_one_reads_how_long_commands_waited() {
        let snapshot = Snapshot {
            lun: "web".to_owned(),
            name: "a".to_owned(),
            taken_ms: 0,
            size_bytes: 512,
            path: "/srv/web.img.snapshots/a".to_owned(),
        };
        let text = taken(&SnapshotsTaken {
            snapshots: vec![snapshot],
            paused_us: 12_300,
        });
        assert_eq!(text, "web@a: taken, commands waited 12.3 ms\n");
    }
}
