//! A seeded simulation that drives the pure crates of Tarn: `iscsi` (login and full-feature phase, the
//! target's role), `scsi` (the device server and its owner) and the contract of `store`.
//!
//! One seed decides a [`scenario`]: how many cores, initiators and connections there are, what is
//! negotiated, how the network, the disk and the initiators misbehave. The [`world`] lives it
//! through on one thread, with time as a number, and holds every step against the rules. A
//! failure is reported as its seed and the shortest prefix that fails ([`shrink`]).
//!
//! | Module | Owns |
//! | --- | --- |
//! | [`agenda`], [`prng`], [`trace`] | time, chance, the diary |
//! | [`network`], [`disk`] | links and a medium, with their faults |
//! | [`authority`] | what is saved of the unit, also by another target |
//! | [`ledger`] | what each block may hold |
//! | [`flush`] | the file store that ships, on a kernel that loses flushes |
//! | [`many`] | several targets, units and initiators, over all transports |
//! | [`mod@log`] | the journal that ships, on media that stop after every step |
//! | [`initiator`] | the other end of the protocol, and its judge |
//! | [`plan`] | targets, units, and who sees what |
//! | [`setup`] | the configuration of the machines under test |
//! | [`mod@letter`] | mail between cores, and from the administrator |
//! | [`host`] | the machines under test, bound to simulated cores |
//! | [`inspect`] | what checkers see of them |
//! | [`world`] | everything that happens, in order |
//! | [`rare`] | rare states that the sources name, and which of them were reached |
//! | [`sabotage`] | bugs on purpose, to test the checkers |
//!
//! The README explains the lines of the diary and the rules.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod agenda;
pub mod authority;
pub mod disk;
pub mod flush;
pub mod host;
pub mod initiator;
pub mod inspect;
pub mod ledger;
pub mod letter;
pub mod log;
pub mod many;
pub mod network;
pub mod plan;
pub mod prng;
pub mod rare;
pub mod sabotage;
pub mod scenario;
pub mod setup;
pub mod shrink;
pub mod trace;
pub mod world;
