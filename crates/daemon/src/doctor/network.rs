//! Rules about the network between initiators and the daemon.

use api::event::{Finding, Severity};

use super::hosts::Host;
use super::{Facts, finding};

/// IP and TCP headers with all options take some of an MTU, more on one side than on the other.
const HEADERS_BYTES: u32 = 72;

/// A segment of an Ethernet that knows no jumbo frames.
const ORDINARY_SEGMENT_BYTES: u32 = 1460;

/// What jumbo frames carry. The loopback interface has room for more, and TCP does not always use
/// it: a segment is at most half the receive window.
const JUMBO_SEGMENT_BYTES: u32 = 8960;

/// As often as this in a row a segment is not lost by chance.
const TIMEOUTS: u8 = 3;

/// Of the segments, sent again: more than this costs throughput.
const AGAIN: f64 = 0.01;

/// Fewer retransmitted segments are not significant.
const AGAIN_MIN: u32 = 50;

/// Fewer wrong PDUs may be those of a session before a restart.
const CORRUPT_MIN: u64 = 5;

/// Of the time with data to send: more than this held back by a full buffer or window counts.
const HELD: f64 = 0.3;

/// Less time with data to send is not significant.
const BUSY_MIN_US: u64 = 500_000;

/// No frames go over an interface that clients come in at.
pub(super) fn silent_interfaces(facts: &Facts<'_>) -> Vec<Finding> {
    let findings = facts.interfaces.iter().map(|(name, problem)| {
        finding(
            Severity::Error,
            "interface",
            name.as_str(),
            format!("its groups of HyperSCSI cannot be reached: {problem}"),
            "put the interface right; Tarn uses it again when it is back",
        )
    });
    findings.collect()
}

/// Segments to a host are smaller than this side's MTU allows.
pub(super) fn different_mtus(facts: &Facts<'_>) -> Vec<Finding> {
    let narrow = facts.hosts.iter().filter(|host| {
        let connection = &host.narrowest;
        let own = connection.own_segment_bytes.min(JUMBO_SEGMENT_BYTES);
        connection.segment_bytes + HEADERS_BYTES < own
    });
    let findings = narrow.map(|host| {
        let connection = &host.narrowest;
        let (segment, own) = (connection.segment_bytes, connection.own_segment_bytes);
        let is_path = connection.path_mtu < connection.own_segment_bytes;
        let who = if is_path {
            format!("the path to it has an MTU of {}", connection.path_mtu)
        } else {
            "its own MTU, or one on the way, is smaller".to_owned()
        };
        finding(
            Severity::Info,
            "mtu",
            host.address.to_string(),
            format!("segments have {segment} bytes, but {own} would be possible: {who}"),
            "set the same MTU on all interfaces and switches of the path",
        )
    });
    findings.collect()
}

/// The same segment is lost again and again, and it is a large one: the signature of a switch that
/// drops jumbo frames in silence.
pub(super) fn black_holes(facts: &Facts<'_>) -> Vec<Finding> {
    let lost = facts.hosts.iter().filter(|host| host.timeouts >= TIMEOUTS);
    let findings = lost.map(|host| {
        let segment = host.narrowest.segment_bytes;
        let (what, remedy) = if segment > ORDINARY_SEGMENT_BYTES {
            (
                format!("segments of {segment} bytes, perhaps more than the network carries"),
                format!(
                    "try ping -M do -s {segment} {}; set the same MTU on the whole path",
                    host.address
                ),
            )
        } else {
            (
                "and there is no answer".to_owned(),
                "check whether the host is up and the network to it works".to_owned(),
            )
        };
        finding(
            Severity::Warning,
            "unanswered",
            host.address.to_string(),
            format!(
                "the same data was sent {} times without an acknowledgement: {what}",
                host.timeouts
            ),
            remedy,
        )
    });
    findings.collect()
}

pub(super) fn lossy_paths(facts: &Facts<'_>) -> Vec<Finding> {
    let share = |host: &Host| f64::from(host.counts.again) / f64::from(host.counts.segments.max(1));
    let lossy = facts
        .hosts
        .iter()
        .filter(|host| host.counts.again >= AGAIN_MIN && share(host) > AGAIN);
    let findings = lossy.map(|host| {
        finding(
            Severity::Warning,
            "retransmissions",
            host.address.to_string(),
            format!(
                "{} of {} segments in the last seconds were retransmitted: the network loses some",
                host.counts.again, host.counts.segments
            ),
            "look for errors and drops on network cards and switch ports (ip -s link, ethtool -S), and for different \
             MTUs",
        )
    });
    findings.collect()
}

/// Frames of HyperSCSI do not arrive.
pub(super) fn lost_frames(facts: &Facts<'_>) -> Vec<Finding> {
    let frames = &facts.frames;
    let share = frames.again as f64 / frames.sent.max(1) as f64;
    if frames.again < u64::from(AGAIN_MIN) || share <= AGAIN {
        return Vec::new();
    }
    vec![finding(
        Severity::Warning,
        "frames-lost",
        "hyperscsi",
        format!(
            "{} of {} frames of HyperSCSI in the last seconds were sent again: the network loses some",
            frames.again, frames.sent
        ),
        "look for errors and drops on network cards and switch ports (ip -s link, ethtool -S)",
    )]
}

/// Frames of HyperSCSI arrive with other bits than were sent.
pub(super) fn corrupt_frames(facts: &Facts<'_>) -> Vec<Finding> {
    let frames = &facts.frames;
    if frames.corrupt < CORRUPT_MIN {
        return Vec::new();
    }
    vec![finding(
        Severity::Warning,
        "frames-corrupt",
        "hyperscsi",
        format!(
            "{} of {} frames of HyperSCSI in the last seconds made PDUs wrong, which were sent again: something on \
             the way changes bits, or somebody sends forged frames",
            frames.corrupt, frames.received
        ),
        "check the memory of switches and hosts; serve the devices with level = \"encrypt\"",
    )]
}

/// Why TCP does not send what there is to send.
pub(super) fn held_back(facts: &Facts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for host in facts.hosts {
        let counts = &host.counts;
        let of_the_time = |held_us: u64| held_us as f64 / counts.busy_us as f64;
        let causes = [
            (
                counts.window_us,
                "receive-window",
                "its receive window was full",
                "raise the receive buffers of the initiator (net.ipv4.tcp_rmem), or give the initiator more \
                 processor time",
            ),
            (
                counts.buffer_us,
                "send-buffer",
                "the send buffer of this side was full",
                "sysctl -w net.ipv4.tcp_wmem='4096 131072 16777216'",
            ),
        ];
        if counts.busy_us < BUSY_MIN_US {
            continue;
        }
        for (held_us, code, what, remedy) in causes {
            let share = of_the_time(held_us);
            if share > HELD {
                findings.push(finding(
                    Severity::Info,
                    code,
                    host.address.to_string(),
                    format!(
                        "data waited because {what} for {:.0} % of the time",
                        share * 100.0
                    ),
                    remedy,
                ));
            }
        }
    }
    findings
}
