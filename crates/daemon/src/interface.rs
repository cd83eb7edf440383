//! Interfaces of this machine, as the kernel shows them.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use config::Place;
use hyperscsi::limits::{ETHERTYPE, FRAME_LEAST_BYTES};
use reactor::{FrameSocket, InterfaceError, KeptSockets, Site};
use rustix::thread::{CapabilitySet, capabilities};

use crate::attempts::retry_while_in_use;
use crate::error::StartError;

pub use crate::error::InterfaceProblem as Problem;

/// Where the kernel shows interfaces.
const INTERFACES: &str = "/sys/class/net";

/// The kinds of hardware whose addresses have six bytes and whose frames are those of Ethernet: Ethernet and loopback.
///
/// Spec: Linux, ARPHRD_ETHER, ARPHRD_LOOPBACK.
const KINDS: [u32; 2] = [1, 772];

/// Most names that a message lists.
const NAMED_MAX: usize = 8;

/// An interface that takes frames.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Interface {
    /// What the kernel calls it.
    pub index: u32,
    /// Bytes of a frame behind its header.
    pub mtu: u32,
}

/// A number that the kernel shows of an interface.
fn number(name: &str, what: &str) -> Option<u32> {
    let text = fs::read_to_string(PathBuf::from(INTERFACES).join(name).join(what)).ok()?;
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The interface of this name, if it takes frames. A kind that the kernel does not show here counts as right.
///
/// # Errors
///
/// There is none, it is down, or it is of another kind.
pub fn find(name: &str) -> Result<Interface, Problem> {
    let found = reactor::Interface::look(name).map_err(|error| {
        let is_down = matches!(error, InterfaceError::Down { .. });
        let name = name.to_owned();
        match is_down {
            true => Problem::Down { name },
            false => Problem::Unknown {
                name,
                known: known(),
            },
        }
    })?;
    let (index, mtu, min) = (u32::try_from(found.index), found.mtu, FRAME_LEAST_BYTES);
    let index = index.unwrap_or_default();
    // What is shown may be that of another network namespace.
    let is_shown = number(name, "ifindex") == Some(index);
    let kind = is_shown.then(|| number(name, "type")).flatten();
    if kind.is_some_and(|kind| !KINDS.contains(&kind)) {
        let name = name.to_owned();
        return Err(Problem::NoEthernet { name });
    }
    match mtu < min.into() {
        false => Ok(Interface { index, mtu }),
        true => Err(Problem::SmallMtu {
            name: name.to_owned(),
            mtu,
            min,
        }),
    }
}

/// The names in a table of interfaces as `/proc/net/dev` is one: two lines of titles, then `NAME: NUMBERS`.
fn named_in(table: &str) -> Vec<String> {
    let lines = table.lines().skip(2);
    let names = lines.filter_map(|line| line.rsplit_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

/// The names of all, or of some.
fn known() -> String {
    // What is mounted at /sys may be of another network namespace; this table never is. A confined process has no
    // /proc.
    let mut names = match fs::read_to_string("/proc/self/net/dev") {
        Ok(table) => named_in(&table),
        Err(_) => {
            let entries = fs::read_dir(INTERFACES).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
            names.collect()
        }
    };
    names.sort();
    if names.is_empty() {
        return "none that can be seen".to_owned();
    }
    let more = names.len().saturating_sub(NAMED_MAX);
    names.truncate(NAMED_MAX);
    let names = names.join(", ");
    match more {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

/// Who wants to take frames of an interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FrameUse {
    /// A store.
    Store,
    /// Groups, on so many cores.
    Groups(usize),
}

/// Whether this process had the right to frames when it gave rights up.
static HAD_RIGHT: OnceLock<bool> = OnceLock::new();

/// To be called when rights are given up, before they are.
pub fn note_right() {
    HAD_RIGHT.get_or_init(has_right);
}

/// Whether this process can take frames of the interface of this name now, as far as can be seen without taking any.
/// Sockets that were given up are free a moment later.
///
/// # Errors
///
/// It cannot be used, or this process has no right to it.
pub fn check_frames(name: &str, place: &Place, of: FrameUse) -> Result<(), StartError> {
    let check = || find(name).and_then(|_| check_right(name.to_owned(), of));
    let is_in_use = |problem: &Problem| {
        let Problem::Restart { is_in_use, .. } = problem else {
            return false;
        };
        *is_in_use
    };
    retry_while_in_use(check, is_in_use).map_err(|problem| StartError::Interface {
        place: place.clone(),
        problem,
    })
}

fn check_right(name: String, of: FrameUse) -> Result<(), Problem> {
    if has_right() {
        return Ok(());
    }
    if HAD_RIGHT.get() != Some(&true) {
        return Err(Problem::NoRight { name });
    }
    let kept = match of {
        FrameUse::Store => FrameSocket::kept_sockets(&name, ETHERTYPE),
        FrameUse::Groups(cores) => Site::kept_sockets(&name, ETHERTYPE, cores),
    };
    match kept {
        KeptSockets::Free => Ok(()),
        KeptSockets::InUse | KeptSockets::None => Err(Problem::Restart {
            name,
            is_in_use: kept == KeptSockets::InUse,
        }),
    }
}

/// Whether this process may make sockets of frames itself.
pub fn has_right() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_RAW))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_interfaces_has_their_names() {
        let table = "Inter-|   Receive\n face |bytes\n    lo: 1 2 3\n  eth0:4 5\nbr-a.7: 6\n";
        assert_eq!(named_in(table), ["lo", "eth0", "br-a.7"]);
        assert!(named_in("").is_empty());
    }

    #[test]
    fn an_interface_is_found_by_its_name_and_an_unknown_one_names_the_others() {
        assert!(
            find("lo").is_ok_and(|found| found.index > 0),
            "{:?}",
            find("lo")
        );
        let error = find("no-such-one").unwrap_err();
        assert!(matches!(error, Problem::Unknown { .. }), "{error}");
        let text = error.to_string();
        assert!(text.starts_with("there is no interface \"no-such-one\"; this machine has "));
    }
}
