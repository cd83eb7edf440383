//! Where fields stand in a CDB, read from the text of its layout while the table is compiled.
//!
//! A layout has two characters for each byte. Hex digits (in lower case) are the bits that are
//! evaluated, as CDB usage data has them. Capital letters name a field, all of whose bits are:
//!
//! | letter | field |
//! |---|---|
//! | L | LOGICAL BLOCK ADDRESS |
//! | N | a number of blocks: TRANSFER LENGTH and its kin |
//! | Z | the same, where zero stands for 256 |
//! | A | ALLOCATION LENGTH |
//! | P | PARAMETER LIST LENGTH |
//!
//! `1L` is a byte whose low five bits belong to the address. A colon stands before the SERVICE
//! ACTION: the low five bits of byte 1, or two bytes further behind. Blanks separate nothing.

use crate::sam::cdb::Cdb;

/// A number in a CDB, by its bits. The first bit of the CDB is bit 0.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Field {
    start: u16,
    bits: u16,
    /// The first of eight bytes that have all of it, or [`NO_WINDOW`].
    window: u8,
    /// How many bits of the window lie before it.
    before: u8,
}

/// A field that is not there, or does not end in the first 16 bytes.
const NO_WINDOW: u8 = u8::MAX;

impl Field {
    const NONE: Self = Self {
        start: 0,
        bits: 0,
        window: NO_WINDOW,
        before: 0,
    };

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a CDB has 260 bytes at most"
    )]
    const fn new(start: u16, bits: u16) -> Self {
        let byte = start / 8;
        let window = if byte < 8 { byte } else { 8 };
        let has_window = bits > 0 && start + bits <= 128;
        Self {
            start,
            bits,
            window: if has_window { window as u8 } else { NO_WINDOW },
            before: if has_window {
                (start - window * 8) as u8
            } else {
                0
            },
        }
    }

    const fn is_there(self) -> bool {
        self.bits > 0
    }

    /// The byte where it starts, for field pointers.
    const fn byte(self) -> u16 {
        self.start / 8
    }

    const fn end(self) -> u16 {
        self.start + self.bits
    }

    /// Zero for a field that is not there.
    #[inline]
    fn read(self, cdb: &Cdb) -> u64 {
        match cdb.window(self.window) {
            Some(window) => window << self.before >> (64 - self.bits),
            None => self.read_far(cdb),
        }
    }

    /// A field that does not end in the first 16 bytes; such fields are of whole bytes.
    #[cold]
    fn read_far(self, cdb: &Cdb) -> u64 {
        let bytes = usize::from(self.start / 8)..usize::from(self.end() / 8);
        bytes.fold(0, |number, at| number << 8 | u64::from(cdb.u8(at)))
    }

    const fn grown(self, at: u16, bits: u16) -> Self {
        if self.is_there() {
            assert!(self.end() == at, "a field is in one piece");
            Self::new(self.start, self.bits + bits)
        } else {
            Self::new(at, bits)
        }
    }
}

/// What the length field of a command counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Length {
    /// There is none.
    None,
    /// Blocks of the medium.
    Blocks(Field),
    /// The same; zero stands for 256.
    BlocksOr256(Field),
    /// How many bytes of parameter data the initiator wants.
    Allocation(Field),
    /// How many bytes of parameters it sends.
    Parameters(Field),
}

/// Where the fields of one CDB are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Fields {
    lba: Field,
    length: Length,
    service_action: Field,
    /// Its value; zero where there is none.
    action: u64,
    /// Bits of the first 16 bytes that may be set.
    allowed: [u8; 16],
}

impl Fields {
    /// Whether the CDB has the service action of this command, or the command has none.
    #[inline]
    pub(super) fn has_action_of(&self, cdb: &Cdb) -> bool {
        !self.service_action.is_there() || self.service_action.read(cdb) == self.action
    }

    /// The service action, if the command has one.
    #[expect(clippy::cast_possible_truncation, reason = "16 bits at most")]
    pub(super) const fn wanted_action(&self) -> Option<u16> {
        if self.service_action.is_there() {
            Some(self.action as u16)
        } else {
            None
        }
    }

    /// The byte where the service action is, for field pointers.
    pub(super) const fn service_action_at(&self) -> u16 {
        self.service_action.byte()
    }

    /// LOGICAL BLOCK ADDRESS.
    #[inline]
    pub(crate) fn lba(&self, cdb: &Cdb) -> u64 {
        self.lba.read(cdb)
    }

    /// The number of blocks; zero where the CDB has no such field.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "asserted to have 32 bits at most"
    )]
    pub(crate) fn blocks(&self, cdb: &Cdb) -> u32 {
        match self.length {
            Length::Blocks(field) => field.read(cdb) as u32,
            Length::BlocksOr256(field) => match field.read(cdb) as u32 {
                0 => 256,
                some => some,
            },
            Length::None | Length::Allocation(_) | Length::Parameters(_) => 0,
        }
    }

    /// Whether the CDB names blocks of the medium.
    pub(crate) const fn has_extent(&self) -> bool {
        matches!(self.length, Length::Blocks(_) | Length::BlocksOr256(_))
    }

    /// ALLOCATION LENGTH; everything where the CDB has no such field.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "asserted to have 32 bits at most"
    )]
    pub(crate) fn allocation_length(&self, cdb: &Cdb) -> u32 {
        match self.length {
            Length::Allocation(field) => field.read(cdb) as u32,
            Length::None | Length::Blocks(_) | Length::BlocksOr256(_) | Length::Parameters(_) => {
                u32::MAX
            }
        }
    }

    /// PARAMETER LIST LENGTH; zero where the CDB has no such field.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "asserted to have 32 bits at most"
    )]
    pub(crate) fn parameter_list_length(&self, cdb: &Cdb) -> u32 {
        match self.length {
            Length::Parameters(field) => field.read(cdb) as u32,
            Length::None | Length::Blocks(_) | Length::BlocksOr256(_) | Length::Allocation(_) => 0,
        }
    }

    /// The byte where the length starts, for field pointers.
    pub(crate) const fn length_at(&self) -> u16 {
        match self.length {
            Length::None => 0,
            Length::Blocks(field)
            | Length::BlocksOr256(field)
            | Length::Allocation(field)
            | Length::Parameters(field) => field.byte(),
        }
    }

    /// Byte 1 has flags. In READ (6) and WRITE (6) its bits belong to the address.
    #[inline]
    pub(crate) const fn has_flags(&self) -> bool {
        self.lba.start >= 16
    }

    /// The first bit of the first 16 bytes that is set and must not be, counted from the left.
    #[inline]
    pub(super) const fn first_wrong_bit(&self, cdb: &Cdb) -> Option<u32> {
        let got = u128::from_ne_bytes(*cdb.head());
        let wrong = got & !u128::from_ne_bytes(self.allowed);
        if wrong == 0 {
            None
        } else {
            Some(u128::from_be_bytes(wrong.to_ne_bytes()).leading_zeros())
        }
    }
}

/// One byte of a layout.
enum Cell {
    /// The bits that are evaluated.
    Bits(u8),
    /// A byte of the field with this letter.
    Letter(u8),
    /// Five bits of the address.
    LowLba,
}

/// Goes through a layout byte by byte.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
    /// The byte that comes next.
    byte: u16,
    /// A colon stood before the last byte.
    is_action: bool,
}

impl<'a> Cursor<'a> {
    const fn new(text: &'a str) -> Self {
        Self {
            text: text.as_bytes(),
            at: 0,
            byte: 0,
            is_action: false,
        }
    }

    const fn next(&mut self) -> Option<Cell> {
        self.is_action = false;
        while self.at < self.text.len() && matches!(self.text[self.at], b' ' | b':') {
            self.is_action |= self.text[self.at] == b':';
            self.at += 1;
        }
        if self.at == self.text.len() {
            return None;
        }
        let (first, second) = (self.text[self.at], self.text[self.at + 1]);
        self.at += 2;
        self.byte += 1;
        Some(match (first, second) {
            (b'1', b'L') => Cell::LowLba,
            (b'L' | b'N' | b'Z' | b'A' | b'P', _) => {
                assert!(first == second, "a letter names a whole byte");
                Cell::Letter(first)
            }
            _ => Cell::Bits(digit(first) << 4 | digit(second)),
        })
    }
}

const fn digit(character: u8) -> u8 {
    match character {
        b'0'..=b'9' => character - b'0',
        b'a'..=b'f' => character - b'a' + 10,
        _ => panic!("no digit and no field of a CDB"),
    }
}

/// How many bytes a layout has.
pub(super) const fn length_of(layout: &str) -> usize {
    let mut cursor = Cursor::new(layout);
    while cursor.next().is_some() {}
    cursor.byte as usize
}

/// The CDB usage data of a layout.
///
/// Spec: SPC-5, REPORT SUPPORTED OPERATION CODES, One_command parameter data.
pub(super) const fn usage_of<const N: usize>(layout: &str) -> [u8; N] {
    let mut usage = [0; N];
    let mut cursor = Cursor::new(layout);
    while let Some(cell) = cursor.next() {
        usage[cursor.byte as usize - 1] = match cell {
            Cell::Bits(bits) => bits,
            Cell::Letter(_) => 0xff,
            Cell::LowLba => 0x1f,
        };
    }
    usage
}

/// The fields of a layout.
pub(super) const fn fields_of(layout: &str) -> Fields {
    let (mut lba, mut length, mut service_action) = (Field::NONE, Field::NONE, Field::NONE);
    let mut counts = 0;
    let mut action = 0;
    let mut allowed = [0xff; 16];
    let mut cursor = Cursor::new(layout);
    while let Some(cell) = cursor.next() {
        let byte = cursor.byte - 1;
        let bits = match cell {
            Cell::Bits(bits) => bits,
            Cell::Letter(b'L') => {
                lba = lba.grown(byte * 8, 8);
                0xff
            }
            Cell::LowLba => {
                lba = lba.grown(byte * 8 + 3, 5);
                0x1f
            }
            Cell::Letter(letter) => {
                assert!(counts == 0 || counts == letter, "one length a command");
                counts = letter;
                length = length.grown(byte * 8, 8);
                0xff
            }
        };
        if cursor.is_action {
            let (start, bits) = if byte == 1 { (11, 5) } else { (byte * 8, 16) };
            service_action = Field::new(start, bits);
        }
        let at = byte * 8;
        if service_action.is_there() && at + 8 > service_action.start && at < service_action.end() {
            let mask = if byte == 1 { 0x1f } else { 0xff };
            action = action << 8 | (bits & mask) as u64;
        }
        if (byte as usize) < allowed.len() {
            allowed[byte as usize] = bits;
        }
    }
    // The row is found by operation code and service action: they are right.
    allowed[0] = 0xff;
    let mut bit = service_action.start;
    while bit < service_action.end() && bit < 128 {
        allowed[bit as usize / 8] |= 0x80 >> (bit % 8);
        bit += 1;
    }
    assert!(length.bits <= 32 && lba.bits <= 64);
    Fields {
        lba,
        length: match counts {
            b'N' => Length::Blocks(length),
            b'Z' => Length::BlocksOr256(length),
            b'A' => Length::Allocation(length),
            b'P' => Length::Parameters(length),
            _ => Length::None,
        },
        service_action,
        action,
        allowed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_says_where_its_fields_are() {
        let six = fields_of("08 1L LLLL ZZ 00");
        let cdb = Cdb::new(&[0x08, 0xe1, 2, 3, 0, 0]);
        assert_eq!((six.lba(&cdb), six.blocks(&cdb)), (0x01_0203, 256));
        assert_eq!((six.length_at(), six.has_flags()), (4, false));
        let long = fields_of("88 18 LLLLLLLLLLLLLLLL NNNNNNNN 1f 00");
        let cdb = Cdb::new(&[0x88, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0x80, 0, 0, 3, 0, 0]);
        assert_eq!(long.lba(&cdb), 0x0100_0000_0000_0002);
        assert_eq!(long.blocks(&cdb), 0x8000_0003);
        assert_eq!((long.length_at(), long.has_flags()), (10, true));
        assert_eq!(long.allocation_length(&cdb), u32::MAX);
        assert_eq!(
            usage_of::<6>("08 1L LLLL ZZ 00"),
            [8, 0x1f, 0xff, 0xff, 0xff, 0]
        );
    }

    #[test]
    fn a_service_action_is_in_byte_1_or_in_two_bytes_of_a_longer_command() {
        let short = fields_of("9e:12 LLLLLLLLLLLLLLLL AAAAAAAA 00 00");
        let cdb = Cdb::new(&[0x9e, 0xf2, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 24, 0, 0]);
        assert_eq!((short.wanted_action(), short.lba(&cdb)), (Some(0x12), 5));
        assert!(short.has_action_of(&cdb) && !short.has_action_of(&Cdb::new(&[0x9e, 0x10])));
        assert_eq!(short.allocation_length(&cdb), 24);
        assert!(!short.has_extent());
        let layout = "7f 00 0000000000 18 :0009 18 00 000000000000000000000000000000000000 00 00";
        let variable = fields_of(layout);
        let mut cdb = [0; 32];
        (cdb[0], cdb[8], cdb[9]) = (0x7f, 0x12, 0x09);
        assert_eq!(variable.wanted_action(), Some(0x0009));
        assert!(!variable.has_action_of(&Cdb::new(&cdb)));
        cdb[8] = 0;
        assert!(variable.has_action_of(&Cdb::new(&cdb)));
        assert_eq!(length_of(layout), 32);
    }

    /// READ (32) has its address across the end of the first 16 bytes, and its length behind.
    #[test]
    fn fields_behind_the_first_16_bytes_are_read() {
        let layout = "7f 00 0000000000 18 :0009 18 00 LLLLLLLLLLLLLLLL 00000000 0000 0000 NNNNNNNN";
        let fields = fields_of(layout);
        assert_eq!(length_of(layout), 32);
        let mut bytes = [0; 32];
        bytes[12..20].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        bytes[28..].copy_from_slice(&[9, 10, 11, 12]);
        let cdb = Cdb::new(&bytes);
        assert_eq!(fields.lba(&cdb), 0x0102_0304_0506_0708);
        assert_eq!((fields.blocks(&cdb), fields.length_at()), (0x090a_0b0c, 28));
        let cut = Cdb::new(&bytes[..16]);
        assert_eq!(
            (fields.lba(&cut), fields.blocks(&cut)),
            (0x0102_0304_0000_0000, 0)
        );
    }
}
