//! The daemon: what runs, and how it is changed while it does.
//!
//! | Module | Owns |
//! | --- | --- |
//! | `open` | stores and addresses as they are opened |
//! | `served`, `held` | whether a store is what was served, and units that are not served |
//! | `running` | the model in force and what it became in the data plane |
//! | `steps` | what differs between two configurations |
//! | `look`, `take` | all of a change that can be found out without making it, and the opening of what was found |
//! | `apply` | carrying a change out |
//! | `caches` | write caches of units, which come and go |
//! | `settling` | what a change in force has left to do, which may wait for a store |
//! | `attempts` | calls that a file system may never answer |
//! | `file`, `history` | the configuration file, and the revisions on disk |
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
//! | `media`, `snapshots` | media that move, and copies of them at one moment |
//! | `reservations` | who has reserved units |
//! | `schedule` | copies that are made by themselves |
//! | `views`, `stats` | what runs, in the words of the API |
//! | `notices` | events on their way to web servers and mailboxes |
//! | `figures` | what rates and latencies were, kept over a restart |
//! | `watch` | findings that begin and end |
//! | `secrets`, `events` | what their names say |

mod apply;
mod attempts;
mod caches;
mod control;
mod doctor;
mod effect;
mod events;
mod figures;
mod file;
mod foresight;
mod held;
mod history;
mod hyperscsi;
mod keepers;
mod log_device;
mod look;
mod losses;
mod media;
mod next_start;
mod notices;
mod open;
mod own_sockets;
mod paced;
mod places;
mod quotas;
mod reservations;
mod running;
mod schedule;
mod secrets;
mod served;
mod settling;
mod snapshots;
mod stats;
mod steps;
mod take;
mod traces;
mod views;
mod watch;

pub(crate) use apply::Prepared;
pub(crate) use control::{Daemon, Parts};
pub(crate) use doctor::Doctor;
pub(crate) use effect::{Consequence, PlannedStep};
pub(crate) use events::Events;
pub(crate) use figures::Historian;
pub(crate) use held::{stand_in, withheld};
pub(crate) use hyperscsi::{check_interfaces, hyperscsi_places};
pub(crate) use log_device::{close_logs, look_at_new_log};
pub(crate) use notices::Receivers;
pub(crate) use open::{
    Leftovers, Opener, check_frames, device_options, look_at_new, open_first, read_all_tls,
    retry_while_in_use,
};
pub(crate) use own_sockets::OwnSockets;
pub(crate) use quotas::{Accountant, Accounts, check_first as check_quotas};
pub(crate) use running::{PortNumbers, Running, RunningUnit, nbd_places, slow_command};
pub(crate) use schedule::Scheduler;
pub(crate) use take::{open_hyperscsi, open_listeners};
pub(crate) use watch::Watcher;
