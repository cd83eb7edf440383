//! Which disk is behind a logical unit: what it says of itself, whatever its target, its address or its number is. The
//! process has one list of those that are in use, which all its stores share for a moment each.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The types of designators that name a logical unit in all the world, the best first: NAA, EUI-64, a name, and that of
/// a vendor.
///
/// Spec: SPC-4 section 7.8.6.
const TYPES: [u8; 4] = [3, 2, 8, 1];

/// What a disk calls itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Identity(String);

impl Identity {
    /// From the page of designators (83h).
    pub(crate) fn of_designators(page: &[u8]) -> Option<Self> {
        let [_, 0x83, high, low, rest @ ..] = page else {
            return None;
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let mut rest = rest.get(..length.min(rest.len()))?;
        let mut best: Option<(usize, &[u8])> = None;
        while let [_, kind, _, length, behind @ ..] = rest {
            let length = usize::from(*length);
            let Some(designator) = behind.get(..length) else {
                break;
            };
            // Those of ports and targets have another association.
            let is_of_unit = kind & 0x30 == 0 && designator.iter().any(|byte| *byte != 0);
            let rank = TYPES.iter().position(|known| *known == kind & 0x0f);
            if let Some(rank) = rank.filter(|_| is_of_unit)
                && best.is_none_or(|(found, _)| rank < found)
            {
                best = Some((rank, designator));
            }
            rest = behind.get(length..).unwrap_or_default();
        }
        let (rank, designator) = best?;
        let word = ["naa", "eui", "name", "t10"].get(rank).unwrap_or(&"");
        let mut text = format!("{word}.");
        for byte in designator {
            // Writing to a String cannot fail.
            let _infallible = write!(text, "{byte:02x}");
        }
        Some(Self(text))
    }

    /// From vendor and product (INQUIRY) and the serial number (page 80h), where there are no designators.
    pub(crate) fn of_serial(inquiry: &[u8], page: &[u8]) -> Option<Self> {
        let [_, 0x80, high, low, rest @ ..] = page else {
            return None;
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let serial = rest.get(..length.min(rest.len()))?;
        let serial = String::from_utf8_lossy(serial);
        let serial = serial.trim_matches([' ', '\0']);
        let product = String::from_utf8_lossy(inquiry.get(8..32)?);
        (!serial.is_empty()).then(|| Self(format!("serial.{}.{serial}", product.trim())))
    }
}

/// The disks in use, and which store has each.
static IN_USE: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

fn in_use() -> MutexGuard<'static, BTreeMap<String, String>> {
    IN_USE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A disk is in use as long as this lives.
#[derive(Debug)]
pub(crate) struct Claim(String);

impl Claim {
    /// Takes a disk for the store of this name; the name of the one that has it, if one does.
    pub(crate) fn new(identity: &Identity, store: String) -> Result<Self, String> {
        let mut all = in_use();
        match all.get(&identity.0) {
            Some(holder) => Err(holder.clone()),
            None => {
                all.insert(identity.0.clone(), store);
                Ok(Self(identity.0.clone()))
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        in_use().remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(designators: &[(u8, &[u8])]) -> Vec<u8> {
        let mut all = Vec::new();
        for (kind, bytes) in designators {
            all.extend([1, *kind, 0, u8::try_from(bytes.len()).unwrap()]);
            all.extend(*bytes);
        }
        let mut page = vec![0, 0x83];
        page.extend(u16::try_from(all.len()).unwrap().to_be_bytes());
        page.extend(all);
        page
    }

    #[test]
    fn the_best_designator_of_the_unit_is_its_identity() {
        let of = |designators: &[(u8, &[u8])]| {
            Identity::of_designators(&page(designators)).map(|identity| identity.0)
        };
        let naa: &[u8] = &[0x60, 1, 2, 3];
        assert_eq!(of(&[(1, b"x"), (3, naa)]).unwrap(), "naa.60010203");
        assert_eq!(of(&[(2, &[7]), (1, b"x")]).unwrap(), "eui.07");
        // That of a port, one of no use, and nothing.
        for none in [&[(0x13, naa)][..], &[(3, &[0; 8])], &[(5, naa)], &[]] {
            assert_eq!(of(none), None);
        }
    }

    #[test]
    fn a_page_that_lies_gives_no_more_than_it_has() {
        let mut whole = page(&[(1, b"abc"), (3, &[0x60, 5])]);
        for length in 0..whole.len() {
            let _any = Identity::of_designators(&whole[..length]);
        }
        whole[3] = 255;
        assert!(Identity::of_designators(&whole).is_some());
        // The length of the first designator leads behind the end.
        whole[7] = 255;
        assert_eq!(Identity::of_designators(&whole), None);
    }

    #[test]
    fn a_serial_number_is_the_next_best() {
        let mut inquiry = vec![0; 36];
        inquiry[8..32].copy_from_slice(b"VENDOR  PRODUCT         ");
        let of = |page: &[u8]| Identity::of_serial(&inquiry, page).map(|identity| identity.0);
        let found = of(b"\0\x80\0\x04 S1 ").unwrap();
        assert_eq!(found, "serial.VENDOR  PRODUCT.S1");
        assert_eq!(of(b"\0\x80\0\x04    "), None);
        assert_eq!(of(b"\0\x80\0"), None);
    }

    #[test]
    fn a_disk_is_in_use_once_and_as_long_as_its_claim_lives() {
        let identity = Identity("naa.test".to_owned());
        let first = Claim::new(&identity, "a".to_owned()).unwrap();
        assert_eq!(Claim::new(&identity, "b".to_owned()).unwrap_err(), "a");
        drop(first);
        assert!(Claim::new(&identity, "b".to_owned()).is_ok());
    }
}
