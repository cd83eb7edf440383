//! What a logical unit is.

/// PERIPHERAL DEVICE TYPE: what a logical unit is.
///
/// Spec: SPC-5, INQUIRY, peripheral device type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum DeviceType {
    /// A direct access block device (SBC).
    Disk = 0x00,
    /// A CD or DVD drive (MMC).
    Optical = 0x05,
}
