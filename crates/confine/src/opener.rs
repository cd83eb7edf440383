//! All that a process gives up which makes sockets of frames for another one, and does nothing else: what is left is
//! the right to make them (CAP_NET_RAW), one open file and the few system calls of a table. Any other call ends it.
//!
//! No file is in reach. Where the kernel has no Landlock, that holds because no call opens one.
#![expect(
    unsafe_code,
    reason = "closing descriptors by number, and signals of the whole process"
)]

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use rustix::process::{Signal, set_parent_process_death_signal};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use crate::account::Account;
use crate::calls::CallsError;
use crate::files::{self, FilesError};
use crate::{Enforced, calls, privileges};

/// The descriptor that is left: the standard input, where the socket to the other process is.
pub const SOCKET: RawFd = 0;

/// Why it was not given up.
#[derive(Debug, thiserror::Error)]
pub enum OpenerError {
    /// The kernel refuses a step.
    #[error("cannot {step}")]
    Step {
        /// The step.
        step: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Files.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// System calls.
    #[error(transparent)]
    Calls(#[from] CallsError),
    /// Without that, it must not be.
    #[error("this kernel does not filter system calls (seccomp)")]
    Unfiltered,
}

/// Becomes the user, if there is one, and gives everything else up. The process has this name from then on, ends with
/// the thread that has started it, and by no signal that can be held back. To be called while there is no other thread.
///
/// # Errors
///
/// The kernel refuses, or cannot filter system calls.
pub fn give_up(account: Option<&Account>, name: &std::ffi::CStr) -> Result<(), OpenerError> {
    let failed = |step| move |source: io::Error| OpenerError::Step { step, source };
    let step =
        |step, result: rustix::io::Result<()>| result.map_err(|error| failed(step)(error.into()));
    step("take its name", rustix::thread::set_name(name))?;
    hold_signals().map_err(failed("hold signals back"))?;
    if let Some(account) = account {
        privileges::become_user(account).map_err(failed("become the user"))?;
    }
    privileges::keep_frames().map_err(failed("keep CAP_NET_RAW alone"))?;
    privileges::no_new_privileges().map_err(failed("set no_new_privs"))?;
    // Not before: it ends with a change of the user.
    let with_parent = set_parent_process_death_signal(Some(Signal::KILL));
    step("end with its parent", with_parent)?;
    files::restrict(&[], Some(&[]))?;
    close_all_but(SOCKET).map_err(failed("close files"))?;
    match restrict_calls()? {
        Enforced::Fully | Enforced::Partly => Ok(()),
        Enforced::Not => Err(OpenerError::Unfiltered),
    }
}

/// A service manager sends the signal that ends a service to all of its processes, and a terminal to all of a group:
/// this one is needed until the other has ended.
fn hold_signals() -> io::Result<()> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is there to be filled.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set was filled.
    let held = unsafe { libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut()) };
    match held {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Also the standard output streams, so that nobody waits for this process to close them.
fn close_all_but(kept: RawFd) -> io::Result<()> {
    let first = kept + 1;
    // SAFETY: the other descriptors are not used any more; those of the standard streams are not owned by anybody.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    match closed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn restrict_calls() -> Result<Enforced, CallsError> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else {
        return Ok(Enforced::Not);
    };
    calls::apply(&[filter(arch)?])
}

/// An argument: its position and its value.
type Argument = (u8, libc::c_int);

/// The calls that are left, each with what its arguments must be.
const LEFT: &[(libc::c_long, &[Argument])] = &[
    (libc::SYS_recvfrom, &[(0, SOCKET)]),
    (libc::SYS_sendmsg, &[(0, SOCKET)]),
    (
        libc::SYS_socket,
        &[
            (0, libc::AF_PACKET),
            (1, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC),
            (2, 0),
        ],
    ),
    (
        libc::SYS_setsockopt,
        &[(1, libc::SOL_SOCKET), (2, libc::SO_ATTACH_FILTER)],
    ),
    (
        libc::SYS_setsockopt,
        &[(1, libc::SOL_SOCKET), (2, libc::SO_LOCK_FILTER)],
    ),
    (libc::SYS_close, &[]),
    (libc::SYS_exit_group, &[]),
    // What an allocator gives back of the memory that the start has used.
    (libc::SYS_brk, &[]),
    (libc::SYS_munmap, &[]),
    (libc::SYS_madvise, &[]),
];

fn filter(arch: TargetArch) -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<libc::c_long, Vec<SeccompRule>> = BTreeMap::new();
    for (call, arguments) in LEFT {
        let conditions = arguments.iter().map(|(position, value)| {
            let value = u64::from(value.unsigned_abs());
            SeccompCondition::new(*position, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
        });
        let conditions = conditions.collect::<Result<Vec<_>, _>>()?;
        let of_call = rules.entry(*call).or_default();
        if !conditions.is_empty() {
            of_call.push(SeccompRule::new(conditions)?);
        }
    }
    let (refused, allowed) = (SeccompAction::KillProcess, SeccompAction::Allow);
    SeccompFilter::new(rules, refused, allowed, arch)?.try_into()
}
