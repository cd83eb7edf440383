//! `tarn mount`

use std::io;
use std::path::PathBuf;

use clap::Args;
use client::Client;
use tree::Mounted;

use super::Outcome;
use super::exit::Exit;
use super::failure::Failure;
use super::remote::{EndpointArgs, Run};
use daemon::signal::Signals;
use daemon::{Environment, say};

const AFTER_HELP: &str = "\
The tree has a directory for each unit, target, session, group and user, with a small file for each
value. Files whose value can be changed can be written; DIR/help lists all files. When a write
fails, DIR/last_error has the reason. See docs/reference/tree.md.

The command runs until the tree is unmounted: by Ctrl-C, SIGTERM, umount or fusermount3 -u.

Examples:
  tarn mount /mnt/tarn &
  cat /mnt/tarn/luns/*/stats/writes
  echo 20G > /mnt/tarn/luns/disk0/size
  echo 1 > /mnt/tarn/sessions/7/end";

/// `tarn mount`
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Mount {
    /// The directory to mount on.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Where the daemon is.
    #[command(flatten)]
    endpoint: EndpointArgs,
}

impl Run for Mount {
    fn run(&self, environment: &Environment) -> Outcome {
        let endpoint = self.endpoint.find(environment)?;
        let peer = endpoint.to_string();
        // Before anything is mounted, so that no signal leaves a mount behind.
        let signals = Signals::catch().map_err(Failure::Signals)?;
        let mounted = Mounted::new(Client::new(endpoint, tree::LIMITS)?, &self.directory)?;
        let directory = self.directory.display();
        let line =
            format!("{directory} shows the daemon at {peer} until umount {directory} or Ctrl-C\n");
        say(io::stdout().lock(), &line);
        mounted.wait(|stopper| {
            signals.wait_for_any();
            stopper.stop();
        })?;
        Ok(Exit::Done)
    }
}
