//! Which system calls stay allowed (seccomp). Any other fails with "operation not permitted", and a line on
//! the standard error output names it; the process goes on, because those it serves need it to. Only a call
//! that is refused while all signals are blocked, as C libraries do when they start a program, ends it.
//!
//! It comes in two steps. [`restrict`] leaves the calls of a table; [`seal`] takes those away that only the
//! start makes: new rings, further filters, and, where nothing has to be reached later, connections and unix sockets.
//!
//! What a ring does is not a system call and is not filtered: the code that creates a ring restricts its operations.

mod table;
mod trap;

use std::io;

use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use crate::Enforced;

/// Why the filter is not in force.
#[derive(Debug, thiserror::Error)]
pub enum CallsError {
    /// The handler that logs refused calls cannot be installed.
    #[error("the signal of refused system calls cannot be caught")]
    Signal(#[source] io::Error),
    /// The filter cannot be built.
    #[error("the filter of system calls cannot be built")]
    Build(#[from] BackendError),
    /// The kernel refuses it.
    #[error("the kernel refuses the filter of system calls")]
    Kernel(#[from] seccompiler::Error),
}

/// Whether the process gives commands to SCSI devices.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Devices {
    /// It has none.
    None,
    /// It has some now (SG_IO).
    Some,
}

/// Restricts this process, all of its threads, to the calls of the table.
///
/// # Errors
///
/// The kernel refuses for another reason than not having the feature.
pub fn restrict(devices: Devices) -> Result<Enforced, CallsError> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else {
        return Ok(Enforced::Not);
    };
    trap::install().map_err(CallsError::Signal)?;
    apply(&[without_clone3(arch)?, of_table(arch, devices)?])
}

/// Whether the process connects to others after its start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Connections {
    /// It takes connections and makes none.
    Ended,
    /// It makes them again when they are lost.
    Kept,
}

/// Takes away, from all threads, what only the start needs: setting up rings, applying filters, and, if they have
/// ended, connecting any socket and making unix sockets. To be called once everything runs, after [`restrict`] was
/// enforced.
///
/// # Errors
///
/// The kernel refuses for another reason than not having the feature.
pub fn seal(connections: Connections) -> Result<Enforced, CallsError> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else {
        return Ok(Enforced::Not);
    };
    apply(&[without_what_starts(arch, connections)?])
}

pub(crate) fn apply(filters: &[BpfProgram]) -> Result<Enforced, CallsError> {
    for filter in filters {
        match seccompiler::apply_filter_all_threads(filter) {
            Ok(()) => {}
            Err(error) if is_missing(&error) => return Ok(Enforced::Not),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Enforced::Fully)
}

/// Spec: seccomp(2), errors.
fn is_missing(error: &seccompiler::Error) -> bool {
    match error {
        seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => matches!(
            error.raw_os_error(),
            Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP)
        ),
        seccompiler::Error::Backend(_)
        | seccompiler::Error::EmptyFilter
        | seccompiler::Error::ThreadSync(_) => false,
    }
}

/// The flags of clone3 are in memory, where no filter sees them. C libraries that find that it does not
/// exist take clone.
fn without_clone3(arch: TargetArch) -> Result<BpfProgram, BackendError> {
    let calls = [(libc::SYS_clone3, Vec::new())];
    let missing = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let calls = calls.into_iter().collect();
    SeccompFilter::new(calls, SeccompAction::Allow, missing, arch)?.try_into()
}

fn without_what_starts(
    arch: TargetArch,
    connections: Connections,
) -> Result<BpfProgram, BackendError> {
    let calls = table::of_the_start(connections)?;
    let (others, these) = (SeccompAction::Allow, SeccompAction::Trap);
    SeccompFilter::new(calls, others, these, arch)?.try_into()
}

fn of_table(arch: TargetArch, devices: Devices) -> Result<BpfProgram, BackendError> {
    let calls = table::rules(std::process::id(), devices)?;
    let (refused, allowed) = (SeccompAction::Trap, SeccompAction::Allow);
    SeccompFilter::new(calls, refused, allowed, arch)?.try_into()
}
