//! Logical unit numbers as the eight bytes that go over the wire.
//!
//! Spec: SAM-6, Logical unit numbers.

/// A single-level logical unit number, whatever the address method.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Lun(u32);

/// An address this target does not know: more than one level, a well-known logical unit, a bus.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("logical unit address {0:016x} is not of one level and of a supported method")]
pub struct UnsupportedLun(pub u64);

/// Above this value the peripheral device method has no room.
const PERIPHERAL_MAX: u32 = 0xff;
/// Above this value the flat space method has no room.
const FLAT_MAX: u32 = 0x3fff;
/// Above this value the extended flat space method of two words has no room.
const EXTENDED_MAX: u32 = 0xff_ffff;

impl Lun {
    /// The largest number that can be addressed.
    pub const MAX: Self = Self(EXTENDED_MAX);

    /// The number, if there is an address for it.
    pub const fn new(number: u32) -> Option<Self> {
        if number <= EXTENDED_MAX {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The number.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Reads peripheral device (bus 0), flat space, logical unit (bus and target 0) and extended
    /// flat space addresses.
    pub const fn decode(address: u64) -> Result<Self, UnsupportedLun> {
        let unsupported = Err(UnsupportedLun(address));
        let [b0, b1, b2, b3, rest @ ..] = address.to_be_bytes();
        if u32::from_be_bytes(rest) != 0 {
            return unsupported;
        }
        let second_word = (b2 as u16) << 8 | b3 as u16;
        match (b0 >> 6, b0) {
            // Bus identifier 0: the unit is here, not behind another bus.
            (0b00, 0) if second_word == 0 => Ok(Self(b1 as u32)),
            (0b01, _) if second_word == 0 => Ok(Self(((b0 & 0x3f) as u32) << 8 | b1 as u32)),
            // Target 0, and bus 0 in the high bits of the second byte.
            (0b10, 0x80) if b1 >> 5 == 0 && second_word == 0 => Ok(Self((b1 & 0x1f) as u32)),
            // Length 01b (three bytes), extended address method 2h.
            (0b11, 0xd2) => Ok(Self((b1 as u32) << 16 | second_word as u32)),
            _ => unsupported,
        }
    }

    /// The shortest address: peripheral device up to 255, flat space up to 16383, else extended.
    pub const fn encode(self) -> u64 {
        let number = self.0 as u64;
        if self.0 <= PERIPHERAL_MAX {
            number << 48
        } else if self.0 <= FLAT_MAX {
            (0x4000 | number) << 48
        } else {
            (0xd200_0000 | number) << 32
        }
    }
}

/// The units an I_T nexus may see, for REPORT LUNS.
pub trait LunInventory {
    /// Calls back with each unit.
    fn for_each(&self, found: &mut dyn FnMut(Lun));
}

impl LunInventory for [Lun] {
    fn for_each(&self, found: &mut dyn FnMut(Lun)) {
        self.iter().copied().for_each(found);
    }
}

impl<const N: usize> LunInventory for [Lun; N] {
    fn for_each(&self, found: &mut dyn FnMut(Lun)) {
        self.iter().copied().for_each(found);
    }
}

impl LunInventory for Vec<Lun> {
    fn for_each(&self, found: &mut dyn FnMut(Lun)) {
        self.iter().copied().for_each(found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back_from_its_address() {
        for number in [0, 1, 0xff, 0x100, 0x3fff, 0x4000, 0xff_ffff] {
            let lun = Lun::new(number).unwrap();
            assert_eq!(Lun::decode(lun.encode()), Ok(lun), "{number:#x}");
        }
        assert_eq!(Lun::new(0x100_0000), None);
    }

    #[test]
    fn the_method_changes_at_256_and_at_16384() {
        let encoded = |number| Lun::new(number).unwrap().encode();
        assert_eq!(encoded(0xff), 0x00ff_0000_0000_0000);
        assert_eq!(encoded(0x100), 0x4100_0000_0000_0000);
        assert_eq!(encoded(0x3fff), 0x7fff_0000_0000_0000);
        assert_eq!(encoded(0x4000), 0xd200_4000_0000_0000);
    }

    #[test]
    fn other_methods_reach_the_same_unit() {
        assert_eq!(Lun::decode(0x4005_0000_0000_0000), Ok(Lun(5)));
        assert_eq!(Lun::decode(0x8005_0000_0000_0000), Ok(Lun(5)));
        assert_eq!(Lun::decode(0xd200_0005_0000_0000), Ok(Lun(5)));
    }

    #[test]
    fn levels_buses_and_well_known_units_are_refused() {
        for address in [
            0x0001_0001_0000_0000,
            0x0001_0000_0000_0001,
            0x0101_0000_0000_0000,
            0x8105_0000_0000_0000,
            0x8025_0000_0000_0000,
            0xc101_0000_0000_0000,
            0xe200_0000_0000_0005,
        ] {
            let unsupported = Err(UnsupportedLun(address));
            assert_eq!(Lun::decode(address), unsupported, "{address:016x}");
        }
    }
}
