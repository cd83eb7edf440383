//! What a device says of itself. Whatever it sends is read or left out.

use std::collections::BTreeMap;

use store::{DeviceCommand, DeviceFacts};

use crate::scsi::command::{Cdb, inquiry, inquiry_of};
use crate::scsi::medium::Identity;

/// Standard INQUIRY data, at least.
const INQUIRY_BYTES_MIN: usize = 36;
/// Pages of vital product data that are asked for.
pub(crate) const PAGES_MAX: usize = 64;
/// A longer page is left out.
pub(crate) const PAGE_BYTES_MAX: usize = 4096;
/// The answer to REPORT SUPPORTED OPERATION CODES. A longer one is left out.
const COMMANDS_BYTES_MAX: u32 = 16 << 10;

/// A device and which one it is; `None`: it does not say.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Found {
    pub(crate) facts: DeviceFacts,
    pub(crate) identity: Option<Identity>,
}

/// Asks a device what it is; `ask` gives nothing where the device refuses a command. `None`: it does not say what it
/// is, or that there is none.
pub(crate) fn find<E>(
    mut ask: impl FnMut(Cdb) -> Result<Option<Vec<u8>>, E>,
) -> Result<Option<Found>, E> {
    let standard = ask(inquiry(None))?.unwrap_or_default();
    // PERIPHERAL QUALIFIER: there is a device.
    if standard.len() < INQUIRY_BYTES_MIN || standard.first().is_some_and(|byte| byte & 0xe0 != 0) {
        return Ok(None);
    }
    let mut pages = BTreeMap::new();
    let listed = find_page(0, &mut ask)?.unwrap_or_default();
    if !listed.is_empty() {
        pages.insert(0, listed.clone());
    }
    for &number in listed.iter().skip(4).take(PAGES_MAX) {
        let is_new = !pages.contains_key(&number);
        if is_new && let Some(page) = find_page(number, &mut ask)? {
            pages.insert(number, page);
        }
    }
    let page = |number| pages.get(&number).map_or(&[][..], Vec::as_slice);
    let identity =
        Identity::of_designators(page(0x83)).or_else(|| Identity::of_serial(&standard, page(0x80)));
    let commands = ask(report_commands())?;
    let facts = DeviceFacts {
        inquiry: standard,
        pages,
        commands: commands.and_then(|data| parse_commands(&data)),
    };
    Ok(Some(Found { facts, identity }))
}

/// A page with its header, whole; `None` where it is not there, or of no use.
fn find_page<E>(
    number: u8,
    ask: &mut impl FnMut(Cdb) -> Result<Option<Vec<u8>>, E>,
) -> Result<Option<Vec<u8>>, E> {
    let Some(mut data) = ask(inquiry(Some(number)))? else {
        return Ok(None);
    };
    let Some(length) = page_bytes(number, &data) else {
        return Ok(None);
    };
    if data.len() < length {
        // Some devices take no more than a byte for the length, so a longer one is the second choice.
        let room = u16::try_from(length).unwrap_or(u16::MAX);
        data = ask(inquiry_of(number, room))?.unwrap_or_default();
    }
    let is_whole = data.len() >= length && page_bytes(number, &data) == Some(length);
    data.truncate(length);
    Ok(is_whole.then_some(data))
}

/// The length of a page by its header.
fn page_bytes(number: u8, data: &[u8]) -> Option<usize> {
    let [_, own, high, low, ..] = data else {
        return None;
    };
    let length = 4 + usize::from(u16::from_be_bytes([*high, *low]));
    (*own == number && length <= PAGE_BYTES_MAX).then_some(length)
}

/// REPORT SUPPORTED OPERATION CODES: all commands, without timeouts.
fn report_commands() -> Cdb {
    let mut bytes = vec![0xa3, 0x0c, 0, 0, 0, 0];
    bytes.extend(COMMANDS_BYTES_MAX.to_be_bytes());
    bytes.extend([0, 0]);
    Cdb::reading(bytes, COMMANDS_BYTES_MAX)
}

/// The commands of a list; `None` where that is not whole.
///
/// Spec: SPC-5 section 6.35.2.
fn parse_commands(data: &[u8]) -> Option<Vec<DeviceCommand>> {
    let (length, rest) = data.split_first_chunk()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let mut rest = rest.get(..length)?;
    let mut found = Vec::new();
    while let Some((descriptor, behind)) = rest.split_first_chunk() {
        let [opcode, _, high, low, _, flags, length @ ..]: &[u8; 8] = descriptor;
        // SERVACTV, and CTDP: a descriptor of timeouts follows.
        let action = u16::from_be_bytes([*high, *low]);
        found.push(DeviceCommand {
            opcode: *opcode,
            service_action: (flags & 0x01 != 0).then_some(action),
            cdb_bytes: u16::from_be_bytes(*length),
        });
        rest = match flags & 0x02 {
            0 => behind,
            _ => behind.get(12..)?,
        };
    }
    (rest.is_empty() && !found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// A device that has these pages and commands.
    fn look(
        standard: &[u8],
        pages: &[(u8, Vec<u8>)],
        commands: Option<&[u8]>,
    ) -> (Option<Found>, Vec<Vec<u8>>) {
        let mut asked = Vec::new();
        let found = find(|cdb| {
            let bytes = &cdb.bytes;
            asked.push(bytes.clone());
            let room = usize::try_from(cdb.room).unwrap();
            let mut data = match (bytes[0], bytes[1]) {
                (0x12, 0) => Some(standard.to_vec()),
                (0x12, _) => {
                    let page = pages.iter().find(|(number, _)| *number == bytes[2]);
                    page.map(|(_, page)| page.clone())
                }
                _ => commands.map(<[u8]>::to_vec),
            };
            if let Some(data) = &mut data {
                data.truncate(room);
            }
            Ok::<_, Infallible>(data)
        });
        (found.unwrap(), asked)
    }

    const fn listed(opcode: u8, service_action: Option<u16>, cdb_bytes: u16) -> DeviceCommand {
        DeviceCommand {
            opcode,
            service_action,
            cdb_bytes,
        }
    }

    fn page(number: u8, bytes: &[u8]) -> (u8, Vec<u8>) {
        let mut page = vec![1, number];
        page.extend(u16::try_from(bytes.len()).unwrap().to_be_bytes());
        page.extend(bytes);
        (number, page)
    }

    fn tape() -> Vec<u8> {
        let mut standard = vec![0; 36];
        standard[0] = 1;
        standard[8..32].copy_from_slice(b"VENDOR  TAPE            ");
        standard
    }

    #[test]
    fn a_device_is_what_its_pages_say() {
        let serial = page(0x80, b"S1");
        let long = page(0xb0, &[7; 300]);
        let pages = [
            page(0, &[0, 0x80, 0xb0, 0xb0]),
            serial.clone(),
            long.clone(),
        ];
        let commands = [
            0, 0, 0, 16, 0x08, 0, 0, 0, 0, 0, 0, 6, 0xa3, 0, 0, 12, 0, 1, 0, 12,
        ];
        let (found, asked) = look(&tape(), &pages, Some(&commands));
        let found = found.unwrap();
        assert_eq!(found.facts.inquiry, tape());
        assert_eq!(found.facts.pages[&0x80], serial.1);
        assert_eq!(found.facts.pages[&0xb0], long.1);
        let known = [listed(0x08, None, 6), listed(0xa3, Some(12), 12)];
        assert_eq!(found.facts.commands.as_deref(), Some(&known[..]));
        let identity = found.identity.unwrap();
        assert_eq!(identity.best(), "serial.VENDOR  TAPE.S1");
        // The long one twice.
        assert_eq!(asked.len(), 1 + 1 + 1 + 2 + 1);
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        let mut lying = page(0xb1, &[1; 8]);
        lying.1[1] = 0xb2;
        let mut short = page(0xb2, &[1; 8]);
        short.1.truncate(6);
        let mut endless = page(0xb3, &[1; 8]);
        endless.1[2] = 0xff;
        let listed = page(0, &[0xb1, 0xb2, 0xb3, 0xb4]);
        let pages = [listed.clone(), lying, short, endless];
        let cut = [0, 0, 1, 0, 0x08, 0, 0, 0, 0, 0, 0, 6];
        let (found, _) = look(&tape(), &pages, Some(&cut));
        let found = found.unwrap();
        assert_eq!(found.facts.pages, BTreeMap::from([listed]));
        assert_eq!((found.facts.commands, found.identity), (None, None));
    }

    #[test]
    fn a_device_that_has_nothing_to_say_is_one() {
        let (found, _) = look(&tape(), &[], None);
        assert_eq!(found.unwrap().facts.pages, BTreeMap::new());
        let mut missing = tape();
        missing[0] = 0x7f;
        assert_eq!(look(&missing, &[], None).0, None);
        assert_eq!(look(&tape()[..35], &[], None).0, None);
        assert_eq!(look(&[], &[], None).0, None);
    }

    #[test]
    fn no_more_pages_are_asked_for_than_a_device_may_have() {
        let numbers: Vec<u8> = (0..=255).collect();
        let pages = numbers.iter().map(|number| match number {
            0 => page(0, &numbers),
            _ => page(*number, &[]),
        });
        let (found, _) = look(&tape(), &pages.collect::<Vec<_>>(), None);
        assert_eq!(found.unwrap().facts.pages.len(), PAGES_MAX);
    }

    #[test]
    fn timeouts_in_a_list_of_commands_are_skipped() {
        let mut list = vec![0, 0, 0, 28, 0x01, 0, 0, 0, 0, 2, 0, 6];
        list.extend([0; 12]);
        list.extend([0x1e, 0, 0, 0, 0, 0, 0, 6]);
        let known = vec![listed(1, None, 6), listed(0x1e, None, 6)];
        assert_eq!(parse_commands(&list), Some(known));
        for length in 0..list.len() {
            assert_eq!(parse_commands(&list[..length]), None, "{length}");
        }
        assert_eq!(parse_commands(&[0; 4]), None);
    }
}
