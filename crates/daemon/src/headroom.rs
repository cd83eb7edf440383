//! How much memory this process may have, and whether what it is to serve fits in it.
//!
//! The kernel ends a process that takes more than its control group may have, while initiators
//! wait for it; so what cannot fit is refused before anything is served.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use config::{Limits, Model};

use crate::StartError;

const MIB: u64 = 1 << 20;

/// What the program, its threads, sessions and tables take beside pools and disks.
const REST_BYTES: u64 = 48 * MIB;

/// A pool that nobody asked for by size is made this small at least.
const POOL_BYTES_MIN: u64 = 32 * MIB;

/// Pools come in whole blocks of this size.
const POOL_STEP_BYTES: u64 = 16 * MIB;

/// Pools that nobody asked for by size take at most one part in this many of what is left after the
/// disks: buffers of sockets and pages of files count in a control group, too.
const POOLS_SHARE: u64 = 2;

/// From here on a limit is none: control groups of version 1 show the largest whole page so.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// What limits the memory of this process most.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Headroom {
    pub(crate) bytes: u64,
    pub(crate) limit: Limit,
}

/// Where the limit comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Limit {
    /// A file of a control group.
    Group(PathBuf),
    /// MemAvailable.
    Machine,
}

impl fmt::Display for Headroom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.bytes / MIB;
        match &self.limit {
            Limit::Group(file) => write!(f, "{} allows {mib} MiB", file.display()),
            Limit::Machine => write!(f, "the machine has {mib} MiB available (MemAvailable)"),
        }
    }
}

impl Headroom {
    /// Looks at the limits of this process, below `root`; `None` when there are none.
    pub(crate) fn look(root: &Path) -> Option<Self> {
        let machine = machine(root).map(|bytes| Self {
            bytes,
            limit: Limit::Machine,
        });
        groups(root)
            .into_iter()
            .chain(machine)
            .min_by_key(|it| it.bytes)
    }
}

/// The limits as they were when it was first asked: later the files may be out of reach.
pub(crate) fn at_start() -> Option<&'static Headroom> {
    static FOUND: OnceLock<Option<Headroom>> = OnceLock::new();
    FOUND
        .get_or_init(|| Headroom::look(Path::new("/")))
        .as_ref()
}

/// MemAvailable, with what this process has already.
///
/// Spec: proc_meminfo(5), proc_pid_status(5).
fn machine(root: &Path) -> Option<u64> {
    let available = field(&root.join("proc/meminfo"), "MemAvailable:")?;
    let status = root.join("proc/self/status");
    let own = ["RssAnon:", "RssShmem:"].map(|name| field(&status, name).unwrap_or(0));
    Some(available.saturating_add(own.iter().sum()))
}

/// A line of a name, a number and "kB", in bytes.
fn field(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The limits of the control group of this process and of all above it.
///
/// Spec: cgroups(7), /proc/pid/cgroup; cgroup-v2, memory interface files.
fn groups(root: &Path) -> Vec<Headroom> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut found = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (mounts, files): (&[&str], &[&str]) = match controllers {
            "" => (
                &["sys/fs/cgroup", "sys/fs/cgroup/unified"],
                &["memory.max", "memory.high"],
            ),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (&["sys/fs/cgroup/memory"], &["memory.limit_in_bytes"])
            }
            _ => continue,
        };
        for mount in mounts {
            let top = root.join(mount);
            // A group outside of this namespace begins with "..": only the top can be seen then.
            let is_inside = !path.split('/').any(|part| part == "..");
            let own = if is_inside {
                path.trim_matches('/')
            } else {
                ""
            };
            let own = top.join(own);
            for group in own.ancestors().take_while(|group| group.starts_with(&top)) {
                found.extend(
                    files
                        .iter()
                        .filter_map(|file| limit(root, group.join(file))),
                );
            }
        }
    }
    found
}

fn limit(root: &Path, file: PathBuf) -> Option<Headroom> {
    let bytes: u64 = fs::read_to_string(&file).ok()?.trim().parse().ok()?;
    let shown = file
        .strip_prefix(root)
        .map(|file| Path::new("/").join(file));
    (bytes < NO_LIMIT_BYTES).then(|| Headroom {
        bytes,
        limit: Limit::Group(shown.unwrap_or(file)),
    })
}

/// The pools that are made, and why.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Sizing {
    pub(crate) pool_bytes: u64,
    /// What made the pools smaller than the default.
    pub(crate) shrunk_by: Option<Headroom>,
}

impl Sizing {
    /// What is said of it at the start and by `tarn doctor`.
    pub(crate) fn in_words(&self) -> Option<String> {
        let room = self.shrunk_by.as_ref()?;
        Some(format!(
            "each core has {} MiB for data under way instead of {} MiB, because {room}",
            self.pool_bytes / MIB,
            Limits::default().pool_per_core_bytes / MIB,
        ))
    }
}

/// Sizes the pools of `cores` cores; only pools of the default size may become smaller.
///
/// # Errors
///
/// What is to be served does not fit.
pub(crate) fn size(
    model: &Model,
    cores: usize,
    room: Option<&Headroom>,
) -> Result<Sizing, StartError> {
    let wanted = model.limits().pool_per_core_bytes;
    let as_wanted = Sizing {
        pool_bytes: wanted,
        shrunk_by: None,
    };
    let Some(room) = room else {
        return Ok(as_wanted);
    };
    let cores = u64::try_from(cores).unwrap_or(u64::MAX).max(1);
    let disks = disks_bytes(model);
    let left = room.bytes.saturating_sub(REST_BYTES.saturating_add(disks));
    let all = cores.saturating_mul(wanted);
    let is_default = wanted == Limits::default().pool_per_core_bytes;
    let fitting = if is_default { left / POOLS_SHARE } else { left };
    if all <= fitting {
        return Ok(as_wanted);
    }
    let each = left / POOLS_SHARE / cores / POOL_STEP_BYTES * POOL_STEP_BYTES;
    if is_default && each >= POOL_BYTES_MIN {
        return Ok(Sizing {
            pool_bytes: each,
            shrunk_by: Some(room.clone()),
        });
    }
    let least = if is_default { POOL_BYTES_MIN } else { wanted };
    // The smallest is fine if everything together fits.
    if is_default && cores.saturating_mul(least) <= left {
        return Ok(Sizing {
            pool_bytes: least,
            shrunk_by: Some(room.clone()),
        });
    }
    Err(StartError::TooLittleMemory {
        needed_mib: REST_BYTES
            .saturating_add(disks)
            .saturating_add(cores.saturating_mul(least))
            .div_ceil(MIB),
        disks_mib: disks.div_ceil(MIB),
        cores,
        pool_mib: least / MIB,
        rest_mib: REST_BYTES / MIB,
        room: room.to_string(),
    })
}

/// Whether the memory disks of a changed configuration fit beside the pools that run.
///
/// # Errors
///
/// They do not, and they take more than before.
pub(crate) fn allow(old: &Model, new: &Model) -> Result<(), StartError> {
    let is_more = disks_bytes(new) > disks_bytes(old);
    if is_more && let Ok(cores) = cores(new) {
        size(new, cores, at_start())?;
    }
    Ok(())
}

/// What the memory disks of a configuration take when they are full.
fn disks_bytes(model: &Model) -> u64 {
    let units = model.units().iter();
    let sizes = units.map(|unit| unit.memory_bytes());
    sizes.fold(0, u64::saturating_add)
}

/// How many cores serve.
pub(crate) fn cores(model: &Model) -> std::io::Result<usize> {
    match model.server().cores {
        Some(cores) => Ok(usize::from(cores.get())),
        None => Ok(reactor::cores::usable()?.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    /// A root with these files.
    fn root(files: &[(&str, &str)]) -> Scratch {
        let scratch = Scratch::new();
        for (name, text) in files {
            let path = scratch.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        scratch
    }

    const MEMINFO: (&str, &str) = (
        "proc/meminfo",
        "MemTotal:       8388608 kB\nMemFree:         100 kB\nMemAvailable:    4194304 kB\n",
    );

    fn group(path: &str) -> Limit {
        Limit::Group(PathBuf::from(path))
    }

    #[test]
    fn the_least_of_all_limits_counts() {
        let v2 = ("proc/self/cgroup", "0::/system.slice/tarn.service\n");
        for (files, bytes, limit) in [
            (vec![], 4 << 30, Limit::Machine),
            (
                vec![(
                    "sys/fs/cgroup/system.slice/tarn.service/memory.max",
                    "max\n",
                )],
                4 << 30,
                Limit::Machine,
            ),
            (
                vec![
                    (
                        "sys/fs/cgroup/system.slice/tarn.service/memory.max",
                        "1073741824\n",
                    ),
                    (
                        "sys/fs/cgroup/system.slice/tarn.service/memory.high",
                        "536870912\n",
                    ),
                ],
                512 << 20,
                group("/sys/fs/cgroup/system.slice/tarn.service/memory.high"),
            ),
            (
                vec![
                    (
                        "sys/fs/cgroup/system.slice/tarn.service/memory.max",
                        "1073741824\n",
                    ),
                    ("sys/fs/cgroup/system.slice/memory.max", "314572800\n"),
                ],
                300 << 20,
                group("/sys/fs/cgroup/system.slice/memory.max"),
            ),
        ] {
            let mut all = vec![MEMINFO, v2];
            all.extend(files);
            let root = root(&all);
            let room = Headroom::look(root.path()).unwrap();
            assert_eq!((room.bytes, room.limit), (bytes, limit));
        }
    }

    #[test]
    fn groups_of_version_1_count_too_and_their_largest_value_is_none() {
        let groups = ("proc/self/cgroup", "5:cpu:/a\n4:memory:/box/tarn\n0::/\n");
        let own = "sys/fs/cgroup/memory/box/tarn/memory.limit_in_bytes";
        let top = (
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        let none = root(&[MEMINFO, groups, top, (own, "9223372036854771712\n")]);
        assert_eq!(Headroom::look(none.path()).unwrap().limit, Limit::Machine);
        let some = root(&[MEMINFO, groups, top, (own, "314572800\n")]);
        let room = Headroom::look(some.path()).unwrap();
        assert_eq!(
            (room.bytes, room.limit),
            (300 << 20, group(&format!("/{own}")))
        );
    }

    #[test]
    fn a_group_outside_of_the_namespace_and_missing_files_are_no_limit() {
        assert_eq!(Headroom::look(root(&[]).path()), None);
        let outside = ("proc/self/cgroup", "0::/../../tarn\n");
        let room = Headroom::look(root(&[MEMINFO, outside]).path()).unwrap();
        assert_eq!(room.limit, Limit::Machine);
        let own = (
            "proc/self/status",
            "Name:\ttarn\nRssAnon:\t1024 kB\nRssShmem:\t2048 kB\n",
        );
        let room = Headroom::look(root(&[MEMINFO, own]).path()).unwrap();
        assert_eq!(room.bytes, (4 << 30) + (3 << 20), "what it has is its own");
    }

    fn model(disk: &str, limits: &str) -> Model {
        let text = format!(
            "[[lun]]\nid = \"a\"\nstore = \"mem:{disk}\"\n[[target]]\nname = \"iqn.2026-11.a:t\"\n\
             luns = [{{ lun = 0, id = \"a\" }}]\n[limits]\n{limits}\n"
        );
        Model::from_toml(&text, Path::new("t.toml")).unwrap()
    }

    fn room(mib: u64) -> Headroom {
        Headroom {
            bytes: mib * MIB,
            limit: group("/sys/fs/cgroup/memory.max"),
        }
    }

    #[test]
    fn default_pools_shrink_to_what_there_is() {
        let model = model("16M", "");
        for (mib, cores, expected) in [
            (100_000, 4, 256),
            (2 * 512 + 64, 2, 256),
            (2 * 512 + 63, 2, 240),
            (300, 2, 48),
            (192, 2, 32),
            (128, 2, 32),
        ] {
            let sizing = size(&model, cores, Some(&room(mib))).unwrap();
            assert_eq!(
                sizing.pool_bytes / MIB,
                expected,
                "{mib} MiB, {cores} cores"
            );
            assert_eq!(sizing.in_words().is_some(), expected < 256);
        }
        assert_eq!(size(&model, 2, None).unwrap().pool_bytes, 256 * MIB);
        assert!(size(&model, 2, Some(&room(127))).is_err());
    }

    #[test]
    fn what_was_asked_for_and_does_not_fit_is_refused_with_both_numbers() {
        let disk = size(&model("512M", ""), 2, Some(&room(300)));
        assert_eq!(
            disk.unwrap_err().to_string(),
            "memory disks of 512 MiB, 2 pools of 32 MiB and 48 MiB for the rest take 624 MiB, and \
             /sys/fs/cgroup/memory.max allows 300 MiB; make the disks smaller, lower cores or pool_per_core_bytes, \
             or give more memory"
        );
        let pools = model("1M", "pool_per_core_bytes = \"128M\"");
        assert!(size(&pools, 2, Some(&room(300))).is_err());
        assert_eq!(
            size(&pools, 1, Some(&room(300))).unwrap().pool_bytes,
            128 * MIB
        );
    }
}
