//! What is to be sent on one connection: requests first, then data, each in order.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::task::{Entries, Task, length_of};
use crate::digest::{Digest, data_digest};
use crate::negotiate::ConnectionParameters;
use crate::pdu::{
    Bhs, BhsBytes, DataOutBhs, InitiatorTaskTag, RESERVED_TAG, RequestBhs, U24, flags,
    padding_length,
};
use crate::serial::SerialNumber;

/// Where PDUs are written to.
pub trait Output {
    /// How many bytes there are.
    fn len(&self) -> usize;

    /// True when there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a copy of `bytes`.
    fn put(&mut self, bytes: &[u8]);

    /// Appends this part of the data of a write. An output that knows the data need not copy it.
    fn put_shared(&mut self, data: &Arc<[u8]>, range: Range<usize>) {
        self.put(data.get(range).unwrap_or_default());
    }
}

impl Output for Vec<u8> {
    fn len(&self) -> usize {
        self.len()
    }

    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// The data segment of a request.
#[derive(Debug)]
pub(super) enum Segment {
    Owned(Vec<u8>),
    Shared(Arc<[u8]>, Range<usize>),
}

impl Segment {
    pub(super) const EMPTY: Self = Self::Owned(Vec::new());

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Shared(bytes, range) => bytes.get(range.clone()).unwrap_or_default(),
        }
    }

    fn put_into(&self, out: &mut impl Output) {
        match self {
            Self::Owned(bytes) => out.put(bytes),
            Self::Shared(bytes, range) => out.put_shared(bytes, range.clone()),
        }
    }
}

/// One request, complete but for ExpStatSN.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) header: BhsBytes,
    pub(super) ahs: Vec<u8>,
    pub(super) segment: Segment,
}

/// A sequence of Data-Out, cut into PDUs as it is sent.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) itt: InitiatorTaskTag,
    pub(super) lun: u64,
    /// The R2T that is answered, or the reserved tag for unsolicited data.
    pub(super) target_transfer_tag: u32,
    pub(super) data: Arc<[u8]>,
    /// Next byte to send, and the first one not to.
    pub(super) next: u32,
    pub(super) end: u32,
    pub(super) data_sn: u32,
}

/// The send side of one connection.
#[derive(Debug, Default)]
pub(super) struct Transmitter {
    requests: VecDeque<Outgoing>,
    runs: VecDeque<Run>,
}

impl Transmitter {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.runs.is_empty()
    }

    pub(super) fn pending_requests(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn push(&mut self, header: &BhsBytes, ahs: Vec<u8>, segment: Segment) {
        self.requests.push_back(Outgoing {
            header: *header,
            ahs,
            segment,
        });
    }

    pub(super) fn push_run(&mut self, run: Run) {
        self.runs.push_back(run);
    }

    /// Appends whole PDUs to `out` until it holds `budget_bytes` or nothing is left.
    pub(super) fn write(
        &mut self,
        out: &mut impl Output,
        budget_bytes: usize,
        exp_stat_sn: SerialNumber,
        parameters: &ConnectionParameters,
        entries: &mut Entries,
    ) {
        while out.len() < budget_bytes {
            if let Some(mut request) = self.requests.pop_front() {
                let header = RequestBhs::view_mut(&mut request.header);
                header.exp_stat_sn = exp_stat_sn.into();
                if let Segment::Shared(_, range) = &request.segment
                    && let Some(task) =
                        entries.task_mut(InitiatorTaskTag(header.initiator_task_tag.get()))
                {
                    // Immediate data.
                    task.sent = task.sent.saturating_add(length_of(range.len()));
                }
                write_pdu(
                    out,
                    request.header,
                    &request.ahs,
                    &request.segment,
                    parameters,
                );
                continue;
            }
            let Some(run) = self.runs.front_mut() else {
                return;
            };
            // A task that has ended wants no more data.
            let Some(task) = entries.task_mut(run.itt) else {
                self.runs.pop_front();
                continue;
            };
            if write_data_out(out, run, task, exp_stat_sn, parameters) {
                if run.target_transfer_tag != RESERVED_TAG {
                    task.open_r2t = task.open_r2t.saturating_sub(1);
                }
                self.runs.pop_front();
            }
        }
    }
}

/// Writes the next PDU of a run; true when it was the last one.
fn write_data_out(
    out: &mut impl Output,
    run: &mut Run,
    task: &mut Task,
    exp_stat_sn: SerialNumber,
    parameters: &ConnectionParameters,
) -> bool {
    let limit = parameters.peer_max_recv_data_segment_length_bytes.max(1);
    let length = run.end.saturating_sub(run.next).min(limit);
    let stop = run.next.saturating_add(length);
    let is_last = stop >= run.end;
    let mut header = DataOutBhs::new();
    header.flags = if is_last { flags::FINAL } else { 0 };
    header.lun = run.lun.into();
    header.initiator_task_tag = run.itt.0.into();
    header.target_transfer_tag = run.target_transfer_tag.into();
    header.exp_stat_sn = exp_stat_sn.into();
    header.data_sn = run.data_sn.into();
    header.buffer_offset = run.next.into();
    let range = usize::try_from(run.next).unwrap_or(usize::MAX)
        ..usize::try_from(stop).unwrap_or(usize::MAX);
    let segment = Segment::Shared(Arc::clone(&run.data), range);
    write_pdu(out, *header.as_bhs_bytes(), &[], &segment, parameters);
    task.sent = task.sent.saturating_add(length);
    run.next = stop;
    run.data_sn = run.data_sn.wrapping_add(1);
    is_last
}

fn write_pdu(
    out: &mut impl Output,
    mut header: BhsBytes,
    ahs: &[u8],
    segment: &Segment,
    parameters: &ConnectionParameters,
) {
    let data = segment.bytes();
    let common = RequestBhs::view_mut(&mut header);
    common.data_segment_length = U24::new(length_of(data.len())).unwrap_or_default();
    common.total_ahs_length_words = u8::try_from(ahs.len() / 4).unwrap_or_default();
    out.put(&header);
    out.put(ahs);
    if parameters.header_digest {
        out.put(&Digest::of(&header).update(ahs).to_wire());
    }
    if data.is_empty() {
        return;
    }
    segment.put_into(out);
    let padding = [0; 3];
    out.put(
        padding
            .get(..padding_length(data.len()))
            .unwrap_or_default(),
    );
    if parameters.data_digest {
        out.put(&data_digest(data));
    }
}
