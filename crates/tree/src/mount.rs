//! The life of a mount: from a daemon that answers to a directory that is empty again.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use api::view::Status;
use client::{Client, ClientError, Limits, path};
use fuser::{Config, MountOption, Session, SessionUnmounter};
use rustix::mount::{UnmountFlags, unmount};

use crate::tree::Tree;
use crate::view::Daemon;

/// Limits for the client of a tree. A question is short, because a program waits in a system call
/// that cannot be interrupted; a change may have to drain.
pub const LIMITS: Limits = Limits {
    connect: Duration::from_secs(2),
    question: Duration::from_secs(5),
    change: Duration::from_secs(120),
    silence: Duration::from_secs(15),
    answer_bytes_max: 64 << 20,
};

/// Requests that are worked on at once: a change that drains leaves room for those who read.
const THREADS: usize = 4;

/// How long the end of the mount waits for requests under way. Those that are left are ended
/// by the kernel with the process.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// What the system calls the source of a mount.
const NAME: &str = "tarn";

/// The device that the kernel asks through.
const DEVICE: &str = "/dev/fuse";

/// Why there is no mount. One variant per rule, each with its remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The daemon does not answer.
    #[error(transparent)]
    Daemon(#[from] ClientError),
    /// The kernel has no FUSE, or the container is not given it.
    #[error("there is no {DEVICE}; run modprobe fuse, or give the container that device")]
    NoDevice,
    /// There is no such directory.
    #[error("cannot mount on {}, name a directory that exists", path.display())]
    NoDirectory {
        /// What was named.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A mount that was there has lost its process.
    #[error(
        "cannot mount on {path}, there is a dead mount of before; run fusermount3 -u {path} first",
        path = path.display()
    )]
    Dead {
        /// The directory.
        path: PathBuf,
    },
    /// A mount of this program is there, which works.
    #[error(
        "cannot mount on {path}, a mount of Tarn is there already; name another directory, or run umount {path} (as \
         another user than root: fusermount3 -u {path}) first",
        path = path.display()
    )]
    Taken {
        /// The directory.
        path: PathBuf,
    },
    /// The system does not mount.
    #[error(
        "cannot mount on {}; users other than root need the package fuse3 and a directory of their own",
        path.display()
    )]
    Refused {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The kernel ended the conversation.
    #[error("the mount on {} broke, mount it again", path.display())]
    Broken {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// What happens to a mount.
enum Happening {
    /// Its end was asked for.
    Stop,
    /// It has ended.
    End(io::Result<()>),
}

/// A tree that is mounted.
#[derive(Debug)]
pub struct Mounted {
    path: PathBuf,
    stopper: Stopper,
    happenings: Receiver<Happening>,
}

/// Ends a mount, from another thread.
#[derive(Debug)]
pub struct Stopper {
    path: PathBuf,
    unmounter: SessionUnmounter,
    happenings: Sender<Happening>,
}

impl Mounted {
    /// Mounts the tree of the daemon on a directory. It is there when this returns.
    ///
    /// # Errors
    ///
    /// The daemon does not answer, or the system does not mount.
    pub fn new(client: Client, directory: &Path) -> Result<Self, MountError> {
        client.get::<Status>(&path(&["status"]))?;
        let filesystem = Tree::new(Daemon::new(client));
        let path = usable(directory)?;
        let refused = |source| MountError::Refused {
            path: path.clone(),
            source: in_one_line(source),
        };
        let mut session = Session::new(filesystem, &path, &options()).map_err(refused)?;
        let (sender, happenings) = channel();
        let stopper = Stopper {
            path: path.clone(),
            unmounter: session.unmount_callable(),
            happenings: sender.clone(),
        };
        thread::Builder::new()
            .name("tree".to_owned())
            // Nobody listens any more once the end was waited for long enough.
            .spawn(move || drop(sender.send(Happening::End(session.run()))))
            .map_err(refused)?;
        Ok(Self {
            path,
            stopper,
            happenings,
        })
    }

    /// Waits for the end: somebody unmounts it, or [`Stopper::stop`] is called by the closure's
    /// thread, which gets the means to it.
    ///
    /// # Errors
    ///
    /// The kernel ended the conversation.
    pub fn wait(self, stop: impl FnOnce(Stopper) + Send + 'static) -> Result<(), MountError> {
        let Self {
            path,
            stopper,
            happenings,
        } = self;
        let broken = |source| MountError::Broken {
            path: path.clone(),
            source,
        };
        let waiter = thread::Builder::new().name("tree-end".to_owned());
        waiter.spawn(move || stop(stopper)).map_err(broken)?;
        // All senders gone is an end, too.
        match happenings.recv() {
            Ok(Happening::End(outcome)) => outcome.map_err(broken),
            Ok(Happening::Stop) => {
                drop(happenings.recv_timeout(END_PATIENCE));
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }
}

impl Stopper {
    /// Unmounts. Where somebody is still in the tree it disappears from sight at once, and is
    /// gone when they leave it.
    pub fn stop(mut self) {
        if self.unmounter.unmount().is_err() {
            // Without rights to this one the mount dies with the process.
            let _left = unmount(&self.path, UnmountFlags::DETACH);
        }
        drop(self.happenings.send(Happening::Stop));
    }
}

/// The directory, if it is one that can be mounted on.
///
/// # Errors
///
/// There is no such directory, a mount of before is on it, or there is no FUSE.
fn usable(directory: &Path) -> Result<PathBuf, MountError> {
    const NOT_CONNECTED: i32 = rustix::io::Errno::NOTCONN.raw_os_error();
    let path = directory.to_owned();
    match fs::canonicalize(directory).and_then(|path| Ok((fs::read_dir(&path)?, path))) {
        Err(error) if error.raw_os_error() == Some(NOT_CONNECTED) => Err(MountError::Dead { path }),
        Err(source) => Err(MountError::NoDirectory { path, source }),
        Ok(_) if !Path::new(DEVICE).exists() => Err(MountError::NoDevice),
        Ok((_, path)) if has_mount(&path) => Err(MountError::Taken { path }),
        Ok((_, path)) => Ok(path),
    }
}

/// Whether a mount of this program is on a directory. Where the system does not say, none is known.
fn has_mount(path: &Path) -> bool {
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    mounts
        .split(|byte| *byte == b'\n')
        .any(|line| is_mount_on(line, path.as_os_str().as_bytes()))
}

/// Whether a line of `mountinfo`, proc_pid_mountinfo(5), is a mount of this program on this path.
fn is_mount_on(line: &[u8], path: &[u8]) -> bool {
    let mut words = line.split(|byte| *byte == b' ');
    let is_there = words.nth(4).is_some_and(|word| spoken(word) == path);
    let mut kinds = words.skip_while(|word| *word != b"-").skip(1);
    // `fuse` for root, `fuse.tarn` by way of fusermount3.
    let is_fuse = |kind: &[u8]| kind == b"fuse" || kind == b"fuse.tarn";
    is_there && kinds.next().is_some_and(is_fuse) && kinds.next() == Some(NAME.as_bytes())
}

/// A path as it is: the system writes a space, a tab, a line end and a backslash as an octal number.
fn spoken(word: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, behind)) = rest.split_first() {
        let octal = behind.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                path.push(byte);
                rest = behind.get(3..).unwrap_or_default();
            }
            None => {
                path.push(*first);
                rest = behind;
            }
        }
    }
    path
}

/// What another program has said ends with a line end.
fn in_one_line(error: io::Error) -> io::Error {
    let text = error.to_string();
    let line = text.trim_end();
    match line.len() == text.len() {
        true => error,
        false => io::Error::new(error.kind(), line),
    }
}

fn options() -> Config {
    let mut options = Config::default();
    options.mount_options = vec![
        MountOption::FSName(NAME.to_owned()),
        MountOption::Subtype("tarn".to_owned()),
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::NoExec,
        MountOption::NoAtime,
    ];
    options.n_threads = Some(THREADS);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_of_this_program_is_known_by_its_line() {
        let is_on = |line: &str, path: &str| is_mount_on(line.as_bytes(), path.as_bytes());
        let line = |path, kind| {
            format!(
                "36 35 0:99 / {path} rw,nosuid,nodev,noatime shared:1 master:2 - {kind} rw,user_id=0"
            )
        };
        for kind in ["fuse tarn", "fuse.tarn tarn"] {
            assert!(is_on(&line("/mnt/disk", kind), "/mnt/disk"), "{kind}");
            assert!(is_on(&line(r"/a\040b\134\011", kind), "/a b\\\t"), "{kind}");
            assert!(!is_on(&line("/mnt/disk", kind), "/mnt"), "{kind}");
        }
        for other in ["fuse sshfs", "ext4 tarn", "fuse.tarn other", "fuse"] {
            assert!(!is_on(&line("/mnt/disk", other), "/mnt/disk"), "{other}");
        }
        for odd in [
            "",
            "- fuse tarn",
            r"1 2 3 4 /a\",
            r"1 2 3 4 /a\9 - fuse tarn",
        ] {
            assert!(!is_on(odd, "/a"), "{odd}");
        }
        assert!(!has_mount(Path::new("/")));
    }

    #[test]
    fn what_another_program_said_is_one_line() {
        let said = io::Error::other("fusermount3: mount failed: Permission denied\n");
        let line = in_one_line(said);
        assert_eq!(
            line.to_string(),
            "fusermount3: mount failed: Permission denied"
        );
        let system = in_one_line(io::Error::from_raw_os_error(1));
        assert_eq!(system.raw_os_error(), Some(1));
    }

    #[test]
    fn only_a_directory_can_be_mounted_on() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        for wrong in ["no-such-directory", "Cargo.toml"] {
            let outcome = usable(&here.join(wrong));
            assert!(
                matches!(outcome, Err(MountError::NoDirectory { .. })),
                "{wrong}"
            );
        }
    }
}
