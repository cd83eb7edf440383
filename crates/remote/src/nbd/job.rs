//! What goes over a connection for a request: one request of the protocol, with memory of this core.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use memory::{Buffer, Message, Payload};
use nbd::{Client, Piece, ReadBuffer, Request, StatusExtent, Work};

/// Where the data of a read goes.
#[derive(Debug)]
pub(super) enum Space {
    /// The buffer of the request, all of it.
    Pool(Buffer),
    /// Memory of its own: a part of a request, or a read for another core.
    Own(Vec<u8>),
}

impl AsRef<[u8]> for Space {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Pool(buffer) => buffer,
            Self::Own(bytes) => bytes,
        }
    }
}

impl AsMut<[u8]> for Space {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pool(buffer) => buffer,
            Self::Own(bytes) => bytes,
        }
    }
}

/// The data of a write. It stays until the write is answered, because it may have to be sent again.
#[derive(Clone, Debug)]
pub(super) enum Data {
    /// A part of the buffer of the request.
    Pool(Rc<Buffer>, Range<usize>),
    /// Bytes from another core, or zeros.
    Shared(Arc<[u8]>, Range<usize>),
}

impl Data {
    fn bytes(&self) -> &[u8] {
        let (bytes, range): (&[u8], _) = match self {
            Self::Pool(buffer, range) => (buffer, range),
            Self::Shared(bytes, range) => (bytes, range),
        };
        bytes.get(range.clone()).unwrap_or_default()
    }

    /// Appends it to a message: by reference, or small data as a copy.
    fn put(&self, message: &mut Message) {
        match self {
            Self::Pool(buffer, range) if range.len() > COPY_BYTES_MAX => {
                let index = message.push_payload(Payload::Received {
                    chunk: Rc::clone(buffer),
                    offset: range.start,
                    len: range.len(),
                });
                message.push_part(index, 0, range.len());
            }
            Self::Pool(..) | Self::Shared(..) => message.push_bytes(self.bytes()),
        }
    }

    /// A part of it.
    pub(super) fn part(&self, part: Range<usize>) -> Self {
        let (whole, shift) = match self {
            Self::Pool(_, range) | Self::Shared(_, range) => (range.len(), range.start),
        };
        debug_assert!(part.end <= whole, "{part:?} of {whole} bytes");
        let range = shift + part.start..shift + part.end;
        match self {
            Self::Pool(buffer, _) => Self::Pool(Rc::clone(buffer), range),
            Self::Shared(bytes, _) => Self::Shared(Arc::clone(bytes), range),
        }
    }
}

/// The same work without memory of this core, for another one.
pub(super) fn to_foreign(work: &JobWork) -> Work {
    match work {
        Work::Read { length, .. } => Work::Read {
            length: *length,
            buffer: ReadBuffer::Into(vec![0; usize::try_from(*length).unwrap_or_default()]),
        },
        Work::Write { length, data, fua } => Work::Write {
            length: *length,
            data: data.bytes().into(),
            fua: *fua,
        },
        Work::Flush => Work::Flush,
        Work::Trim { length, fua } => Work::Trim {
            length: *length,
            fua: *fua,
        },
        Work::WriteZeroes {
            length,
            fua,
            no_hole,
            fast,
        } => Work::WriteZeroes {
            length: *length,
            fua: *fua,
            no_hole: *no_hole,
            fast: *fast,
        },
        Work::BlockStatus {
            length, count_max, ..
        } => Work::BlockStatus {
            length: *length,
            count_max: *count_max,
            extents: Vec::new(),
        },
    }
}

/// Work of another core.
pub(super) fn from_foreign(work: Work) -> JobWork {
    match work {
        Work::Read { length, buffer } => Work::Read {
            length,
            buffer: match buffer {
                ReadBuffer::Into(bytes) => ReadBuffer::Into(Space::Own(bytes)),
                ReadBuffer::Discard => ReadBuffer::Discard,
            },
        },
        Work::Write { length, data, fua } => {
            let range = 0..data.len();
            let data = Data::Shared(data, range);
            Work::Write { length, data, fua }
        }
        Work::Flush => Work::Flush,
        Work::Trim { length, fua } => Work::Trim { length, fua },
        Work::WriteZeroes {
            length,
            fua,
            no_hole,
            fast,
        } => Work::WriteZeroes {
            length,
            fua,
            no_hole,
            fast,
        },
        Work::BlockStatus {
            length,
            count_max,
            extents,
        } => Work::BlockStatus {
            length,
            count_max,
            extents,
        },
    }
}

/// What work brought, to be sent to the core that asked.
#[derive(Debug)]
pub(super) enum Brought {
    Data(Vec<u8>),
    Extents(Vec<StatusExtent>),
    Nothing,
}

impl Brought {
    pub(super) fn from(work: JobWork) -> Self {
        match work {
            Work::Read {
                buffer: ReadBuffer::Into(Space::Own(bytes)),
                ..
            } => Self::Data(bytes),
            Work::BlockStatus { extents, .. } => Self::Extents(extents),
            Work::Read { .. }
            | Work::Write { .. }
            | Work::Flush
            | Work::Trim { .. }
            | Work::WriteZeroes { .. } => Self::Nothing,
        }
    }

    /// Puts it where the work that was asked for wants it.
    pub(super) fn put(self, work: &mut JobWork) {
        match (self, work) {
            (
                Self::Data(bytes),
                Work::Read {
                    buffer: ReadBuffer::Into(space),
                    ..
                },
            ) => {
                if let Some(place) = space.as_mut().get_mut(..bytes.len()) {
                    place.copy_from_slice(&bytes);
                }
            }
            (Self::Extents(found), Work::BlockStatus { extents, .. }) => *extents = found,
            (Self::Data(_) | Self::Extents(_) | Self::Nothing, _) => {}
        }
    }
}

/// Up to this many bytes copying is cheaper than another part of a message.
const COPY_BYTES_MAX: usize = 512;

pub(super) type JobWork = Work<Space, Data>;
pub(super) type Job = Request<Space, Data>;
pub(super) type JobClient = Client<Space, Data>;

/// Appends what a client has to send.
pub(super) fn put(message: &mut Message, piece: &Piece<'_, Data>) {
    match piece {
        Piece::Header(header) => message.push_bytes(header),
        Piece::Data(data) => data.put(message),
    }
}

/// The bytes of a piece, to be encrypted.
pub(super) fn bytes_of<'a>(piece: &'a Piece<'_, Data>) -> &'a [u8] {
    match piece {
        Piece::Header(header) => header,
        Piece::Data(data) => data.bytes(),
    }
}
