//! The opener: a process that keeps CAP_NET_RAW, which Tarn gives up, and makes the sockets for interfaces that later
//! changes name. [`reactor::opener`] says what the two have in common, [`confine::opener`] what it gives up.
//!
//! It is there wherever Tarn has the right to give up, whether the first configuration has an interface or not: the
//! right was granted by an administrator, or Tarn was started by root, and it serves no other purpose. Without the
//! right there is none, nor where the kernel cannot filter system calls; a change that names an interface is refused
//! then, with the remedy. A process without interfaces that change (`tarn attach`) has none.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use confine::account::Account;
use hyperscsi::limits::ETHERTYPE;
use reactor::opener::{self, Opener, OpenerError, UserAndGroup};
use rustix::io::Errno;

use crate::interface;

/// The command line of the opener has this word alone. It is no verb: nobody but `tarn serve` begins with it.
pub(crate) const WORD: &str = "frame-opener";

/// This very program, also when its file was replaced or is out of reach.
const PROGRAM: &str = "/proc/self/exe";

const NAME: &std::ffi::CStr = c"tarn-opener";

/// Why the opener cannot begin.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the other process: {0}")]
    Other(#[from] Errno),
    #[error(transparent)]
    Rights(#[from] confine::opener::OpenerError),
}

/// An opener that was started, if Tarn has the right now that it keeps.
pub(crate) struct Starting(Option<io::Result<Opener>>);

/// Starts it. To be called before anything else is done, with all rights and nothing open.
pub(crate) fn start() -> Starting {
    let started = interface::has_right().then(|| {
        let mut command = Command::new(PROGRAM);
        // What else the environment says is not for it.
        command.arg0("tarn").arg(WORD).env_clear().current_dir("/");
        Opener::start(&mut command, ETHERTYPE)
    });
    Starting(started)
}

impl Starting {
    /// None, for a process whose interfaces never change.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// Has it become this user and begin, and has all later sockets of frames come from it. To be called just before
    /// the right is given up, while there is no other thread.
    pub(crate) fn install(self, account: Option<&Account>) {
        let Some(started) = self.0 else {
            return;
        };
        let not_started = |reason: String| OpenerError::NotStarted { reason };
        let begun = started.map_err(|error| not_started(error.to_string()));
        let begun = begun.and_then(|opener| {
            let account = account.map(|account| (account.uid, account.gid));
            let begun = opener.begin(account);
            begun.map_err(|error| match error {
                OpenerError::Ended => not_started(
                    "it ended at once: the log says why, or the kernel has no seccomp".to_owned(),
                ),
                OpenerError::Silent => not_started("it does not begin".to_owned()),
                OpenerError::NotStarted { .. } | OpenerError::Refused(_) => {
                    not_started(error.to_string())
                }
            })?;
            Ok(opener)
        });
        match &begun {
            Ok(opener) => {
                let pid = opener.pid();
                tracing::info!(
                    pid,
                    "a process of its own keeps CAP_NET_RAW, for interfaces of later changes"
                );
            }
            Err(error) => tracing::warn!("{error}"),
        }
        opener::install(begun);
    }
}

/// The opener itself. Comes back only if it cannot begin.
pub(crate) fn run() -> ExitCode {
    let input = io::stdin();
    if !opener::is_socket_of_opener(input.as_fd()) {
        let line = format!("tarn: {WORD} is started by tarn serve alone");
        crate::report::report(&line, crate::EXIT_WRONG, false);
        return ExitCode::from(crate::EXIT_WRONG);
    }
    let confine = |account: Option<UserAndGroup>| {
        let account = account.map(|(uid, gid)| Account {
            uid,
            gid,
            groups: Vec::new(),
        });
        confine::opener::give_up(account.as_ref(), NAME).map_err(Failure::from)
    };
    let failure: Failure = opener::run(input.as_fd(), ETHERTYPE, confine);
    // Tarn has ended without a word, as its configuration was wrong.
    if !matches!(failure, Failure::Other(Errno::PIPE)) {
        let line = crate::error::chain(&failure);
        crate::report::report(
            &format!("tarn: the process that opens sockets of interfaces cannot begin: {line}"),
            crate::EXIT_FAILED,
            false,
        );
    }
    ExitCode::from(crate::EXIT_FAILED)
}
