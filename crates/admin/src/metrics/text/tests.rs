use api::event::{Finding, Severity};
use api::stats::{
    Connections, Core, FileSystemSpace, Hyperscsi, LoginFailures, Logins, LunSpace, Space, Stats,
    StoreErrors,
};
use api::view::{Certificate, IscsiSession, Session, Status, Transport};

use super::*;
use crate::metrics::table::by_labels;

fn operations(count: u64) -> Operations {
    let mut latency = vec![0; LATENCY_BOUNDS_US.len() + 1];
    latency[0] = 1;
    latency[1] = 1;
    latency[40] = count - 2;
    Operations {
        count,
        bytes: 4096 * count,
        errors: 1,
        latency_us: 1_500_000,
        latency,
    }
}

const FOUND: [(&str, Severity); 4] = [
    ("a", Severity::Error),
    ("a", Severity::Error),
    ("b", Severity::Info),
    ("b", Severity::Warning),
];

fn snapshot(series: usize) -> Snapshot {
    let core = Core {
        core: 0,
        busy_us: 2_000_001,
        turns: 9,
        sessions: 11,
        pool_bytes: 64,
        pool_free_bytes: 32,
        starved: 13,
    };
    let one = |number| Series {
        lun: format!("disk {number}"),
        initiator: "iqn.x:\"a\\b\n".to_owned(),
        depth: 3,
        slow: 12,
        read: operations(5),
        write: Operations::default(),
        other: Operations::default(),
    };
    let failures = LoginFailures {
        cause: "not-found".to_owned(),
        count: 2,
    };
    let errors = StoreErrors {
        lun: "disk 0".to_owned(),
        errno: "ENOSPC".to_owned(),
        count: 4,
    };
    Snapshot {
        space: space(),
        findings: by_labels(&FOUND.map(|(lun, severity)| finding(lun, severity))),
        stats: Stats {
            at_ms: 0,
            cores: vec![core],
            series: (0..series).map(one).collect(),
            store_errors: vec![errors],
            logins: Logins {
                accepted: 7,
                succeeded: 5,
                failed: vec![failures],
            },
            sessions: 19,
            stores: vec![Connections {
                lun: "far".to_owned(),
                up: 2,
                again: 1,
                held: 4,
            }],
        },
        status: Status {
            version: "0.1.0".to_owned(),
            pid: 1,
            started_ms: 1_700_000_000_123,
            now_ms: 0,
            revision: 42,
            config_file: None,
            state_directory: String::new(),
            cores: 1,
            luns: 17,
            targets: 18,
            sessions: 1,
            pending: Vec::new(),
            certificates: vec![certificate()],
            findings: Vec::new(),
        },
        sessions: vec![session()],
        hyperscsi: hyperscsi(),
    }
}

fn certificate() -> Certificate {
    Certificate {
        of: "administration".to_owned(),
        not_after_ms: 1_800_000_000_000,
    }
}

fn hyperscsi() -> Hyperscsi {
    Hyperscsi {
        frames: vec![("received", 9), ("corrupt", 2)],
        events: vec![("question", 3)],
        places: vec![("ether:eth1".to_owned(), 2)],
    }
}

/// A file that takes little and may take more than there is, and a disk of which nothing is known.
fn space() -> Space {
    let lun = |lun: &str, device_type: &str, allocated_bytes| LunSpace {
        lun: lun.to_owned(),
        device_type: device_type.to_owned(),
        size_bytes: 1 << 30,
        allocated_bytes,
    };
    Space {
        luns: vec![lun("raw", "tape", None), lun("thin", "disk", Some(4096))],
        file_systems: vec![FileSystemSpace {
            path: "/srv/a.img".to_owned(),
            size_bytes: 1000,
            free_bytes: 10,
            promised_bytes: 11,
        }],
    }
}

fn finding(lun: &str, severity: Severity) -> Finding {
    Finding {
        severity,
        code: "store-error".to_owned(),
        subject: lun.to_owned(),
        lun: Some(lun.to_owned()),
        message: String::new(),
        remedy: String::new(),
    }
}

/// All samples but those of the histogram, whose labels are long.
const SAMPLES: &str = r#"tarn_build_info{version="0.1.0"} 1
tarn_start_time_seconds 1700000000.123
tarn_certificate_not_after_seconds{of="administration"} 1800000000.000
tarn_config_revision 42
tarn_luns 17
tarn_targets 18
tarn_findings{rule="store-error",severity="error",lun="a"} 2
tarn_findings{rule="store-error",severity="info",lun="b"} 1
tarn_findings{rule="store-error",severity="warning",lun="b"} 1
tarn_sessions 19
tarn_session_info{session="1",initiator="iqn.x",target="",portal_group="20",core="0"} 1
tarn_session_commands{session="1"} 14
tarn_session_window{session="1"} 15
tarn_session_violations_total{session="1"} 16
tarn_connections_accepted_total 7
tarn_logins_total 5
tarn_login_failures_total{cause="not-found"} 2
tarn_scsi_commands_total{OF,operation="read"} 5
tarn_scsi_bytes_total{OF,operation="read"} 20480
tarn_scsi_errors_total{OF,operation="read"} 1
tarn_store_errors_total{lun="disk 0",errno="ENOSPC"} 4
tarn_lun_info{lun="raw",type="tape"} 1
tarn_lun_info{lun="thin",type="disk"} 1
tarn_lun_size_bytes{lun="raw"} 1073741824
tarn_lun_size_bytes{lun="thin"} 1073741824
tarn_lun_allocated_bytes{lun="thin"} 4096
tarn_filesystem_size_bytes{path="/srv/a.img"} 1000
tarn_filesystem_free_bytes{path="/srv/a.img"} 10
tarn_filesystem_promised_bytes{path="/srv/a.img"} 11
tarn_scsi_command_duration_seconds_count{OF,operation="read"} 5
tarn_scsi_command_duration_seconds_sum{OF,operation="read"} 1.500000
tarn_queue_depth{OF} 3
tarn_slow_commands_total{OF} 12
tarn_store_connections{lun="far"} 2
tarn_store_reconnects_total{lun="far"} 1
tarn_store_held_requests{lun="far"} 4
tarn_hyperscsi_frames_total{kind="received"} 9
tarn_hyperscsi_frames_total{kind="corrupt"} 2
tarn_hyperscsi_events_total{event="question"} 3
tarn_hyperscsi_place_away{place="ether:eth1"} 2
tarn_reactor_busy_seconds_total{core="0"} 2.000001
tarn_reactor_turns_total{core="0"} 9
tarn_reactor_sessions{core="0"} 11
tarn_pool_bytes{core="0"} 64
tarn_pool_free_bytes{core="0"} 32
tarn_starved_commands_total{core="0"} 13
"#;

#[test]
fn each_metric_says_its_own_of_each_thing_that_has_it() {
    let of = "lun=\"disk 0\",initiator=\"iqn.x:\\\"a\\\\b\\n\"";
    for format in [Format::OpenMetrics, Format::Prometheus] {
        let text = text(format).replace(of, "OF");
        let is_sample = |line: &&str| !line.starts_with('#') && !line.contains("_bucket{");
        let samples: Vec<_> = text.lines().filter(is_sample).collect();
        assert_eq!(samples, SAMPLES.lines().collect::<Vec<_>>());
    }
}

fn session() -> Session {
    Session {
        id: 1,
        initiator: "iqn.x".to_owned(),
        address: "192.0.2.1:5".to_owned(),
        target: None,
        user: None,
        core: 0,
        since_ms: 0,
        luns: Vec::new(),
        commands: 14,
        window: 15,
        transport: Transport::Iscsi(IscsiSession {
            portal_group: 20,
            violations: 16,
            ..IscsiSession::default()
        }),
    }
}

fn text(format: Format) -> String {
    Text::new(format, snapshot(1)).collect()
}

#[test]
fn open_metrics_has_units_and_an_end() {
    let text = text(Format::OpenMetrics);
    for line in [
        "# TYPE tarn_build info",
        "# TYPE tarn_scsi_bytes counter",
        "# UNIT tarn_scsi_bytes bytes",
    ] {
        assert!(text.lines().any(|own| own == line), "{line}\n{text}");
    }
    assert!(text.ends_with("\n# EOF\n"), "{text}");
}

#[test]
fn the_older_format_has_suffixes_in_its_heads_and_no_end() {
    let text = text(Format::Prometheus);
    for line in [
        "# TYPE tarn_build_info gauge",
        "# TYPE tarn_scsi_bytes_total counter",
    ] {
        assert!(text.lines().any(|own| own == line), "{line}\n{text}");
    }
    assert!(
        !text.contains("# UNIT") && !text.contains("# EOF"),
        "{text}"
    );
}

#[test]
fn a_histogram_counts_up_and_ends_in_all() {
    let text = text(Format::OpenMetrics);
    let prefix = "tarn_scsi_command_duration_seconds_bucket{lun=\"disk 0\",\
                  initiator=\"iqn.x:\\\"a\\\\b\\n\",operation=\"read\",le=\"";
    let buckets: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix(prefix))
        .collect();
    assert_eq!(buckets.len(), 21, "{text}");
    assert_eq!(buckets[0], "0.000004\"} 1");
    assert_eq!(buckets[1], "0.000008\"} 2");
    assert_eq!(buckets[19], "2.097152\"} 2");
    assert_eq!(buckets[20], "+Inf\"} 5");
    assert!(text.contains("operation=\"read\"} 1.500000\n"), "{text}");
}

#[test]
fn what_never_came_has_no_series() {
    let text = text(Format::OpenMetrics);
    assert!(!text.contains("operation=\"write\""), "{text}");
}

#[test]
fn a_long_text_comes_in_pieces_that_are_the_same_text() {
    let pieces: Vec<String> = Text::new(Format::OpenMetrics, snapshot(200)).collect();
    assert!(pieces.len() > 10);
    let longest = pieces.iter().map(String::len).max();
    assert!(longest < Some(PIECE_BYTES + 8 * 1024), "{longest:?}");
    let whole: String = pieces.concat();
    assert_eq!(whole.matches("# TYPE").count(), METRICS.len());
    assert!(whole.contains("disk 199"));
}

#[test]
fn the_format_is_the_one_that_is_asked_for() {
    for (accept, format) in [
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            Format::OpenMetrics,
        ),
        (
            "text/plain, application/openmetrics-text",
            Format::OpenMetrics,
        ),
        ("*/*", Format::Prometheus),
        ("", Format::Prometheus),
    ] {
        assert_eq!(Format::for_accept(accept), format, "{accept}");
    }
}

#[test]
fn names_follow_the_conventions() {
    for metric in METRICS {
        let name = metric.name;
        assert!(name.starts_with("tarn_"), "{name}");
        assert!(name.ends_with(metric.unit), "{name}: unit {}", metric.unit);
        assert!(
            !name.ends_with("_total") && !name.ends_with("_info"),
            "{name}"
        );
        assert!(metric.help.ends_with('.'), "{name}");
        assert!(!metric.help.contains(['\n', '\\']), "{name}");
    }
    let mut names: Vec<_> = METRICS.iter().map(|metric| metric.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), METRICS.len());
}

/// The document has a row for each metric, in the order of the table, and no other.
#[test]
fn the_document_lists_the_metrics() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/metrics.md"
    );
    let document = std::fs::read_to_string(path).unwrap();
    let listed: Vec<&str> = document
        .lines()
        .filter(|line| line.starts_with("| `tarn_"))
        .collect();
    let rows: Vec<String> = METRICS.iter().map(row).collect();
    assert_eq!(listed, rows, "{}", rows.join("\n"));
}

fn row(metric: &Metric) -> String {
    let labels: Vec<String> = metric
        .labels
        .iter()
        .map(|label| format!("`{label}`"))
        .collect();
    format!(
        "| `{}` | {} | {} | {} |",
        metric.sample_name(),
        format!("{:?}", metric.kind).to_lowercase(),
        labels.join(", "),
        metric.help
    )
}
