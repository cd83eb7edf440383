//! A command on its way to the device and back.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use memory::Payload;
use store::{DeviceAnswer, DeviceRequest, IoAnswer, IoFailure, IoRequest, IoResult};

use crate::sam::attention::UnitAttention;
use crate::sam::cdb::Cdb;
use crate::sam::change::{ChangeKind, Reply};
use crate::sam::command::{Command, Input, Outcome, SenseBytes, Step};
use crate::sam::failure::{self, Purpose};
use crate::sam::failures::Failures;
use crate::sam::nexus::NexusId;
use crate::sam::sense::{Sense, SenseCode, SenseKey};
use crate::sam::status::Status;
use crate::spc::shared::Shared;
use crate::table::row::{Passing, START};

/// PREVENT ALLOW MEDIUM REMOVAL that allows: what a nexus that is gone has left locked is unlocked before the medium is
/// unloaded.
const ALLOW: [u8; 6] = [0x1e, 0, 0, 0, 0, 0];

/// A command that is passed.
#[derive(Debug)]
pub(crate) struct Pass {
    cdb: Box<[u8]>,
    what: Passing,
    nexus: NexusId,
    data_out_bytes: u32,
    data_in_bytes: u32,
    /// It loads a medium, or starts one.
    loads: bool,
    /// The device is told first that the medium may be removed.
    unlocks: bool,
    /// It prevents the removal for its nexus from before the device has it, so that nothing that removes the medium
    /// comes to the device behind it. Taken back where the device does not carry it out.
    claims: bool,
    outcome: Option<Outcome>,
    /// What the owner has to know before it is answered, the next one last.
    tells: Vec<ChangeKind>,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Next {
    Step(Step),
    /// Others have to learn of it before it is answered.
    Tell(ChangeKind),
}

impl Pass {
    /// A command that its nexus may give. The direction is what the initiator says, which is one at most.
    ///
    /// Spec: SPC-4, PREVENT ALLOW MEDIUM REMOVAL.
    pub(crate) fn new(
        what: Passing,
        cdb: &Cdb,
        command: &Command<'_>,
        (shared, nexus): (&Shared, NexusId),
        transfer_bytes_max: u32,
    ) -> Result<Self, Sense> {
        let (data_out_bytes, room) = (command.data_out_length, command.data_in_length);
        let is_both = data_out_bytes > 0 && room > 0;
        if is_both || data_out_bytes.max(room) > transfer_bytes_max {
            let code = SenseCode::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT;
            return Err(Sense::illegal_request(code));
        }
        // LOAD of LOAD UNLOAD stands where START does.
        let loads = what == Passing::Moves && cdb.has(4, START);
        let unloads = what == Passing::Moves && !loads;
        if unloads {
            check_removal(shared, nexus)?;
        }
        let prevents = what == Passing::Prevents && cdb.has(4, PREVENT);
        Ok(Self {
            cdb: command.cdb.into(),
            what,
            nexus,
            data_out_bytes,
            data_in_bytes: room,
            loads,
            unlocks: unloads && shared.preventing.is_empty(),
            claims: prevents && !shared.preventing.contains(&nexus),
            outcome: None,
            tells: Vec::new(),
        })
    }

    /// The first step.
    pub(crate) fn start(&self) -> Next {
        if self.claims {
            return Next::Tell(removal(&self.cdb));
        }
        Next::Step(match self.unlocks {
            true => Step::Io(self.request(&ALLOW, Payload::Empty, 0)),
            false => self.go_on(),
        })
    }

    fn go_on(&self) -> Step {
        match self.data_out_bytes {
            0 => Step::Io(self.request(&self.cdb, Payload::Empty, self.data_in_bytes)),
            length => Step::DataOut { length },
        }
    }

    fn request(&self, cdb: &[u8], data_out: Payload, data_in_bytes: u32) -> IoRequest {
        IoRequest::Device(Box::new(DeviceRequest {
            cdb: cdb.into(),
            data_out,
            data_in_bytes: usize::try_from(data_in_bytes).unwrap_or(0),
            buffer: None,
            nexus: u64::from(self.nexus.0),
            alters: self.what != Passing::Reads,
        }))
    }

    /// Goes on when what the last step asked for is there.
    pub(crate) fn resume(&mut self, input: Input, failures: &Failures, shared: &Shared) -> Next {
        match input {
            Input::DataOut(data) => Next::Step(Step::Io(self.request(&self.cdb, data, 0))),
            Input::Io(result) => {
                let was_first = std::mem::take(&mut self.unlocks);
                match &result {
                    // Whether the device takes it or not: what it locks by itself it says in answer to the command.
                    Ok(IoAnswer::Device(answer))
                        if was_first && report(&answer.sense).is_none() =>
                    {
                        // Another one may have prevented it meanwhile.
                        Next::Step(match check_removal(shared, self.nexus) {
                            Ok(()) => self.go_on(),
                            Err(sense) => Step::Done(Outcome::check(sense)),
                        })
                    }
                    Ok(_) | Err(_) => self.end(result, failures),
                }
            }
            Input::Owner(reply) => self.told(reply),
            Input::FenceGranted | Input::Turn => Next::Step(Step::Done(lost())),
        }
    }

    fn end(&mut self, result: IoResult, failures: &Failures) -> Next {
        let (is_done, tells, outcome) = match result {
            Ok(IoAnswer::Device(answer)) => {
                let tells = self.consequence(&answer);
                (is_carried_out(&answer), tells, outcome_of(*answer))
            }
            Ok(IoAnswer::Done | IoAnswer::Data(_) | IoAnswer::Extents(_)) => (false, None, lost()),
            Err(failure) => {
                failures.note(&failure);
                let outcome = Outcome::check(self.sense_of(&failure));
                (false, None, outcome)
            }
        };
        if self.claims && !is_done {
            self.tells.push(removal(&ALLOW));
        }
        self.tells.extend(tells);
        self.outcome = Some(outcome);
        self.tell()
    }

    fn tell(&mut self) -> Next {
        match self.tells.pop() {
            Some(kind) => Next::Tell(kind),
            None => Next::Step(Step::Done(self.outcome.take().unwrap_or_else(lost))),
        }
    }

    /// The owner knows what others have to learn of, or could not take it: then the command is to come again, but what
    /// the device has reported is reported.
    fn told(&mut self, reply: Reply) -> Next {
        let is_taken = reply.status == Status::Good;
        match &self.outcome {
            None if is_taken => Next::Step(self.go_on()),
            None => Next::Step(Step::Done(reply.into())),
            Some(outcome) => {
                if !is_taken && !is_report(outcome) {
                    self.outcome = Some(reply.into());
                }
                self.tell()
            }
        }
    }

    fn sense_of(&self, failure: &IoFailure) -> Sense {
        let purpose = match self.what {
            Passing::Reads => Purpose::Read,
            Passing::Writes
            | Passing::Modes
            | Passing::Logs
            | Passing::Moves
            | Passing::Prevents => Purpose::Write,
        };
        failure::sense_of(failure, purpose, 1)
    }

    /// What others have to learn of.
    fn consequence(&self, answer: &DeviceAnswer) -> Option<ChangeKind> {
        if let Some(told) = report(&answer.sense) {
            return Some(ChangeKind::Told(told));
        }
        if !is_carried_out(answer) {
            return None;
        }
        if self.cdb.first() == Some(&REQUEST_SENSE) {
            // It has told it one initiator only.
            return report(&answer.data.to_vec()).map(ChangeKind::Told);
        }
        match self.what {
            Passing::Modes => Some(ChangeKind::Told(UnitAttention::ModeParametersChanged)),
            Passing::Logs => {
                let code = SenseCode::LOG_PARAMETERS_CHANGED;
                Some(ChangeKind::Told(UnitAttention::OfDevice(code)))
            }
            Passing::Moves if self.loads => Some(ChangeKind::Told(UnitAttention::NotReadyToReady)),
            Passing::Prevents => Some(removal(&self.cdb)),
            Passing::Moves | Passing::Reads | Passing::Writes => None,
        }
    }
}

/// Whether a nexus may have the medium removed: no other one prevents it.
fn check_removal(shared: &Shared, nexus: NexusId) -> Result<(), Sense> {
    match shared.preventing.iter().any(|&id| id != nexus) {
        true => Err(Sense::illegal_request(SenseCode::MEDIUM_REMOVAL_PREVENTED)),
        false => Ok(()),
    }
}

/// PREVENT ALLOW MEDIUM REMOVAL, for the owner.
fn removal(cdb: &[u8]) -> ChangeKind {
    ChangeKind::Command {
        cdb: Cdb::new(cdb),
        parameters: Vec::new(),
    }
}

fn is_carried_out(answer: &DeviceAnswer) -> bool {
    answer.status == Status::Good as u8 || key(&answer.sense) == RECOVERED
}

/// The bit of byte 4 with which the removal is prevented.
const PREVENT: u8 = 0x01;
const REQUEST_SENSE: u8 = 0x03;
/// RECOVERED ERROR: the command was carried out.
const RECOVERED: Option<u8> = Some(0x01);
/// POWER ON, RESET, OR BUS DEVICE RESET OCCURRED.
const RESET: (u8, u8) = (0x29, 0x00);

/// What sense data say.
struct Parts {
    /// They are about an earlier command.
    is_deferred: bool,
    key: u8,
    /// Additional sense code and qualifier.
    code: Option<(u8, u8)>,
}

fn parts(sense: &[u8]) -> Option<Parts> {
    const FIXED: u8 = 0x70;
    const DESCRIPTOR: u8 = 0x72;
    /// In both formats.
    const DEFERRED: u8 = 0x01;
    let at = |byte: usize| sense.get(byte).copied();
    let response = at(0)? & 0x7f;
    let (key, code) = match response & !DEFERRED {
        FIXED => (at(2)?, at(12).zip(at(13))),
        DESCRIPTOR => (at(1)?, at(2).zip(at(3))),
        _ => return None,
    };
    Some(Parts {
        is_deferred: response & DEFERRED != 0,
        key: key & 0x0f,
        code,
    })
}

/// The sense key of sense data about this command.
fn key(sense: &[u8]) -> Option<u8> {
    let parts = parts(sense)?;
    (!parts.is_deferred).then_some(parts.key)
}

/// What sense data report that the other nexuses have to know: a unit attention, which is a reset where it has no code,
/// or a deferred error that has lost something. Whose data that was the device does not say, so all are told.
fn report(sense: &[u8]) -> Option<UnitAttention> {
    let Parts {
        is_deferred,
        key,
        code,
    } = parts(sense)?;
    let is_attention = key == SenseKey::UnitAttention as u8;
    if !is_deferred {
        let (asc, ascq) = code.unwrap_or(RESET);
        return is_attention.then_some(UnitAttention::OfDevice(SenseCode { asc, ascq }));
    }
    if key <= SenseKey::RecoveredError as u8 {
        return None;
    }
    let (asc, ascq) = code.unwrap_or_default();
    let key = match key == SenseKey::MediumError as u8 {
        true => SenseKey::MediumError,
        false => SenseKey::HardwareError,
    };
    Some(UnitAttention::Deferred(key, SenseCode { asc, ascq }))
}

/// Whether the device has reported something that comes once.
fn is_report(outcome: &Outcome) -> bool {
    matches!(&outcome.sense, Some(SenseBytes::OfDevice(sense)) if report(sense).is_some())
}

fn outcome_of(answer: DeviceAnswer) -> Outcome {
    let status = Status::of(answer.status);
    let sense = match status {
        Some(Status::CheckCondition) if answer.sense.is_empty() => Some(SenseBytes::Own(NO_SENSE)),
        Some(Status::CheckCondition) => Some(SenseBytes::OfDevice(answer.sense.into())),
        Some(_) => None,
        None => return lost(),
    };
    Outcome {
        status: status.unwrap_or(Status::CheckCondition),
        sense,
        data: answer.data,
        transfer_length: answer.transfer_bytes,
    }
}

/// A device that says CHECK CONDITION and not why.
const NO_SENSE: Sense = Sense::new(
    SenseKey::AbortedCommand,
    SenseCode::NO_ADDITIONAL_SENSE_INFORMATION,
);

/// What came back is no answer to what was asked.
fn lost() -> Outcome {
    let code = SenseCode::INTERNAL_TARGET_FAILURE;
    Outcome::check(Sense::new(SenseKey::HardwareError, code))
}
