//! A server in memory, a step at a time.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};

use super::SIZE;

fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let field = &bytes[at..at + N];
    field
        .iter()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn index(bytes: &[u8], at: usize) -> usize {
    usize::try_from(number::<4>(bytes, at)).unwrap()
}

fn take(bytes: &mut Vec<u8>, count: usize) -> Vec<u8> {
    bytes.drain(..count).collect()
}

/// The end of one connection at the server.
#[derive(Debug, Default)]
pub(super) struct Connection {
    pub(super) has_greeted: bool,
    pub(super) has_begun: bool,
    pub(super) received: Vec<u8>,
    /// Bytes of the protocol that the server sends.
    output: Vec<u8>,
    /// What is on its way to the client.
    pub(super) line: VecDeque<u8>,
    /// Its server is no more, and nobody knows.
    pub(super) is_dead: bool,
    tls: Option<Box<ServerConnection>>,
}

impl Connection {
    /// The client has sent this.
    pub(super) fn receive(&mut self, mut bytes: &[u8]) {
        let Some(tls) = &mut self.tls else {
            self.received.extend(bytes);
            return;
        };
        while !bytes.is_empty() {
            tls.read_tls(&mut bytes).unwrap();
            // A client that does not trust the server says so and goes.
            let Ok(state) = tls.process_new_packets() else {
                return;
            };
            let at = self.received.len();
            self.received
                .resize(at + state.plaintext_bytes_to_read(), 0);
            tls.reader().read_exact(&mut self.received[at..]).unwrap();
        }
    }

    /// The server sends no more by TLS.
    pub(super) fn close_tls(&mut self) {
        self.tls.as_mut().unwrap().send_close_notify();
        self.send();
    }

    /// Puts what the server sends on its way. False: there is nothing.
    fn send(&mut self) -> bool {
        let before = self.line.len();
        match &mut self.tls {
            None => self.line.extend(self.output.drain(..)),
            Some(tls) => {
                tls.writer().write_all(&self.output).unwrap();
                self.output.clear();
                let mut sealed = Vec::new();
                while tls.wants_write() {
                    tls.write_tls(&mut sealed).unwrap();
                }
                self.line.extend(sealed);
            }
        }
        self.line.len() > before
    }
}

#[derive(Debug)]
pub(super) struct Server {
    /// With everything that was written.
    pub(super) disk: Vec<u8>,
    /// What outlives a crash.
    pub(super) stable: Vec<u8>,
    pub(super) size: u64,
    pub(super) block_min: u32,
    pub(super) flags: u16,
    pub(super) has_chunks: bool,
    pub(super) payload_max: u32,
    /// Takes bytes and answers nothing.
    pub(super) is_silent: bool,
    /// Answers every request with this error.
    pub(super) error: u32,
    /// Fails so many flushes with the report of a lost cache.
    pub(super) reports: u32,
    pub(super) connections: usize,
    /// Clients have to begin TLS.
    pub(super) tls: Option<Arc<ServerConfig>>,
    /// A letter for each request.
    pub(super) log: String,
}

impl Server {
    pub(super) fn new(flags: u16, has_chunks: bool, payload_max: u32) -> Self {
        Self {
            disk: vec![0; SIZE],
            stable: vec![0; SIZE],
            size: SIZE as u64,
            block_min: 512,
            flags,
            has_chunks,
            payload_max,
            is_silent: false,
            error: 0,
            reports: 0,
            connections: 0,
            tls: None,
            log: String::new(),
        }
    }

    fn reply(&self, connection: &mut Connection, option: u32, kind: u32, data: &[u8]) {
        assert!(!self.is_silent);
        let output = &mut connection.output;
        output.extend(0x0003_e889_0455_65a9_u64.to_be_bytes());
        output.extend(option.to_be_bytes());
        output.extend(kind.to_be_bytes());
        output.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        output.extend(data);
    }

    /// Takes one message; false when none is whole, and nothing is to be sent.
    pub(super) fn step(&mut self, connection: &mut Connection) -> bool {
        if self.is_silent || connection.is_dead {
            return false;
        }
        let has_taken = self.take_message(connection);
        connection.send() || has_taken
    }

    fn take_message(&mut self, connection: &mut Connection) -> bool {
        if !connection.has_greeted {
            connection.has_greeted = true;
            connection.output.extend(b"NBDMAGICIHAVEOPT\0\x03");
            self.connections += 1;
            connection.received.reserve(64);
            return true;
        }
        if connection.has_begun {
            return self.request(connection);
        }
        let received = &mut connection.received;
        // The client's flags come before its first option.
        let skip = if received.starts_with(&[0, 0, 0, 3]) {
            4
        } else {
            0
        };
        if received.len() < skip + 16 || received.len() < skip + 16 + index(received, skip + 12) {
            return false;
        }
        take(received, skip);
        let length = index(received, 12);
        let option = u32::try_from(number::<4>(received, 8)).unwrap();
        take(received, 16 + length);
        match option {
            5 if self.tls.is_none() => self.reply(connection, 5, 0x8000_0001, &[]),
            5 => {
                self.reply(connection, 5, 1, &[]);
                connection.send();
                let config = self.tls.clone().unwrap();
                let mut tls = ServerConnection::new(config).unwrap();
                tls.set_buffer_limit(None);
                connection.tls = Some(Box::new(tls));
            }
            _ if self.tls.is_some() && connection.tls.is_none() => {
                self.reply(connection, option, 0x8000_0005, b"TLS comes first");
            }
            8 if self.has_chunks => self.reply(connection, 8, 1, &[]),
            8 => self.reply(connection, 8, 0x8000_0001, &[]),
            10 => {
                self.reply(connection, 10, 4, b"\0\0\0\x01base:allocation");
                self.reply(connection, 10, 1, &[]);
            }
            7 => {
                let size = self.size.to_be_bytes();
                let export = [&[0, 0][..], &size, &self.flags.to_be_bytes()].concat();
                self.reply(connection, 7, 3, &export);
                let preferred = self.block_min.max(4096);
                let sizes = [self.block_min, preferred, self.payload_max];
                let sizes = sizes.map(u32::to_be_bytes).concat();
                self.reply(connection, 7, 3, &[&[0, 3][..], &sizes].concat());
                self.reply(connection, 7, 1, &[]);
                connection.has_begun = true;
            }
            other => panic!("option {other}"),
        }
        true
    }

    fn request(&mut self, connection: &mut Connection) -> bool {
        let received = &mut connection.received;
        if received.len() < 28 {
            return false;
        }
        let command = number::<2>(received, 6);
        let length = index(received, 24);
        let data_len = if command == 1 { length } else { 0 };
        if received.len() < 28 + data_len {
            return false;
        }
        let header = take(received, 28);
        let data = take(received, data_len);
        assert_eq!(number::<4>(&header, 0), 0x2560_9513);
        assert!(!matches!(command, 0 | 1) || length <= self.payload_max as usize);
        let flags = number::<2>(&header, 4);
        let start = usize::try_from(number::<8>(&header, 16)).unwrap();
        let place = start..start + length;
        let name = ["r", "w", "d", "f", "t", "?", "z", "b"][usize::try_from(command).unwrap()];
        self.log += name;
        if flags & 1 != 0 {
            self.log += "!";
        }
        let mut extents = None;
        let mut bytes = Vec::new();
        match command {
            _ if self.error != 0 => {}
            0 => bytes = self.disk[place].to_vec(),
            1 => self.disk[place.clone()].copy_from_slice(&data),
            3 => self.stable.clone_from(&self.disk),
            6 => self.disk[place].fill(0),
            7 => extents = Some(self.extents(place)),
            other => panic!("command {other}"),
        }
        if flags & 1 != 0 {
            self.stable.clone_from(&self.disk);
        }
        let output = &mut connection.output;
        let cookie = &header[8..16];
        if command == 3 && self.reports > 0 {
            self.reports -= 1;
            output.extend(0x668e_33ef_u32.to_be_bytes());
            output.extend([0, 1, 0x80, 1]);
            output.extend(cookie);
            output.extend(b"\0\0\0\x16\0\0\0\x05\0\x10tarn: cache lost");
            return true;
        }
        if let Some(extents) = extents {
            output.extend(0x668e_33ef_u32.to_be_bytes());
            output.extend([0, 1, 0, 5]);
            output.extend(cookie);
            output.extend(u32::try_from(4 + extents.len()).unwrap().to_be_bytes());
            output.extend(1_u32.to_be_bytes());
            output.extend(extents);
        } else {
            output.extend(0x6744_6698_u32.to_be_bytes());
            output.extend(self.error.to_be_bytes());
            output.extend(cookie);
            output.extend(bytes);
        }
        true
    }

    /// Blocks of zeros are holes.
    fn extents(&self, place: std::ops::Range<usize>) -> Vec<u8> {
        let blocks = self.disk[place].chunks(4096);
        let entry = |block: &[u8]| {
            let state: u32 = if block.iter().all(|byte| *byte == 0) {
                3
            } else {
                0
            };
            [u32::try_from(block.len()).unwrap(), state]
                .map(u32::to_be_bytes)
                .concat()
        };
        blocks.flat_map(entry).collect()
    }
}
