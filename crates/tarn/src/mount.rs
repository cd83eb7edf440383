//! `tarn mount`: the running state as a file tree, until somebody ends it.

use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use client::{Client, Endpoint, Remote, Token};
use tree::Mounted;
use zeroize::Zeroizing;

use crate::signal::Signals;
use crate::{Environment, StartError, say, secret};

/// The name of the socket in its directory.
const SOCKET_NAME: &str = "tarn.sock";

const MOUNT_HELP: &str = "\
The tree has a directory for each unit, target, session, group and user, with a small file for each
value. What a verb changes can be written; DIR/help lists all files, DIR/last_error has the reason
when a write fails. See docs/TREE.md.

The command stays until the tree is unmounted: by Ctrl-C, SIGTERM, umount or fusermount3 -u.

Examples:
  tarn mount /run/tarn/tree &
  cat /run/tarn/tree/luns/*/stats/writes
  echo 20G > /run/tarn/tree/luns/disk0/size
  echo 1 > /run/tarn/tree/sessions/7/end";

/// `tarn mount`.
#[derive(Args, Debug)]
#[command(after_help = MOUNT_HELP)]
pub struct MountArgs {
    /// The directory to mount on.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// Socket of the daemon. For who runs several, or as another user; the variable TARN_SOCKET
    /// does the same. [default: /run/tarn/tarn.sock for root, else $XDG_RUNTIME_DIR/tarn/tarn.sock,
    /// else tarn.sock in the state directory]
    #[arg(long, value_name = "PATH", conflicts_with = "url")]
    pub socket: Option<PathBuf>,

    /// Address of a daemon elsewhere, https://HOST:PORT. For who administers from another machine;
    /// see admin.listen in docs/CONFIG.md.
    #[arg(long, value_name = "URL", requires = "token_file")]
    pub url: Option<String>,

    /// File with the token for --url, chmod 600. For who uses --url.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub token_file: Option<PathBuf>,

    /// Certificate authority of the daemon's certificate, PEM. For who uses --url with a
    /// certificate that the system does not trust.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub ca: Option<PathBuf>,
}

/// Mounts the tree and returns when it is unmounted.
pub(crate) fn run(args: &MountArgs, environment: &Environment) -> anyhow::Result<()> {
    let endpoint = endpoint(args, environment)?;
    let peer = endpoint.to_string();
    // Before anything is mounted, so that no signal leaves a mount behind.
    let signals = Signals::catch().context("cannot catch signals")?;
    let client = Client::new(endpoint, tree::LIMITS)?;
    let mounted = Mounted::new(client, &args.directory)?;
    let directory = args.directory.display();
    let line =
        format!("{directory} shows the daemon at {peer} until umount {directory} or Ctrl-C\n");
    say(io::stdout().lock(), &line);
    mounted.wait(|stopper| {
        signals.wait_for_any();
        stopper.stop();
    })?;
    Ok(())
}

fn endpoint(args: &MountArgs, environment: &Environment) -> anyhow::Result<Endpoint> {
    let (Some(url), Some(token)) = (&args.url, &args.token_file) else {
        let named = args.socket.as_ref().or(environment.socket.as_ref());
        return Ok(Endpoint::Socket(match named {
            Some(path) => path.clone(),
            None => socket(environment)?,
        }));
    };
    let token = secret::read_alone("--token-file", token, environment.uid)?;
    let token = Zeroizing::new(String::from_utf8_lossy(token.as_bytes()).into_owned());
    let authorities = args.ca.as_ref().map(|path| {
        let what = || format!("cannot read {}, name a certificate", path.display());
        fs::read(path).with_context(what)
    });
    let remote = Remote::new(url, Token::new(token), authorities.transpose()?.as_deref())?;
    Ok(Endpoint::Remote(Box::new(remote)))
}

/// Where a daemon of this user has its socket: the first place that has one, else the first place.
fn socket(environment: &Environment) -> Result<PathBuf, StartError> {
    let mut places = environment.socket_directories();
    places.extend(environment.state_directory().ok());
    let sockets: Vec<PathBuf> = places.iter().map(|place| place.join(SOCKET_NAME)).collect();
    let there = sockets.iter().find(|path| path.exists());
    there
        .or_else(|| sockets.first())
        .cloned()
        .ok_or(StartError::NoHome)
}
