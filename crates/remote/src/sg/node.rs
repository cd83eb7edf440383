//! The node of the generic driver of a device.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use reactor::sg::{self, Answer, Transfer};
use rustix::fs::{Mode, OFlags, fstat, major, minor, open};
use rustix::io::Errno;
use store::IoFailure;

use super::options::ScsiFailure;
use crate::attendants::wait;
use crate::device::look::{self, Found};
use crate::device::shared::{Command, Ended, LOST};
use crate::scsi::command::{
    BUSY, CHECK_CONDITION, Cdb, GOOD, KEY_ATTENTION, Sense, TASK_SET_FULL, test_unit_ready,
};
use crate::words;

/// For a command before the first one of others.
const STEP_MAX_MS: u32 = 10_000;
/// For the commands of others: the kernel wants a limit, and a tape that is erased takes hours.
const COMMAND_MAX_MS: u32 = 7 * 24 * 3_600_000;
/// How often a command is tried where the device has something else to say first, or is busy.
const TRIES: usize = 16;
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// `ENODEV` and `ENXIO`: the device is gone.
const GONE: [i32; 2] = [19, 6];
/// `DID_NO_CONNECT` and `DID_BAD_TARGET`: it is gone while it had the command.
const LEFT: [u16; 2] = [0x01, 0x04];
/// `DRIVER_SENSE`, which says that there are sense data.
const DRIVER_SENSE: u16 = 0x08;

/// A device that is open.
#[derive(Debug)]
pub(super) struct Node {
    file: File,
    /// The block node of a disk or drive, open exclusively.
    _claim: Option<File>,
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The nodes of a device.
#[derive(Debug, PartialEq)]
struct Nodes {
    /// That of the generic driver, and its numbers as the kernel writes them.
    generic: (PathBuf, String),
    /// That of the driver of disks or drives, if it is one.
    block: Option<PathBuf>,
}

/// The nodes of a device with these numbers, as the kernel has it below `/sys`.
fn nodes_of(sys: &Path, kind: &str, numbers: (u32, u32)) -> io::Result<Nodes> {
    let (major, minor) = numbers;
    let device = sys.join(format!("dev/{kind}/{major}:{minor}/device"));
    let first = |driver| fs::read_dir(device.join(driver))?.next().transpose();
    let node = first("scsi_generic")?.ok_or(ErrorKind::NotFound)?;
    let own = fs::read_to_string(node.path().join("dev"))?;
    let in_dev = |node: fs::DirEntry| Path::new("/dev").join(node.file_name());
    let block = match first("block") {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        found => found.ok().flatten().map(in_dev),
    };
    Ok(Nodes {
        generic: (in_dev(node), own.trim().to_owned()),
        block,
    })
}

/// The nodes of what a path names.
fn find(path: &Path) -> Result<Nodes, ScsiFailure> {
    let metadata = fs::metadata(path).map_err(ScsiFailure::Unreachable)?;
    let kind = match metadata.file_type() {
        kind if kind.is_char_device() => "char",
        kind if kind.is_block_device() => "block",
        _ => return Err(ScsiFailure::NoDevice),
    };
    let numbers = (major(metadata.rdev()), minor(metadata.rdev()));
    let found = nodes_of(Path::new("/sys"), kind, numbers);
    found.map_err(|error| match error.kind() == ErrorKind::NotFound {
        true => ScsiFailure::NoScsi,
        false => ScsiFailure::Unreachable(error),
    })
}

fn open_node(node: &Path, flags: OFlags) -> Result<File, ScsiFailure> {
    let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open(node, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::BUSY if flags.contains(OFlags::EXCL) => ScsiFailure::InUse,
        errno => ScsiFailure::Open {
            node: node.to_owned(),
            source: errno.into(),
        },
    })?;
    Ok(file.into())
}

/// Opens the block node of a disk or drive exclusively. A store that is being closed may still have it for a moment.
fn claim(node: &Path) -> Result<File, ScsiFailure> {
    for _ in 0..TRIES {
        match open_node(node, OFlags::RDONLY | OFlags::EXCL) {
            Err(ScsiFailure::InUse) => wait(&mut [], BUSY_PAUSE),
            opened => return opened,
        }
    }
    Err(ScsiFailure::InUse)
}

impl Node {
    /// Opens the generic node of what a path names.
    pub(super) fn open(path: &Path) -> Result<Self, ScsiFailure> {
        let nodes = find(path)?;
        let (node, own) = nodes.generic;
        let file = open_node(&node, OFlags::RDWR)?;
        let claim = nodes.block.as_deref().map(claim).transpose()?;
        let state = fstat(&file).map_err(|error| ScsiFailure::Unreachable(error.into()))?;
        let opened = format!("{}:{}", major(state.st_rdev), minor(state.st_rdev));
        match opened == own {
            true => Ok(Self {
                file,
                _claim: claim,
            }),
            false => Err(ScsiFailure::NoScsi),
        }
    }

    /// What the device says of itself.
    pub(super) fn look(&self) -> io::Result<Option<Found>> {
        // What it has to say first comes now.
        self.ask(&test_unit_ready())?;
        look::find(|cdb| self.ask(&cdb))
    }

    /// One command, whose data it gives; `None` where the device refuses it.
    fn ask(&self, cdb: &Cdb) -> io::Result<Option<Vec<u8>>> {
        let asked = self.try_ask(cdb);
        asked.map_err(|error| io::Error::other(format!("{cdb}: {}", words(&error))))
    }

    fn try_ask(&self, cdb: &Cdb) -> io::Result<Option<Vec<u8>>> {
        for _ in 0..TRIES {
            let mut data = vec![0; usize::try_from(cdb.room).unwrap_or_default()];
            let transfer = match data.is_empty() {
                true => Transfer::None,
                false => Transfer::In(&mut data),
            };
            let answer = sg::execute(self.as_fd(), &cdb.bytes, transfer, STEP_MAX_MS)?;
            if !is_of_device(&answer) {
                return Err(io::Error::other("the device does not answer"));
            }
            match answer.status {
                GOOD => {
                    data.truncate(moved(data.len(), answer.residual));
                    return Ok(Some(data));
                }
                CHECK_CONDITION if Sense::parse(&answer.sense).key == KEY_ATTENTION => {}
                BUSY | TASK_SET_FULL => wait(&mut [], BUSY_PAUSE),
                _ => return Ok(None),
            }
        }
        Err(io::Error::other("the device is busy"))
    }

    /// Carries out a command of others. True: the device is gone.
    pub(super) fn execute(&self, command: &Command) -> (Result<Ended, IoFailure>, bool) {
        let mut data = vec![0; usize::try_from(command.room).unwrap_or_default()];
        let transfer = match (data.is_empty(), command.data.is_empty()) {
            (false, _) => Transfer::In(&mut data),
            (true, false) => Transfer::Out(&command.data),
            (true, true) => Transfer::None,
        };
        let result = sg::execute(self.as_fd(), &command.cdb, transfer, COMMAND_MAX_MS);
        ended(result, command.data.len(), data)
    }
}

/// Whether status and sense data are those of the device.
fn is_of_device(answer: &Answer) -> bool {
    answer.host_status == 0 && answer.driver_status & !DRIVER_SENSE == 0
}

/// How many bytes of a length were moved.
fn moved(length: usize, residual: i32) -> usize {
    let less = usize::try_from(residual).unwrap_or(0);
    length.saturating_sub(less)
}

/// What a command came to, that had so many bytes of Data-Out or room for Data-In. True: the device is gone.
fn ended(
    result: io::Result<Answer>,
    out_bytes: usize,
    mut data: Vec<u8>,
) -> (Result<Ended, IoFailure>, bool) {
    let answer = match result {
        Ok(answer) => answer,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(0);
            let is_gone = GONE.contains(&errno);
            let failure = match error.kind() == ErrorKind::Interrupted {
                // The device goes on.
                true => LOST,
                false if is_gone => IoFailure::NotReady,
                false => IoFailure::Hardware { errno },
            };
            return (Err(failure), is_gone);
        }
    };
    if !is_of_device(&answer) {
        return (Err(LOST), LEFT.contains(&answer.host_status));
    }
    let whole = out_bytes.max(data.len()) as u64;
    let more = u64::from(answer.residual.min(0).unsigned_abs());
    let less = u64::from(answer.residual.max(0).unsigned_abs());
    data.truncate(moved(data.len(), answer.residual));
    let ended = Ended {
        status: answer.status,
        sense: answer.sense,
        data,
        transfer_bytes: (whole + more).saturating_sub(less),
    };
    (Ok(ended), false)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_device_has_one_generic_node_by_whatever_driver_it_is_named() {
        let sys = std::env::temp_dir().join(format!("tarn-sg-{}", std::process::id()));
        let sys = sys.as_path();
        let device = sys.join("devices/host2/2:0:0:0");
        fs::create_dir_all(device.join("scsi_generic/sg3")).unwrap();
        fs::write(device.join("scsi_generic/sg3/dev"), "21:3\n").unwrap();
        let mut nodes = Nodes {
            generic: ("/dev/sg3".into(), "21:3".to_owned()),
            block: None,
        };
        for (kind, numbers) in [("char", (9, 0)), ("char", (21, 3)), ("block", (11, 0))] {
            let (major, minor) = numbers;
            let class = sys.join(format!("dev/{kind}/{major}:{minor}"));
            fs::create_dir_all(&class).unwrap();
            symlink(&device, class.join("device")).unwrap();
            assert_eq!(nodes_of(sys, kind, numbers).unwrap(), nodes);
        }
        fs::create_dir_all(device.join("block/sr0")).unwrap();
        nodes.block = Some("/dev/sr0".into());
        assert_eq!(nodes_of(sys, "block", (11, 0)).unwrap(), nodes);
        // A partition, and what is no SCSI device.
        fs::create_dir_all(sys.join("dev/block/8:1")).unwrap();
        let error = nodes_of(sys, "block", (8, 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        fs::remove_dir_all(sys).unwrap();
    }

    #[test]
    fn what_is_no_device_is_refused() {
        let error = Node::open(Path::new("/")).unwrap_err();
        assert!(matches!(error, ScsiFailure::NoDevice), "{error}");
        let error = Node::open(Path::new("/dev/null")).unwrap_err();
        assert!(matches!(error, ScsiFailure::NoScsi), "{error}");
        let error = Node::open(Path::new("/nowhere/sg0")).unwrap_err();
        assert!(matches!(error, ScsiFailure::Unreachable(_)), "{error}");
    }

    fn of(answer: Answer, out_bytes: usize, room: usize) -> (Result<Ended, IoFailure>, bool) {
        ended(Ok(answer), out_bytes, vec![7; room])
    }

    #[test]
    fn what_the_device_says_comes_unchanged() {
        let answer = Answer {
            status: 2,
            sense: vec![0x70, 0, 0x20],
            driver_status: DRIVER_SENSE,
            residual: 12,
            ..Answer::default()
        };
        let (result, is_gone) = of(answer.clone(), 0, 512);
        let ended = result.unwrap();
        assert_eq!((ended.status, ended.sense), (2, vec![0x70, 0, 0x20]));
        assert_eq!(
            (ended.data, ended.transfer_bytes, is_gone),
            (vec![7; 500], 500, false)
        );
        assert_eq!(of(answer.clone(), 512, 0).0.unwrap().transfer_bytes, 500);
        let more = Answer {
            residual: -12,
            ..answer.clone()
        };
        let ended = of(more, 0, 512).0.unwrap();
        assert_eq!((ended.data.len(), ended.transfer_bytes), (512, 524));
        // A residual that makes no sense.
        let lie = Answer {
            residual: i32::MIN,
            ..answer.clone()
        };
        assert_eq!(of(lie, 0, 512).0.unwrap().data.len(), 512);
        let lie = Answer {
            residual: i32::MAX,
            ..answer
        };
        assert_eq!(of(lie, 0, 512).0.unwrap().transfer_bytes, 0);
    }

    #[test]
    fn what_the_device_has_not_said_is_no_answer() {
        for (host_status, driver_status, gone) in [(3, 0, false), (1, 0, true), (0, 6, false)] {
            let answer = Answer {
                host_status,
                driver_status,
                ..Answer::default()
            };
            assert_eq!(of(answer, 0, 0), (Err(LOST), gone), "{host_status}");
        }
        for (errno, failure, gone) in [
            (19, IoFailure::NotReady, true),
            (6, IoFailure::NotReady, true),
            (4, LOST, false),
            (12, IoFailure::Hardware { errno: 12 }, false),
        ] {
            let error = io::Error::from_raw_os_error(errno);
            assert_eq!(
                ended(Err(error), 0, Vec::new()),
                (Err(failure), gone),
                "{errno}"
            );
        }
    }
}
