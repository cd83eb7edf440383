//! Whether another program has a file locked, found out without locking it.
//!
//! The kernel lists the locks that it knows, by the inode of the file. Those of other hosts and of other PID namespaces
//! are not among them, and a file of Btrfs has another device number there: what is not seen is found when the file is
//! locked. The kernel waits some milliseconds before it shows the list, so who serves does not ask.

use std::os::fd::AsFd;

use rustix::fs::{fstat, major, minor};

/// Where the kernel lists locks.
const LIST: &str = "/proc/locks";

/// Whether a lock on a file would be refused, to have it alone or together with others.
pub fn is_locked(file: impl AsFd, is_alone: bool) -> bool {
    let Ok(found) = fstat(file) else {
        return false;
    };
    let (device, inode) = (found.st_dev, found.st_ino);
    let name = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let list = std::fs::read_to_string(LIST).unwrap_or_default();
    list.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        // Before one that waits there is an arrow.
        let is_held = words.next() == Some("FLOCK") && words.next().is_some();
        let refuses = words.next().is_some_and(|how| is_alone || how == "WRITE");
        is_held && refuses && words.nth(1) == Some(&name)
    })
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FlockOperation, flock};

    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn a_lock_is_seen_as_long_as_it_is_held() {
        let scratch = Scratch::new();
        let path = scratch.path("file");
        std::fs::write(&path, b"").unwrap();
        let [holder, other] = [(); 2].map(|()| std::fs::File::open(&path).unwrap());
        let seen = || [true, false].map(|is_alone| is_locked(&other, is_alone));
        assert_eq!(seen(), [false, false]);
        flock(&holder, FlockOperation::LockShared).unwrap();
        assert_eq!(seen(), [true, false]);
        flock(&holder, FlockOperation::LockExclusive).unwrap();
        assert_eq!(seen(), [true, true]);
        flock(&holder, FlockOperation::Unlock).unwrap();
        assert_eq!(seen(), [false, false]);
    }
}
