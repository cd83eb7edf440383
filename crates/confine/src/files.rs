//! Which files stay within reach: a rule for each path, and connections to a few TCP ports or none (Landlock).
//!
//! What is open already stays open, whatever the rules say.

use std::os::fd::AsFd;
use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort,
    PathBeneath, PathFd, PathFdError, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
    RulesetError, RulesetStatus, Scope,
};

use crate::Enforced;

/// The newest rights that are asked for (Linux 6.12); older kernels take what they know.
const ABI_WANTED: ABI = ABI::V6;

/// What a rule allows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Right {
    /// Reading files and directories.
    Read,
    /// Reading, making, replacing and removing files, unix sockets and directories.
    Keep,
    /// That, and the controls of block devices.
    Store,
}

impl Right {
    fn access(self) -> BitFlags<AccessFs> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let keep = read
            | AccessFs::WriteFile
            | AccessFs::Truncate
            | AccessFs::MakeReg
            | AccessFs::MakeDir
            | AccessFs::MakeSock
            | AccessFs::RemoveFile
            | AccessFs::RemoveDir
            | AccessFs::Refer;
        match self {
            Self::Read => read,
            Self::Keep => keep,
            Self::Store => keep | AccessFs::IoctlDev,
        }
    }
}

/// A path and what is allowed there and below.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    /// The path; a rule for one that is not there allows nothing.
    pub path: PathBuf,
    /// What is allowed.
    pub right: Right,
}

/// Why the rules are not in force.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The kernel refuses.
    #[error("the kernel refuses the rules for files")]
    Kernel(#[from] RulesetError),
    /// A path cannot be looked at.
    #[error("a path of the rules for files cannot be looked at")]
    Path(#[from] PathFdError),
}

/// Restricts the calling thread, and those it starts, to these paths. Programs cannot be started from
/// any of them, and TCP connections can be made to these ports alone, if some are given; from Linux 6.12 on, none can
/// to an abstract unix socket of another process, nor can a signal be sent to one.
///
/// # Errors
///
/// The kernel refuses for another reason than not having the feature.
pub fn restrict(rules: &[Rule], ports: Option<&[u16]>) -> Result<Enforced, FilesError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI_WANTED))?
        .scope(Scope::from_all(ABI_WANTED))?;
    let ruleset = match ports {
        Some(_) => ruleset.handle_access(AccessNet::ConnectTcp)?,
        None => ruleset,
    };
    let mut ruleset = ruleset.create()?;
    for rule in rules.iter().filter(|rule| rule.path.exists()) {
        let path = PathFd::new(&rule.path)?;
        let access = match rustix::fs::fstat(path.as_fd()) {
            Ok(status) if is_directory(&status) => rule.right.access(),
            // Rights of directories mean nothing to a file and would be refused.
            Ok(_) | Err(_) => rule.right.access() & AccessFs::from_file(ABI_WANTED),
        };
        ruleset = ruleset.add_rule(PathBeneath::new(path, access))?;
    }
    for port in ports.unwrap_or_default() {
        ruleset = ruleset.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    Ok(match ruleset.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Enforced::Fully,
        RulesetStatus::PartiallyEnforced => Enforced::Partly,
        RulesetStatus::NotEnforced => Enforced::Not,
    })
}

fn is_directory(status: &rustix::fs::Stat) -> bool {
    rustix::fs::FileType::from_raw_mode(status.st_mode).is_dir()
}
