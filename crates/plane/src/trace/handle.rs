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
