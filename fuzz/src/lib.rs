//! Any bytes into every parser and machine of Tarn that a peer or a file can reach.
//!
//! [`TARGETS`] lists the entry points: functions from bytes to nothing that panic when an
//! invariant is broken. [`mutate`] makes new inputs of old ones, [`seeds`] the first ones. The
//! runner (`cargo run -p fuzz --release`) needs nothing but the stable toolchain; README.md says
//! how to put the same entry points under libFuzzer.
#![warn(missing_docs)]

pub mod allocation;
mod chap;
mod disk;
mod engines;
mod framing;
mod handler;
mod import;
mod input;
pub mod mutate;
mod nbd;
pub mod prng;
pub mod seeds;
mod session;
mod small;

use std::path::PathBuf;

/// An entry point.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Also the name of its folder in the corpus.
    pub name: &'static str,
    /// Longest input that is worth its time, in bytes.
    pub input_bytes_max: usize,
    /// Heap that one input may take at most, in bytes. The pools of data are not on the heap.
    pub heap_bytes_max: usize,
    /// Panics when an invariant is broken.
    pub run: fn(&[u8]),
}

const fn target(name: &'static str, input_bytes_max: usize, run: fn(&[u8])) -> Target {
    Target {
        name,
        input_bytes_max,
        heap_bytes_max: 4 * 1024 * 1024,
        run,
    }
}

/// All entry points.
pub const TARGETS: &[Target] = &[
    target("pdu", 4096, framing::run),
    target("text", 4096, iscsi::fuzz::text),
    target("login", 16 * 1024, iscsi::fuzz::login),
    target("chap", 16 * 1024, chap::run),
    target("initiator", 16 * 1024, iscsi::fuzz::initiator),
    target("session", 16 * 1024, session::run),
    target("disk", 8 * 1024, disk::run),
    target("device", 8 * 1024, disk::run_others),
    target("engine", 4 * 1024, engines::run),
    target("lun", 64, small::lun),
    target("state", 8 * 1024, small::state),
    target("config", 8 * 1024, small::config),
    target("import", 8 * 1024, import::run),
    target("nbd", 8 * 1024, nbd::run),
    target("handler", 2048, handler::run),
    target("look", 8 * 1024, remote::fuzz::look),
    target("hyperscsi-pdu", 2048, hyperscsi::fuzz::pdu),
    target("hyperscsi-login", 1024, hyperscsi::fuzz::login),
    target("hyperscsi-exchange", 256, hyperscsi::fuzz::exchange),
    target("hyperscsi-session", 2048, hyperscsi::fuzz::session),
];

/// The entry point of that name.
#[must_use]
pub fn target_by_name(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// The corpus that is kept with the source.
#[must_use]
pub fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}
