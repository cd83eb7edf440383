//! The life of a mount: from a daemon that answers to a directory that is empty again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use api::view::Status;
use client::{Client, ClientError, Limits, path};
use fuser::{Config, Filesystem, MountOption, Session, SessionUnmounter};
use rustix::mount::{UnmountFlags, unmount};

use crate::disk::{Disk, DiskTree};
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

/// The same of a disk: reads and writes wait for nobody, but where parts of the disk are made zero.
const DISK_THREADS: usize = 8;

/// How long the end of the mount waits for requests under way. Those that are left are ended
/// by the kernel with the process.
const END_PATIENCE: Duration = Duration::from_secs(2);

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
        Self::of(Tree::new(Daemon::new(client)), directory, THREADS)
    }

    /// Mounts a disk on a directory, as its file `disk`. It is there when this returns.
    ///
    /// # Errors
    ///
    /// The system does not mount.
    pub fn of_disk(disk: Arc<dyn Disk>, directory: &Path) -> Result<Self, MountError> {
        Self::of(DiskTree::new(disk), directory, DISK_THREADS)
    }

    fn of(
        filesystem: impl Filesystem + 'static,
        directory: &Path,
        threads: usize,
    ) -> Result<Self, MountError> {
        let path = usable(directory)?;
        let refused = |source| MountError::Refused {
            path: path.clone(),
            source,
        };
        let mut session = Session::new(filesystem, &path, &options(threads)).map_err(refused)?;
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
/// There is no such directory, a dead mount is on it, or there is no FUSE.
pub fn usable(directory: &Path) -> Result<PathBuf, MountError> {
    const NOT_CONNECTED: i32 = rustix::io::Errno::NOTCONN.raw_os_error();
    let path = directory.to_owned();
    match fs::canonicalize(directory).and_then(|path| Ok((fs::read_dir(&path)?, path))) {
        Err(error) if error.raw_os_error() == Some(NOT_CONNECTED) => Err(MountError::Dead { path }),
        Err(source) => Err(MountError::NoDirectory { path, source }),
        Ok(_) if !Path::new(DEVICE).exists() => Err(MountError::NoDevice),
        Ok((_, path)) => Ok(path),
    }
}

fn options(threads: usize) -> Config {
    let mut options = Config::default();
    options.mount_options = vec![
        MountOption::FSName("tarn".to_owned()),
        MountOption::Subtype("tarn".to_owned()),
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::NoExec,
        MountOption::NoAtime,
    ];
    options.n_threads = Some(threads);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

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
