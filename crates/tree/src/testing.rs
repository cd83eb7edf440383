//! A daemon for tests of the model: two units, a target, a session, and one of each other thing.

use std::sync::Arc;

use api::event::{Finding, Severity};
use api::plan::Document;
use api::problem::{Problem, ProblemKind};
use api::spec;
use api::stats::{Operations, Series, Stats};
use api::view::{
    Connection, Hyperscsi, IscsiSession, Lun, LunPath, LunService, Medium, Quota, Reservations,
    Session, SessionLun, Snapshot, Status, Target, Transport,
};
use client::ClientError;

use crate::refusal::Refusal;
use crate::view::View;

/// The target.
pub(crate) const IQN: &str = "iqn.2026-11.example.tarn:a";

/// A daemon that answers, or one that does not.
pub(crate) struct Fixed {
    pub(crate) answers: bool,
}

/// The daemon that answers.
pub(crate) fn daemon() -> Arc<dyn View> {
    Arc::new(Fixed { answers: true })
}

impl Fixed {
    fn say<T: ?Sized>(&self, value: impl Into<Arc<T>>) -> Result<Arc<T>, Refusal> {
        let problem = Problem::new(ProblemKind::Unavailable, "it does not answer");
        let silence = || Arc::new(ClientError::Problem(Box::new(problem)));
        if self.answers {
            Ok(value.into())
        } else {
            Err(silence().into())
        }
    }
}

fn lun(id: &str) -> Lun {
    Lun {
        spec: spec::Lun {
            id: id.to_owned(),
            store: "mem:1M".to_owned(),
            serial: None,
            ..spec::Lun::default()
        },
        kind: "memory".to_owned(),
        device_type: "disk".to_owned(),
        size_bytes: 1 << 20,
        block_bytes: 512,
        readonly: false,
        cache: None,
        thin: true,
        serial: "S1".to_owned(),
        naa: "3000000000000001".to_owned(),
        medium: Some(Medium {
            loaded: true,
            prevented_by: vec!["iqn.2026-11.example:a".to_owned()],
        }),
        outage: None,
        trouble: None,
        reservations: Some(Reservations {
            kind: Some("write-exclusive-all-registrants".to_owned()),
            registered: 2,
            ..Reservations::default()
        }),
        served_by: vec![LunService {
            protocol: "hyperscsi".to_owned(),
            name: "ABC at eth1".to_owned(),
            device: id.to_owned(),
            groups: Vec::new(),
            readonly: false,
            level: Some("crc".to_owned()),
        }],
        shown_by: vec![LunPath {
            target: IQN.to_owned(),
            lun: 3,
            groups: vec!["lab".to_owned()],
            readonly: true,
        }],
    }
}

fn operations(count: u64) -> Operations {
    Operations {
        count,
        bytes: count * 4096,
        errors: 1,
        latency_us: count * 10,
        latency: Vec::new(),
    }
}

fn series(lun: &str, initiator: &str, count: u64) -> Series {
    Series {
        lun: lun.to_owned(),
        initiator: initiator.to_owned(),
        depth: 1,
        slow: 0,
        read: operations(count),
        write: operations(2 * count),
        other: operations(3 * count),
    }
}

impl View for Fixed {
    fn status(&self) -> Result<Arc<Status>, Refusal> {
        self.say(Status {
            version: "0.1.0".to_owned(),
            pid: 7,
            started_ms: 1,
            now_ms: 2,
            revision: 42,
            config_file: None,
            state_directory: "/s".to_owned(),
            cores: 1,
            luns: 2,
            targets: 1,
            sessions: 1,
            pending: Vec::new(),
            certificates: Vec::new(),
            findings: vec![Finding {
                severity: Severity::Warning,
                code: "write-cache".to_owned(),
                subject: "disk0".to_owned(),
                lun: None,
                message: "each write waits for the disk".to_owned(),
                remedy: "take cache=writeback".to_owned(),
            }],
        })
    }

    fn document(&self) -> Result<Arc<Document>, Refusal> {
        self.say(Document {
            revision: 42,
            text: "# nothing".to_owned(),
        })
    }

    fn luns(&self) -> Result<Arc<[Lun]>, Refusal> {
        self.say(vec![
            lun("disk0"),
            lun("block:/dev/vg"),
            lun(&"x".repeat(256)),
        ])
    }

    fn targets(&self) -> Result<Arc<[Target]>, Refusal> {
        let shown = |lun, id: &str| spec::TargetLun {
            lun,
            id: id.to_owned(),
            groups: Vec::new(),
            readonly: false,
        };
        let portal = |advertise: Option<&str>, group| spec::Portal {
            bind: "[::]:3260".to_owned(),
            advertise: advertise.map(str::to_owned),
            group,
        };
        self.say(vec![Target {
            spec: spec::Target {
                name: IQN.to_owned(),
                alias: None,
                portals: Some(vec![portal(None, None), portal(Some("san:3260"), Some(2))]),
                auth: vec!["alice".to_owned()],
                chap_algorithms: None,
                cold_reset: false,
                luns: vec![shown(0, "disk0"), shown(3, "block:/dev/vg")],
            },
            bound: vec!["[::]:3260".to_owned()],
            sessions: 1,
        }])
    }

    fn sessions(&self) -> Result<Arc<[Session]>, Refusal> {
        self.say(vec![Session {
            id: 7,
            initiator: "iqn.x:host".to_owned(),
            address: "192.0.2.1:5000".to_owned(),
            target: Some(IQN.to_owned()),
            user: None,
            core: 0,
            since_ms: 3,
            luns: vec![SessionLun {
                level: None,
                lun: 0,
                id: "disk0".to_owned(),
                readonly: true,
            }],
            commands: 0,
            window: 128,
            transport: Transport::Iscsi(IscsiSession {
                tsih: 4711,
                isid: "400001370000".to_owned(),
                portal_group: 1,
                connections: vec![Connection {
                    cid: 0,
                    address: "192.0.2.1:5000".to_owned(),
                    portal: "192.0.2.2:3260".to_owned(),
                    header_digest: true,
                    data_digest: false,
                }],
                violations: 0,
                reinstatements: 0,
            }),
        }])
    }

    fn groups(&self) -> Result<Arc<[spec::Group]>, Refusal> {
        self.say(vec![spec::Group {
            id: "lab".to_owned(),
            initiators: vec!["iqn.x:*".to_owned(), "192.0.2.0/24".to_owned()],
        }])
    }

    fn users(&self) -> Result<Arc<[spec::User]>, Refusal> {
        self.say(vec![spec::User {
            name: "alice".to_owned(),
            secret_file: Some("/s/alice".to_owned()),
            secret: None,
            mutual: None,
            initiators: None,
        }])
    }

    fn stores(&self) -> Result<Arc<[spec::Store]>, Refusal> {
        self.say(vec![spec::Store {
            id: "part".to_owned(),
            store: "file:/srv/part.img".to_owned(),
        }])
    }

    fn nbd(&self) -> Result<Arc<[spec::Nbd]>, Refusal> {
        let file = |name: &str| Some(format!("/etc/{name}.pem"));
        self.say(vec![spec::Nbd {
            socket: Some("/run/nbd.sock".to_owned()),
            luns: vec!["disk0".to_owned()],
            certificate: file("server"),
            key: file("key"),
            ..spec::Nbd::default()
        }])
    }

    fn quotas(&self) -> Result<Arc<[Quota]>, Refusal> {
        let spec = spec::Quota {
            owner: Some("alice".to_owned()),
            used: Some("1G".to_owned()),
            ..spec::Quota::default()
        };
        self.say(vec![Quota {
            name: spec.name(),
            spec,
            luns: vec!["disk0".to_owned()],
            provisioned_bytes: 1 << 20,
            provisioned_max_bytes: None,
            used_bytes: Some(4096),
            used_max_bytes: Some(1 << 30),
            space: "free".to_owned(),
        }])
    }

    fn snapshots(&self, lun: &str) -> Result<Arc<[Snapshot]>, Refusal> {
        let snapshot = Snapshot {
            lun: lun.to_owned(),
            name: "a".to_owned(),
            taken_ms: 5,
            size_bytes: 512,
            path: "/srv/disk0.img.snapshots/a".to_owned(),
        };
        self.say(
            (lun == "disk0")
                .then_some(snapshot)
                .into_iter()
                .collect::<Vec<_>>(),
        )
    }

    fn hyperscsi(&self) -> Result<Arc<[Hyperscsi]>, Refusal> {
        let device = |id: &str, level: &str, readonly| spec::HyperscsiDevice {
            id: id.to_owned(),
            level: Some(level.to_owned()),
            readonly,
        };
        self.say(vec![Hyperscsi {
            name: "ABC at eth1".to_owned(),
            spec: spec::Hyperscsi {
                name: "ABC".to_owned(),
                interface: Some("eth1".to_owned()),
                password_file: Some("/s/abc".to_owned()),
                profile: Some("wired".to_owned()),
                device: vec![
                    device("disk0", "crc", false),
                    device("block:/dev/vg", "encrypt", true),
                ],
                ..spec::Hyperscsi::default()
            },
            place: "eth1".to_owned(),
            password: "file".to_owned(),
            sessions: vec![7],
        }])
    }

    fn stats(&self) -> Result<Arc<Stats>, Refusal> {
        self.say(Stats {
            at_ms: 4,
            store_errors: Vec::new(),
            cores: Vec::new(),
            series: vec![
                series("disk0", "iqn.x:host", 1),
                series("disk0", "iqn.x:other", 10),
                series("block:/dev/vg", "iqn.x:host", 100),
            ],
            logins: api::stats::Logins::default(),
            sessions: 1,
            stores: Vec::new(),
        })
    }

    fn last_error(&self) -> String {
        "the last".to_owned()
    }
}
