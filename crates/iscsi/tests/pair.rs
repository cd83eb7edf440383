//! Both roles against each other, from the login to the logout, over every combination of the
//! keys that shape the transfer of data.
//!
//! The target's owner is a byte array: a command names an offset in its CDB.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::arithmetic_side_effects,
    reason = "helpers of tests, which may end a test as they please"
)]

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use iscsi::SerialNumber;
use iscsi::discovery::{TargetRecord, TextRecords, parse_targets};
use iscsi::initiator::{self, Management, Outcome, ReadBuffer};
use iscsi::login::{
    Admission, EstablishedInitiator, EstablishedLogin, InitiatorAuth, InitiatorLoginAction,
    InitiatorLoginConfig, LoginAction, LoginInitiator, LoginRefusal, LoginTarget, RANDOM_BYTES,
    TargetAuth, TargetPolicy,
};
use iscsi::negotiate::{DigestPolicy, OperationalPreferences};
use iscsi::pdu::{
    Cid, InitiatorTaskTag, Isid, LogoutReason, LogoutResponseCode, TaskAttribute,
    TaskManagementFunction, TaskManagementResponse, Tsih,
};
use iscsi::target::{self, ConnectionConfig, Receive, Response, SessionConfig};
use memory::{Message, Payload, Pool};

const TARGET: &str = "iqn.2001-04.com.example:disk";
const DISK_BYTES: usize = 300_000;
const QUEUE_DEPTH: u32 = 8;
const CMD_SN: SerialNumber = SerialNumber(0xffff_fffd);

/// Logs one connection in.
fn login(
    initiator: &OperationalPreferences,
    target: &OperationalPreferences,
    join: Option<(Tsih, SerialNumber, SerialNumber)>,
    cid: u16,
) -> (EstablishedInitiator, EstablishedLogin) {
    let timeout = Duration::from_secs(15);
    let config = InitiatorLoginConfig {
        initiator_name: "iqn.2001-04.com.example:host".to_owned(),
        initiator_alias: None,
        target_name: Some(TARGET.to_owned()),
        isid: Isid([0x80, 0, 0, 0, 0, 1]),
        tsih: join.map_or(Tsih::NONE, |(tsih, ..)| tsih),
        cid: Cid(cid),
        cmd_sn: join.map_or(CMD_SN, |(_, cmd_sn, _)| cmd_sn),
        initiator_task_tag: InitiatorTaskTag(1),
        auth: InitiatorAuth::None { skip_stage: true },
        preferences: initiator.clone(),
    };
    let mut ours = LoginInitiator::new(config, Duration::ZERO, timeout, [1; RANDOM_BYTES]).unwrap();
    let mut theirs = LoginTarget::new(Duration::ZERO, timeout, [2; RANDOM_BYTES]);
    let mut established = None;
    loop {
        while let Some(action) = theirs.poll_action() {
            match action {
                LoginAction::Send(pdu) => ours.handle_pdu(&pdu.header, &pdu.data),
                LoginAction::Authorize(_) => {
                    theirs.authorize_reply(Ok::<_, LoginRefusal>(TargetPolicy {
                        auth: TargetAuth::None,
                        preferences: target.clone(),
                        portal_group_tag: 1,
                        target_alias: None,
                    }));
                }
                LoginAction::Admit(login) => {
                    let (tsih, exp_cmd_sn, max_cmd_sn) = join.unwrap_or_else(|| {
                        (
                            Tsih(7),
                            login.cmd_sn,
                            login.cmd_sn.plus(QUEUE_DEPTH).previous(),
                        )
                    });
                    let admission = Admission {
                        tsih,
                        exp_cmd_sn,
                        max_cmd_sn,
                    };
                    theirs.admit_reply(Ok::<_, LoginRefusal>(admission));
                }
                LoginAction::Complete(done) => established = Some(*done),
                LoginAction::Close(violation) => panic!("{violation}"),
            }
        }
        match ours.poll_action() {
            Some(InitiatorLoginAction::Send(pdu)) => theirs.handle_pdu(&pdu.header, &pdu.data),
            Some(InitiatorLoginAction::Complete(done)) => return (*done, established.unwrap()),
            Some(InitiatorLoginAction::Failed(error)) => panic!("{error}"),
            None => panic!("login stuck"),
        }
    }
}

/// A logged-in pair, with a byte array behind the target.
struct Pair {
    initiator: initiator::Session,
    target: target::Session,
    pool: Pool,
    connections: usize,
    disk: Vec<u8>,
    /// Commands whose answer is held back until a task management function comes.
    holding: bool,
    held: Vec<target::TaskId>,
    writes: Vec<(target::TaskId, usize)>,
    events: Vec<initiator::Event>,
    /// How many bytes are handed over at a time.
    cut_bytes: usize,
    /// Data received straight into the buffer of its task, in bytes.
    exact_bytes: usize,
}

impl Pair {
    fn new(
        ours: &OperationalPreferences,
        theirs: &OperationalPreferences,
        connections: u16,
        cut_bytes: usize,
    ) -> Self {
        let (us, them) = login(ours, theirs, None, 1);
        let text = TextRecords::for_target(TargetRecord {
            name: TARGET.to_owned(),
            addresses: vec!["10.0.0.1:3260,1".to_owned()],
        });
        let mut pair = Self {
            initiator: initiator::Session::new(&us, Cid(1), 64),
            target: target::Session::new(SessionConfig {
                is_discovery: false,
                parameters: them.login.session.clone(),
                exp_cmd_sn: them.login.cmd_sn,
                queue_depth: QUEUE_DEPTH,
                text,
                nop_interval: Some(Duration::from_secs(30)),
                nop_timeout: Duration::from_secs(10),
                hold: target::HoldLimits::default(),
            }),
            pool: Pool::new(64 << 20).unwrap(),
            connections: 1,
            disk: (0..DISK_BYTES)
                .map(|n| u8::try_from(n % 253).unwrap())
                .collect(),
            holding: false,
            held: Vec::new(),
            writes: Vec::new(),
            events: Vec::new(),
            cut_bytes,
            exact_bytes: 0,
        };
        pair.add_to_target(&them);
        for cid in 2..=connections {
            let (exp, max) = pair.target.window();
            assert_eq!(exp, pair.initiator.next_cmd_sn());
            let (us, them) = login(ours, theirs, Some((them.tsih, exp, max)), cid);
            pair.initiator.add_connection(&us, Cid(cid));
            pair.add_to_target(&them);
            pair.connections += 1;
        }
        pair
    }

    fn add_to_target(&mut self, login: &EstablishedLogin) {
        let config = ConnectionConfig {
            cid: login.login.cid,
            parameters: login.login.connection,
            stat_sn: login.login.next_stat_sn,
        };
        self.target.add_connection(&config, Duration::ZERO);
    }

    /// Lets bytes flow both ways until nobody has anything to say.
    fn run(&mut self) {
        loop {
            let mut is_quiet = true;
            for connection in 0..self.connections {
                let mut bytes = Vec::new();
                self.initiator.transmit(connection, &mut bytes, 1 << 20);
                is_quiet &= bytes.is_empty();
                self.deliver(connection, &bytes);
                self.serve();
                let message = self.target.take_message(connection, Message::default());
                let bytes = message.to_vec();
                is_quiet &= bytes.is_empty();
                for piece in bytes.chunks(self.cut_bytes) {
                    self.initiator.handle_bytes(connection, piece);
                }
                while let Some(event) = self.initiator.poll_event() {
                    assert!(
                        !matches!(event, initiator::Event::Failed { .. }),
                        "{event:?}"
                    );
                    self.events.push(event);
                }
            }
            if is_quiet {
                return;
            }
        }
    }

    /// Hands bytes to the target the way it asks for them.
    fn deliver(&mut self, connection: usize, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.target.poll_receive(connection) {
                Receive::Chunk { limit_bytes } => {
                    let len = self.cut_bytes.min(bytes.len()).min(limit_bytes);
                    let (piece, rest) = bytes.split_at(len);
                    let mut chunk = self.pool.allocate(piece.len()).unwrap();
                    chunk.set_len(piece.len());
                    chunk.copy_from_slice(piece);
                    let chunk = Rc::new(chunk);
                    self.target
                        .handle_chunk(connection, &chunk, &self.pool, Duration::ZERO)
                        .unwrap();
                    bytes = rest;
                }
                Receive::Exact { mut buffer, range } => {
                    let (piece, rest) = bytes.split_at(range.len().min(bytes.len()));
                    let end = range.start + piece.len();
                    buffer[range.start..end].copy_from_slice(piece);
                    self.exact_bytes += piece.len();
                    self.target
                        .handle_exact(connection, buffer, piece.len(), &self.pool, Duration::ZERO)
                        .unwrap();
                    bytes = rest;
                }
            }
        }
    }

    /// The owner of the target.
    fn serve(&mut self) {
        while let Some(event) = self.target.poll_event() {
            match event {
                target::Event::Command(id, command) => self.execute(id, &command),
                target::Event::DataOut(id, data) => {
                    let place = self
                        .writes
                        .iter()
                        .position(|(known, _)| *known == id)
                        .unwrap();
                    let (_, offset) = self.writes.swap_remove(place);
                    self.write(id, offset, &data);
                }
                target::Event::TaskManagement(request) => {
                    let ended = std::mem::take(&mut self.held);
                    for id in ended {
                        self.target.abandon(id);
                    }
                    self.holding = false;
                    self.target
                        .respond_management(request.id, TaskManagementResponse::Complete);
                }
                target::Event::Logout(logout) => {
                    self.target
                        .respond_logout(logout.id, LogoutResponseCode::Success);
                }
                target::Event::DataFault(..)
                | target::Event::PeerSilent { .. }
                | target::Event::Broken { .. }
                | target::Event::Violation { .. } => panic!("{event:?}"),
            }
        }
    }

    fn execute(&mut self, id: target::TaskId, command: &target::Command) {
        let [.., a, b, c, d] = command.cdb;
        let offset = u32::from_be_bytes([a, b, c, d]) as usize;
        if self.holding {
            self.held.push(id);
        } else if command.data_out_length > 0 {
            match self
                .target
                .request_data(id, command.data_out_length, &self.pool)
            {
                Some(data) => self.write(id, offset, &data),
                None => self.writes.push((id, offset)),
            }
        } else {
            let end = (offset + command.data_in_length as usize).min(self.disk.len());
            let data = Payload::Heap(self.disk[offset..end].to_vec());
            self.target.respond(
                id,
                Response {
                    status: 0,
                    sense: &[],
                    transfer_length: (end - offset) as u64,
                    data,
                },
            );
        }
    }

    fn write(&mut self, id: target::TaskId, offset: usize, data: &Payload) {
        let bytes = data.to_vec();
        self.disk[offset..offset + bytes.len()].copy_from_slice(&bytes);
        self.target.respond(
            id,
            Response {
                status: 0,
                sense: &[],
                transfer_length: bytes.len() as u64,
                data: Payload::Empty,
            },
        );
    }

    fn submit(&mut self, tag: u64, offset: usize, data: Data) -> InitiatorTaskTag {
        let mut cdb = [0; 16];
        cdb[12..].copy_from_slice(&u32::try_from(offset).unwrap().to_be_bytes());
        let (write, read) = match data {
            Data::Write(bytes) => (Some(bytes), ReadBuffer::None),
            Data::Read(length) => (None, ReadBuffer::Into(vec![0; length])),
        };
        let command = initiator::Command {
            tag,
            lun: 0,
            cdb,
            extended_cdb: Vec::new(),
            attribute: TaskAttribute::Simple,
            write,
            read,
        };
        self.initiator.submit(command).unwrap()
    }

    /// The completions so far, by tag.
    fn completions(&mut self) -> Vec<initiator::Completion> {
        let mut done: Vec<_> = std::mem::take(&mut self.events)
            .into_iter()
            .filter_map(|event| {
                if let initiator::Event::Completed(done) = event {
                    Some(done)
                } else {
                    None
                }
            })
            .collect();
        done.sort_by_key(|done| done.tag);
        done
    }
}

enum Data {
    Write(Arc<[u8]>),
    Read(usize),
}

fn pattern(seed: usize, length: usize) -> Arc<[u8]> {
    (0..length)
        .map(|n| u8::try_from((n * 7 + seed * 13) % 255).unwrap())
        .collect()
}

/// Writes, reads back and compares, more commands at once than the window has places.
fn exercise(pair: &mut Pair) {
    // Lengths about every edge: words, segments, first burst, burst.
    let lengths = [
        1, 3, 4, 511, 512, 4096, 8191, 8192, 8193, 16_000, 40_000, 70_001,
    ];
    let mut offset = 0;
    let mut written = Vec::new();
    for (seed, length) in lengths.into_iter().enumerate() {
        let data = pattern(seed, length);
        pair.submit(seed as u64, offset, Data::Write(data.clone()));
        written.push((offset, data));
        offset += length;
    }
    pair.run();
    let done = pair.completions();
    assert_eq!(done.len(), lengths.len());
    assert!(done.iter().all(|done| done.outcome == Outcome::Status(0)));
    for (tag, (offset, data)) in (0..).zip(&written) {
        pair.submit(tag, *offset, Data::Read(data.len()));
    }
    pair.run();
    let done = pair.completions();
    assert_eq!(done.len(), lengths.len());
    for (done, (_, data)) in done.iter().zip(&written) {
        assert_eq!(done.outcome, Outcome::Status(0));
        assert_eq!(
            done.read,
            ReadBuffer::Into(data.to_vec()),
            "read {}",
            done.tag
        );
        assert_eq!(done.residual, initiator::Residual::None);
    }
    assert_eq!(pair.initiator.tasks(), 0);
    assert!(pair.target.is_idle());
}

fn preferences(
    digests: DigestPolicy,
    initial_r2t: bool,
    immediate_data: bool,
) -> OperationalPreferences {
    OperationalPreferences {
        header_digest: digests,
        data_digest: digests,
        initial_r2t,
        immediate_data,
        ..OperationalPreferences::default()
    }
}

#[test]
fn data_survives_every_combination_of_the_keys_that_shape_it() {
    let mut exact_bytes = 0;
    for digests in [DigestPolicy::Never, DigestPolicy::Required] {
        for initial_r2t in [false, true] {
            for immediate_data in [false, true] {
                for (segment, first_burst, max_burst, r2ts) in [
                    (8192, 16_384, 32_768, 1),
                    (512, 512, 1024, 4),
                    (65_536, 65_536, 262_144, 2),
                    (1000, 3000, 5000, 3),
                ] {
                    let ours = OperationalPreferences {
                        max_recv_data_segment_length_bytes: segment,
                        first_burst_length_bytes: first_burst,
                        max_burst_length_bytes: max_burst,
                        max_outstanding_r2t: r2ts,
                        ..preferences(digests, initial_r2t, immediate_data)
                    };
                    let theirs = OperationalPreferences {
                        max_recv_data_segment_length_bytes: segment.max(1024),
                        ..OperationalPreferences::default()
                    };
                    let mut pair = Pair::new(&ours, &theirs, 1, 10_000);
                    exercise(&mut pair);
                    exact_bytes += pair.exact_bytes;
                }
            }
        }
    }
    // Both ways to receive were really taken.
    assert!(exact_bytes > 0);
}

#[test]
fn data_survives_any_cut_of_the_stream() {
    let ours = preferences(DigestPolicy::Required, false, true);
    for cut_bytes in [1, 47, 48, 49, 1500] {
        let mut pair = Pair::new(&ours, &OperationalPreferences::default(), 1, cut_bytes);
        exercise(&mut pair);
    }
}

#[test]
fn several_connections_make_one_session() {
    for connections in [2, 4] {
        let ours = preferences(DigestPolicy::Preferred, false, true);
        let theirs = OperationalPreferences::default();
        let mut pair = Pair::new(&ours, &theirs, connections, 10_000);
        assert!(pair.initiator.parameters().max_connections >= connections);
        exercise(&mut pair);
    }
}

#[test]
fn a_short_read_tells_its_residual() {
    let ours = OperationalPreferences::default();
    let mut pair = Pair::new(&ours, &ours, 1, 10_000);
    pair.submit(1, DISK_BYTES - 100, Data::Read(512));
    pair.run();
    let done = pair.completions();
    assert_eq!(done[0].received_bytes, 100);
    assert_eq!(done[0].residual, initiator::Residual::Underflow(412));
}

#[test]
fn ping_text_task_management_and_logout_are_answered() {
    let ours = OperationalPreferences::default();
    let mut pair = Pair::new(&ours, &ours, 1, 10_000);
    pair.initiator
        .ping(0, 1, b"are you there".to_vec())
        .unwrap();
    pair.initiator
        .text(0, 2, b"SendTargets=\0".to_vec())
        .unwrap();
    pair.run();
    let events = std::mem::take(&mut pair.events);
    let [
        initiator::Event::Pong { tag: 1, data },
        initiator::Event::Text { tag: 2, text },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(data, b"are you there");
    assert_eq!(parse_targets(text).unwrap()[0].name, TARGET);

    pair.holding = true;
    let itt = pair.submit(3, 0, Data::Read(512));
    pair.run();
    assert!(pair.events.is_empty());
    let function = TaskManagementFunction::AbortTask;
    pair.initiator
        .manage(
            0,
            4,
            Management {
                function,
                lun: 0,
                task: Some(itt),
            },
        )
        .unwrap();
    pair.run();
    let events = std::mem::take(&mut pair.events);
    assert!(
        matches!(
            &events[..],
            [
                initiator::Event::Completed(initiator::Completion {
                    tag: 3,
                    outcome: Outcome::Aborted,
                    ..
                }),
                initiator::Event::ManagementDone {
                    tag: 4,
                    response: Some(TaskManagementResponse::Complete)
                }
            ]
        ),
        "{events:?}"
    );

    pair.initiator
        .logout(0, 5, LogoutReason::CloseSession, 0)
        .unwrap();
    pair.run();
    assert!(matches!(
        pair.events[..],
        [initiator::Event::LoggedOut {
            tag: 5,
            response: Some(LogoutResponseCode::Success)
        }]
    ));
}
