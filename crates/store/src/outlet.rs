//! The orders and answers of a store: what its handle wants done outside, and the results of its requests.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use memory::{Buffer, Message};

use crate::operation::{Descriptor, HelperOperation, RingOperation};
use crate::request::{IoRequest, IoResult, IoTag};

/// Names one operation that is done for a store: the request that it belongs to, and a number that the store
/// chooses. Several operations with the same name may be under way.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PartTag {
    /// `None`: work of the store's own, for no request.
    pub request: Option<IoTag>,
    /// Chosen by the store.
    pub number: u64,
}

impl PartTag {
    /// The operation of a request that has one operation under way at a time.
    pub const fn of(request: IoTag) -> Self {
        Self {
            request: Some(request),
            number: 0,
        }
    }

    /// Work of the store's own.
    pub const fn own(number: u64) -> Self {
        Self {
            request: None,
            number,
        }
    }
}

/// Names a connection of one handle. Chosen by the store.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SocketTag(pub u64);

/// An operation on a connection. Each ends once, with a [`SocketResult`].
#[derive(Debug)]
pub enum SocketWork {
    /// Receives what there is, at most one chunk.
    Receive,
    /// Receives exactly this range of the buffer, straight into it.
    ReceiveExact {
        /// Lent until the end.
        buffer: Buffer,
        /// In bytes of the buffer.
        range: Range<usize>,
    },
    /// Sends all of it. One at a time for each connection: the bytes of two would mix.
    Send(Message),
}

impl SocketWork {
    /// The result of an operation that cannot be begun.
    pub fn fail(self, errno: i32) -> SocketResult {
        match self {
            Self::Receive => SocketResult::Received(Err(errno)),
            Self::ReceiveExact { buffer, .. } => SocketResult::ReceivedExact {
                buffer,
                result: Err(errno),
            },
            Self::Send(message) => SocketResult::Sent {
                message,
                result: Err(errno),
            },
        }
    }
}

/// The end of a [`SocketWork`]. An error is a number of the system's.
#[derive(Debug)]
pub enum SocketResult {
    /// So many bytes of the chunk came; none is the end of the stream. A clone of the chunk that is kept takes
    /// memory from receiving.
    Received(Result<(Rc<Buffer>, usize), i32>),
    /// So many bytes came; fewer than asked for is the end of the stream.
    ReceivedExact {
        /// What was lent.
        buffer: Buffer,
        /// How many.
        result: Result<usize, i32>,
    },
    /// All is in the hands of the kernel, or not.
    Sent {
        /// What was lent.
        message: Message,
        /// Whether.
        result: Result<(), i32>,
    },
}

/// One order or answer of a store.
#[derive(Debug)]
pub enum Order {
    /// A request is over.
    Answer {
        /// The request.
        tag: IoTag,
        /// Its result.
        result: IoResult,
    },
    /// [`Outlet::ring`].
    Ring {
        /// The name of the operation.
        part: PartTag,
        /// The operation.
        operation: RingOperation,
    },
    /// [`Outlet::help`].
    Helper {
        /// The name of the operation.
        part: PartTag,
        /// The operation.
        operation: HelperOperation,
    },
    /// [`Outlet::cancel_parts`].
    CancelParts(IoTag),
    /// [`Outlet::cancel_part`].
    CancelPart(PartTag),
    /// [`Outlet::set_timer`].
    Timer {
        /// Chosen by the store.
        number: u64,
        /// From now.
        after: Duration,
    },
    /// [`Outlet::look_at_size`].
    Size,
    /// [`Outlet::report_reach`].
    Reach {
        /// Requests are carried out again.
        is_reached: bool,
    },
    /// [`Outlet::report_held_elsewhere`].
    HeldElsewhere {
        /// Another client has the medium.
        is_held: bool,
    },
    /// [`Outlet::open_socket`].
    OpenSocket {
        /// The new name.
        socket: SocketTag,
        /// The connected socket.
        descriptor: Descriptor,
    },
    /// [`Outlet::on_socket`].
    Socket {
        /// The connection.
        socket: SocketTag,
        /// Chosen by the store.
        number: u64,
        /// The operation.
        work: SocketWork,
    },
    /// [`Outlet::close_socket`].
    CloseSocket(SocketTag),
}

/// Collects the orders and answers of one handle. The engine carries them out after each call of the store, in
/// order.
#[derive(Debug, Default)]
pub struct Outlet {
    orders: VecDeque<Order>,
    returned: Option<IoRequest>,
}

impl Outlet {
    /// Completes a request that was taken. None of its parts may be under way: until they are back the engine holds
    /// the answer.
    pub fn answer(&mut self, tag: IoTag, result: IoResult) {
        self.push(Order::Answer { tag, result });
    }

    /// Returns the request that is being submitted, because the store has no room for it now.
    /// [`Backstore::submit`](crate::Backstore::submit) then says `Taken`. The engine submits the request again, with
    /// another tag, when another request of the unit has completed.
    pub fn give_back(&mut self, request: IoRequest) {
        debug_assert!(self.returned.is_none(), "two requests at a time");
        self.returned = Some(request);
    }

    /// Begins an operation on the ring or on the lane of the file. Its result comes to
    /// [`Backstore::handle_ring_result`](crate::Backstore::handle_ring_result).
    pub fn ring(&mut self, part: PartTag, operation: RingOperation) {
        self.push(Order::Ring { part, operation });
    }

    /// Begins work on a helper thread. Its result comes to
    /// [`Backstore::handle_helper_result`](crate::Backstore::handle_helper_result).
    pub fn help(&mut self, part: PartTag, operation: HelperOperation) {
        self.push(Order::Helper { part, operation });
    }

    /// Cancels all parts of a request. Each still ends, with its result or as cancelled.
    pub fn cancel_parts(&mut self, request: IoTag) {
        self.push(Order::CancelParts(request));
    }

    /// Cancels one part. It still ends, with its result or as cancelled.
    pub fn cancel_part(&mut self, part: PartTag) {
        self.push(Order::CancelPart(part));
    }

    /// Sets a timer: [`Backstore::handle_timer`](crate::Backstore::handle_timer) is called once, this much later. A
    /// timer cannot be cancelled; ignore one that is no longer needed.
    pub fn set_timer(&mut self, number: u64, after: Duration) {
        self.push(Order::Timer { number, after });
    }

    /// Reports that the size of the store may have changed; see
    /// [`Backstore::refresh_size`](crate::Backstore::refresh_size).
    pub fn look_at_size(&mut self) {
        self.push(Order::Size);
    }

    /// Reports to administrators that requests end with [`IoFailure::NotReady`](crate::IoFailure::NotReady) from now
    /// on, because who has the data cannot be reached, or that this is over. Not more often than once a second.
    pub fn report_reach(&mut self, is_reached: bool) {
        self.push(Order::Reach { is_reached });
    }

    /// Another client has the medium from now on, or has it no more. As long as it has, initiators are refused what
    /// needs the medium, in a way that makes them use another path instead of trying again here.
    pub fn report_held_elsewhere(&mut self, is_held: bool) {
        self.push(Order::HeldElsewhere { is_held });
    }

    /// Hands a connected socket to the reactor, under a name that no open one has. Resolve names and connect in
    /// helper work ([`HelperAnswer::Socket`](crate::HelperAnswer::Socket)), because both block.
    pub fn open_socket(&mut self, socket: SocketTag, descriptor: Descriptor) {
        self.push(Order::OpenSocket { socket, descriptor });
    }

    /// Begins an operation on a connection. Its result comes to
    /// [`Backstore::handle_socket`](crate::Backstore::handle_socket); without such a connection it is an error.
    pub fn on_socket(&mut self, socket: SocketTag, number: u64, work: SocketWork) {
        self.push(Order::Socket {
            socket,
            number,
            work,
        });
    }

    /// Closes a connection. Operations under way on it end soon.
    pub fn close_socket(&mut self, socket: SocketTag) {
        self.push(Order::CloseSocket(socket));
    }

    fn push(&mut self, order: Order) {
        self.orders.push_back(order);
    }

    /// True when no order is left. A returned request does not count.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.orders.is_empty()
    }

    /// Takes the oldest order, to carry it out.
    pub fn next_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// Takes the request that [`Outlet::give_back`] returned.
    pub const fn take_returned(&mut self) -> Option<IoRequest> {
        self.returned.take()
    }
}
