//! A session as the engine keeps it: the way to one initiator, and what that has under way.

use std::collections::VecDeque;

use memory::Pool;
use scsi::{Nexus, NexusId, PortName};

use crate::keys::TaskKey;
use crate::luns::LunMap;
use crate::port::Port;

/// A session on the core it lives on.
#[derive(Debug)]
pub struct Session<P: Port> {
    /// The transport's part of it.
    pub port: P,
    pub(crate) nexus: NexusId,
    pub(crate) name: PortName,
    pub(crate) luns: LunMap,
    /// Its account of the core's pool.
    pub(crate) pool: Pool,
    /// Tasks that wait because the session has its share of the pool.
    pub(crate) waiting: VecDeque<TaskKey>,
    /// It is in the core's queue of such sessions.
    pub(crate) is_sharing: bool,
    /// It is in the core's list of sessions that wait for memory for Data-Out.
    pub(crate) is_starved: bool,
    /// The task in each place of the transport's own table.
    tasks: Vec<Option<TaskKey>>,
    pub(crate) is_ending: bool,
    pub(crate) has_said_farewell: bool,
}

impl<P: Port> Session<P> {
    pub(crate) fn new(port: P, nexus: NexusId, name: PortName, pool: Pool) -> Self {
        Self {
            port,
            nexus,
            name,
            luns: LunMap::default(),
            pool,
            waiting: VecDeque::new(),
            is_sharing: false,
            is_starved: false,
            tasks: Vec::new(),
            is_ending: false,
            has_said_farewell: false,
        }
    }

    pub(crate) const fn nexus_id(&self) -> NexusId {
        self.nexus
    }

    pub(crate) const fn name(&self) -> &PortName {
        &self.name
    }

    /// The I_T nexus, as changes of shared state name it.
    pub fn nexus(&self) -> Nexus {
        Nexus {
            id: self.nexus,
            port: self.name.clone(),
            read_only: false,
        }
    }

    /// Its account of the core's pool.
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The transport's part, and the account that its data goes on.
    pub const fn port_and_pool(&mut self) -> (&mut P, &Pool) {
        (&mut self.port, &self.pool)
    }

    /// Nothing new starts.
    pub const fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Its initiator wants it to end, and has had the answers that it waited for.
    pub const fn note_farewell(&mut self) {
        self.has_said_farewell = true;
    }

    /// How many of its commands wait for something.
    pub fn waiting_commands(&self) -> usize {
        self.tasks.iter().flatten().count()
    }

    pub(crate) fn task_key(&self, id: P::CommandId) -> Option<TaskKey> {
        self.tasks.get(P::place_of(id)).copied().flatten()
    }

    pub(crate) fn set_task_key(&mut self, id: P::CommandId, key: Option<TaskKey>) {
        let place = P::place_of(id);
        if self.tasks.len() <= place {
            self.tasks.resize(place + 1, None);
        }
        if let Some(slot) = self.tasks.get_mut(place) {
            *slot = key;
        }
    }

    /// The tasks behind these commands, as far as they are there.
    pub(crate) fn task_keys(&self, ids: Vec<P::CommandId>) -> Vec<TaskKey> {
        let keys = ids.into_iter().filter_map(|id| self.task_key(id));
        keys.collect()
    }

    pub(crate) fn all_tasks(&self) -> Vec<TaskKey> {
        self.tasks.iter().copied().flatten().collect()
    }
}
