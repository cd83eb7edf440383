//! Room in the state directory. Where there is none, whatever has to be kept is refused; that is better known before.

use std::io;
use std::iter::once;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use api::event::{Finding, Severity};
use reactor::process::wait_for;

use super::{Facts, finding};

/// Between two looks, at least.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// A file of the state and its copy take less.
const ROOM_BYTES: u64 = 64 << 10;

/// A change makes fewer files.
const ROOM_FILES: u64 = 8;

/// What is free on a file system.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Room {
    pub(super) bytes: u64,
    /// `None`: it has as many files as it has room for.
    pub(super) files: Option<u64>,
}

impl Room {
    fn of(directory: &Path) -> io::Result<Self> {
        let system = rustix::fs::statvfs(directory)?;
        // What is reserved is so for root.
        let (blocks, files) = match rustix::process::geteuid().is_root() {
            true => (system.f_bfree, system.f_ffree),
            false => (system.f_bavail, system.f_favail),
        };
        Ok(Self {
            bytes: blocks.saturating_mul(system.f_frsize),
            files: (system.f_files > 0).then_some(files),
        })
    }

    /// What there is too little of.
    fn lack(self) -> Option<String> {
        match self.files {
            _ if self.bytes < ROOM_BYTES => Some(format!("{} KiB are free", self.bytes >> 10)),
            Some(files) if files < ROOM_FILES => Some(format!("{files} more files fit")),
            Some(_) | None => None,
        }
    }
}

/// The state directory and what is free there, or why nobody knows.
pub(super) type Kept = (PathBuf, Result<Room, String>);

/// The looks at it: none is waited for, and while one has no end there is no other.
#[derive(Debug, Default)]
pub(super) struct KeepLooks {
    last: Option<Instant>,
    under_way: Option<Receiver<Result<Room, String>>>,
    known: Option<Result<Room, String>>,
}

impl KeepLooks {
    /// What the last look that has ended saw.
    pub(super) fn room(&mut self, now: Instant, directory: &Path) -> Option<Kept> {
        match self.under_way.as_ref().map(Receiver::try_recv) {
            Some(Ok(room)) => (self.known, self.under_way) = (Some(room), None),
            Some(Err(TryRecvError::Disconnected)) => self.under_way = None,
            Some(Err(TryRecvError::Empty)) | None => {}
        }
        let is_due = |last: Instant| now.saturating_duration_since(last) >= LOOK_EVERY;
        if self.under_way.is_none() && self.last.is_none_or(is_due) {
            self.last = Some(now);
            self.under_way = begin(directory.to_owned());
        }
        Some((directory.to_owned(), self.known.clone()?))
    }
}

/// Looks in a thread that can be left behind, when the file system has answered another process.
fn begin(directory: PathBuf) -> Option<Receiver<Result<Room, String>>> {
    let (answer, answered) = channel();
    let look = move || match wait_for(once(&*directory)).map(|()| Room::of(&directory)) {
        // Nobody waits any more when the daemon has ended.
        Ok(room) => drop(answer.send(room.map_err(|error| error.to_string()))),
        Err(error) => tracing::error!(%error, "cannot check the state directory"),
    };
    let thread = thread::Builder::new().name("keep".to_owned()).spawn(look);
    thread.ok().map(|_detached| answered)
}

/// Disks are served without it, so nobody notices until something has to be kept.
pub(super) fn full_state(facts: &Facts<'_>) -> Vec<Finding> {
    let lack = |(directory, room): &Kept| {
        let (lack, remedy) = match room {
            Ok(room) => (format!("is full ({})", room.lack()?), "make room there"),
            Err(error) => (
                format!("does not have it ({error})"),
                "put it back before Tarn ends: the identities and the reservations of the disks are in it",
            ),
        };
        Some(finding(
            Severity::Error,
            "state-unwritable",
            directory.display().to_string(),
            format!(
                "its file system {lack}: reservations that are to persist, saved mode pages, tokens and changes of the \
                 configuration may be refused; disks are served"
            ),
            remedy,
        ))
    };
    Vec::from_iter(facts.kept.as_ref().and_then(lack))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_bytes_or_of_files_is_one() {
        let lack = |bytes, files| Room { bytes, files }.lack();
        assert_eq!(lack(ROOM_BYTES, Some(ROOM_FILES)), None);
        assert_eq!(lack(ROOM_BYTES, None), None);
        assert_eq!(lack(4096, None).as_deref(), Some("4 KiB are free"));
        assert_eq!(lack(1 << 30, Some(0)).as_deref(), Some("0 more files fit"));
    }
}
