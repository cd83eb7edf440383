//! What the engine wants done outside: everything that leaves a core.

use std::fmt::Debug;
use std::rc::Rc;

use memory::Buffer;
use scsi::Status;
use store::{Descriptor, HelperOperation, RingOperation, SocketTag, SocketWork, Waker};

use crate::UnitIndex;
use crate::agree::{ToCore, ToOwner};
use crate::authority::Save;
use crate::keys::PartKey;
use crate::life::{Ending, Life};
use crate::port::Port;

/// An operation that is done for a store.
#[derive(Debug)]
pub enum StoreWork {
    /// On the ring, or on the lane of the file.
    Ring(RingOperation),
    /// On a helper thread.
    Helper(HelperOperation),
    /// On a connection that was opened with [`Carrier::open_socket`].
    Socket {
        /// The unit of the store.
        unit: UnitIndex,
        /// Which connection of it.
        socket: SocketTag,
        /// The operation.
        work: SocketWork,
    },
}

/// Mail between the cores about a unit.
#[derive(Debug)]
pub enum Letter {
    /// To the core that owns it.
    ToOwner(ToOwner),
    /// From the core that owns it.
    ToCore(ToCore),
}

/// What an administrator may want to know.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum News {
    /// A store does not give a request back; what that may write is refused until it does.
    StoreStuck {
        /// Which.
        unit: UnitIndex,
    },
    /// A store has given back every request on this core of which [`News::StoreStuck`] came.
    StoreFreed {
        /// Which.
        unit: UnitIndex,
    },
    /// The size of a unit is another one.
    UnitResized {
        /// Which.
        unit: UnitIndex,
        /// Its blocks until now.
        before: u64,
        /// Its blocks now.
        blocks: u64,
    },
    /// The medium of a unit was ejected or loaded, by whomever.
    MediumMoved {
        /// Which.
        unit: UnitIndex,
        /// It is in now.
        is_in: bool,
    },
    /// A store answered a request twice, or answered one that it never took. The second answer is refused.
    StoreConfused {
        /// Which.
        unit: UnitIndex,
    },
    /// On one core a store begins to end requests with NOT READY, because who has the data cannot be reached, or
    /// carries them out again.
    StoreReach {
        /// Which.
        unit: UnitIndex,
        /// It carries them out.
        is_reached: bool,
    },
    /// A core does not confirm that it refuses access to blocks of a unit. What waits for that goes on waiting.
    RefusalUnconfirmed,
    /// A bug of ours, which has done no harm so far.
    Broken(&'static str),
}

/// Carries out what an engine wants: over threads and rings where it serves, over a seeded world where
/// it is simulated. None of this calls the engine back.
pub trait Carrier: Debug {
    /// The transports of its sessions.
    type Port: Port;
    /// Names an operation of a store that is under way.
    type Operation: Copy + Debug;
    /// Kept until what an administrator has asked for is done; dropping it is the answer.
    type Receipt: Clone + Debug;
    /// As what a command is counted.
    type Account: Copy + Debug;

    /// Sends a letter about a unit to a core, which may be this one. Letters from one core to another
    /// do not overtake each other, and none is lost. One to this core is read after the call that
    /// sends it has returned.
    fn post(&mut self, core: usize, unit: UnitIndex, letter: Letter);

    /// Begins an operation for a store. It ends exactly once, with
    /// [`Engine::handle_ring_result`](crate::Engine::handle_ring_result),
    /// [`Engine::handle_helper_result`](crate::Engine::handle_helper_result) or
    /// [`Engine::handle_socket_result`](crate::Engine::handle_socket_result).
    fn begin(&mut self, part: PartKey, work: StoreWork) -> Self::Operation;

    /// Makes what wakes this core for the store of a unit, from any thread: then
    /// [`Engine::handle_store_wake`](crate::Engine::handle_store_wake) is called.
    fn waker(&self, unit: UnitIndex) -> Waker;

    /// Takes a connected socket for the store of a unit, under a name that no open one of that store has. False when it
    /// cannot be used.
    fn open_socket(&mut self, unit: UnitIndex, socket: SocketTag, descriptor: Descriptor) -> bool;

    /// Closes an open connection of the store of a unit. Operations under way on it end soon.
    fn close_socket(&mut self, unit: UnitIndex, socket: SocketTag);

    /// Has an operation end soon. It ends in any case, and may have been done.
    fn cancel(&mut self, operation: Self::Operation);

    /// Has the authority of a unit save its state ([`StateAuthority`](crate::StateAuthority)); then comes
    /// [`Engine::handle_saved`](crate::Engine::handle_saved). Of one unit there is one save at a time.
    fn save(&mut self, unit: UnitIndex, save: Save);

    /// Whether a store may keep a chunk that was received into, until it is done with it. It may not
    /// where too few would be left to receive into.
    fn lend_chunk(&mut self, chunk: &Rc<Buffer>) -> bool;

    /// Notifies the administrator.
    fn notify(&mut self, news: News);

    // ---- books -------------------------------------------------------------------------------

    /// The number under which commands of this session to this unit are counted.
    fn series(&mut self, unit: UnitIndex, port: &Self::Port) -> u32;

    /// As what a command is counted that was given out under this name.
    fn account(
        series: u32,
        port: &Self::Port,
        id: <Self::Port as Port>::CommandId,
        command: &<Self::Port as Port>::Command,
    ) -> Self::Account;

    /// A command that never waited is answered.
    fn note_answer(&mut self, account: Self::Account, status: Status);

    /// A command waits for something.
    fn note_wait(&mut self, account: Self::Account);

    /// A command of [`Carrier::note_wait`] is over.
    fn note_end(&mut self, account: Self::Account, ending: Ending, life: Life);

    /// A command waits for memory, or is refused for want of it.
    fn note_starved(&mut self);
}
