//! Any bytes into every parser and machine here: functions that panic when something does not hold that must.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::client::{ClientEvent, ClientSession};
use crate::command::{Attribute, Command, Function, Outcome, Reply, Request};
use crate::control::{Ack, Probe};
use crate::device::{Device, Inquiry};
use crate::discovery::{Cookies, Group, Responder, Search};
use crate::exchange::{OpaqueTarget, TargetExchange as _};
use crate::frame::FragmentHeader;
use crate::keys::{Entropy, Keys};
use crate::limits::FRAME_MAX_BYTES;
use crate::link::{Settings, Terms};
use crate::login::{Gate, GateSettings, Wish};
use crate::pdu::{Header, Level, Opcode};
use crate::plain;
use crate::target::{TargetEvent, TargetSession};

/// Every layout: what is read is written the same.
pub fn pdu(bytes: &[u8]) {
    if let Some(head) = bytes.first_chunk() {
        assert_eq!(FragmentHeader::decode(*head).encode(), *head);
    }
    if let Some(header) = Header::decode(bytes) {
        assert_eq!(Header::decode(&header.encode()), Some(header));
        assert!(
            header
                .body(bytes)
                .is_none_or(|body| body.len() < bytes.len())
        );
    }
    if let Some((request, data)) = Request::decode(bytes) {
        assert_eq!(
            Request::decode(&[&request.encode(), data].concat()),
            Some((request, data))
        );
    }
    if let Some((reply, data)) = Reply::decode(bytes) {
        assert_eq!([&reply.encode(data.len()), data].concat(), bytes);
    }
    if let Some(ack) = Ack::decode(bytes) {
        assert_eq!(Ack::decode(&ack.encode()), Some(ack));
    }
    if let Some(ack) = Ack::decode_short(bytes) {
        let again = ack.encode_short();
        assert_eq!(again.and_then(|body| Ack::decode_short(&body)), Some(ack));
    }
    if let Some(probe) = Probe::decode(bytes) {
        assert_eq!(Probe::decode(&probe.encode()), Some(probe));
    }
    if let Some(inquiry) = Inquiry::decode(bytes) {
        assert_eq!(Inquiry::decode(&inquiry.encode()), Some(inquiry));
    }
}

/// The least bit of the first byte: discovery, or login. The rest is the body of a PDU outside a session, from a client
/// whose cookie is right, to a server that has the group `ABC`, and to a client that searches it.
pub fn login(bytes: &[u8]) {
    let Some((&what, body)) = bytes.split_first() else {
        return;
    };
    let mut entropy = Entropy::new(&[1; 32]);
    let cookies = Cookies::new(&mut entropy);
    let opcodes = match what & 1 {
        0 => [Opcode::Discovery, Opcode::DiscoveryAnswer],
        _ => [Opcode::Negotiation, Opcode::NegotiationAnswer],
    };
    let mut body = body.to_vec();
    // A message of step 1: nonce, cookie, client.
    let client = body
        .get(25..41)
        .and_then(|client| client.first_chunk().copied());
    if let (Some(client), Some(cookie)) = (client, body.get_mut(9..25))
        && what & 1 != 0
    {
        cookie.copy_from_slice(&cookies.make(Duration::ZERO, b"address", &client));
    }
    let group = Group {
        name: "ABC".to_owned(),
        is_open: false,
    };
    let mut responder = Responder::new([2; 16], "server".to_owned(), vec![group]);
    let settings = GateSettings {
        server: [2; 16],
        session: Settings::default(),
    };
    let mut gate = Gate::new(
        settings,
        OpaqueTarget::new(&mut entropy),
        BTreeMap::new(),
        entropy,
    );
    let mut search = Search::new(
        Duration::ZERO,
        [3; 16],
        vec!["ABC".to_owned()],
        Entropy::new(&[4; 32]),
    );
    for opcode in opcodes {
        for frame in [plain::write(opcode, &body, 0), body.clone()] {
            let answer = responder.handle_frame(Duration::ZERO, &cookies, b"address", &frame);
            assert!(answer.is_none_or(|(_, answer)| answer.len() <= frame.len()));
            let (answer, proved) =
                gate.handle_frame(Duration::ZERO, &cookies, (b"address", ()), &frame);
            assert!(answer.is_none_or(|answer| answer.len() <= frame.len()));
            assert!(proved.is_none(), "no record is there");
            search.handle_frame(b"address", &frame);
        }
    }
}

/// Messages of the key exchange to a target: the first, and the last that follows.
pub fn exchange(bytes: &[u8]) {
    let (first, last) = bytes.split_at(bytes.len().min(96));
    let mut entropy = Entropy::new(&[1; 32]);
    let target = OpaqueTarget::new(&mut entropy);
    if let Some((pending, answer)) = target.answer(b"ABC", None, first, b"context", &mut entropy) {
        assert_eq!(answer.len(), 320);
        assert!(
            target.finish(pending, last, b"context").is_none(),
            "nobody knows that password"
        );
    }
    // What is longer would take the time of a stretched password.
    drop(OpaqueTarget::from_bytes(first));
    drop(Wish::credential("ABC", None));
}

const LEVELS: [Level; 4] = Level::ALL;

/// Two ends of a session, of which a script decides what becomes of their frames.
struct Script<'a> {
    bytes: std::slice::Iter<'a, u8>,
    now: Duration,
    client: ClientSession<Vec<u8>>,
    target: TargetSession<Vec<u8>>,
    frames: Vec<(bool, Vec<u8>)>,
    /// Commands by token: how often they were given out, how often they ended.
    commands: BTreeMap<u64, (u32, u32)>,
    level: Level,
    next_token: u64,
}

/// The first byte is the level. Then each byte is a step: a command, a frame that arrives, is lost, is changed, comes
/// twice or is made up, or time. Each command is given out once at most and ends once at most.
pub fn session(bytes: &[u8]) {
    let mut bytes = bytes.iter();
    let level = bytes
        .next()
        .and_then(|at| LEVELS.get(usize::from(at % 4)))
        .copied();
    let keys = Keys::new(b"fuzz");
    let terms = Terms {
        session: 5,
        first_tag: 9,
        slots: 4,
        peer_window: 16,
        peer_begun_bytes: 2 << 20,
        frame_bytes_max: FRAME_MAX_BYTES,
        profile: crate::Profile::WIRED,
        bundles: true,
    };
    let level = level.unwrap_or(Level::Crc);
    let devices = vec![Device {
        handle: 1,
        level,
        is_read_only: false,
        is_removable: false,
        peripheral_type: 0,
        block_bytes: 512,
        blocks: 8,
        data_max_bytes: 4096,
        designator: [0; 16],
        name: "disk".to_owned(),
    }];
    let settings = Settings {
        begun_bytes: 2 << 20,
        ..Settings::default()
    };
    let mut script = Script {
        bytes,
        now: Duration::ZERO,
        client: ClientSession::new(Duration::ZERO, &keys, terms, settings),
        target: TargetSession::new(Duration::ZERO, &keys, terms, settings, devices),
        frames: Vec::new(),
        commands: BTreeMap::new(),
        level,
        next_token: 1,
    };
    script.client.open(Duration::ZERO, 1, level);
    script.run();
}

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        self.bytes.next().copied().unwrap_or_default()
    }

    fn run(&mut self) {
        self.send();
        while let Some(&step) = self.bytes.next() {
            match step % 8 {
                // Several are ready in one turn.
                0 => (0..=step >> 6).for_each(|_| self.submit()),
                1 | 2 => self.deliver(),
                3 => drop(self.take()),
                4 => self.deliver_changed(),
                5 => self.deliver_twice(),
                6 => self.make_up(),
                _ => {
                    let time = u32::from(self.byte()) * u32::from(step);
                    self.now += Duration::from_micros(100) * time;
                    self.client.handle_deadline(self.now);
                    self.target.handle_deadline(self.now);
                }
            }
            self.settle();
            self.send();
        }
    }

    fn submit(&mut self) {
        let length = u32::from(self.byte()) * 64;
        let is_write = self.byte() & 1 != 0;
        let token = self.next_token;
        self.next_token += 1;
        let command = Command {
            attribute: Attribute::Simple,
            cdb: [&[u8::from(is_write); 2][..], &token.to_be_bytes()].concat(),
            data_in_bytes: if is_write { 0 } else { length },
            data_out_bytes: if is_write { length } else { 0 },
        };
        let data = vec![0xdd; crate::bytes::size(command.data_out_bytes)];
        if self
            .client
            .submit(self.now, token, 1, command, data)
            .is_ok()
        {
            self.commands.insert(token, (0, 0));
        }
        if let Some(name) = self.client.name_of(token).filter(|_| length % 128 == 0) {
            let function = Function::AbortTask(name);
            let _refused_when_full = self.client.manage(self.now, token | 1 << 60, 1, function);
        }
    }

    /// The oldest frame; it is for the client, or the target.
    fn take(&mut self) -> Option<(bool, Vec<u8>)> {
        (!self.frames.is_empty()).then(|| self.frames.remove(0))
    }

    fn give(&mut self, to_client: bool, frame: &[u8]) {
        if to_client {
            self.client.handle_frame(self.now, frame);
        } else {
            // Data that stay in the frame are taken while it is there.
            self.target.handle_lent_frame(self.now, frame);
            self.settle_target(frame);
        }
    }

    fn deliver(&mut self) {
        if let Some((to_client, frame)) = self.take() {
            self.give(to_client, &frame);
        }
    }

    fn deliver_changed(&mut self) {
        // Nothing is promised at this level.
        let change = if self.level == Level::None {
            0
        } else {
            self.byte()
        };
        let at = usize::from(self.byte());
        if let Some((to_client, mut frame)) = self.take() {
            if let Some(byte) = frame.get_mut(at) {
                *byte ^= change;
            }
            self.give(to_client, &frame);
        }
    }

    fn deliver_twice(&mut self) {
        if let Some((to_client, frame)) = self.take() {
            self.give(to_client, &frame);
            self.give(to_client, &frame);
            self.frames.push((to_client, frame));
        }
    }

    fn make_up(&mut self) {
        let (to_client, length) = (self.byte() & 1 != 0, usize::from(self.byte()));
        let frame: Vec<u8> = (0..length).map(|_| self.byte()).collect();
        if self.level > Level::Crc {
            self.give(to_client, &frame);
        }
    }

    fn settle_target(&mut self, frame: &[u8]) {
        while let Some(event) = self.target.poll_event() {
            match event {
                TargetEvent::Command {
                    id, command, data, ..
                } => {
                    let token = command
                        .cdb
                        .last_chunk()
                        .copied()
                        .map_or(0, u64::from_be_bytes);
                    let known = self.commands.get_mut(&token);
                    let given = known.map(|known| {
                        known.0 += 1;
                        known.0
                    });
                    assert_eq!(given, Some(1), "command {token}");
                    assert_eq!(data.len(), crate::bytes::size(command.data_out_bytes));
                    assert!(data.within(frame).iter().all(|&byte| byte == 0xdd));
                    let read = vec![0xee; crate::bytes::size(command.data_in_bytes)];
                    self.target
                        .respond(self.now, id, Reply::of(Outcome::Status(0)), read);
                }
                TargetEvent::Management { id, .. } => {
                    let reply = Reply::of(Outcome::FunctionRejected);
                    self.target.respond(self.now, id, reply, Vec::new());
                }
                TargetEvent::Opened { level, .. } => assert_eq!(level, self.level),
                TargetEvent::Ended(_) => {}
            }
        }
    }

    fn settle(&mut self) {
        self.settle_target(&[]);
        while let Some(event) = self.client.poll_event() {
            let (token, data) = match event {
                ClientEvent::Answer { token, data, .. } => (token, data),
                ClientEvent::Lost { token, .. } => (token, crate::Data::default()),
                ClientEvent::Devices(_) | ClientEvent::Opening { .. } | ClientEvent::Ended(_) => {
                    continue;
                }
            };
            assert!(data.iter().all(|&byte| byte == 0xee));
            if let Some(known) = self.commands.get_mut(&token) {
                known.1 += 1;
                assert_eq!(known.1, 1, "command {token} ended twice");
            }
        }
    }

    /// At most so many frames are kept: the rest is lost.
    fn send(&mut self) {
        let mut buffer = vec![0; usize::from(FRAME_MAX_BYTES)];
        while let Some(length) = self.client.poll_frame(self.now, &mut buffer) {
            self.keep(false, buffer.get(..length));
        }
        while let Some(length) = self.target.poll_frame(self.now, &mut buffer) {
            self.keep(true, buffer.get(..length));
        }
    }

    fn keep(&mut self, to_client: bool, frame: Option<&[u8]>) {
        if let Some(frame) = frame
            && self.frames.len() < 64
        {
            self.frames.push((to_client, frame.to_vec()));
        }
    }
}

/// Inputs that mean something, for each function here.
#[must_use]
pub fn seeds(function: &str) -> Vec<(String, Vec<u8>)> {
    let named = named_seed;
    match function {
        "pdu" => pdu_seeds(),
        "login" => {
            let mut search = Search::new(
                Duration::ZERO,
                [3; 16],
                vec!["ABC".to_owned()],
                Entropy::new(&[4; 32]),
            );
            let question = search.poll_frame(Duration::ZERO).unwrap_or_default();
            let body = plain::read(&question).map_or_else(Vec::new, |(_, body)| body.to_vec());
            vec![
                named("question", [&[0], &body[..]].concat()),
                named(
                    "first",
                    [&[1], &crate::login::sample(&first_message())[..]].concat(),
                ),
                named("last", [&[1, 3], &[0; 76][..]].concat()),
            ]
        }
        "exchange" => vec![named("messages", [&first_message()[..], &[7; 64]].concat())],
        "session" => vec![
            named(
                "crc",
                vec![
                    1, 1, 1, 0, 8, 1, 1, 1, 1, 1, 7, 20, 1, 1, 0, 200, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                ],
            ),
            named(
                "encrypt",
                vec![
                    3, 1, 1, 0, 9, 1, 5, 1, 5, 1, 7, 50, 1, 1, 0, 90, 0, 4, 1, 9, 3, 7, 99, 1, 1,
                    1, 1, 1,
                ],
            ),
            named(
                "bundles",
                vec![
                    1, 1, 1, 192, 8, 0, 8, 1, 8, 0, 8, 1, 1, 1, 7, 20, 1, 1, 192, 2, 0, 2, 0, 2, 0,
                    2, 0, 4, 1, 60, 7, 40, 1, 1, 1, 7, 90, 1, 5, 1, 1, 1, 1,
                ],
            ),
            named(
                "bundles-encrypt",
                vec![
                    3, 1, 1, 192, 8, 0, 8, 1, 8, 0, 8, 1, 1, 1, 7, 20, 1, 1, 192, 2, 0, 2, 0, 2, 0,
                    2, 0, 4, 1, 60, 7, 40, 1, 1, 1, 7, 90, 1, 5, 1, 1, 1, 1,
                ],
            ),
            named(
                "made-up",
                [
                    &[2, 1, 1, 6, 0, 60, 0x81, 0x20][..],
                    &[0x55; 58],
                    &[0, 2, 2, 1, 1, 1],
                ]
                .concat(),
            ),
        ],
        _ => Vec::new(),
    }
}

fn named_seed(name: &str, bytes: Vec<u8>) -> (String, Vec<u8>) {
    (name.to_owned(), bytes)
}

fn pdu_seeds() -> Vec<(String, Vec<u8>)> {
    let command = Command {
        attribute: Attribute::Ordered,
        cdb: vec![0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0],
        data_in_bytes: 0,
        data_out_bytes: 4,
    };
    let request = [&Request::Command(command).encode()[..], b"data"].concat();
    let header = Header::new(Opcode::Request, request.len()).encode();
    let name = crate::command::TaskName {
        tag: 1,
        sequence: 2,
    };
    let function = Request::Management(Function::AbortTask(name)).encode();
    let probe = Probe {
        id: 1,
        tags: vec![1, 2],
    };
    vec![
        named_seed("whole", [&header[..], &request].concat()),
        named_seed("request", request),
        named_seed("function", function),
        named_seed("reply", Reply::of(Outcome::Status(2)).encode(0)),
        named_seed("probe", probe.encode()),
        named_seed(
            "ack",
            vec![
                0, 0, 0, 1, 1, 0, 0, 0, 0, 7, 0, 1, 0, 4, 0, 0, 0, 5, 5, 0xd9, 0, 6, 1, 0x40,
            ],
        ),
        named_seed(
            "short-ack",
            vec![1, 0, 3, 0xe9, 0, 2, 0, 0, 0, 3, 1, 44, 0, 0, 0, 5, 0, 0],
        ),
        named_seed("open", vec![7, 0, 0, 0, 1, 0, 1, 2]),
    ]
}

/// The first message of a client of the key exchange.
fn first_message() -> Vec<u8> {
    use crate::exchange::ClientExchange as _;
    let client = crate::exchange::OpaqueClient::new(b"password", &mut Entropy::new(&[6; 32]));
    client.map_or_else(Vec::new, |client| client.first().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed that is refused at once would lead nowhere.
    #[test]
    fn the_seeds_lead_somewhere() {
        for (name, run) in [
            ("pdu", pdu as fn(&[u8])),
            ("login", login),
            ("exchange", exchange),
            ("session", session),
        ] {
            let seeds = seeds(name);
            assert!(!seeds.is_empty());
            seeds.iter().for_each(|(_, bytes)| run(bytes));
        }
        let target = OpaqueTarget::new(&mut Entropy::new(&[1; 32]));
        let answer = target.answer(
            b"ABC",
            None,
            &first_message(),
            b"",
            &mut Entropy::new(&[1; 32]),
        );
        assert!(answer.is_some());
    }
}
