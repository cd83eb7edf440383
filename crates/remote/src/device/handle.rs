//! The store, and its handle for one core. Data is copied once on its way between the core and the back end.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memory::{Buffer, Payload};
use store::{
    Backstore, Bottom, Capabilities, Connections, DeviceAnswer, DeviceFacts, DeviceRequest,
    Durability, IoAnswer, IoFailure, IoRequest, IoTag, Outlet, Receiver, SharedStore, Submitted,
    Waker, channel,
};

use super::shared::{BYTES_MAX, Command, Ended, NotTaken, SENSE_BYTES_MAX, Shared, Users};
use crate::scsi::job::{Bytes, Mail};

/// Requests that are taken at a time; more are returned.
pub(crate) const REQUESTS_MAX: usize = 256;
/// `EOPNOTSUPP`.
pub(crate) const NOT_SUPPORTED: IoFailure = IoFailure::Hardware { errno: 95 };

/// A device as a store.
#[derive(Debug)]
pub(crate) struct DeviceStore {
    users: Arc<Users>,
    handles: AtomicUsize,
}

impl DeviceStore {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            users: Arc::new(Users(Arc::new(shared))),
            handles: AtomicUsize::new(0),
        }
    }
}

/// It has no size, no blocks and no cache as far as stores know.
pub(crate) fn capabilities() -> Capabilities {
    Capabilities {
        // What waits for its turn must not keep a chunk from receiving.
        needs_own_buffer: true,
        ..Capabilities::plain(0, 512)
    }
}

impl SharedStore for DeviceStore {
    fn inner(&self) -> &dyn SharedStore {
        &Bottom
    }

    fn identity(&self) -> Option<String> {
        let identity = self.users.0.link.identity.as_ref();
        identity.map(|identity| identity.best().to_owned())
    }

    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        let number = self.handles.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(DeviceHandle {
            number,
            capabilities: capabilities(),
            mail: None,
            open: HashMap::new(),
            bytes: 0,
            users: Arc::clone(&self.users),
        }))
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn outage(&self) -> Option<String> {
        self.users.0.link.outage()
    }

    fn device(&self) -> Option<Arc<DeviceFacts>> {
        Some(self.users.0.facts())
    }

    fn connections(&self) -> Option<Connections> {
        Some(self.users.0.link.connections())
    }
}

/// A request under way.
#[derive(Debug)]
struct Open {
    buffer: Option<Buffer>,
    bytes: u64,
    opcode: u8,
    /// Nobody sees its answer.
    is_cancelled: bool,
}

/// A device as one core sees it.
#[derive(Debug)]
struct DeviceHandle {
    number: usize,
    capabilities: Capabilities,
    mail: Option<Receiver<Mail<Ended>>>,
    open: HashMap<IoTag, Open>,
    /// Data of all of them.
    bytes: u64,
    // The last one to be dropped: from then on nobody has the store.
    users: Arc<Users>,
}

impl DeviceHandle {
    fn begin(&mut self, tag: IoTag, request: DeviceRequest) -> Submitted {
        let DeviceRequest {
            cdb,
            data_out,
            data_in_bytes,
            buffer,
            nexus,
            alters: _,
        } = request;
        let Ok(room) = u32::try_from(data_in_bytes) else {
            return Submitted::Done(Err(NOT_SUPPORTED));
        };
        let command = Command {
            core: self.number,
            number: tag.0,
            nexus,
            cdb: cdb.into_vec(),
            data: Bytes::from(data_out.to_vec()),
            room,
        };
        let bytes = command.bytes();
        let opcode = command.cdb.first().copied().unwrap_or_default();
        match self.users.0.add(command) {
            Ok(()) => {
                self.bytes += bytes;
                let open = Open {
                    buffer,
                    bytes,
                    opcode,
                    is_cancelled: false,
                };
                self.open.insert(tag, open);
                Submitted::Taken
            }
            Err(NotTaken::Share) => Submitted::Done(Ok(answer(Ended::busy(), None))),
            Err(NotTaken::Away) => Submitted::Done(Err(IoFailure::NotReady)),
        }
    }

    fn forget(&mut self, tag: IoTag) -> Option<Open> {
        let open = self.open.remove(&tag)?;
        self.bytes -= open.bytes;
        Some(open)
    }
}

/// What it has in its cache is the affair of those who have written it.
pub(crate) const DURABILITY: Durability = Durability {
    may_have_unflushed: false,
    lost: None,
    lost_before: 0,
};

/// The command of a request, or the answer to what a device does not take.
pub(crate) fn command_of(request: IoRequest) -> Result<Box<DeviceRequest>, Submitted> {
    match request {
        IoRequest::Device(request) => Ok(request),
        IoRequest::Flush => Err(Submitted::Done(Ok(IoAnswer::Done))),
        IoRequest::Read { .. }
        | IoRequest::Write { .. }
        | IoRequest::Unmap { .. }
        | IoRequest::WriteZeros { .. }
        | IoRequest::CompareAndWrite { .. }
        | IoRequest::Extents { .. } => Err(Submitted::Done(Err(NOT_SUPPORTED))),
    }
}

/// What the device said, with its data in the memory of the core.
pub(crate) fn answer(ended: Ended, buffer: Option<Buffer>) -> IoAnswer {
    let mut data = Payload::Empty;
    if let Some(mut buffer) = buffer {
        let length = buffer.len().min(ended.data.len());
        for (place, byte) in buffer.iter_mut().zip(&ended.data) {
            *place = *byte;
        }
        data = Payload::from(buffer).into_shareable().part(0, length);
    }
    let mut sense = ended.sense;
    sense.truncate(SENSE_BYTES_MAX);
    IoAnswer::Device(Box::new(DeviceAnswer {
        status: ended.status,
        sense,
        data,
        transfer_bytes: ended.transfer_bytes,
    }))
}

impl Backstore for DeviceHandle {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn durability(&self) -> Durability {
        DURABILITY
    }

    fn start(&mut self, make_waker: &dyn Fn() -> Waker, _outlet: &mut Outlet) {
        let (sender, receiver) = channel(make_waker());
        self.mail = Some(receiver);
        self.users.0.begin(self.number, sender);
    }

    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted {
        let request = match command_of(request) {
            Ok(request) => request,
            Err(answer) => return answer,
        };
        let bytes = (request.data_out.len() + request.data_in_bytes) as u64;
        let is_full = self.open.len() >= REQUESTS_MAX || self.bytes + bytes > BYTES_MAX;
        if is_full && !self.open.is_empty() {
            outlet.give_back(IoRequest::Device(request));
            return Submitted::Taken;
        }
        self.begin(tag, *request)
    }

    fn cancel(&mut self, tag: IoTag, outlet: &mut Outlet) {
        // One that the device has is answered when it has ended.
        if self.users.0.cancel(self.number, tag.0) && self.forget(tag).is_some() {
            outlet.answer(tag, Err(IoFailure::Cancelled));
        } else if let Some(open) = self.open.get_mut(&tag) {
            open.is_cancelled = true;
        }
    }

    fn handle_wake(&mut self, outlet: &mut Outlet) {
        let mail = self.mail.iter().flat_map(Receiver::take);
        for mail in mail.collect::<Vec<Mail<Ended>>>() {
            match mail {
                Mail::Done { number, result } => {
                    let tag = IoTag(number);
                    if let Some(open) = self.forget(tag) {
                        if let (true, Ok(ended)) = (open.is_cancelled, &result) {
                            self.users.0.note_unseen(open.opcode, ended);
                        }
                        let result = result.map(|ended| answer(ended, open.buffer));
                        outlet.answer(tag, result);
                    }
                }
                Mail::Size => outlet.look_at_size(),
                Mail::Reach { is_reached } => outlet.report_reach(is_reached),
            }
        }
    }

    fn refresh_size(&mut self) -> Option<u64> {
        None
    }
}

impl Drop for DeviceHandle {
    fn drop(&mut self) {
        self.users.0.link.end(self.number);
    }
}
