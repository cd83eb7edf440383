//! What can be seen of the target from outside the rules: what is left of sessions that have ended, and
//! what its cores do not agree on. Only checkers look at it.

use std::collections::BTreeMap;
use std::ops::Range;

use engine::UnitIndex;
use front::{SessionId, SessionReport};
use iscsi::pdu::Tsih;
use memory::Pool;

use crate::host::{Core, Host};

/// Whose a request is that nobody waits for any longer, if it is a session's still.
pub type LeftBehind = Option<Tsih>;

impl Host {
    /// Requests that nobody waits for any longer but which may still take effect: core and number
    /// of each, and whose it is.
    pub fn left_behind(&self) -> BTreeMap<(usize, u64), LeftBehind> {
        let mut all = BTreeMap::new();
        for (index, core) in self.cores.iter().enumerate() {
            for orphan in core.engine.orphans() {
                let session = orphan.session.and_then(|key| core.engine.session(key));
                let port = session.and_then(|session| session.port.iscsi());
                let of_session = port.map(|port| port.detail.tsih);
                let left = || core.left.iter().find(|(task, _)| *task == orphan.task);
                let whose = of_session.or_else(|| left().map(|(_, tsih)| *tsih));
                all.insert((index, orphan.request.0), whose);
            }
        }
        all
    }

    /// A core on which access to these blocks of a unit is not refused.
    pub fn open_core(&self, unit: UnitIndex, blocks: &Range<u64>) -> Option<usize> {
        let refuses = |core: &Core| core.engine.refuses(unit, blocks);
        self.cores.iter().position(|core| !refuses(core))
    }

    /// True while a task of this session is not over, whatever became of the session.
    pub fn has_tasks_of(&self, tsih: Tsih) -> bool {
        self.cores.iter().any(|core| {
            let mut left = core.left.iter().filter(|(_, whose)| *whose == tsih);
            core.session_of(tsih).is_some() || left.any(|(task, _)| core.engine.has_task(*task))
        })
    }

    /// Every session.
    pub fn report(&self) -> Vec<SessionReport> {
        let cores = self.cores.iter();
        cores
            .flat_map(|core| core.sessions.report(&core.engine))
            .collect()
    }

    /// The core of a session, and how administrators call it.
    pub fn session(&self, tsih: Tsih) -> Option<(usize, SessionId)> {
        let mut cores = self.cores.iter().enumerate();
        cores.find_map(|(index, core)| {
            let session = core.engine.session(core.session_of(tsih)?)?;
            Some((index, session.port.id()))
        })
    }

    /// How many sessions there are.
    pub fn session_count(&self) -> usize {
        let cores = self.cores.iter();
        cores.map(|core| core.engine.session_count()).sum()
    }

    /// How many tasks are under way.
    pub fn task_count(&self) -> usize {
        let cores = self.cores.iter();
        cores.map(|core| core.engine.task_count()).sum()
    }

    /// A bug that a core has found by itself.
    pub fn broken(&self) -> Option<&'static str> {
        let mut cores = self.cores.iter();
        cores.find_map(|core| core.engine.carrier.hooks.broken)
    }

    /// What is left although every session has ended; `None` if nothing is.
    pub fn leftovers(&self) -> Option<String> {
        let mut cores = self.cores.iter().enumerate();
        cores.find_map(|(index, core)| {
            let left = leftovers(core);
            (!left.is_empty()).then(|| format!("core {index}: {}", left.join(", ")))
        })
    }

    /// What the cores do not agree on, although nothing is under way.
    pub fn disagreement(&self) -> Option<String> {
        let units = self.cores.first()?.engine.next_unit().0;
        let mut units = (0..units).map(UnitIndex);
        units.find_map(|unit| self.disagreement_on(unit))
    }

    fn disagreement_on(&self, unit: UnitIndex) -> Option<String> {
        let owner = unit.owner(self.cores.len());
        let owner = self.cores[owner].engine.owner(unit)?;
        if !owner.is_idle() {
            return Some(format!("the owner of {unit:?} has something under way"));
        }
        if !owner.allows_access() {
            return Some(format!("{unit:?} refuses access"));
        }
        let differs = |core: &Core| {
            let view = core.engine.view(unit);
            let refuses = !core.engine.refused_blocks(unit).is_empty();
            refuses || view.is_none_or(|view| view.shared() != owner.shared())
        };
        let index = self.cores.iter().position(differs)?;
        Some(format!(
            "core {index} sees {unit:?} otherwise than its owner"
        ))
    }
}

fn leftovers(core: &Core) -> Vec<String> {
    let lent = |pool: &Pool| pool.shares().capacity - pool.free_bytes();
    let counts = [
        ("links", core.engine.carrier.lines.all.len()),
        ("bytes of the pool", lent(core.engine.pool())),
        ("bytes of chunks", lent(&core.chunks)),
    ];
    let left = counts.iter().filter(|(_, count)| *count > 0);
    left.map(|(what, count)| format!("{count} {what}"))
        .chain(core.engine.leftovers())
        .chain(core.sessions.leftovers())
        .chain(core.nbd.leftovers())
        .chain(core.hyperscsi.leftovers())
        .collect()
}
