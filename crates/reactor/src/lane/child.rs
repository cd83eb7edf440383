//! Processes that share the memory and the open files of this one.
//!
//! They are no threads: a system call that never ends does not keep this process from ending. What they run has no
//! thread-local storage of its own, so it must not allocate, panic, log or call the C library.

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getppid, set_parent_process_death_signal, waitpid,
};

const STACK_BYTES: usize = 128 * 1024;
/// Below it, for nobody to touch.
const GUARD_BYTES: usize = 64 * 1024;

/// Shares memory and open files, and is waited for like any child. With a copy of the open files it would have to close
/// it, now or at its end, and to close a file may wait for its store (`FUSE_FLUSH`, what NFS has not written yet): a
/// child would wait for the stores of others. The filter of system calls knows these flags.
const CLONE_FLAGS: c_int = libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD;

/// What a child runs.
pub(super) type Entry = extern "C" fn(*mut c_void) -> c_int;

/// A child, with the stack that it runs on.
#[derive(Debug)]
pub(super) struct Child {
    pid: Pid,
    stack: Stack,
}

/// How a child is.
#[derive(Debug)]
pub(super) enum State {
    Runs(Child),
    /// It has ended. Without a status where the process does not care for its children.
    Ended(Option<WaitStatus>),
}

impl Child {
    /// Starts a child. It is born with all signals blocked and never unblocks one.
    ///
    /// # Safety
    ///
    /// `entry` does only what the head of this file allows, and `argument` is what it expects and stays valid until
    /// the child was seen to have ended.
    pub(super) unsafe fn start(entry: Entry, argument: *mut c_void) -> io::Result<Self> {
        let stack = Stack::new()?;
        // SAFETY: the caller promises what `clone` needs; the stack is new.
        match unsafe { clone(entry, &stack, argument) } {
            Ok(pid) => Ok(Self { pid, stack }),
            Err(error) => {
                stack.free();
                Err(error)
            }
        }
    }

    pub(super) const fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for its end and frees its stack.
    pub(super) fn wait(self) {
        while let Err(Errno::INTR) = waitpid(Some(self.pid), WaitOptions::empty()) {}
        self.stack.free();
    }

    /// Looks whether it has ended, and frees its stack then.
    pub(super) fn look(self) -> State {
        match waitpid(Some(self.pid), WaitOptions::NOHANG) {
            Ok(None) | Err(Errno::INTR) => State::Runs(self),
            ended => {
                self.stack.free();
                State::Ended(ended.ok().flatten().map(|(_, status)| status))
            }
        }
    }
}

/// In a child, which gets this name: ends it with the thread that has started it. False when that process has ended.
pub(super) fn end_with(parent: Pid, name: &CStr) -> bool {
    let _unnamed = rustix::thread::set_name(name);
    let _left = set_parent_process_death_signal(Some(Signal::KILL));
    getppid() == Some(parent)
}

/// Not unmapped by itself: a child may still run on it.
#[derive(Debug)]
struct Stack {
    start: *mut c_void,
    /// With the guard pages.
    bytes: usize,
}

// SAFETY: it is the address of a mapping, which belongs to no thread.
unsafe impl Send for Stack {}

impl Stack {
    fn new() -> io::Result<Self> {
        let (access, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::STACK | MapFlags::NORESERVE,
        );
        let bytes = GUARD_BYTES + STACK_BYTES;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, flags) }?;
        let stack = Self { start, bytes };
        // SAFETY: these bytes are the low end of the mapping just made, which nobody uses yet.
        let guarded = unsafe { mprotect(start, GUARD_BYTES, MprotectFlags::empty()) };
        match guarded {
            Ok(()) => Ok(stack),
            Err(errno) => {
                stack.free();
                Err(errno.into())
            }
        }
    }

    fn top(&self) -> *mut c_void {
        self.start.wrapping_byte_add(self.bytes)
    }

    fn free(self) {
        // SAFETY: the mapping is ours, and no child runs on it: it was never started or has ended.
        let unmapped = unsafe { munmap(self.start, self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}

/// # Safety
///
/// As for [`Child::start`]; nobody else uses the stack until the child was seen to have ended.
unsafe fn clone(entry: Entry, stack: &Stack, argument: *mut c_void) -> io::Result<Pid> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is there to be filled.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first set was filled, the second is there to be written.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    // SAFETY: the stack stays until the child was seen to have ended; the caller promises the rest.
    let pid = unsafe { libc::clone(entry, stack.top(), CLONE_FLAGS, argument) };
    let error = io::Error::last_os_error();
    // SAFETY: the set was written by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    let pid = (pid > 0).then_some(pid).and_then(Pid::from_raw);
    pid.ok_or(error)
}
