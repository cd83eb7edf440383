//! A store whose medium is behind a connection, on real rings: its orders for sockets are carried out.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of #[test] functions"
)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use iscsi::login::{TargetAuth, TargetPolicy};
use iscsi::negotiate::OperationalPreferences;
use iscsi::pdu::LoginStatus;
use plane::{
    Access, Asker, Authorization, Coalescing, DataPlane, Event, EventSink, Holding, Policy,
    PortPlan, Restored, Save, SaveError, SavedState, Settings, StateAuthority, TargetIndex,
    TargetPlan, UnitIndex, UnitPlan, Version, VisibleLun, VisibleTarget,
};
use reactor::Listener;
use store::SharedStore;
use store::testing::{REPLY_BYTES, REQUEST_BYTES, RemoteDisk};

const BLOCK: usize = 512;
const SIZE: usize = 1 << 20;
const TARGET: &str = "iqn.2026-11.example.tarn:remote";
/// Longer than any test takes.
const FOR_EVER: Duration = Duration::from_secs(3600);
const READ: u8 = 0x28;
const WRITE: u8 = 0x2a;
const SYNCHRONIZE: u8 = 0x35;
/// Seen when a slow flush is over.
const FLUSHED: u8 = b'F';
/// NOT READY, IN PROCESS OF BECOMING READY: the store cannot be reached now.
const AWAY: Option<(u8, u8, u8)> = Some((2, 4, 1));

// ---- the peer ------------------------------------------------------------------------------------

/// How the peer treats requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Manner {
    Prompt,
    /// Its answers come in pieces, of which some are single bytes.
    InPieces,
    /// It answers nothing.
    Silent,
    /// It ends the connection instead of an answer.
    HangUp,
    /// It ends the connection within the data of its answer.
    HangUpWithin,
    /// It takes its time for a flush.
    FlushesSlowly,
}

/// Who has the medium. Each connection has a thread.
#[derive(Debug)]
struct Peer {
    address: SocketAddr,
    /// What came: the operation of each request, and `e` for each connection that has ended.
    seen: Receiver<u8>,
}

impl Peer {
    fn new(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let medium = Arc::new(Mutex::new(vec![0; SIZE]));
        let (sees, seen) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (medium, sees) = (Arc::clone(&medium), sees.clone());
                thread::spawn(move || {
                    serve(&mut stream.unwrap(), manner, &medium, &sees);
                    sees.send(b'e').unwrap_or_default();
                });
            }
        });
        Self { address, seen }
    }

    /// Waits until so many of these have come.
    fn await_seen(&self, what: u8, count: usize) {
        let found = self.seen.iter().filter(|one| *one == what).take(count);
        assert_eq!(found.count(), count);
    }
}

fn number(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

fn serve(stream: &mut TcpStream, manner: Manner, medium: &Mutex<Vec<u8>>, sees: &Sender<u8>) {
    stream.set_nodelay(true).unwrap();
    let mut request = [0; REQUEST_BYTES];
    while stream.read_exact(&mut request).is_ok() {
        let (len, offset) = (number(&request[12..16]), number(&request[16..]));
        let mut data = Vec::new();
        if request[8] == b'w' {
            data.resize(len, 0);
            if stream.read_exact(&mut data).is_err() {
                return;
            }
            medium.lock().unwrap()[offset..offset + len].copy_from_slice(&data);
            data.clear();
        } else if request[8] == b'r' {
            data = medium.lock().unwrap()[offset..offset + len].to_vec();
        }
        sees.send(request[8]).unwrap_or_default();
        let mut reply = [&request[..8], &[0; REPLY_BYTES - 8], &data].concat();
        reply[12..16].copy_from_slice(&u32::try_from(data.len()).unwrap().to_be_bytes());
        let pieces: Vec<&[u8]> = match manner {
            Manner::Silent => continue,
            Manner::HangUp => return,
            Manner::HangUpWithin => {
                drop(stream.write_all(&reply[..REPLY_BYTES + data.len() / 2]));
                return;
            }
            Manner::FlushesSlowly if request[8] == b'f' => {
                let (_open, never) = mpsc::channel::<()>();
                let _pause = never.recv_timeout(Duration::from_millis(300));
                sees.send(FLUSHED).unwrap_or_default();
                vec![&reply]
            }
            Manner::Prompt | Manner::FlushesSlowly => vec![&reply],
            Manner::InPieces => {
                let (head, data) = reply.split_at(REPLY_BYTES + data.len().min(3));
                head.chunks(1).chain(data.chunks(7001)).collect()
            }
        };
        if pieces
            .into_iter()
            .any(|piece| stream.write_all(piece).is_err())
        {
            return;
        }
    }
}

// ---- the plane -----------------------------------------------------------------------------------

#[derive(Debug)]
struct Everybody;

impl Policy for Everybody {
    fn authorize(&self, _: &Asker<'_>, _: Option<&str>) -> Result<Authorization, LoginStatus> {
        Ok(Authorization {
            target: Some(TargetIndex(0)),
            policy: TargetPolicy {
                auth: TargetAuth::None,
                preferences: OperationalPreferences::default(),
                portal_group_tag: 1,
                target_alias: None,
            },
        })
    }

    fn luns(&self, _: &Asker<'_>, _: TargetIndex) -> Result<Vec<VisibleLun>, LoginStatus> {
        Ok(vec![VisibleLun {
            lun: 0,
            unit: UnitIndex(0),
            read_only: false,
        }])
    }

    fn may_discover(&self, _: &Asker<'_>) -> bool {
        false
    }

    fn targets(&self, _: &Asker<'_>, _: Option<TargetIndex>) -> Vec<VisibleTarget> {
        vec![VisibleTarget {
            name: TARGET.to_owned(),
            addresses: Vec::new(),
        }]
    }
}

#[derive(Debug)]
struct NoEvents;

impl EventSink for NoEvents {
    fn emit(&self, _: &Event<'_>) {}
}

#[derive(Debug)]
struct Nowhere;

impl StateAuthority for Nowhere {
    fn load(&self) -> std::io::Result<Option<SavedState>> {
        Ok(None)
    }

    fn save(&self, _: &Save) -> Result<Version, SaveError> {
        Ok(Version(1))
    }
}

fn settings() -> Settings {
    let second = Duration::from_secs(1);
    Settings {
        cores: 2,
        pool_bytes: 32 << 20,
        busy_poll: Duration::ZERO,
        coalescing: Coalescing::Adaptive,
        sessions_max: 8,
        logins_max: 8,
        discovery_max: 8,
        discovery_lifetime: second,
        unproved_per_address_max: 8,
        connections_max: 64,
        holding: Holding::new(1 << 20),
        gap_timeout: 10 * second,
        login_timeout: 10 * second,
        queue_depth: 8,
        nop_interval: None,
        nop_timeout: 10 * second,
        abort_timeout: second,
        fence_timeout: second,
        core_stall_limit: 60 * second,
        stop_timeout: second,
        slow_command: None,
    }
}

fn profile(capabilities: store::Capabilities) -> scsi::Profile {
    scsi::Profile {
        device_type: scsi::DeviceType::Disk,
        identity: scsi::Identity {
            vendor: "TARN".to_owned(),
            product: "TEST".to_owned(),
            revision: "1".to_owned(),
            serial: "test".to_owned(),
            naa: vec![0x30, 0, 0, 0, 0, 0, 0, 1],
            eui: None,
            target_ports: vec![scsi::TargetPort {
                relative_id: 1,
                group: 1,
                scsi_name: format!("{TARGET},t,0x0001"),
                device_name: TARGET.to_owned(),
                protocol_identifier: 5,
                protocol_version: 0x0960,
            }],
            task_management: [0xf8, 0],
            removable: false,
        },
        limits: scsi::Limits::default(),
        capabilities,
        keeps_state: true,
    }
}

/// A plane with one unit, at this peer, and where it listens.
fn start(peer: &Peer, patience: Duration) -> (DataPlane, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let disk = RemoteDisk::new(peer.address, SIZE as u64, patience);
    let plane = DataPlane::start(settings(), Arc::new(Everybody), Arc::new(NoEvents)).unwrap();
    let handle = plane.handle();
    let unit = UnitPlan {
        name: "remote".to_owned(),
        profile: profile(disk.capabilities()),
        store: Arc::new(disk),
        restored: Restored::Nothing,
        authority: Arc::new(Nowhere),
        losses: Arc::default(),
    };
    handle.add_units(vec![unit]).unwrap();
    let target = TargetPlan {
        name: TARGET.to_owned(),
        ports: vec![PortPlan {
            portal_group_tag: 1,
            relative_id: 1,
        }],
        cold_reset: false,
    };
    let (_, confirmed) = handle.set_access(Access {
        policy: Arc::new(Everybody),
        targets: vec![(TargetIndex(0), target)],
        open: vec![Listener::try_from(listener).unwrap()],
        open_nbd: Vec::new(),
        close: Vec::new(),
    });
    assert_eq!(confirmed, Ok(()));
    (plane, address)
}

// ---- the initiator -------------------------------------------------------------------------------

/// A session that sends one command at a time.
#[derive(Debug)]
struct Initiator {
    stream: TcpStream,
    cmd_sn: u32,
    exp_stat_sn: u32,
}

/// How a command ended: status, sense key with ASC and ASCQ, data.
type Outcome = (u8, Option<(u8, u8, u8)>, Vec<u8>);

impl Initiator {
    fn new(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let keys = format!(
            "InitiatorName=iqn.2026-11.example:host\0TargetName={TARGET}\0SessionType=Normal\0\
             MaxRecvDataSegmentLength=262144\0"
        );
        let mut header = [0; 48];
        (header[0], header[1], header[8]) = (0x43, 0x87, 0x80);
        send(&mut stream, &mut header, keys.as_bytes());
        let (header, _) = receive(&mut stream);
        assert_eq!(header[0] & 0x3f, 0x23);
        let granted = (header[1] & 0x83, header[36], header[37]);
        assert_eq!(granted, (0x83, 0, 0), "full feature phase");
        let mut session = Self {
            stream,
            cmd_sn: 0,
            exp_stat_sn: stat_sn(&header) + 1,
        };
        // A unit attention says that the session is new.
        let is_ready = (0..100).any(|_| {
            session
                .run([0; 10], 0, &[])
                .1
                .is_none_or(|sense| sense.0 != 6)
        });
        assert!(is_ready, "unit attentions have no end");
        session
    }

    /// Sends a command with all of its data.
    fn send(&mut self, cdb: [u8; 10], in_bytes: usize, data: &[u8]) {
        let mut header = [0; 48];
        let direction = match (in_bytes, data.len()) {
            (0, 0) => 0,
            (0, _) => 0x20,
            (_, _) => 0x40,
        };
        (header[0], header[1]) = (0x01, 0x80 | direction | 1);
        let expected = u32::try_from(in_bytes + data.len()).unwrap();
        header[20..24].copy_from_slice(&expected.to_be_bytes());
        header[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        header[28..32].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
        header[32..42].copy_from_slice(&cdb);
        self.cmd_sn += 1;
        send(&mut self.stream, &mut header, data);
    }

    fn run(&mut self, cdb: [u8; 10], in_bytes: usize, data: &[u8]) -> Outcome {
        self.send(cdb, in_bytes, data);
        let mut came = Vec::new();
        loop {
            let (header, segment) = receive(&mut self.stream);
            match header[0] & 0x3f {
                0x25 => came.extend(segment),
                0x21 => {
                    self.exp_stat_sn = stat_sn(&header) + 1;
                    // Two bytes of length come before the sense data, which are of the fixed format.
                    let sense = segment.get(2..).filter(|sense| sense.len() >= 14);
                    let sense = sense.map(|sense| (sense[2] & 0x0f, sense[12], sense[13]));
                    return (header[3], sense, came);
                }
                other => panic!("PDU {other:#04x}"),
            }
            if header[1] & 0x01 != 0 {
                self.exp_stat_sn = stat_sn(&header) + 1;
                return (header[3], None, came);
            }
        }
    }

    fn read(&mut self, lba: u8, blocks: u16) -> Outcome {
        let bytes = usize::from(blocks) * BLOCK;
        self.run(extent(READ, lba, blocks), bytes, &[])
    }

    fn write(&mut self, lba: u8, data: &[u8]) -> Outcome {
        let blocks = u16::try_from(data.len() / BLOCK).unwrap();
        self.run(extent(WRITE, lba, blocks), 0, data)
    }

    fn flush(&mut self) -> Outcome {
        self.run(extent(SYNCHRONIZE, 0, 0), 0, &[])
    }
}

fn extent(operation: u8, lba: u8, blocks: u16) -> [u8; 10] {
    let [high, low] = blocks.to_be_bytes();
    [operation, 0, 0, 0, 0, lba, 0, high, low, 0]
}

fn stat_sn(header: &[u8; 48]) -> u32 {
    u32::try_from(number(&header[24..28])).unwrap()
}

fn send(stream: &mut TcpStream, header: &mut [u8; 48], data: &[u8]) {
    let len = u32::try_from(data.len()).unwrap().to_be_bytes();
    header[5..8].copy_from_slice(&len[1..]);
    let mut pdu = [header.as_slice(), data].concat();
    pdu.resize(pdu.len().next_multiple_of(4), 0);
    stream.write_all(&pdu).unwrap();
}

fn receive(stream: &mut TcpStream) -> ([u8; 48], Vec<u8>) {
    let mut header = [0; 48];
    stream.read_exact(&mut header).unwrap();
    let len = number(&header[5..8]);
    let mut segment = vec![0; len.next_multiple_of(4)];
    stream.read_exact(&mut segment).unwrap();
    segment.truncate(len);
    (header, segment)
}

/// Bytes of which no two blocks have the same.
fn pattern(blocks: usize) -> Vec<u8> {
    let words = (0..blocks * BLOCK / 4).map(|word| u32::try_from(word).unwrap());
    words.flat_map(u32::to_be_bytes).collect()
}

// ---- what must hold ------------------------------------------------------------------------------

#[test]
fn data_comes_and_goes_in_whatever_pieces_the_peer_answers() {
    for manner in [Manner::Prompt, Manner::InPieces] {
        let peer = Peer::new(manner);
        let (plane, address) = start(&peer, FOR_EVER);
        let mut host = Initiator::new(address);
        let data = pattern(64);
        for _ in 0..3 {
            assert_eq!(host.write(8, &data), (0, None, Vec::new()));
            assert_eq!(host.read(8, 64), (0, None, data.clone()));
            assert_eq!(host.flush(), (0, None, Vec::new()));
        }
        // More than a chunk holds, so that the rest goes straight into the buffer.
        let (status, _, all) = host.read(0, 512);
        assert_eq!((status, all.len()), (0, 512 * BLOCK));
        assert_eq!(all[8 * BLOCK..72 * BLOCK], data);
        assert!(all[72 * BLOCK..].iter().all(|byte| *byte == 0));
        drop(host);
        // Every core still waits for its peer to send something.
        assert!(plane.stop().unflushed.is_empty());
        peer.await_seen(b'e', 2);
    }
}

#[test]
fn a_peer_that_ends_the_connection_fails_what_it_has_and_what_comes_later() {
    for manner in [Manner::HangUp, Manner::HangUpWithin] {
        let peer = Peer::new(manner);
        let (plane, address) = start(&peer, FOR_EVER);
        let mut host = Initiator::new(address);
        for _ in 0..2 {
            let (status, sense, _) = host.read(0, 512);
            assert_eq!((status, sense), (2, AWAY), "{manner:?}");
        }
        let (status, sense, _) = host.write(0, &pattern(1));
        assert_eq!((status, sense), (2, AWAY), "{manner:?}");
        drop(host);
        drop(plane.stop());
    }
}

#[test]
fn a_peer_that_is_not_there_fails_commands() {
    let mut peer = Peer::new(Manner::Prompt);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    peer.address = closed.local_addr().unwrap();
    drop(closed);
    let (plane, address) = start(&peer, FOR_EVER);
    let mut host = Initiator::new(address);
    let (status, sense, _) = host.read(0, 1);
    assert_eq!((status, sense), (2, AWAY));
    drop(host);
    drop(plane.stop());
}

#[test]
fn a_receive_that_the_store_cancels_ends_and_so_does_its_request() {
    let peer = Peer::new(Manner::Silent);
    let (plane, address) = start(&peer, Duration::from_millis(50));
    let mut host = Initiator::new(address);
    let (status, sense, _) = host.read(0, 1);
    assert_eq!((status, sense), (2, AWAY));
    peer.await_seen(b'r', 1);
    // The connection was closed with it.
    peer.await_seen(b'e', 1);
    drop(host);
    drop(plane.stop());
}

/// A flush may have to go by the connection of another core: at the end, and when a unit is removed.
#[test]
fn no_core_lets_its_connection_go_before_the_last_flush_is_over() {
    for is_removed in [true, false] {
        let peer = Peer::new(Manner::FlushesSlowly);
        let (plane, address) = start(&peer, FOR_EVER);
        let mut host = Initiator::new(address);
        assert_eq!(host.write(0, &pattern(1)).0, 0);
        drop(host);
        if is_removed {
            let (handle, units) = (plane.handle(), [UnitIndex(0)]);
            let end = Instant::now() + FOR_EVER;
            assert!(handle.drain_units(&units).wait_until(end));
            assert!(handle.close_units(&units).wait_until(end));
        }
        assert!(plane.stop().unflushed.is_empty());
        let ends = |one: &u8| matches!(*one, FLUSHED | b'e');
        let order: Vec<u8> = peer.seen.iter().filter(ends).take(3).collect();
        assert_eq!(order, [FLUSHED, b'e', b'e'], "removed: {is_removed}");
    }
}

#[test]
fn a_plane_ends_although_the_peer_of_a_store_answers_nothing() {
    let peer = Peer::new(Manner::Silent);
    let (plane, address) = start(&peer, FOR_EVER);
    let mut host = Initiator::new(address);
    host.send(extent(READ, 0, 64), 64 * BLOCK, &[]);
    peer.await_seen(b'r', 1);
    let stopped = plane.stop();
    assert!(!stopped.is_core_lost);
    let unflushed: Vec<&str> = stopped.unflushed.iter().map(|name| &**name).collect();
    assert_eq!(unflushed, ["remote"]);
}
