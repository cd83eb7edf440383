//! Commands with their parameter lists, to one disk through two nexuses, on a store that may fail.
//!
//! Each is a header (nexus and failure, length of the CDB, length of the data), the CDB and the data. Whatever they say,
//! a command ends in one outcome, asks for no more data than there is, stays within the medium, and has sense data
//! exactly with CHECK CONDITION; what the owner keeps can be read back.
#![no_main]

use std::sync::Arc;

use memory::Payload;
use scsi::{
    Change, Command, Identity, Input, Limits, LogicalUnit, Lun, Nexus, NexusId, NexusSlot, Outcome,
    Owner, PortName, Profile, Reply, Status, Step, TargetPort,
};
use store::{Capabilities, Extent, IoAnswer, IoFailure, IoRequest, IoResult};

const MEDIUM_BYTES: u64 = 1024 * 1024;
/// More steps than any command may take.
const STEPS_MAX: usize = 10_000;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut disk = Disk::new();
    let mut rest = bytes;
    while let Some(([kind, cdb_length, high, low], after)) = rest.split_first_chunk() {
        let data_length = usize::from(u16::from_be_bytes([*high, *low]));
        let (cdb, after) = after.split_at(usize::from(*cdb_length).min(after.len()));
        let (data, after) = after.split_at(data_length.min(after.len()));
        disk.run(*kind, cdb, data);
        rest = after;
    }
});

struct Disk {
    owner: Owner,
    unit: LogicalUnit,
    slots: [NexusSlot; 2],
}

impl Disk {
    fn new() -> Self {
        let owner = Owner::new(profile(), None).expect("nothing is restored");
        let mut unit = LogicalUnit::new(Arc::clone(owner.profile()), Arc::clone(owner.shared()));
        let slots = [1, 2].map(|number| unit.attach(nexus(number), None));
        Self { owner, unit, slots }
    }

    fn run(&mut self, kind: u8, cdb: &[u8], data: &[u8]) {
        let command = Command {
            cdb,
            data_out_length: u32::try_from(data.len()).expect("16 bits"),
            data_in_length: u32::from(kind) << 8,
            luns: &[Lun::new(0).expect("a small number")],
        };
        let fails = kind & 2 != 0;
        let (mut task, mut step) = self.unit.start(self.slots[usize::from(kind & 1)], &command);
        for _ in 0..STEPS_MAX {
            let input = match step {
                Step::Done(outcome) => return check(&outcome),
                Step::DataOut { length } => {
                    let wanted = data
                        .get(..length as usize)
                        .expect("no more than was announced");
                    Input::DataOut(Payload::Heap(wanted.to_vec()))
                }
                Step::Io(request) => Input::Io(submit(request, fails)),
                Step::Owner(change) => Input::Owner(self.apply(&change)),
                Step::Fence(range) => {
                    assert!(range.start < range.end && range.end <= MEDIUM_BYTES / 512);
                    Input::FenceGranted
                }
            };
            step = self.unit.resume(&mut task, input);
        }
        panic!("{} does not end", task.name());
    }

    fn apply(&mut self, change: &Change) -> Reply {
        let applied = self.owner.apply(change);
        if let Some(kept) = applied.persist {
            assert!(
                Owner::new(profile(), Some(&kept)).is_ok(),
                "what is kept can be read back"
            );
        }
        if let Some(shared) = applied.shared {
            self.unit.install(&shared, &applied.notices);
        }
        applied.reply
    }
}

fn check(outcome: &Outcome) {
    assert_eq!(
        outcome.status == Status::CheckCondition,
        outcome.sense.is_some()
    );
}

/// A medium of zeros that keeps nothing, or fails.
fn submit(request: IoRequest, fails: bool) -> IoResult {
    let within = |start: u64, length: u64| {
        assert!(
            start
                .checked_add(length)
                .is_some_and(|end| end <= MEDIUM_BYTES)
        )
    };
    let answer = match request {
        IoRequest::Read { offset, len, .. } => {
            within(offset, len as u64);
            IoAnswer::Data(Payload::Heap(vec![0; len]))
        }
        IoRequest::Write { offset, data, .. } => {
            within(offset, data.len() as u64);
            IoAnswer::Done
        }
        IoRequest::Flush => IoAnswer::Done,
        IoRequest::Unmap { range } | IoRequest::WriteZeros { range, .. } => {
            within(range.start, range.end - range.start);
            IoAnswer::Done
        }
        IoRequest::Extents { range, count_max } => {
            within(range.start, range.end - range.start);
            assert!(count_max > 0);
            IoAnswer::Extents(vec![Extent {
                range,
                mapped: false,
            }])
        }
    };
    if fails {
        Err(IoFailure::Medium { offset: 0 })
    } else {
        Ok(answer)
    }
}

fn nexus(number: u32) -> Nexus {
    let mut transport_id = vec![0x05, 0x00, 0x00, 0x14];
    transport_id.extend_from_slice(format!("iqn.2026-11.fuzz:{number}").as_bytes());
    transport_id.resize(24, 0);
    Nexus {
        id: NexusId(number),
        port: PortName {
            transport_id: transport_id.into(),
            target_port: 1,
        },
        read_only: false,
    }
}

fn profile() -> Profile {
    Profile {
        identity: Identity {
            vendor: "TARN".to_owned(),
            product: "disk".to_owned(),
            revision: "0001".to_owned(),
            serial: "0123456789".to_owned(),
            naa: vec![0x33, 0, 0, 0, 0, 0, 0, 1],
            eui: None,
            device_name: "iqn.2026-11.fuzz:target".to_owned(),
            target_ports: vec![TargetPort {
                relative_id: 1,
                group: 1,
                scsi_name: "iqn.2026-11.fuzz:target,t,0x0001".to_owned(),
            }],
            protocol_identifier: 5,
            protocol_version: 0x0960,
            task_management: [0xd8, 0],
            removable: false,
        },
        limits: Limits::default(),
        capabilities: Capabilities {
            size_bytes: MEDIUM_BYTES,
            block_bytes: 512,
            physical_block_bytes: 4096,
            read_only: false,
            thin: true,
            unmap_granularity_bytes: 4096,
            reads_in_place: false,
            needs_own_buffer: false,
            volatile_cache: true,
            solid_state: true,
        },
        keeps_state: true,
    }
}
