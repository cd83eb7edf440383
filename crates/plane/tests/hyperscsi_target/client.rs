//! A client on a real socket.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyperscsi::{
    Attribute, ClientEvent, ClientSession, Command, Entropy, Found, Function, Level, Login,
    LoginError, LoginProgress, OpaqueClient, Opening, Page, Reply, Search, Settings, Wish,
    read_unknown_session,
};
use reactor::{Address, DatagramSocket, Event, Reactor, Site, Wait};

use crate::{ATTENTIONS_MAX, PATIENCE};

static SEEDS: AtomicU64 = AtomicU64::new(1);

/// Random enough, and another one each time.
pub(crate) fn entropy() -> Entropy {
    let mut seed = [0; 32];
    let number = SEEDS.fetch_add(1, Ordering::Relaxed);
    seed[..8].copy_from_slice(&number.to_be_bytes());
    Entropy::new(&seed)
}

/// A socket of a client, and its target.
pub(crate) struct Client {
    reactor: Reactor,
    socket: DatagramSocket,
    pub(crate) target: Address,
    pub(crate) number: [u8; 16],
    came: VecDeque<(Address, Vec<u8>)>,
}

impl Client {
    fn new(site: Site, target: impl FnOnce(&DatagramSocket) -> Address) -> Self {
        let mut reactor = Reactor::new(&reactor::Settings {
            pool_bytes: 16 << 20,
            frames: 64,
            frame_bytes: 9000,
            ..reactor::Settings::default()
        })
        .unwrap();
        let socket = site.into_sockets().next().unwrap().open().unwrap();
        let target = target(&socket);
        reactor.receive_datagrams(&socket, 1);
        Self {
            reactor,
            socket,
            target,
            number: entropy().bytes(),
            came: VecDeque::new(),
        }
    }

    /// A client at this address of the loopback.
    pub(crate) fn udp(host: [u8; 4], target: SocketAddr) -> Self {
        let site = Site::udp((host, 0).into(), 1, &[]).unwrap();
        Self::new(site, |_| Address::Inet(target))
    }

    /// A client at an interface. Its target is everybody, until it knows better.
    pub(crate) fn link(name: &str, protocol: u16) -> Self {
        let site = Site::interface(name, protocol, 1).unwrap();
        let socket = site.into_sockets().next().unwrap();
        let interface = socket.interface.clone().unwrap();
        // Once more, for the socket that is used.
        let site = Site::interface(name, protocol, 1).unwrap();
        Self::new(site, |socket| Address::Link {
            interface: interface.bind(socket).unwrap().index,
            hardware: [0xff; 6],
            protocol,
        })
    }

    pub(crate) fn now(&self) -> Duration {
        self.reactor.clock()
    }

    pub(crate) fn send(&mut self, frame: &[u8]) {
        let write = |room: &mut [u8]| {
            room[..frame.len()].copy_from_slice(frame);
            Some(frame.len())
        };
        let to = Some(self.target);
        self.reactor.send_datagram(&self.socket, 2, to, write);
    }

    /// The next frame, until this time.
    pub(crate) fn receive(&mut self, until: Duration) -> Option<(Address, Vec<u8>)> {
        loop {
            if let Some(frame) = self.came.pop_front() {
                return Some(frame);
            }
            let mut events = Vec::new();
            self.reactor.turn(Wait::Until(until), &mut events).unwrap();
            for event in events {
                match event {
                    Event::Datagram { result, .. } => {
                        let datagram = result.unwrap();
                        let from = datagram.sender().unwrap();
                        self.came.push_back((from, datagram.bytes().to_vec()));
                    }
                    // One that is too long for the path is lost.
                    Event::DatagramsSent { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            if self.came.is_empty() && self.reactor.clock() >= until {
                return None;
            }
        }
    }

    /// Looks for a server with this group.
    pub(crate) fn find(&mut self, group: &str) -> Found {
        let mut search = Search::new(self.now(), self.number, vec![group.to_owned()], entropy());
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(frame) = search.poll_frame(self.now()) {
                self.send(&frame);
            }
            if let Some((from, frame)) = self.receive(search.deadline())
                && let Some(found) = search.handle_frame(b"server", &frame)
            {
                self.target = from;
                return found.clone();
            }
        }
        panic!("nobody answers");
    }

    /// Logs in.
    pub(crate) fn login(
        mut self,
        group: &str,
        password: &str,
    ) -> Result<Session, (LoginError, Self)> {
        let mut random = entropy();
        let exchange = OpaqueClient::new(password.as_bytes(), &mut random).unwrap();
        let wish = Wish {
            client: self.number,
            group: group.to_owned(),
            user: None,
            slots: 8,
            window: 256,
            begun_bytes: 4 << 20,
            frame_bytes_max: 9000,
            bundles: true,
        };
        let settings = Settings {
            frame_bytes: 1280,
            frame_bytes_max: 8900,
            ..Settings::default()
        };
        let now = self.now();
        let mut login = Login::new(
            now,
            now + PATIENCE,
            wish,
            settings,
            [0; 16],
            exchange,
            random,
        );
        loop {
            let mut progress = login.handle_deadline(self.now());
            if let Some(frame) = login.poll_frame(self.now()) {
                self.send(&frame);
            }
            if let Some((_, frame)) = self.receive(login.deadline()) {
                progress = login.handle_frame(self.now(), &frame);
            }
            match progress {
                LoginProgress::Going => {}
                LoginProgress::Done(session) => {
                    return Ok(Session {
                        client: self,
                        session,
                        next_token: 0,
                    });
                }
                LoginProgress::Failed(error) => return Err((error, self)),
            }
        }
    }
}

/// A session of a client.
pub(crate) struct Session {
    pub(crate) client: Client,
    session: Box<ClientSession<Vec<u8>>>,
    next_token: u64,
}

/// What a command came to: status, sense data, data, residual.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) reply: Reply,
    pub(crate) data: Vec<u8>,
}

impl Done {
    pub(crate) fn status(&self) -> u8 {
        match self.reply.outcome {
            hyperscsi::Outcome::Status(status) => status,
            other @ (hyperscsi::Outcome::Aborted
            | hyperscsi::Outcome::NotOpen
            | hyperscsi::Outcome::Malformed
            | hyperscsi::Outcome::FunctionComplete
            | hyperscsi::Outcome::FunctionRejected) => panic!("{other:?}"),
        }
    }

    /// Sense key, ASC and ASCQ, in fixed format.
    pub(crate) fn sense(&self) -> (u8, u8, u8) {
        let sense = &self.reply.sense;
        (sense[2] & 0xf, sense[12], sense[13])
    }
}

impl Session {
    /// What its login has led to.
    pub(crate) fn terms(&self) -> &hyperscsi::Terms {
        self.session.terms()
    }

    /// Sends, receives and waits until this comes.
    pub(crate) fn wait<T>(&mut self, mut what: impl FnMut(ClientEvent) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        let mut buffer = vec![0; 9000];
        while Instant::now() < end {
            while let Some(event) = self.session.poll_event() {
                if let Some(found) = what(event) {
                    return found;
                }
            }
            let now = self.client.now();
            while let Some(length) = self.session.poll_frame(now, &mut buffer) {
                self.client.send(&buffer[..length]);
            }
            let second = now + Duration::from_secs(1);
            let until = self.session.deadline().unwrap_or(second).min(second);
            if let Some((_, frame)) = self.client.receive(until) {
                match read_unknown_session(&frame) {
                    Some(tag) => self.session.handle_unknown(tag),
                    None => self.session.handle_frame(self.client.now(), &frame),
                }
            }
            self.session.handle_deadline(self.client.now());
        }
        panic!("nothing came in time: {:?}", self.session.counters());
    }

    /// Sends and receives for so long.
    pub(crate) fn pause(&mut self, time: Duration) {
        let mut buffer = vec![0; 9000];
        let now = self.client.now();
        while let Some(length) = self.session.poll_frame(now, &mut buffer) {
            self.client.send(&buffer[..length]);
        }
        if let Some((_, frame)) = self.client.receive(now + time) {
            self.session.handle_frame(self.client.now(), &frame);
        }
        self.session.handle_deadline(self.client.now());
    }

    pub(crate) fn devices(&mut self) -> Page {
        let now = self.client.now();
        self.session.list(now, 0);
        self.wait(|event| match event {
            ClientEvent::Devices(page) => Some(page),
            other => panic!("{other:?}"),
        })
    }

    pub(crate) fn open(&mut self, device: u16, level: Level) -> Opening {
        let now = self.client.now();
        self.session.open(now, device, level);
        self.wait(|event| match event {
            ClientEvent::Opening { opening, .. } => Some(opening),
            other => panic!("{other:?}"),
        })
    }

    pub(crate) fn submit(&mut self, device: u16, cdb: &[u8], data: &[u8], room: u32) -> u64 {
        self.next_token += 1;
        let command = Command {
            attribute: Attribute::Simple,
            cdb: cdb.to_vec(),
            data_in_bytes: room,
            data_out_bytes: u32::try_from(data.len()).unwrap(),
        };
        let now = self.client.now();
        let token = self.next_token;
        self.session
            .submit(now, token, device, command, data.to_vec())
            .unwrap();
        token
    }

    pub(crate) fn answer(&mut self, wanted: u64) -> Done {
        self.wait(|event| match event {
            ClientEvent::Answer { token, reply, data } if token == wanted => Some(Done {
                reply,
                data: data.to_vec(),
            }),
            other => panic!("{other:?}"),
        })
    }

    pub(crate) fn run(&mut self, device: u16, cdb: &[u8], data: &[u8], room: u32) -> Done {
        let token = self.submit(device, cdb, data, room);
        self.answer(token)
    }

    /// The same behind the unit attentions.
    pub(crate) fn run_ready(&mut self, device: u16, cdb: &[u8], data: &[u8], room: u32) -> Done {
        let mut all = (0..ATTENTIONS_MAX).map(|_| self.run(device, cdb, data, room));
        let done = all.find(|done| done.status() != 2 || done.sense().0 != 6);
        done.unwrap()
    }

    pub(crate) fn manage(&mut self, device: u16, function: Function) -> Reply {
        self.next_token += 1;
        let (now, token) = (self.client.now(), self.next_token);
        self.session.manage(now, token, device, function).unwrap();
        self.answer(token).reply
    }

    /// Waits for the end of the session.
    pub(crate) fn end(&mut self) -> hyperscsi::EndReason {
        self.wait(|event| match event {
            ClientEvent::Ended(reason) => Some(reason),
            ClientEvent::Answer { .. }
            | ClientEvent::Lost { .. }
            | ClientEvent::Devices(_)
            | ClientEvent::Opening { .. } => None,
        })
    }

    pub(crate) fn close(mut self) -> Client {
        self.session.close();
        let now = self.client.now();
        let mut buffer = vec![0; 9000];
        while let Some(length) = self.session.poll_frame(now, &mut buffer) {
            self.client.send(&buffer[..length]);
        }
        self.client.receive(now);
        self.client
    }
}
