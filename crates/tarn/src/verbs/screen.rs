//! The whole screen of a terminal, drawn again and again, and keys as they are pressed.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{LocalModes, tcgetwinsize};

use super::failure::Failure;
use super::terminal::Modes;
use crate::say;

/// The other screen, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// To the first line, and nothing below.
const HOME: &str = "\x1b[H\x1b[J";
/// What Ctrl-C sends.
const END_OF_TEXT: u8 = 3;

/// The screen, until it is dropped.
#[derive(Debug)]
pub(super) struct Screen {
    _modes: Modes,
}

impl Screen {
    /// Keys come one by one and are not shown. Ctrl-C is one of them, so that the terminal is put
    /// right in any case.
    pub(super) fn open() -> Result<Self, Failure> {
        let modes = Modes::without(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)?;
        say(io::stdout().lock(), ENTER);
        Ok(Self { _modes: modes })
    }

    /// Draws as much of a text as there is room for.
    pub(super) fn draw(&self, text: &str) {
        let (rows, columns) = tcgetwinsize(io::stdout()).map_or((usize::MAX, usize::MAX), |size| {
            (usize::from(size.ws_row), usize::from(size.ws_col))
        });
        let lines = text.lines().take(rows.saturating_sub(1).max(1));
        let lines: String = lines
            .map(|line| {
                line.chars()
                    .take(columns.max(1))
                    .chain(['\n'])
                    .collect::<String>()
            })
            .collect();
        say(io::stdout().lock(), &format!("{HOME}{lines}"));
    }

    /// Waits for a key, no longer than this; zero stands for none. `None` when it shall end: by q,
    /// Ctrl-C, or because the terminal is gone.
    pub(super) fn key(&self, patience: Duration) -> Result<Option<u8>, Failure> {
        let failed = |error: Errno| Failure::Terminal(error.into());
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let patience = Timespec::try_from(patience).ok();
        match poll(&mut fds, patience.as_ref()) {
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

impl Drop for Screen {
    fn drop(&mut self) {
        say(io::stdout().lock(), LEAVE);
    }
}
