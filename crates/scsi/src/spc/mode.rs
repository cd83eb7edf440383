//! MODE SENSE and MODE SELECT, and the pages of every device type.
//!
//! Spec: SPC-5, Mode parameters.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use super::parameters::{Modes, PageCode};
use super::peripheral::Peripheral;
use crate::sam::cdb::Cdb;
use crate::sam::sense::{Sense, SenseCode};

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
const CONTROL: PageCode = PageCode::saveable(0x0a);
const CONTROL_EXTENSION: PageCode = PageCode {
    subpage: 0x01,
    ..PageCode::fixed(0x0a)
};
const INFORMATIONAL_EXCEPTIONS: PageCode = PageCode::fixed(0x1c);
const D_SENSE: u8 = 0x04;
const SWP: u8 = 0x08;

/// A device-specific parameter of every device type.
const WRITE_PROTECTED: u8 = 0x80;

/// The pages there are, in the order of the answer.
fn pages(device: &impl Peripheral) -> Vec<PageCode> {
    let own = [CONTROL, CONTROL_EXTENSION, INFORMATIONAL_EXCEPTIONS];
    let mut pages = [&own, device.mode_pages()].concat();
    pages.sort_unstable();
    pages
}

/// A page without its saveable bit, in the form of MODE SENSE.
fn page(page: PageCode, device: &impl Peripheral, modes: Modes) -> Vec<u8> {
    let set = |bit: bool, mask: u8| if bit { mask } else { 0 };
    match page {
        // TST 001b (a task set per I_T nexus), GLTSD; QUEUE ALGORITHM MODIFIER 1h: SIMPLE commands
        // may be reordered.
        CONTROL => vec![
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
        // No bit of it applies, no limit on sense data.
        CONTROL_EXTENSION => {
            let mut page = vec![0x4a, 0x01, 0x00, 0x1c];
            page.resize(32, 0);
            page
        }
        // DEXCPT, none are reported.
        INFORMATIONAL_EXCEPTIONS => vec![0x1c, 0x0a, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        of_device => device.mode_page(of_device, modes),
    }
}

/// A one for each bit that MODE SELECT may change. Header bytes are as in the page.
fn changeable(code: PageCode, device: &impl Peripheral) -> Vec<u8> {
    let mut mask = page(code, device, device.changeable_modes());
    let fixed = page(code, device, Modes::NONE);
    let bits = mask.iter_mut().zip(fixed).skip(code.header_bytes());
    bits.for_each(|(byte, fixed)| *byte ^= fixed);
    mask
}

/// What MODE SENSE needs of the unit beside the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModeState {
    pub(crate) blocks: u64,
    pub(crate) current: Modes,
    pub(crate) saved: Modes,
    /// This nexus cannot write, for whatever reason.
    pub(crate) write_protected: bool,
    /// Saved pages are kept over a restart.
    pub(crate) keeps_state: bool,
}

/// Executes MODE SENSE (6) and (10); the caller cuts to the allocation length.
pub(crate) fn sense(
    cdb: &Cdb,
    is_six: bool,
    device: &impl Peripheral,
    state: ModeState,
) -> Result<Vec<u8>, Sense> {
    let control = match cdb.u8(2) >> 6 {
        0 => PageControl::Current,
        1 => PageControl::Changeable,
        2 => PageControl::Default,
        _ if state.keeps_state => PageControl::Saved,
        _ => {
            let code = SenseCode::SAVING_PARAMETERS_NOT_SUPPORTED;
            return Err(Sense::illegal_request(code));
        }
    };
    let pages = selected_pages(cdb.u8(2) & 0x3f, cdb.u8(3), control, device, state)?;
    let no_descriptor = cdb.has(1, 0x08);
    let long_lba = !is_six && cdb.has(1, 0x10);
    let descriptor = if no_descriptor {
        Vec::new()
    } else {
        device.block_descriptor(long_lba, state.blocks)
    };
    let protection = if state.write_protected {
        WRITE_PROTECTED
    } else {
        0
    };
    let specific = protection | device.device_specific_parameter();
    Ok(assemble(is_six, long_lba, specific, &descriptor, &pages))
}

fn selected_pages(
    code: u8,
    subpage: u8,
    control: PageControl,
    device: &impl Peripheral,
    state: ModeState,
) -> Result<Vec<u8>, Sense> {
    let all = pages(device);
    let mut selected = Vec::new();
    let mut is_found = false;
    for &one in &all {
        let code_matches = code == one.code || code == ALL_PAGES;
        if !code_matches || (subpage != one.subpage && subpage != ALL_SUBPAGES) {
            continue;
        }
        is_found = true;
        let mut bytes = match control {
            PageControl::Current => page(one, device, state.current),
            PageControl::Default => page(one, device, device.default_modes()),
            PageControl::Saved => page(one, device, state.saved),
            PageControl::Changeable => changeable(one, device),
        };
        if let (true, Some(first)) = (one.is_saveable && state.keeps_state, bytes.first_mut()) {
            *first |= 0x80;
        }
        selected.extend_from_slice(&bytes);
    }
    if is_found {
        Ok(selected)
    } else if all.iter().any(|one| one.code == code) || code == ALL_PAGES {
        Err(Sense::invalid_byte_in_cdb(3))
    } else {
        Err(Sense::invalid_field_in_cdb(2, 5))
    }
}

/// Everything that is assembled is far shorter than its length fields can express.
fn assemble(
    is_six: bool,
    long_lba: bool,
    specific: u8,
    descriptor: &[u8],
    pages: &[u8],
) -> Vec<u8> {
    let body = descriptor.len().saturating_add(pages.len());
    let low = |length: usize| u8::try_from(length).unwrap_or(u8::MAX);
    let mut data = if is_six {
        let length = low(body.saturating_add(3));
        vec![length, 0, specific, low(descriptor.len())]
    } else {
        let [high, low_byte] = u16::try_from(body.saturating_add(6))
            .unwrap_or(u16::MAX)
            .to_be_bytes();
        let long = u8::from(long_lba);
        let length = low(descriptor.len());
        vec![high, low_byte, 0, specific, long, 0, 0, length]
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

/// Reads the parameter list of MODE SELECT (6) and (10). Nothing is changed unless all of it is
/// right.
///
/// Spec: SPC-5, MODE SELECT (6), (10).
pub(crate) fn select(
    cdb: &Cdb,
    is_six: bool,
    list: &[u8],
    device: &impl Peripheral,
    state: ModeState,
) -> Result<Selected, Sense> {
    let save = cdb.has(1, 0x01);
    if save && !state.keeps_state {
        return Err(Sense::invalid_field_in_cdb(1, 0));
    }
    let mut modes = state.current;
    if list.is_empty() {
        return Ok(Selected { modes, save });
    }
    if !cdb.has(1, 0x10) {
        // PF 0: the list would be of a vendor's own format.
        return Err(Sense::invalid_field_in_cdb(1, 4));
    }
    let mut at = skip_header(is_six, list, device, state.blocks)?;
    while let Some(rest) = list.get(at..).filter(|rest| !rest.is_empty()) {
        let used = select_page(at, rest, device, state.current, &mut modes)?;
        at = at.saturating_add(used);
    }
    Ok(Selected { modes, save })
}

/// PARAMETER LIST LENGTH ERROR.
pub(crate) const fn length_error() -> Sense {
    Sense::illegal_request(SenseCode::PARAMETER_LIST_LENGTH_ERROR)
}

/// INVALID FIELD IN PARAMETER LIST at this byte.
pub(crate) fn wrong_at(at: usize) -> Sense {
    Sense::invalid_byte_in_parameters(u16::try_from(at).unwrap_or(u16::MAX))
}

/// Checks mode parameter header and block descriptor; returns where the pages start.
fn skip_header(
    is_six: bool,
    list: &[u8],
    device: &impl Peripheral,
    blocks: u64,
) -> Result<usize, Sense> {
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
    device.check_block_descriptor(descriptor, start, blocks)?;
    Ok(end)
}

/// Takes one page over and returns its length. `at` is where it lies in the list.
fn select_page(
    at: usize,
    rest: &[u8],
    device: &impl Peripheral,
    current: Modes,
    modes: &mut Modes,
) -> Result<usize, Sense> {
    let &[first, second, ..] = rest else {
        return Err(length_error());
    };
    let has_subpage = first & 0x40 != 0;
    let (code, subpage) = (first & 0x3f, if has_subpage { second } else { 0 });
    let mut all = pages(device).into_iter();
    let selected = all
        .find(|one| (one.code, one.subpage) == (code, subpage))
        .filter(|_| has_subpage == (subpage != 0))
        .ok_or_else(|| wrong_at(at))?;
    let now = page(selected, device, current);
    let wanted = rest.get(..now.len()).ok_or_else(length_error)?;
    let mask = changeable(selected, device);
    let bytes = wanted.iter().zip(&now).zip(&mask).enumerate().skip(1);
    for (offset, ((&wanted, &now), &mask)) in bytes {
        let is_header = offset < selected.header_bytes();
        let fixed = if is_header { 0xff } else { !mask };
        if let Some(bit) = ((wanted ^ now) & fixed).checked_ilog2() {
            let byte = u16::try_from(at.saturating_add(offset)).unwrap_or(u16::MAX);
            let bit = u8::try_from(bit).unwrap_or(0);
            return Err(Sense::invalid_field_in_parameters(byte, bit));
        }
    }
    let bit = |at: usize, mask: u8| wanted.get(at).is_some_and(|byte| byte & mask != 0);
    match selected {
        CONTROL => {
            modes.descriptor_sense = bit(2, D_SENSE);
            modes.software_write_protect = bit(4, SWP);
        }
        CONTROL_EXTENSION | INFORMATIONAL_EXCEPTIONS => {}
        of_device => device.select_mode_page(of_device, wanted, modes),
    }
    Ok(now.len())
}
