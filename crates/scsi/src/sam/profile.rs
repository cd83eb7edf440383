//! What a logical unit is, fixed for as long as it exists. All names come from the caller.

use store::Capabilities;

use super::device_type::DeviceType;

/// A target port through which a unit can be reached.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TargetPort {
    /// The relative target port identifier; not zero.
    pub relative_id: u16,
    /// The target port group it belongs to.
    pub group: u16,
    /// The SCSI target port name, as the transport spells it.
    pub scsi_name: String,
    /// The name of the SCSI target device that the port belongs to, as the transport spells it.
    pub device_name: String,
    /// PROTOCOL IDENTIFIER of its transport, as SPC lists them.
    pub protocol_identifier: u8,
    /// Version descriptor of its transport, as SPC lists them; zero for none.
    pub protocol_version: u16,
}

/// Names of a unit, as INQUIRY and its pages report them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity {
    /// T10 VENDOR IDENTIFICATION, up to 8 printable ASCII characters.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION, up to 16.
    pub product: String,
    /// PRODUCT REVISION LEVEL, up to 4.
    pub revision: String,
    /// PRODUCT SERIAL NUMBER, any length up to 252.
    pub serial: String,
    /// The NAA designator: 8 bytes, or 16 for type 6.
    pub naa: Vec<u8>,
    /// The EUI-64 designator, if there is one.
    pub eui: Option<u64>,
    /// Every port through which SCSI initiators know the unit. Nexuses of NBD and HyperSCSI come through none.
    pub target_ports: Vec<TargetPort>,
    /// The first two bytes of the answer to REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS: what the
    /// transport really carries out.
    pub task_management: [u8; 2],
    /// The medium can be ejected and loaded (RMB).
    pub removable: bool,
}

impl Identity {
    /// Whether standard INQUIRY data call it the same.
    pub fn is_shown_as(&self, other: &Self) -> bool {
        let of = |one: &Self| [&one.vendor, &one.product, &one.revision].map(String::clone);
        of(self) == of(other)
    }
}

/// Limits of commands. The Block Limits page and the checks follow from the same values.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Largest READ, WRITE or VERIFY with data, in bytes; also bounds one store request.
    pub transfer_bytes_max: u32,
    /// The size that serves best, in bytes.
    pub transfer_bytes_optimal: u32,
    /// Blocks of one UNMAP in all.
    pub unmap_blocks_max: u32,
    /// Block descriptors of one UNMAP.
    pub unmap_descriptors_max: u16,
    /// Blocks of one WRITE SAME.
    pub write_same_blocks_max: u32,
    /// Blocks of one COMPARE AND WRITE.
    pub compare_and_write_blocks_max: u8,
    /// Descriptors in one answer to GET LBA STATUS.
    pub lba_status_descriptors_max: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // COMPARE AND WRITE brings twice its blocks: 255 of 4096 bytes stay well below.
            transfer_bytes_max: 8 * 1024 * 1024,
            transfer_bytes_optimal: 1024 * 1024,
            unmap_blocks_max: 1024 * 1024,
            unmap_descriptors_max: 256,
            // Below what two bytes of NUMBER OF LOGICAL BLOCKS can ask for: clients that see more
            // write as much in one command first, which no transfer limit allows.
            write_same_blocks_max: 0xffff,
            compare_and_write_blocks_max: 128,
            lba_status_descriptors_max: 1024,
        }
    }
}

/// Everything about a unit that does not change; every core and the owner hold the same one.
#[derive(Clone, Debug)]
pub struct Profile {
    /// What the unit is.
    pub device_type: DeviceType,
    /// Names.
    pub identity: Identity,
    /// Limits.
    pub limits: Limits,
    /// What its store can do.
    pub capabilities: Capabilities,
    /// What [`crate::Proposal::state_to_keep`] hands out is really kept over a restart. Saved mode pages
    /// and APTPL are offered only then.
    pub keeps_state: bool,
}

impl Profile {
    pub(crate) fn relative_ports(&self) -> Vec<u16> {
        let ports = &self.identity.target_ports;
        ports.iter().map(|port| port.relative_id).collect()
    }
}
