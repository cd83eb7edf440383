//! The files of units, and the file systems that they grow on.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use api::event::{Finding, Severity};
use store::SharedStore;

use super::{Facts, finding, of_lun};

/// Between two looks, at least.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// A file system answers sooner, or its server is gone.
const PATIENCE: Duration = Duration::from_millis(300);

/// With less than this free, of the whole, it is worth a warning.
const SHORT: f64 = 0.2;

/// With less than this free, of the whole, it will not be long.
const ALMOST_FULL: f64 = 0.05;

/// The length of a block of a disc.
const DISC_BLOCK_BYTES: u64 = 2048;

/// The unit of `st_blocks`, whatever the file system's blocks are.
///
/// Spec: stat(2).
const STAT_BLOCK_BYTES: u64 = 512;

/// A file of a unit.
#[derive(Clone, Debug)]
pub(super) struct UnitFile {
    pub(super) lun: String,
    pub(super) path: PathBuf,
    /// What is open of it, if it has to stay at its place: a medium that is out need not.
    pub(super) open: Option<Arc<dyn SharedStore>>,
    /// How large it may become.
    pub(super) size_bytes: u64,
}

/// A file of a unit, as it was found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct FileLook {
    pub(super) lun: String,
    pub(super) path: PathBuf,
    /// How large the unit says it is; `None` where the file at the path need not be what is open.
    pub(super) wanted_bytes: Option<u64>,
    /// Where it ends.
    pub(super) len_bytes: u64,
    /// What it takes of its file system.
    pub(super) taken_bytes: u64,
    /// What is free there.
    pub(super) free_bytes: u64,
}

impl FileLook {
    /// How much shorter it is than its unit.
    pub(super) fn missing_bytes(&self) -> u64 {
        let wanted = self.wanted_bytes.unwrap_or_default();
        wanted.saturating_sub(self.len_bytes)
    }
}

/// A unit whose file is not at its place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Replaced {
    pub(super) lun: String,
    pub(super) path: PathBuf,
    /// Another file is there.
    pub(super) by_another: bool,
    /// It is an image of a cluster.
    pub(super) is_image: bool,
}

/// A file system, and what its files may still take of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct FileSystem {
    /// One of the files on it.
    pub(super) path: PathBuf,
    /// What others than root may still write.
    pub(super) free_bytes: u64,
    pub(super) size_bytes: u64,
    /// What its files have not taken yet of the sizes that they show.
    pub(super) promised_bytes: u64,
}

/// The answers so far.
#[derive(Debug, Default)]
pub(super) struct Space {
    last: Option<Instant>,
    /// A look that has not ended. A file system whose server is gone may hold its thread for ever;
    /// there is never a second one.
    under_way: Option<Receiver<Seen>>,
    known: Seen,
}

/// What a look has seen.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// When the look began.
    looked: Option<Instant>,
    systems: Vec<FileSystem>,
    files: Vec<FileLook>,
    replaced: Vec<Replaced>,
}

/// What is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    /// When the look began that this is from.
    pub(super) looked: Option<Instant>,
    pub(super) systems: Vec<FileSystem>,
    pub(super) files: Vec<FileLook>,
    pub(super) replaced: Vec<Replaced>,
    /// A file system does not answer.
    pub(super) is_late: bool,
}

impl Space {
    /// The file systems of the files, as of now or of a moment ago.
    pub(super) fn room(&mut self, now: Instant, files: impl FnOnce() -> Vec<UnitFile>) -> Room {
        let is_due = |last: Instant| now.saturating_duration_since(last) >= LOOK_EVERY;
        if self.under_way.is_none() && self.last.is_none_or(is_due) {
            self.last = Some(now);
            self.under_way = begin(files());
        }
        let is_late = self.wait();
        let Seen {
            looked,
            systems,
            files,
            replaced,
        } = self.known.clone();
        Room {
            looked,
            systems,
            files,
            replaced,
            is_late,
        }
    }

    /// Whether the look under way is late. One that was late before is not waited for.
    fn wait(&mut self) -> bool {
        let Some(under_way) = &self.under_way else {
            return false;
        };
        let is_new = self.last.is_some_and(|last| last.elapsed() < PATIENCE);
        let answer = if is_new {
            under_way.recv_timeout(PATIENCE)
        } else {
            under_way.try_recv().map_err(|error| match error {
                TryRecvError::Empty => RecvTimeoutError::Timeout,
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            })
        };
        match answer {
            Ok(seen) => self.known = seen,
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => {}
        }
        self.under_way = None;
        false
    }
}

/// Looks in a thread that can be left behind, when the file systems have answered another process.
fn begin(files: Vec<UnitFile>) -> Option<Receiver<Seen>> {
    if files.is_empty() {
        return None;
    }
    let (answer, answered) = channel();
    let look = move || {
        let looked = Some(Instant::now());
        let paths = files.iter().map(|file| &*file.path);
        if let Err(error) = reactor::process::wait_for(paths) {
            tracing::error!(%error, "cannot check the files of stores");
            return;
        }
        let replaced: Vec<_> = files.iter().filter_map(replaced).collect();
        let (systems, files) = systems(&files, &replaced);
        // Nobody waits any more when the daemon has ended.
        drop(answer.send(Seen {
            looked,
            systems,
            files,
            replaced,
        }));
    };
    let thread = thread::Builder::new().name("space".to_owned()).spawn(look);
    thread.ok().map(|_detached| answered)
}

/// Files that cannot be reached, or are none, are left out.
fn systems(files: &[UnitFile], replaced: &[Replaced]) -> (Vec<FileSystem>, Vec<FileLook>) {
    let mut systems: BTreeMap<u64, FileSystem> = BTreeMap::new();
    let mut looks = Vec::new();
    for file in files {
        let Ok(metadata) = fs::metadata(&file.path) else {
            continue;
        };
        if !metadata.is_file() {
            continue;
        }
        let Ok(system) = rustix::fs::statvfs(&file.path) else {
            continue;
        };
        let taken = metadata.blocks().saturating_mul(STAT_BLOCK_BYTES);
        let free_bytes = system.f_bavail.saturating_mul(system.f_frsize);
        let is_open = file.open.is_some() && replaced.iter().all(|one| one.path != file.path);
        looks.push(FileLook {
            lun: file.lun.clone(),
            path: file.path.clone(),
            wanted_bytes: is_open.then_some(file.size_bytes),
            len_bytes: metadata.len(),
            taken_bytes: taken,
            free_bytes,
        });
        let entry = systems.entry(metadata.dev()).or_insert_with(|| FileSystem {
            path: file.path.clone(),
            free_bytes,
            size_bytes: system.f_blocks.saturating_mul(system.f_frsize),
            promised_bytes: 0,
        });
        entry.promised_bytes += file.size_bytes.saturating_sub(taken);
    }
    (systems.into_values().collect(), looks)
}

/// What cannot be looked at is left out.
fn replaced(file: &UnitFile) -> Option<Replaced> {
    let by_another = match file.open.as_ref()?.is_at(&file.path) {
        Ok(false) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Ok(true) | Err(_) => return None,
    };
    Some(Replaced {
        lun: file.lun.clone(),
        path: file.path.clone(),
        by_another,
        is_image: false,
    })
}

impl Room {
    /// Adds the images that do not have their names any more, which their stores know.
    pub(super) fn with_images(mut self, images: &[UnitFile]) -> Self {
        let replaced = images.iter().filter_map(replaced);
        let replaced = replaced.map(|one| Replaced {
            is_image: true,
            ..one
        });
        self.replaced.extend(replaced);
        self
    }
}

fn is_drive(facts: &Facts<'_>, lun: &str) -> bool {
    let mut units = facts.model.units().iter();
    units.any(|unit| !unit.store.is_disk() && unit.to_string() == lun)
}

/// What is written to a file that has no name any more is lost when it is closed.
pub(super) fn replaced_files(facts: &Facts<'_>) -> Vec<Finding> {
    let finding = |one: &Replaced| {
        let path = one.path.display();
        if one.is_image {
            let what = match one.by_another {
                true => "another image has this name than the one of the LUN",
                false => "no image has this name any more: that of the LUN was renamed or removed",
            };
            return of_lun(
                Severity::Error,
                "file-replaced",
                &one.lun,
                format!(
                    "{path}: {what}; it has no snapshots, no clones and no takeover, and is not opened again"
                ),
                "rename the image back (rbd rename); or, to serve the one that has the name, remove the LUN and then \
                 add it",
            );
        }
        if is_drive(facts, &one.lun) {
            return of_lun(
                Severity::Warning,
                "file-replaced",
                &one.lun,
                format!("{path} is not the file that is in the drive any more"),
                "load what is there now (tarn lun load ID), or another file (tarn lun load ID FILE)",
            );
        }
        let what = if one.by_another {
            format!("another file is at {path} than the one that is open")
        } else {
            format!("{path} is gone; unless the file has another name now, only this Tarn has it")
        };
        of_lun(
            Severity::Error,
            "file-replaced",
            &one.lun,
            format!("{what}: what initiators write is lost when the LUN or Tarn ends"),
            "move the file back if it has another name now; or copy what is open, through an initiator or, while \
             nobody writes, from /proc/PID/fd of Tarn; then, to serve what is at the path, eject and load a \
             removable medium, and remove and add any other LUN",
        )
    };
    facts.room.replaced.iter().map(finding).collect()
}

/// The last bytes of the file of a disc that are no whole block.
pub(super) fn cut_discs(facts: &Facts<'_>) -> Vec<Finding> {
    let finding = |look: &FileLook| {
        let rest = look.len_bytes.checked_sub(look.wanted_bytes?)?;
        let is_cut = (1..DISC_BLOCK_BYTES).contains(&rest) && is_drive(facts, &look.lun);
        let (path, len) = (look.path.display(), look.len_bytes);
        let message = format!(
            "{path} has {len} bytes, which are no multiple of {DISC_BLOCK_BYTES}: the last {rest} are not served"
        );
        let remedy = "get the image again, as this one was probably cut, and load it (tarn lun load ID FILE)";
        is_cut.then(|| of_lun(Severity::Warning, "disc-cut", &look.lun, message, remedy))
    };
    facts.room.files.iter().filter_map(finding).collect()
}

/// Thin files may take more than there is. That alone is how thin files are used; it counts when
/// there is little left.
pub(super) fn scarce_space(facts: &Facts<'_>) -> Vec<Finding> {
    let mut findings: Vec<_> = facts.room.systems.iter().filter_map(scarce).collect();
    if facts.room.is_late {
        findings.push(finding(
            Severity::Warning,
            "file-system",
            "",
            "a file system with stores does not answer a query of its files and its free space",
            "see the kernel log, and check the server of a network file system",
        ));
    }
    findings
}

pub(super) fn reached_quotas(facts: &Facts<'_>) -> Vec<Finding> {
    let reached = facts.quotas.iter().filter_map(|held| {
        let (severity, code) = match held.space {
            plane::Space::Free => return None,
            plane::Space::Low => (Severity::Warning, "quota-soft"),
            plane::Space::Full => (Severity::Error, "quota-full"),
        };
        let remedy =
            "have initiators discard what they do not need, remove disks, or raise the quota";
        Some(finding(
            severity,
            code,
            &held.quota,
            held.in_words(),
            remedy,
        ))
    });
    reached.collect()
}

/// Disks that have grown by themselves, or have no size in the configuration.
pub(super) fn exceeded_quotas(facts: &Facts<'_>) -> Vec<Finding> {
    let exceeded = facts.exceeded.iter();
    let findings = exceeded.map(|(quota, error)| {
        finding(
            Severity::Warning,
            "quota-exceeded",
            quota,
            error.to_string(),
            "make disks smaller, remove one, or raise the quota; until then no change may make them larger",
        )
    });
    findings.collect()
}

pub(super) fn missed_snapshots(facts: &Facts<'_>) -> Vec<Finding> {
    let missed = facts.missed.iter().map(|(lun, why)| {
        let remedy = "do what it says, or take one by hand (tarn snapshot create); it is tried again every 5 minutes";
        of_lun(Severity::Warning, "snapshot-missed", lun, why, remedy)
    });
    missed.collect()
}

fn scarce(system: &FileSystem) -> Option<Finding> {
    let free = system.free_bytes as f64 / system.size_bytes.max(1) as f64;
    if system.promised_bytes <= system.free_bytes || free >= SHORT {
        return None;
    }
    let severity = if free < ALMOST_FULL {
        Severity::Error
    } else {
        Severity::Warning
    };
    Some(finding(
        severity,
        "space",
        system.path.display().to_string(),
        format!(
            "its file system has {} MiB free ({:.0} %), but thin files on it may grow by {} MiB: then writes fail",
            system.free_bytes >> 20,
            free * 100.0,
            system.promised_bytes >> 20
        ),
        "free space, or let initiators release unused blocks (discard)",
    ))
}

#[cfg(test)]
mod tests {
    use store::{OpenOptions, StoreKind};

    use super::*;
    use crate::scratch::Scratch;

    fn unit_file(path: PathBuf, size_bytes: u64) -> UnitFile {
        UnitFile {
            lun: "disk".to_owned(),
            path,
            open: None,
            size_bytes,
        }
    }

    #[test]
    fn a_file_that_is_not_at_its_place_is_seen_unless_its_medium_is_out() {
        let scratch = Scratch::new();
        let path = scratch.path().join("disk.img");
        let mut options = OpenOptions::new(StoreKind::File, path.clone());
        options.size_bytes = Some(1 << 20);
        let mut file = unit_file(path.clone(), 1 << 20);
        file.open = Some(options.open().unwrap());
        let seen = |file: &UnitFile| replaced(file).map(|one| one.by_another);
        assert_eq!(seen(&file), None);
        fs::hard_link(&path, scratch.path().join("twin.img")).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(seen(&file), Some(false));
        fs::write(&path, b"").unwrap();
        assert_eq!(seen(&file), Some(true));
        fs::rename(scratch.path().join("twin.img"), &path).unwrap();
        assert_eq!(seen(&file), None);
        fs::remove_file(&path).unwrap();
        file.open = None;
        assert_eq!(seen(&file), None);
    }

    #[test]
    fn a_file_that_was_cut_is_shorter_than_its_unit_while_it_is_what_is_open() {
        let scratch = Scratch::new();
        let path = scratch.path().join("disk.img");
        let mut options = OpenOptions::new(StoreKind::File, path.clone());
        options.size_bytes = Some(1 << 20);
        let mut file = unit_file(path.clone(), 1 << 20);
        file.open = Some(options.open().unwrap());
        let missing = |file: &UnitFile| {
            let gone: Vec<_> = replaced(file).into_iter().collect();
            let (_, looks) = systems(std::slice::from_ref(file), &gone);
            looks
                .iter()
                .map(FileLook::missing_bytes)
                .collect::<Vec<_>>()
        };
        assert_eq!(missing(&file), [0]);
        let cut = fs::File::options().write(true).open(&path).unwrap();
        cut.set_len((1 << 20) - 512).unwrap();
        assert_eq!(missing(&file), [512]);
        fs::rename(&path, scratch.path().join("old.img")).unwrap();
        fs::write(&path, b"").unwrap();
        assert_eq!(missing(&file), [0], "another file says nothing of it");
        file.open = None;
        assert_eq!(missing(&file), [0]);
    }

    #[test]
    fn thin_files_of_a_file_system_are_counted_together() {
        let scratch = Scratch::new();
        let file = |name: &str, size_bytes: u64| {
            let path = scratch.path().join(name);
            fs::File::create(&path)
                .unwrap()
                .set_len(size_bytes)
                .unwrap();
            unit_file(path, size_bytes)
        };
        let gone = unit_file(scratch.path().join("gone"), 1 << 40);
        let files = [file("a", 3 << 30), file("b", 1 << 30), gone];
        let mut space = Space::default();
        let now = Instant::now();
        // This machine may be slow; then the answer comes with a later question.
        let mut room = space.room(now, || files.to_vec());
        while room.is_late {
            thread::yield_now();
            room = space.room(now, || panic!("there is a look under way"));
        }
        let [system] = &room.systems[..] else {
            panic!("one file system")
        };
        assert_eq!(system.promised_bytes, 4 << 30);
        assert!(system.size_bytes > 0);
        let soon = space.room(now, || panic!("a moment ago is soon enough"));
        assert_eq!(soon.systems, room.systems);
    }

    #[test]
    fn a_look_that_does_not_end_is_told_and_not_begun_again() {
        let (_answer, under_way) = channel();
        let mut space = Space {
            last: Instant::now().checked_sub(LOOK_EVERY * 2),
            under_way: Some(under_way),
            known: Seen::default(),
        };
        let room = space.room(Instant::now(), || panic!("one thread is enough"));
        assert!(room.is_late);
    }
}
