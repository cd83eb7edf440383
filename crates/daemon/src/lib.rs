//! The daemon: from a configuration to what runs, and how that is changed while it does.
//!
//! What the process takes from its surroundings (environment, configuration, secrets, state directory) is taken here
//! and nowhere below. [`prepare`](prepare::prepare) does it in one go, so that nothing starts half: either it gives
//! [`Prepared`], all that is needed to serve, or one [`StartError`].
//!
//! | Module | Owns |
//! | --- | --- |
//! | `open`, `opened` | stores and addresses as they are opened, and stores of units that are open |
//! | `served`, `held` | whether a store is what was served, and units that are not served |
//! | `running` | the model in force and what it became in the data plane |
//! | `steps` | what differs between two configurations |
//! | `look`, `take` | all of a change that can be found out without making it, and the opening of what was found |
//! | `apply` | carrying a change out |
//! | `caches` | write caches of units, which come and go |
//! | `settling` | what a change in force has left to do, which may wait for a store |
//! | `attempts` | calls that a file system may never answer |
//! | `file`, `history` | the configuration file, and the revisions on disk |
//! | `daemon` | what the daemon has, with its locks: below all that asks it |
//! | `control` | the one writer, the answers to the administration |
//! | `foresight` | what a plan sees of what would keep its change from being made |
//! | `losses` | whom a change takes what away |
//! | `effect` | what the steps of a plan do to those who work meanwhile |
//! | `keepers` | what has the data of units |
//! | `hyperscsi` | what HyperSCSI needs beside the model: places, records of passwords, numbers of devices |
//! | `doctor` | what limits or endangers the service, rule by rule |
//! | `places` | where the data of units may be |
//! | `paced` | questions that disturb the cores, asked only so often |
//! | `traces` | what goes over connections, for those who look for a fault |
//! | `media`, `log_orders`, `snapshots` | media that move, logs that are decided about, copies of them at one moment |
//! | `reservations` | who has reserved units |
//! | `schedule` | copies that are made by themselves |
//! | `views`, `stats` | what runs, in the words of the API |
//! | `notices` | events on their way to web servers and mailboxes |
//! | `figures` | what rates and latencies were, kept over a restart |
//! | `watch` | findings that begin and end |
//! | `secrets`, `events` | what their names say |
//! | `asked`, `prepare`, `serve` | what a command line asks for, all that a start needs, and the start |
//! | `state` | what survives a restart: identities, reservations, records of media |
//! | `locate`, `medium` | where stores are, and what lies there |
//! | `administration` | the servers of the administration |
//! | `access` | who may log in, and what he sees |
//! | `confinement`, `headroom` | rights that are given up, memory that there must be |
//! | `environment`, `logging`, `signal`, `service` | the process and those who started it |
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod access;
mod administration;
mod apply;
mod asked;
mod attempts;
mod banner;
mod caches;
pub mod calendar;
mod confinement;
mod control;
mod daemon;
mod doctor;
mod effect;
pub mod environment;
pub mod error;
mod events;
mod exchange;
mod expiry;
mod figures;
mod file;
mod foresight;
mod headroom;
mod held;
mod history;
mod hyperscsi;
pub mod interface;
mod keepers;
mod locate;
mod log_device;
mod log_orders;
pub mod logging;
mod look;
mod losses;
mod media;
mod medium;
mod next_start;
mod notices;
mod open;
mod opened;
mod own_sockets;
mod paced;
pub mod password;
mod places;
pub mod prepare;
mod quotas;
mod reservations;
mod running;
mod save;
mod schedule;
pub mod secret;
mod secrets;
pub mod serve;
mod served;
mod service;
mod settling;
pub mod signal;
mod snapshots;
pub mod state;
mod stats;
mod steps;
mod take;
mod traces;
mod views;
mod watch;

#[cfg(test)]
use durable::scratch;

pub use asked::{Asked, Flags};
pub use banner::say;
pub use environment::Environment;
pub use error::StartError;
pub use open::device_options;
pub use prepare::Prepared;

pub(crate) use daemon::{Daemon, Parts};
pub(crate) use doctor::Doctor;
pub(crate) use effect::{Consequence, PlannedStep};
pub(crate) use events::Events;
pub(crate) use figures::Historian;
pub(crate) use hyperscsi::{check_interfaces, hyperscsi_places};
pub(crate) use log_device::look_at_new_log;
pub(crate) use log_orders::close_logs;
pub(crate) use notices::Receivers;
pub(crate) use open::{Leftovers, Opener, look_at_new, read_all_tls};
pub(crate) use opened::{stand_in, withheld};
pub(crate) use own_sockets::OwnSockets;
pub(crate) use quotas::{Accountant, Accounts, check_first as check_quotas};
pub(crate) use running::{PortNumbers, Running, RunningUnit, nbd_places};
pub(crate) use schedule::Scheduler;
pub(crate) use take::{open_hyperscsi, open_listeners};
pub(crate) use watch::Watcher;
