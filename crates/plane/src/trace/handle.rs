//! Traces as the administration sees them.

use std::sync::Arc;

use super::{Subject, TRACES_MAX, Trace, TraceLimits, TraceReport};
use crate::handle::{ANSWER_PATIENCE, Handle};
use crate::letter::Letter;
use crate::receipt::NoAnswer;

/// Why a trace does not begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoTrace {
    /// There are as many as there may be.
    #[error("there are {TRACES_MAX} traces, and no more may be")]
    TooMany,
    /// A core does not answer.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
}

impl Handle {
    /// Begins a trace, unless there is the same already. One of the same subject with other limits
    /// goes with all it has. True when a trace has begun: from now on everything is in it.
    ///
    /// # Errors
    ///
    /// There are too many, or a core does not answer; nothing is followed then.
    pub fn start_trace(&self, subject: &Subject, limits: TraceLimits) -> Result<bool, NoTrace> {
        let mut traces = self.traces();
        let old = traces.iter().position(|trace| trace.subject == *subject);
        match old {
            Some(at) if traces[at].limits == limits => return Ok(false),
            Some(at) => self.end_trace(&traces.remove(at))?,
            None if traces.len() >= TRACES_MAX => return Err(NoTrace::TooMany),
            None => {}
        }
        let trace = Arc::new(Trace::new(subject.clone(), limits));
        let started = self.ask_all(ANSWER_PATIENCE, |receipt| Letter::StartTrace {
            trace: Arc::clone(&trace),
            receipt,
        });
        if let Err(no_answer) = started {
            // The letter that takes it back comes after the one that began it.
            return Err(self.end_trace(&trace).err().unwrap_or(no_answer).into());
        }
        traces.push(trace);
        Ok(true)
    }

    /// Ends a trace and drops what it has. False when there is none.
    ///
    /// # Errors
    ///
    /// A core does not answer. It drops the trace when it does.
    pub fn stop_trace(&self, subject: &Subject) -> Result<bool, NoAnswer> {
        let mut traces = self.traces();
        let at = traces.iter().position(|trace| trace.subject == *subject);
        at.map_or(Ok(false), |at| {
            self.end_trace(&traces.remove(at)).map(|()| true)
        })
    }

    /// All traces, in the order they began. No core is asked.
    pub fn trace_reports(&self) -> Vec<TraceReport> {
        self.traces().iter().map(|trace| trace.report()).collect()
    }

    /// What a trace has, as a file of `pcap`, if there is one of this subject.
    pub fn read_trace(&self, subject: &Subject) -> Option<Vec<u8>> {
        let traces = self.traces();
        let trace = traces.iter().find(|trace| trace.subject == *subject)?;
        let trace = Arc::clone(trace);
        drop(traces);
        Some(trace.file())
    }

    fn end_trace(&self, trace: &Arc<Trace>) -> Result<(), NoAnswer> {
        self.ask_all(ANSWER_PATIENCE, |receipt| Letter::StopTrace {
            trace: Arc::clone(trace),
            receipt,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use front::SessionId;

    use super::*;
    use crate::handle::tests::with_cores;

    #[test]
    fn a_trace_begins_once_and_goes_for_one_with_other_limits() {
        let limits = |data_bytes| TraceLimits {
            data_bytes,
            keep_bytes: 1 << 20,
        };
        let subject = |number| Subject::Session(SessionId(number));
        let log = Mutex::new(Vec::new());
        let answer = |core, letter| {
            let (what, trace) = if let Letter::StartTrace { trace, .. } = letter {
                ("start", trace)
            } else if let Letter::StopTrace { trace, .. } = letter {
                ("stop", trace)
            } else {
                panic!("{letter:?}");
            };
            if core == 1 {
                log.lock().unwrap().push((what, trace.limits.data_bytes));
            }
        };
        with_cores(2, answer, |handle| {
            assert_eq!(handle.start_trace(&subject(0), limits(10)), Ok(true));
            assert_eq!(handle.start_trace(&subject(0), limits(10)), Ok(false));
            assert_eq!(handle.start_trace(&subject(0), limits(20)), Ok(true));
            for number in 1..TRACES_MAX as u64 {
                assert_eq!(handle.start_trace(&subject(number), limits(30)), Ok(true));
            }
            assert_eq!(
                handle.start_trace(&subject(99), limits(40)),
                Err(NoTrace::TooMany)
            );
            // The same again, and one in the place of another, are none more.
            assert_eq!(handle.start_trace(&subject(1), limits(30)), Ok(false));
            assert_eq!(handle.start_trace(&subject(0), limits(50)), Ok(true));
            let subjects: Vec<_> = handle
                .trace_reports()
                .into_iter()
                .map(|one| one.subject)
                .collect();
            let expected: Vec<_> = (1..TRACES_MAX as u64).chain([0]).map(subject).collect();
            assert_eq!(subjects, expected);
            assert_eq!(
                handle.read_trace(&subject(0)).map(|file| file.len()),
                Some(24)
            );
            assert_eq!(handle.read_trace(&subject(99)), None);
            assert_eq!(handle.stop_trace(&subject(0)), Ok(true));
            assert_eq!(handle.stop_trace(&subject(0)), Ok(false));
            assert_eq!(handle.trace_reports().len(), TRACES_MAX - 1);
        });
        let begun = [("start", 10), ("stop", 10), ("start", 20)];
        let others = [("start", 30); TRACES_MAX - 1];
        let ended = [("stop", 20), ("start", 50), ("stop", 50)];
        assert_eq!(*log.lock().unwrap(), [&begun[..], &others, &ended].concat());
    }
}
