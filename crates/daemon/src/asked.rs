//! What a command line asks for.

use std::num::NonZeroU16;
use std::path::PathBuf;

use config::Model;

/// What is to be served, as a command line says it. Either `config` or `stores` are given.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Disks, as LUN 0, 1, 2 and so on of one target.
    pub stores: Vec<String>,
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// The file that keeps what the other fields say, or has kept it before.
    pub save: Option<PathBuf>,
    /// Addresses to listen on.
    pub listen: Vec<String>,
    /// The iSCSI name of the target.
    pub target: Option<String>,
    /// Where HyperSCSI is served: an interface, or an address after `udp:`.
    pub hyperscsi: Option<String>,
    /// The name of the group of HyperSCSI.
    pub group: Option<String>,
    /// The file of its password.
    pub password_file: Option<PathBuf>,
    /// The state directory.
    pub state: Option<PathBuf>,
    /// How much to log.
    pub log: Option<config::LogLevel>,
    /// The number of cores.
    pub cores: Option<u16>,
    /// How long a core polls before it sleeps, in microseconds.
    pub busy_poll: Option<u32>,
}

/// The flags of the command line that win over keys of the file.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    state: Option<PathBuf>,
    pub(super) log: Option<config::LogLevel>,
    cores: Option<NonZeroU16>,
    busy_poll_us: Option<u32>,
}

impl Flags {
    /// Only how much to log.
    pub fn with_log(log: Option<config::LogLevel>) -> Self {
        Self {
            log,
            ..Self::default()
        }
    }

    pub(super) fn of(args: &Asked) -> Self {
        Self {
            state: args.state.clone(),
            log: args.log,
            cores: args.cores.and_then(NonZeroU16::new),
            busy_poll_us: args.busy_poll,
        }
    }

    /// Replaces what the file says.
    pub fn work_into(&self, model: &mut Model) {
        let mut server = model.server().clone();
        server.state = self.state.clone().or(server.state);
        server.log = self.log.or(server.log);
        server.cores = self.cores.or(server.cores);
        server.busy_poll_us = self.busy_poll_us.unwrap_or(server.busy_poll_us);
        model.set_server(server);
    }
}
