//! `tarn attach --as fuse:DIR`: two processes. This one has the mount, as it must be able to unmount at the end, which
//! a process that serves cannot; its child is a `tarn attach --as nbd:SOCKET` that has the devices, on a socket in a
//! directory of its own. So nothing that the network sends is parsed by the process that the kernel waits for.
//!
//! The child ends when this one does, however that is ([`end_with`]). It is in a process group of its own: what a
//! terminal sends to all comes to this process, which unmounts, has the disk flushed, and ends the child then.

use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use tree::{Disk as _, Mounted};

use super::disk::Client;
use super::{AttachArgs, Home, Secret, SecretPlace, wrong};
use crate::signal::Signals;
use crate::{Environment, StartError, say};

/// How often the child is looked at while it starts and ends.
const LOOK: Duration = Duration::from_millis(20);

/// How long the child may hold a request beyond what `--retry` lets it: its store has ended it by then, so it hangs.
const GRACE: Duration = Duration::from_secs(30);

/// How long commands wait for a server where `--retry` is not given: the default of the store.
const RETRY_DEFAULT_S: u32 = 20;

/// How a child ended that has said everything itself.
#[derive(Debug, thiserror::Error)]
#[error("the process that has the devices ended with {0}")]
pub(crate) struct Ended(pub(crate) u8);

/// What the child is given: `PID:SOCKET`.
pub(super) struct Service {
    pub(super) parent: Pid,
    pub(super) socket: String,
}

impl Service {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (parent, socket) = text.split_once(':')?;
        Some(Self {
            parent: Pid::from_raw(parent.parse().ok()?)?,
            socket: socket.to_owned(),
        })
    }
}

/// Has this process end with its parent. False where that has ended already.
pub(super) fn end_with(parent: Pid) -> bool {
    set_parent_process_death_signal(Some(Signal::TERM)).is_ok() && getppid() == Some(parent)
}

/// Mounts a disk until a signal.
pub(super) fn attach(
    args: &AttachArgs,
    directory: &Path,
    environment: &Environment,
) -> anyhow::Result<()> {
    let failed =
        |error: tree::MountError| wrong("--as", format!("{:#}", anyhow::Error::from(error)));
    tree::usable(directory).map_err(failed)?;
    let secret = Secret::of(args, environment)?;
    let signals = Signals::catch().map_err(StartError::Confine)?;
    let home = Home::make(environment)?;
    let (events, arrived) = channel();
    let of_signals = events.clone();
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            signals.wait_for_any();
            // Nobody listens where the end has begun.
            drop(of_signals.send(None));
        })?;
    let mut devices = Devices::start(&home.0, &secret)?;
    let patience = Duration::from_secs(args.retry.unwrap_or(RETRY_DEFAULT_S).into()) * 2 + GRACE;
    let Some(stream) = devices.connected(|| arrived.try_recv().is_ok())? else {
        return devices.end(patience);
    };
    let disk = Client::open(stream, patience)?;
    let mounted = Mounted::of_disk(Arc::new(disk.handle()), directory);
    let mounted = match mounted {
        Ok(mounted) => mounted,
        Err(error) => {
            disk.close();
            devices.end(patience)?;
            return Err(failed(error).into());
        }
    };
    let size = config::keys::size_text(disk.shape().size_bytes);
    let (at, mount) = (directory.join("disk"), directory.display());
    let line = format!(
        "disk  {size}  {} until umount {mount} or SIGTERM\n",
        at.display()
    );
    say(io::stdout().lock(), &line);
    let watched = disk.handle();
    thread::Builder::new()
        .name("disk-loss".to_owned())
        .spawn(move || drop(events.send(watched.wait_lost())))?;
    let (told, lost) = channel();
    let outcome = mounted.wait(move |stopper| {
        let why = arrived.recv().unwrap_or_default();
        drop(told.send(why));
        stopper.stop();
    });
    let is_flushed = disk.close();
    let ended = devices.end(patience);
    outcome?;
    if let Some(why) = lost.try_recv().ok().flatten() {
        anyhow::bail!("the disk is lost: {why}; what was not flushed may be lost, too");
    }
    ended?;
    if !is_flushed {
        anyhow::bail!("the last flush failed: what was written since the one before may be lost");
    }
    Ok(())
}

/// The process that has the devices.
struct Devices {
    child: Child,
    socket: PathBuf,
    has_ended: Option<ExitStatus>,
}

impl Devices {
    fn start(home: &Path, secret: &Secret) -> anyhow::Result<Self> {
        let socket = home.join("nbd.sock");
        let mut given: Vec<OsString> = std::env::args_os().collect();
        let verb = given.iter().position(|argument| argument == "attach");
        let behind = verb.map_or(given.len(), |at| at + 1);
        let service = format!("{}:{}", std::process::id(), socket.display());
        let mut more: Vec<OsString> = vec!["--serve-for".into(), service.into()];
        let mut command = Command::new("/proc/self/exe");
        command.stdin(Stdio::null());
        if let Some(SecretPlace::Memory(password)) = &secret.0 {
            command.stdin(password.try_clone()?);
            more.extend(["--password-file".into(), "/proc/self/fd/0".into()]);
        }
        given.splice(behind..behind, more);
        let child = command
            .args(given.into_iter().skip(1))
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self {
            child,
            socket,
            has_ended: None,
        })
    }

    /// Connects when the child serves; `None` where it has ended, or an end is asked for.
    fn connected(&mut self, is_asked: impl Fn() -> bool) -> io::Result<Option<UnixStream>> {
        loop {
            self.has_ended = self.child.try_wait()?;
            if self.has_ended.is_some() || is_asked() {
                return Ok(None);
            }
            match UnixStream::connect(&self.socket) {
                Ok(stream) => return Ok(Some(stream)),
                Err(_) => look_later(),
            }
        }
    }

    /// Ends the child, which flushes and closes the devices. Its errors are said already.
    fn end(mut self, patience: Duration) -> anyhow::Result<()> {
        // Dropped, it kills what is left.
        let until = Instant::now() + patience;
        if self.has_ended.is_none() {
            let _ended_meanwhile = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        while self.has_ended.is_none() && Instant::now() < until {
            self.has_ended = self.child.try_wait()?;
            look_later();
        }
        match self.has_ended.and_then(|status| status.code()) {
            Some(0) => Ok(()),
            Some(code) => Err(Ended(u8::try_from(code).unwrap_or(1)).into()),
            None => anyhow::bail!("the devices could not be closed: their process did not end"),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "no core of the data plane waits here"
)]
fn look_later() {
    thread::sleep(LOOK);
}

impl Drop for Devices {
    fn drop(&mut self) {
        if self.has_ended.is_none() {
            // It may have ended.
            let _killed = self.child.kill();
            let _reaped = self.child.wait();
        }
    }
}
