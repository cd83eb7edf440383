//! One connection: the handshake, TLS, and the jobs under way on it.

use std::io::{Read, Write};
use std::rc::Rc;

use memory::{Buffer, Message};
use nbd::{Export, Handshake, Progress};
use rustls::ClientConnection;
use store::{Outlet, SocketResult, SocketTag, SocketWork};

use super::job::{self, Job, JobClient, Space};
use super::tls::Tls;

/// Jobs under way on one connection.
const DEPTH: u32 = 128;
/// How much goes into one send.
const SEND_BYTES_MAX: usize = 1 << 20;
/// The same where it has to be encrypted first.
const SEND_TLS_BYTES_MAX: usize = 256 << 10;
/// Data of at least so many bytes is received straight into its buffer.
const STRAIGHT_BYTES_MIN: usize = 16 << 10;
/// How much is decrypted at a time.
const DECRYPT_BYTES: usize = 16 << 10;
/// The numbers of the operations on a socket.
const RECEIVE: u64 = 0;
const SEND: u64 = 1;

/// What happened on a connection.
#[derive(Debug)]
pub(super) enum Happened {
    /// Nothing that concerns others; jobs may be done.
    Progress,
    /// The handshake led to this export. [`Link::begin_jobs`] or [`Link::close`] follows.
    Found(Export),
    /// The connection is of no more use, for this reason. [`Link::close`] follows.
    Broken(String),
}

#[derive(Debug)]
enum Stage {
    /// Finding the export.
    Shaking(Box<Handshake>),
    /// The export was found; nobody has looked at it yet. These bytes came behind it.
    Found(Vec<u8>),
    /// Carrying jobs out.
    Up(Box<JobClient>),
    /// Waiting for what is under way to end.
    Closing(Option<Box<JobClient>>),
}

/// A connection of one handle.
#[derive(Debug)]
pub(super) struct Link {
    socket: SocketTag,
    stage: Stage,
    tls: Option<Box<ClientConnection>>,
    /// Output of the handshake.
    output: Vec<u8>,
    is_receiving: bool,
    /// How much the receive brings that is under way straight into a buffer, in bytes.
    straight_bytes: usize,
    is_sending: bool,
    has_settled: bool,
}

impl Link {
    /// A connection whose socket is open under this name.
    pub(super) fn new(socket: SocketTag, handshake: Handshake, outlet: &mut Outlet) -> Self {
        let mut link = Self {
            socket,
            stage: Stage::Shaking(Box::new(handshake)),
            tls: None,
            output: Vec::new(),
            is_receiving: false,
            straight_bytes: 0,
            is_sending: false,
            has_settled: false,
        };
        link.pump(outlet);
        link
    }

    pub(super) const fn socket(&self) -> SocketTag {
        self.socket
    }

    /// How many more jobs it takes.
    pub(super) fn room(&self) -> usize {
        match &self.stage {
            Stage::Up(client) => (DEPTH as usize).saturating_sub(client.in_flight()),
            Stage::Shaking(_) | Stage::Found(_) | Stage::Closing(_) => 0,
        }
    }

    pub(super) const fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Up(_))
    }

    /// It has not found its export.
    pub(super) const fn is_shaking(&self) -> bool {
        matches!(self.stage, Stage::Shaking(_) | Stage::Found(_))
    }

    /// It has been up for a while.
    pub(super) const fn settle(&mut self) {
        self.has_settled = true;
    }

    pub(super) const fn has_settled(&self) -> bool {
        self.has_settled
    }

    /// The export is the right one.
    pub(super) fn begin_jobs(&mut self, export: Export) -> Happened {
        let Stage::Found(unread) = &mut self.stage else {
            return Happened::Broken("the connection has no export".to_owned());
        };
        let unread = std::mem::take(unread);
        self.stage = Stage::Up(Box::new(JobClient::new(export, DEPTH)));
        match self.handle_plain(&unread, None) {
            Ok(_) => Happened::Progress,
            Err(reason) => Happened::Broken(reason),
        }
    }

    /// Takes a job over; it comes back if there is no room.
    pub(super) fn submit(&mut self, job: Job) -> Result<(), Box<Job>> {
        match &mut self.stage {
            Stage::Up(client) => client.submit(job).map_err(|(_, job)| job),
            Stage::Shaking(_) | Stage::Found(_) | Stage::Closing(_) => Err(Box::new(job)),
        }
    }

    /// A job that is done.
    pub(super) fn poll(&mut self) -> Option<nbd::Completion<Space, job::Data>> {
        match &mut self.stage {
            Stage::Up(client) | Stage::Closing(Some(client)) => client.poll_completion(),
            Stage::Shaking(_) | Stage::Found(_) | Stage::Closing(None) => None,
        }
    }

    /// Closes the socket. The jobs can be had when [`Link::is_idle`].
    pub(super) fn close(&mut self, outlet: &mut Outlet) {
        let stage = std::mem::replace(&mut self.stage, Stage::Closing(None));
        self.stage = match stage {
            Stage::Up(client) => Stage::Closing(Some(client)),
            Stage::Closing(client) => {
                self.stage = Stage::Closing(client);
                return;
            }
            Stage::Shaking(_) | Stage::Found(_) => Stage::Closing(None),
        };
        outlet.close_socket(self.socket);
    }

    /// It is closed, and nothing is under way on the socket.
    pub(super) const fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Closing(_)) && !self.is_receiving && !self.is_sending
    }

    /// What was under way when it was closed.
    pub(super) fn into_jobs(self) -> Vec<Job> {
        match self.stage {
            Stage::Up(client) | Stage::Closing(Some(client)) => client.into_requests().collect(),
            Stage::Shaking(_) | Stage::Found(_) | Stage::Closing(None) => Vec::new(),
        }
    }

    /// An operation on the socket is over.
    pub(super) fn handle(&mut self, result: SocketResult, tls: Option<&Tls>) -> Happened {
        let outcome = match result {
            SocketResult::Received(result) => {
                self.is_receiving = false;
                self.handle_received(result, tls)
            }
            SocketResult::ReceivedExact { buffer, result } => {
                self.is_receiving = false;
                self.handle_straight(buffer, result)
            }
            SocketResult::Sent { message, result } => {
                self.is_sending = false;
                drop(message);
                match result {
                    Ok(()) => Ok(Happened::Progress),
                    Err(errno) => Err(reason(errno)),
                }
            }
        };
        match outcome {
            // What comes in while it closes concerns nobody.
            Ok(_) | Err(_) if matches!(self.stage, Stage::Closing(_)) => Happened::Progress,
            Ok(happened) => happened,
            Err(reason) => Happened::Broken(reason),
        }
    }

    fn handle_received(
        &mut self,
        result: Result<(Rc<Buffer>, usize), i32>,
        tls: Option<&Tls>,
    ) -> Result<Happened, String> {
        if matches!(self.stage, Stage::Closing(_)) {
            return Ok(Happened::Progress);
        }
        let (chunk, count) = result.map_err(reason)?;
        if count == 0 {
            return Err("the server closed the connection".to_owned());
        }
        let bytes = chunk.get(..count).unwrap_or_default();
        if self.tls.is_none() {
            return self.handle_plain(bytes, tls);
        }
        self.handle_encrypted(bytes, tls)
    }

    fn handle_encrypted(
        &mut self,
        mut bytes: &[u8],
        tls: Option<&Tls>,
    ) -> Result<Happened, String> {
        let mut happened = Happened::Progress;
        let mut plain = [0; DECRYPT_BYTES];
        while !bytes.is_empty() {
            let Some(connection) = &mut self.tls else {
                break;
            };
            connection
                .read_tls(&mut bytes)
                .map_err(|error| error.to_string())?;
            connection
                .process_new_packets()
                .map_err(|error| format!("TLS failed: {error}"))?;
            while let Some(connection) = &mut self.tls {
                let count = match connection.reader().read(&mut plain) {
                    Ok(0) => return Err("the server closed the connection".to_owned()),
                    Ok(count) => count,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.to_string()),
                };
                let bytes = plain.get(..count).unwrap_or_default();
                match self.handle_plain(bytes, tls)? {
                    Happened::Progress => {}
                    found @ (Happened::Found(_) | Happened::Broken(_)) => happened = found,
                }
            }
        }
        Ok(happened)
    }

    /// Bytes of the protocol.
    fn handle_plain(&mut self, bytes: &[u8], tls: Option<&Tls>) -> Result<Happened, String> {
        match &mut self.stage {
            Stage::Up(client) => {
                let followed = client.handle_bytes(bytes);
                followed
                    .map_err(|violation| format!("the server broke the protocol: {violation}"))?;
                Ok(Happened::Progress)
            }
            Stage::Found(unread) => {
                unread.extend_from_slice(bytes);
                Ok(Happened::Progress)
            }
            Stage::Closing(_) => Ok(Happened::Progress),
            Stage::Shaking(handshake) => {
                let progress = handshake.handle_bytes(bytes);
                let progress = progress.map_err(|error| error.to_string())?;
                self.output.append(&mut handshake.take_output());
                match progress {
                    Progress::More => Ok(Happened::Progress),
                    Progress::StartTls => {
                        let tls = tls.ok_or("the server begins TLS unasked")?;
                        let connection = tls.connection().map_err(|error| error.to_string())?;
                        self.tls = Some(Box::new(connection));
                        Ok(Happened::Progress)
                    }
                    Progress::Done(export) => {
                        let stage = Stage::Found(Vec::new());
                        if let Stage::Shaking(handshake) = std::mem::replace(&mut self.stage, stage)
                        {
                            self.stage = Stage::Found(handshake.into_unread());
                        }
                        Ok(Happened::Found(export))
                    }
                }
            }
        }
    }

    /// Data is in the buffer it is for.
    fn handle_straight(
        &mut self,
        buffer: Buffer,
        result: Result<usize, i32>,
    ) -> Result<Happened, String> {
        let (Stage::Up(client) | Stage::Closing(Some(client))) = &mut self.stage else {
            return Ok(Happened::Progress);
        };
        let count = *result.as_ref().unwrap_or(&0);
        let followed = client.take_back(Space::Pool(buffer), count);
        result.map_err(reason)?;
        followed.map_err(|violation| format!("the server broke the protocol: {violation}"))?;
        if count < self.straight_bytes {
            // A receive of a fixed length is short at the end of the stream only.
            return Err("the server closed the connection".to_owned());
        }
        Ok(Happened::Progress)
    }

    /// Keeps the socket busy.
    pub(super) fn pump(&mut self, outlet: &mut Outlet) {
        if matches!(self.stage, Stage::Closing(_) | Stage::Found(_)) {
            return;
        }
        if !self.is_receiving {
            self.is_receiving = true;
            let work = self.straight().unwrap_or(SocketWork::Receive);
            outlet.on_socket(self.socket, RECEIVE, work);
        }
        if !self.is_sending {
            let message = self.message();
            if !message.is_empty() {
                self.is_sending = true;
                outlet.on_socket(self.socket, SEND, SocketWork::Send(message));
            }
        }
    }

    /// The data that comes next, if it is long and in clear text.
    fn straight(&mut self) -> Option<SocketWork> {
        let Stage::Up(client) = &mut self.stage else {
            return None;
        };
        if self.tls.is_some() {
            return None;
        }
        match client.lend(STRAIGHT_BYTES_MIN)? {
            (Space::Pool(buffer), range) => {
                self.straight_bytes = range.len();
                Some(SocketWork::ReceiveExact { buffer, range })
            }
            (own @ Space::Own(_), _) => {
                let nothing_new = client.take_back(own, 0);
                debug_assert_eq!(nothing_new, Ok(()));
                None
            }
        }
    }

    fn message(&mut self) -> Message {
        let mut message = Message::default();
        match (&mut self.tls, &mut self.stage) {
            (None, Stage::Up(client)) => {
                client.transmit(SEND_BYTES_MAX, |piece| job::put(&mut message, &piece));
            }
            (None, _) => message.push_bytes(&std::mem::take(&mut self.output)),
            (Some(connection), stage) => {
                let mut writer = connection.writer();
                // Into memory without a limit, which cannot fail.
                drop(writer.write_all(&std::mem::take(&mut self.output)));
                if let Stage::Up(client) = stage {
                    client.transmit(SEND_TLS_BYTES_MAX, |piece| {
                        drop(writer.write_all(job::bytes_of(&piece)));
                    });
                }
                let mut bytes = Vec::new();
                while connection.wants_write() {
                    drop(connection.write_tls(&mut bytes));
                }
                message.push_bytes(&bytes);
            }
        }
        message
    }
}

fn reason(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno.abs()).to_string();
    let words = text.split(" (os error").next().unwrap_or_default();
    format!("the connection broke: {words}")
}
