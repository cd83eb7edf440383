//! A server in memory: the target of the crate behind a UDP socket of loopback, and a disk that obeys its test.

use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hyperscsi::{
    Cookies, Device, Entropy, Gate, GateSettings, Group, Level, OpaqueTarget, Outcome, Reply,
    Responder, Settings, TargetEvent, TargetSession, TaskId, Wish,
};

pub(super) const GROUP: &str = "G";
pub(super) const PASSWORD: &[u8] = b"correct horse";
pub(super) const BLOCK: usize = 512;
const SLOTS: u16 = 16;

/// What the disk is and does.
#[derive(Debug)]
pub(super) struct Medium {
    pub(super) bytes: Vec<u8>,
    pub(super) designator: [u8; 16],
    pub(super) is_read_only: bool,
    /// Unit attentions to come: code and qualifier.
    pub(super) attentions: VecDeque<(u8, u8)>,
    /// So many commands find it busy.
    pub(super) busy: usize,
    /// Commands on the medium get no answer.
    pub(super) holds: bool,
    /// The sense key of a SYNCHRONIZE CACHE.
    pub(super) flush_fails: Option<u8>,
    /// How many commands of each opcode it has carried out.
    pub(super) counts: BTreeMap<u8, usize>,
    pub(super) unmapped: bool,
    pub(super) aborted: usize,
}

/// What the network does.
#[derive(Debug, Default)]
pub(super) struct Net {
    /// Each frame of this number is lost; 0: none.
    pub(super) drop_every: AtomicU64,
    frames: AtomicU64,
    /// Two frames change places now and then.
    pub(super) swaps: AtomicBool,
    /// Nothing comes through.
    pub(super) is_cut: AtomicBool,
}

impl Net {
    fn loses(&self) -> bool {
        let number = self.frames.fetch_add(1, Ordering::SeqCst) + 1;
        let every = self.drop_every.load(Ordering::SeqCst);
        self.is_cut.load(Ordering::SeqCst) || every > 0 && number.is_multiple_of(every)
    }
}

#[derive(Debug)]
pub(super) struct Target {
    socket: UdpSocket,
    pub(super) medium: Arc<Mutex<Medium>>,
    pub(super) net: Arc<Net>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Target {
    pub(super) fn new(size: usize) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let medium = Medium {
            bytes: vec![0; size],
            designator: [5; 16],
            is_read_only: false,
            attentions: VecDeque::from([(0x29, 0)]),
            busy: 0,
            holds: false,
            flush_fails: None,
            counts: BTreeMap::new(),
            unmapped: false,
            aborted: 0,
        };
        let mut target = Self {
            socket,
            medium: Arc::new(Mutex::new(medium)),
            net: Arc::default(),
            stop: Arc::default(),
            thread: None,
        };
        target.start();
        target
    }

    pub(super) fn port(&self) -> u16 {
        self.socket.local_addr().unwrap().port()
    }

    pub(super) fn medium(&self) -> MutexGuard<'_, Medium> {
        self.medium.lock().unwrap()
    }

    pub(super) fn start(&mut self) {
        self.stop = Arc::default();
        let socket = self.socket.try_clone().unwrap();
        let (medium, net, stop) = (
            Arc::clone(&self.medium),
            Arc::clone(&self.net),
            Arc::clone(&self.stop),
        );
        self.thread = Some(std::thread::spawn(move || {
            Server::new(socket, medium, net).run(&stop)
        }));
    }

    /// It drops all sessions, as a process that is killed.
    pub(super) fn kill(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Server {
    socket: UdpSocket,
    medium: Arc<Mutex<Medium>>,
    net: Arc<Net>,
    began: Instant,
    cookies: Cookies,
    responder: Responder,
    gate: Gate<OpaqueTarget>,
    sessions: Vec<(SocketAddr, TargetSession<Vec<u8>>)>,
    numbers: u32,
    held: Vec<TaskId>,
    late: Option<(SocketAddr, Vec<u8>)>,
}

impl Server {
    fn new(socket: UdpSocket, medium: Arc<Mutex<Medium>>, net: Arc<Net>) -> Self {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).unwrap();
        let mut entropy = Entropy::new(&seed);
        let group = Group {
            name: GROUP.to_owned(),
            is_open: false,
        };
        let exchange = OpaqueTarget::new(&mut entropy);
        let credential = Wish::credential(GROUP, None);
        let record = exchange
            .record(&credential, PASSWORD, &mut entropy)
            .unwrap();
        let settings = GateSettings {
            server: [9; 16],
            session: Settings {
                frame_bytes: 1280,
                ..Settings::default()
            },
        };
        Self {
            socket,
            medium,
            net,
            began: Instant::now(),
            cookies: Cookies::new(&mut entropy),
            responder: Responder::new([9; 16], "s1".to_owned(), vec![group]),
            gate: Gate::new(
                settings,
                exchange,
                BTreeMap::from([(credential, record)]),
                Entropy::new(&entropy.bytes()),
            ),
            sessions: Vec::new(),
            numbers: 1,
            held: Vec::new(),
            late: None,
        }
    }

    fn run(mut self, stop: &AtomicBool) {
        let mut buffer = vec![0; 9000];
        while !stop.load(Ordering::SeqCst) {
            if let Ok((count, from)) = self.socket.recv_from(&mut buffer)
                && !self.net.loses()
            {
                let frame = buffer[..count].to_vec();
                let swaps = self.net.swaps.load(Ordering::SeqCst) && count % 3 == 0;
                match self.late.take() {
                    None if swaps => self.late = Some((from, frame)),
                    late => {
                        self.take(from, &frame);
                        if let Some((from, frame)) = late {
                            self.take(from, &frame);
                        }
                    }
                }
            } else if let Some((from, frame)) = self.late.take() {
                self.take(from, &frame);
            }
            self.turn();
        }
    }

    fn send(&self, to: SocketAddr, frame: &[u8]) {
        if !self.net.loses() {
            self.socket.send_to(frame, to).unwrap();
        }
    }

    fn take(&mut self, from: SocketAddr, frame: &[u8]) {
        let now = self.began.elapsed();
        let tag = hyperscsi::FragmentHeader::decode(*frame.first_chunk().unwrap()).tag;
        if tag != 0 {
            match self.sessions.iter_mut().find(|(of, _)| *of == from) {
                Some((_, session)) => session.handle_frame(now, frame),
                None => self.send(from, &hyperscsi::unknown_session(tag)),
            }
            return;
        }
        let address = from.to_string().into_bytes();
        if let Some((_, answer)) = self
            .responder
            .handle_frame(now, &self.cookies, &address, frame)
        {
            self.send(from, &answer);
        }
        let (answer, proved) = self.gate.handle_frame(now, &self.cookies, &address, frame);
        if let Some(answer) = answer {
            self.send(from, &answer);
        }
        if let Some(proved) = proved {
            self.numbers += 1;
            let devices = vec![device(&self.medium.lock().unwrap())];
            let accepted = self
                .gate
                .accept(now, proved.login, (self.numbers, 1, SLOTS), devices);
            let accepted = accepted.unwrap();
            self.sessions.retain(|(of, _)| *of != from);
            self.sessions.push((from, accepted.session));
            self.send(from, &accepted.frame);
        }
    }

    fn turn(&mut self) {
        let now = self.began.elapsed();
        let mut sessions = std::mem::take(&mut self.sessions);
        let mut room = vec![0; 9000];
        for (to, session) in &mut sessions {
            if session.deadline().is_some_and(|at| at <= now) {
                session.handle_deadline(now);
            }
            let mut medium = self.medium.lock().unwrap();
            if !medium.holds {
                // What was held is not carried out: its session may have gone.
                self.held.clear();
            }
            while let Some(event) = session.poll_event() {
                match event {
                    TargetEvent::Command {
                        id, command, data, ..
                    } => match medium.execute(&command.cdb, &data) {
                        Some((reply, data)) => session.respond(now, id, reply, data),
                        None => self.held.push(id),
                    },
                    TargetEvent::Management { id, task, .. } => {
                        if let Some(task) = task.filter(|task| self.held.contains(task)) {
                            medium.aborted += 1;
                            session.respond(now, task, Reply::of(Outcome::Aborted), Vec::new());
                        }
                        session.respond(now, id, Reply::of(Outcome::FunctionComplete), Vec::new());
                    }
                    TargetEvent::Opened { .. } | TargetEvent::Ended(_) => {}
                }
            }
            drop(medium);
            while let Some(count) = session.poll_frame(now, &mut room) {
                self.send(*to, &room[..count]);
            }
        }
        self.sessions = sessions;
    }
}

fn device(medium: &Medium) -> Device {
    Device {
        handle: 3,
        level: Level::Hash,
        is_read_only: medium.is_read_only,
        is_removable: false,
        peripheral_type: 0,
        block_bytes: 512,
        blocks: (medium.bytes.len() / BLOCK) as u64,
        data_max_bytes: 256 << 10,
        designator: medium.designator,
        name: "disk".to_owned(),
    }
}

fn good(data: Vec<u8>) -> (Reply, Vec<u8>) {
    (Reply::of(Outcome::Status(0)), data)
}

fn check(key: u8, code: u8, qualifier: u8, information: u32) -> (Reply, Vec<u8>) {
    let mut sense = vec![0xf0, 0, key];
    sense.extend(information.to_be_bytes());
    sense.extend([10, 0, 0, 0, 0, code, qualifier, 0, 0, 0, 0]);
    let mut reply = Reply::of(Outcome::Status(2));
    reply.sense = sense;
    (reply, Vec::new())
}

impl Medium {
    /// Carries a command out; `None`: it is held.
    fn execute(&mut self, cdb: &[u8], data: &[u8]) -> Option<(Reply, Vec<u8>)> {
        let is_of_medium = matches!(cdb[0], 0x88 | 0x89 | 0x8a | 0x91 | 0x93);
        if is_of_medium && self.holds {
            return None;
        }
        if cdb[0] != 0x12
            && let Some((code, qualifier)) = self.attentions.pop_front()
        {
            return Some(check(6, code, qualifier, 0));
        }
        if is_of_medium && self.busy > 0 {
            self.busy -= 1;
            return Some((Reply::of(Outcome::Status(8)), Vec::new()));
        }
        *self.counts.entry(cdb[0]).or_default() += 1;
        Some(match is_of_medium {
            true => self.work(cdb, data),
            false => self.describe(cdb),
        })
    }

    /// What it is.
    fn describe(&self, cdb: &[u8]) -> (Reply, Vec<u8>) {
        match (cdb[0], cdb[1] & 0x1f) {
            (0x12, 0) => good(vec![0; 36]),
            (0x12, _) => self.page(cdb[2]),
            (0x5a, _) => {
                let flags = 0x10 | u8::from(self.is_read_only) << 7;
                let mut page = vec![0, 0, 0, flags, 0, 0, 0, 0, 0x08, 18, 0x04];
                page.resize(28, 0);
                good(page)
            }
            (0x9e, 0x10) => {
                let blocks = (self.bytes.len() / BLOCK) as u64;
                let mut capacity = (blocks - 1).to_be_bytes().to_vec();
                capacity.extend([0, 0, 2, 0, 0, 3, 0xc0, 0]);
                capacity.resize(32, 0);
                good(capacity)
            }
            (0x9e, 0x12) => {
                let mut status = vec![0, 0, 0, 20, 0, 0, 0, 0];
                status.extend(&cdb[2..10]);
                status.extend(u32::MAX.to_be_bytes());
                status.extend([u8::from(self.unmapped), 0, 0, 0]);
                good(status)
            }
            _ => check(5, 0x20, 0, 0),
        }
    }

    /// What it does with its data.
    fn work(&mut self, cdb: &[u8], data: &[u8]) -> (Reply, Vec<u8>) {
        let lba = u64::from_be_bytes(cdb[2..10].try_into().unwrap());
        let count = match cdb[0] {
            0x89 => cdb[13].into(),
            _ => u32::from_be_bytes(cdb[10..14].try_into().unwrap()),
        };
        let start = usize::try_from(lba).unwrap() * BLOCK;
        let length = count as usize * BLOCK;
        if cdb[0] == 0x91 {
            return match self.flush_fails {
                Some(key) => check(key, 0x0c, 0, 0),
                None => good(Vec::new()),
            };
        }
        let Some(place) = self.bytes.get_mut(start..start + length) else {
            return check(5, 0x21, 0, 0);
        };
        match cdb[0] {
            0x88 => good(place.to_vec()),
            0x8a => {
                place.copy_from_slice(data);
                good(Vec::new())
            }
            0x93 => {
                self.unmapped = cdb[1] & 0x08 != 0;
                let blocks = place.chunks_mut(BLOCK);
                blocks.for_each(|block| block.copy_from_slice(data));
                good(Vec::new())
            }
            _ => {
                let (expected, new) = data.split_at(length);
                match place.iter().zip(expected).position(|(a, b)| a != b) {
                    Some(at) => check(0x0e, 0x1d, 0, u32::try_from(at).unwrap()),
                    None => {
                        place.copy_from_slice(new);
                        good(Vec::new())
                    }
                }
            }
        }
    }

    fn page(&self, page: u8) -> (Reply, Vec<u8>) {
        let mut data = vec![0, page, 0, 60];
        data.resize(64, 0);
        match page {
            0xb0 => {
                data[5] = 8;
                data[36..44].copy_from_slice(&4096_u64.to_be_bytes());
            }
            0xb1 => data[5] = 1,
            0xb2 => data[5] = 0xe0,
            _ => return check(5, 0x24, 0, 0),
        }
        good(data)
    }
}
