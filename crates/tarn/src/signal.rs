//! The signals that end the program, and the one that makes it read its configuration again.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals as Caught;
use signal_hook::low_level::signal_name;

/// Caught signals.
pub(crate) struct Signals(Caught);

impl Signals {
    /// Catches SIGHUP, which is kept until [`Signals::wait`]. Those that end the program still end it at once: a
    /// signal that is caught does not wake a call that waits for a file system.
    pub(crate) fn catch_reload() -> io::Result<Self> {
        Caught::new([SIGHUP]).map(Self)
    }

    /// Catches those that end the program, too; until [`Signals::wait`] they do nothing.
    pub(crate) fn catch_end(&self) -> io::Result<()> {
        [SIGTERM, SIGINT]
            .into_iter()
            .try_for_each(|signal| self.0.add_signal(signal))
    }

    /// Catches SIGTERM, SIGINT and SIGHUP; until [`Signals::wait_for_any`] they do nothing.
    pub(crate) fn catch() -> io::Result<Self> {
        Caught::new([SIGTERM, SIGINT, SIGHUP]).map(Self)
    }

    /// Waits for any of them: a hang-up ends what has no configuration to read again.
    pub(crate) fn wait_for_any(mut self) {
        self.0.forever().next();
    }

    /// Waits for one that ends the program and gives its name; `reload` is called at every SIGHUP. Where a core has
    /// failed, the socket that signals come by is given back before the process ends: then this waits for that end.
    pub(crate) fn wait(self, reload: impl FnMut()) -> &'static str {
        match catch_unwind(AssertUnwindSafe(|| self.next_end(reload))) {
            Ok(name) => name,
            Err(_) if reactor::process::is_ending() => loop {
                std::thread::park();
            },
            Err(panic) => resume_unwind(panic),
        }
    }

    fn next_end(mut self, mut reload: impl FnMut()) -> &'static str {
        for signal in self.0.forever() {
            if signal == SIGHUP {
                reload();
            } else {
                return signal_name(signal).unwrap_or("a signal");
            }
        }
        "end of signals"
    }
}
