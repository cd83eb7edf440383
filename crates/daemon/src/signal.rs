//! The signals that end the program, and the one that makes it read its configuration again.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals as Caught;
use signal_hook::low_level::signal_name;

/// Caught signals.
#[derive(Debug)]
pub struct Signals {
    caught: Caught,
    /// Those that end the program are among them.
    has_end: bool,
}

impl Signals {
    /// Catches SIGHUP, which is kept until [`Signals::wait`]. Those that end the program still end it at once: a
    /// signal that is caught does not wake a call that waits for a file system.
    pub fn catch_reload() -> io::Result<Self> {
        let caught = Caught::new([SIGHUP])?;
        Ok(Self {
            caught,
            has_end: false,
        })
    }

    /// Catches those that end the program, too; until [`Signals::wait`] they do nothing.
    pub fn catch_end(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.has_end, true) {
            return Ok(());
        }
        [SIGTERM, SIGINT]
            .into_iter()
            .try_for_each(|signal| self.caught.add_signal(signal))
    }

    /// Catches SIGTERM, SIGINT and SIGHUP; until they are asked for or waited for they do nothing.
    pub fn catch() -> io::Result<Self> {
        let caught = Caught::new([SIGTERM, SIGINT, SIGHUP])?;
        Ok(Self {
            caught,
            has_end: true,
        })
    }

    /// Whether those that end the program are caught.
    pub const fn has_end(&self) -> bool {
        self.has_end
    }

    /// Whether one that ends the program has come since the last call. Drops hang-ups that have come.
    pub fn take_end(&mut self) -> bool {
        self.caught.pending().any(|signal| signal != SIGHUP)
    }

    /// Waits for any of them: a hang-up ends what has no configuration to read again.
    pub fn wait_for_any(mut self) {
        self.caught.forever().next();
    }

    /// Waits for one that ends the program and gives its name; `reload` is called at every SIGHUP. Where a core has
    /// failed, the socket that signals come by is given back before the process ends: then this waits for that end.
    pub fn wait(self, reload: impl FnMut()) -> &'static str {
        match catch_unwind(AssertUnwindSafe(|| self.next_end(reload))) {
            Ok(name) => name,
            Err(_) if reactor::process::is_ending() => loop {
                std::thread::park();
            },
            Err(panic) => resume_unwind(panic),
        }
    }

    fn next_end(mut self, mut reload: impl FnMut()) -> &'static str {
        for signal in self.caught.forever() {
            if signal == SIGHUP {
                reload();
            } else {
                return signal_name(signal).unwrap_or("a signal");
            }
        }
        "end of signals"
    }
}
