//! A server in memory: the target of the crate behind a UDP socket of loopback, with a disk of the test's.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hyperscsi::{
    Cookies, Device, Entropy, Gate, GateSettings, Group, Level, OpaqueTarget, Outcome, Reply,
    Responder, Settings, TargetEvent, TargetSession, TaskId, Wish,
};

use crate::scsi::testing::{BLOCK, Medium};

pub(super) const GROUP: &str = "G";
pub(super) const PASSWORD: &[u8] = b"correct horse";
const SLOTS: u16 = 16;

/// What the network does.
#[derive(Debug, Default)]
pub(super) struct Net {
    /// Milliseconds that the server thinks before it answers a command.
    pub(super) thinks: AtomicU64,
    /// Less than they are worth: what the residuals of good writes say was left over, in bytes.
    pub(super) left_over: AtomicU64,
    /// Each frame of this number is lost; 0: none.
    pub(super) drop_every: AtomicU64,
    frames: AtomicU64,
    /// Two frames change places now and then.
    pub(super) swaps: AtomicBool,
    /// Nothing comes through.
    pub(super) is_cut: AtomicBool,
    /// The sessions of all time, and those of now.
    pub(super) logins: AtomicUsize,
    pub(super) sessions: AtomicUsize,
}

impl Net {
    fn loses(&self) -> bool {
        let number = self.frames.fetch_add(1, Ordering::SeqCst) + 1;
        let every = self.drop_every.load(Ordering::SeqCst);
        self.is_cut.load(Ordering::SeqCst) || every > 0 && number.is_multiple_of(every)
    }
}

/// Who a server says that it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named(pub(super) [u8; 16], pub(super) &'static str);

#[derive(Debug)]
pub(super) struct Target {
    named: Named,
    /// Where it receives questions, besides its own address.
    broadcast: Option<UdpSocket>,
    socket: UdpSocket,
    pub(super) medium: Arc<Mutex<Medium>>,
    pub(super) net: Arc<Net>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Target {
    pub(super) fn new(size: usize) -> Self {
        Self::named(size, Named([9; 16], "s1"), None)
    }

    pub(super) fn named(size: usize, named: Named, broadcast: Option<UdpSocket>) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let mut target = Self {
            named,
            broadcast,
            socket,
            medium: Arc::new(Mutex::new(Medium::new(size))),
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
        let broadcast = self
            .broadcast
            .as_ref()
            .map(|broadcast| broadcast.try_clone().unwrap());
        let named = self.named;
        self.net.sessions.store(0, Ordering::SeqCst);
        // Ready before anybody asks: the work for the password takes long where many tests run.
        let server = Server::new(named, (socket, broadcast), medium, net);
        self.thread = Some(std::thread::spawn(move || server.run(&stop)));
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
    broadcast: Option<UdpSocket>,
    medium: Arc<Mutex<Medium>>,
    net: Arc<Net>,
    began: Instant,
    cookies: Cookies,
    responder: Responder,
    gate: Gate<OpaqueTarget, ()>,
    sessions: Vec<(SocketAddr, TargetSession<Vec<u8>>)>,
    numbers: u32,
    held: Vec<TaskId>,
    late: Option<(SocketAddr, Vec<u8>)>,
}

impl Server {
    fn new(
        Named(id, name): Named,
        (socket, broadcast): (UdpSocket, Option<UdpSocket>),
        medium: Arc<Mutex<Medium>>,
        net: Arc<Net>,
    ) -> Self {
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
            server: id,
            session: Settings {
                frame_bytes: 1280,
                ..Settings::default()
            },
        };
        Self {
            socket,
            broadcast,
            medium,
            net,
            began: Instant::now(),
            cookies: Cookies::new(&mut entropy),
            responder: Responder::new(id, name.to_owned(), vec![group]),
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
            let received = self
                .broadcast
                .as_ref()
                .map(|broadcast| broadcast.recv_from(&mut buffer));
            if let Some(Ok((count, from))) = received {
                self.take(from, &buffer[..count]);
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
        let (answer, proved) = self
            .gate
            .handle_frame(now, &self.cookies, (&address, ()), frame);
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
            self.net.logins.fetch_add(1, Ordering::SeqCst);
            self.send(from, &accepted.frame);
        }
    }

    fn turn(&mut self) {
        let now = self.began.elapsed();
        let mut sessions = std::mem::take(&mut self.sessions);
        let mut ended = Vec::new();
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
                        Some(answer) => {
                            let thinks = self.net.thinks.load(Ordering::SeqCst);
                            std::thread::park_timeout(Duration::from_millis(thinks));
                            let mut reply = Reply::of(Outcome::Status(answer.status));
                            if !data.is_empty() {
                                let left = self.net.left_over.load(Ordering::SeqCst);
                                reply.residual = -i32::try_from(left).unwrap();
                            }
                            reply.sense = answer.sense;
                            session.respond(now, id, reply, answer.data);
                        }
                        None => self.held.push(id),
                    },
                    TargetEvent::Management { id, task, .. } => {
                        if let Some(task) = task.filter(|task| self.held.contains(task)) {
                            medium.aborted += 1;
                            session.respond(now, task, Reply::of(Outcome::Aborted), Vec::new());
                        }
                        session.respond(now, id, Reply::of(Outcome::FunctionComplete), Vec::new());
                    }
                    TargetEvent::Opened { .. } => {}
                    TargetEvent::Ended(_) => ended.push(*to),
                }
            }
            drop(medium);
            while let Some(count) = session.poll_frame(now, &mut room) {
                self.send(*to, &room[..count]);
            }
        }
        sessions.retain(|(of, _)| !ended.contains(of));
        self.net.sessions.store(sessions.len(), Ordering::SeqCst);
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
