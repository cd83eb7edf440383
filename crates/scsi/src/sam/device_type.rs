//! What a logical unit is.

/// PERIPHERAL DEVICE TYPE: what a logical unit is.
///
/// Spec: SPC-5, INQUIRY, peripheral device type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum DeviceType {
    /// A direct access block device (SBC).
    Disk = 0x00,
    /// A sequential access device (SSC): a tape drive.
    Tape = 0x01,
    /// A processor device.
    Processor = 0x03,
    /// A write-once device (SBC).
    WriteOnce = 0x04,
    /// A CD or DVD drive (MMC).
    Optical = 0x05,
    /// An optical memory device (SBC).
    OpticalMemory = 0x07,
    /// A media changer (SMC): the robot of a library.
    Changer = 0x08,
    /// An enclosure (SES).
    Enclosure = 0x0d,
    /// A simplified direct access device (RBC).
    ReducedDisk = 0x0e,
    /// An automation/drive interface (ADC).
    Automation = 0x12,
}

impl DeviceType {
    /// The types there are.
    pub const ALL: [Self; 10] = [
        Self::Disk,
        Self::Tape,
        Self::Processor,
        Self::WriteOnce,
        Self::Optical,
        Self::OpticalMemory,
        Self::Changer,
        Self::Enclosure,
        Self::ReducedDisk,
        Self::Automation,
    ];

    /// The type of this code; `None` where Tarn does not know it.
    pub fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|known| *known as u8 == code)
    }

    /// What it is called, in one word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Tape => "tape",
            Self::Processor => "processor",
            Self::WriteOnce => "write-once",
            Self::Optical => "cdrom",
            Self::OpticalMemory => "optical",
            Self::Changer => "changer",
            Self::Enclosure => "enclosure",
            Self::ReducedDisk => "reduced-disk",
            Self::Automation => "automation",
        }
    }

    /// Its commands depend on where those before have left it, so those of one nexus are carried out one after the
    /// other.
    pub const fn is_in_order(self) -> bool {
        matches!(self, Self::Tape | Self::Changer)
    }
}
