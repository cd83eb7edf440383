//! Ids as the daemon lists them. A person who has pressed a key waits for them: an answer that takes long is none,
//! and after one that did not come nobody is asked for a while.

use std::cell::Cell;
use std::time::{Duration, Instant};

use api::access::Token;
use api::plan::Revision;
use api::spec;
use api::view::{Hyperscsi, Lun, Quota, Session, Snapshot, Target, Trace};
use client::{Client, Endpoint, Limits, Path, path};
use serde::de::DeserializeOwned;

use super::{Kind, Source};

/// For a person who has pressed a key.
const LIMITS: Limits = Limits {
    connect: Duration::from_millis(500),
    question: Duration::from_millis(1500),
    change: Duration::from_secs(1),
    silence: Duration::from_secs(1),
    answer_bytes_max: 16 << 20,
};

/// How long a daemon that did not answer is left alone.
const PAUSE: Duration = Duration::from_secs(5);

/// Lists things of a daemon.
pub(in crate::verbs) struct Daemon {
    client: Option<Client>,
    /// When it last did not answer.
    silent: Cell<Option<Instant>>,
}

impl Daemon {
    /// Of the daemon at this place; without one there is nothing.
    pub(in crate::verbs) fn new(endpoint: Option<Endpoint>) -> Self {
        Self {
            client: endpoint.and_then(|endpoint| Client::new(endpoint, LIMITS).ok()),
            silent: Cell::default(),
        }
    }

    fn all<T: DeserializeOwned>(&self, path: &Path, name: fn(T) -> String) -> Vec<String> {
        let is_silent = self.silent.get().is_some_and(|at| at.elapsed() < PAUSE);
        let Some(client) = self.client.as_ref().filter(|_| !is_silent) else {
            return Vec::new();
        };
        match client.get::<Vec<T>>(path) {
            Ok(answer) => answer.value.into_iter().map(name).collect(),
            // The role does not allow it, or there is none of that: it answers.
            Err(client::ClientError::Problem(_)) => Vec::new(),
            Err(_) => {
                self.silent.set(Some(Instant::now()));
                Vec::new()
            }
        }
    }
}

impl Source for Daemon {
    fn ids(&self, kind: Kind) -> Vec<String> {
        let initiators = || self.all(&path(&["sessions"]), |one: Session| one.initiator);
        let sessions = || self.all(&path(&["sessions"]), |one: Session| one.id.to_string());
        let mut ids = match kind {
            Kind::Lun => self.all(&path(&["luns"]), |one: Lun| one.spec.id),
            Kind::Target => self.all(&path(&["targets"]), |one: Target| one.spec.name),
            Kind::Portal => {
                let bound = |one: Target| {
                    let portals = one.spec.portals.unwrap_or_default();
                    let binds = portals.into_iter().map(|portal| portal.bind);
                    binds.collect::<Vec<_>>().join("\n")
                };
                let lists = self.all(&path(&["targets"]), bound);
                let binds = lists.iter().flat_map(|list| list.lines());
                binds.map(str::to_owned).collect()
            }
            Kind::Group => self.all(&path(&["groups"]), |one: spec::Group| one.id),
            Kind::Store => self.all(&path(&["stores"]), |one: spec::Store| one.id),
            Kind::Nbd => self.all(&path(&["nbd"]), |one: spec::Nbd| one.place().to_owned()),
            Kind::Quota => self.all(&path(&["quotas"]), |one: Quota| one.name),
            Kind::User => self.all(&path(&["users"]), |one: spec::User| one.name),
            Kind::Session => sessions(),
            Kind::Initiator => initiators(),
            Kind::Traceable => [sessions(), initiators()].concat(),
            Kind::Trace => self.all(&path(&["traces"]), |one: Trace| one.subject),
            Kind::Token => self.all(&path(&["tokens"]), |one: Token| one.name),
            Kind::Snapshot => self.all(&path(&["snapshots"]), |one: Snapshot| {
                format!("{}@{}", one.lun, one.name)
            }),
            Kind::HyperscsiGroup => self.all(&path(&["hyperscsi"]), |one: Hyperscsi| one.name),
            Kind::Revision => self.all(&path(&["config", "history"]), |one: Revision| {
                one.revision.to_string()
            }),
        };
        ids.sort();
        ids.dedup();
        ids
    }
}
