//! A data plane as its administration and its initiators see it: real cores, and stores whose flushes end when the
//! test says so.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of #[test] functions"
)]

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use iscsi::login::{TargetAuth, TargetPolicy};
use iscsi::negotiate::OperationalPreferences;
use iscsi::pdu::LoginStatus;
use plane::{
    Access, Asker, Authorization, Coalescing, DataPlane, Event, EventSink, Grant, Handle, Holding,
    MediumFailure, MediumOrder, NotHeld, Policy, PortPlan, PortalIndex, Restored, Save, SaveError,
    SavedState, SessionReport, Settings, StateAuthority, TargetIndex, TargetPlan, UnitIndex,
    UnitPlan, Version, VisibleLun, VisibleTarget,
};
use reactor::Listener;
use scsi::{DeviceType, Identity, Limits, Profile};
use store::testing::{Fate, Faulty, Hung};
use store::{IoFailure, IoRequest, NullDisk, SharedStore};

/// Longer than anything here takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(20);

const TARGET: &str = "iqn.2026-11.example:disks";
const SECOND: Duration = Duration::from_secs(1);

// ---- a store ---------------------------------------------------------------------------------

fn zeros() -> NullDisk {
    NullDisk::new(64 << 20, 512, false)
}

/// A disk of zeros, and its flushes, which hang.
fn disk() -> (Arc<Faulty>, Receiver<Hung>) {
    let (disk, flushes) = Faulty::new(zeros(), |request| match request {
        IoRequest::Flush => Fate::Hang,
        IoRequest::Read { .. }
        | IoRequest::Write { .. }
        | IoRequest::Unmap { .. }
        | IoRequest::WriteZeros { .. }
        | IoRequest::CompareAndWrite { .. }
        | IoRequest::Extents { .. }
        | IoRequest::Device(_) => Fate::Pass,
    });
    (Arc::new(disk), flushes)
}

// ---- the plane -------------------------------------------------------------------------------

#[derive(Debug)]
struct Nowhere;

impl StateAuthority for Nowhere {
    fn load(&self) -> io::Result<Option<SavedState>> {
        Ok(None)
    }

    fn save(&self, _: &Save) -> Result<Version, SaveError> {
        Ok(Version(1))
    }
}

fn unit(name: &str, store: Arc<dyn SharedStore>) -> UnitPlan {
    let identity = Identity {
        vendor: String::new(),
        product: String::new(),
        revision: String::new(),
        serial: name.to_owned(),
        naa: vec![0x30; 8],
        eui: None,
        target_ports: Vec::new(),
        task_management: [0; 2],
        removable: true,
    };
    UnitPlan {
        name: name.to_owned(),
        profile: Profile {
            device_type: DeviceType::Disk,
            foreign: None,
            has_vendor_commands: false,
            identity,
            limits: Limits::default(),
            capabilities: store.capabilities(),
            keeps_state: false,
        },
        store,
        restored: Restored::Nothing,
        authority: Arc::new(Nowhere),
        losses: Arc::default(),
    }
}

/// Lets everybody in, without a LUN.
#[derive(Debug)]
struct Everybody;

impl Policy for Everybody {
    fn authorize(&self, _: &Asker<'_>, name: Option<&str>) -> Result<Authorization, LoginStatus> {
        Ok(Authorization {
            target: name.map(|_| TargetIndex(0)),
            policy: TargetPolicy {
                auth: TargetAuth::None,
                preferences: OperationalPreferences::default(),
                portal_group_tag: 1,
                target_alias: None,
            },
        })
    }

    fn luns(&self, _: &Asker<'_>, _: TargetIndex) -> Result<Vec<VisibleLun>, LoginStatus> {
        Ok(Vec::new())
    }

    fn may_discover(&self, _: &Asker<'_>) -> bool {
        true
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

/// Two cores.
fn start() -> DataPlane {
    let settings = Settings {
        cores: 2,
        pool_bytes: 32 << 20,
        busy_poll: Duration::ZERO,
        coalescing: Coalescing::Adaptive,
        sessions_max: 8,
        logins_max: 8,
        discovery_max: 8,
        discovery_lifetime: PATIENCE,
        unproved_per_address_max: 8,
        connections_max: 8,
        holding: Holding::new(1 << 20),
        gap_timeout: PATIENCE,
        login_timeout: PATIENCE,
        queue_depth: 8,
        nop_interval: None,
        nop_timeout: PATIENCE,
        abort_timeout: 2 * PATIENCE,
        fence_timeout: PATIENCE,
        core_stall_limit: 3 * PATIENCE,
        stop_timeout: SECOND,
        slow_command: None,
    };
    DataPlane::start(settings, Arc::new(Everybody), Arc::new(NoEvents)).unwrap()
}

/// Changes what is listened on.
fn set_access(handle: &Handle, open: Vec<Listener>, close: Vec<PortalIndex>) -> Vec<PortalIndex> {
    let port = PortPlan {
        portal_group_tag: 1,
        relative_id: 1,
    };
    let target = TargetPlan {
        name: TARGET.to_owned(),
        ports: vec![port],
        cold_reset: false,
    };
    let (opened, confirmed) = handle.set_access(Access {
        policy: Arc::new(Everybody),
        targets: vec![(TargetIndex(0), target)],
        open,
        open_nbd: Vec::new(),
        close,
    });
    assert_eq!(confirmed, Ok(()));
    opened
}

fn listen(handle: &Handle) -> (SocketAddr, PortalIndex) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let opened = set_access(handle, vec![Listener::try_from(listener).unwrap()], vec![]);
    (address, opened[0])
}

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

// ---- an initiator ----------------------------------------------------------------------------

/// A session of one connection.
#[derive(Debug)]
struct Initiator {
    stream: TcpStream,
    cmd_sn: u32,
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(4), 0);
    padded
}

impl Initiator {
    /// Logs in; an error where the connection ends before the answer. A login that is refused panics.
    fn login(address: SocketAddr, keys: &str) -> io::Result<Self> {
        let mut pdu = vec![0; 48];
        (pdu[0], pdu[1]) = (0x43, 0x87);
        let bytes = u32::try_from(keys.len()).unwrap().to_be_bytes();
        pdu[5..8].copy_from_slice(&bytes[1..]);
        pdu[8] = 0x80;
        pdu.extend(padded(keys.as_bytes()));
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut initiator = Self { stream, cmd_sn: 0 };
        initiator.stream.write_all(&pdu)?;
        let response = initiator.read()?;
        assert_eq!((response[0], response[36]), (0x23, 0), "login response");
        Ok(initiator)
    }

    fn discovery(address: SocketAddr) -> io::Result<Self> {
        let keys = "InitiatorName=iqn.2026-11.example:host\0SessionType=Discovery\0";
        Self::login(address, keys)
    }

    fn normal(address: SocketAddr) -> Self {
        let names = "InitiatorName=iqn.2026-11.example:host\0TargetName=";
        Self::login(address, &format!("{names}{TARGET}\0")).unwrap()
    }

    /// The header of the next PDU.
    fn read(&mut self) -> io::Result<[u8; 48]> {
        let mut header = [0; 48];
        self.stream.read_exact(&mut header)?;
        let len = u32::from_be_bytes([0, header[5], header[6], header[7]]);
        let mut data = vec![0; usize::try_from(len).unwrap().next_multiple_of(4)];
        self.stream.read_exact(&mut data)?;
        Ok(header)
    }

    /// Sends a command to LUN 0.
    fn send(&mut self, cdb: &[u8], read_bytes: u32) {
        let mut pdu = [0; 48];
        (pdu[0], pdu[1]) = (0x01, if read_bytes > 0 { 0xc1 } else { 0x81 });
        pdu[16..20].copy_from_slice(&self.cmd_sn.to_be_bytes());
        pdu[20..24].copy_from_slice(&read_bytes.to_be_bytes());
        pdu[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        pdu[32..32 + cdb.len()].copy_from_slice(cdb);
        self.cmd_sn += 1;
        self.stream.write_all(&pdu).unwrap();
    }

    /// Asks for the targets. Gives the opcode of the answer.
    fn send_targets(&mut self) -> io::Result<u8> {
        let keys = b"SendTargets=All\0";
        let mut pdu = vec![0; 48];
        (pdu[0], pdu[1]) = (0x44, 0x80);
        pdu[7] = u8::try_from(keys.len()).unwrap();
        pdu[20..24].fill(0xff);
        pdu.extend(padded(keys));
        self.stream.write_all(&pdu)?;
        Ok(self.read()?[0])
    }

    /// The status of TEST UNIT READY.
    fn test_unit_ready(&mut self) -> u8 {
        self.send(&[0; 6], 0);
        loop {
            let header = self.read().unwrap();
            if header[0] == 0x21 {
                return header[3];
            }
        }
    }

    /// Whether LUN 0 answers GOOD after its unit attentions.
    fn is_ready(&mut self) -> bool {
        (0..5).any(|_| self.test_unit_ready() == 0)
    }
}

/// The only session there is.
fn session(handle: &Handle) -> SessionReport {
    let sessions = handle.sessions().unwrap();
    assert_eq!(sessions.len(), 1);
    sessions.into_iter().next().unwrap()
}

/// Gives a session these LUNs and no others, and waits until nothing is under way on those that it had.
fn grant(handle: &Handle, session: &SessionReport, luns: Vec<VisibleLun>) {
    let grant = Grant {
        session: session.id,
        core: session.core,
        luns,
        targets: Vec::new(),
    };
    let mut granted = handle.change_sessions(vec![grant], &[], "");
    assert!(granted.wait_until(soon()));
}

const fn lun_0(unit: UnitIndex) -> VisibleLun {
    VisibleLun {
        lun: 0,
        unit,
        read_only: false,
    }
}

// ---- tests -----------------------------------------------------------------------------------

/// One unit has its owner on each core.
#[test]
fn the_end_waits_for_the_last_flush_of_every_unit_and_names_those_that_fail() {
    let plane = start();
    let (disk, flushes) = disk();
    let units = ["a", "b", "c"].map(|name| unit(name, Arc::clone(&disk) as Arc<dyn SharedStore>));
    plane.handle().add_units(units.into()).unwrap();
    let answering = thread::spawn(move || {
        for _ in 0..3 {
            let flush = flushes.recv_timeout(PATIENCE).unwrap();
            flush.fail(IoFailure::Hardware { errno: 5 });
        }
    });
    let stopped = plane.stop();
    answering.join().unwrap();
    let mut unflushed: Vec<&str> = stopped.unflushed.iter().map(|name| &**name).collect();
    unflushed.sort_unstable();
    assert_eq!(unflushed, ["a", "b", "c"]);
    assert!(!stopped.is_core_lost);
}

#[test]
fn units_are_closed_when_their_last_flushes_are_over_and_not_before() {
    let plane = start();
    let (disk, flushes) = disk();
    let units = ["a", "b"].map(|name| unit(name, Arc::clone(&disk) as Arc<dyn SharedStore>));
    let units = plane.handle().add_units(units.into()).unwrap();
    let mut closed = plane.handle().close_units(&units);
    for _ in &units {
        let flush = flushes.recv_timeout(PATIENCE).unwrap();
        assert!(!closed.wait_until(Instant::now()));
        flush.pass();
    }
    assert!(closed.wait_until(soon()));
    assert_eq!(closed.unflushed(), []);
    drop(plane.stop());
    assert!(flushes.try_recv().is_err(), "a closed unit is flushed");
}

/// The unit belongs to the second core; the first one takes part in its fence.
#[test]
fn an_eject_waits_for_its_flush_and_the_unit_is_not_idle_meanwhile() {
    const EJECT: MediumOrder = MediumOrder::Eject { force: false };
    let plane = start();
    let (disk, flushes) = disk();
    let units = ["a", "b"].map(|name| unit(name, Arc::clone(&disk) as Arc<dyn SharedStore>));
    let unit = plane.handle().add_units(units.into()).unwrap()[1];
    let handle = plane.handle();
    let mut drained = thread::scope(|scope| {
        let ejecting = scope.spawn(|| handle.move_medium(unit, EJECT));
        let flush = flushes.recv_timeout(PATIENCE).unwrap();
        let mut drained = handle.drain_units(&[unit]);
        // The core reads its letters in order, and takes a turn for each of these.
        for _ in 0..3 {
            assert_eq!(
                handle.move_medium(unit, EJECT),
                Ok(Err(MediumFailure::Busy))
            );
        }
        assert!(!drained.wait_until(Instant::now()));
        assert!(handle.medium(unit).is_in);
        flush.pass();
        assert_eq!(ejecting.join().unwrap(), Ok(Ok(())));
        drained
    });
    assert!(!handle.medium(unit).is_in);
    assert!(drained.wait_until(soon()));
    let answering = thread::spawn(move || {
        while let Ok(flush) = flushes.recv() {
            flush.pass();
        }
    });
    drop((plane.stop(), disk));
    answering.join().unwrap();
}

/// Each unit belongs to another core.
#[test]
fn commands_wait_while_media_are_held_and_go_on_when_they_are_released() {
    let limit = Duration::from_secs(60);
    let plane = start();
    let handle = plane.handle();
    let units = ["a", "b"].map(|name| unit(name, Arc::new(zeros())));
    let units = handle.add_units(units.into()).unwrap();
    let hold = handle.hold_media(&units, limit).unwrap();
    let load = handle.move_medium(units[1], MediumOrder::Load);
    assert_eq!(load, Ok(Err(MediumFailure::Busy)));
    assert!(hold.release());
    // One that is dropped is released, too.
    drop(handle.hold_media(&units, limit).unwrap());
    let hold = handle.hold_media(&units[..1], limit).unwrap();
    let load = handle.move_medium(units[1], MediumOrder::Load);
    assert_eq!(load, Ok(Ok(())));
    drop(hold);
    let short = handle.hold_media(&units, Duration::ZERO);
    let is_late = matches!(
        short,
        Err((_, NotHeld::NoAnswer | NotHeld::Refused(MediumFailure::Busy)))
    );
    assert!(is_late, "{short:?}");
    drop(short);
    assert!(handle.hold_media(&units, limit).unwrap().release());
    drop(plane.stop());
}

#[test]
fn a_portal_that_is_closed_refuses_connections() {
    let plane = start();
    let (address, portal) = listen(plane.handle());
    drop(Initiator::discovery(address).unwrap());
    set_access(plane.handle(), vec![], vec![portal]);
    // Until the listener is gone the kernel may take one more, or reset one that it has begun to take.
    let end = soon();
    loop {
        match TcpStream::connect(address).map_err(|error| error.kind()) {
            Err(ErrorKind::ConnectionRefused) => break,
            Ok(_) | Err(ErrorKind::ConnectionReset) => {}
            Err(other) => panic!("the connection ends as {other}"),
        }
        assert!(Instant::now() < end, "it is still listened on");
    }
    drop(plane.stop());
}

#[test]
fn connections_that_are_gone_leave_room_for_others() {
    let plane = start();
    let (address, _) = listen(plane.handle());
    for round in 0..20 {
        let initiator = Initiator::discovery(address);
        assert!(initiator.is_ok(), "connection {round}: {initiator:?}");
        drop(initiator);
        // Until the session has ended, its connection counts.
        let end = soon();
        while !plane.handle().sessions().unwrap().is_empty() {
            assert!(Instant::now() < end, "the session stays");
        }
    }
    // Each counts once: half of the room is enough for as many as that.
    let half: Vec<_> = (0..4).map(|_| Initiator::discovery(address)).collect();
    assert!(half.iter().all(Result::is_ok), "{half:?}");
    drop(plane.stop());
}

/// While an answer is on its way, nothing is read.
#[test]
fn a_discovery_session_is_read_again_when_its_answer_is_sent() {
    let plane = start();
    let (address, _) = listen(plane.handle());
    let mut initiator = Initiator::discovery(address).unwrap();
    for _ in 0..3 {
        assert_eq!(initiator.send_targets().unwrap(), 0x24, "text response");
    }
    drop(plane.stop());
}

#[test]
fn a_lun_is_there_when_it_is_granted_and_gone_when_it_is_taken() {
    let plane = start();
    let handle = plane.handle();
    let units = ["a", "b"].map(|name| unit(name, Arc::new(zeros())));
    let units = handle.add_units(units.into()).unwrap();
    let (address, _) = listen(handle);
    let mut initiator = Initiator::normal(address);
    let session = session(handle);
    assert!(!initiator.is_ready());
    // One is owned by the core of the session, the other is not.
    for &unit in &units {
        grant(handle, &session, vec![lun_0(unit)]);
        assert!(initiator.is_ready(), "{unit:?} was granted");
        grant(handle, &session, vec![]);
        assert!(!initiator.is_ready(), "{unit:?} was taken");
    }
    let mut drained = handle.drain_units(&units);
    assert!(drained.wait_until(soon()));
    drop(plane.stop());
}

#[test]
fn a_session_that_is_ended_does_not_wait_for_an_initiator_that_does_not_read() {
    /// 8 MiB, eight times: more than the kernel holds for a connection.
    const BLOCKS: u16 = 16 * 1024;
    let plane = start();
    let handle = plane.handle();
    let units = handle
        .add_units(vec![unit("a", Arc::new(zeros()))])
        .unwrap();
    let (address, _) = listen(handle);
    let mut initiator = Initiator::normal(address);
    let session = session(handle);
    grant(handle, &session, vec![lun_0(units[0])]);
    assert!(initiator.is_ready());
    let [high, low] = BLOCKS.to_be_bytes();
    for _ in 0..8 {
        let read_10 = [0x28, 0, 0, 0, 0, 0, 0, high, low, 0];
        initiator.send(&read_10, u32::from(BLOCKS) * 512);
    }
    // Until nothing goes on any more, whatever is asked of the core meanwhile.
    let (mut taken, mut unchanged, end) = (0, 0, soon());
    while unchanged < 200 {
        assert!(Instant::now() < end, "it goes on");
        handle.sessions().unwrap();
        let counts = handle.counts();
        let series = counts.iter().flat_map(|core| &core.series);
        let bytes = series.flat_map(|one| &one.kinds).map(|kind| kind.bytes);
        let now: u64 = bytes.sum();
        unchanged = if now == taken { unchanged + 1 } else { 0 };
        taken = now;
    }
    let mut ended = handle.change_sessions(vec![], &[(session.core, session.id)], "a test");
    assert!(ended.wait_until(soon()));
    assert!(handle.sessions().unwrap().is_empty());
    drop(plane.stop());
}
