//! Traces, in the words of the API.

use api::problem::{Problem, ProblemKind};
use api::request::Tracing;
use api::view;
use iscsi::names::IscsiName;
use plane::{
    DATA_BYTES_MAX, Handle, KEEP_BYTES_MAX, KEEP_BYTES_MIN, NoTrace, SessionId, SessionReport,
    Subject, TraceLimits, TraceReport, TransportDetails,
};

use super::calendar::milliseconds;
use super::daemon::no_answer;

/// Default for the data that a trace keeps of a PDU, in bytes: what is at the
/// beginning of parameter data.
const DATA_BYTES_DEFAULT: usize = 64;

/// Default for what a trace keeps in all, in bytes: some thousand commands.
const KEEP_BYTES_DEFAULT: usize = 1024 * 1024;

/// All traces.
pub(super) fn list(plane: &Handle) -> Vec<view::Trace> {
    plane.trace_reports().iter().map(view_of).collect()
}

/// Begins one; `sessions` are those there are.
pub(super) fn start(
    plane: &Handle,
    sessions: &[SessionReport],
    subject: &str,
    how: Tracing,
) -> Result<(view::Trace, bool), Problem> {
    let subject = subject_of(subject)?;
    if let Subject::Session(id) = subject {
        let session = sessions.iter().find(|session| session.id == id);
        let session = session.ok_or_else(|| {
            let detail = format!("there is no session {id}; see tarn session list");
            Problem::new(ProblemKind::NotFound, detail)
        })?;
        let other = match session.transport {
            TransportDetails::Iscsi { .. } | TransportDetails::Hyperscsi { .. } => None,
            TransportDetails::Nbd { .. } => Some("NBD"),
        };
        if let Some(other) = other {
            let detail = format!(
                "session {id} is one of {other}; only those of iSCSI and HyperSCSI can be traced"
            );
            return Err(Problem::new(ProblemKind::Conflict, detail));
        }
    }
    let limits = limits_of(how)?;
    let has_begun = plane
        .start_trace(&subject, limits)
        .map_err(|error| match error {
            NoTrace::TooMany => Problem::new(
                ProblemKind::Conflict,
                format!("{error}; end one with tarn trace stop"),
            ),
            NoTrace::NoAnswer(error) => no_answer(error),
        })?;
    let reports = plane.trace_reports();
    let report = reports.iter().find(|report| report.subject == subject);
    report
        .map(|report| (view_of(report), has_begun))
        .ok_or_else(|| missing(&subject))
}

/// What one has.
pub(super) fn read(plane: &Handle, subject: &str) -> Result<Vec<u8>, Problem> {
    let subject = subject_of(subject)?;
    plane.read_trace(&subject).ok_or_else(|| missing(&subject))
}

/// Ends one.
pub(super) fn stop(plane: &Handle, subject: &str) -> Result<(), Problem> {
    let subject = subject_of(subject)?;
    match plane.stop_trace(&subject) {
        Ok(true) => Ok(()),
        Ok(false) => Err(missing(&subject)),
        Err(error) => Err(no_answer(error)),
    }
}

fn missing(subject: &Subject) -> Problem {
    let detail = format!(
        "there is no trace of {}; see tarn trace list",
        words(subject)
    );
    Problem::new(ProblemKind::NotFound, detail)
}

/// Digits are the id of a session, everything else is a name.
fn subject_of(text: &str) -> Result<Subject, Problem> {
    if let Ok(id) = text.parse() {
        return Ok(Subject::Session(SessionId(id)));
    }
    let name = IscsiName::parse(text).map_err(|error| {
        let detail = match text.starts_with("hyperscsi:") || text.starts_with("nbd:") {
            true => format!(
                "{text:?} is a client of HyperSCSI or NBD: give the id of its session, see tarn session list"
            ),
            false => format!(
                "{text:?} is neither the id of a session nor an initiator ({error}): see tarn session list"
            ),
        };
        place(Problem::new(ProblemKind::BadRequest, detail), "subject")
    })?;
    Ok(Subject::Initiator(name.as_str().to_owned()))
}

fn words(subject: &Subject) -> String {
    match subject {
        Subject::Session(id) => id.to_string(),
        Subject::Initiator(name) => name.clone(),
    }
}

fn limits_of(how: Tracing) -> Result<TraceLimits, Problem> {
    let bytes = |given: Option<u32>, default| {
        given.map_or(default, |bytes| {
            usize::try_from(bytes).unwrap_or(usize::MAX)
        })
    };
    let limits = TraceLimits {
        data_bytes: bytes(how.data_bytes, DATA_BYTES_DEFAULT),
        keep_bytes: bytes(how.keep_bytes, KEEP_BYTES_DEFAULT),
    };
    for (name, got, least, most) in [
        ("data_bytes", limits.data_bytes, 0, DATA_BYTES_MAX),
        (
            "keep_bytes",
            limits.keep_bytes,
            KEEP_BYTES_MIN,
            KEEP_BYTES_MAX,
        ),
    ] {
        if !(least..=most).contains(&got) {
            let detail = format!("{name} is {got}, it must be {least} to {most}");
            return Err(place(Problem::new(ProblemKind::BadRequest, detail), name));
        }
    }
    Ok(limits)
}

fn place(mut problem: Problem, field: &str) -> Problem {
    problem.place = Some(field.to_owned());
    problem
}

fn view_of(report: &TraceReport) -> view::Trace {
    let bytes = |bytes| u32::try_from(bytes).unwrap_or(u32::MAX);
    view::Trace {
        subject: words(&report.subject),
        since_ms: milliseconds(report.since),
        data_bytes: bytes(report.limits.data_bytes),
        keep_bytes: bytes(report.limits.keep_bytes),
        pdus: report.pdus,
        dropped: report.dropped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_a_number_or_a_name() {
        for (text, expected) in [
            ("0", Subject::Session(SessionId(0))),
            (
                "18446744073709551615",
                Subject::Session(SessionId(u64::MAX)),
            ),
            (
                "iqn.2026-11.Example:A",
                Subject::Initiator("iqn.2026-11.example:a".to_owned()),
            ),
        ] {
            assert_eq!(subject_of(text).unwrap(), expected, "{text}");
        }
        for text in ["", "18446744073709551616", "-1", "web", "iqn.x"] {
            let problem = subject_of(text).unwrap_err();
            assert_eq!(problem.kind, ProblemKind::BadRequest, "{text}");
        }
        for text in ["hyperscsi:00", "nbd:192.0.2.1"] {
            let problem = subject_of(text).unwrap_err();
            assert!(
                problem.detail.contains("give the id of its session"),
                "{text}"
            );
        }
    }

    #[test]
    fn limits_hold_at_both_edges() {
        let how = |data_bytes, keep_bytes| Tracing {
            data_bytes,
            keep_bytes,
        };
        let default = limits_of(how(None, None)).unwrap();
        assert_eq!((default.data_bytes, default.keep_bytes), (64, 1 << 20));
        for good in [how(Some(0), Some(1 << 16)), how(Some(8192), Some(1 << 24))] {
            assert!(limits_of(good).is_ok(), "{good:?}");
        }
        for (bad, name) in [
            (how(Some(8193), None), "data_bytes"),
            (how(None, Some((1 << 16) - 1)), "keep_bytes"),
            (how(None, Some((1 << 24) + 1)), "keep_bytes"),
        ] {
            let problem = limits_of(bad).unwrap_err();
            assert_eq!(problem.place.as_deref(), Some(name));
        }
    }
}
