//! What a write, a new directory or one that goes asks of the daemon.

use std::sync::Arc;

use api::edit::{Edit, Edits};
use api::plan::Applied;
use api::request::{Eject, TakeSnapshots};
use api::view::{Lun, RolledBack, SnapshotsTaken};
use client::{Client, path};

use crate::refusal::Refusal;

/// What is asked of the daemon.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Call {
    /// An edit of the configuration.
    Edit(Box<Edit>),
    /// The medium of a unit out.
    Eject {
        /// Its id.
        lun: String,
    },
    /// The medium of a unit in.
    Load {
        /// Its id.
        lun: String,
    },
    /// The end of a session.
    End {
        /// Its id.
        session: u64,
    },
    /// A snapshot of a unit.
    Take {
        /// Its id.
        lun: String,
        /// What the snapshot is called.
        name: String,
    },
    /// The data of a snapshot back.
    RollBack {
        /// The id of the unit.
        lun: String,
        /// The name of the snapshot.
        name: String,
    },
    /// A snapshot away, with its data.
    RemoveSnapshot {
        /// The id of the unit.
        lun: String,
        /// The name of the snapshot.
        name: String,
    },
}

impl Call {
    /// Asks for this edit.
    pub(crate) fn edit(edit: Edit) -> Self {
        Self::Edit(Box::new(edit))
    }

    /// Asks, and waits until it has taken effect.
    pub(crate) fn make(&self, client: &Client) -> Result<(), Refusal> {
        let made = match self {
            Self::Edit(edit) => {
                let edits = Edits {
                    edits: vec![edit.as_ref().clone()],
                    comment: None,
                };
                let at = path(&["config", "edits"]);
                client.post::<Applied>(&at, &edits, None).map(drop)
            }
            Self::Eject { lun } => {
                let at = path(&["luns", lun, "eject"]);
                let eject = Eject { force: false };
                client.post::<Lun>(&at, &eject, None).map(drop)
            }
            Self::Load { lun } => {
                let at = path(&["luns", lun, "load"]);
                client.order::<Lun>(&at).map(drop)
            }
            Self::End { session } => client
                .delete::<()>(&path(&["sessions", &session.to_string()]), None)
                .map(drop),
            Self::Take { lun, name } => {
                let wanted = TakeSnapshots {
                    luns: vec![lun.clone()],
                    name: Some(name.clone()),
                };
                let at = path(&["snapshots"]);
                client.post::<SnapshotsTaken>(&at, &wanted, None).map(drop)
            }
            Self::RollBack { lun, name } => client
                .order::<RolledBack>(&path(&["luns", lun, "snapshots", name, "rollback"]))
                .map(drop),
            Self::RemoveSnapshot { lun, name } => client
                .delete::<()>(&path(&["luns", lun, "snapshots", name]), None)
                .map(drop),
        };
        made.map_err(|error| Refusal::Daemon(Arc::new(error)))
    }
}
