//! Files and block devices of this machine, through the stores that a target would use.

use std::sync::Arc;

use memory::{Buffer, Payload};
use reactor::{Event, Reactor};
use store::{
    Backstore, IoAnswer, IoFailure, IoRequest, IoTag, Order, Outlet, PartTag, SharedStore,
    Submitted,
};

use super::{Data, Finished, Geometry, IoError, Lane, LaneSettings, Operation, Pattern, token};
use crate::error::BenchError;

/// An open file or device.
#[derive(Clone, Debug)]
pub struct FileConnector {
    /// What reports call the target.
    pub label: String,
    /// The store, of which each lane takes its handle.
    pub store: Arc<dyn SharedStore>,
}

/// One handle of the store.
#[derive(Debug)]
pub struct FileLane {
    store: Box<dyn Backstore>,
    outlet: Outlet,
    lane: u32,
    pattern: Option<Pattern>,
    /// What came with each I/O under way, by tag.
    data: Vec<Data>,
    /// What the store had no room for.
    waiting: Vec<(u32, IoRequest)>,
    /// Done without the ring.
    ready: Vec<Finished>,
    is_closed: bool,
}

impl Lane for FileLane {
    type Connector = FileConnector;

    fn open(connector: &FileConnector, settings: LaneSettings) -> Result<Self, BenchError> {
        let handle = connector.store.handle();
        let store = handle.map_err(BenchError::system("take a handle of the file"))?;
        Ok(Self {
            store,
            outlet: Outlet::default(),
            lane: settings.lane,
            pattern: settings.pattern,
            data: (0..settings.depth).map(|_| Data::Discard).collect(),
            waiting: Vec::new(),
            ready: Vec::new(),
            is_closed: false,
        })
    }

    fn geometry(&self) -> Geometry {
        let capabilities = self.store.capabilities();
        Geometry {
            size_bytes: capabilities.size_bytes,
            block_bytes: capabilities.block_bytes,
        }
    }

    fn submit(&mut self, reactor: &mut Reactor, tag: u32, operation: Operation) {
        let request = self.request(reactor, &operation);
        if let Some(place) = slot(&mut self.data, tag) {
            *place = operation.data;
        }
        match request {
            Some(request) => self.begin(reactor, tag, request),
            None => self.finish(tag, Err(other("no buffer is free"))),
        }
    }

    fn flush(&mut self, reactor: &mut Reactor, finished: &mut Vec<Finished>) {
        for (tag, request) in std::mem::take(&mut self.waiting) {
            self.begin(reactor, tag, request);
        }
        finished.append(&mut self.ready);
    }

    fn handle(
        &mut self,
        reactor: &mut Reactor,
        part: u32,
        event: Event,
        finished: &mut Vec<Finished>,
    ) -> Result<(), String> {
        let name = PartTag::of(IoTag(part.into()));
        let (store, outlet) = (&mut self.store, &mut self.outlet);
        match event {
            Event::Store {
                operation, result, ..
            } => store.handle_ring_result(name, operation, result, outlet),
            Event::Helper { result, .. } => store.handle_helper_result(name, result, outlet),
            Event::Accepted { .. }
            | Event::Received { .. }
            | Event::ReceivedExact { .. }
            | Event::Datagram { .. }
            | Event::DatagramsSent { .. }
            | Event::Sent { .. }
            | Event::Mail { .. } => return Err("an event that was not asked for".to_owned()),
        }
        self.carry_orders(reactor, part);
        finished.append(&mut self.ready);
        Ok(())
    }

    fn close(&mut self) {
        self.is_closed = true;
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}

impl FileLane {
    /// The request for the store; `None` when the pool has no buffer.
    fn request(&self, reactor: &Reactor, operation: &Operation) -> Option<IoRequest> {
        let offset = operation.offset;
        let len = usize::try_from(operation.length).ok()?;
        let buffer = |len| reactor.pool().allocate(len).ok();
        match &operation.data {
            Data::Discard | Data::Keep(_) if self.store.capabilities().reads_in_place => {
                Some(IoRequest::Read {
                    offset,
                    len,
                    buffer: None,
                })
            }
            Data::Discard | Data::Keep(_) => Some(IoRequest::Read {
                offset,
                len,
                buffer: Some(buffer(len)?),
            }),
            Data::Write(data) => Some(IoRequest::Write {
                offset,
                data: match self.in_place(data) {
                    Some(payload) => payload,
                    None => copied(buffer(len)?, data),
                },
                durable: false,
            }),
        }
    }

    /// The data where it lies, if that is good enough for the store.
    fn in_place(&self, data: &Arc<[u8]>) -> Option<Payload> {
        let pattern = self.pattern.as_ref()?;
        let is_free = !self.store.capabilities().needs_own_buffer;
        (is_free && Arc::ptr_eq(&pattern.bytes, data)).then(|| Payload::Received {
            chunk: pattern.buffer.clone(),
            offset: 0,
            len: data.len(),
        })
    }

    fn begin(&mut self, reactor: &mut Reactor, tag: u32, request: IoRequest) {
        match self
            .store
            .submit(IoTag(tag.into()), request, &mut self.outlet)
        {
            Submitted::Done(result) => self.finish(tag, result.map_err(of_store)),
            Submitted::Taken => {
                let returned = self.outlet.take_returned();
                self.waiting.extend(returned.map(|request| (tag, request)));
            }
        }
        self.carry_orders(reactor, tag);
    }

    /// Does what the store asks for. A file has one operation at a time under way for a request.
    fn carry_orders(&mut self, reactor: &mut Reactor, tag: u32) {
        let token = token(self.lane, tag);
        while let Some(order) = self.outlet.next_order() {
            match order {
                Order::Answer { result, .. } => self.finish(tag, result.map_err(of_store)),
                Order::Ring { operation, .. } => {
                    reactor.submit_store(token, operation);
                }
                Order::Helper { operation, .. } => {
                    reactor.submit_helper(token, operation);
                }
                Order::CancelParts(_)
                | Order::CancelPart(_)
                | Order::Timer { .. }
                | Order::Size
                | Order::Reach { .. }
                | Order::HeldElsewhere { .. }
                | Order::OpenSocket { .. }
                | Order::Socket { .. }
                | Order::CloseSocket(_) => {
                    self.finish(tag, Err(other("the store answers another way")));
                }
            }
        }
    }

    fn finish(&mut self, tag: u32, result: Result<IoAnswer, IoError>) {
        let data = slot(&mut self.data, tag);
        let mut data = data.map_or(Data::Discard, |data| std::mem::replace(data, Data::Discard));
        let result = result.and_then(|answer| match (answer, &mut data) {
            (IoAnswer::Data(payload), Data::Keep(buffer)) if payload.len() == buffer.len() => {
                payload.copy_to(0, buffer);
                Ok(())
            }
            (IoAnswer::Data(_), Data::Keep(_)) => Err(other("a read of another length came")),
            (
                IoAnswer::Data(_) | IoAnswer::Done | IoAnswer::Extents(_) | IoAnswer::Device(_),
                _,
            ) => Ok(()),
        });
        self.ready.push(Finished { tag, result, data });
    }
}

fn slot(data: &mut [Data], tag: u32) -> Option<&mut Data> {
    data.get_mut(usize::try_from(tag).ok()?)
}

fn copied(mut buffer: Buffer, data: &[u8]) -> Payload {
    buffer.copy_from_slice(data);
    Payload::Pool(buffer)
}

fn other(text: &str) -> IoError {
    IoError::Other(text.to_owned())
}

fn of_store(failure: IoFailure) -> IoError {
    IoError::Other(failure.to_string())
}
