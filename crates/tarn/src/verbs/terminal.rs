//! The person at the terminal: questions, secrets without echo, and a sign that work goes on.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use zeroize::Zeroizing;

use super::failure::Failure;
use daemon::say;

/// Work that is done by then needs no sign that it goes on.
const SPINNER_DELAY: Duration = Duration::from_millis(400);
const SPINNER_STEP: Duration = Duration::from_millis(120);
const SPINNER: [char; 4] = ['|', '/', '-', '\\'];
/// To the start of the line, and nothing in it.
const CLEAR_LINE: &str = "\r\x1b[K";

/// Somebody reads questions and can answer them.
pub(crate) fn has_person() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a question that is answered by yes or no; no is what silence means.
pub(super) fn ask_yes(question: &str) -> Result<bool, Failure> {
    say(io::stderr().lock(), &format!("{question} [y/N] "));
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(Failure::Terminal)?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}

/// Asks for a secret, which the terminal does not show.
pub(crate) fn ask_secret(prompt: &str) -> Result<Zeroizing<String>, Failure> {
    let _quiet = Modes::without(LocalModes::ECHO)?;
    say(io::stderr().lock(), prompt);
    let mut secret = Zeroizing::new(String::new());
    let read = io::stdin().lock().read_line(&mut secret);
    say(io::stderr().lock(), "\n");
    read.map_err(Failure::Terminal)?;
    Ok(secret)
}

/// The terminal of the standard input in another mode, until this is dropped.
#[derive(Debug)]
pub(super) struct Modes {
    before: Termios,
}

impl Modes {
    /// Without these modes.
    pub(super) fn without(modes: LocalModes) -> Result<Self, Failure> {
        let failed = |error: rustix::io::Errno| Failure::Terminal(error.into());
        let before = termios::tcgetattr(io::stdin()).map_err(failed)?;
        let mut wanted = before.clone();
        wanted.local_modes.remove(modes);
        termios::tcsetattr(io::stdin(), OptionalActions::Flush, &wanted).map_err(failed)?;
        Ok(Self { before })
    }
}

impl Drop for Modes {
    fn drop(&mut self) {
        // A terminal that is gone needs no modes.
        let _gone = termios::tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

/// Does work that may take long; a person sees that it goes on.
pub(super) fn busy<T>(what: &'static str, work: impl FnOnce() -> T) -> T {
    let _spinner = io::stderr().is_terminal().then(|| Spinner::start(what));
    work()
}

/// Turns until it is dropped.
struct Spinner {
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Spinner {
    fn start(what: &'static str) -> Self {
        let (stop, stopped) = mpsc::channel();
        let waits = move |time| stopped.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        let show = |text: &str| say(io::stderr().lock(), text);
        let thread = std::thread::spawn(move || turn(what, waits, show));
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

/// Turns as long as `waits` has waited for a time in full.
fn turn(what: &str, waits: impl Fn(Duration) -> bool, show: impl Fn(&str)) {
    let mut step = SPINNER_DELAY;
    for sign in SPINNER.iter().cycle() {
        if !waits(step) {
            break;
        }
        show(&format!("\r{sign} {what}"));
        step = SPINNER_STEP;
    }
    if step == SPINNER_STEP {
        show(CLEAR_LINE);
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        // A thread that has ended needs no word, and one that panicked has said so.
        let _ended = self.stop.send(());
        let _said = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_sign_comes_late_turns_and_leaves_an_empty_line() {
        for (turns, expected) in [
            (0, "400"),
            (1, "400 \r| it 120 \r\x1b[K"),
            (
                5,
                "400 \r| it 120 \r/ it 120 \r- it 120 \r\\ it 120 \r| it 120 \r\x1b[K",
            ),
        ] {
            let seen = RefCell::new(Vec::new());
            let waits = |time: Duration| {
                let count = seen.borrow().len() / 2;
                seen.borrow_mut().push(time.as_millis().to_string());
                count < turns
            };
            turn("it", waits, |text| seen.borrow_mut().push(text.to_owned()));
            assert_eq!(seen.into_inner().join(" "), expected, "{turns}");
        }
        assert_eq!(busy("it", || 7), 7);
    }
}
