//! What is reported to the service manager, if there is one: `systemctl status` shows the real state, and a
//! reload ends when the change has taken effect.
//!
//! The socket is made before the process confines itself, as none can be made afterwards.
//!
//! Spec: sd_notify(3).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

/// Names the socket of the service manager.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// Says after how much silence the service manager ends the service, and for which process that is.
const WATCHDOG: (&str, &str) = ("WATCHDOG_USEC", "WATCHDOG_PID");

/// Connected for the life of the process; `None` where there is no manager.
static MANAGER: OnceLock<Option<UnixDatagram>> = OnceLock::new();

/// Whether the manager waits for a sign of life.
static IS_WATCHED: OnceLock<bool> = OnceLock::new();

/// Connects to the service manager, if there is one. A manager that cannot be reached is no reason
/// not to serve.
pub(crate) fn connect() {
    IS_WATCHED.get_or_init(|| {
        let value = |name| std::env::var_os(name)?.into_string().ok();
        is_watched(value(WATCHDOG.0), value(WATCHDOG.1), std::process::id())
    });
    MANAGER.get_or_init(|| {
        let name = std::env::var_os(VARIABLE)?;
        connect_to(&name)
            .inspect_err(|error| tracing::warn!(%error, "the service manager cannot be reached"))
            .ok()
    });
}

/// Spec: sd_watchdog_enabled(3): without a process the variable is for every process that reads it.
fn is_watched(microseconds: Option<String>, process: Option<String>, own: u32) -> bool {
    let is_time = |text: String| text.parse::<u64>().is_ok_and(|time| time > 0);
    let is_own = |text: String| text.parse() == Ok(own);
    microseconds.is_some_and(is_time) && process.is_none_or(is_own)
}

/// A name that begins with `@` is abstract.
fn connect_to(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // One that does not read must not hold up a reload, or the end.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Sends assignments, one a line. A manager that cannot be notified is no reason to stop serving.
fn send(assignments: &str) {
    let Some(Some(manager)) = MANAGER.get() else {
        return;
    };
    if let Err(error) = manager.send(assignments.as_bytes()) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}

/// Tarn serves, as `status` says in one line.
pub(crate) fn ready(status: &str) {
    send(&format!("STATUS={status}\nREADY=1\n"));
}

/// A change is being made; [`ready`] follows.
pub(crate) fn reloading() {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, micros) = (now.tv_sec, now.tv_nsec / 1_000);
    send(&format!(
        "RELOADING=1\nMONOTONIC_USEC={seconds}{micros:06}\n"
    ));
}

/// Every core has taken turns: the service need not be started again. The watchdog of the plane says so each second.
pub(crate) fn alive() {
    if IS_WATCHED.get() == Some(&true) {
        send("WATCHDOG=1\n");
    }
}

/// Tarn ends.
pub(crate) fn stopping() {
    send("STOPPING=1\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_manager_that_reads_nothing_is_not_waited_for() {
        let scratch = Scratch::new();
        let path = scratch.path().join("notify");
        let _manager = UnixDatagram::bind(&path).unwrap();
        let socket = connect_to(path.as_os_str()).unwrap();
        let error = (0..1_000_000).find_map(|_| socket.send(b"READY=1\n").err());
        assert_eq!(error.unwrap().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn signs_of_life_are_for_a_manager_that_waits_for_them() {
        let watched = |time: Option<&str>, process: Option<&str>| {
            is_watched(time.map(str::to_owned), process.map(str::to_owned), 7)
        };
        assert!(watched(Some("60000000"), None));
        assert!(watched(Some("60000000"), Some("7")));
        for (time, process) in [
            (None, Some("7")),
            (Some("0"), None),
            (Some("x"), None),
            (Some("1"), Some("8")),
        ] {
            assert!(!watched(time, process), "{time:?} {process:?}");
        }
    }

    #[test]
    fn a_manager_is_reached_by_path_and_by_abstract_name() {
        let scratch = Scratch::new();
        let path = scratch.path().join("notify");
        let abstract_name = format!("tarn-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        for (manager, name) in [
            (
                UnixDatagram::bind(&path).unwrap(),
                path.clone().into_os_string(),
            ),
            (
                UnixDatagram::bind_addr(&address).unwrap(),
                format!("@{abstract_name}").into(),
            ),
        ] {
            connect_to(&name).unwrap().send(b"READY=1\n").unwrap();
            let mut text = [0; 16];
            let length = manager.recv(&mut text).unwrap();
            assert_eq!(&text[..length], b"READY=1\n");
        }
        assert!(connect_to(OsStr::new("/nowhere/notify")).is_err());
    }
}
