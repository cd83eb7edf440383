//! A handler in threads of the test, after the page. The memory is reached by its file, as nothing here may be unsafe.

use std::fs::File;
use std::io::{IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::lock;

/// A command that the handler has.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    line: Arc<Line>,
    slot: u32,
    pub(super) cdb: Vec<u8>,
    room: u32,
    place: u32,
    pub(super) data_out: Vec<u8>,
}

/// What it does.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) answer: [u8; 16],
    pub(super) device_type: u8,
    pub(super) serial: String,
    /// The status of INQUIRY of page 80h.
    pub(super) status: u32,
    /// Commands other than those of a look are kept.
    pub(super) holds: bool,
    pub(super) held: Vec<Taken>,
    /// CDBs that were carried out, but for those of a look.
    pub(super) log: Vec<Vec<u8>>,
    lines: Vec<Arc<Line>>,
}

/// A connection.
#[derive(Debug)]
struct Line {
    stream: UnixStream,
    memory: File,
    ended: Mutex<u32>,
}

#[derive(Debug)]
pub(super) struct Emulator {
    pub(super) path: PathBuf,
    pub(super) rules: Arc<Mutex<Rules>>,
}

impl Emulator {
    /// A serial number has 4 letters.
    pub(super) fn new(path: &Path, serial: &str) -> Self {
        let rules = Rules {
            answer: *b"TARNHDLR\x01\0\0\0\0\0\0\0",
            device_type: 0,
            serial: serial.to_owned(),
            status: 0,
            holds: false,
            held: Vec::new(),
            log: Vec::new(),
            lines: Vec::new(),
        };
        let emulator = Self {
            path: path.to_owned(),
            rules: Arc::new(Mutex::new(rules)),
        };
        emulator.listen();
        emulator
    }

    pub(super) fn listen(&self) {
        let listener = UnixListener::bind(&self.path).unwrap();
        let rules = Arc::clone(&self.rules);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (rules, stream) = (Arc::clone(&rules), stream.unwrap());
                thread::spawn(move || serve(stream, &rules));
            }
        });
    }

    pub(super) fn with<T>(&self, f: impl FnOnce(&mut Rules) -> T) -> T {
        f(&mut lock(&self.rules))
    }

    /// Ends all connections, and takes no new ones until [`Emulator::listen`].
    pub(super) fn die(&self) {
        std::fs::remove_file(&self.path).unwrap();
        self.with(|rules| {
            rules.held.clear();
            for line in rules.lines.drain(..) {
                let _gone = line.stream.shutdown(std::net::Shutdown::Both);
            }
        });
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.path);
    }
}

impl Line {
    fn number(&self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.memory.read_exact_at(&mut bytes, at).unwrap();
        u32::from_le_bytes(bytes)
    }

    fn set(&self, at: u64, value: u32) {
        self.memory.write_all_at(&value.to_le_bytes(), at).unwrap();
    }
}

impl Taken {
    /// Ends it, and says so.
    pub(super) fn end(&self, status: u32, data: &[u8], sense: &[u8]) {
        let Line {
            memory,
            ended,
            stream,
        } = &*self.line;
        let mut ended = lock(ended);
        let count = data.len().min(self.room as usize);
        memory
            .write_all_at(&data[..count], 65_536 + u64::from(self.place))
            .unwrap();
        let at = 24_576 + u64::from(*ended % 64) * 320;
        let moved = u32::try_from(data.len().max(self.data_out.len())).unwrap();
        let fields = [
            self.slot,
            status,
            moved,
            u32::try_from(sense.len()).unwrap(),
        ];
        for (field, value) in (0_u64..).zip(fields) {
            self.line.set(at + 4 * field, value);
        }
        memory.write_all_at(sense, at + 32).unwrap();
        *ended += 1;
        self.line.set(128, *ended);
        if self.line.number(192) == 1 {
            self.line.set(192, 0);
            let _gone = (&*stream).write_all(&[1]);
        }
    }
}

fn serve(stream: UnixStream, rules: &Mutex<Rules>) {
    let mut hello = [0; 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(
        &stream,
        &mut [IoSliceMut::new(&mut hello)],
        &mut control,
        flags,
    )
    .unwrap();
    let memory = control.drain().find_map(|message| {
        let RecvAncillaryMessage::ScmRights(mut descriptors) = message else {
            return None;
        };
        descriptors.next()
    });
    assert_eq!(&hello[..8], b"TARNHDLR");
    let line = Arc::new(Line {
        stream,
        memory: memory.unwrap().into(),
        ended: Mutex::new(0),
    });
    // It is always woken.
    line.set(64, 2);
    let answer = lock(rules).answer;
    lock(rules).lines.push(Arc::clone(&line));
    let mut stream = &line.stream;
    stream.write_all(&answer).unwrap();
    let mut done = 0;
    while stream.read(&mut [0; 64]).is_ok_and(|count| count > 0) {
        while done != line.number(0) {
            let command = take(&line, done);
            done += 1;
            carry_out(&command, rules);
        }
    }
}

fn take(line: &Arc<Line>, number: u32) -> Taken {
    let at = 4096 + u64::from(number % 64) * 320;
    let place = line.number(at + 16);
    let mut cdb = vec![0; line.number(at + 4) as usize];
    let mut data_out = vec![0; line.number(at + 8) as usize];
    line.memory.read_exact_at(&mut cdb, at + 60).unwrap();
    line.memory
        .read_exact_at(&mut data_out, 65_536 + u64::from(place))
        .unwrap();
    Taken {
        line: Arc::clone(line),
        slot: line.number(at),
        cdb,
        room: line.number(at + 12),
        place,
        data_out,
    }
}

fn carry_out(command: &Taken, rules: &Mutex<Rules>) {
    let mut rules = lock(rules);
    let (cdb, room) = (&command.cdb[..], command.room as usize);
    match (cdb[0], cdb[1]) {
        (0x12, 0) => {
            let mut inquiry = vec![b' '; 36];
            inquiry[..8].copy_from_slice(&[rules.device_type, 0, 6, 2, 31, 0, 0, 2]);
            command.end(0, &inquiry, &[]);
        }
        (0x12, 1) if cdb[2] == 0 => command.end(0, &[0, 0, 0, 2, 0, 0x80], &[]),
        (0x12, 1) if cdb[2] == 0x80 => {
            command.end(
                rules.status,
                &[&[0, 0x80, 0, 4], rules.serial.as_bytes()].concat(),
                &[],
            );
        }
        (0xa3, _) => command.end(
            2,
            &[],
            &[0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0],
        ),
        // What a look begins with.
        (0, 0) if cdb[5] == 0 => command.end(0, &[], &[]),
        _ => {
            rules.log.push(cdb.to_vec());
            match rules.holds {
                true => rules.held.push(command.clone()),
                false => command.end(0, &vec![cdb[5]; room], &[]),
            }
        }
    }
}
