//! The signals that end the program.

use std::io;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals as Caught;
use signal_hook::low_level::signal_name;

/// SIGTERM and SIGINT, caught from the moment this is made.
pub(crate) struct Signals(Caught);

impl Signals {
    /// Catches the signals; until [`Signals::wait`] they do nothing.
    pub(crate) fn catch() -> io::Result<Self> {
        Caught::new([SIGTERM, SIGINT]).map(Self)
    }

    /// Waits for one of them and gives its name.
    pub(crate) fn wait(mut self) -> &'static str {
        self.0
            .forever()
            .next()
            .and_then(signal_name)
            .unwrap_or("end of signals")
    }
}
