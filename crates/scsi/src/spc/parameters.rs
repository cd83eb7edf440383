//! Mode parameters as values: what can be changed, and the names of mode pages.
//!
//! Spec: SPC-5, Mode parameters.

/// The mode parameters that can be changed. All others are fixed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Modes {
    /// WCE: writes may be answered before they are durable.
    pub write_cache: bool,
    /// D_SENSE: sense data comes in descriptor format.
    pub descriptor_sense: bool,
    /// SWP: the unit is write protected by software.
    pub software_write_protect: bool,
}

impl Modes {
    /// Nothing is switched on.
    pub(crate) const NONE: Self = Self {
        write_cache: false,
        descriptor_sense: false,
        software_write_protect: false,
    };

    /// For saving over a restart.
    pub(crate) fn to_byte(self) -> u8 {
        u8::from(self.write_cache)
            | u8::from(self.descriptor_sense) << 1
            | u8::from(self.software_write_protect) << 2
    }

    /// What [`Modes::to_byte`] gave, as far as the device can have it: a store without a cache has none
    /// to switch on.
    pub(crate) const fn from_byte(byte: u8, can: Self) -> Self {
        Self {
            write_cache: byte & 0x01 != 0 && can.write_cache,
            descriptor_sense: byte & 0x02 != 0 && can.descriptor_sense,
            software_write_protect: byte & 0x04 != 0 && can.software_write_protect,
        }
    }
}

/// Names a mode page.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct PageCode {
    pub(super) code: u8,
    pub(super) subpage: u8,
    /// MODE SELECT may change and save it.
    pub(super) is_saveable: bool,
}

impl PageCode {
    /// A page that nobody changes.
    pub(crate) const fn fixed(code: u8) -> Self {
        Self {
            code,
            subpage: 0,
            is_saveable: false,
        }
    }

    /// A page that MODE SELECT may change and save.
    pub(crate) const fn saveable(code: u8) -> Self {
        Self {
            is_saveable: true,
            ..Self::fixed(code)
        }
    }

    pub(super) const fn header_bytes(self) -> usize {
        if self.subpage == 0 { 2 } else { 4 }
    }
}
