//! The whole screen of a terminal, drawn again and again, and keys as they are pressed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{LocalModes, tcgetwinsize};
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::flag;

use super::failure::Failure;
use super::terminal::Modes;
use daemon::say;

/// The other screen, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// To the first line, and nothing below.
const HOME: &str = "\x1b[H\x1b[J";
/// How long a wait for a key lasts at most: a signal that comes before it does not end it.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// What Ctrl-C sends.
const END_OF_TEXT: u8 = 3;

/// The screen, until it is dropped.
#[derive(Debug)]
pub(super) struct Screen {
    /// A signal asked for the end.
    is_ended: Arc<AtomicBool>,
    _modes: Modes,
}

impl Screen {
    /// Keys come one by one and are not shown. Ctrl-C is one of them, and the signals that end
    /// programs are caught, so that the terminal is put right in any case.
    pub(super) fn open() -> Result<Self, Failure> {
        let is_ended = Arc::<AtomicBool>::default();
        for signal in [SIGTERM, SIGHUP] {
            flag::register(signal, Arc::clone(&is_ended)).map_err(Failure::Signals)?;
        }
        let modes = Modes::without(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)?;
        say(io::stdout().lock(), ENTER);
        Ok(Self {
            is_ended,
            _modes: modes,
        })
    }

    /// Draws as much of a text as there is room for.
    pub(super) fn draw(&self, text: &str) {
        let size = tcgetwinsize(io::stdout());
        let (rows, columns) = size.map_or((0, 0), |size| (size.ws_row, size.ws_col));
        say(io::stdout().lock(), &drawn(text, rows, columns));
    }

    /// Waits for a key, no longer than this nor [`WAIT_MAX`]; zero stands for none. `None` when it shall end: by q,
    /// Ctrl-C, a signal, or because the terminal is gone.
    pub(super) fn key(&self, patience: Duration) -> Result<Option<u8>, Failure> {
        let failed = |error: Errno| Failure::Terminal(error.into());
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let patience = Timespec::try_from(patience.min(WAIT_MAX)).ok();
        let polled = poll(&mut fds, patience.as_ref());
        if self.is_ended.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match polled {
            Ok(0) | Err(Errno::INTR) => return Ok(Some(0)),
            Ok(_) => {}
            Err(error) => return Err(failed(error)),
        }
        let mut key = [0];
        let read = rustix::io::read(&stdin, &mut key).map_err(failed)?;
        let [key] = key;
        let is_end = read == 0 || matches!(key, b'q' | END_OF_TEXT);
        Ok((!is_end).then_some(key))
    }
}

/// What draws the first lines of a text; the last row stays empty for the cursor.
fn drawn(text: &str, rows: u16, columns: u16) -> String {
    let line = |line: &str| {
        line.chars()
            .take(room(columns))
            .chain(['\n'])
            .collect::<String>()
    };
    let lines = text.lines().take(room(rows).saturating_sub(1)).map(line);
    format!("{HOME}{}", lines.collect::<String>())
}

/// A terminal that does not know its size, as on a serial line, says zero; then everything is drawn.
fn room(size: u16) -> usize {
    match size {
        0 => usize::MAX,
        size => size.into(),
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        say(io::stdout().lock(), LEAVE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_is_drawn_as_there_is_room_for() {
        for (rows, columns, expected) in [
            (0, 0, "abc\näöü\nx\n"),
            (4, 3, "abc\näöü\nx\n"),
            (3, 2, "ab\näö\n"),
            (2, 4, "abc\n"),
            (1, 4, ""),
        ] {
            let text = drawn("abc\näöü\nx", rows, columns);
            assert_eq!(text, format!("\x1b[H\x1b[J{expected}"), "{rows} {columns}");
        }
    }
}
