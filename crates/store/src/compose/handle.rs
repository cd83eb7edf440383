//! A composition as one core sees it.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use memory::{CutBuffer, Payload};

use super::layout::{Layout, Piece};
use super::plan::{Member, Shared, layout, merged};
use super::slots::{Key, Slots};
use super::whole::{Answer, Part, Rest, Whole, moved, shared};
use crate::request::admit;
use crate::{
    Backstore, Capabilities, Durability, Extent, HelperResult, IoAnswer, IoFailure, IoRequest,
    IoResult, IoTag, Order, Outlet, PartTag, RingOperation, SocketResult, SocketTag, SocketWork,
    Submitted, Waker,
};

/// How many parts of a read or a write are under way at a time: more are begun as these end.
const PARTS_MAX: usize = 64;

/// `EOPNOTSUPP`.
const NOT_SUPPORTED: i32 = 95;

/// A name that no request and no connection of the engine has.
const NOBODY: u64 = u64::MAX;

/// What is done outside for a member, with the member's own name for it.
#[derive(Debug)]
pub(super) enum Outside {
    Part {
        request: Option<IoTag>,
        own: PartTag,
    },
    Socket {
        own: SocketTag,
        number: u64,
    },
    Timer {
        number: u64,
    },
}

/// A member on this core.
#[derive(Debug)]
struct OnCore {
    store: Box<dyn Backstore>,
    /// What it has ordered or answered; empty between events.
    outlet: Outlet,
    /// What it has no room for, oldest first.
    waiting: VecDeque<(Part, IoRequest)>,
    /// Connections: its name, and the composition's.
    sockets: Vec<(SocketTag, SocketTag)>,
    /// It carries requests out.
    is_reached: bool,
    is_held_elsewhere: bool,
}

/// What becomes of a part that is submitted.
enum Submission {
    Taken,
    Over,
    /// The member has no room for it.
    Returned(Part, IoRequest),
}

#[derive(Debug)]
pub(super) struct Handle {
    shared: Arc<Shared>,
    plan: Arc<[Member]>,
    members: Vec<OnCore>,
    layout: Layout,
    capabilities: Capabilities,
    pub(super) wholes: Slots<Whole>,
    pub(super) parts: Slots<Part>,
    pub(super) outside: Slots<(usize, Outside)>,
    /// Wholes of which a part has ended.
    touched: Vec<Key>,
    sockets: u64,
    waker: Option<Waker>,
}

impl Handle {
    pub(super) fn new(shared: Arc<Shared>) -> io::Result<Self> {
        let plan = shared.members();
        let members = plan.iter().map(OnCore::new);
        let members = members.collect::<io::Result<Vec<_>>>()?;
        let all = capabilities_of(&members);
        Ok(Self {
            layout: layout(shared.form, &plan, &all),
            capabilities: merged(&shared, &plan, &all),
            shared,
            plan,
            members,
            wholes: Slots::default(),
            parts: Slots::default(),
            outside: Slots::default(),
            touched: Vec::new(),
            sockets: 0,
            waker: None,
        })
    }
}

impl OnCore {
    fn new(member: &Member) -> io::Result<Self> {
        Ok(Self {
            store: member.store.handle()?,
            outlet: Outlet::default(),
            waiting: VecDeque::new(),
            sockets: Vec::new(),
            is_reached: true,
            is_held_elsewhere: false,
        })
    }
}

fn capabilities_of(members: &[OnCore]) -> Vec<Capabilities> {
    let all = members.iter().map(|one| one.store.capabilities().clone());
    all.collect()
}

#[deny(
    clippy::missing_trait_methods,
    reason = "what is not passed on is lost"
)]
impl Backstore for Handle {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn durability(&self) -> Durability {
        let members = self.members.iter().map(|one| one.store.durability());
        members.fold(Durability::NOTHING, Durability::with)
    }

    fn start(&mut self, make_waker: &dyn Fn() -> Waker, outlet: &mut Outlet) {
        self.waker = Some(make_waker());
        for one in &mut self.members {
            one.store.start(make_waker, &mut one.outlet);
        }
        self.settle(outlet);
    }

    #[inline]
    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted {
        let range = match admit(&self.capabilities, &request) {
            Ok(range) => range,
            Err(failure) => return Submitted::Done(Err(failure)),
        };
        let len = range.end - range.start;
        match self.layout.piece(range.start, len) {
            Some(piece) if piece.len == len && len > 0 => {
                self.submit_alone(tag, request, &range, piece, outlet)
            }
            Some(_) | None => self.submit_cut(tag, request, range, outlet),
        }
    }

    fn cancel(&mut self, tag: IoTag, outlet: &mut Outlet) {
        let Some(key) = self.wholes.find(|whole| whole.tag == tag) else {
            return;
        };
        let mut dropped = 0;
        for one in &mut self.members {
            let before = one.waiting.len();
            one.waiting.retain(|(part, _)| part.whole != key);
            dropped += before - one.waiting.len();
        }
        if let Some(whole) = self.wholes.get_mut(key) {
            whole.rest = Rest::Nothing;
            whole.parts -= dropped;
            whole.fail(IoFailure::Cancelled);
        }
        let parts = self.parts.iter().filter(|(_, part)| part.whole == key);
        let parts: Vec<(Key, usize)> = parts.map(|(part, of)| (part, of.member)).collect();
        for (part, member) in parts {
            let one = &mut self.members[member];
            one.store.cancel(IoTag(part.to_number()), &mut one.outlet);
        }
        self.touched.push(key);
        self.settle(outlet);
    }

    fn handle_ring_result(
        &mut self,
        part: PartTag,
        operation: RingOperation,
        result: i32,
        outlet: &mut Outlet,
    ) {
        if let Some((member, Outside::Part { own, .. })) = self.end_outside(part.number) {
            let one = &mut self.members[member];
            one.store
                .handle_ring_result(own, operation, result, &mut one.outlet);
            self.go_on(member, outlet);
        }
    }

    fn handle_helper_result(&mut self, part: PartTag, result: HelperResult, outlet: &mut Outlet) {
        if let Some((member, Outside::Part { own, .. })) = self.end_outside(part.number) {
            let one = &mut self.members[member];
            one.store.handle_helper_result(own, result, &mut one.outlet);
            self.go_on(member, outlet);
        }
    }

    fn handle_socket(
        &mut self,
        _: SocketTag,
        number: u64,
        result: SocketResult,
        outlet: &mut Outlet,
    ) {
        if let Some((member, Outside::Socket { own, number })) = self.end_outside(number) {
            let one = &mut self.members[member];
            one.store
                .handle_socket(own, number, result, &mut one.outlet);
            self.go_on(member, outlet);
        }
    }

    /// Which member it is for nobody knows.
    fn handle_wake(&mut self, outlet: &mut Outlet) {
        for member in 0..self.members.len() {
            let one = &mut self.members[member];
            one.store.handle_wake(&mut one.outlet);
            self.go_on(member, outlet);
        }
    }

    fn handle_timer(&mut self, number: u64, outlet: &mut Outlet) {
        if let Some((member, Outside::Timer { number })) = self.end_outside(number) {
            let one = &mut self.members[member];
            one.store.handle_timer(number, &mut one.outlet);
            self.go_on(member, outlet);
        }
    }

    #[cfg(test)]
    fn use_ring_only(&mut self, honours_dsync: bool) {
        for one in &mut self.members {
            one.store.use_ring_only(honours_dsync);
        }
    }

    fn probe(&mut self, outlet: &mut Outlet) {
        for one in &mut self.members {
            one.store.probe(&mut one.outlet);
        }
        self.settle(outlet);
    }

    /// Takes members up that were added. One of which there is no handle to be had now is taken up another time; the
    /// composition has its old size until then.
    fn refresh_size(&mut self) -> Option<u64> {
        let plan = self.shared.members();
        for member in plan.iter().skip(self.members.len()) {
            let Ok(mut one) = OnCore::new(member) else {
                break;
            };
            if let Some(waker) = &self.waker {
                one.store.start(&|| waker.clone(), &mut one.outlet);
            }
            self.members.push(one);
        }
        if self.members.len() == plan.len() {
            self.plan = plan;
        }
        for one in &mut self.members {
            one.store.refresh_size();
        }
        let before = self.capabilities.size_bytes;
        let all = capabilities_of(&self.members);
        self.layout = layout(self.shared.form, &self.plan, &all);
        self.capabilities = merged(&self.shared, &self.plan, &all);
        let size = self.capabilities.size_bytes;
        (size != before).then_some(size)
    }
}

/// Beginning.
impl Handle {
    /// All of the request lies together on one member, which gets it as it is.
    #[inline]
    fn submit_alone(
        &mut self,
        tag: IoTag,
        request: IoRequest,
        range: &Range<u64>,
        piece: Piece,
        outlet: &mut Outlet,
    ) -> Submitted {
        let one = &mut self.members[piece.member];
        let begins = (piece.offset, range.start);
        let mut request = Some(moved(request, piece.offset));
        if one.waiting.is_empty()
            && let Some(first) = request.take()
        {
            let key = self.parts.vacant();
            let inner = IoTag(key.to_number());
            let submitted = one.store.submit(inner, first, &mut one.outlet);
            request = one.outlet.take_returned();
            match submitted {
                Submitted::Done(result) => {
                    self.parts.skip();
                    let result = self.translated(piece.member, begins, result);
                    self.settle(outlet);
                    return Submitted::Done(result);
                }
                Submitted::Taken if request.is_some() => self.parts.skip(),
                Submitted::Taken => {}
            }
        }
        let whole = self.wholes.insert(Whole {
            tag,
            rest: Rest::Nothing,
            parts: 1,
            failure: None,
            answer: Answer::Alone(None),
        });
        let part = Part {
            whole,
            member: piece.member,
            begins,
            space: None,
        };
        match request {
            Some(request) => self.members[piece.member]
                .waiting
                .push_back((part, request)),
            None => {
                self.parts.insert(part);
            }
        }
        self.settle(outlet);
        Submitted::Taken
    }

    /// Several members have a part in the request, or none.
    #[cold]
    fn submit_cut(
        &mut self,
        tag: IoTag,
        request: IoRequest,
        range: Range<u64>,
        outlet: &mut Outlet,
    ) -> Submitted {
        let (rest, answer, shares) = match request {
            IoRequest::Read { .. } if range.is_empty() => {
                return Submitted::Done(Ok(IoAnswer::Data(Payload::Empty)));
            }
            IoRequest::Read {
                buffer: Some(buffer),
                ..
            } => {
                let answer = Answer::Data(CutBuffer::new(buffer));
                (Rest::Read(range), answer, Vec::new())
            }
            // The engine gives a buffer for what crosses the unit, and compares across it by itself.
            IoRequest::Read { buffer: None, .. }
            | IoRequest::CompareAndWrite { .. }
            | IoRequest::Device(_) => {
                let errno = NOT_SUPPORTED;
                return Submitted::Done(Err(IoFailure::Hardware { errno }));
            }
            IoRequest::Write { data, durable, .. } => {
                let data = data.into_shareable();
                let rest = Rest::Write {
                    range,
                    data,
                    durable,
                };
                (rest, Answer::Done, Vec::new())
            }
            request @ (IoRequest::Flush
            | IoRequest::Unmap { .. }
            | IoRequest::WriteZeros { .. }
            | IoRequest::Extents { .. }) => {
                let shares = self.shares(&request, &range);
                (Rest::Nothing, Answer::of_shares(&request), shares)
            }
        };
        let whole = self.wholes.insert(Whole {
            tag,
            rest,
            parts: 0,
            failure: None,
            answer,
        });
        for (member, request) in shares {
            let part = Part {
                whole,
                member,
                // A share of several has no one place in the composition; failures are looked up.
                begins: (0, 0),
                space: None,
            };
            self.begin(part, request);
        }
        let result = self.advance(whole);
        self.settle(outlet);
        match result {
            Some(result) => Submitted::Done(result),
            None => Submitted::Taken,
        }
    }

    /// What a request without data asks of each member that it touches.
    fn shares(&self, request: &IoRequest, range: &Range<u64>) -> Vec<(usize, IoRequest)> {
        if matches!(request, IoRequest::Flush) {
            let members = 0..self.members.len();
            return members.map(|member| (member, IoRequest::Flush)).collect();
        }
        let share = |(member, range): (usize, Range<u64>)| Some((member, shared(request, range)?));
        self.layout.shares(range).filter_map(share).collect()
    }

    /// Begins more of a read or a write. Its result, when all of it is over.
    fn advance(&mut self, key: Key) -> Option<IoResult> {
        loop {
            let whole = self.wholes.get_mut(key)?;
            if whole.failure.is_some() {
                whole.rest = Rest::Nothing;
            }
            if whole.parts >= PARTS_MAX {
                return None;
            }
            let members = &self.members;
            let is_in_place = |piece: &Piece| {
                let len = usize::try_from(piece.len).unwrap_or_default();
                let own = members
                    .get(piece.member)
                    .map(|one| one.store.capabilities());
                own.is_some_and(|own| own.answers_in_place(piece.offset, len))
            };
            let Some((part, request)) = whole.next_part(key, &self.layout, is_in_place) else {
                break;
            };
            self.begin(part, request);
        }
        let is_over = self.wholes.get_mut(key)?.parts == 0;
        let whole = is_over.then(|| self.wholes.remove(key)).flatten()?;
        Some(self.result(whole))
    }

    /// Submits a part, or has it wait for the member behind others.
    fn begin(&mut self, part: Part, request: IoRequest) {
        if let Some(whole) = self.wholes.get_mut(part.whole) {
            whole.parts += 1;
        }
        let member = part.member;
        if !self.members[member].waiting.is_empty() {
            self.members[member].waiting.push_back((part, request));
            return;
        }
        match self.try_part(part, request) {
            Submission::Taken | Submission::Over => {}
            Submission::Returned(part, request) => {
                self.members[member].waiting.push_back((part, request));
            }
        }
    }

    fn try_part(&mut self, part: Part, request: IoRequest) -> Submission {
        let one = &mut self.members[part.member];
        let key = self.parts.insert(part);
        let tag = IoTag(key.to_number());
        let submitted = one.store.submit(tag, request, &mut one.outlet);
        let returned = one.outlet.take_returned();
        match (submitted, returned) {
            (Submitted::Done(result), _) => {
                self.end_part(key, result);
                Submission::Over
            }
            (Submitted::Taken, None) => Submission::Taken,
            (Submitted::Taken, Some(request)) => match self.parts.remove(key) {
                Some(part) => Submission::Returned(part, request),
                None => Submission::Taken,
            },
        }
    }

    /// What waits for a member is submitted again, as far as that has room now.
    fn retry(&mut self, member: usize) {
        for _ in 0..self.members[member].waiting.len() {
            let Some((part, request)) = self.members[member].waiting.pop_front() else {
                return;
            };
            let whole = part.whole;
            match self.try_part(part, request) {
                Submission::Taken => {}
                Submission::Over => self.touched.push(whole),
                Submission::Returned(part, request) => {
                    self.members[member].waiting.push_front((part, request));
                    return;
                }
            }
        }
    }
}

/// Ending.
impl Handle {
    /// A part is over. One that nobody knows is answered for the second time, and stays without effect.
    fn end_part(&mut self, key: Key, result: IoResult) -> Option<Key> {
        let mut part = self.parts.remove(key)?;
        let result = self.translated(part.member, part.begins, result);
        let whole = self.wholes.get_mut(part.whole)?;
        whole.parts -= 1;
        match (result, &mut whole.answer) {
            (Err(failure), _) => whole.fail(failure),
            (Ok(answer), Answer::Alone(slot)) => *slot = Some(answer),
            (Ok(IoAnswer::Data(data)), Answer::Data(_)) => {
                if let Some(space) = &mut part.space {
                    data.copy_to(0, space);
                }
            }
            (Ok(IoAnswer::Extents(list)), Answer::Extents { lists, .. }) => {
                lists.push((part.member, list));
            }
            (Ok(_), Answer::Done | Answer::Data(_) | Answer::Extents { .. }) => {}
        }
        Some(part.whole)
    }

    /// With what a member says about its bytes said about those of the composition.
    #[inline]
    fn translated(&self, member: usize, (there, here): (u64, u64), result: IoResult) -> IoResult {
        match result {
            Ok(IoAnswer::Extents(mut extents)) if there != here => {
                for Extent { range, .. } in &mut extents {
                    *range = range.start - there + here..range.end - there + here;
                }
                Ok(IoAnswer::Extents(extents))
            }
            Err(failure) => Err(self.failure_of(member, failure)),
            Ok(answer) => Ok(answer),
        }
    }

    #[cold]
    fn failure_of(&self, member: usize, failure: IoFailure) -> IoFailure {
        let place = |offset| self.layout.whole_offset(member, offset);
        match failure {
            IoFailure::Medium { offset } => IoFailure::Medium {
                offset: place(offset),
            },
            IoFailure::NoSpace { offset } => IoFailure::NoSpace {
                offset: place(offset),
            },
            IoFailure::Truncated { offset } => IoFailure::Truncated {
                offset: place(offset),
            },
            // The offset of a miscompare counts from the start of the range.
            failure @ (IoFailure::Hardware { .. }
            | IoFailure::FlushLatched
            | IoFailure::CacheLost
            | IoFailure::Cancelled
            | IoFailure::ReadOnly
            | IoFailure::Miscompare { .. }
            | IoFailure::NotReady
            | IoFailure::HeldElsewhere) => failure,
        }
    }

    fn result(&self, whole: Whole) -> IoResult {
        if let Some(failure) = whole.failure {
            return Err(failure);
        }
        match whole.answer {
            Answer::Alone(answer) => Ok(answer.unwrap_or(IoAnswer::Done)),
            Answer::Done => Ok(IoAnswer::Done),
            Answer::Data(cut) => match cut.join() {
                Ok(buffer) => Ok(IoAnswer::Data(Payload::Pool(buffer))),
                // A member keeps what it was lent and has answered: a fault of its own.
                Err(_) => Err(IoFailure::Hardware { errno: 0 }),
            },
            Answer::Extents {
                range,
                count_max,
                lists,
            } => Ok(IoAnswer::Extents(
                self.layout.merge(&range, &lists, count_max),
            )),
        }
    }

    /// Something has happened at a member: it may have room again.
    fn go_on(&mut self, member: usize, outlet: &mut Outlet) {
        self.settle(outlet);
        if !self.members[member].waiting.is_empty() {
            self.retry(member);
            self.settle(outlet);
        }
    }

    /// Carries all that members have ordered and answered to the outlet of the composition.
    #[inline]
    fn settle(&mut self, outlet: &mut Outlet) {
        loop {
            if let Some(key) = self.touched.pop() {
                let tag = self.wholes.get_mut(key).map(|whole| whole.tag);
                if let (Some(result), Some(tag)) = (self.advance(key), tag) {
                    outlet.answer(tag, result);
                }
                continue;
            }
            let mut members = self.members.iter();
            let Some(member) = members.position(|one| !one.outlet.is_empty()) else {
                return;
            };
            while let Some(order) = self.members[member].outlet.next_order() {
                self.carry(member, order, outlet);
            }
        }
    }

    fn carry(&mut self, member: usize, order: Order, outlet: &mut Outlet) {
        match order {
            Order::Answer { tag, result } => {
                let whole = self.end_part(Key::of_number(tag.0), result);
                self.touched.extend(whole);
            }
            Order::Ring { part, operation } => {
                outlet.ring(self.begin_part(member, part), operation);
            }
            Order::Helper { part, operation } => {
                outlet.help(self.begin_part(member, part), operation);
            }
            Order::CancelParts(meant) => {
                self.cancel_outside(member, |own| own.request == Some(meant), outlet);
            }
            Order::CancelPart(meant) => self.cancel_outside(member, |own| own == meant, outlet),
            Order::Timer { number, after } => {
                let key = self.outside.insert((member, Outside::Timer { number }));
                outlet.set_timer(key.to_number(), after);
            }
            Order::Size => outlet.look_at_size(),
            Order::Reach { is_reached } => {
                let is_all = |members: &[OnCore]| members.iter().all(|one| one.is_reached);
                let before = is_all(&self.members);
                self.members[member].is_reached = is_reached;
                let after = is_all(&self.members);
                if before != after {
                    outlet.report_reach(after);
                }
            }
            Order::HeldElsewhere { is_held } => {
                let is_any = |members: &[OnCore]| members.iter().any(|one| one.is_held_elsewhere);
                let before = is_any(&self.members);
                self.members[member].is_held_elsewhere = is_held;
                let after = is_any(&self.members);
                if before != after {
                    outlet.report_held_elsewhere(after);
                }
            }
            Order::OpenSocket { socket, descriptor } => {
                let name = SocketTag(self.sockets);
                self.sockets += 1;
                self.members[member].sockets.push((socket, name));
                outlet.open_socket(name, descriptor);
            }
            Order::Socket {
                socket,
                number,
                work,
            } => self.work_on_socket(member, (socket, number), work, outlet),
            Order::CloseSocket(socket) => {
                let sockets = &mut self.members[member].sockets;
                if let Some(at) = sockets.iter().position(|(own, _)| *own == socket) {
                    outlet.close_socket(sockets.swap_remove(at).1);
                }
            }
        }
    }

    fn work_on_socket(
        &mut self,
        member: usize,
        (own, number): (SocketTag, u64),
        work: SocketWork,
        outlet: &mut Outlet,
    ) {
        let sockets = &self.members[member].sockets;
        let known = sockets.iter().find(|(socket, _)| *socket == own);
        // On a connection that is closed the work fails at once.
        let name = known.map_or(SocketTag(NOBODY), |(_, name)| *name);
        let key = self
            .outside
            .insert((member, Outside::Socket { own, number }));
        outlet.on_socket(name, key.to_number(), work);
    }

    /// The name of an operation that begins for a member. One for a request that is over gets a name that the engine
    /// refuses.
    fn begin_part(&mut self, member: usize, own: PartTag) -> PartTag {
        let request = own.request.map(|tag| {
            let part = self.parts.get_mut(Key::of_number(tag.0));
            let whole = part.map(|part| part.whole);
            let whole = whole.and_then(|whole| self.wholes.get_mut(whole));
            whole.map_or(IoTag(NOBODY), |whole| whole.tag)
        });
        let key = self
            .outside
            .insert((member, Outside::Part { request, own }));
        PartTag {
            request,
            number: key.to_number(),
        }
    }

    fn end_outside(&mut self, number: u64) -> Option<(usize, Outside)> {
        let ended = self.outside.remove(Key::of_number(number));
        debug_assert!(ended.is_some(), "{number} was not begun");
        ended
    }

    fn cancel_outside(
        &self,
        member: usize,
        is_meant: impl Fn(PartTag) -> bool,
        outlet: &mut Outlet,
    ) {
        for (key, (of, outside)) in self.outside.iter().filter(|(_, (of, _))| *of == member) {
            debug_assert_eq!(*of, member);
            let number = key.to_number();
            match outside {
                Outside::Part { request, own } if is_meant(*own) => {
                    let request = *request;
                    outlet.cancel_part(PartTag { request, number });
                }
                Outside::Socket { number: own, .. } if is_meant(PartTag::own(*own)) => {
                    outlet.cancel_part(PartTag::own(number));
                }
                Outside::Part { .. } | Outside::Socket { .. } | Outside::Timer { .. } => {}
            }
        }
    }
}
