//! The log device of a unit.

use crate::words::words;
use crate::{Place, StoreKind, StoreRule, StoreSpec};

/// Why a unit cannot have this log.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum LogRule {
    /// A log at what has no use for one.
    #[error(
        "store {store:?} has no use for a log; give one to a store of a file or a block device that initiators write \
         to and cannot eject"
    )]
    NotPossible {
        /// The store of the unit as written.
        store: String,
    },
    /// A log that is none.
    #[error(
        "log {log:?} is not possible; write file:PATH?size=SIZE or block:PATH, without other options"
    )]
    NoLog {
        /// The log as written.
        log: String,
    },
    /// What a log is for, without one.
    #[error(
        "sync_bias is about the log of the unit, and it has none; add log, or remove sync_bias"
    )]
    BiasWithoutLog,
    /// A store that is none.
    #[error(transparent)]
    Store(#[from] StoreRule),
}

/// Where a unit has its log, and what for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogDevice {
    /// A file or a block device.
    pub store: StoreSpec,
    /// What the log is for.
    pub bias: SyncBias,
    /// Where it is given, for errors that only opening it shows.
    pub place: Place,
}

words! {
    /// What a log is for.
    #[derive(Default)]
    SyncBias {
        /// Everything that has to be durable goes to the log.
        #[default]
        Latency = "latency",
        /// Large writes go to the store alone.
        Throughput = "throughput",
    }
    "latency or throughput"
}

/// A start reads and writes these before any core runs, and so can replay a log to them.
const fn is_local(kind: StoreKind) -> bool {
    matches!(kind, StoreKind::Path | StoreKind::File | StoreKind::Block)
}

/// Refuses what can be no log, and a log for what can have none.
pub(crate) fn check(store: &StoreSpec, log: &StoreSpec) -> Result<(), LogRule> {
    if !is_local(store.at.kind) || store.read_only || store.removable {
        return Err(LogRule::NotPossible {
            store: store.text.clone(),
        });
    }
    let plain = |text: &str| {
        StoreSpec::parse(text).map(|spec| StoreSpec {
            size_bytes: None,
            text: String::new(),
            ..spec
        })
    };
    let bare = plain(&log.at.without_size())?;
    if !is_local(log.at.kind) || plain(&log.text)? != bare {
        return Err(LogRule::NoLog {
            log: log.text.clone(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{ConfigError, Model};

    fn read(keys: &str) -> Result<Model, ConfigError> {
        let text =
            format!("[[lun]]\nid = \"a\"\n{keys}\n[[lun]]\nid = \"m\"\nstore = \"file:/m.img\"\n");
        Model::from_toml(&text, Path::new("/srv/t.toml"))
    }

    #[test]
    fn a_log_is_read_with_what_it_is_for() {
        let store = "store = \"file:a.img\"\nlog = \"file:a.log?size=16M\"\n";
        for (more, bias) in [
            ("", SyncBias::Latency),
            ("sync_bias = \"latency\"", SyncBias::Latency),
            ("sync_bias = \"throughput\"", SyncBias::Throughput),
        ] {
            let model = read(&format!("{store}{more}")).unwrap();
            let log = model.units()[0].log.as_ref().unwrap();
            assert_eq!((log.bias, log.store.size_bytes), (bias, Some(16 << 20)));
            assert_eq!(log.store.at.node().unwrap().0, Path::new("/srv/a.log"));
            let spec = &model.to_specs().luns[0];
            assert_eq!(spec.log.as_deref(), Some("file:a.log?size=16M"));
            assert_eq!(spec.sync_bias.as_deref(), Some(bias.as_str()));
        }
        assert_eq!(read("store = \"mem:1M\"").unwrap().units()[0].log, None);
    }

    #[test]
    fn what_can_be_no_log_is_refused() {
        for (store, log, more) in [
            ("file:a.img", "mem:16M", ""),
            ("file:a.img", "file:a.log?readonly", ""),
            ("file:a.img", "file:a.log?cache=direct", ""),
            ("file:a.img", "file:a.img", ""),
            ("file:a.img", "/m.img", ""),
            ("file:a.img?readonly", "file:a.log", ""),
            ("file:a.img?removable", "file:a.log", ""),
            ("mem:1M", "file:a.log", ""),
            ("nbd://h", "file:a.log", ""),
            ("file:a.img", "file:a.log", "sync_bias = \"both\""),
        ] {
            let text = format!("store = \"{store}\"\nlog = \"{log}\"\n{more}");
            assert!(read(&text).is_err(), "{text}");
        }
        assert!(read("store = \"file:a.img\"\nsync_bias = \"latency\"").is_err());
    }
}
