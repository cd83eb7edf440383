//! Snapshots of an image, its clones, and the way back. All calls here block.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::{Duration, SystemTime};

use crate::calls::{Child, ProgressCallback, SnapshotInfo};
use crate::cluster::{string, text};
use crate::{CallError, Image, Pool};

/// Of `rbd_image_options_set_uint64`: how a clone knows its snapshot. With the second format the snapshot need not be
/// protected.
const CLONE_FORMAT: c_int = 12;
const CLONE_FORMAT_2: u64 = 2;
/// Of `rbd_snap_get_namespace_type`: a snapshot that a user took, and that is not in the trash.
const OF_USERS: c_int = 0;
/// More snapshots or clones are not listed.
const LIST_MAX: usize = 1 << 16;
/// Places that are offered first.
const LIST_FIRST: usize = 64;

/// A snapshot of an image.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageSnapshot {
    /// Its number in the image: later ones have higher numbers, and none is given twice.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// When it was taken.
    pub taken: SystemTime,
    /// The size of the image then.
    pub size_bytes: u64,
}

/// Is given how many objects of how many are done, and says whether to go on. Is called on threads of the library.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) -> bool + Sync);

impl Image {
    /// The snapshots that users took, those in the trash left out.
    ///
    /// # Errors
    ///
    /// The cluster does not say.
    pub fn snapshots(&self) -> Result<Vec<ImageSnapshot>, CallError> {
        const NONE: SnapshotInfo = SnapshotInfo {
            id: 0,
            size_bytes: 0,
            name: ptr::null(),
        };
        let mut places = LIST_FIRST;
        loop {
            let mut infos = vec![NONE; places];
            let mut count = c_int::try_from(places).unwrap_or(c_int::MAX);
            let list = self.calls.rbd_snap_list;
            // SAFETY: the image is open; the library fills no more than the count says, the end included.
            let answer = unsafe { list(self.handle, infos.as_mut_ptr(), &raw mut count) };
            match self.check("rbd_snap_list", answer) {
                Ok(found) => {
                    let found = usize::try_from(found).unwrap_or_default();
                    let all = infos.iter().take(found);
                    let all = all.map(|info| self.snapshot(info)).collect::<Vec<_>>();
                    // SAFETY: what was filled is given back once; its end is the null behind the last name.
                    unsafe { (self.calls.rbd_snap_list_end)(infos.as_mut_ptr()) };
                    return all.into_iter().filter_map(Result::transpose).collect();
                }
                Err(error) if error.errno == libc::ERANGE && places < LIST_MAX => {
                    let needed = usize::try_from(count).unwrap_or_default();
                    places = needed.max(places.saturating_mul(2)).min(LIST_MAX);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// `None` for one that is not of users, or was removed meanwhile.
    fn snapshot(&self, info: &SnapshotInfo) -> Result<Option<ImageSnapshot>, CallError> {
        // SAFETY: it is a string of C until the list is given back.
        let name = unsafe { string(info.name) };
        let mut kind = OF_USERS;
        let kind_of = self.calls.rbd_snap_get_namespace_type;
        // SAFETY: the image is open, the kind ours to fill.
        let answer = unsafe { kind_of(self.handle, info.id, &raw mut kind) };
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let time_of = self.calls.rbd_snap_get_timestamp;
        // SAFETY: the image is open, the time ours to fill.
        let timed = unsafe { time_of(self.handle, info.id, &raw mut time) };
        let answers = [
            self.check("rbd_snap_get_namespace_type", answer),
            self.check("rbd_snap_get_timestamp", timed),
        ];
        for answer in answers {
            match answer {
                Ok(_) => {}
                Err(error) if error.errno == libc::ENOENT => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or_default());
        let rest = Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or_default());
        Ok((kind == OF_USERS).then(|| ImageSnapshot {
            id: info.id,
            name,
            taken: SystemTime::UNIX_EPOCH + seconds + rest,
            size_bytes: info.size_bytes,
        }))
    }

    /// Takes a snapshot, which is on stable storage then. Writes of this image wait meanwhile.
    ///
    /// # Errors
    ///
    /// There is one of this name (`EEXIST`), the image is only read (`EROFS`), or has its limit of them (`EDQUOT`).
    pub fn take_snapshot(&self, name: &str) -> Result<(), CallError> {
        let name = text(name)?;
        // SAFETY: the image is open, the name a string of C.
        let answer = unsafe { (self.calls.rbd_snap_create)(self.handle, name.as_ptr()) };
        self.check("rbd_snap_create", answer).map(drop)
    }

    /// Removes a snapshot. One that has clones goes to the trash until they are gone.
    ///
    /// # Errors
    ///
    /// There is none (`ENOENT`), it is protected (`EBUSY`), the image is only read (`EROFS`).
    pub fn remove_snapshot(&self, name: &str) -> Result<(), CallError> {
        let name = text(name)?;
        // SAFETY: the image is open, the name a string of C.
        let answer = unsafe { (self.calls.rbd_snap_remove)(self.handle, name.as_ptr()) };
        self.check("rbd_snap_remove", answer).map(drop)
    }

    /// Gives a snapshot another name.
    ///
    /// # Errors
    ///
    /// There is none (`ENOENT`), or one of the new name (`EEXIST`).
    pub fn rename_snapshot(&self, from: &str, to: &str) -> Result<(), CallError> {
        let (from, to) = (text(from)?, text(to)?);
        let rename = self.calls.rbd_snap_rename;
        // SAFETY: the image is open, both are strings of C.
        let answer = unsafe { rename(self.handle, from.as_ptr(), to.as_ptr()) };
        self.check("rbd_snap_rename", answer).map(drop)
    }

    /// Whether somebody has protected a snapshot from being removed.
    ///
    /// # Errors
    ///
    /// There is none (`ENOENT`).
    pub fn is_snapshot_protected(&self, name: &str) -> Result<bool, CallError> {
        let name = text(name)?;
        let mut is_protected = 0;
        let ask = self.calls.rbd_snap_is_protected;
        // SAFETY: the image is open, the name a string of C, the answer ours to fill.
        let answer = unsafe { ask(self.handle, name.as_ptr(), &raw mut is_protected) };
        self.check("rbd_snap_is_protected", answer)
            .map(|_| is_protected != 0)
    }

    /// Gives the image the data and the size of a snapshot. Writes of this image wait meanwhile, reads do not. What was
    /// ended in between is a mixture.
    ///
    /// # Errors
    ///
    /// There is none (`ENOENT`), it was ended (`ECANCELED`), the image is only read (`EROFS`).
    pub fn roll_back(&self, name: &str, progress: Progress<'_>) -> Result<(), CallError> {
        let name = text(name)?;
        let (callback, argument) = pass(&progress);
        let roll_back = self.calls.rbd_snap_rollback_with_progress;
        // SAFETY: the image is open, the name a string of C; what the callback gets lives until the call returns, which
        // is when the callbacks have ended.
        let answer = unsafe { roll_back(self.handle, name.as_ptr(), callback, argument) };
        self.check("rbd_snap_rollback_with_progress", answer)
            .map(drop)
    }

    /// Gives a clone all data of its snapshot, so that it needs that no more. Requests go on meanwhile. What was
    /// ended in between is a clone as before.
    ///
    /// # Errors
    ///
    /// It is no clone (`EINVAL`), it was ended (`ECANCELED`), the image is only read (`EROFS`).
    pub fn flatten(&self, progress: Progress<'_>) -> Result<(), CallError> {
        let (callback, argument) = pass(&progress);
        let flatten = self.calls.rbd_flatten_with_progress;
        // SAFETY: the image is open; what the callback gets lives until the call returns, as above.
        let answer = unsafe { flatten(self.handle, callback, argument) };
        self.check("rbd_flatten_with_progress", answer).map(drop)
    }

    /// The names of the clones of a snapshot, as `POOL/IMAGE`; those in the trash, too.
    ///
    /// # Errors
    ///
    /// There is no such snapshot (`ENOENT`), or the cluster does not say.
    pub fn clones(&self, snapshot: &str) -> Result<Vec<String>, CallError> {
        const NONE: Child = Child {
            pool_id: 0,
            pool_name: ptr::null_mut(),
            namespace: ptr::null_mut(),
            image_id: ptr::null_mut(),
            image_name: ptr::null_mut(),
            is_trash: false,
        };
        // They are asked of an image that is open at the snapshot.
        let there = self.at_snapshot(snapshot)?;
        let mut places = LIST_FIRST;
        loop {
            let mut children = vec![NONE; places];
            let mut count = places;
            let list = self.calls.rbd_list_children3;
            // SAFETY: the image is open; the library fills no more than the count says, and sets it to what it filled.
            let answer = unsafe { list(there.handle, children.as_mut_ptr(), &raw mut count) };
            match self.check("rbd_list_children3", answer) {
                Ok(_) => {
                    let filled = children.iter().take(count);
                    let names = filled.map(|child| {
                        // SAFETY: a string of C until it is given back below.
                        let pool = unsafe { string(child.pool_name) };
                        // SAFETY: as above.
                        let name = unsafe { string(child.image_name) };
                        format!("{pool}/{name}")
                    });
                    let names = names.collect();
                    let free = self.calls.rbd_linked_image_spec_list_cleanup;
                    // SAFETY: what was filled is given back once.
                    unsafe { free(children.as_mut_ptr(), count) };
                    return Ok(names);
                }
                Err(error) if error.errno == libc::ERANGE && places < LIST_MAX => {
                    places = count.max(places.saturating_mul(2)).min(LIST_MAX);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes an image that begins with the data of a snapshot of this one, which has the name `own`, and shares that
    /// until it changes.
    ///
    /// # Errors
    ///
    /// There is no such snapshot (`ENOENT`), an image of this name (`EEXIST`), the user must not make it (`EPERM`), or
    /// another image has the name `own` (`ESTALE`).
    pub fn clone_to(
        &self,
        (own, snapshot): (&str, &str),
        pool: &Pool,
        name: &str,
    ) -> Result<(), CallError> {
        // The library finds the image by its name alone.
        if self.id_named(own)?.as_deref() != Some(self.id()) {
            return Err(CallError {
                call: "rbd_clone3",
                errno: libc::ESTALE,
            });
        }
        let (own, snapshot, name) = (text(own)?, text(snapshot)?, text(name)?);
        let mut options = ptr::null_mut();
        // SAFETY: the options are ours to fill.
        unsafe { (self.calls.rbd_image_options_create)(&raw mut options) };
        let set = self.calls.rbd_image_options_set_uint64;
        // SAFETY: the options were made just now.
        let answer = unsafe { set(options, CLONE_FORMAT, CLONE_FORMAT_2) };
        let set = self.check("rbd_image_options_set_uint64", answer);
        let cloned = set.and_then(|_| {
            let clone = self.calls.rbd_clone3;
            let (from, to) = (self.pool.handle, pool.handle);
            let (own, snapshot, name) = (own.as_ptr(), snapshot.as_ptr(), name.as_ptr());
            // SAFETY: both pools are open, the names strings of C, the options made above.
            let answer = unsafe { clone(from, own, snapshot, to, name, options) };
            self.check("rbd_clone3", answer)
        });
        // SAFETY: nobody has them any more.
        unsafe { (self.calls.rbd_image_options_destroy)(options) };
        cloned.map(drop)
    }

    /// Another pool of the cluster of this image.
    ///
    /// # Errors
    ///
    /// As [`crate::Cluster::pool`].
    pub fn other_pool(&self, name: &str, namespace: &str) -> Result<Pool, CallError> {
        self.pool.cluster.pool(name, namespace)
    }
}

fn pass(progress: &Progress<'_>) -> (ProgressCallback, *mut c_void) {
    (report, ptr::from_ref(progress).cast_mut().cast())
}

/// The library's callback for how far something has come.
unsafe extern "C" fn report(done: u64, all: u64, progress: *mut c_void) -> c_int {
    // SAFETY: it is what `pass` gave, whose caller waits for the end of the call; it may be used by several threads.
    let progress = unsafe { &*progress.cast::<Progress<'_>>() };
    match progress(done, all) {
        true => 0,
        false => -libc::ECANCELED,
    }
}
