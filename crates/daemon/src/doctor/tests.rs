use std::collections::BTreeMap;

use api::view::{Connection, IscsiSession, Transport};
use plane::{Cause, Space};

use super::*;
use crate::held::Cause as Withholding;

/// One unit that one target shows, without a warning.
fn text(store: &str) -> String {
    format!(
        "[[lun]]\nid = \"a\"\nstore = \"{store}\"\n\
         [[target]]\nname = \"iqn.2026-11.example:a\"\nportals = [\"127.0.0.1:3260\"]\n\
         luns = [{{ lun = 0, id = \"a\" }}]\n"
    )
}

fn model(text: &str) -> Model {
    Model::from_toml(text, "/etc/tarn/tarn.toml".as_ref()).unwrap()
}

fn connection(data_digest: bool) -> Connection {
    Connection {
        cid: 0,
        address: "192.0.2.1:5000".to_owned(),
        portal: "192.0.2.2:3260".to_owned(),
        header_digest: false,
        data_digest,
    }
}

fn session(commands: u32, violations: u64, data_digest: bool) -> Session {
    Session {
        id: 1,
        initiator: "iqn.2026-11.example:init".to_owned(),
        address: "192.0.2.1:5000".to_owned(),
        target: None,
        user: None,
        core: 0,
        since_ms: 0,
        luns: Vec::new(),
        commands,
        window: 128,
        transport: Transport::Iscsi(IscsiSession {
            violations,
            connections: [false, data_digest].map(connection).into(),
            ..IscsiSession::default()
        }),
    }
}

fn trace() -> Trace {
    Trace {
        subject: "iqn.2026-11.example:init".to_owned(),
        since_ms: 0,
        data_bytes: 64,
        keep_bytes: 1 << 20,
        pdus: 7,
        dropped: 0,
    }
}

fn writes(lun: &str, count: u64, mean_us: u64) -> Stats {
    let none = api::stats::Operations::default;
    let write = api::stats::Operations {
        count,
        latency_us: count * mean_us,
        ..none()
    };
    Stats {
        at_ms: 0,
        sessions: 0,
        stores: Vec::new(),
        cores: Vec::new(),
        store_errors: Vec::new(),
        series: vec![api::stats::Series {
            lun: lun.to_owned(),
            initiator: "a".to_owned(),
            depth: 0,
            slow: 0,
            read: none(),
            write,
            other: none(),
        }],
        logins: api::stats::Logins {
            accepted: 0,
            succeeded: 0,
            failed: Vec::new(),
        },
    }
}

fn held(space: Space) -> Held {
    Held {
        quota: "owner a".to_owned(),
        bytes: 9,
        most_bytes: 10,
        space,
    }
}

fn exceeded() -> (String, StartError) {
    let error = StartError::OverQuota {
        place: config::Place::argument("owner a"),
        quota: "owner a".to_owned(),
        wanted_bytes: 11,
        allowed_bytes: 10,
    };
    ("owner a".to_owned(), error)
}

/// Facts that give nothing to find.
struct Given {
    model: Model,
    failed: Vec<String>,
    troubled: Vec<Troubled>,
    now: Instant,
    unsent: Vec<(String, String)>,
    outages: Vec<(String, String)>,
    conflicts: Vec<(String, String)>,
    stranded: Vec<Stranded>,
    certificates: Vec<(String, SystemTime)>,
    quotas: Vec<Held>,
    exceeded: Vec<(String, StartError)>,
    hindered: Vec<(String, Hindrance)>,
    missed: Vec<(String, String)>,
    interfaces: Vec<(String, interface::Problem)>,
    sessions: Vec<Session>,
    stats: Stats,
    shares: Vec<Share>,
    machine: Machine,
    memory: Option<&'static str>,
    hosts: Vec<Host>,
    frames: FrameCounts,
    room: Room,
    kept: Option<Kept>,
    traces: Vec<Trace>,
    clock: (Duration, Duration),
    guessing: Vec<Guessing>,
}

fn not_served(cause: Withholding) -> Hindrance {
    let why = "why".to_owned();
    Hindrance::Held(Withheld { why, cause })
}

impl Given {
    fn hinder(&mut self, hindrance: Hindrance) {
        self.hindered.push(("a".to_owned(), hindrance));
    }

    fn quiet() -> Self {
        Self {
            model: model(&text("mem:1M")),
            failed: Vec::new(),
            troubled: Vec::new(),
            now: Instant::now(),
            unsent: Vec::new(),
            outages: Vec::new(),
            conflicts: Vec::new(),
            stranded: Vec::new(),
            certificates: Vec::new(),
            quotas: Vec::new(),
            exceeded: Vec::new(),
            hindered: Vec::new(),
            missed: Vec::new(),
            interfaces: Vec::new(),
            sessions: vec![session(127, 0, false)],
            stats: writes("a", 1000, 50_000),
            shares: vec![share(0, 1, 0.6, 0), share(1, 1, 0.2, 0)],
            machine: Machine {
                receive_max_bytes: Some(6 << 20),
                send_max_bytes: Some(4 << 20),
                descriptors_max: Some(1 << 20),
            },
            memory: None,
            hosts: vec![host()],
            frames: FrameCounts {
                sent: 100_000,
                again: 90,
                received: 100_000,
                corrupt: 4,
            },
            room: Room {
                systems: vec![file_system(900, 5000)],
                looked: None,
                files: Vec::new(),
                replaced: Vec::new(),
                is_late: false,
            },
            kept: None,
            traces: Vec::new(),
            clock: (Duration::from_secs(100), Duration::from_secs(101)),
            guessing: Vec::new(),
        }
    }

    fn codes(&self) -> Vec<String> {
        self.findings().into_iter().map(|one| one.code).collect()
    }

    fn findings(&self) -> Vec<Finding> {
        examine(&Facts {
            model: &self.model,
            failed: &self.failed,
            outages: &self.outages,
            conflicts: &self.conflicts,
            stranded: &self.stranded,
            certificates: &self.certificates,
            quotas: &self.quotas,
            exceeded: &self.exceeded,
            hindered: &self.hindered,
            troubled: &self.troubled,
            now: self.now,
            unsent: &self.unsent,
            missed: &self.missed,
            interfaces: &self.interfaces,
            sessions: &self.sessions,
            stats: &self.stats,
            shares: &self.shares,
            machine: &self.machine,
            memory: self.memory,
            hosts: &self.hosts,
            frames: self.frames,
            room: &self.room,
            kept: &self.kept,
            traces: &self.traces,
            clock: self.clock,
            guessing: &self.guessing,
        })
    }
}

/// One with jumbo frames all the way.
fn host() -> Host {
    let narrowest = tcp::Connection {
        peer: "192.0.2.1:5000".parse().unwrap(),
        segment_bytes: 8948,
        own_segment_bytes: 8960,
        path_mtu: 9000,
        timeouts: 0,
        counts: tcp::Counts::default(),
    };
    Host {
        address: narrowest.peer.ip(),
        narrowest,
        timeouts: 0,
        counts: tcp::Counts {
            segments: 100_000,
            again: 3,
            busy_us: 1_000_000,
            window_us: 1000,
            buffer_us: 1000,
        },
    }
}

fn kept(bytes: u64, files: Option<u64>) -> Option<Kept> {
    Some(("/var/lib/tarn".into(), Ok(keep::Room { bytes, files })))
}

/// One of 1000 bytes.
fn file_system(free_bytes: u64, promised_bytes: u64) -> space::FileSystem {
    space::FileSystem {
        path: "/srv/a.img".into(),
        free_bytes,
        size_bytes: 1000,
        promised_bytes,
    }
}

fn share(core: u32, sessions: u32, busy: f64, starved: u64) -> Share {
    Share {
        core,
        sessions,
        busy,
        starved,
    }
}

/// A file of a unit of 512 bytes.
fn file(len_bytes: u64, free_bytes: u64) -> space::FileLook {
    space::FileLook {
        lun: "a".to_owned(),
        path: "/srv/a.img".into(),
        wanted_bytes: Some(512),
        len_bytes,
        taken_bytes: 0,
        free_bytes,
    }
}

/// A unit of which a command failed so long ago.
fn failing(given: &Given, cause: Cause, seconds_ago: u64) -> Vec<Troubled> {
    let last = given.now - Duration::from_secs(seconds_ago);
    vec![Troubled {
        lun: "a".to_owned(),
        failures: BTreeMap::from([(cause, (7, last))]),
        ..Troubled::default()
    }]
}

/// The machine may be up for less time than a rule looks back.
fn later(given: &mut Given) {
    given.now += Duration::from_secs(1000);
}

#[test]
fn a_failure_of_a_store_is_over_when_its_cause_is_or_long_after_it() {
    let mut given = Given::quiet();
    later(&mut given);
    for cause in [
        Cause::Medium,
        Cause::NoSpace,
        Cause::Truncated,
        Cause::System(30),
    ] {
        given.troubled = failing(&given, cause, 299);
        assert_eq!(given.codes(), ["store-error"], "{cause}");
        given.troubled = failing(&given, cause, 300);
        assert!(given.codes().is_empty(), "{cause}");
    }
    // A look before the failure says nothing, one after it does; a medium is not looked at.
    for (cause, file, looked, codes) in [
        (Cause::NoSpace, file(512, 16 << 20), 10, vec!["store-error"]),
        (Cause::NoSpace, file(512, 16 << 20), 4, vec![]),
        (
            Cause::NoSpace,
            file(512, (16 << 20) - 1),
            4,
            vec!["store-error"],
        ),
        (Cause::Truncated, file(512, 0), 4, vec![]),
        (Cause::Truncated, file(511, 0), 4, vec!["store-error"]),
        (Cause::Medium, file(512, 1 << 30), 4, vec!["store-error"]),
    ] {
        given.troubled = failing(&given, cause, 5);
        given.room.looked = given.now.checked_sub(Duration::from_secs(looked));
        given.room.files = vec![file];
        assert_eq!(given.codes(), codes, "{cause} {looked}");
    }
    given.room.files.clear();
    given.troubled = failing(&given, Cause::NoSpace, 5);
    assert_eq!(
        given.codes(),
        ["store-error"],
        "nothing is known of the file system"
    );
}

/// They have rules of their own.
#[test]
fn a_failed_flush_and_a_lost_server_are_found_once() {
    let mut given = Given::quiet();
    for cause in [Cause::FlushFailed, Cause::NotReady] {
        given.troubled = failing(&given, cause, 0);
        assert!(given.codes().is_empty(), "{cause}");
    }
}

type Change = fn(&mut Given);

#[rustfmt::skip]
const CASES: &[(Change, &[&str])] = &[
    (|_| {}, &[]),
    (|given| given.failed.push("a".to_owned()), &["flush-failed"]),
    (|given| given.outages.push(("a".to_owned(), "why".to_owned())), &["store-lost"]),
    (|given| given.quotas.push(held(Space::Low)), &["quota-soft"]),
    (|given| given.quotas.push(held(Space::Full)), &["quota-full"]),
    (|given| given.exceeded.push(exceeded()), &["quota-exceeded"]),
    (|given| given.missed.push(("a".to_owned(), "full".to_owned())), &["snapshot-missed"]),
    (|given| given.quotas.push(held(Space::Free)), &[]),
    (|given| given.hinder(not_served(Withholding::Log { may_discard: true, may_replay: false })), &["log-lost"]),
    (|given| given.hinder(not_served(Withholding::Medium)), &["medium-changed"]),
    (|given| given.hinder(not_served(Withholding::Store)), &["store-unopened"]),
    (|given| given.hinder(Hindrance::LogUnused("why")), &["log-failed"]),
    (|given| given.hinder(Hindrance::KnownByPath), &["medium-unmarked"]),
    (|given| given.interfaces.push(("eth1".to_owned(), interface::Problem::Down { name: "eth1".to_owned() })), &["interface"]),
    (|given| given.conflicts.push(("a".to_owned(), "what".to_owned())), &["state-conflict"]),
    (|given| given.stranded.push(Stranded { lun: "a".to_owned(), initiator: "iqn.a".to_owned(), blame: "iqn.b holds it".to_owned() }),
        &["reservation-stranded"]),
    (|given| given.certificates.push(("administration".to_owned(), SystemTime::UNIX_EPOCH)), &["certificate-expired"]),
    (|given| given.model = model(""), &["config"]),
    (|given| given.shares[0].busy = 0.97, &["one-session"]),
    (|given| given.shares[0] = share(0, 3, 0.97, 0), &["core-busy"]),
    (|given| given.shares = vec![share(0, 1, 0.95, 0), share(1, 1, 0.99, 0)], &["cores-busy"]),
    // Nowhere to go.
    (|given| given.shares = vec![share(0, 1, 0.95, 0), share(1, 1, 0.8, 0)], &[]),
    (|given| given.shares[1].starved = 4, &["buffers-short"]),
    (|given| given.stats.logins.failed = vec![api::stats::LoginFailures { cause: "out-of-resources".to_owned(), count: 1 }], &["strangers"]),
    (|given| given.sessions.push(session(128, 0, false)), &["window-full"]),
    (|given| { given.model = model(&text("file:/x?cache=direct")); given.stats = writes("a", 100, 4_200); }, &["write-cache"]),
    (|given| { given.model = model(&text("file:/x?cache=direct")); given.stats = writes("a", 100, 900); }, &[]),
    // 10,000 sessions of 8 connections and 512 others, and a unit.
    (|given| given.machine.descriptors_max = Some(80_512), &["descriptors"]),
    (|given| given.machine.descriptors_max = Some(80_513), &[]),
    (|given| given.machine.send_max_bytes = Some(1 << 20), &["socket-buffers"]),
    (|given| given.sessions.push(session(0, 2, true)), &["violations", "digests"]),
    (|given| given.traces.push(trace()), &["trace"]),
    (|given| given.hosts[0].narrowest.segment_bytes = 1448, &["mtu"]),
    (|given| given.hosts[0].timeouts = 4, &["unanswered"]),
    (|given| given.hosts[0].counts.again = 1100, &["retransmissions"]),
    // Few, or few of many.
    (|given| given.hosts[0].counts.again = 900, &[]),
    (|given| given.frames.again = 1100, &["frames-lost"]),
    (|given| given.frames = FrameCounts { sent: 100, again: 49, ..given.frames }, &[]),
    (|given| given.frames.corrupt = 5, &["frames-corrupt"]),
    (|given| given.hosts[0].counts.window_us = 400_000, &["receive-window"]),
    (|given| given.hosts[0].counts.buffer_us = 400_000, &["send-buffer"]),
    // Nothing much was sent.
    (|given| { given.hosts[0].counts.busy_us = 400_000; given.hosts[0].counts.buffer_us = 400_000; }, &[]),
    (|given| given.room.systems.push(file_system(100, 101)), &["space"]),
    // What is promised is there.
    (|given| given.room.systems.push(file_system(10, 10)), &[]),
    (|given| given.room.systems.push(file_system(10, 11)), &["space"]),
    (|given| given.room.is_late = true, &["file-system"]),
    (|given| given.kept = kept(1 << 20, Some(1000)), &[]),
    (|given| given.kept = kept(0, Some(1000)), &["state-unwritable"]),
    (|given| given.kept = kept(1 << 20, Some(0)), &["state-unwritable"]),
    (|given| given.kept = Some(("/gone".into(), Err("gone".to_owned()))), &["state-unwritable"]),
    (|given| given.unsent.push(("https://a".to_owned(), "why".to_owned())), &["notify-failed"]),
    (|given| given.troubled.push(Troubled { lun: "a".to_owned(), shrunk: Some((8, 7)), ..Troubled::default() }), &["store-short"]),
    (|given| given.troubled.push(Troubled { lun: "a".to_owned(), is_stuck: true, slow: Some(given.now), ..Troubled::default() }), &["store-stuck"]),
    (|given| given.troubled.push(Troubled { lun: "a".to_owned(), slow: Some(given.now), ..Troubled::default() }), &["store-slow"]),
    (|given| given.room.replaced.push(space::Replaced { lun: "a".to_owned(), path: "/x".into(), by_another: true, is_image: false }), &["file-replaced"]),
    // The last good value and the first bad one.
    (|given| given.hosts[0].narrowest.segment_bytes = 8888, &[]),
    (|given| given.hosts[0].narrowest.segment_bytes = 8887, &["mtu"]),
    (|given| { given.hosts[0].narrowest.segment_bytes = 8887; given.hosts[0].narrowest.path_mtu = 8959; }, &["mtu"]),
    // The loopback interface has room for more than jumbo frames.
    (|given| { given.hosts[0].narrowest.segment_bytes = 32_000; given.hosts[0].narrowest.own_segment_bytes = 65_483; }, &[]),
    (|given| given.hosts[0].timeouts = 2, &[]),
    (|given| given.hosts[0].timeouts = 3, &["unanswered"]),
    (|given| { given.hosts[0].timeouts = 3; given.hosts[0].narrowest.own_segment_bytes = 1448; given.hosts[0].narrowest.segment_bytes = 1460; }, &["unanswered"]),
    (|given| given.hosts[0].counts.again = 1000, &[]),
    (|given| given.hosts[0].counts.again = 1001, &["retransmissions"]),
    (|given| (given.hosts[0].counts.segments, given.hosts[0].counts.again) = (100, 49), &[]),
    (|given| (given.hosts[0].counts.segments, given.hosts[0].counts.again) = (100, 50), &["retransmissions"]),
    (|given| (given.hosts[0].counts.segments, given.hosts[0].counts.again) = (0, 50), &["retransmissions"]),
    (|given| given.frames.again = 1000, &[]),
    (|given| given.frames.again = 1001, &["frames-lost"]),
    (|given| given.frames = FrameCounts { sent: 100, again: 50, ..given.frames }, &["frames-lost"]),
    (|given| given.frames = FrameCounts { sent: 0, again: 50, ..given.frames }, &["frames-lost"]),
    (|given| given.hosts[0].counts.window_us = 300_000, &[]),
    (|given| given.hosts[0].counts.window_us = 300_001, &["receive-window"]),
    (|given| { given.hosts[0].counts.busy_us = 500_000; given.hosts[0].counts.buffer_us = 150_001; }, &["send-buffer"]),
    (|given| { given.hosts[0].counts.busy_us = 499_999; given.hosts[0].counts.buffer_us = 150_001; }, &[]),
    (|given| given.shares = vec![share(0, 1, 0.9, 0), share(1, 1, 0.5, 0)], &["one-session"]),
    (|given| given.shares = vec![share(0, 2, 0.9, 0), share(1, 1, 0.5, 0)], &["core-busy"]),
    (|given| given.shares = vec![share(0, 1, 0.9, 0), share(1, 1, 0.51, 0)], &[]),
    (|given| given.shares = vec![share(0, 1, 0.89, 0), share(1, 1, 0.5, 0)], &[]),
    (|given| given.shares = vec![share(0, 1, 0.9, 0), share(1, 1, 0.9, 0)], &["cores-busy"]),
    (|given| given.shares.clear(), &[]),
    (|given| given.shares[1].starved = 1, &["buffers-short"]),
    (|given| { given.model = model(&text("file:/x?cache=direct")); given.stats = writes("a", 100, 1000); }, &[]),
    (|given| { given.model = model(&text("file:/x?cache=direct")); given.stats = writes("a", 100, 1001); }, &["write-cache"]),
    (|given| { given.model = model(&text("file:/x?cache=direct")); given.stats = writes("a", 99, 1001); }, &[]),
    (|given| { given.model = model(&text("file:/x?cache=direct")); given.stats = writes("b", 100, 1001); }, &[]),
    (|given| { given.model = model(&text("file:/x")); given.stats = writes("a", 100, 1001); }, &[]),
    (|given| given.machine.send_max_bytes = Some(2 << 20), &[]),
    (|given| given.machine.send_max_bytes = Some((2 << 20) - 1), &["socket-buffers"]),
    (|given| given.machine.receive_max_bytes = Some((2 << 20) - 1), &["socket-buffers"]),
    (|given| (given.machine.receive_max_bytes, given.machine.send_max_bytes) = (None, None), &[]),
    (|given| given.machine.descriptors_max = None, &[]),
    (|given| given.stats.logins.failed = vec![api::stats::LoginFailures { cause: "too-many-connections".to_owned(), count: 1 }], &[]),
    (|given| given.clock = (Duration::from_secs(104), Duration::from_millis(99_001)), &[]),
    (|given| given.clock = (Duration::from_secs(104), Duration::from_secs(99)), &["clock"]),
    (|given| given.clock = (Duration::from_secs(99), Duration::from_secs(104)), &["clock"]),
    (|given| given.sessions[0].window = 1, &[]),
];

#[test]
fn each_rule_finds_what_it_is_for_and_nothing_else() {
    for (number, &(change, expected)) in CASES.iter().enumerate() {
        let mut given = Given::quiet();
        change(&mut given);
        assert_eq!(given.codes(), expected, "case {number}");
    }
    let mut given = Given::quiet();
    given.clock.0 = Duration::from_secs(3700);
    assert_eq!(given.codes(), ["clock"]);
}

/// What each says in full. `BLESS=1` writes findings.txt anew; read the difference before it is committed.
#[test]
fn what_is_found_is_said_with_its_remedy() {
    let mut text = String::new();
    for (change, _) in CASES {
        let mut given = Given::quiet();
        change(&mut given);
        for one in given.findings() {
            let lun = one
                .lun
                .map_or_else(String::new, |lun| format!(" (lun {lun})"));
            text += &format!(
                "{:?} {} {:?}{lun}: {}\n  {}\n",
                one.severity, one.code, one.subject, one.message, one.remedy
            );
        }
    }
    let path = format!("{}/src/doctor/findings.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&path).unwrap());
}

/// The table of docs/reference/cli.md has exactly the codes that the rules give.
#[test]
fn the_codes_are_documented() {
    let section = include_str!("../../../../docs/reference/cli.md")
        .split("\n## ")
        .find(|section| section.starts_with("What the doctor finds"))
        .unwrap();
    let documented: Vec<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let rules = [
        include_str!("document.rs"),
        include_str!("service.rs"),
        include_str!("network.rs"),
        include_str!("space.rs"),
        include_str!("stores.rs"),
        include_str!("reservations.rs"),
        include_str!("../held.rs"),
        include_str!("../expiry.rs"),
        include_str!("../control/findings.rs"),
        include_str!("../state/troubles.rs"),
        include_str!("../state/hyperscsi.rs"),
        include_str!("../serve.rs"),
    ]
    .concat();
    let given: Vec<&str> = documented
        .iter()
        .copied()
        .filter(|code| rules.contains(&format!("\"{code}\"")))
        .collect();
    assert_eq!(given, documented);
    assert_eq!(documented.len(), 61);
    let found = CASES.iter().flat_map(|(_, codes)| *codes);
    let missing: Vec<_> = found.filter(|code| !documented.contains(code)).collect();
    assert_eq!(missing, Vec::<&&str>::new());
}

#[test]
fn guessing_is_found_for_an_hour() {
    let guessed = |seconds_ago| Given {
        guessing: vec![Guessing {
            address: "192.0.2.1".to_owned(),
            user: "alice".to_owned(),
            at: SystemTime::now() - Duration::from_secs(seconds_ago),
        }],
        ..Given::quiet()
    };
    assert_eq!(guessed(1).codes(), ["guessed-secret"]);
    assert!(guessed(2 * 60 * 60).codes().is_empty());
}

#[test]
fn pools_that_were_made_smaller_are_found() {
    let mut given = Given::quiet();
    assert!(!given.codes().contains(&"little-memory".to_owned()));
    given.memory = Some("each core has less");
    assert_eq!(given.codes(), ["little-memory"]);
}
