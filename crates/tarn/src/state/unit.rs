//! The state of one unit: one file in the form of the device server, behind one lock.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use durable::{Found, copy_of};

use super::make_private_directory;

/// The lock of a unit's directory.
pub(super) const LOCK: &str = "lock";

/// What the device server keeps: registrations with APTPL, saved mode pages.
pub(super) const SAVED: &str = "saved";

/// First word of the header of the file; the version of the frame follows, not that of the
/// content, which is the device server's own. Then comes the name of the directory, which is the
/// unit's NAA, so that the file of one unit is not taken for that of another. Length and checksum of
/// the content come last. Version 2 had no name, version 1 no checksum either.
const MAGIC: &str = "tarn-state";
const VERSION: u32 = 3;

/// The state of one unit, which this process alone may use as long as it holds this.
///
/// Loading and saving block on the disk: they belong on a helper thread, not on a reactor.
#[derive(Debug)]
pub struct UnitState {
    kept: Option<Kept>,
}

impl plane::Keeper for UnitState {
    fn save(&self, state: &[u8]) -> io::Result<()> {
        Self::save(self, state)
    }
}

#[derive(Debug)]
struct Kept {
    directory: PathBuf,
    /// The lock ends when it is closed, by this process and by all that share its files.
    lock: File,
    /// Something was saved here.
    is_saved: AtomicBool,
    /// The ledger knows that.
    is_known: AtomicBool,
}

impl Drop for Kept {
    fn drop(&mut self) {
        reactor::process::set_lock(&self.lock, false);
    }
}

impl UnitState {
    /// The state of a unit that is gone with the process, such as memory: nothing is kept.
    pub fn volatile() -> Self {
        Self { kept: None }
    }

    /// Takes the directory of a unit for this process; `None` if another one has it.
    pub(super) fn lock(directory: &Path) -> io::Result<Option<Self>> {
        make_private_directory(directory)?;
        let lock = durable::open_private(&directory.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => {
                reactor::process::set_lock(&lock, true);
                let kept = Some(Kept {
                    directory: directory.to_owned(),
                    lock,
                    is_saved: AtomicBool::new(directory.join(SAVED).exists()),
                    is_known: AtomicBool::new(false),
                });
                Ok(Some(Self { kept }))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Whether what is saved survives the process.
    pub fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// The ledger knows that something was saved, so that it is missed when it is gone.
    pub(super) fn set_known(&self, is_known: bool) {
        if let Some(kept) = &self.kept {
            kept.is_known.store(is_known, Ordering::SeqCst);
        }
    }

    /// Whether something was saved and the ledger does not know that yet.
    pub(super) fn is_news(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| {
            kept.is_saved.load(Ordering::SeqCst) && !kept.is_known.load(Ordering::SeqCst)
        })
    }

    /// The name of its directory.
    pub(super) fn name(&self) -> Option<&str> {
        self.kept.as_ref().map(|kept| name_of(&kept.directory))
    }

    /// What was saved last, if anything was.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is not what [`UnitState::save`] writes for this unit, or is gone.
    /// Going on without it would lose reservations, so the unit should not be served then.
    pub fn load(&self) -> io::Result<Option<Vec<u8>>> {
        let Some(kept) = &self.kept else {
            return Ok(None);
        };
        let path = kept.directory.join(SAVED);
        match durable::read_bytes(&path)? {
            Found::Whole(bytes) => {
                let content = unframe(&bytes, name_of(&kept.directory)).map(Some);
                content.ok_or_else(|| damaged(&path, "is damaged, of another unit or version"))
            }
            Found::Damaged(_) => Err(damaged(&path, "is damaged")),
            Found::Absent => {
                let is_missed = kept.is_known.load(Ordering::SeqCst) || copy_of(&path).exists();
                if is_missed {
                    return Err(damaged(&path, "is missing"));
                }
                Ok(None)
            }
        }
    }

    /// Keeps `content` in place of what was saved before. On return it is on stable storage.
    ///
    /// # Errors
    ///
    /// It is not; what was saved before is still there.
    pub fn save(&self, content: &[u8]) -> io::Result<()> {
        match &self.kept {
            Some(kept) => {
                let path = kept.directory.join(SAVED);
                durable::write_with_copy(&path, &frame(content, name_of(&kept.directory)))?;
                kept.is_saved.store(true, Ordering::SeqCst);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

fn damaged(path: &Path, how: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{} {how}", path.display()),
    )
}

/// The name of the directory of a unit.
pub(super) fn name_of(directory: &Path) -> &str {
    let name = directory.file_name().and_then(|name| name.to_str());
    name.unwrap_or_default()
}

/// A line that says what follows, whose it is, how long it is and what its checksum is, then the
/// content.
fn frame(content: &[u8], name: &str) -> Vec<u8> {
    let mut framed = format!("{}\n", header(content, name)).into_bytes();
    framed.extend_from_slice(content);
    framed
}

/// The content, if it matches its line and is that of the unit.
pub(super) fn unframe(framed: &[u8], name: &str) -> Option<Vec<u8>> {
    let end = framed.iter().position(|&byte| byte == b'\n')?;
    let (found, rest) = framed.split_at_checked(end)?;
    let content = rest.get(1..)?;
    let forms = [
        header(content, name),
        format!("{MAGIC} 2 {}", durable::sum_of(content)),
        format!("{MAGIC} 1 {}", content.len()),
    ];
    let is_whole = forms.iter().any(|form| form.as_bytes() == found);
    is_whole.then(|| content.to_vec())
}

fn header(content: &[u8], name: &str) -> String {
    format!("{MAGIC} {VERSION} {name} {}", durable::sum_of(content))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn what_is_saved_is_there_for_the_next_owner() {
        let scratch = Scratch::new();
        let directory = scratch.path().join("units/3");
        let state = UnitState::lock(&directory).unwrap().unwrap();
        assert_eq!(state.load().unwrap(), None);
        for content in [&b"a\nb\0"[..], b""] {
            state.save(content).unwrap();
            assert_eq!(state.load().unwrap().unwrap(), content);
        }
        state.save(b"last").unwrap();
        drop(state);

        let next = UnitState::lock(&directory).unwrap().unwrap();
        assert_eq!(next.load().unwrap().unwrap(), b"last");
    }

    #[test]
    fn a_unit_has_one_owner_at_a_time() {
        let scratch = Scratch::new();
        let first = UnitState::lock(scratch.path()).unwrap();
        assert!(first.is_some());
        assert!(UnitState::lock(scratch.path()).unwrap().is_none());
        drop(first);
        assert!(UnitState::lock(scratch.path()).unwrap().is_some());
    }

    #[test]
    fn a_damaged_file_is_an_error_and_not_an_empty_state() {
        let scratch = Scratch::new();
        let state = UnitState::lock(scratch.path()).unwrap().unwrap();
        state.save(b"content").unwrap();
        let path = scratch.path().join(SAVED);
        let good = fs::read(&path).unwrap();
        for damaged in [
            &good[..0],
            &good[..5],
            &good[..good.len() - 1],
            &[&good[..], b"x"].concat(),
            b"tarn-state 2 0\n",
            b"tarn-state 3 other 0 0\n",
            b"tarn-state 1 1\n",
            b"other 1 0\n",
        ] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(unframe(damaged, name_of(scratch.path())), None);
            let error = state.load().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn no_flipped_bit_of_the_content_goes_unnoticed_and_version_1_is_read() {
        let framed = frame(b"content", "naa.3");
        assert_eq!(unframe(&framed, "naa.3").unwrap(), b"content");
        assert_eq!(unframe(&framed, "naa.4"), None, "that of another unit");
        for bit in 0..8 {
            let mut flipped = framed.clone();
            *flipped.last_mut().unwrap() ^= 1 << bit;
            assert_eq!(unframe(&flipped, "naa.3"), None);
        }
        assert_eq!(unframe(b"tarn-state 1 3\nabc", "naa.3").unwrap(), b"abc");
        let second = format!("tarn-state 2 {}\nabc", durable::sum_of(b"abc"));
        assert_eq!(unframe(second.as_bytes(), "naa.3").unwrap(), b"abc");
    }

    #[test]
    fn a_volatile_unit_keeps_nothing() {
        let state = UnitState::volatile();
        state.save(b"x").unwrap();
        assert_eq!(state.load().unwrap(), None);
        assert!(!state.is_kept());
    }
}
