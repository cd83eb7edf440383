//! An open image.

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::ops::Range;
use std::ptr;

use memory::{Buffer, Payload};

use crate::CallError;
use crate::calls::{Calls, Handle, Setting, Watcher};
use crate::cluster::{Cluster, Pool, pointer, string, text, until_nul};
use crate::completion::{Begun, Completion, Lent, begin};
use crate::own::{self, Owner};

/// Of `rbd_get_features`: an image that one client at a time may write.
const EXCLUSIVE_LOCK: u64 = 1 << 2;
/// Of `rbd_get_features`: which objects there are, and which have changed since the last snapshot, is known without
/// looking at them.
const FAST_DIFF: u64 = 1 << 4;
/// Of `rbd_get_flags`: that is not so now, as what is known of the objects, or of their changes, does not hold.
const INVALID: u64 = 1 << 0 | 1 << 1;
/// Of `rbd_lock_acquire`: the lock is kept until it is released.
const LOCK_EXCLUSIVE: c_int = 0;
/// Of `rbd_aio_write_zeroes`: the zeros take their space.
const THICK: c_int = 1;
/// More entries are never asked for.
const LIST_MAX: usize = 1024;
/// The room for a text of the metadata that is offered first, and the most.
const METADATA_BYTES: usize = 4 << 10;
const METADATA_BYTES_MAX: usize = 16 << 20;

/// What an image is opened for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Reading and writing.
    Write,
    /// Reading alone, of a snapshot or of what there is now. The image is watched nevertheless, so that the library
    /// learns of changes: where the user may not, it does not learn of them.
    Read {
        /// The name of the snapshot.
        snapshot: Option<String>,
    },
}

/// Who has the exclusive lock of an image.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Lock {
    /// Nobody, or the image has no such lock.
    Free,
    /// A connection of this process, which may have ended.
    Own {
        /// It is the one that the image is open over.
        is_this: bool,
        /// As Ceph writes it.
        address: String,
    },
    /// A client of another process.
    Held {
        /// Which.
        holder: Holder,
        /// It watches the image: it is there, or has been until some seconds ago.
        is_alive: bool,
    },
}

/// A client of another process that has the exclusive lock of an image: its address, as Ceph writes it. Only
/// [`Image::lock`] makes one, so the lock of an own client cannot be broken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Holder(String);

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A function that opens an image.
type Open = unsafe extern "C" fn(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;

/// An open image. It is closed when it is dropped, which waits for its requests: not on a thread of the library.
pub struct Image {
    pub(crate) calls: &'static Calls,
    pub(crate) handle: Handle,
    pub(crate) id: String,
    // After the handle is closed.
    pub(crate) pool: Pool,
}

// SAFETY: librbd may be called from any thread, and its handles belong to none.
unsafe impl Send for Image {}
// SAFETY: as above; its functions take the locks that they need.
unsafe impl Sync for Image {}

impl Image {
    /// Opens the image that has a name. Blocks.
    ///
    /// # Errors
    ///
    /// There is no such image or snapshot (`ENOENT`), or the user must not use it (`EPERM`).
    pub fn open(pool: Pool, name: &str, mode: &Mode) -> Result<Self, CallError> {
        let calls = pool.cluster.calls;
        let open = (calls.rbd_open, "rbd_open");
        let read = (calls.rbd_open_read_only, "rbd_open_read_only");
        let mut image = Self::open_with(pool, name, mode, [open, read])?;
        image.id = image.find_id()?;
        Ok(image)
    }

    /// Opens the image with an identity, whatever its name is. Blocks.
    ///
    /// # Errors
    ///
    /// As [`Image::open`].
    pub fn open_by_id(pool: Pool, id: &str, mode: &Mode) -> Result<Self, CallError> {
        let calls = pool.cluster.calls;
        let open = (calls.rbd_open_by_id, "rbd_open_by_id");
        let read = (calls.rbd_open_by_id_read_only, "rbd_open_by_id_read_only");
        let mut image = Self::open_with(pool, id, mode, [open, read])?;
        image.id = id.to_owned();
        Ok(image)
    }

    fn open_with(
        pool: Pool,
        which: &str,
        mode: &Mode,
        [open, read]: [(Open, &'static str); 2],
    ) -> Result<Self, CallError> {
        let which = text(which)?;
        let snapshot = match mode {
            Mode::Write => None,
            Mode::Read { snapshot } => snapshot.as_deref().map(text).transpose()?,
        };
        let mut handle = ptr::null_mut();
        let mut call = |(function, call): (Open, &'static str)| {
            let snapshot = pointer(snapshot.as_ref());
            // SAFETY: the pool is open, the texts strings of C or null, the handle ours to fill.
            let answer =
                unsafe { function(pool.handle, which.as_ptr(), &raw mut handle, snapshot) };
            pool.cluster.check(call, answer).map(drop)
        };
        match call(open) {
            Err(error)
                if *mode != Mode::Write
                    && matches!(error.errno, libc::EPERM | libc::EACCES | libc::EROFS) =>
            {
                call(read)?;
            }
            opened => opened?,
        }
        Ok(Self {
            calls: pool.cluster.calls,
            handle,
            id: String::new(),
            pool,
        })
    }

    /// The image as it was at a snapshot, to look at: it is only read, and nobody learns of it. Blocks.
    ///
    /// # Errors
    ///
    /// There is no such snapshot (`ENOENT`), or the cluster does not say.
    pub fn at_snapshot(&self, snapshot: &str) -> Result<Self, CallError> {
        let mode = Mode::Read {
            snapshot: Some(snapshot.to_owned()),
        };
        let open = self.calls.rbd_open_by_id_read_only;
        let open = (open, "rbd_open_by_id_read_only");
        let mut image = Self::open_with(self.pool.again()?, &self.id, &mode, [open, open])?;
        image.id.clone_from(&self.id);
        Ok(image)
    }

    pub(crate) fn check(&self, call: &'static str, answer: i32) -> Result<u32, CallError> {
        self.pool.cluster.check(call, answer)
    }

    /// The connection that it is open over.
    pub fn cluster(&self) -> &Cluster {
        &self.pool.cluster
    }

    /// The identity of the image that has this name now, in the pool of this one. Blocks.
    ///
    /// # Errors
    ///
    /// The cluster does not say.
    pub fn id_named(&self, name: &str) -> Result<Option<String>, CallError> {
        self.pool.image_id(name)
    }

    fn number(
        &self,
        call: &'static str,
        function: unsafe extern "C" fn(Handle, *mut u64) -> c_int,
    ) -> Result<u64, CallError> {
        let mut number = 0;
        // SAFETY: the image is open, the number ours to fill.
        let answer = unsafe { function(self.handle, &raw mut number) };
        self.check(call, answer).map(|_| number)
    }

    /// Its size in bytes. May wait for the cluster.
    ///
    /// # Errors
    ///
    /// The cluster does not say.
    pub fn size_bytes(&self) -> Result<u64, CallError> {
        self.number("rbd_get_size", self.calls.rbd_get_size)
    }

    /// Makes it larger. Blocks. Never makes it smaller.
    ///
    /// # Errors
    ///
    /// It is larger already (`EINVAL`), is only read (`EROFS`), or the cluster does not.
    pub fn grow(&self, size_bytes: u64) -> Result<(), CallError> {
        let resize = self.calls.rbd_resize2;
        // SAFETY: the image is open; the callback looks at nothing.
        let answer = unsafe { resize(self.handle, size_bytes, false, ignore, ptr::null_mut()) };
        self.check("rbd_resize2", answer).map(drop)
    }

    /// A text of its metadata, if there is one. Blocks.
    ///
    /// # Errors
    ///
    /// The cluster does not say.
    pub fn metadata(&self, key: &str) -> Result<Option<String>, CallError> {
        let key = text(key)?;
        let mut room = METADATA_BYTES;
        loop {
            let mut bytes = vec![0_u8; room];
            // SAFETY: the image is open, the key a string of C; the library writes no more than the length says.
            let answer = unsafe {
                (self.calls.rbd_metadata_get)(
                    self.handle,
                    key.as_ptr(),
                    bytes.as_mut_ptr().cast(),
                    &raw mut room,
                )
            };
            match self.check("rbd_metadata_get", answer) {
                Ok(_) => return Ok(Some(until_nul(&bytes))),
                Err(error) if error.errno == libc::ENOENT => return Ok(None),
                // Somebody may make it longer meanwhile.
                Err(error)
                    if error.errno == libc::ERANGE
                        && room > bytes.len()
                        && room <= METADATA_BYTES_MAX => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sets a text of its metadata. Blocks until it is on stable storage.
    ///
    /// # Errors
    ///
    /// It has a NUL, the user must not (`EPERM`), the image is only read (`EROFS`), or the cluster does not.
    pub fn set_metadata(&self, key: &str, value: &str) -> Result<(), CallError> {
        let (key, value) = (text(key)?, text(value)?);
        let set = self.calls.rbd_metadata_set;
        // SAFETY: the image is open, both are strings of C.
        let answer = unsafe { set(self.handle, key.as_ptr(), value.as_ptr()) };
        self.check("rbd_metadata_set", answer).map(drop)
    }

    /// How many bytes lie in one object before the next.
    ///
    /// # Errors
    ///
    /// The library does not say.
    pub fn stripe_unit_bytes(&self) -> Result<u64, CallError> {
        self.number("rbd_get_stripe_unit", self.calls.rbd_get_stripe_unit)
    }

    /// Whether the image has a lock that one client at a time may have.
    ///
    /// # Errors
    ///
    /// The library does not say.
    pub fn has_exclusive_lock(&self) -> Result<bool, CallError> {
        let features = self.number("rbd_get_features", self.calls.rbd_get_features)?;
        Ok(features & EXCLUSIVE_LOCK != 0)
    }

    /// Its identity in the pool.
    pub fn id(&self) -> &str {
        &self.id
    }

    fn find_id(&self) -> Result<String, CallError> {
        let mut bytes = [0_u8; 128];
        // SAFETY: the image is open; the library writes no more than the length says.
        let answer =
            unsafe { (self.calls.rbd_get_id)(self.handle, bytes.as_mut_ptr().cast(), bytes.len()) };
        self.check("rbd_get_id", answer)?;
        Ok(until_nul(&bytes))
    }

    /// Whether a setting of the pool or the image turns the cache on that the connection has turned off.
    ///
    /// # Errors
    ///
    /// The cluster does not say.
    pub fn has_cache(&self) -> Result<bool, CallError> {
        const NONE: Setting = Setting {
            name: ptr::null_mut(),
            value: ptr::null_mut(),
            source: 0,
        };
        let mut settings = vec![NONE; LIST_MAX];
        let mut count = c_int::try_from(settings.len()).unwrap_or(c_int::MAX);
        // SAFETY: the image is open; the library fills no more than the count says, and sets it to what it filled.
        let answer = unsafe {
            (self.calls.rbd_config_image_list)(self.handle, settings.as_mut_ptr(), &raw mut count)
        };
        self.check("rbd_config_image_list", answer)?;
        let filled = usize::try_from(count).unwrap_or_default();
        let is_on = settings.iter().take(filled).any(|setting| {
            // SAFETY: a string of C or null until it is given back below.
            let name = unsafe { string(setting.name) };
            // SAFETY: as above.
            let value = unsafe { string(setting.value) };
            keeps_writes(&name, &value)
        });
        // SAFETY: what was filled is given back once.
        unsafe { (self.calls.rbd_config_image_list_cleanup)(settings.as_mut_ptr(), count) };
        Ok(is_on)
    }

    /// Who has the exclusive lock.
    ///
    /// # Errors
    ///
    /// The cluster does not say.
    pub fn lock(&self) -> Result<Lock, CallError> {
        if !self.has_exclusive_lock()? {
            return Ok(Lock::Free);
        }
        let mut owner: *mut c_char = ptr::null_mut();
        let (mut mode, mut count) = (0, 1);
        // SAFETY: the image is open; the library fills one entry, and sets the count to what it filled.
        let answer = unsafe {
            (self.calls.rbd_lock_get_owners)(
                self.handle,
                &raw mut mode,
                &raw mut owner,
                &raw mut count,
            )
        };
        match self.check("rbd_lock_get_owners", answer) {
            Ok(_) if count == 0 => return Ok(Lock::Free),
            Ok(_) => {}
            Err(error) if error.errno == libc::ENOENT => return Ok(Lock::Free),
            Err(error) => return Err(error),
        }
        // SAFETY: it is a string of C until it is given back below.
        let address = unsafe { string(owner) };
        // SAFETY: what was filled is given back once.
        unsafe { (self.calls.rbd_lock_get_owners_cleanup)(&raw mut owner, count) };
        match own::owner_of(&address) {
            Owner::InUse | Owner::Ended => Ok(Lock::Own {
                is_this: own::bare(&address) == self.cluster().address(),
                address,
            }),
            Owner::Foreign => Ok(Lock::Held {
                is_alive: self.watchers()?.contains(&address),
                holder: Holder(address),
            }),
        }
    }

    /// The addresses of those who watch the image.
    fn watchers(&self) -> Result<Vec<String>, CallError> {
        const NONE: Watcher = Watcher {
            address: ptr::null_mut(),
            id: 0,
            cookie: 0,
        };
        let mut watchers = vec![NONE; LIST_MAX];
        let mut count = watchers.len();
        // SAFETY: the image is open; the library fills no more than the count says, and sets it to what it filled.
        let answer = unsafe {
            (self.calls.rbd_watchers_list)(self.handle, watchers.as_mut_ptr(), &raw mut count)
        };
        self.check("rbd_watchers_list", answer)?;
        let filled = watchers.iter().take(count);
        // SAFETY: each is a string of C until it is given back below.
        let addresses = filled.map(|one| unsafe { string(one.address) }).collect();
        // SAFETY: what was filled is given back once.
        unsafe { (self.calls.rbd_watchers_list_cleanup)(watchers.as_mut_ptr(), count) };
        Ok(addresses)
    }

    /// Takes the exclusive lock and keeps it until the image is closed. A lock of a client that is gone is broken, and
    /// the client blocklisted; never one of a connection of this process. Blocks.
    ///
    /// # Errors
    ///
    /// Another client has it and keeps it (`EROFS`), the image has a lock of another kind (`EBUSY`), another connection
    /// of this process has it (`EALREADY`), or the user must not break that of a client that is gone (`EPERM`).
    pub fn acquire_lock(&self) -> Result<(), CallError> {
        // The library may take a client for gone that is not: its watch can end before it does.
        if let Lock::Own { is_this, address } = self.lock()?
            && !is_this
            && own::owner_of(&address) == Owner::InUse
        {
            return Err(CallError {
                call: "rbd_lock_acquire",
                errno: libc::EALREADY,
            });
        }
        // SAFETY: the image is open.
        let answer = unsafe { (self.calls.rbd_lock_acquire)(self.handle, LOCK_EXCLUSIVE) };
        self.check("rbd_lock_acquire", answer).map(drop)
    }

    /// Takes the exclusive lock from a client of another process. From then on the cluster refuses what that client
    /// sends, for any image. Blocks.
    ///
    /// # Errors
    ///
    /// Nobody has the lock (`ENOENT`), or another client by now (`EBUSY`); the user must not (`EPERM`).
    pub fn break_lock(&self, holder: &Holder) -> Result<(), CallError> {
        let address = text(&holder.0)?;
        let break_lock = self.calls.rbd_lock_break;
        // SAFETY: the image is open, the address a string of C.
        let answer = unsafe { break_lock(self.handle, LOCK_EXCLUSIVE, address.as_ptr()) };
        self.check("rbd_lock_break", answer).map(drop)
    }

    /// Calls `changed` whenever something about the image has changed, on a thread of the library, until the watch is
    /// ended.
    ///
    /// # Errors
    ///
    /// The library cannot watch.
    pub fn watch(&self, changed: impl Fn() + Send + Sync + 'static) -> Result<Watch, CallError> {
        let changed: Box<Changed> = Box::new(Box::new(changed));
        let changed = Box::into_raw(changed);
        let mut number = 0;
        // SAFETY: the image is open; what the callback gets lives until the watch has ended.
        let answer = unsafe {
            (self.calls.rbd_update_watch)(self.handle, &raw mut number, notify, changed.cast())
        };
        match self.check("rbd_update_watch", answer) {
            Ok(_) => Ok(Watch { number, changed }),
            Err(error) => {
                // SAFETY: the library did not take it.
                drop(unsafe { Box::from_raw(changed) });
                Err(error)
            }
        }
    }

    /// Ends a watch of this image. Blocks until no callback runs.
    pub fn end_watch(&self, watch: Watch) {
        // SAFETY: the image is open.
        let answer = unsafe { (self.calls.rbd_update_unwatch)(self.handle, watch.number) };
        if self.check("rbd_update_unwatch", answer).is_ok() {
            // SAFETY: the library has ended the watch and calls it no more. Otherwise it is leaked.
            drop(unsafe { Box::from_raw(watch.changed) });
        }
    }

    /// The parts of a range that hold data, in order, at most so many. Blocks.
    ///
    /// # Errors
    ///
    /// The cluster does not say.
    pub fn mapped(
        &self,
        range: Range<u64>,
        count_max: usize,
    ) -> Result<Vec<Range<u64>>, CallError> {
        let mut walk = Walk {
            found: Vec::new(),
            count_max,
        };
        let length = range.end.saturating_sub(range.start);
        // Parts as small as they are known, and what an image below this one has, too.
        let (with_parent, whole_objects) = (1, 0);
        // SAFETY: the image is open; the walk lives until the call returns, which is when the callbacks have ended.
        let answer = unsafe {
            (self.calls.rbd_diff_iterate2)(
                self.handle,
                ptr::null(),
                range.start,
                length,
                with_parent,
                whole_objects,
                note,
                (&raw mut walk).cast(),
            )
        };
        match self.check("rbd_diff_iterate2", answer) {
            // The walk was ended because it found enough.
            Err(error) if walk.found.len() <= count_max => Err(error),
            Ok(_) | Err(_) => {
                walk.found.truncate(count_max);
                Ok(walk.found)
            }
        }
    }

    /// Whether it is known without a look at each object which there are.
    ///
    /// # Errors
    ///
    /// The library does not say.
    pub fn knows_objects(&self) -> Result<bool, CallError> {
        let features = self.number("rbd_get_features", self.calls.rbd_get_features)?;
        let flags = self.number("rbd_get_flags", self.calls.rbd_get_flags)?;
        Ok(features & FAST_DIFF != 0 && flags & INVALID == 0)
    }

    /// How many bytes the objects have in a range that are this image's own, those that are as in a snapshot left out.
    /// An object counts as a whole. What an image below this one has does not count. Blocks, unless `goes_on`, which is
    /// called for each object that there is, ends it.
    ///
    /// # Errors
    ///
    /// There is no such snapshot (`ENOENT`), it was ended (`ECANCELED`), or the cluster does not say.
    pub fn own_bytes(
        &self,
        since: Option<&str>,
        range: Range<u64>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<u64, CallError> {
        let since = since.map(text).transpose()?;
        let mut sum = Sum { bytes: 0, goes_on };
        let length = range.end.saturating_sub(range.start);
        let (with_parent, whole_objects) = (0, 1);
        // SAFETY: the image is open, the snapshot a string of C or null; the sum lives until the call returns, which is
        // when the callbacks have ended.
        let answer = unsafe {
            (self.calls.rbd_diff_iterate2)(
                self.handle,
                pointer(since.as_ref()),
                range.start,
                length,
                with_parent,
                whole_objects,
                add,
                (&raw mut sum).cast(),
            )
        };
        self.check("rbd_diff_iterate2", answer)?;
        Ok(sum.bytes)
    }

    // ---- requests ----------------------------------------------------------------------------

    /// Reads into the whole buffer.
    ///
    /// # Errors
    ///
    /// The library does not take the request; `done` is not called.
    pub fn read(
        &self,
        offset: u64,
        mut buffer: Buffer,
        done: impl FnOnce(Completion) + Send + 'static,
    ) -> Result<Lent<Buffer>, CallError> {
        let begun = begin(self.calls, done)?;
        let (address, len) = (buffer.as_mut_ptr(), buffer.len());
        let loan = memory::Loan::new(buffer);
        // SAFETY: the image is open; the memory is lent until the completion.
        let answer = unsafe {
            (self.calls.rbd_aio_read)(self.handle, offset, len, address.cast(), begun.handle)
        };
        self.lent(begun, "rbd_aio_read", answer, loan)
    }

    /// Writes the data, which must not be memory that others write.
    ///
    /// # Errors
    ///
    /// The library does not take the request; `done` is not called.
    pub fn write(
        &self,
        offset: u64,
        data: Payload,
        done: impl FnOnce(Completion) + Send + 'static,
    ) -> Result<Lent<Payload>, CallError> {
        let begun = begin(self.calls, done)?;
        let (address, len) = (data.address().as_ptr(), data.len());
        let loan = memory::Loan::new(data);
        // SAFETY: the image is open; the memory is lent until the completion.
        let answer = unsafe {
            (self.calls.rbd_aio_write)(self.handle, offset, len, address.cast(), begun.handle)
        };
        self.lent(begun, "rbd_aio_write", answer, loan)
    }

    /// Compares the first half of the data with what is there, and writes the second half if it is the same, in one
    /// step. Must not cross a multiple of the stripe unit. Other data ends it with `EILSEQ`.
    ///
    /// # Errors
    ///
    /// The library does not take the request; `done` is not called.
    pub fn compare_and_write(
        &self,
        offset: u64,
        data: Payload,
        done: impl FnOnce(Completion) + Send + 'static,
    ) -> Result<Lent<Payload>, CallError> {
        let begun = begin(self.calls, done)?;
        let (old, half) = (data.address().as_ptr(), data.len() / 2);
        let loan = memory::Loan::new(data);
        // SAFETY: the second half begins inside the data.
        let new = unsafe { old.add(half) };
        let function = self.calls.rbd_aio_compare_and_write;
        // SAFETY: the image is open; the memory is lent until the completion, and the ticket lives as long.
        let answer = unsafe {
            function(
                self.handle,
                offset,
                half,
                old.cast(),
                new.cast(),
                begun.handle,
                begun.mismatch,
                0,
            )
        };
        self.lent(begun, "rbd_aio_compare_and_write", answer, loan)
    }

    /// Makes the range read zeros, with or without its space. Answers the number of the request.
    ///
    /// # Errors
    ///
    /// The library does not take the request; `done` is not called.
    pub fn write_zeroes(
        &self,
        range: Range<u64>,
        keeps_space: bool,
        done: impl FnOnce(Completion) + Send + 'static,
    ) -> Result<u64, CallError> {
        let begun = begin(self.calls, done)?;
        let length = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let flags = if keeps_space { THICK } else { 0 };
        let function = self.calls.rbd_aio_write_zeroes;
        // SAFETY: the image is open.
        let answer = unsafe { function(self.handle, range.start, length, begun.handle, flags, 0) };
        begun.taken(self.calls, "rbd_aio_write_zeroes", answer)
    }

    /// Has all writes answered before on stable storage. Answers the number of the request.
    ///
    /// # Errors
    ///
    /// The library does not take the request; `done` is not called.
    pub fn flush(&self, done: impl FnOnce(Completion) + Send + 'static) -> Result<u64, CallError> {
        let begun = begin(self.calls, done)?;
        // SAFETY: the image is open.
        let answer = unsafe { (self.calls.rbd_aio_flush)(self.handle, begun.handle) };
        begun.taken(self.calls, "rbd_aio_flush", answer)
    }

    fn lent<T: memory::Lendable>(
        &self,
        begun: Begun,
        call: &'static str,
        answer: i32,
        loan: memory::Loan<T>,
    ) -> Result<Lent<T>, CallError> {
        match begun.taken(self.calls, call, answer) {
            Ok(number) => Ok(Lent { number, loan }),
            Err(error) => {
                drop(loan.end());
                Err(error)
            }
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: nobody has the handle any more. It is closed whatever is answered.
        let _answer = unsafe { (self.calls.rbd_close)(self.handle) };
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").finish_non_exhaustive()
    }
}

type Changed = Box<dyn Fn() + Send + Sync>;

/// A watch of an image. What is not ended by [`Image::end_watch`] is leaked.
#[derive(Debug)]
pub struct Watch {
    number: u64,
    changed: *mut Changed,
}

// SAFETY: what it refers to may be sent, and only the library and the end of the watch use it.
unsafe impl Send for Watch {}

/// The library's callback for a watch.
unsafe extern "C" fn notify(changed: *mut c_void) {
    // SAFETY: it is what `watch` gave, which lives until the watch has ended.
    let changed = unsafe { &*changed.cast::<Changed>() };
    changed();
}

/// The library's callback for the progress of a call.
unsafe extern "C" fn ignore(_: u64, _: u64, _: *mut c_void) -> c_int {
    0
}

/// Whether a setting has the library answer writes that are not in the cluster. It is as somebody wrote it, so all that
/// is not one of the words for no counts as yes.
fn keeps_writes(name: &str, value: &str) -> bool {
    let value = value.trim().to_ascii_lowercase();
    match name {
        "rbd_cache" => !matches!(value.as_str(), "false" | "0" | "no" | "off"),
        "rbd_persistent_cache_mode" => value != "disabled",
        _ => false,
    }
}

struct Walk {
    found: Vec<Range<u64>>,
    count_max: usize,
}

/// The library's callback for a part of an image.
unsafe extern "C" fn note(offset: u64, len: usize, is_data: c_int, walk: *mut c_void) -> c_int {
    // SAFETY: it is the walk of `mapped`, which waits for the end of the call.
    let walk = unsafe { &mut *walk.cast::<Walk>() };
    if is_data == 0 {
        return 0;
    }
    let end = offset.saturating_add(len as u64);
    match walk.found.last_mut() {
        Some(last) if last.end >= offset => last.end = last.end.max(end),
        Some(_) | None => walk.found.push(offset..end),
    }
    match walk.found.len() > walk.count_max {
        true => -libc::ECANCELED,
        false => 0,
    }
}

struct Sum<'a> {
    bytes: u64,
    goes_on: &'a dyn Fn() -> bool,
}

/// The library's callback for a part of an image that is counted.
unsafe extern "C" fn add(_: u64, len: usize, is_data: c_int, sum: *mut c_void) -> c_int {
    // SAFETY: it is the sum of `own_bytes`, which waits for the end of the call.
    let sum = unsafe { &mut *sum.cast::<Sum<'_>>() };
    if is_data != 0 {
        sum.bytes = sum.bytes.saturating_add(len as u64);
    }
    match (sum.goes_on)() {
        true => 0,
        false => -libc::ECANCELED,
    }
}
