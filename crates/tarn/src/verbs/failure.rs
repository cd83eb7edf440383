//! What can keep a verb from being done, beside what the daemon says.

use std::io;
use std::path::PathBuf;

use api::problem::{Mistake, ProblemKind};
use client::ClientError;
use serde_json::{Value, json};
use tree::{MountError, WalkError};

use super::exit::Exit;
use super::suggest::Unclosed;
use daemon::StartError;

/// How a verb ends.
pub(crate) type Outcome = Result<Exit, Failure>;

/// Why a verb was not done. One variant per rule, each with its remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Failure {
    /// The daemon says why not, or does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The surroundings of the process are not as they must be.
    #[error(transparent)]
    Start(#[from] StartError),

    // The command line.
    /// A change without a change.
    #[error("nothing to change is given; see tarn {noun} set --help")]
    NothingGiven {
        /// What kind of thing.
        noun: &'static str,
    },
    /// A quota that says not which disks it counts.
    #[error("{of:?} does not say which disks the quota counts: give owner:NAME or pool:PLACE")]
    QuotaOfNothing {
        /// What was given.
        of: String,
    },
    /// Another medium for a disk that has a fixed one.
    #[error(
        "the medium of lun {id:?} is fixed; only a STORE with the option removable can be loaded"
    )]
    MediumFixed {
        /// The unit.
        id: String,
    },
    /// A STORE that is none.
    #[error("the STORE is wrong: {0}")]
    Store(config::StoreRule),
    /// A STORE that would be a fixed medium.
    #[error("STORE {store:?} does not have the option removable; add it")]
    StoreFixed {
        /// As it was given.
        store: String,
    },
    /// A medium with other blocks than initiators know of.
    #[error(
        "the STORE has blocks of {got} bytes, the unit of {has}; name one with blocks of {has} bytes"
    )]
    OtherBlocks {
        /// What it has.
        got: u32,
        /// What the unit has.
        has: u32,
    },
    /// The file to compare with is on another machine, or there is none.
    #[error("the daemon was started {how}; name the FILE to compare with")]
    NoFile {
        /// How.
        how: &'static str,
    },
    /// There is no revision before the one that runs.
    #[error("there is no revision before the one that runs; tarn history lists all")]
    NoEarlier,
    /// A remote daemon and no token.
    #[error("--url needs a token; give --token-file FILE with one that tarn token add made")]
    NoToken,

    // Files.
    /// A file of the command line cannot be read.
    #[error("cannot read {}, name a file that exists and is readable", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}, name a directory that can be written to", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// More text than a configuration may have.
    #[error("{} has more than {max} bytes; name a configuration file", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The limit.
        max: u64,
    },
    /// The terminal cannot be used.
    #[error("cannot use the terminal, give the answer with a flag instead")]
    Terminal(#[source] io::Error),
    /// A secret from the standard input that is none.
    #[error("the secret has {got} bytes; it must have {min} to {max}")]
    SecretLength {
        /// How many it has.
        got: usize,
        /// The shortest.
        min: usize,
        /// The longest.
        max: usize,
    },
    /// Two answers that differ.
    #[error("the two secrets differ; nothing was changed, try again")]
    SecretsDiffer,
    /// No secret and nobody to ask.
    #[error("user {name:?} needs a secret; give --secret-from FILE, or - for the standard input")]
    NoSecret {
        /// The user.
        name: String,
    },

    /// No password and nobody to ask.
    #[error(
        "group {name:?} needs a password: give --password-from FILE (or -), --password-file FILE or --open"
    )]
    NoPassword {
        /// The group.
        name: String,
    },

    // The course of things.
    /// A stream that has no end has ended.
    #[error("the daemon has ended or closed the stream, see its log")]
    StreamEnded,
    /// The plan, which has been printed, cannot be carried out.
    #[error(
        "nothing was changed: {refused} of {steps} cannot be done; put right what the plan says"
    )]
    Refused {
        /// What applying it would be answered with.
        outcome: ProblemKind,
        /// How many are refused.
        refused: usize,
        /// How many there are, with the noun.
        steps: String,
    },
    /// Signals cannot be caught, so that a mount would outlive its end.
    #[error("the system does not let signals be caught, raise the limit of open files")]
    Signals(#[source] io::Error),
    /// The tree is not mounted, or not any more.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// Sessions would lose something, and there is nobody to ask.
    #[error(
        "this takes data or a session from its users, and there is no terminal to ask on: nothing was done; add --yes"
    )]
    NeedsYes,
    /// The answer was no.
    #[error("nothing was changed")]
    NotConfirmed,

    // The shell.
    /// A step through the tree that was not made.
    #[error(transparent)]
    Walk(#[from] WalkError),
    /// A line that is no line.
    #[error(transparent)]
    Quote(#[from] Unclosed),
    /// A word that is nothing here.
    #[error("{word:?} is no command here; help lists all")]
    ShellVerb {
        /// The word.
        word: String,
    },
    /// A command of the shell with other words than it takes.
    #[error("{usage} is how this is written")]
    ShellWords {
        /// How it is written.
        usage: &'static str,
    },
    /// A process of this program cannot be started.
    #[error("cannot start a process for this command")]
    Child(#[source] io::Error),
    /// A line of a script failed, and has said why.
    #[error("line {number} failed; the lines after it were not run")]
    Line {
        /// Which.
        number: usize,
        /// How it ended.
        exit: Exit,
    },
}

impl Failure {
    /// All that the daemon finds wrong, if that is several things.
    pub(crate) fn mistakes(&self) -> &[Mistake] {
        if let Self::Client(ClientError::Problem(problem)) = self {
            return &problem.mistakes;
        }
        &[]
    }

    /// The failure for programs, in one line: what the API says of it, or the same members, and the exit code.
    pub(crate) fn json(&self) -> Value {
        let exit = self.exit();
        let said = if let Self::Client(ClientError::Problem(problem)) = self {
            serde_json::to_value(problem).unwrap_or_default()
        } else {
            Value::Null
        };
        let mut error = match said {
            Value::Object(members) => members,
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => {
                let detail = daemon::error::chain(self);
                let members = [("type", exit.word().to_owned()), ("detail", detail)];
                let members = members.map(|(name, value)| (name.to_owned(), value.into()));
                members.into_iter().collect()
            }
        };
        error.insert("exit".to_owned(), exit.code().into());
        json!({ "error": error })
    }

    /// The one table from a failure to its exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Client(error) => of_client(error),
            Self::Walk(error) => of_walk(error),
            Self::Line { exit, .. } => *exit,
            Self::NoEarlier => Exit::NotFound,
            Self::Refused { outcome, .. } => Exit::of_problem(*outcome),
            Self::MediumFixed { .. } => Exit::Conflict,
            Self::StreamEnded => Exit::Unreachable,
            Self::Mount(error) => of_mount(error),
            Self::NeedsYes
            | Self::NotConfirmed
            | Self::Terminal(_)
            | Self::Signals(_)
            | Self::Child(_) => Exit::Failed,
            Self::Start(_)
            | Self::Quote(_)
            | Self::ShellVerb { .. }
            | Self::ShellWords { .. }
            | Self::NothingGiven { .. }
            | Self::QuotaOfNothing { .. }
            | Self::NoFile { .. }
            | Self::NoToken
            | Self::Store(_)
            | Self::StoreFixed { .. }
            | Self::OtherBlocks { .. }
            | Self::Unreadable { .. }
            | Self::Unwritable { .. }
            | Self::TooLong { .. }
            | Self::SecretLength { .. }
            | Self::SecretsDiffer
            | Self::NoSecret { .. }
            | Self::NoPassword { .. } => Exit::Wrong,
        }
    }
}

fn of_client(error: &ClientError) -> Exit {
    match error {
        ClientError::Problem(problem) => Exit::of_problem(problem.kind),
        ClientError::SocketDenied { .. } => Exit::NotAllowed,
        ClientError::Url { .. }
        | ClientError::AuthorityForm
        | ClientError::NoAuthority
        | ClientError::TokenForm => Exit::Wrong,
        ClientError::NoSocket { .. }
        | ClientError::NobodyListens { .. }
        | ClientError::Socket { .. }
        | ClientError::Unreachable { .. }
        | ClientError::Untrusted { .. }
        | ClientError::Broken { .. }
        | ClientError::Late { .. } => Exit::Unreachable,
        ClientError::TooLarge { .. }
        | ClientError::Foreign { .. }
        | ClientError::Tls { .. }
        | ClientError::Runtime(_)
        | ClientError::Request { .. }
        | ClientError::Unwritable { .. } => Exit::Failed,
        _ => Exit::Failed,
    }
}

fn of_walk(error: &WalkError) -> Exit {
    match error.client() {
        Some(error) => of_client(error),
        None if error.is_absent() => Exit::NotFound,
        None => Exit::Wrong,
    }
}

fn of_mount(error: &MountError) -> Exit {
    match error {
        MountError::Daemon(error) => of_client(error),
        MountError::NoDirectory { .. } | MountError::Dead { .. } | MountError::Taken { .. } => {
            Exit::Wrong
        }
        MountError::NoDevice | MountError::Refused { .. } | MountError::Broken { .. } => {
            Exit::Failed
        }
        _ => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use api::problem::Problem;
    use client::{Client, Endpoint};
    use tree::{Spot, Walker};

    use super::*;

    fn failed() -> io::Error {
        io::Error::other("it")
    }

    fn at() -> PathBuf {
        "/a".into()
    }

    fn problem(kind: ProblemKind) -> Box<Problem> {
        Box::new(Problem::new(kind, "why"))
    }

    #[test]
    fn failures_of_the_client_have_their_codes() {
        let (host, peer, source) = (|| "h".to_owned(), || "p".to_owned(), failed);
        #[rustfmt::skip]
        let rows = [
            (problem(ProblemKind::Conflict).into(), Exit::Conflict),
            (ClientError::SocketDenied { path: at() }, Exit::NotAllowed),
            (ClientError::Url { url: host() }, Exit::Wrong),
            (ClientError::AuthorityForm, Exit::Wrong),
            (ClientError::NoAuthority, Exit::Wrong),
            (ClientError::TokenForm, Exit::Wrong),
            (ClientError::NoSocket { path: at() }, Exit::Unreachable),
            (ClientError::NobodyListens { path: at() }, Exit::Unreachable),
            (ClientError::Socket { path: at(), source: source() }, Exit::Unreachable),
            (ClientError::Unreachable { host: host(), port: 1, source: source() }, Exit::Unreachable),
            (ClientError::Untrusted { host: host(), source: source() }, Exit::Unreachable),
            (ClientError::Broken { peer: peer(), source: source().into() }, Exit::Unreachable),
            (ClientError::Late { peer: peer(), seconds: 1.0 }, Exit::Unreachable),
            (ClientError::TooLarge { peer: peer(), limit: 1 }, Exit::Failed),
            (ClientError::Runtime(source()), Exit::Failed),
        ];
        for (error, exit) in rows {
            assert_eq!(of_client(&error), exit, "{error}");
            assert_eq!(Failure::Client(error).exit(), exit);
        }
    }

    #[test]
    fn failures_of_a_mount_and_of_a_walk_have_their_codes() {
        let refused = |source| MountError::Refused { path: at(), source };
        let missing = |source| MountError::NoDirectory { path: at(), source };
        for (error, exit) in [
            (ClientError::TokenForm.into(), Exit::Wrong),
            (missing(failed()), Exit::Wrong),
            (MountError::Dead { path: at() }, Exit::Wrong),
            (MountError::Taken { path: at() }, Exit::Wrong),
            (MountError::NoDevice, Exit::Failed),
            (refused(failed()), Exit::Failed),
        ] {
            assert_eq!(of_mount(&error), exit, "{error}");
            assert_eq!(Failure::Mount(error).exit(), exit);
        }
        let endpoint = Endpoint::Socket("/nothing/at/all".into());
        let walker = Walker::new(Client::new(endpoint, tree::LIMITS).unwrap());
        let walk = |path| Failure::Walk(walker.go(&Spot::ROOT, path).unwrap_err()).exit();
        assert_eq!(walk("luns"), Exit::Unreachable);
        assert_eq!(walk("nothing"), Exit::NotFound);
        let error = walker.read(&Spot::ROOT, "luns").unwrap_err();
        assert_eq!(Failure::Walk(error).exit(), Exit::Wrong);
    }

    #[test]
    fn other_failures_have_their_codes_too() {
        let refused = |outcome| Failure::Refused {
            outcome,
            refused: 1,
            steps: "2 steps".to_owned(),
        };
        let text = || "a".to_owned();
        for (failure, exit) in [
            (
                Failure::Line {
                    number: 1,
                    exit: Exit::Conflict,
                },
                Exit::Conflict,
            ),
            (
                Failure::Line {
                    number: 1,
                    exit: Exit::Done,
                },
                Exit::Done,
            ),
            (Failure::NoEarlier, Exit::NotFound),
            (refused(ProblemKind::Refused), Exit::Refused),
            (refused(ProblemKind::InvalidConfig), Exit::Wrong),
            (Failure::MediumFixed { id: text() }, Exit::Conflict),
            (Failure::StreamEnded, Exit::Unreachable),
            (Failure::NeedsYes, Exit::Failed),
            (Failure::NotConfirmed, Exit::Failed),
            (Failure::Terminal(failed()), Exit::Failed),
            (Failure::Signals(failed()), Exit::Failed),
            (Failure::Child(failed()), Exit::Failed),
            (Failure::ShellVerb { word: text() }, Exit::Wrong),
            (Failure::NothingGiven { noun: "lun" }, Exit::Wrong),
            (Failure::NoToken, Exit::Wrong),
            (Failure::SecretsDiffer, Exit::Wrong),
        ] {
            assert_eq!(failure.exit(), exit, "{failure}");
            assert_eq!(failure.mistakes(), &[]);
        }
    }

    #[test]
    fn a_program_gets_the_words_of_the_daemon_or_the_same_members() {
        let mut said = problem(ProblemKind::NotFound);
        let detail = "gone".to_owned();
        said.mistakes = [Mistake {
            place: None,
            detail,
        }]
        .into();
        let mut members = serde_json::to_value(&said).unwrap();
        members["exit"] = 5.into();
        let failure = Failure::Client(said.into());
        assert_eq!(failure.json(), json!({ "error": members }));
        assert_eq!(failure.mistakes()[0].detail, "gone");
        let failure = Failure::Child(failed());
        let detail = "cannot start a process for this command: it";
        let expected = json!({ "error": { "type": "failed", "detail": detail, "exit": 1 } });
        assert_eq!(failure.json(), expected);
    }
}
