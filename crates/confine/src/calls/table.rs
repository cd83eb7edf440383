//! The table of allowed system calls, by the code that needs them.

use std::collections::BTreeMap;

use super::{Connections, Devices};
use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

/// A system call: its number and its name in the C library's headers.
type Call = (libc::c_long, &'static str);

macro_rules! calls {
    ($($call:ident),* $(,)?) => {
        &[$((libc::$call, stringify!($call))),*]
    };
}

/// The rings of the data plane, and what wakes them. Without conditions: they are on the path of I/O, and
/// the kernel remembers the answer for calls without.
const RINGS: &[Call] = calls![
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_eventfd2,
    SYS_read,
    SYS_write,
];

/// Stores, state and configuration.
const FILES: &[Call] = calls![
    SYS_close,
    SYS_close_range,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_pwrite64,
    SYS_preadv,
    SYS_pwritev,
    SYS_preadv2,
    SYS_pwritev2,
    SYS_lseek,
    SYS_fsync,
    SYS_fdatasync,
    SYS_sync_file_range,
    SYS_syncfs,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_fadvise64,
    SYS_copy_file_range,
    SYS_sendfile,
    SYS_splice,
    SYS_flock,
    SYS_fcntl,
    SYS_dup,
    SYS_dup3,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_fstatfs,
    SYS_statfs,
    SYS_getdents64,
    SYS_readlinkat,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_renameat,
    SYS_renameat2,
    SYS_unlinkat,
    SYS_linkat,
    SYS_symlinkat,
    SYS_mkdirat,
    SYS_fchown,
    SYS_utimensat,
    SYS_umask,
    SYS_getcwd,
];

/// Portals, the administration, the service manager.
const SOCKETS: &[Call] = calls![
    SYS_bind,
    SYS_listen,
    SYS_accept,
    SYS_accept4,
    SYS_connect,
    SYS_shutdown,
    SYS_getsockname,
    SYS_getpeername,
    SYS_getsockopt,
    SYS_sendto,
    SYS_sendmsg,
    SYS_sendmmsg,
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_recvmmsg,
    SYS_socketpair,
    SYS_pipe2,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_ppoll,
    SYS_pselect6,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_signalfd4,
];

/// Calls that the headers do not name yet: what the page cache has (Linux 6.5, the same number everywhere).
const NEWER: &[Call] = &[(451, "SYS_cachestat")];

/// Memory, but none that can be executed.
const MEMORY: &[Call] = calls![
    SYS_brk,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_mincore,
    SYS_mlock,
    SYS_munlock,
    SYS_msync,
    SYS_memfd_create,
];

/// Threads, time, signals, and what a process may know of itself.
const PROCESS: &[Call] = calls![
    SYS_futex,
    SYS_futex_waitv,
    SYS_set_robust_list,
    SYS_get_robust_list,
    SYS_set_tid_address,
    SYS_rseq,
    SYS_membarrier,
    // Filtered by the other filter, which says that it does not exist.
    SYS_clone3,
    SYS_exit,
    SYS_exit_group,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_sched_setaffinity,
    SYS_getcpu,
    SYS_wait4,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigpending,
    SYS_rt_sigtimedwait,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_getpid,
    SYS_getppid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_capget,
    SYS_getrandom,
    SYS_uname,
    SYS_sysinfo,
    SYS_times,
    SYS_getrusage,
    SYS_getrlimit,
];

/// What the older of two calls is still used for; newer architectures do not have them.
#[cfg(target_arch = "x86_64")]
const OLDER: &[Call] = calls![
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_rename,
    SYS_unlink,
    SYS_link,
    SYS_mkdir,
    SYS_rmdir,
    SYS_dup2,
    SYS_pipe,
    SYS_poll,
    SYS_select,
    SYS_epoll_create,
    SYS_epoll_wait,
    SYS_eventfd,
    SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[Call] = &[];

/// What is refused and worth a name when it is tried.
const REFUSED: &[Call] = calls![
    SYS_execve,
    SYS_execveat,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kill,
    SYS_tkill,
    SYS_rt_sigqueueinfo,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_unshare,
    SYS_setns,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_keyctl,
    SYS_add_key,
    SYS_init_module,
    SYS_finit_module,
    SYS_kexec_load,
    SYS_reboot,
    SYS_setuid,
    SYS_setgid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setgroups,
    SYS_capset,
    SYS_userfaultfd,
    SYS_personality,
    SYS_mknodat,
    SYS_fchownat,
    SYS_fchmodat,
    SYS_openat2,
    SYS_chdir,
    SYS_fchdir,
    SYS_process_madvise,
    SYS_sethostname,
    SYS_swapon,
];

/// What an argument must be.
enum Argument {
    /// One of these.
    OneOf(&'static [u64]),
    /// This process.
    OwnPid,
    /// With `mask`, this value.
    Masked { mask: u64, value: u64 },
    /// Not this.
    Not(u64),
    /// That, or exactly `other`.
    MaskedOr { mask: u64, value: u64, other: u64 },
}

/// Calls that are allowed with certain arguments alone: the argument's position, and what it must be.
const WITH_CONDITIONS: &[(Call, u8, Argument)] = &[
    // A thread, no namespace; or a worker of a store, which shares the memory and runs no other program.
    (
        (libc::SYS_clone, "SYS_clone"),
        0,
        Argument::MaskedOr {
            mask: bits(libc::CLONE_THREAD | NAMESPACES),
            value: bits(libc::CLONE_THREAD),
            other: bits(libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD),
        },
    ),
    (
        (libc::SYS_socket, "SYS_socket"),
        0,
        Argument::OneOf(&[
            bits(libc::AF_UNIX),
            bits(libc::AF_INET),
            bits(libc::AF_INET6),
        ]),
    ),
    // Nothing of sockets of frames: rings of packets, fanout groups, and what else their code has, is for nobody here.
    (
        (libc::SYS_setsockopt, "SYS_setsockopt"),
        1,
        Argument::Not(bits(libc::SOL_PACKET)),
    ),
    ((libc::SYS_mmap, "SYS_mmap"), 2, NOT_EXECUTABLE),
    // The mode of what is open, as files below the roots alone are after the start: a path could be that of any file.
    ((libc::SYS_fchmod, "SYS_fchmod"), 1, NOT_OF_ANOTHER),
    ((libc::SYS_openat, "SYS_openat"), 3, NOT_OF_ANOTHER),
    #[cfg(target_arch = "x86_64")]
    ((libc::SYS_open, "SYS_open"), 2, NOT_OF_ANOTHER),
    // Limits of this process, not of others, which a signal would follow.
    (
        (libc::SYS_prlimit64, "SYS_prlimit64"),
        0,
        Argument::OneOf(&[0]),
    ),
    ((libc::SYS_mprotect, "SYS_mprotect"), 2, NOT_EXECUTABLE),
    // abort and raise.
    ((libc::SYS_tgkill, "SYS_tgkill"), 0, Argument::OwnPid),
    // To be notified when this process ends.
    (
        (libc::SYS_pidfd_open, "SYS_pidfd_open"),
        0,
        Argument::OwnPid,
    ),
    (
        (libc::SYS_prctl, "SYS_prctl"),
        0,
        Argument::OneOf(&[
            bits(libc::PR_SET_NAME),
            // Libraries that log a failure of their own.
            bits(libc::PR_GET_NAME),
            bits(libc::PR_SET_PDEATHSIG),
            bits(libc::PR_SET_VMA),
            bits(PR_GET_AUXV),
            // Every filter is applied with it, also the one that ends the start.
            bits(libc::PR_SET_NO_NEW_PRIVS),
        ]),
    ),
    (
        (libc::SYS_seccomp, "SYS_seccomp"),
        0,
        Argument::OneOf(&[SET_MODE_FILTER]),
    ),
    ((libc::SYS_ioctl, "SYS_ioctl"), 1, Argument::OneOf(CONTROLS)),
];

/// What the start does and nothing after it; `None`: whatever the arguments are.
const OF_THE_START: &[(Call, Option<(u8, Argument)>)] = &[
    // A ring does what it is asked for without a system call.
    ((libc::SYS_io_uring_setup, "SYS_io_uring_setup"), None),
    ((libc::SYS_seccomp, "SYS_seccomp"), None),
];

/// What goes with them where the process makes no connections later. No filter sees an address.
const OF_CONNECTIONS: &[(Call, Option<(u8, Argument)>)] = &[
    ((libc::SYS_connect, "SYS_connect"), None),
    (
        (libc::SYS_socket, "SYS_socket"),
        Some((0, Argument::OneOf(&[bits(libc::AF_UNIX)]))),
    ),
];

/// Spec: seccomp(2).
const SET_MODE_FILTER: u64 = libc::SECCOMP_SET_MODE_FILTER as u64;

/// What the kernel gave the process at its start, such as the size of a page: read when it is first
/// wants to know.
///
/// Spec: PR_GET_AUXV(2const), from Linux 6.4 on.
const PR_GET_AUXV: libc::c_int = 0x4155_5856;

const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

const NOT_EXECUTABLE: Argument = Argument::Masked {
    mask: bits(libc::PROT_EXEC),
    value: 0,
};

/// No program that runs with the rights of its owner or group.
const NOT_OF_ANOTHER: Argument = Argument::Masked {
    mask: (libc::S_ISUID | libc::S_ISGID) as u64,
    value: 0,
};

/// Whether a stream is a terminal; whether a descriptor waits; what a block device is and can; a file that shares the
/// blocks of another; what a file system is known by; whether a network interface is there, for frames that are
/// received again when it comes back.
///
/// Spec: linux/fs.h, asm-generic/ioctls.h, linux/sockios.h.
const CONTROLS: &[u64] = &[
    0x5401,      // TCGETS
    0x5413,      // TIOCGWINSZ
    0x5421,      // FIONBIO
    0x5451,      // FIOCLEX
    0x541b,      // FIONREAD
    0x125e,      // BLKROGET
    0x1268,      // BLKSSZGET
    0x1277,      // BLKDISCARD
    0x1278,      // BLKIOMIN
    0x1279,      // BLKIOOPT
    0x127b,      // BLKPBSZGET
    0x127f,      // BLKZEROOUT
    0x8008_1272, // BLKGETSIZE64
    0x4004_9409, // FICLONE
    0x8070_5864, // XFS_IOC_FSGEOMETRY_V1
    0x8008_662c, // EXT4_IOC_GETFSUUID
    0x8400_941f, // BTRFS_IOC_FS_INFO
    0xd000_9412, // BTRFS_IOC_INO_LOOKUP
    0x8011_1500, // FS_IOC_GETFSUUID
    0x8913,      // SIOCGIFFLAGS
    0x8921,      // SIOCGIFMTU
    0x8933,      // SIOCGIFINDEX
];

/// A command for a SCSI device, which can do anything to it.
///
/// Spec: scsi/sg.h.
const SG_IO: u64 = 0x2285;

const fn bits(number: libc::c_int) -> u64 {
    number.unsigned_abs() as u64
}

/// The table as the filter's builder takes it: a call without rules is allowed as it is.
pub(super) fn rules(
    own_pid: u32,
    devices: Devices,
) -> Result<BTreeMap<libc::c_long, Vec<SeccompRule>>, BackendError> {
    let plain = [RINGS, FILES, NEWER, SOCKETS, MEMORY, PROCESS, OLDER];
    let plain = plain.into_iter().flatten();
    let mut rules: BTreeMap<_, _> = plain.map(|(number, _)| (*number, Vec::new())).collect();
    for ((number, _), position, argument) in WITH_CONDITIONS {
        rules.insert(*number, conditions(*position, argument, own_pid)?);
    }
    if devices == Devices::Some {
        let allowed = conditions(1, &Argument::OneOf(&[SG_IO]), own_pid)?;
        rules.entry(libc::SYS_ioctl).or_default().extend(allowed);
    }
    Ok(rules)
}

/// The calls that end with the start, as the filter's builder takes them.
pub(super) fn of_the_start(
    connections: Connections,
) -> Result<BTreeMap<libc::c_long, Vec<SeccompRule>>, BackendError> {
    let ended: &[_] = match connections {
        Connections::Ended => OF_CONNECTIONS,
        Connections::Kept => &[],
    };
    let mut rules = BTreeMap::new();
    for ((number, _), argument) in OF_THE_START.iter().chain(ended) {
        let conditions = match argument {
            Some((position, argument)) => conditions(*position, argument, 0)?,
            None => Vec::new(),
        };
        rules.insert(*number, conditions);
    }
    Ok(rules)
}

fn conditions(
    position: u8,
    argument: &Argument,
    own_pid: u32,
) -> Result<Vec<SeccompRule>, BackendError> {
    let rule = |operator, value| {
        let condition = SeccompCondition::new(position, SeccompCmpArgLen::Dword, operator, value)?;
        SeccompRule::new(vec![condition])
    };
    match argument {
        Argument::OneOf(values) => {
            let rules = values.iter().map(|value| rule(SeccompCmpOp::Eq, *value));
            rules.collect()
        }
        Argument::OwnPid => Ok(vec![rule(SeccompCmpOp::Eq, u64::from(own_pid))?]),
        Argument::Not(value) => Ok(vec![rule(SeccompCmpOp::Ne, *value)?]),
        Argument::Masked { mask, value } => Ok(vec![rule(SeccompCmpOp::MaskedEq(*mask), *value)?]),
        Argument::MaskedOr { mask, value, other } => Ok(vec![
            rule(SeccompCmpOp::MaskedEq(*mask), *value)?,
            rule(SeccompCmpOp::Eq, *other)?,
        ]),
    }
}

/// The name of a call, where it is one of the table.
pub(super) fn name(number: libc::c_long) -> Option<&'static str> {
    let listed = [
        REFUSED, RINGS, FILES, NEWER, SOCKETS, MEMORY, PROCESS, OLDER,
    ];
    let mut listed = listed.into_iter().flatten();
    let mut bounded = WITH_CONDITIONS.iter().map(|(call, _, _)| call);
    let found = listed
        .find(|call| call.0 == number)
        .or_else(|| bounded.find(|call| call.0 == number))?;
    found.1.strip_prefix("SYS_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_refused_is_allowed_somewhere_else() {
        let rules = rules(1, Devices::None).unwrap();
        for (number, name) in REFUSED {
            assert!(!rules.contains_key(number), "{name}");
        }
    }

    #[test]
    fn a_call_with_conditions_is_not_allowed_without_them() {
        let rules = rules(1, Devices::None).unwrap();
        for ((number, name), _, _) in WITH_CONDITIONS {
            assert!(!rules[number].is_empty(), "{name}");
        }
    }

    #[test]
    fn what_ends_with_the_start_is_allowed_until_then() {
        let rules = rules(1, Devices::None).unwrap();
        for ((number, name), _) in OF_THE_START.iter().chain(OF_CONNECTIONS) {
            assert!(rules.contains_key(number), "{name}");
        }
    }

    #[test]
    fn calls_have_the_names_of_the_manual() {
        assert_eq!(name(libc::SYS_execve), Some("execve"));
        assert_eq!(name(libc::SYS_ioctl), Some("ioctl"));
        assert_eq!(name(libc::SYS_io_uring_enter), Some("io_uring_enter"));
        assert_eq!(name(-1), None);
    }
}
