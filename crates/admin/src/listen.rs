//! The unix socket where the administration listens, and those of servers of NBD.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Access, Mode, OFlags, access, fchmod};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::umask;

/// Why the administration cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process serves the socket.
    #[error(
        "{}: another program serves this socket; stop it, or name another socket",
        path.display()
    )]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something that is no socket has the name.
    #[error("{}: is there and is no socket; move it away, or name another socket", path.display())]
    NoSocket {
        /// The name.
        path: PathBuf,
    },
    /// Whether somebody serves it cannot be found out.
    #[error(
        "{}: is there, and whether a program serves it cannot be found out ({source}); remove it if none does",
        path.display()
    )]
    Unknown {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A process that is confined makes sockets at its start only.
    #[error(
        "{}: no unix socket can be made any more, as this process is confined since its start; restart it with this \
         configuration, or have the service manager pass the socket on",
        path.display()
    )]
    Sealed {
        /// The socket.
        path: PathBuf,
    },
    /// The socket cannot be made.
    #[error("{}: cannot be made: {source}; check its directory, or name another socket", path.display())]
    Unix {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The mode of a socket that only its owner, and root, may connect to.
pub const PRIVATE: u32 = 0o600;

/// A socket in the file system, gone with this value.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode, so that only our own is removed.
    identity: (u64, u64),
    /// All that was made for it.
    _lock: SocketLock,
}

impl SocketFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|own| own == self.identity) {
            // A socket that stays is found to be stale by the next one.
            fs::remove_file(&self.path).ok();
        }
    }
}

/// The lock on the path of a socket, with the directories that were made for it. What was made goes with this value,
/// as far as nothing else is in it.
#[derive(Debug)]
struct SocketLock {
    path: PathBuf,
    /// Held while we serve. The kernel releases it when we end, however we end.
    file: Option<File>,
    directories: MadeDirectories,
}

impl SocketLock {
    /// Of two that start at once, one gets the lock.
    fn take(path: &Path, directories: MadeDirectories) -> Result<Self, ListenError> {
        Ok(Self {
            file: Some(patiently(|| lock(path))?),
            path: beside(path, ".lock"),
            directories,
        })
    }
}

impl Drop for SocketLock {
    fn drop(&mut self) {
        // While it is held: who opens the file meanwhile finds that it is not the one at the path any more.
        fs::remove_file(&self.path).ok();
        drop(self.file.take());
        // Before its parts are dropped by themselves, in the order that is right.
        self.directories.remove();
    }
}

/// Directories that were made for a socket, the outermost first.
#[derive(Debug, Default)]
struct MadeDirectories(Vec<PathBuf>);

impl MadeDirectories {
    /// Makes a directory, private, with all that it is in.
    fn make(directory: &Path) -> io::Result<Self> {
        let is_named = |path: &&Path| !path.as_os_str().is_empty();
        let missing = directory.ancestors().filter(is_named);
        let missing: Vec<_> = missing.take_while(|path| !path.exists()).collect();
        let mut made = Self::default();
        for path in missing.into_iter().rev() {
            match DirBuilder::new().mode(0o700).create(path) {
                Ok(()) => made.0.push(path.to_owned()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(made)
    }

    /// Removes those that are empty.
    fn remove(&mut self) {
        for path in self.0.drain(..).rev() {
            fs::remove_dir(path).ok();
        }
    }
}

impl Drop for MadeDirectories {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Makes a unix socket whose file has this mode. A stale one is replaced; directories that are missing are made
/// private, and go with the socket.
///
/// # Errors
///
/// Another process serves it, or it cannot be made.
pub fn unix(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile), ListenError> {
    let failed = |source| ListenError::Unix {
        path: path.to_owned(),
        source,
    };
    let directories = path.parent().map(MadeDirectories::make);
    let directories = directories.transpose().map_err(failed)?;
    let lock = SocketLock::take(path, directories.unwrap_or_default())?;
    patiently(|| check_free(path))?;
    // It gets its name when nobody can connect any more who may not, and takes the place of a stale one in the same
    // step.
    let new = beside(path, ".new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    let listener = bind(&new, mode).map_err(|errno| match errno {
        Errno::PERM => ListenError::Sealed {
            path: path.to_owned(),
        },
        _ => failed(errno.into()),
    })?;
    fs::rename(&new, path)
        .inspect_err(|_| drop(fs::remove_file(&new)))
        .map_err(failed)?;
    let file = SocketFile {
        path: path.to_owned(),
        identity: identity(path).map_err(failed)?,
        _lock: lock,
    };
    Ok((listener, file))
}

/// The file gets its mode from the socket: a process that is confined changes no mode by a path. All other files that
/// Tarn makes have modes of their own, so that none of them is wider for the moment without a mask.
///
/// Spec: unix(7), Pathname socket ownership and permissions.
fn bind(path: &Path, mode: u32) -> Result<UnixListener, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::from_raw_mode(mode))?;
    let mask = umask(Mode::empty());
    let bound = rustix::net::bind(&socket, &address);
    umask(mask);
    bound?;
    // As many as the kernel lets wait.
    rustix::net::listen(&socket, -1).inspect_err(|_| drop(fs::remove_file(path)))?;
    Ok(UnixListener::from(socket))
}

/// Whether a unix socket could be made at a path, as [`unix`] makes it. Makes and locks nothing; `is_locked` says
/// whether somebody else has the lock on the path.
///
/// # Errors
///
/// Another process serves it, or it cannot be made.
pub fn probe_unix(path: &Path, is_locked: impl Fn(&File) -> bool) -> Result<(), ListenError> {
    let failed = |source| ListenError::Unix {
        path: path.to_owned(),
        source,
    };
    let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| Path::new("."));
    // Directories that are missing are made.
    let mut above = parent.ancestors();
    let there = above.find(|path| fs::symlink_metadata(path).is_ok());
    let there = there.unwrap_or_else(|| Path::new("."));
    access(there, Access::WRITE_OK | Access::EXEC_OK).map_err(|errno| failed(errno.into()))?;
    if there != parent {
        return Ok(());
    }
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(NOT_FOLLOWED);
    match options.open(beside(path, ".lock")) {
        Ok(lock) if is_locked(&lock) => Err(ListenError::InUse {
            path: path.to_owned(),
        }),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        Ok(_) | Err(_) => check_free(path),
    }
}

/// `O_NOFOLLOW` and `O_NONBLOCK`.
const NOT_FOLLOWED: i32 = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .bits()
    .cast_signed();

/// How long a socket and a lock may be there after the server that had them was killed: another process may have had
/// copies of them for a moment, as one that it was about to start.
const LINGER: Duration = Duration::from_secs(1);

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Tries again where a server that was killed may be in the way.
#[expect(
    clippy::disallowed_methods,
    reason = "a thread of the start or of the administration waits, never a core"
)]
fn patiently<T>(attempt: impl Fn() -> Result<T, ListenError>) -> Result<T, ListenError> {
    let end = Instant::now() + LINGER;
    loop {
        match attempt() {
            Err(ListenError::InUse { .. }) if Instant::now() < end => thread::sleep(PAUSE),
            other => return other,
        }
    }
}

/// The file of a lock goes with the one who has it, so the file that is locked may be another by then than that at the
/// path.
fn lock(path: &Path) -> Result<File, ListenError> {
    const ATTEMPTS: u32 = 16;
    for _ in 0..ATTEMPTS {
        let file = lock_once(path)?;
        let own = file.metadata().map(|found| (found.dev(), found.ino()));
        if own.is_ok_and(|own| identity(&beside(path, ".lock")).is_ok_and(|found| found == own)) {
            return Ok(file);
        }
    }
    Err(ListenError::InUse {
        path: path.to_owned(),
    })
}

fn lock_once(path: &Path) -> Result<File, ListenError> {
    let failed = |source| ListenError::Unix {
        path: path.to_owned(),
        source,
    };
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false).mode(0o600);
    // What is there may be a pipe that nobody reads, or a link to another file.
    let options = options.custom_flags(NOT_FOLLOWED);
    let file = options.open(beside(path, ".lock")).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(ListenError::InUse {
            path: path.to_owned(),
        }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// If the socket accepts connections, a server without our lock still runs.
fn check_free(path: &Path) -> Result<(), ListenError> {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !metadata.file_type().is_socket() {
        return Err(ListenError::NoSocket {
            path: path.to_owned(),
        });
    }
    match connect_at_once(path) {
        // `AGAIN`: so many wait for it already that no more may.
        Ok(()) | Err(Errno::AGAIN) => Err(ListenError::InUse {
            path: path.to_owned(),
        }),
        // A process that is confined makes no connections.
        Err(error @ Errno::PERM) => Err(ListenError::Unknown {
            path: path.to_owned(),
            source: error.into(),
        }),
        Err(_) => Ok(()),
    }
}

/// Without waiting for a server that accepts nobody.
fn connect_at_once(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use durable::scratch::Scratch;

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "something is to happen meanwhile"
    )]
    fn what_a_killed_server_has_left_for_a_moment_is_waited_for() {
        let scratch = Scratch::new();
        let path = scratch.path().join("tarn.sock");
        let left = UnixListener::bind(&path).unwrap();
        let lock = lock_once(&path).unwrap();
        let end = thread::spawn(|| {
            thread::sleep(PAUSE * 2);
            drop(lock);
            thread::sleep(PAUSE * 2);
            drop(left);
        });
        unix(&path, PRIVATE).unwrap();
        end.join().unwrap();
    }

    #[test]
    fn a_socket_is_private_and_gone_at_the_end() {
        let scratch = Scratch::new();
        let path = scratch.path().join("run/tarn.sock");
        let (_listener, file) = unix(&path, PRIVATE).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        UnixStream::connect(&path).unwrap();
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn what_was_made_for_a_socket_goes_with_it_and_what_was_there_stays() {
        let scratch = Scratch::new();
        let path = scratch.path().join("a/b/c/tarn.sock");
        let made = unix(&path, PRIVATE).unwrap();
        fs::write(scratch.path().join("a/other"), "of somebody else").unwrap();
        drop(made);
        assert!(!scratch.path().join("a/b").exists());
        assert!(scratch.path().join("a/other").exists());
        fs::create_dir(scratch.path().join("a/b")).unwrap();
        fs::create_dir(scratch.path().join("a/b/c")).unwrap();
        fs::write(&path, "no socket").unwrap();
        assert!(unix(&path, PRIVATE).is_err());
        let left = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "a socket that was refused has left a file");
    }

    #[test]
    fn a_socket_has_the_mode_that_is_asked_for() {
        let scratch = Scratch::new();
        let path = scratch.path().join("tarn.sock");
        let (_listener, _file) = unix(&path, 0o664).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o664);
    }

    #[test]
    fn a_second_one_is_refused_while_the_first_serves() {
        let scratch = Scratch::new();
        let path = scratch.path().join("tarn.sock");
        let first = unix(&path, PRIVATE).unwrap();
        assert!(matches!(
            unix(&path, PRIVATE),
            Err(ListenError::InUse { .. })
        ));
        drop(first);
        unix(&path, PRIVATE).unwrap();
    }

    #[test]
    fn a_stale_socket_is_replaced_and_one_that_is_served_is_not() {
        let scratch = Scratch::new();
        let path = scratch.path().join("tarn.sock");
        let foreign = UnixListener::bind(&path).unwrap();
        assert!(matches!(
            unix(&path, PRIVATE),
            Err(ListenError::InUse { .. })
        ));
        drop(foreign);
        assert!(path.exists());
        let (_listener, _file) = unix(&path, PRIVATE).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    /// Its backlog is full, so that a connect would wait.
    #[test]
    fn a_server_that_accepts_nobody_is_not_waited_for() {
        let scratch = Scratch::new();
        let path = scratch.path().join("busy.sock");
        let address = SocketAddrUnix::new(&path).unwrap();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let new = || socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let server = new();
        rustix::net::bind(&server, &address).unwrap();
        rustix::net::listen(&server, 0).unwrap();
        let mut clients = Vec::new();
        let refused = loop {
            let client = new();
            match connect(&client, &address) {
                Ok(()) => clients.push(client),
                Err(error) => break error,
            }
        };
        assert_eq!(refused, Errno::AGAIN);
        let busy = unix(&path, PRIVATE);
        assert!(matches!(busy, Err(ListenError::InUse { .. })), "{busy:?}");
    }

    #[test]
    fn what_is_no_socket_stays() {
        let scratch = Scratch::new();
        let path = scratch.path().join("tarn.sock");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(
            unix(&path, PRIVATE),
            Err(ListenError::NoSocket { .. })
        ));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn the_socket_of_somebody_else_is_not_removed() {
        let scratch = Scratch::new();
        let path = scratch.path().join("tarn.sock");
        let (_listener, file) = unix(&path, PRIVATE).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(file);
        assert!(path.exists());
    }
}
