//! Carries out what an engine asks for, over mail, ring, lanes and helper threads.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};

use engine::table::ByUnit;
use engine::{
    Carrier, Ending, Letter as UnitLetter, Life, News, PartKey, Save, SaveError, StateAuthority,
    StoreWork, TargetIndex, UnitIndex, Version,
};
use front::{Command, CommandId, Port};
use memory::Buffer;
use reactor::mail::Post;
use reactor::{OperationId, Reactor, Socket};
use scsi::{CommandSet, Status};
use store::{Descriptor, HelperAnswer, HelperOperation, SocketTag, SocketWork, Waker};

use crate::counters::{Account, Tally};
use crate::events::{Event, EventSink};
use crate::letter::Letter;
use crate::lines::{LineKind, LineLimits};
use crate::logins::LoginLog;
use crate::plan::TargetPlan;
use crate::receipt::Receipt;
use crate::token::Purpose;
use crate::trace::{FrameTaps, Trace};

/// A unit as this core calls it, and where the state of it is kept.
#[derive(Debug)]
pub(crate) struct Named {
    /// For logs; another one when the unit is renamed.
    pub(crate) name: Arc<str>,
    /// What its commands are called.
    pub(crate) commands: CommandSet,
    /// On the core that owns the unit, until it is closed.
    pub(crate) authority: Option<Arc<dyn StateAuthority>>,
    /// What became of the save under way, once its thread knows.
    pub(crate) saving: Arc<Mutex<Option<Result<Version, SaveError>>>>,
}

/// The targets that take a TARGET COLD RESET, for all cores.
#[derive(Debug, Default)]
pub(crate) struct ColdResets(Mutex<Vec<TargetIndex>>);

impl ColdResets {
    /// From now on these and no others do, of the targets that say so.
    pub(crate) fn allow<'a>(&self, targets: impl Iterator<Item = (TargetIndex, &'a TargetPlan)>) {
        let allowed = targets.filter(|(_, plan)| plan.cold_reset);
        let allowed = allowed.map(|(index, _)| index).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = allowed;
    }

    /// Whether the target does.
    pub(crate) fn are_allowed(&self, target: TargetIndex) -> bool {
        let allowed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        allowed.contains(&target)
    }
}

/// The engine's carrier on one core: mail, ring, sockets, books.
#[derive(Debug)]
pub(crate) struct Outside {
    /// Which core it is.
    pub(crate) index: usize,
    pub(crate) posts: Vec<Post<Letter>>,
    /// Letters of this core to itself.
    pub(crate) own_letters: VecDeque<Letter>,
    pub(crate) reactor: Reactor,
    pub(crate) units: ByUnit<Named>,
    /// Connections of stores.
    pub(crate) sockets: HashMap<(UnitIndex, SocketTag), Socket>,
    pub(crate) tally: Tally,
    pub(crate) events: Arc<dyn EventSink>,
    pub(crate) login_log: LoginLog,
    pub(crate) line_limits: LineLimits,
    /// Sockets in full-feature phase, on all cores.
    pub(crate) connection_count: Arc<AtomicUsize>,
    pub(crate) cold_resets: Arc<ColdResets>,
    pub(crate) traces: Vec<Arc<Trace>>,
    /// Sessions of HyperSCSI that traces follow.
    pub(crate) frame_taps: FrameTaps,
}

impl Outside {
    /// Sends a letter; one to itself is read before the turn ends, unless there are very many.
    pub(crate) fn send(&mut self, core: usize, letter: Letter) {
        if core == self.index {
            self.own_letters.push_back(letter);
        } else if let Some(post) = self.posts.get(core) {
            post.push(letter);
        }
    }

    /// What became of the save of a unit that is over. A failure is reported.
    pub(crate) fn take_saved(&self, unit: UnitIndex) -> Result<Version, SaveError> {
        let saving = self.units.get(unit).map(|unit| &unit.saving);
        let outcome = saving.and_then(|saving| {
            let mut saving = saving.lock().unwrap_or_else(PoisonError::into_inner);
            saving.take()
        });
        // There was no thread for it, or it panicked, perhaps in the middle.
        let never = || {
            Err(SaveError::Uncertain(io::Error::other(
                "it was not finished",
            )))
        };
        outcome.unwrap_or_else(never).inspect_err(|error| {
            let unit = self.name_of(unit);
            tracing::error!(%error, unit, "the state of a unit is not saved");
            self.events.emit(&Event::StateNotKept { unit, error });
        })
    }

    fn report_size(&self, unit: UnitIndex, before: u64, blocks: u64) {
        self.tally.shared.troubles.note_size(unit, before, blocks);
        let unit = self.name_of(unit);
        if blocks < before {
            tracing::error!(unit, before, blocks, "the store of a unit has shrunk");
        } else {
            tracing::info!(unit, before, blocks, "the size of a unit changed");
        }
        self.events.emit(&Event::UnitResized {
            unit,
            before,
            blocks,
        });
    }

    fn commands_of(&self, unit: UnitIndex) -> CommandSet {
        let unit = self.units.get(unit);
        unit.map_or(CommandSet::OWN, |unit| unit.commands)
    }

    fn name_of(&self, unit: UnitIndex) -> &str {
        self.units.get(unit).map_or("?", |unit| &unit.name)
    }
}

impl Carrier for Outside {
    type Port = Port;
    type Operation = OperationId;
    type Receipt = Receipt;
    type Account = Account;

    fn post(&mut self, core: usize, unit: UnitIndex, letter: UnitLetter) {
        self.send(core, Letter::Unit { unit, letter });
    }

    fn begin(&mut self, part: PartKey, work: StoreWork) -> OperationId {
        let token = Purpose::Store(part).token();
        match work {
            StoreWork::Ring(operation) => self.reactor.submit_store(token, operation),
            StoreWork::Helper(operation) => self.reactor.submit_helper(token, operation),
            StoreWork::Socket { unit, socket, work } => {
                // The engine names open ones only.
                let socket = &self.sockets[&(unit, socket)];
                match work {
                    SocketWork::Receive => self.reactor.receive(socket, token),
                    SocketWork::ReceiveExact { buffer, range } => {
                        self.reactor.receive_exact(socket, token, buffer, range)
                    }
                    SocketWork::Send(message) => {
                        self.reactor
                            .send(socket, token, message, reactor::SendEnd::Wakes)
                    }
                }
            }
        }
    }

    fn waker(&self, unit: UnitIndex) -> Waker {
        let post = self.posts[self.index].clone();
        Waker::new(move || post.push(Letter::StoreWake { unit }))
    }

    fn open_socket(&mut self, unit: UnitIndex, socket: SocketTag, descriptor: Descriptor) -> bool {
        match Socket::new(descriptor) {
            Ok(one) => self.sockets.insert((unit, socket), one).is_none(),
            Err(error) => {
                let unit = self.name_of(unit);
                tracing::error!(%error, unit, "a connection of a store cannot be used");
                false
            }
        }
    }

    fn close_socket(&mut self, unit: UnitIndex, socket: SocketTag) {
        if let Some(socket) = self.sockets.remove(&(unit, socket)) {
            socket.shutdown();
        }
    }

    fn cancel(&mut self, operation: OperationId) {
        self.reactor.cancel(operation);
    }

    fn save(&mut self, unit: UnitIndex, save: Save) {
        let Some(Named {
            authority: Some(authority),
            saving,
            ..
        }) = self.units.get(unit)
        else {
            debug_assert!(false, "a unit that is closed saves its state");
            return;
        };
        let (authority, saving) = (Arc::clone(authority), Arc::clone(saving));
        let work = move || {
            let outcome = authority.save(&save);
            *saving.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            Ok(HelperAnswer::Done)
        };
        let operation = HelperOperation {
            name: "save unit state",
            work: Box::new(work),
        };
        let token = Purpose::Keep(unit).token();
        self.reactor.submit_keeper(token, operation);
    }

    fn lend_chunk(&mut self, chunk: &Rc<Buffer>) -> bool {
        self.reactor.lend_chunk(chunk)
    }

    fn notify(&mut self, news: News) {
        match news {
            News::StoreStuck { unit } => {
                self.tally.shared.troubles.set_stuck(unit, true);
                let unit = self.name_of(unit);
                tracing::error!(unit, "the store did not end a request in time");
                self.events.emit(&Event::StoreStuck { unit });
            }
            News::StoreFreed { unit } => {
                self.tally.shared.troubles.set_stuck(unit, false);
                let (unit, core) = (self.name_of(unit), self.index);
                tracing::info!(unit, core, "the store has given back what it kept");
                self.events.emit(&Event::StoreFreed { unit, core });
            }
            News::StoreConfused { unit } => {
                let unit = self.name_of(unit);
                tracing::error!(
                    unit,
                    "the store answered a request twice; please report this"
                );
            }
            News::UnitResized {
                unit,
                before,
                blocks,
            } => self.report_size(unit, before, blocks),
            News::MediumMoved { unit, is_in } => {
                let is_logged = self.admits(LineKind::MediumMoved);
                let unit = self.name_of(unit);
                let what = if is_in { "loaded" } else { "ejected" };
                if is_logged {
                    tracing::info!(unit, "the medium of a unit was {what}");
                }
                self.events.emit(&Event::MediumMoved { unit, is_in });
            }
            News::StoreReach { unit, is_reached } => {
                let (unit, core) = (self.name_of(unit), self.index);
                if is_reached {
                    tracing::info!(unit, core, "who has the data of a unit is reached again");
                } else {
                    tracing::error!(unit, core, "who has the data of a unit cannot be reached");
                }
                self.events.emit(&Event::StoreReach {
                    unit,
                    core,
                    is_reached,
                });
            }
            News::RefusalUnconfirmed => {
                tracing::error!(
                    "a core does not confirm that it refuses access to blocks of a unit"
                );
            }
            News::Broken(what) => {
                debug_assert!(false, "{what}");
                tracing::error!("{what}; please report this");
            }
        }
    }

    fn series(&mut self, unit: UnitIndex, port: &Port) -> u32 {
        let commands = self.commands_of(unit);
        let initiator = port.who().initiator;
        self.tally.series_of((unit, commands), initiator)
    }

    #[inline]
    fn account(series: u32, port: &Port, id: CommandId, command: &Command) -> Account {
        Account::new(series, port, id, command)
    }

    #[inline]
    fn note_answer(&mut self, account: Account, status: Status) {
        self.tally.note(account, status);
    }

    fn note_wait(&mut self, account: Account) {
        self.tally.enter(account);
    }

    fn note_end(&mut self, account: Account, ending: Ending, life: Life) {
        self.tally.leave(account);
        self.tally.note_lived(account, ending, life);
    }

    fn note_starved(&mut self) {
        self.tally.note_starved();
    }
}
