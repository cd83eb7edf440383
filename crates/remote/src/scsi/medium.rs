//! Which disk is behind a logical unit: what it says of itself, whatever its target, its address or its number is. The
//! process has one list of those that are in use, which all its stores share for a moment each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The types of designators that name a logical unit in all the world, the best first: NAA, EUI-64, a name, and that of
/// a vendor.
///
/// Spec: SPC-4 section 7.8.6.
const TYPES: [u8; 4] = [NAA, EUI, NAME, VENDOR];
const NAA: u8 = 3;
const EUI: u8 = 2;
const NAME: u8 = 8;
const VENDOR: u8 = 1;
/// That of a vendor counts where there is no better one.
const VENDOR_RANK: usize = TYPES.len() - 1;

/// How long a store that was closed just now may still have its disk.
const CLOSING_MAX: Duration = Duration::from_secs(1);

/// What a disk calls itself: its names of the best kinds, the best one first. One that has several may not show all of
/// them by each transport, so two disks are one if they have any of these in common.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Identity {
    best: String,
    others: BTreeSet<String>,
}

impl Identity {
    /// The best first. `None` where there is no name.
    fn of_names(names: Vec<String>) -> Option<Self> {
        let mut names = names.into_iter();
        let best = names.next()?;
        let others = names.filter(|name| *name != best).collect();
        Some(Self { best, others })
    }

    /// Of a device that is known by where it is only.
    pub(crate) fn of_place(server: &str, device: &str) -> Self {
        Self {
            best: format!("place.{server} {device}"),
            others: BTreeSet::new(),
        }
    }

    /// The best of its names.
    pub(crate) fn best(&self) -> &str {
        &self.best
    }

    /// From the page of designators (83h).
    pub(crate) fn of_designators(page: &[u8]) -> Option<Self> {
        let [_, 0x83, high, low, rest @ ..] = page else {
            return None;
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let mut rest = rest.get(..length.min(rest.len()))?;
        let mut found: Vec<(usize, String)> = Vec::new();
        while let [_, kind, _, length, behind @ ..] = rest {
            let length = usize::from(*length);
            let Some(designator) = behind.get(..length) else {
                break;
            };
            // Those of ports and targets have another association.
            let is_of_unit = kind & 0x30 == 0;
            let kind = kind & 0x0f;
            let rank = TYPES.iter().position(|known| *known == kind);
            if let Some(rank) = rank.filter(|_| is_of_unit)
                && let Some(name) = name(kind, designator)
            {
                found.push((rank, name));
            }
            rest = behind.get(length..).unwrap_or_default();
        }
        // Those of one kind stay in their order.
        found.sort_by_key(|(rank, _)| *rank);
        let has_better = found.first().is_some_and(|(rank, _)| *rank < VENDOR_RANK);
        found.retain(|(rank, _)| *rank < VENDOR_RANK || !has_better);
        Self::of_names(found.into_iter().map(|(_, name)| name).collect())
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
        let says_something = serial.chars().any(|character| character != '0');
        says_something
            .then(|| vec![format!("serial.{}.{serial}", product.trim())])
            .and_then(Self::of_names)
    }

    /// The same, and an NAA designator with zeros behind it, as tables of HyperSCSI have it.
    pub(crate) fn with_naa(known: Option<Self>, padded: &[u8; 16]) -> Option<Self> {
        let designator = match padded {
            // Spec: SPC-4 section 7.8.6.6: those of type 6 have 16 bytes, all others 8.
            [first, ..] if first >> 4 == 6 => Some(&padded[..]),
            [short @ .., 0, 0, 0, 0, 0, 0, 0, 0] => Some(&short[..]),
            _ => None,
        };
        let found = designator.and_then(|bytes| name(NAA, bytes));
        let mut names: Vec<String> = Vec::new();
        if let Some(known) = known {
            names.push(known.best);
            names.extend(known.others);
        }
        names.extend(found);
        Self::of_names(names)
    }

    /// Whether it is the disk of before, which may show more or fewer names now.
    pub(crate) fn is_same(&self, before: &Self) -> bool {
        self.best == before.best
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.best).chain(&self.others)
    }
}

/// What a designator calls a disk; `None` where it says nothing.
fn name(kind: u8, designator: &[u8]) -> Option<String> {
    let says_something = match designator {
        // The first four bits of an NAA designator say its type.
        [first, rest @ ..] if kind == NAA => {
            first & 0x0f != 0 || rest.iter().any(|byte| *byte != 0)
        }
        _ => designator.iter().any(|byte| *byte != 0),
    };
    if !says_something {
        return None;
    }
    let word = match kind {
        NAA => "naa",
        EUI => "eui",
        NAME => {
            // A SCSI name string may have one of the others, as text.
            let text = String::from_utf8_lossy(designator);
            let text = text.trim_matches([' ', '\0']).to_lowercase();
            if text.starts_with("naa.") || text.starts_with("eui.") {
                return Some(text);
            }
            "name"
        }
        _ => "t10",
    };
    let mut text = format!("{word}.");
    for byte in designator {
        // Writing to a String cannot fail.
        let _infallible = write!(text, "{byte:02x}");
    }
    Some(text)
}

/// Another store of this process has the disk.
#[derive(Debug, thiserror::Error)]
#[error(
    "it is the disk that {holder} has already, by its identity {name}; one disk is one store, whatever its addresses: \
     name it once, or end its other use in one change and begin this one in the next"
)]
pub struct InUse {
    /// The other store.
    pub holder: String,
    /// What both call themselves.
    pub name: String,
}

/// The disks in use by the names that they have, and which store has each; and who waits for one to become free.
static IN_USE: (Mutex<BTreeMap<String, String>>, Condvar) =
    (Mutex::new(BTreeMap::new()), Condvar::new());

fn in_use() -> MutexGuard<'static, BTreeMap<String, String>> {
    IN_USE.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A disk is in use as long as this lives.
#[derive(Debug)]
pub(crate) struct Claim(Identity);

impl Claim {
    /// Takes a disk for a store, unless another one has it. Blocks for a second at most: one that was closed just now
    /// takes a moment.
    pub(crate) fn new(identity: &Identity, store: &str) -> Result<Self, InUse> {
        let until = Instant::now() + CLOSING_MAX;
        let mut all = in_use();
        loop {
            let mut names = identity.names();
            let taken = names.find_map(|name| Some((name, all.get(name)?)));
            let Some((name, holder)) = taken else {
                break;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(InUse {
                    holder: holder.clone(),
                    name: name.clone(),
                });
            }
            let waited = IN_USE.1.wait_timeout(all, left);
            all = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        all.extend(
            identity
                .names()
                .map(|name| (name.clone(), store.to_owned())),
        );
        Ok(Self(identity.clone()))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut all = in_use();
        for name in self.0.names() {
            all.remove(name);
        }
        IN_USE.1.notify_all();
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
            Identity::of_designators(&page(designators)).map(|identity| identity.best)
        };
        let naa: &[u8] = &[0x60, 1, 2, 3];
        assert_eq!(of(&[(1, b"x"), (3, naa)]).unwrap(), "naa.60010203");
        assert_eq!(of(&[(2, &[7]), (1, b"x")]).unwrap(), "eui.07");
        // That of a port, one of no use, and nothing.
        let nothing: &[u8] = &[0x60, 0, 0, 0, 0, 0, 0, 0];
        for none in [
            &[(0x13, naa)][..],
            &[(3, &[0; 8])],
            &[(3, nothing)],
            &[(5, naa)],
            &[(3, &[])],
            &[],
        ] {
            assert_eq!(of(none), None, "{none:?}");
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
        let of = |page: &[u8]| Identity::of_serial(&inquiry, page).map(|identity| identity.best);
        let found = of(b"\0\x80\0\x04 S1 ").unwrap();
        assert_eq!(found, "serial.VENDOR  PRODUCT.S1");
        assert_eq!(of(b"\0\x80\0\x04    "), None);
        assert_eq!(of(b"\0\x80\0\x040000"), None);
        assert_eq!(of(b"\0\x80\0"), None);
    }

    #[test]
    fn a_table_of_hyperscsi_names_a_disk_as_its_page_does() {
        let long = [0x6a; 16];
        let mut short = [0x3b; 16];
        short[8..].fill(0);
        let of = |padded: [u8; 16]| Identity::with_naa(None, &padded);
        assert_eq!(of(long), Identity::of_designators(&page(&[(3, &long)])));
        assert_eq!(
            of(short),
            Identity::of_designators(&page(&[(3, &short[..8])]))
        );
        let nothing = *b"\x60\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        for none in [[0; 16], [0x3b; 16], nothing] {
            assert_eq!(of(none), None, "{none:?}");
        }
        // What the page has is the better one.
        let known = Identity::of_designators(&page(&[(3, &long)])).unwrap();
        let both = Identity::with_naa(Some(known.clone()), &short).unwrap();
        assert!(both.is_same(&known));
        assert_eq!(both.names().count(), 2);
        assert_eq!(
            Identity::with_naa(Some(known.clone()), &[0; 16]),
            Some(known)
        );
    }

    fn identity(designators: &[(u8, &[u8])]) -> Identity {
        Identity::of_designators(&page(designators)).unwrap()
    }

    #[test]
    fn a_disk_is_in_use_once_and_as_long_as_its_claim_lives() {
        let one = identity(&[(3, b"in use once")]);
        let first = Claim::new(&one, "a").unwrap();
        assert_eq!(Claim::new(&one, "b").unwrap_err().holder, "a");
        drop(first);
        assert!(Claim::new(&one, "b").is_ok());
    }

    #[test]
    fn a_disk_that_is_closed_meanwhile_is_free() {
        let one = identity(&[(3, b"closed meanwhile")]);
        let first = Claim::new(&one, "a").unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| Claim::new(&one, "b").is_ok());
            drop(first);
            assert!(second.join().unwrap());
        });
    }

    #[test]
    fn one_name_in_common_is_one_disk() {
        let text = |bytes: &[u8]| {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
            format!("naa.{digits}\0")
        };
        let (naa, eui): (&[u8], &[u8]) = (b"a name in common", b"common64");
        let first = Claim::new(
            &identity(&[(3, naa), (2, eui), (1, b"vendor in common")]),
            "a",
        );
        let first = first.unwrap();
        for other in [
            identity(&[(2, eui)]),
            identity(&[(8, text(naa).as_bytes())]),
        ] {
            assert_eq!(Claim::new(&other, "b").unwrap_err().holder, "a");
        }
        // What a vendor calls it does not count beside the others.
        assert!(Claim::new(&identity(&[(1, b"vendor in common")]), "b").is_ok());
        drop(first);
        assert!(Claim::new(&identity(&[(2, eui)]), "b").is_ok());
    }
}
