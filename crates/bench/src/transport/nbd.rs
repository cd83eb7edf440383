//! NBD: one connection for each lane, over TCP or a Unix socket.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use memory::Message;
use nbd::{Client, Completion, Export, Handshake, Piece, Progress, ReadBuffer, Request, Work};
use reactor::{Event, Reactor};

use super::socket::{Gather, Heard, Pipe, SEND_BYTES_MAX, SETUP_TIMEOUT, Stream, connect, words};
use super::{Data, Finished, Geometry, IoError, Lane, LaneSettings, Operation, Pattern};
use crate::error::BenchError;

/// Where an export is.
#[derive(Clone, Debug)]
pub enum NbdServer {
    /// Behind a TCP port.
    Tcp {
        /// Name or address, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// Behind a Unix socket.
    Unix(PathBuf),
}

/// Everything needed to connect.
#[derive(Clone, Debug)]
pub struct NbdConnector {
    /// What reports call the target.
    pub label: String,
    /// Where it is.
    pub server: NbdServer,
    /// Name of the export; empty for the default one.
    pub export: String,
}

/// One connection.
#[derive(Debug)]
pub struct NbdLane {
    client: Client,
    pipe: Pipe,
    pattern: Option<Pattern>,
    is_closed: bool,
    /// Ends of I/Os that the client did not take.
    refused: Vec<Finished>,
}

impl Lane for NbdLane {
    type Connector = NbdConnector;

    fn open(connector: &NbdConnector, settings: LaneSettings) -> Result<Self, BenchError> {
        match &connector.server {
            NbdServer::Tcp { host, port } => {
                let stream = connect(&connector.label, host, *port)?;
                shake_hands(connector, stream, settings)
            }
            NbdServer::Unix(path) => {
                let failed = |source| BenchError::Connect {
                    target: connector.label.clone(),
                    address: path.display().to_string(),
                    source,
                };
                let stream = UnixStream::connect(path).map_err(failed)?;
                stream.set_timeout(Some(SETUP_TIMEOUT)).map_err(failed)?;
                shake_hands(connector, stream, settings)
            }
        }
    }

    fn geometry(&self) -> Geometry {
        let export = self.client.export();
        Geometry {
            size_bytes: export.size_bytes,
            block_bytes: export.block_min_bytes,
        }
    }

    fn submit(&mut self, _reactor: &mut Reactor, tag: u32, operation: Operation) {
        let Operation {
            offset,
            length,
            data,
        } = operation;
        let work = match data {
            Data::Discard => Work::Read {
                length,
                buffer: ReadBuffer::Discard,
            },
            Data::Keep(buffer) => Work::Read {
                length,
                buffer: ReadBuffer::Into(buffer),
            },
            Data::Write(data) => Work::Write {
                length,
                data,
                fua: false,
            },
        };
        let tag = u64::from(tag);
        if let Err((error, request)) = self.client.submit(Request { tag, offset, work }) {
            let result = Err(IoError::Other(error.to_string()));
            self.refused.push(finish(tag, result, request.work));
        }
    }

    fn flush(&mut self, reactor: &mut Reactor, finished: &mut Vec<Finished>) {
        finished.append(&mut self.refused);
        let (client, pattern) = (&mut self.client, self.pattern.as_ref());
        self.pipe.flush(reactor, |message: &mut Message| {
            let mut gather = Gather { message, pattern };
            client.transmit(SEND_BYTES_MAX, |piece| match piece {
                Piece::Header(header) => gather.message.push_bytes(header),
                Piece::Data(data) => put(&mut gather, data),
            });
        });
    }

    fn handle(
        &mut self,
        _reactor: &mut Reactor,
        _part: u32,
        event: Event,
        finished: &mut Vec<Finished>,
    ) -> Result<(), String> {
        match self.pipe.handle(event) {
            Ok(Heard::Bytes { chunk, len }) => {
                let bytes = chunk.get(..len).unwrap_or_default();
                let followed = self.client.handle_bytes(bytes);
                followed.map_err(|violation| violation.to_string())?;
            }
            Ok(Heard::Sent) => return Ok(()),
            // A server answers a goodbye by closing.
            Err(_) if self.is_closed => return Ok(()),
            Err(problem) => return Err(problem),
        }
        while let Some(Completion {
            tag, result, work, ..
        }) = self.client.poll_completion()
        {
            let result = result.map_err(|error| IoError::Other(error.to_string()));
            finished.push(finish(tag, result, work));
        }
        Ok(())
    }

    fn close(&mut self) {
        self.client.disconnect();
        self.is_closed = true;
    }

    fn is_closed(&self) -> bool {
        self.is_closed && !self.client.has_output()
    }
}

impl Stream for UnixStream {
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(timeout)?;
        self.set_write_timeout(timeout)
    }

    fn into_fd(self) -> OwnedFd {
        self.into()
    }
}

fn put(gather: &mut Gather<'_>, data: &Arc<[u8]>) {
    if !gather.refer(data, &(0..data.len())) {
        gather.message.push_bytes(data);
    }
}

fn finish(tag: u64, result: Result<(), IoError>, work: Work) -> Finished {
    let data = match work {
        Work::Read {
            buffer: ReadBuffer::Into(buffer),
            ..
        } => Data::Keep(buffer),
        Work::Write { data, .. } => Data::Write(data),
        Work::Read {
            buffer: ReadBuffer::Discard,
            ..
        }
        | Work::Flush
        | Work::Trim { .. }
        | Work::WriteZeroes { .. }
        | Work::BlockStatus { .. } => Data::Discard,
    };
    Finished {
        // Tags are given out by `submit`, from 32 bits.
        tag: u32::try_from(tag).unwrap_or(u32::MAX),
        result,
        data,
    }
}

/// Finds the export, in blocking calls, and hands the stream over to the ring.
fn shake_hands(
    connector: &NbdConnector,
    mut stream: impl Stream,
    settings: LaneSettings,
) -> Result<NbdLane, BenchError> {
    let failed = |problem: String| BenchError::Login {
        target: connector.label.clone(),
        problem,
    };
    let (export, unread) = negotiate(&connector.export, &mut stream).map_err(failed)?;
    let mut client = Client::new(export, settings.depth);
    client
        .handle_bytes(&unread)
        .map_err(|violation| failed(violation.to_string()))?;
    Ok(NbdLane {
        client,
        pipe: Pipe::new(stream, settings.lane).map_err(|error| failed(error.to_string()))?,
        pattern: settings.pattern,
        is_closed: false,
        refused: Vec::new(),
    })
}

/// The export, and what was received behind the handshake. Errors are in words.
fn negotiate(name: &str, stream: &mut impl Stream) -> Result<(Export, Vec<u8>), String> {
    let broken = |error: io::Error| format!("handshake broken off: {}", words(&error));
    let mut handshake = Handshake::new(name).map_err(|error| error.to_string())?;
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let received = stream.read(&mut buffer).map_err(broken)?;
        if received == 0 {
            return Err("the server closed the connection; does it have this export?".to_owned());
        }
        let bytes = buffer.get(..received).unwrap_or_default();
        let progress = handshake.handle_bytes(bytes);
        let progress = progress.map_err(|error| format!("no export {name:?}: {error}"))?;
        stream.write_all(&handshake.take_output()).map_err(broken)?;
        match progress {
            Progress::Done(export) => return Ok((export, handshake.into_unread())),
            Progress::More => {}
            Progress::StartTls => return Err("the server begins TLS unasked".to_owned()),
        }
    }
}
