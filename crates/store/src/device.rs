//! Commands for a store that is a whole SCSI device: what it is asked, what it answers, and what was found of it when
//! it was opened.

use std::collections::BTreeMap;

use memory::{Buffer, Payload};

/// A command for the device. It has one turn: whatever becomes of its answer, it is never handed to the device again.
#[derive(Debug)]
pub struct DeviceRequest {
    /// The CDB, of any length.
    pub cdb: Box<[u8]>,
    /// Data-Out. Not empty only where `data_in_bytes` is 0.
    pub data_out: Payload,
    /// Room for Data-In, in bytes.
    pub data_in_bytes: usize,
    /// Memory of that length, where there is Data-In; whoever hands the request over puts it in.
    pub buffer: Option<Buffer>,
    /// Whose turn it is: commands of one nexus do not keep those of others waiting for more than one of them.
    pub nexus: u64,
    /// It may change the medium or the device.
    pub alters: bool,
}

/// What the device answered.
#[derive(Debug)]
pub struct DeviceAnswer {
    /// STATUS, as SAM has it.
    pub status: u8,
    /// Sense data as the device gave them, at most 252 bytes; empty where it gave none.
    pub sense: Vec<u8>,
    /// Data-In; also with a status that is not GOOD.
    pub data: Payload,
    /// How many bytes the command transfers, in its direction, by what the device says: more than the room for it where
    /// it had more to give.
    pub transfer_bytes: u64,
}

/// What a device says of itself.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DeviceFacts {
    /// Standard INQUIRY data, at least 36 bytes.
    pub inquiry: Vec<u8>,
    /// Its VPD pages, each whole, with its header.
    pub pages: BTreeMap<u8, Vec<u8>>,
    /// What it lists (REPORT SUPPORTED OPERATION CODES); `None` where it lists nothing.
    pub commands: Option<Vec<DeviceCommand>>,
}

/// A command that a device lists.
///
/// Spec: SPC-5, REPORT SUPPORTED OPERATION CODES, all_commands parameter data format.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeviceCommand {
    /// OPERATION CODE.
    pub opcode: u8,
    /// SERVICE ACTION, if it has one.
    pub service_action: Option<u16>,
    /// CDB LENGTH, in bytes.
    pub cdb_bytes: u16,
}

impl DeviceFacts {
    /// PERIPHERAL DEVICE TYPE.
    pub fn device_type(&self) -> u8 {
        self.inquiry.first().map_or(0x1f, |byte| byte & 0x1f)
    }

    /// RMB: its medium can be taken out.
    pub fn is_removable(&self) -> bool {
        self.inquiry.get(1).is_some_and(|byte| byte & 0x80 != 0)
    }

    /// T10 VENDOR IDENTIFICATION, PRODUCT IDENTIFICATION and PRODUCT REVISION LEVEL, without the blanks behind them.
    pub fn names(&self) -> [String; 3] {
        [8..16, 16..32, 32..36].map(|range| {
            let text = self.inquiry.get(range).unwrap_or(&[]);
            String::from_utf8_lossy(text).trim_end().to_owned()
        })
    }

    /// Whether it has this command, as far as it says.
    pub fn has_command(&self, opcode: u8, service_action: Option<u16>) -> bool {
        let listed = self.commands.as_ref();
        let is_it =
            |one: &DeviceCommand| (one.opcode, one.service_action) == (opcode, service_action);
        listed.is_none_or(|commands| commands.iter().any(is_it))
    }
}
