//! Becoming an ordinary user, in two steps: what is opened at the start may belong to root still, and
//! what is made belongs to the user already.

use std::io;

use rustix::process::{Gid, Uid};
use rustix::thread::{
    self, CapabilitySet, CapabilitySets, capability_is_in_bounding_set,
    remove_capability_from_bounding_set,
};

use crate::account::Account;

/// What opening needs: files and directories of others.
const OPENING: CapabilitySet = CapabilitySet::DAC_OVERRIDE;

/// What taking frames of interfaces needs. Where this process has it, [`opening`] has it, and nothing later.
const FRAMES: CapabilitySet = CapabilitySet::NET_RAW;

/// What may be wanted later: ports below 1024.
const LOW_PORTS: CapabilitySet = CapabilitySet::NET_BIND_SERVICE;

/// What serving as root may need while no other user is named. Files and directories of others are
/// opened, made and replaced (`DAC_OVERRIDE`) at every change of the configuration; a configuration
/// file that is replaced keeps its owner (`CHOWN`) and mode (`FOWNER`); portals are bound later, too.
const SERVING: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FOWNER)
    .union(LOW_PORTS);

/// What makes rings where `kernel.io_uring_disabled` is 1.
///
/// Spec: Documentation/admin-guide/sysctl/kernel.rst, io_uring_disabled.
const RINGS: CapabilitySet = CapabilitySet::SYS_ADMIN;

/// Capabilities that any kernel may have.
const CAPABILITIES_MAX: u32 = 64;

/// Whether this process may become another user.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Becomes the user. What is left of root's rights is ports below 1024, and [`opening`] for files and interfaces; all
/// until [`give_up`].
///
/// # Errors
///
/// This process may not.
pub fn become_user(account: &Account) -> io::Result<()> {
    let groups: Vec<Gid> = account.groups.iter().copied().map(Gid::from_raw).collect();
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    let frames = thread::capabilities(None)?.permitted & FRAMES;
    empty_bounding_set()?;
    thread::set_thread_groups(&groups)?;
    thread::set_thread_res_gid(gid, gid, gid)?;
    thread::set_keep_capabilities(true)?;
    thread::set_thread_res_uid(uid, uid, uid)?;
    thread::set_keep_capabilities(false)?;
    set_capabilities(LOW_PORTS, OPENING | LOW_PORTS | frames)
}

/// Nothing that is started later gets more, whatever its file says.
fn empty_bounding_set() -> io::Result<()> {
    for number in 0..CAPABILITIES_MAX {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        // The kernel refuses to report those it does not have.
        if capability_is_in_bounding_set(capability).unwrap_or(false) {
            remove_capability_from_bounding_set(capability)?;
        }
    }
    Ok(())
}

fn set_capabilities(effective: CapabilitySet, permitted: CapabilitySet) -> io::Result<()> {
    let sets = CapabilitySets {
        effective,
        permitted,
        inheritable: CapabilitySet::empty(),
    };
    Ok(thread::set_capabilities(None, sets)?)
}

/// Runs this with the right to open what belongs to others, and to take frames, where [`become_user`] has left it.
pub fn opening<T>(open: impl FnOnce() -> T) -> T {
    let before = thread::capabilities(None).ok();
    let raised = before.filter(|sets| {
        let wanted = sets.permitted & (OPENING | FRAMES);
        !sets.effective.contains(wanted)
            && set_capabilities(sets.effective | wanted, sets.permitted).is_ok()
    });
    let result = open();
    if let Some(sets) = raised
        && let Err(error) = set_capabilities(sets.effective, sets.permitted)
    {
        // Giving up a right that one has cannot fail; going on with it would be a lie.
        unreachable!("capabilities cannot be lowered: {error}");
    }
    result
}

/// Gives up what [`become_user`] has left, but for ports below 1024 if they are wanted.
///
/// # Errors
///
/// The kernel refuses, which it does not.
pub fn give_up(keeps_low_ports: bool) -> io::Result<()> {
    let kept = if keeps_low_ports {
        LOW_PORTS
    } else {
        CapabilitySet::empty()
    };
    set_capabilities(kept, kept)
}

/// Gives up every capability but those that serving needs, where no other user was named. Keeps
/// nothing that this process does not have. `keeps_rings` is for a host where only
/// `CAP_SYS_ADMIN` makes rings.
///
/// # Errors
///
/// The kernel refuses, which it does not.
pub fn keep_serving(keeps_rings: bool) -> io::Result<()> {
    let had = thread::capabilities(None)?;
    let wanted = if keeps_rings {
        SERVING | RINGS
    } else {
        SERVING
    };
    // A process that may not empty the set goes on without: with no_new_privs it means nothing.
    if had.effective.contains(CapabilitySet::SETPCAP) {
        empty_bounding_set()?;
    }
    let (effective, permitted) = (had.effective & wanted, had.permitted & wanted);
    // A service manager that gave none may not allow the call at all.
    if (effective, permitted) == (had.effective, had.permitted) && had.inheritable.is_empty() {
        return Ok(());
    }
    set_capabilities(effective, permitted)
}

/// Nothing that is started later gets more rights than this process.
///
/// # Errors
///
/// The kernel refuses, which it does not.
pub fn no_new_privileges() -> io::Result<()> {
    Ok(thread::set_no_new_privs(true)?)
}
