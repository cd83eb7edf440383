//! The state of one unit: one file in the form of the device server, behind one lock.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use durable::{Found, NotReplaced, copy_of};
use plane::{Save, SaveError, SavedState, StateAuthority, Version};

use super::medium::{FIRST, OnMedium, Own, after};

/// The lock of a unit's directory.
pub(super) const LOCK: &str = "lock";

/// What the device server keeps: registrations with APTPL, saved mode pages.
pub(super) const SAVED: &str = "saved";

/// What the store of the unit was, in its directory.
pub(super) const MEDIUM: &str = "medium";

/// First word of the header of the file; the form of the frame follows, not that of the content, which is the device
/// server's own. Then comes the name of the directory, which is the unit's NAA, so that the file of one unit is not
/// taken for that of another. Length and checksum of all after this line come last. The second line is the version of
/// the content, which counts the saves. Form 3 had no version, form 2 no name, form 1 no checksum either.
const MAGIC: &str = "tarn-state";
const FORM: u32 = 4;
const FORM_WITHOUT_VERSION: u32 = 3;

/// What to do after a conflict.
pub(crate) const CONFLICT_REMEDY: &str = "see that only one Tarn uses the state directory or the image; \
     then remove the lun and add it again, or restart Tarn";

/// The state of one unit, which this process alone may use as long as it holds this.
///
/// The lock keeps other processes out. Where it does not, because its file was removed or the file system has no
/// locks, or where the file was put back from a backup, the file is not the one that was loaded or saved here last:
/// then it is left alone ([`SaveError::Conflict`]). A file that is gone or damaged holds nobody's state, and is
/// replaced.
///
/// The file is compared as a whole, not by its version alone: of two processes that save at one moment both may find
/// the version that they replace, and both save the next one. The later file stays, and the other process meets it
/// with its next save.
#[derive(Debug)]
pub struct UnitState {
    kept: Option<Kept>,
    /// The medium keeps the state, and files only where that is refused.
    medium: Mutex<Option<Arc<OnMedium>>>,
    /// Of the media that were recorded last, in bytes.
    sizes: Mutex<Vec<u64>>,
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
    own: Mutex<Own>,
    /// What was found where this process had left something else.
    conflict: OnceLock<String>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        reactor::process::set_lock(&self.lock, false);
    }
}

impl UnitState {
    /// The state of a unit that is gone with the process, such as memory: nothing is kept.
    pub fn volatile() -> Self {
        Self::new(None)
    }

    fn new(kept: Option<Kept>) -> Self {
        let (medium, sizes) = (Mutex::default(), Mutex::default());
        Self {
            kept,
            medium,
            sizes,
        }
    }

    /// From now on the medium keeps the state.
    pub(super) fn keep_on(&self, medium: OnMedium) {
        *self.lock_medium() = Some(Arc::new(medium));
    }

    pub(super) fn lock_sizes(&self) -> MutexGuard<'_, Vec<u64>> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_medium(&self) -> MutexGuard<'_, Option<Arc<OnMedium>>> {
        self.medium.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn medium(&self) -> Option<Arc<OnMedium>> {
        self.lock_medium().clone()
    }

    /// Takes the directory of a unit for this process; `None` if another one has it.
    pub(super) fn lock(directory: &Path) -> io::Result<Option<Self>> {
        durable::make_private_directory(directory)?;
        let lock = durable::open_private(&directory.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => {
                reactor::process::set_lock(&lock, true);
                let kept = Some(Kept {
                    directory: directory.to_owned(),
                    lock,
                    is_saved: AtomicBool::new(directory.join(SAVED).exists()),
                    is_known: AtomicBool::new(false),
                    own: Mutex::default(),
                    conflict: OnceLock::new(),
                });
                Ok(Some(Self::new(kept)))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Whether another process has the directory of a unit.
    pub(super) fn is_locked(directory: &Path) -> bool {
        let lock = File::open(directory.join(LOCK));
        lock.is_ok_and(|lock| store::is_locked(&lock, true))
    }

    /// Whether what is saved survives the process.
    pub fn is_kept(&self) -> bool {
        self.kept.is_some() || self.medium().is_some()
    }

    /// What another process has written in the place of what was saved here, if a save has met it. It stays so until
    /// the unit starts again.
    pub(crate) fn conflict(&self) -> Option<String> {
        let of_files = self.kept.as_ref().and_then(|kept| kept.conflict.get());
        let of_medium = || self.medium()?.conflict();
        of_files.cloned().or_else(of_medium)
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

    /// Its directory.
    pub(super) fn directory(&self) -> Option<&Path> {
        self.kept.as_ref().map(|kept| kept.directory.as_path())
    }

    /// The name of its directory.
    pub(super) fn name(&self) -> Option<&str> {
        self.kept.as_ref().map(|kept| name_of(&kept.directory))
    }
}

impl StateAuthority for UnitState {
    fn load(&self) -> io::Result<Option<SavedState>> {
        let on_medium = self.medium().map(|medium| medium.load()).transpose()?;
        if let Some(saved) = on_medium.flatten() {
            return Ok(Some(saved));
        }
        let Some(kept) = &self.kept else {
            return Ok(None);
        };
        let path = kept.directory.join(SAVED);
        match durable::read_bytes(&path)? {
            Found::Whole(bytes) => {
                let saved = unframe(&bytes, name_of(&kept.directory));
                let saved = saved
                    .ok_or_else(|| damaged(&path, "is damaged, of another unit or version"))?;
                kept.own().last = Some(durable::sum_of(&bytes));
                Ok(Some(saved))
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

    fn save(&self, save: &Save) -> Result<Version, SaveError> {
        let on_medium = self.medium().and_then(|medium| medium.save(save));
        if let Some(outcome) = on_medium {
            return outcome;
        }
        match &self.kept {
            Some(kept) => kept.save(save, durable::try_replace),
            None => Ok(after(save.replaces)),
        }
    }
}

/// With the place, and the remedy where there is one.
fn placed(path: &Path, error: &io::Error) -> io::Error {
    use io::ErrorKind::{QuotaExceeded, StorageFull};

    let remedy = match matches!(error.kind(), StorageFull | QuotaExceeded) {
        true => "; make room there",
        false => "",
    };
    io::Error::new(error.kind(), format!("{}: {error}{remedy}", path.display()))
}

impl Kept {
    fn own(&self) -> MutexGuard<'_, Own> {
        // Whatever panicked, each sum in it is of a file that this process has read or written.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn save(
        &self,
        save: &Save,
        replace: impl FnOnce(&Path, &[u8]) -> Result<(), NotReplaced>,
    ) -> Result<Version, SaveError> {
        let path = self.directory.join(SAVED);
        let name = name_of(&self.directory);
        let mut own = self.own();
        let found =
            durable::read_bytes(&path).map_err(|error| SaveError::Failed(placed(&path, &error)));
        let found = match found? {
            Found::Whole(bytes) => {
                unframe(&bytes, name).map(|saved| (saved.version, durable::sum_of(&bytes)))
            }
            Found::Absent | Found::Damaged(_) => None,
        };
        let last = match found {
            Some((found, sum)) => {
                let is_last = Some(found) == save.replaces && Some(&sum) == own.last.as_ref();
                if !is_last && !own.left.contains(&sum) {
                    return Err(self.conflict(&path, found, save.replaces));
                }
                Some(found)
            }
            None => save.replaces,
        };
        let version = after(last);
        let framed = frame(&save.state, version, name);
        let sum = durable::sum_of(&framed);
        if let Err(NotReplaced { error, may_be_done }) = replace(&path, &framed) {
            let error = placed(&path, &error);
            if !may_be_done {
                return Err(SaveError::Failed(error));
            }
            own.note_left(sum);
            return Err(SaveError::Uncertain(error));
        }
        *own = Own {
            last: Some(sum),
            left: Vec::new(),
        };
        durable::write_copy(&path, &framed);
        self.is_saved.store(true, Ordering::SeqCst);
        Ok(version)
    }

    fn conflict(&self, path: &Path, found: Version, left: Option<Version>) -> SaveError {
        let left = left.map_or_else(|| "none".to_owned(), |version| version.to_string());
        let what = format!(
            "{} is not as this Tarn left it, so it is left alone: it has {found} of the state where {left} was",
            path.display()
        );
        let advice = format!("{what}; {CONFLICT_REMEDY}");
        self.conflict.get_or_init(|| what);
        SaveError::Conflict { found, advice }
    }
}

pub(super) fn damaged(path: &Path, how: &str) -> io::Error {
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

/// A line that says what follows, whose it is, how long it is and what its checksum is, then the version and the
/// content.
fn frame(content: &[u8], version: Version, name: &str) -> Vec<u8> {
    let mut body = format!("{}\n", version.0).into_bytes();
    body.extend_from_slice(content);
    let mut framed = format!("{}\n", header(FORM, &body, name)).into_bytes();
    framed.append(&mut body);
    framed
}

/// The content, if it matches its line and is that of the unit.
pub(super) fn unframe(framed: &[u8], name: &str) -> Option<SavedState> {
    let (found, body) = split_line(framed)?;
    if found == header(FORM, body, name).as_bytes() {
        let (version, content) = split_line(body)?;
        let version = std::str::from_utf8(version).ok()?.parse().ok()?;
        return Some(SavedState {
            version: Version(version),
            state: content.to_vec(),
        });
    }
    let forms = [
        header(FORM_WITHOUT_VERSION, body, name),
        format!("{MAGIC} 2 {}", durable::sum_of(body)),
        format!("{MAGIC} 1 {}", body.len()),
    ];
    let is_whole = forms.iter().any(|form| form.as_bytes() == found);
    is_whole.then(|| SavedState {
        version: FIRST,
        state: body.to_vec(),
    })
}

/// The first line, and all after it.
fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    let (line, rest) = bytes.split_at_checked(end)?;
    Some((line, rest.get(1..)?))
}

fn header(form: u32, body: &[u8], name: &str) -> String {
    format!("{MAGIC} {form} {name} {}", durable::sum_of(body))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::medium::LEFT_MAX;
    use super::*;
    use crate::scratch::Scratch;

    fn save(content: &[u8], replaces: Option<u64>) -> Save {
        Save {
            state: content.to_vec(),
            replaces: replaces.map(Version),
        }
    }

    fn saved(state: &UnitState) -> (u64, Vec<u8>) {
        let saved = state.load().unwrap().unwrap();
        (saved.version.0, saved.state)
    }

    fn lock(directory: &Path) -> UnitState {
        UnitState::lock(directory).unwrap().unwrap()
    }

    #[test]
    fn what_is_saved_is_there_for_the_next_owner_with_its_version() {
        let scratch = Scratch::new();
        let directory = scratch.path().join("units/3");
        let state = lock(&directory);
        assert_eq!(state.load().unwrap(), None);
        let mut last = None;
        for (content, version) in [(&b"a\nb\0"[..], 1), (b"", 2), (b"7\n", 3)] {
            assert_eq!(state.save(&save(content, last)).unwrap(), Version(version));
            assert_eq!(saved(&state), (version, content.to_vec()));
            last = Some(version);
        }
        drop(state);
        assert_eq!(saved(&lock(&directory)), (3, b"7\n".to_vec()));
    }

    /// A lock whose file is removed does not keep another process out.
    #[test]
    fn what_another_process_has_saved_stays_and_the_error_names_file_and_remedy() {
        let scratch = Scratch::new();
        let first = lock(scratch.path());
        first.save(&save(b"first", None)).unwrap();
        fs::remove_file(scratch.path().join(LOCK)).unwrap();
        assert_eq!(first.conflict(), None);
        let second = lock(scratch.path());
        assert_eq!(saved(&second), (1, b"first".to_vec()));
        second.save(&save(b"second", Some(1))).unwrap();
        for replaces in [None, Some(1)] {
            let error = first.save(&save(b"third", replaces)).unwrap_err();
            let SaveError::Conflict { found, advice } = error else {
                panic!("{error}");
            };
            assert_eq!(found, Version(2));
            let path = scratch.path().join(SAVED);
            assert!(advice.contains(path.to_str().unwrap()), "{advice}");
            assert!(advice.contains("only one Tarn"), "{advice}");
        }
        assert!(first.conflict().unwrap().contains("version 2"));
        assert_eq!(saved(&second), (2, b"second".to_vec()));
        assert_eq!(second.save(&save(b"third", Some(2))).unwrap(), Version(3));
    }

    /// Of two that save at one moment both find the version that they replace.
    #[test]
    fn what_another_process_has_saved_with_the_same_version_is_met_all_the_same() {
        let scratch = Scratch::new();
        let first = lock(scratch.path());
        first.save(&save(b"first", None)).unwrap();
        let path = scratch.path().join(SAVED);
        let other = frame(b"other", Version(1), name_of(scratch.path()));
        fs::write(&path, &other).unwrap();
        let refused = first.save(&save(b"second", Some(1)));
        assert!(matches!(refused, Err(SaveError::Conflict { .. })));
        assert_eq!(fs::read(&path).unwrap(), other);
    }

    #[test]
    fn a_file_that_is_gone_or_damaged_is_no_conflict() {
        let scratch = Scratch::new();
        let state = lock(scratch.path());
        state.save(&save(b"a", None)).unwrap();
        let path = scratch.path().join(SAVED);
        fs::write(&path, "tarn-state 4").unwrap();
        assert_eq!(state.save(&save(b"b", Some(1))).unwrap(), Version(2));
        fs::remove_file(&path).unwrap();
        assert_eq!(state.save(&save(b"c", Some(2))).unwrap(), Version(3));
        assert_eq!(saved(&state), (3, b"c".to_vec()));
    }

    fn eio(may_be_done: bool) -> Result<(), NotReplaced> {
        let error = io::ErrorKind::Other.into();
        Err(NotReplaced { error, may_be_done })
    }

    /// As where the directory cannot be flushed.
    fn done_and_fails(path: &Path, bytes: &[u8]) -> Result<(), NotReplaced> {
        fs::write(path, bytes).unwrap();
        eio(true)
    }

    fn save_by(
        state: &UnitState,
        content: &[u8],
        replace: impl FnOnce(&Path, &[u8]) -> Result<(), NotReplaced>,
    ) -> Result<Version, SaveError> {
        let kept = state.kept.as_ref().unwrap();
        kept.save(&save(content, Some(1)), replace)
    }

    #[test]
    fn what_failed_saves_have_left_is_no_conflict_and_what_others_put_there_is() {
        for is_foreign in [false, true] {
            let scratch = Scratch::new();
            let state = lock(scratch.path());
            state.save(&save(b"a", None)).unwrap();
            let done = save_by(&state, b"b", done_and_fails);
            assert!(matches!(done, Err(SaveError::Uncertain(_))));
            assert_eq!(saved(&lock_again(&scratch)), (2, b"b".to_vec()));
            let before = save_by(&state, b"c", |_, _| eio(false));
            assert!(matches!(before, Err(SaveError::Failed(_))));
            let not_done = save_by(&state, b"d", |_, _| eio(true));
            assert!(matches!(not_done, Err(SaveError::Uncertain(_))));
            let path = scratch.path().join(SAVED);
            if is_foreign {
                let other = frame(b"c", Version(3), name_of(scratch.path()));
                fs::write(&path, &other).unwrap();
                let refused = state.save(&save(b"e", Some(1)));
                assert!(matches!(refused, Err(SaveError::Conflict { .. })));
                assert_eq!(fs::read(&path).unwrap(), other);
            } else {
                assert_eq!(state.save(&save(b"e", Some(1))).unwrap(), Version(3));
                assert_eq!(saved(&state), (3, b"e".to_vec()));
            }
        }
    }

    /// What a process finds that starts now.
    fn lock_again(scratch: &Scratch) -> UnitState {
        fs::remove_file(scratch.path().join(LOCK)).unwrap();
        lock(scratch.path())
    }

    #[test]
    fn the_copy_of_a_state_is_that_of_the_last_good_save() {
        let scratch = Scratch::new();
        let state = lock(scratch.path());
        state.save(&save(b"a", None)).unwrap();
        let good = fs::read(scratch.path().join(SAVED)).unwrap();
        save_by(&state, b"b", done_and_fails).unwrap_err();
        let copy = fs::read(copy_of(&scratch.path().join(SAVED))).unwrap();
        assert_eq!(copy, good);
    }

    #[test]
    fn any_number_of_failed_saves_is_no_conflict() {
        let scratch = Scratch::new();
        let state = lock(scratch.path());
        state.save(&save(b"a", None)).unwrap();
        for number in 0..LEFT_MAX + 3 {
            let failed = save_by(&state, number.to_string().as_bytes(), done_and_fails);
            assert!(matches!(failed, Err(SaveError::Uncertain(_))), "{number}");
        }
        let left = state.kept.as_ref().unwrap().own().left.len();
        assert_eq!(left, LEFT_MAX);
        assert!(state.save(&save(b"z", Some(1))).is_ok());
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
        let state = lock(scratch.path());
        state.save(&save(b"content", None)).unwrap();
        let path = scratch.path().join(SAVED);
        let good = fs::read(&path).unwrap();
        for damaged in [
            &good[..0],
            &good[..5],
            &good[..good.len() - 1],
            &[&good[..], b"x"].concat(),
            b"tarn-state 2 0\n",
            b"tarn-state 3 other 0 0\n",
            b"tarn-state 4 other 0 0\n",
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
    fn no_flipped_bit_of_version_and_content_goes_unnoticed() {
        let framed = frame(b"content", Version(5), "naa.3");
        let whole = unframe(&framed, "naa.3").unwrap();
        assert_eq!(whole.version, Version(5));
        assert_eq!(whole.state, b"content");
        assert_eq!(unframe(&framed, "naa.4"), None, "that of another unit");
        for at in framed.len() - b"5\ncontent".len()..framed.len() {
            for bit in 0..8 {
                let mut flipped = framed.clone();
                flipped[at] ^= 1 << bit;
                assert_eq!(unframe(&flipped, "naa.3"), None);
            }
        }
    }

    #[test]
    fn files_of_earlier_forms_are_read() {
        let second = format!("{MAGIC} 2 {}\nabc", durable::sum_of(b"abc"));
        let third = format!("{}\nabc", header(3, b"abc", "naa.3"));
        for file in ["tarn-state 1 3\nabc", &second, &third] {
            let saved = unframe(file.as_bytes(), "naa.3").unwrap();
            assert_eq!(saved.version, FIRST, "{file}");
            assert_eq!(saved.state, b"abc", "{file}");
        }
    }

    #[test]
    fn a_volatile_unit_keeps_nothing() {
        let state = UnitState::volatile();
        assert_eq!(state.save(&save(b"x", None)).unwrap(), Version(1));
        assert_eq!(state.load().unwrap(), None);
        assert!(!state.is_kept());
    }
}
