//! Mode pages: MODE SENSE and MODE SELECT.
//!
//! Spec: SPC-5, Mode parameters; SBC-4, Mode parameters for direct access block devices.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use crate::sam::cdb::Cdb;
use crate::sam::profile::Profile;
use crate::sam::sense::{Sense, SenseCode};

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
    /// What a unit starts with when nothing was saved.
    pub const fn default_of(profile: &Profile) -> Self {
        Self {
            write_cache: profile.capabilities.volatile_cache,
            descriptor_sense: false,
            software_write_protect: false,
        }
    }

    /// For saving over a restart.
    pub(crate) fn to_byte(self) -> u8 {
        u8::from(self.write_cache)
            | u8::from(self.descriptor_sense) << 1
            | u8::from(self.software_write_protect) << 2
    }

    /// What [`Modes::to_byte`] gave; a store without a cache has none to switch on.
    pub(crate) const fn from_byte(byte: u8, profile: &Profile) -> Self {
        Self {
            write_cache: byte & 0x01 != 0 && profile.capabilities.volatile_cache,
            descriptor_sense: byte & 0x02 != 0,
            software_write_protect: byte & 0x04 != 0,
        }
    }
}

/// Which values of a page are meant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum PageControl {
    Current,
    Changeable,
    Default,
    Saved,
}

const ALL_PAGES: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;
const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const WCE: u8 = 0x04;
const D_SENSE: u8 = 0x04;
const SWP: u8 = 0x08;

/// Header bits of the device-specific parameter.
const WRITE_PROTECTED: u8 = 0x80;
const DPO_AND_FUA: u8 = 0x10;

/// The pages there are, in the order of the answer.
const PAGES: [(u8, u8); 5] = [
    (0x01, 0x00),
    (CACHING, 0x00),
    (CONTROL, 0x00),
    (CONTROL, 0x01),
    (0x1c, 0x00),
];

/// A page without its saveable bit, in the form of MODE SENSE.
fn page(code: u8, subpage: u8, modes: Modes) -> Vec<u8> {
    let set = |bit: bool, mask: u8| if bit { mask } else { 0 };
    match (code, subpage) {
        // Read-write error recovery: no retries of ours, nothing reassigned.
        (0x01, _) => vec![0x01, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        (CACHING, _) => {
            let mut page = vec![0x08, 0x12, set(modes.write_cache, WCE)];
            page.resize(20, 0);
            page
        }
        // TST 001b (a task set per I_T nexus), GLTSD; QUEUE ALGORITHM MODIFIER 1h: SIMPLE commands
        // may be reordered.
        (CONTROL, 0x00) => vec![
            0x0a,
            0x0a,
            0x22 | set(modes.descriptor_sense, D_SENSE),
            0x10,
            set(modes.software_write_protect, SWP),
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ],
        // Control extension: no bit of it applies, no limit on sense data.
        (CONTROL, _) => {
            let mut page = vec![0x4a, 0x01, 0x00, 0x1c];
            page.resize(32, 0);
            page
        }
        // Informational exceptions: DEXCPT, none are reported.
        _ => vec![0x1c, 0x0a, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    }
}

/// A one for each bit that MODE SELECT may change. Header bytes are as in the page.
fn changeable(code: u8, subpage: u8, profile: &Profile) -> Vec<u8> {
    let all = Modes {
        write_cache: profile.capabilities.volatile_cache,
        descriptor_sense: true,
        software_write_protect: true,
    };
    let none = Modes {
        write_cache: false,
        descriptor_sense: false,
        software_write_protect: false,
    };
    let header_bytes = if subpage == 0 { 2 } else { 4 };
    let mut mask = page(code, subpage, all);
    for (byte, fixed) in mask
        .iter_mut()
        .zip(page(code, subpage, none))
        .skip(header_bytes)
    {
        *byte ^= fixed;
    }
    mask
}

/// What MODE SENSE needs of the unit beside the profile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModeState {
    pub(crate) blocks: u64,
    pub(crate) current: Modes,
    pub(crate) saved: Modes,
    /// This nexus cannot write, for whatever reason.
    pub(crate) write_protected: bool,
}

/// Executes MODE SENSE (6) and (10); the caller cuts to the allocation length.
pub(crate) fn sense(cdb: Cdb, profile: &Profile, state: ModeState) -> Result<Vec<u8>, Sense> {
    let is_six = cdb.opcode() == 0x1a;
    let control = match cdb.u8(2) >> 6 {
        0 => PageControl::Current,
        1 => PageControl::Changeable,
        2 => PageControl::Default,
        _ if profile.keeps_state => PageControl::Saved,
        _ => {
            let code = SenseCode::SAVING_PARAMETERS_NOT_SUPPORTED;
            return Err(Sense::illegal_request(code));
        }
    };
    let pages = selected_pages(cdb.u8(2) & 0x3f, cdb.u8(3), control, profile, state)?;
    let no_descriptor = cdb.has(1, 0x08);
    let long_lba = !is_six && cdb.has(1, 0x10);
    let descriptor = match (no_descriptor, long_lba) {
        (true, _) => Vec::new(),
        (false, true) => long_descriptor(profile, state.blocks),
        (false, false) => short_descriptor(profile, state.blocks),
    };
    let protection = if state.write_protected {
        WRITE_PROTECTED
    } else {
        0
    };
    Ok(assemble(
        is_six,
        long_lba,
        protection | DPO_AND_FUA,
        &descriptor,
        &pages,
    ))
}

fn selected_pages(
    code: u8,
    subpage: u8,
    control: PageControl,
    profile: &Profile,
    state: ModeState,
) -> Result<Vec<u8>, Sense> {
    let mut pages = Vec::new();
    let mut is_found = false;
    for (page_code, page_subpage) in PAGES {
        let code_matches = code == page_code || code == ALL_PAGES;
        if !code_matches || (subpage != page_subpage && subpage != ALL_SUBPAGES) {
            continue;
        }
        is_found = true;
        let mut bytes = match control {
            PageControl::Current => page(page_code, page_subpage, state.current),
            PageControl::Default => page(page_code, page_subpage, Modes::default_of(profile)),
            PageControl::Saved => page(page_code, page_subpage, state.saved),
            PageControl::Changeable => changeable(page_code, page_subpage, profile),
        };
        let is_saveable = profile.keeps_state && matches!(page_code, CACHING | CONTROL);
        if let (true, Some(first)) = (is_saveable && page_subpage == 0, bytes.first_mut()) {
            *first |= 0x80;
        }
        pages.extend_from_slice(&bytes);
    }
    if is_found {
        Ok(pages)
    } else if PAGES.iter().any(|&(page_code, _)| page_code == code) || code == ALL_PAGES {
        Err(Sense::invalid_byte_in_cdb(3))
    } else {
        Err(Sense::invalid_field_in_cdb(2, 5))
    }
}

/// Spec: SBC-4, Short LBA mode parameter block descriptor.
fn short_descriptor(profile: &Profile, blocks: u64) -> Vec<u8> {
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    let mut descriptor = blocks.to_be_bytes().to_vec();
    descriptor.extend_from_slice(&profile.block_bytes().to_be_bytes());
    descriptor
}

/// Spec: SBC-4, Long LBA mode parameter block descriptor.
fn long_descriptor(profile: &Profile, blocks: u64) -> Vec<u8> {
    let mut descriptor = blocks.to_be_bytes().to_vec();
    descriptor.extend_from_slice(&[0; 4]);
    descriptor.extend_from_slice(&profile.block_bytes().to_be_bytes());
    descriptor
}

/// Everything that is assembled is far shorter than its length fields can tell.
fn assemble(is_six: bool, long_lba: bool, device: u8, descriptor: &[u8], pages: &[u8]) -> Vec<u8> {
    let body = descriptor.len().saturating_add(pages.len());
    let low = |length: usize| u8::try_from(length).unwrap_or(u8::MAX);
    let mut data = if is_six {
        vec![
            low(body.saturating_add(3)),
            0,
            device,
            low(descriptor.len()),
        ]
    } else {
        let [high, low_byte] = u16::try_from(body.saturating_add(6))
            .unwrap_or(u16::MAX)
            .to_be_bytes();
        let long = u8::from(long_lba);
        vec![high, low_byte, 0, device, long, 0, 0, low(descriptor.len())]
    };
    data.extend_from_slice(descriptor);
    data.extend_from_slice(pages);
    data
}

/// What a MODE SELECT asks for, once it is found right.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Selected {
    pub(crate) modes: Modes,
    /// SP: they outlive a reset and a restart.
    pub(crate) save: bool,
}

/// PARAMETER LIST LENGTH of MODE SELECT (6) and (10).
pub(crate) fn parameter_length(cdb: Cdb) -> u32 {
    if cdb.opcode() == 0x15 {
        u32::from(cdb.u8(4))
    } else {
        u32::from(cdb.u16(7))
    }
}

/// Reads the parameter list of MODE SELECT (6) and (10). Nothing is changed unless all of it is
/// right.
///
/// Spec: SPC-5, MODE SELECT (6), (10).
pub(crate) fn select(
    cdb: Cdb,
    list: &[u8],
    profile: &Profile,
    current: Modes,
    blocks: u64,
) -> Result<Selected, Sense> {
    let save = cdb.has(1, 0x01);
    if save && !profile.keeps_state {
        return Err(Sense::invalid_field_in_cdb(1, 0));
    }
    let mut modes = current;
    if list.is_empty() {
        return Ok(Selected { modes, save });
    }
    if !cdb.has(1, 0x10) {
        // PF 0: the list would be of a vendor's own format.
        return Err(Sense::invalid_field_in_cdb(1, 4));
    }
    let mut at = skip_header(cdb.opcode() == 0x15, list, profile, blocks)?;
    while let Some(rest) = list.get(at..).filter(|rest| !rest.is_empty()) {
        let used = select_page(at, rest, profile, current, &mut modes)?;
        at = at.saturating_add(used);
    }
    Ok(Selected { modes, save })
}

const fn length_error() -> Sense {
    Sense::illegal_request(SenseCode::PARAMETER_LIST_LENGTH_ERROR)
}

fn wrong_at(at: usize) -> Sense {
    Sense::invalid_byte_in_parameters(u16::try_from(at).unwrap_or(u16::MAX))
}

/// Checks mode parameter header and block descriptor; returns where the pages start.
fn skip_header(is_six: bool, list: &[u8], profile: &Profile, blocks: u64) -> Result<usize, Sense> {
    let (medium_type, long_lba, descriptor_length, start) = match *list {
        [_, medium_type, _, length, ..] if is_six => (medium_type, false, usize::from(length), 4),
        [_, _, medium_type, _, flags, _, high, low, ..] if !is_six => {
            let length = usize::from(u16::from_be_bytes([high, low]));
            (medium_type, flags & 0x01 != 0, length, 8)
        }
        _ => return Err(length_error()),
    };
    if medium_type != 0 {
        return Err(wrong_at(if is_six { 1 } else { 2 }));
    }
    let expected = if long_lba { 16 } else { 8 };
    if descriptor_length == 0 {
        return Ok(start);
    }
    if descriptor_length != expected {
        return Err(wrong_at(if is_six { 3 } else { 6 }));
    }
    let end = start.saturating_add(descriptor_length);
    let descriptor = list.get(start..end).ok_or_else(length_error)?;
    check_descriptor(descriptor, start, profile, blocks)?;
    Ok(end)
}

/// The number of blocks may be the capacity, zero or all ones; the length must be the length.
fn check_descriptor(
    descriptor: &[u8],
    start: usize,
    profile: &Profile,
    blocks: u64,
) -> Result<(), Sense> {
    let (count, all_ones, length, length_at) = match *descriptor {
        [c0, c1, c2, c3, _, l0, l1, l2] => (
            u64::from(u32::from_be_bytes([c0, c1, c2, c3])),
            u64::from(u32::MAX),
            u32::from_be_bytes([0, l0, l1, l2]),
            5,
        ),
        [c0, c1, c2, c3, c4, c5, c6, c7, _, _, _, _, l0, l1, l2, l3] => (
            u64::from_be_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
            u64::MAX,
            u32::from_be_bytes([l0, l1, l2, l3]),
            12,
        ),
        _ => return Err(length_error()),
    };
    if count != 0 && count != all_ones && count != blocks {
        return Err(wrong_at(start));
    }
    if length != profile.block_bytes() {
        return Err(wrong_at(start.saturating_add(length_at)));
    }
    Ok(())
}

/// Takes one page over and returns its length. `at` is where it lies in the list.
fn select_page(
    at: usize,
    rest: &[u8],
    profile: &Profile,
    current: Modes,
    modes: &mut Modes,
) -> Result<usize, Sense> {
    let &[first, second, ..] = rest else {
        return Err(length_error());
    };
    let has_subpage = first & 0x40 != 0;
    let (code, subpage) = (first & 0x3f, if has_subpage { second } else { 0 });
    if !PAGES.contains(&(code, subpage)) || has_subpage != (subpage != 0) {
        return Err(wrong_at(at));
    }
    let now = page(code, subpage, current);
    let header_bytes = if has_subpage { 4 } else { 2 };
    let wanted = rest.get(..now.len()).ok_or_else(length_error)?;
    let mask = changeable(code, subpage, profile);
    let bytes = wanted.iter().zip(&now).zip(&mask).enumerate().skip(1);
    for (offset, ((&wanted, &now), &mask)) in bytes {
        let fixed = if offset < header_bytes { 0xff } else { !mask };
        if let Some(bit) = ((wanted ^ now) & fixed).checked_ilog2() {
            let byte = u16::try_from(at.saturating_add(offset)).unwrap_or(u16::MAX);
            let bit = u8::try_from(bit).unwrap_or(0);
            return Err(Sense::invalid_field_in_parameters(byte, bit));
        }
    }
    let bit = |at: usize, mask: u8| wanted.get(at).is_some_and(|byte| byte & mask != 0);
    match (code, subpage) {
        (CACHING, 0) => modes.write_cache = bit(2, WCE),
        (CONTROL, 0) => {
            modes.descriptor_sense = bit(2, D_SENSE);
            modes.software_write_protect = bit(4, SWP);
        }
        _ => {}
    }
    Ok(now.len())
}
