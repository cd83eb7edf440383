//! A unit with two cores, a store in memory, and bytes in and bytes out.

mod atomic;
mod attention;
mod hostile;
mod inquiry;
mod matrix;
mod medium;
mod mode;
mod optical;
mod owned;
mod piece;
mod provision;
mod report;
mod reserving;
mod transfer;

use std::collections::BTreeSet;
use std::sync::Arc;

use memory::Payload;
use store::{Capabilities, Extent, IoAnswer, IoFailure, IoRequest, IoResult};

use crate::spc::reservation::ReservationType;
use crate::*;

const BLOCK: usize = 512;
const BLOCKS: u64 = 4096;

fn profile() -> Profile {
    Profile {
        device_type: DeviceType::Disk,
        identity: Identity {
            vendor: "TARN".to_owned(),
            product: "disk".to_owned(),
            revision: "0001".to_owned(),
            serial: "0123456789".to_owned(),
            naa: vec![0x33, 0x33, 0x33, 0x00, 0x00, 0x00, 0xab, 0xcd],
            eui: None,
            target_ports: vec![
                TargetPort {
                    relative_id: 1,
                    group: 1,
                    scsi_name: "device.name,t,0x0001".to_owned(),
                    device_name: "device.name".to_owned(),
                    protocol_identifier: 5,
                    protocol_version: 0x0960,
                },
                TargetPort {
                    relative_id: 2,
                    group: 1,
                    scsi_name: "other.name,t,0x0002".to_owned(),
                    device_name: "other.name".to_owned(),
                    protocol_identifier: 5,
                    protocol_version: 0x0960,
                },
            ],
            task_management: [0xd8, 0x00],
            removable: false,
        },
        limits: Limits {
            transfer_bytes_max: 512 * 1024,
            transfer_bytes_optimal: 64 * 1024,
            ..Limits::default()
        },
        capabilities: Capabilities {
            physical_block_bytes: 4096,
            thin: true,
            unmap_granularity_bytes: 4096,
            volatile_cache: true,
            ..Capabilities::plain(BLOCKS * BLOCK as u64, 512)
        },
        keeps_state: true,
    }
}

/// What the store was asked for, without the data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Asked {
    Read(u64, usize),
    Write(u64, usize, bool),
    CompareAndWrite(u64, usize),
    Flush,
    Unmap(u64, u64),
    Zero(u64, u64, bool),
    Extents,
}

/// Everything around the unit that a data plane would be.
struct Rig {
    medium: Vec<u8>,
    mapped: BTreeSet<usize>,
    owner: Owner,
    cores: [LogicalUnit; 2],
    asked: Vec<Asked>,
    fences: Vec<std::ops::Range<u64>>,
    /// What the pieces cost that waited for their turn.
    turns: Vec<u32>,
    /// Fails the next request that is not the excepted kind.
    failure: Option<IoFailure>,
    persisted: Option<Vec<u8>>,
    aborted: Vec<Who>,
}

/// A nexus: the core it lives on and its slot there.
type At = (usize, NexusSlot);

fn nexus(number: u32) -> Nexus {
    // A format 0 TransportID of iSCSI, as the reservations want it.
    let mut transport_id = vec![0x05, 0x00, 0x00, 0x14];
    transport_id.extend_from_slice(format!("iqn.2026-11.test:{number}").as_bytes());
    transport_id.resize(24, 0);
    Nexus {
        id: NexusId(number),
        port: PortName {
            transport_id: transport_id.into(),
            target_port: 1,
            principal: Principal::Unknown,
        },
        read_only: false,
    }
}

impl Rig {
    fn new(profile: Profile) -> Self {
        Self::restored(profile, None)
    }

    fn restored(profile: Profile, kept: Option<&[u8]>) -> Self {
        // No test reads a DVD to its end.
        let size = profile.capabilities.size_bytes.min(64 << 20);
        let size = usize::try_from(size).unwrap();
        let owner = Owner::new(profile, kept).unwrap();
        let core = || LogicalUnit::new(Arc::clone(owner.profile()), Arc::clone(owner.shared()));
        Self {
            medium: vec![0; size],
            mapped: BTreeSet::new(),
            cores: [core(), core()],
            owner,
            asked: Vec::new(),
            fences: Vec::new(),
            turns: Vec::new(),
            failure: None,
            persisted: None,
            aborted: Vec::new(),
        }
    }

    /// A rig and a nexus on core 0 for which no unit attention waits.
    fn ready(profile: Profile) -> (Self, At) {
        let mut rig = Self::new(profile);
        let at = rig.attach(0, 1);
        (rig, at)
    }

    fn attach(&mut self, core: usize, number: u32) -> At {
        (core, self.cores[core].attach(nexus(number), None))
    }

    /// Runs a command that sends `data` and has room for all that could come.
    fn run(&mut self, at: At, cdb: &[u8], data: &[u8]) -> Outcome {
        self.run_with_room(at, cdb, data, u32::MAX)
    }

    fn run_with_room(&mut self, at: At, cdb: &[u8], data: &[u8], room: u32) -> Outcome {
        let (core, slot) = at;
        let luns = [Lun::new(0).unwrap(), Lun::new(1).unwrap()];
        let command = Command {
            cdb,
            data_out_length: u32::try_from(data.len()).unwrap(),
            data_in_length: room,
            luns: &luns,
        };
        let mut task = self.cores[core].task(slot);
        let mut step = self.cores[core].start(&mut task, &command);
        loop {
            let input = match step {
                Step::Done(outcome) => return outcome,
                Step::DataOut { length } => {
                    let length = usize::try_from(length).unwrap();
                    assert!(length > 0 && length <= data.len(), "asked for {length}");
                    Input::DataOut(Payload::Heap(data[..length].to_vec()))
                }
                Step::Io(request) => Input::Io(self.submit(request)),
                Step::Fence(range) => {
                    self.fences.push(range);
                    Input::FenceGranted
                }
                Step::Turn { bytes } => {
                    self.turns.push(bytes);
                    Input::Turn
                }
                Step::Owner(change) => Input::Owner(self.apply(&change)),
            };
            step = self.cores[core].resume(&mut task, input);
        }
    }

    fn apply(&mut self, change: &Change) -> Reply {
        let proposal = self.owner.propose(change);
        if let Some(state) = proposal.state_to_keep() {
            self.persisted = Some(state);
        }
        let applied = self.owner.commit(proposal);
        self.aborted.extend(applied.abort);
        if let Some(shared) = applied.shared {
            for core in &mut self.cores {
                core.install(&shared, &applied.notices);
            }
        }
        applied.reply
    }

    fn notify(&mut self, (core, slot): At, attention: UnitAttention) {
        self.cores[core].notify(slot, attention);
    }

    /// Begins a command, as far as it gets without any answer but its data.
    fn start(&mut self, (core, slot): At, cdb: &[u8], data: &[u8]) -> (Task, Step) {
        let luns = [Lun::new(0).unwrap()];
        let command = Command {
            cdb,
            data_out_length: u32::try_from(data.len()).unwrap(),
            data_in_length: 0,
            luns: &luns,
        };
        let mut task = self.cores[core].task(slot);
        let mut step = self.cores[core].start(&mut task, &command);
        if matches!(step, Step::DataOut { .. }) {
            let data = Input::DataOut(Payload::Heap(data.to_vec()));
            step = self.cores[core].resume(&mut task, data);
        }
        if matches!(step, Step::Turn { .. }) {
            step = self.cores[core].resume(&mut task, Input::Turn);
        }
        (task, step)
    }

    fn change(&mut self, from: Option<u32>, kind: ChangeKind) {
        let from = from.map(nexus);
        let reply = self.apply(&Change { from, kind });
        assert_eq!(reply.status, Status::Good);
    }

    fn submit(&mut self, request: IoRequest) -> IoResult {
        let bytes = |range: std::ops::Range<u64>| {
            usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()
        };
        let at = |offset: u64| usize::try_from(offset).unwrap();
        let asked = match &request {
            IoRequest::Read { offset, len, .. } => Asked::Read(*offset, *len),
            IoRequest::Write {
                offset,
                data,
                durable,
            } => Asked::Write(*offset, data.len(), *durable),
            IoRequest::CompareAndWrite { offset, data, .. } => {
                Asked::CompareAndWrite(*offset, data.len() / 2)
            }
            IoRequest::Flush => Asked::Flush,
            IoRequest::Unmap { range } => Asked::Unmap(range.start, range.end),
            IoRequest::WriteZeros { range, durable } => {
                Asked::Zero(range.start, range.end, *durable)
            }
            IoRequest::Extents { .. } => Asked::Extents,
        };
        self.asked.push(asked);
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        match request {
            IoRequest::Read {
                offset,
                len,
                buffer,
            } => {
                assert!(buffer.is_none());
                let bytes = self.medium[at(offset)..at(offset) + len].to_vec();
                return Ok(IoAnswer::Data(Payload::Heap(bytes)));
            }
            IoRequest::Write { offset, data, .. } => {
                let range = at(offset)..at(offset) + data.len();
                self.mapped.extend(range.start / BLOCK..range.end / BLOCK);
                self.medium[range].copy_from_slice(&data.to_vec());
            }
            IoRequest::CompareAndWrite { offset, data, .. } => {
                let (bytes, half) = (data.to_vec(), data.len() / 2);
                let there = &mut self.medium[at(offset)..at(offset) + half];
                if let Some(at) = (0..half).find(|&at| there[at] != bytes[at]) {
                    return Err(IoFailure::Miscompare { offset: at as u64 });
                }
                there.copy_from_slice(&bytes[half..]);
            }
            IoRequest::Flush => {}
            IoRequest::Unmap { range } => {
                let range = bytes(range);
                for block in range.start / BLOCK..range.end / BLOCK {
                    self.mapped.remove(&block);
                }
                self.medium[range].fill(0);
            }
            IoRequest::WriteZeros { range, .. } => {
                let range = bytes(range);
                self.mapped.extend(range.start / BLOCK..range.end / BLOCK);
                self.medium[range].fill(0);
            }
            IoRequest::Extents { range, count_max } => {
                return Ok(IoAnswer::Extents(self.extents(bytes(range), count_max)));
            }
        }
        Ok(IoAnswer::Done)
    }

    fn extents(&self, range: std::ops::Range<usize>, count_max: usize) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        for block in range.start / BLOCK..range.end / BLOCK {
            let mapped = self.mapped.contains(&block);
            let end = ((block + 1) * BLOCK) as u64;
            let is_full = extents.len() == count_max;
            match extents.last_mut().filter(|last| last.mapped == mapped) {
                Some(last) => last.range.end = end,
                None if is_full => break,
                None => extents.push(Extent {
                    range: (block * BLOCK) as u64..end,
                    mapped,
                }),
            }
        }
        extents
    }

    fn block(&self, lba: usize) -> &[u8] {
        &self.medium[lba * BLOCK..(lba + 1) * BLOCK]
    }
}

/// The parameter data of a command that must end well.
#[track_caller]
fn data(outcome: Outcome) -> Vec<u8> {
    assert_eq!((outcome.status, outcome.sense), (Status::Good, None));
    outcome.data.to_vec()
}

#[track_caller]
fn good(outcome: &Outcome) {
    assert_eq!((outcome.status, outcome.sense), (Status::Good, None));
}

/// Key, code and qualifier of a command that must end in CHECK CONDITION.
#[track_caller]
fn sense(outcome: &Outcome) -> Codes {
    assert_eq!(outcome.status, Status::CheckCondition);
    let Sense { key, code, .. } = outcome.sense.unwrap();
    (key as u8, code.asc, code.ascq)
}

/// Byte and bit of the field pointer.
#[track_caller]
fn pointer(outcome: &Outcome) -> Place {
    match outcome.sense.unwrap().specific {
        Some(SenseKeySpecific::FieldPointer { byte, bit, .. }) => (byte, bit),
        None => panic!("no field pointer in {outcome:?}"),
    }
}

/// Sense key, code and qualifier.
type Codes = (u8, u8, u8);
/// Byte and bit of a field.
type Place = (u16, Option<u8>);

const INVALID_FIELD: Codes = (5, 0x24, 0x00);
const OUT_OF_RANGE: Codes = (5, 0x21, 0x00);
const LIST_LENGTH: Codes = (5, 0x1a, 0x00);

/// A CDB of the 10-byte form.
fn ten(opcode: u8, flags: u8, lba: u32, length: u16) -> [u8; 10] {
    let [a, b, c, d] = lba.to_be_bytes();
    let [high, low] = length.to_be_bytes();
    [opcode, flags, a, b, c, d, 0, high, low, 0]
}

/// A CDB of the 16-byte form.
fn sixteen(opcode: u8, flags: u8, lba: u64, length: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[1] = flags;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&length.to_be_bytes());
    cdb
}

/// Bytes from a dump: pairs of hex digits, white space between.
fn hex(dump: &str) -> Vec<u8> {
    let digits: String = dump.split_whitespace().collect();
    assert!(digits.len().is_multiple_of(2));
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

/// A dump of 16 bytes a line, for messages and golden texts.
fn dump(bytes: &[u8]) -> String {
    let line = |line: &[u8]| {
        let bytes: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        bytes.join(" ")
    };
    bytes.chunks(16).map(line).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn assert_dump(got: &[u8], golden: &str) {
    let wanted = hex(golden);
    assert_eq!(dump(got), dump(&wanted));
}
