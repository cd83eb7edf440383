//! A core that fails ends the whole process, and at once.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use iscsi::pdu::LoginStatus;
use plane::{
    Access, Asker, Authorization, Coalescing, DataPlane, Event, EventSink, Holding, Policy,
    PortalIndex, Settings, TargetIndex, VisibleLun, VisibleTarget,
};
use reactor::Listener;

/// Set for the process that fails.
const CHILD: &str = "TARN_TEST_FAILING_CORE";

/// Rules of access with a fault of ours.
#[derive(Debug)]
struct Faulty;

impl Policy for Faulty {
    fn authorize(&self, _: &Asker<'_>, _: Option<&str>) -> Result<Authorization, LoginStatus> {
        panic!("a fault of ours")
    }

    fn luns(&self, _: &Asker<'_>, _: TargetIndex) -> Result<Vec<VisibleLun>, LoginStatus> {
        Ok(Vec::new())
    }

    fn may_discover(&self, _: &Asker<'_>) -> bool {
        true
    }

    fn targets(&self, _: &Asker<'_>, _: Option<TargetIndex>) -> Vec<VisibleTarget> {
        Vec::new()
    }
}

#[derive(Debug)]
struct NoEvents;

impl EventSink for NoEvents {
    fn emit(&self, _: &Event<'_>) {}
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
        gap_timeout: second,
        login_timeout: second,
        queue_depth: 8,
        nop_interval: None,
        nop_timeout: second,
        abort_timeout: second,
        fence_timeout: second,
        core_stall_limit: 60 * second,
        stop_timeout: second,
        slow_command: None,
    }
}

/// A login request for discovery: 48 bytes of header, then the keys, padded to four bytes.
fn login_request() -> Vec<u8> {
    const KEYS_BYTES: u8 = 61;
    let keys = b"InitiatorName=iqn.2026-11.example:host\0SessionType=Discovery\0";
    let mut pdu = vec![0; 48];
    (pdu[0], pdu[1]) = (0x43, 0x87);
    assert_eq!(keys.len(), usize::from(KEYS_BYTES));
    pdu[7] = KEYS_BYTES;
    pdu[8] = 0x80;
    pdu.extend_from_slice(keys);
    pdu.resize(pdu.len().next_multiple_of(4), 0);
    pdu
}

/// What the other test starts in a process of its own: a core panics while a login is under way.
#[test]
fn serve_with_a_faulty_core() {
    if std::env::vars_os().all(|(name, _)| name != CHILD) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let listener = Listener::try_from(listener).unwrap();
    let policy: Arc<dyn Policy> = Arc::new(Faulty);
    let plane = DataPlane::start(settings(), Arc::clone(&policy), Arc::new(NoEvents)).unwrap();
    let (opened, confirmed) = plane.handle().set_access(Access {
        policy,
        targets: Vec::new(),
        open: vec![listener],
        open_nbd: Vec::new(),
        close: Vec::new(),
    });
    assert_eq!((opened, confirmed), (vec![PortalIndex(0)], Ok(())));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&login_request()).unwrap();
    // The process ends here. Without that it would end well, after a while.
    std::thread::park_timeout(Duration::from_secs(20));
    drop(plane.stop());
}

#[test]
fn a_core_that_panics_ends_the_process_with_a_line_and_a_status() {
    let ended = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "serve_with_a_faulty_core", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{errors}");
    let line = "tarn: core 0 failed, the process ends: it panicked";
    assert!(errors.contains(line), "{errors}");
}
