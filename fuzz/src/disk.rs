//! CDBs of all kinds and lengths, with parameter lists, against a disk on two cores.

use std::ops::Range;
use std::sync::Arc;

use memory::{BUFFER_BYTES_MAX, Payload};
use scsi::{
    Change, ChangeKind, Command, DeviceType, Identity, Input as Brought, Limits, LogicalUnit, Lun,
    Nexus, NexusId, NexusSlot, Outcome, Owner, PIECE_BYTES_MAX, PortName, Principal, Profile,
    Reply, Status, Step, TargetPort,
};
use store::{Capabilities, Extent, IoAnswer, IoFailure, IoRequest, IoResult};

use crate::input::Input;

const SIZE_BYTES: usize = 256 * 1024;
/// More steps than any command of this disk can need.
const STEPS_MAX: usize = 4096;

/// A disk with the features that `choice` says, or a drive.
pub(crate) fn profile(choice: u8) -> Profile {
    let port = |relative_id| TargetPort {
        relative_id,
        group: 1,
        device_name: "device.name".to_owned(),
        protocol_identifier: 5,
        protocol_version: 0x0960,
        scsi_name: format!("device.name,t,{relative_id:#06x}"),
    };
    // Removable, read-only and with other blocks than most disks.
    let is_drive = choice & 0x0e == 0x0e;
    Profile {
        device_type: match is_drive {
            true => DeviceType::Optical,
            false => DeviceType::Disk,
        },
        identity: Identity {
            vendor: "TARN".to_owned(),
            product: "disk".to_owned(),
            revision: "0001".to_owned(),
            serial: "0123456789".to_owned(),
            naa: vec![0x33, 0x33, 0x33, 0, 0, 0, 0xab, 0xcd],
            eui: (choice & 0x01 != 0).then_some(7),
            target_ports: vec![port(1), port(2)],
            task_management: [0xd8, 0],
            removable: choice & 0x02 != 0,
        },
        limits: Limits {
            transfer_bytes_max: 64 * 1024,
            transfer_bytes_optimal: 8 * 1024,
            ..Limits::default()
        },
        capabilities: Capabilities {
            size_bytes: SIZE_BYTES as u64,
            block_bytes: match choice & 0x04 {
                _ if is_drive => 2048,
                0 => 512,
                _ => 4096,
            },
            physical_block_bytes: 4096,
            read_only: choice & 0x08 != 0,
            thin: choice & 0x10 == 0,
            unmap_granularity_bytes: 4096,
            reads_in_place: false,
            in_place_unit_bytes: 0,
            needs_own_buffer: false,
            volatile_cache: choice & 0x20 == 0,
            writes_through: false,
            solid_state: true,
            compare_and_write_bytes: if choice & 0x80 != 0 { 8192 } else { 0 },
        },
        keeps_state: choice & 0x40 == 0,
    }
}

struct Play {
    profile: Profile,
    medium: Vec<u8>,
    owner: Owner,
    cores: [LogicalUnit; 2],
    slots: [NexusSlot; 2],
    /// How many requests of the store go well before one fails; `None`: all.
    good_requests: Option<u8>,
}

/// A script of commands. Every one ends, with sense data exactly where the status says so; the
/// store is never asked for what it does not have; kept state can be read again.
pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let profile = profile(input.byte());
    let Ok(owner) = Owner::new(profile.clone(), None) else {
        panic!("a new unit")
    };
    let core = || LogicalUnit::new(Arc::clone(owner.profile()), Arc::clone(owner.shared()));
    let mut cores = [core(), core()];
    let slots = [
        cores[0].attach(nexus(0), None),
        cores[1].attach(nexus(1), None),
    ];
    let medium = vec![0; SIZE_BYTES];
    let mut play = Play {
        profile,
        medium,
        owner,
        cores,
        slots,
        good_requests: None,
    };
    for number in 0..2 {
        let kind = ChangeKind::NexusAttached;
        play.change(&Change {
            from: Some(nexus(number)),
            kind,
        });
    }
    while !input.is_over() {
        play.act(&mut input);
    }
}

fn nexus(number: u32) -> Nexus {
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

impl Play {
    /// One line of the script: who, the length of the CDB, the CDB, how much room there is for
    /// data either way, and the data.
    fn act(&mut self, input: &mut Input<'_>) {
        let who = input.byte();
        let core = usize::from(who & 1);
        if who & 0xf0 == 0xf0 {
            let kind = match who >> 1 & 7 {
                0 => ChangeKind::LogicalUnitReset,
                1 => ChangeKind::TargetReset,
                // Never more than the medium has, whatever the block length.
                2 | 3 => ChangeKind::CapacityChanged {
                    blocks: u64::from(input.byte() % 65),
                },
                4 => {
                    let refuses = input.byte() & 1 != 0;
                    self.cores
                        .iter_mut()
                        .for_each(|core| core.refuse_access(refuses));
                    return;
                }
                5 => ChangeKind::Eject {
                    force: input.byte() & 1 != 0,
                },
                6 => ChangeKind::Load,
                _ => ChangeKind::NexusLost,
            };
            self.change(&Change {
                from: Some(nexus(u32::from(who & 1))),
                kind,
            });
            return;
        }
        self.good_requests = (who >> 1 & 7).checked_sub(1);
        let cdb_len = usize::from(input.byte());
        let cdb = input.bytes(cdb_len);
        let data_out_length = u32::from(input.u16());
        let data_in_length = u32::from(input.u16()) * 16;
        let sent = usize::from(input.u16());
        let data = input.bytes(sent);
        let outcome = self.execute(core, cdb, data, data_out_length, data_in_length);
        let has_sense = outcome.sense.is_some();
        assert_eq!(
            has_sense,
            outcome.status == Status::CheckCondition,
            "{cdb:02x?}"
        );
        if let Some(sense) = outcome.sense {
            for descriptor in [false, true] {
                assert!((8..=252).contains(&sense.encode(descriptor).len()));
            }
            assert!(outcome.data.is_empty() || sense.key != scsi::SenseKey::IllegalRequest);
        }
        assert!(
            outcome.data.len() <= 2 * 64 * 1024,
            "{} bytes",
            outcome.data.len()
        );
    }

    fn execute(
        &mut self,
        core: usize,
        cdb: &[u8],
        data: &[u8],
        data_out_length: u32,
        data_in_length: u32,
    ) -> Outcome {
        let luns = [Lun::new(0), Lun::new(300)].map(|lun| match lun {
            Some(lun) => lun,
            None => panic!("small numbers"),
        });
        let command = Command {
            cdb,
            data_out_length,
            data_in_length,
            luns: &luns,
        };
        let mut task = self.cores[core].task(self.slots[core]);
        let mut step = self.cores[core].start(&mut task, &command);
        for _ in 0..STEPS_MAX {
            let brought = match step {
                Step::Done(outcome) => return outcome,
                Step::DataOut { length } => {
                    assert!(length > 0 && length <= data_out_length, "asks for {length}");
                    assert!(length as usize <= BUFFER_BYTES_MAX);
                    let mut bytes = data[..data.len().min(length as usize)].to_vec();
                    bytes.resize(length as usize, 0);
                    Brought::DataOut(Payload::Heap(bytes))
                }
                Step::Io(request) => Brought::Io(self.submit(request)),
                Step::Fence(blocks) => {
                    assert!(blocks.start < blocks.end);
                    Brought::FenceGranted
                }
                Step::Turn { bytes } => {
                    assert!(bytes <= PIECE_BYTES_MAX);
                    Brought::Turn
                }
                Step::Owner(change) => Brought::Owner(self.change(&change)),
            };
            step = self.cores[core].resume(&mut task, brought);
        }
        panic!("{cdb:02x?} never ends");
    }

    fn change(&mut self, change: &Change) -> Reply {
        let proposal = self.owner.propose(change);
        let kept = proposal.state_to_keep();
        let applied = self.owner.commit(proposal);
        if let Some(kept) = kept {
            assert!(self.profile.keeps_state);
            assert_eq!(kept, self.owner.kept_state());
            let again = Owner::new(self.profile.clone(), Some(&kept));
            assert!(again.is_ok_and(|again| again.kept_state() == kept));
        }
        if let Some(shared) = applied.shared {
            for core in &mut self.cores {
                core.install(&shared, &applied.notices);
            }
        }
        applied.reply
    }

    fn submit(&mut self, request: IoRequest) -> IoResult {
        let bytes = |range: &Range<u64>| {
            assert!(range.start < range.end, "{range:?}");
            assert!(range.end <= SIZE_BYTES as u64, "{range:?} is outside");
            let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
            at(range.start)..at(range.end)
        };
        let range = match &request {
            IoRequest::Read { offset, len, .. } => bytes(&(*offset..*offset + *len as u64)),
            IoRequest::Write { offset, data, .. } => bytes(&(*offset..*offset + data.len() as u64)),
            IoRequest::CompareAndWrite { offset, data, .. } => {
                assert_eq!(data.len() % 2, 0, "half of it is compared");
                bytes(&(*offset..*offset + data.len() as u64 / 2))
            }
            IoRequest::Unmap { range }
            | IoRequest::WriteZeros { range, .. }
            | IoRequest::Extents { range, .. } => bytes(range),
            IoRequest::Flush => 0..0,
        };
        match &mut self.good_requests {
            Some(0) => {
                self.good_requests = None;
                return Err(IoFailure::Medium {
                    offset: range.start as u64,
                });
            }
            Some(left) => *left -= 1,
            None => {}
        }
        match request {
            IoRequest::Read { .. } => {
                return Ok(IoAnswer::Data(Payload::Heap(self.medium[range].to_vec())));
            }
            IoRequest::Write { data, .. } => data.copy_to(0, &mut self.medium[range]),
            IoRequest::CompareAndWrite { data, .. } => {
                let bytes = data.to_vec();
                let (old, new) = bytes.split_at(range.len());
                let there = &mut self.medium[range];
                let differs = there.iter().zip(old).position(|(is, should)| is != should);
                if let Some(at) = differs {
                    return Err(IoFailure::Miscompare { offset: at as u64 });
                }
                there.copy_from_slice(new);
            }
            IoRequest::Unmap { .. } | IoRequest::WriteZeros { .. } => self.medium[range].fill(0),
            IoRequest::Extents { range, count_max } => {
                assert!(count_max > 0);
                return Ok(IoAnswer::Extents(vec![Extent {
                    range,
                    mapped: true,
                }]));
            }
            IoRequest::Flush => {}
        }
        Ok(IoAnswer::Done)
    }
}
