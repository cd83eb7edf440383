//! What a write asks of the daemon.

use std::sync::Arc;

use api::plan::{Applied, Document};
use api::request::{Rename, Resize};
use api::spec;
use client::{Client, path};
use config::Draft;

use crate::refusal::Refusal;

/// Bytes of what is written at once: a group of a thousand initiators has room.
pub(crate) const VALUE_BYTES_MAX: usize = 64 * 1024;

/// What a write asks of the daemon.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Call {
    /// Another size for a unit.
    Resize {
        /// Its id.
        lun: String,
        /// The new size.
        size_bytes: u64,
    },
    /// Another id for a unit.
    Rename {
        /// Its id.
        lun: String,
        /// The new one.
        id: String,
    },
    /// Another TargetAlias, or none.
    Alias {
        /// The target.
        target: String,
        /// The new alias.
        alias: Option<String>,
    },
    /// Other members for a group.
    Group(spec::Group),
    /// The end of a session.
    End {
        /// Its id.
        session: u64,
    },
}

impl Call {
    /// Asks, and waits until it has taken effect.
    pub(crate) fn make(&self, client: &Client) -> Result<(), Refusal> {
        match self {
            Self::Resize { lun, size_bytes } => {
                let size_bytes = *size_bytes;
                let resize = path(&["luns", lun, "resize"]);
                client
                    .post::<Applied>(&resize, &Resize { size_bytes }, None)
                    .map(drop)
            }
            Self::Rename { lun, id } => {
                let rename = path(&["luns", lun, "rename"]);
                client
                    .post::<Applied>(&rename, &Rename { id: id.clone() }, None)
                    .map(drop)
            }
            Self::Alias { target, alias } => return put_alias(client, target, alias.clone()),
            Self::Group(group) => client
                .put::<Applied>(&path(&["groups", &group.id]), group, None)
                .map(drop),
            Self::End { session } => client
                .delete::<()>(&path(&["sessions", &session.to_string()]), None)
                .map(drop),
        }
        .map_err(|error| Refusal::Daemon(Arc::new(error)))
    }
}

/// Writes the target as the document has it, so that defaults stay defaults, and only on the
/// revision it was read at.
fn put_alias(client: &Client, name: &str, alias: Option<String>) -> Result<(), Refusal> {
    let answer = client
        .get::<Document>(&path(&["config"]))
        .map_err(Arc::new)?;
    let document = answer.value;
    let draft = Draft::parse(&document.text);
    let targets = draft
        .map_err(|error| Refusal::Document(Arc::new(error)))?
        .targets();
    let target = targets.into_iter().find(|target| target.name == name);
    let mut target = target.ok_or(Refusal::Absent)?;
    target.alias = alias;
    client
        .put::<Applied>(&path(&["targets", name]), &target, Some(document.revision))
        .map_err(Arc::new)?;
    Ok(())
}
