//! System calls that may wait for a file system without end, each in a process of its own. The calling thread waits for
//! the end of that process, as the end of its own process interrupts; in the call itself it would keep its process from
//! ending.

use std::ffi::{CStr, CString, c_int, c_void};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

use rustix::fs::{AtFlags, CWD, RenameFlags, StatxFlags, fdatasync, renameat_with, statfs, statx};
use rustix::io::Errno;
use rustix::process::Pid;

use super::child::{Child, end_with};
use super::closer::wait_for_closers;

#[derive(Clone, Copy)]
enum Call<'a> {
    /// The attributes of paths, past a cache, and the room around them.
    Look(&'a [CString]),
    Exchange(&'a CStr, &'a CStr),
    Sync(BorrowedFd<'a>),
}

/// The number of no error.
const PENDING: i32 = -1;

struct Asked<'a> {
    call: Call<'a>,
    parent: Pid,
    /// An error number, 0, or [`PENDING`].
    outcome: AtomicI32,
}

/// Waits until the file systems of paths have answered, whatever they say: a thread that asks one next most likely does
/// not wait without end, which would keep the process from ending. This wait does not. From then on the thread also
/// waits for the files of stores that it closes, and the locks on them.
///
/// # Errors
///
/// There is no process to be had that could ask, or it was killed.
pub fn wait_for<'a>(paths: impl Iterator<Item = &'a Path>) -> io::Result<()> {
    wait_for_closers();
    // What is no path is on no file system.
    let names = paths.flat_map(|path| CString::new(path.as_os_str().as_bytes()));
    make(Call::Look(&Vec::from_iter(names))).map(drop)
}

/// Exchanges what is at two paths. A file system that hangs does not keep the process from ending, after which the
/// exchange may still come.
///
/// # Errors
///
/// The system refuses, or the process that did it was killed.
pub fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    let name = |path: &Path| CString::new(path.as_os_str().as_bytes());
    Ok(make(Call::Exchange(&name(one)?, &name(other)?))??)
}

/// Makes what was written to a file durable.
pub(crate) fn sync(file: BorrowedFd<'_>) -> Result<(), Errno> {
    make(Call::Sync(file)).unwrap_or(Err(Errno::IO))
}

fn make(call: Call<'_>) -> io::Result<Result<(), Errno>> {
    let asked = Asked {
        call,
        parent: rustix::process::getpid(),
        outcome: AtomicI32::new(PENDING),
    };
    let argument = ptr::from_ref(&asked).cast_mut().cast();
    // SAFETY: `enter` keeps to the rules of children, and this function does not return before the child has ended.
    unsafe { Child::start(enter, argument) }?.wait();
    match asked.outcome.load(SeqCst) {
        PENDING => Err(io::Error::other(
            "the process that asks a file system was killed",
        )),
        0 => Ok(Ok(())),
        number => Ok(Err(Errno::from_raw_os_error(number))),
    }
}

extern "C" fn enter(argument: *mut c_void) -> c_int {
    // SAFETY: the thread that has started this process keeps it until this one has ended, and writes nothing to it.
    if let Some(asked) = unsafe { argument.cast::<Asked<'_>>().as_ref() }
        && end_with(asked.parent, c"tarn-call")
    {
        let outcome = asked.call.make();
        let number = outcome.map_or_else(Errno::raw_os_error, |()| 0);
        asked.outcome.store(number, SeqCst);
    }
    0
}

impl Call<'_> {
    fn make(self) -> Result<(), Errno> {
        match self {
            Self::Look(paths) => {
                for path in paths {
                    let flags = AtFlags::STATX_FORCE_SYNC;
                    let _attributes = statx(CWD, path, flags, StatxFlags::BASIC_STATS);
                    let _room = statfs(path);
                }
                Ok(())
            }
            Self::Exchange(one, other) => {
                renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)
            }
            Self::Sync(file) => fdatasync(file),
        }
    }
}
