//! `tarn attach` in two processes, for a form whose end needs rights that a process that serves has given up. This one
//! has the block device that programs use; its child is a `tarn attach --as nbd:SOCKET` that has the
//! devices, on a socket in a directory of its own. So nothing that the network sends is parsed by the process that the
//! kernel waits for.
//!
//! The child ends when this one does, however that is ([`end_with`]). It is in a process group of its own: what a
//! terminal sends to all comes to this process, which takes away what programs use, has the disk flushed, and ends the
//! child then.

use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};

use super::disk::Client;
use super::{AttachArgs, Home, Secret, SecretPlace};
use daemon::signal::Signals;
use daemon::{Environment, StartError, say};

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
pub(super) struct Given {
    pub(super) parent: Pid,
    pub(super) socket: String,
}

impl Given {
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

/// The disk that the child serves, and what ends it.
pub(super) struct Service {
    pub(super) disk: Client,
    devices: Devices,
    events: Sender<Option<String>>,
    arrived: Option<Receiver<Option<String>>>,
    patience: Duration,
    // Used by the child as long as it runs.
    _home: Home,
    _secret: Secret,
}

impl Service {
    /// Starts the child, and waits for its disk. `None` where a signal came first.
    pub(super) fn start(
        args: &AttachArgs,
        environment: &Environment,
    ) -> anyhow::Result<Option<Self>> {
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
        let mut devices = Devices::start(&home.path, &secret)?;
        let patience =
            Duration::from_secs(args.retry.unwrap_or(RETRY_DEFAULT_S).into()) * 2 + GRACE;
        let Some(stream) = devices.connected(|| arrived.try_recv().is_ok())? else {
            devices.end(patience)?;
            return Ok(None);
        };
        Ok(Some(Self {
            disk: Client::open(stream, patience)?,
            devices,
            events,
            arrived: Some(arrived),
            patience,
            _home: home,
            _secret: secret,
        }))
    }

    /// Says where the disk is, and reports its loss from now on.
    pub(super) fn announce(&self, place: &Path, until: &str) -> io::Result<()> {
        let size = config::keys::size_text(self.disk.shape().size_bytes);
        let line = format!("disk  {size}  {} until {until}\n", place.display());
        say(io::stdout().lock(), &line);
        let (watched, events) = (self.disk.handle(), self.events.clone());
        thread::Builder::new()
            .name("disk-loss".to_owned())
            // Nobody listens where the end has begun.
            .spawn(move || drop(events.send(watched.wait_lost())))?;
        Ok(())
    }

    /// Takes an end by others: why the disk is lost, or nothing.
    pub(super) fn events(&self) -> Sender<Option<String>> {
        self.events.clone()
    }

    /// Gives the end: a signal, or why the disk is lost.
    pub(super) fn take_end(&mut self) -> Receiver<Option<String>> {
        self.arrived.take().unwrap_or_else(|| channel().1)
    }

    /// There is nothing that uses the disk: it is closed without a flush.
    pub(super) fn give_up(self) -> anyhow::Result<()> {
        self.disk.close();
        self.devices.end(self.patience)
    }

    /// Flushes and closes the disk, which nobody uses any more. `outcome` is how that ended, `lost` why it was.
    pub(super) fn end(
        self,
        outcome: anyhow::Result<()>,
        lost: Option<String>,
    ) -> anyhow::Result<()> {
        let is_flushed = self.disk.close();
        let ended = self.devices.end(self.patience);
        if let Some(why) = lost {
            anyhow::bail!("the disk is lost: {why}; what was not flushed may be lost, too");
        }
        outcome?;
        ended?;
        if !is_flushed {
            anyhow::bail!(
                "the last flush failed: what was written since the one before may be lost"
            );
        }
        Ok(())
    }
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
        let ended = self.has_ended;
        match ended.and_then(|status| status.code()) {
            Some(0) => Ok(()),
            Some(code) => Err(Ended(u8::try_from(code).unwrap_or(1)).into()),
            // It catches that signal before it makes or opens anything.
            None if has_not_begun(ended) => Ok(()),
            None => match ended {
                Some(status) => anyhow::bail!("the devices were not closed well: {status}"),
                None => anyhow::bail!("the devices could not be closed: their process did not end"),
            },
        }
    }
}

/// Whether the child has ended with the signal that asked it to, which it does not where it has begun.
fn has_not_begun(ended: Option<ExitStatus>) -> bool {
    ended.and_then(|status| status.signal()) == Some(Signal::TERM.as_raw())
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

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixListener;

    use durable::scratch::Scratch;

    use super::*;

    #[test]
    fn a_child_is_given_its_parent_and_its_socket() {
        let given = |text| {
            Given::parse(text).map(|given| (given.parent.as_raw_nonzero().get(), given.socket))
        };
        assert_eq!(given("7:/a:b"), Some((7, "/a:b".to_owned())));
        for wrong in ["7", "0:/a", "x:/a", ":/a", ""] {
            assert_eq!(given(wrong), None, "{wrong}");
        }
    }

    /// A child that runs until a signal, with this trap for it.
    fn child(trap: &str, socket: PathBuf) -> Devices {
        let script = format!("{trap}\necho\nwhile :; do sleep 0.01; done");
        let mut command = Command::new("sh");
        let mut child = command
            .args(["-c", &script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The trap is set.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Devices {
            child,
            socket,
            has_ended: None,
        }
    }

    #[test]
    fn how_a_child_ends_is_how_the_end_goes() {
        let long = Duration::from_secs(600);
        for (trap, patience, expected) in [
            ("trap 'exit 0' TERM", long, ""),
            (
                "trap 'exit 3' TERM",
                long,
                "the process that has the devices ended with 3",
            ),
            // It has not begun.
            ("", long, ""),
            (
                "trap 'kill -KILL $$' TERM",
                long,
                "the devices were not closed well: signal: 9",
            ),
            (
                "trap '' TERM",
                Duration::ZERO,
                "the devices could not be closed: their process did not end",
            ),
        ] {
            let outcome = child(trap, PathBuf::new()).end(patience);
            let said = outcome.map_or_else(|error| error.to_string(), |()| String::new());
            assert_eq!(said.split(" (").next(), Some(expected), "{trap}");
        }
        assert_eq!(Ended(3).0, 3);
    }

    #[test]
    fn a_child_is_waited_for_until_it_serves_ends_or_an_end_is_asked_for() {
        let scratch = Scratch::new();
        let socket = scratch.path().join("s");
        let mut devices = child("", socket.clone());
        assert!(devices.connected(|| true).unwrap().is_none());
        assert_eq!(devices.has_ended, None);
        let listener = UnixListener::bind(&socket).unwrap();
        assert!(devices.connected(|| false).unwrap().is_some());
        drop(listener);
        kill_process(Pid::from_child(&devices.child), Signal::TERM).unwrap();
        assert!(devices.connected(|| false).unwrap().is_none());
        assert!(has_not_begun(devices.has_ended));
        devices.end(Duration::ZERO).unwrap();
    }
}
