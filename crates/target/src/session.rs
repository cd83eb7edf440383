//! A session and its connections as a core keeps them.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use iscsi::pdu::{Cid, Isid, Tsih};
use iscsi::target::Session;
use memory::{Message, Pool};
use reactor::Socket;
use scsi::{Lun, LunInventory, Nexus, NexusId, NexusSlot, PortName};

use crate::handle::Receipt;
use crate::identity::SessionId;
use crate::plan::{TargetIndex, UnitIndex};
use crate::policy::{Asker, VisibleLun};
use crate::running::TaskKey;
use crate::trace::{Taps, Trace};
use crate::watcher::Who;
use engine::table::Key;

/// What the front desk knows of a session when it begins.
#[derive(Clone, Debug)]
pub(crate) struct SessionProfile {
    pub(crate) initiator_name: String,
    /// TargetName; `None` for discovery.
    pub(crate) target_name: Option<String>,
    pub(crate) isid: Isid,
    pub(crate) peer: SocketAddr,
    /// The address of ours that was reached.
    pub(crate) portal: SocketAddr,
    /// The user that CHAP has proved.
    pub(crate) user: Option<String>,
    pub(crate) portal_group_tag: u16,
    pub(crate) since: SystemTime,
    /// `None` for discovery.
    pub(crate) target: Option<TargetIndex>,
    pub(crate) port: PortName,
    pub(crate) luns: Vec<VisibleLun>,
    pub(crate) text: iscsi::discovery::TextRecords,
}

impl SessionProfile {
    /// Who is behind the session, for the rules of access.
    pub(crate) fn asker(&self) -> Asker<'_> {
        Asker {
            initiator_name: &self.initiator_name,
            address: self.peer.ip(),
            portal: self.portal,
            user: self.user.as_deref(),
        }
    }
}

/// One number of the session's map of logical units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MappedLun {
    pub(crate) unit: UnitIndex,
    pub(crate) nexus: NexusSlot,
    /// As what its commands are counted; none before the first.
    pub(crate) series: u32,
}

/// The logical units a session sees, by number.
#[derive(Debug)]
pub(crate) struct LunMap<T = MappedLun> {
    /// The eight bytes of the first few numbers, as almost every command carries them, lead here
    /// without a search.
    low: Vec<Option<T>>,
    all: HashMap<u32, T>,
}

/// Numbers below this are found by index.
const LOW_LUNS: u32 = 64;

impl<T> Default for LunMap<T> {
    fn default() -> Self {
        Self {
            low: Vec::new(),
            all: HashMap::new(),
        }
    }
}

impl<T: Copy> LunMap<T> {
    pub(crate) fn insert(&mut self, lun: u16, mapped: T) {
        let number = u32::from(lun);
        if number < LOW_LUNS {
            let needed = usize::from(lun) + 1;
            if self.low.len() < needed {
                self.low.resize(needed, None);
            }
            self.low[usize::from(lun)] = Some(mapped);
        }
        self.all.insert(number, mapped);
    }

    /// What the number leads to.
    pub(crate) fn get(&self, lun: u16) -> Option<T> {
        self.all.get(&u32::from(lun)).copied()
    }

    /// The number leads nowhere from now on. Gives what it led to.
    pub(crate) fn remove(&mut self, lun: u16) -> Option<T> {
        if let Some(low) = self.low.get_mut(usize::from(lun)) {
            *low = None;
        }
        self.all.remove(&u32::from(lun))
    }

    /// The unit behind the LUN field of a command.
    pub(crate) fn find(&self, address: u64) -> Option<T> {
        // Peripheral device addressing on bus 0: the number is the second byte.
        let number = address >> 48;
        if address << 16 == 0 && number < u64::from(LOW_LUNS) {
            let index = usize::try_from(number).ok()?;
            return self.low.get(index).copied().flatten();
        }
        let lun = Lun::decode(address).ok()?;
        self.all.get(&lun.number()).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.all.values().copied()
    }
}

impl<T> LunInventory for LunMap<T> {
    fn for_each(&self, visit: &mut dyn FnMut(Lun)) {
        let mut numbers: Vec<u32> = self.all.keys().copied().collect();
        numbers.sort_unstable();
        numbers.into_iter().filter_map(Lun::new).for_each(visit);
    }
}

/// Names a session of a core.
pub(crate) type SessionKey = Key<SessionEntry>;

/// Names a socket in full-feature phase.
pub(crate) type ConnectionKey = Key<Connection>;

/// A session on the core it lives on.
#[derive(Debug)]
pub(crate) struct SessionEntry {
    pub(crate) session: Session,
    pub(crate) id: SessionId,
    pub(crate) tsih: Tsih,
    pub(crate) nexus: NexusId,
    pub(crate) profile: SessionProfile,
    pub(crate) luns: LunMap,
    /// Its account of the core's pool.
    pub(crate) pool: Pool,
    /// Tasks that wait because the session has its share of the pool.
    pub(crate) waiting: VecDeque<TaskKey>,
    /// It is in the core's queue of such sessions.
    pub(crate) is_sharing: bool,
    /// The running task in each place of the session's own table.
    pub(crate) tasks: Vec<Option<TaskKey>>,
    /// Connections in the order of the session's own indices.
    pub(crate) connections: Vec<Option<ConnectionKey>>,
    /// The turn in which it began.
    pub(crate) began: Duration,
    /// The session is being ended: nothing new starts.
    pub(crate) is_ending: bool,
    /// An administrator ends it: why, and when at the latest. The initiator is told first.
    pub(crate) dismissal: Option<(&'static str, Duration)>,
    /// Why, once its end has begun.
    pub(crate) end_reason: Option<&'static str>,
    /// How often this pair of ports has replaced a session of its own.
    pub(crate) reinstatements: u32,
    /// Digests of headers and of data, as the first connection has them.
    pub(crate) digests: (bool, bool),
    /// Of those who wait for its end.
    pub(crate) receipts: Vec<Receipt>,
    /// Those that its connections are followed for.
    pub(crate) traces: Vec<Arc<Trace>>,
    /// Violations so far, so that the log tells of the first few only.
    pub(crate) violations: u32,
}

impl SessionEntry {
    /// Who is behind it, for those who hear of it.
    pub(crate) fn who(&self) -> Who<'_> {
        Who {
            session: self.id,
            initiator: &self.profile.initiator_name,
            peer: self.profile.peer,
            target: self.profile.target_name.as_deref(),
        }
    }

    /// The I_T nexus, as changes of shared state name it.
    pub(crate) fn nexus(&self) -> Nexus {
        Nexus {
            id: self.nexus,
            port: self.profile.port.clone(),
            read_only: false,
        }
    }

    pub(crate) fn task_key(&self, id: iscsi::target::TaskId) -> Option<TaskKey> {
        self.tasks.get(id.index as usize).copied().flatten()
    }

    pub(crate) fn set_task_key(&mut self, id: iscsi::target::TaskId, key: Option<TaskKey>) {
        let index = id.index as usize;
        if self.tasks.len() <= index {
            self.tasks.resize(index + 1, None);
        }
        self.tasks[index] = key;
    }
}

/// A socket in full-feature phase.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) session: SessionKey,
    /// Index in the session.
    pub(crate) index: usize,
    pub(crate) cid: Cid,
    /// The address of ours that it reached.
    pub(crate) portal: SocketAddr,
    pub(crate) is_receiving: bool,
    pub(crate) is_sending: bool,
    /// The turn in which the last send began.
    pub(crate) sending_since: Duration,
    /// The size of what is being sent, in bytes.
    pub(crate) sending_bytes: usize,
    /// How much of that is on the heap, in bytes.
    pub(crate) sending_heap_bytes: usize,
    /// Output on the heap, in bytes, as the core has counted it.
    pub(crate) heap_counted: usize,
    /// It is in the list of connections with output.
    pub(crate) is_dirty: bool,
    /// The socket held more when it was last received from.
    pub(crate) has_more: bool,
    /// Receiving waits for output to be sent.
    pub(crate) is_throttled: bool,
    /// No more is received; the socket goes when its operations have ended.
    pub(crate) is_closing: bool,
    /// Close when all output is sent.
    pub(crate) close_when_sent: bool,
    /// The peer is gone, and why; its turn to be closed comes.
    pub(crate) lost: Option<&'static str>,
    /// What follows it.
    pub(crate) taps: Taps,
    /// An emptied message, kept for its room.
    pub(crate) spare: Option<Message>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_found_by_every_form_of_their_number() {
        let mut map = LunMap::default();
        for lun in [0, 5, 63, 64, 255, 256, 16_383] {
            map.insert(lun, u64::from(lun) + 1);
        }
        for lun in [0u64, 5, 63, 64, 255] {
            assert_eq!(map.find(lun << 48), Some(lun + 1), "peripheral {lun}");
        }
        for lun in [0u64, 63, 64, 256, 16_383] {
            assert_eq!(map.find((0x4000 | lun) << 48), Some(lun + 1), "flat {lun}");
        }
        assert!(map.find(1 << 48).is_none());
        assert!(map.find(5 << 48 | 1).is_none());
        assert_eq!((map.remove(64), map.get(64)), (Some(65), None));
        assert_eq!((map.remove(5), map.find(5 << 48)), (Some(6), None));
        map.insert(5, 6);
        map.insert(64, 65);
        let mut numbers = Vec::new();
        map.for_each(&mut |lun| numbers.push(lun.number()));
        assert_eq!(numbers, [0, 5, 63, 64, 255, 256, 16_383]);
    }
}
