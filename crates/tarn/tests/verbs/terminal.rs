//! A terminal where a person types.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

const SIZE: Winsize = Winsize {
    ws_row: 9,
    ws_col: 64,
    ws_xpixel: 0,
    ws_ypixel: 0,
};

/// Something that never comes fails the test.
const PATIENCE: Timespec = Timespec {
    tv_sec: 120,
    tv_nsec: 0,
};

/// What is sent as a signal, not typed.
const TERM: &str = "SIGTERM";

/// Runs a program on a terminal of its own. `keys`: what must be seen first, and what is typed then. Gives all that the
/// terminal showed.
pub(crate) fn typed(mut command: Command, keys: &[(String, String)]) -> (String, ExitStatus) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags).unwrap();
    unlockpt(&ours).unwrap();
    tcsetwinsize(&ours, SIZE).unwrap();
    let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
    let stdio = || Stdio::from(theirs.try_clone().unwrap());
    command.stdin(stdio()).stdout(stdio()).stderr(stdio());
    let mut child = command.spawn().unwrap();
    // The end is seen when nobody has the other side.
    drop((command, theirs));
    let shown = talk(&mut File::from(ours), &child, keys);
    (visible(&shown), child.wait().unwrap())
}

fn talk(terminal: &mut File, child: &Child, keys: &[(String, String)]) -> String {
    let mut shown = Vec::new();
    for (awaited, text) in keys {
        let since = shown.len();
        while !String::from_utf8_lossy(&shown[since..]).contains(awaited) {
            let now = String::from_utf8_lossy(&shown).into_owned();
            assert!(read(terminal, &mut shown), "{awaited:?} is not in {now:?}");
        }
        match text.as_str() {
            TERM => kill_process(Pid::from_child(child), Signal::TERM).unwrap(),
            text => terminal.write_all(text.as_bytes()).unwrap(),
        }
    }
    while read(terminal, &mut shown) {}
    String::from_utf8(shown).unwrap()
}

/// False at the end.
fn read(terminal: &mut File, shown: &mut Vec<u8>) -> bool {
    let mut fds = [PollFd::new(terminal, PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&PATIENCE)), Ok(1), "{shown:?}");
    let mut bytes = [0; 4096];
    // A terminal that nobody has on the other side fails.
    let read = terminal.read(&mut bytes).unwrap_or(0);
    shown.extend_from_slice(&bytes[..read]);
    read > 0
}

/// As a text of lines, without the sign that work goes on: it comes where a machine is slow.
fn visible(shown: &str) -> String {
    let mut text = String::new();
    for piece in shown.split('\r') {
        let is_sign = ["| ", "/ ", "- ", "\\ "]
            .iter()
            .any(|sign| piece.starts_with(sign));
        let piece = match piece.strip_prefix("\x1b[K") {
            Some(cleared) => cleared,
            None if is_sign => "",
            None => piece,
        };
        text += piece;
    }
    // What is drawn begins on a line of its own.
    let mut text = text.replace("\x1b[J", "\x1b[J\n");
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.replace('\x1b', "^[").replace('\x07', "^G")
}
