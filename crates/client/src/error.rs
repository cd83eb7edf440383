//! Why there is no answer, or none that helps.

use std::io;
use std::path::PathBuf;

use api::problem::Problem;

/// Why there is no answer, or none that helps. One variant per rule, each with its remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The daemon says why not.
    #[error(transparent)]
    Problem(#[from] Box<Problem>),

    // The socket.
    /// There is no file of that name.
    #[error(
        "no daemon at {}: there is no such socket; start it with tarn serve --config FILE, or name its \
         socket with --socket",
        path.display()
    )]
    NoSocket {
        /// The socket.
        path: PathBuf,
    },
    /// There is a socket that nobody listens at.
    #[error(
        "no daemon at {}: it has ended and left its socket; start it with tarn serve --config FILE",
        path.display()
    )]
    NobodyListens {
        /// The socket.
        path: PathBuf,
    },
    /// The socket belongs to somebody else.
    #[error(
        "not allowed to use {}: it is for root and for the user that runs the daemon; run this with sudo, \
         or as that user",
        path.display()
    )]
    SocketDenied {
        /// The socket.
        path: PathBuf,
    },
    /// The socket cannot be used for another reason.
    #[error("cannot use the socket {}, name another with --socket", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },

    // The network.
    /// No URL that this program can ask.
    #[error("--url {url:?} is no https://HOST:PORT; give one, or --socket PATH for this machine")]
    Url {
        /// What was given.
        url: String,
    },
    /// There is no connection to that address.
    #[error("cannot reach {host} port {port}, check the address and admin.listen of that daemon")]
    Unreachable {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// What the system says.
        source: io::Error,
    },
    /// The other side does not prove who it is.
    #[error("no trusted connection to {host}, give its certificate authority with --ca FILE")]
    Untrusted {
        /// The host.
        host: String,
        /// What TLS says.
        source: io::Error,
    },
    /// A certificate to trust is none.
    #[error("the file of --ca has something that is no certificate in the form of PEM; remove it")]
    AuthorityForm,
    /// There is nobody to trust.
    #[error("there is no certificate authority to trust; give the daemon's with --ca FILE")]
    NoAuthority,
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls {
        /// What TLS says.
        source: rustls::Error,
    },
    /// A token that no header field can hold.
    #[error("the file of --token-file has more than a token; leave only that line in it")]
    TokenForm,

    // The conversation.
    /// The other side closed, or does not speak HTTP.
    #[error("{peer} broke the conversation off, see the log of the daemon")]
    Broken {
        /// Where the daemon is.
        peer: String,
        /// What was wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A deadline went by.
    #[error("{peer} did not answer within {seconds} s; see the log of the daemon, or try again")]
    Late {
        /// Where the daemon is.
        peer: String,
        /// The deadline.
        seconds: f64,
    },
    /// More than an answer may have.
    #[error("{peer} sent more than {limit} bytes in one answer; ask for less")]
    TooLarge {
        /// Where the daemon is.
        peer: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// What answered is no Tarn, or one of another version.
    #[error(
        "{peer} gave an answer of status {status} that is not of this API; is it a tarn of the same version?"
    )]
    Foreign {
        /// Where the daemon is.
        peer: String,
        /// Its status code.
        status: u16,
    },

    // This side.
    /// The system gives no event queue.
    #[error("the system gives no event queue, raise the limit of open files")]
    Runtime(#[source] io::Error),
    /// A request that HTTP has no form for.
    #[error("the request cannot be written as HTTP")]
    Request {
        /// What is wrong with it.
        source: hyper::http::Error,
    },
    /// A body that JSON has no form for.
    #[error("the request cannot be written as JSON")]
    Unwritable {
        /// What is wrong with it.
        source: serde_json::Error,
    },
}
