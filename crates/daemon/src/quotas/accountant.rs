//! The thread that keeps the accounts of quotas, and the answer to those who ask for them.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread;

use api::{spec, view};
use config::{Quota, Unit};
use plane::Space;

use super::{Found, Parts, Summons, ask, counted, counted_parts, limited, part_sizes, reckon};
use crate::daemon::Daemon;
use crate::events::of_quota;

impl Daemon {
    /// Looks what disks take, and has the data plane keep those within their quotas that have one.
    pub(crate) fn account(&self) {
        let in_force = self.in_force();
        let running = &in_force.running;
        let limited = limited(&running.model);
        let patience = self.accounts.attempts.begin();
        let last = self.accounts.lock().parts.clone();
        let mut parts = Parts::new();
        for part in counted_parts(running, &limited) {
            let bytes = ask(&part, &patience).ok();
            let bytes = bytes.or_else(|| last.get(&part.key).copied());
            parts.extend(bytes.map(|bytes| (part.key, bytes)));
        }
        let (held, mut spaces) = reckon(running, &limited, &parts);
        let mut found = self.accounts.lock();
        let mut admitted = std::mem::take(&mut found.admitted);
        admitted.retain(|unit| running.unit_position(*unit).is_none());
        spaces.extend(admitted.iter().filter_map(|unit| {
            let space = found.spaces.get(unit)?;
            Some((*unit, *space))
        }));
        for unit in spaces.keys().chain(found.spaces.keys()) {
            let of = |spaces: &HashMap<_, Space>| spaces.get(unit).copied().unwrap_or_default();
            if of(&spaces) != of(&found.spaces) {
                self.plane.set_space(*unit, of(&spaces));
            }
        }
        for (of, now) in &held {
            let before = found.held.get(of).map(|before| before.space);
            if before.unwrap_or_default() != now.space {
                self.events.note(of_quota(now));
            }
        }
        *found = Found {
            parts,
            held,
            spaces,
            admitted,
        };
    }
}

/// All quotas with what they hold, in the order of the file.
pub(crate) fn views(daemon: &Daemon) -> Vec<view::Quota> {
    let in_force = daemon.in_force();
    let model = &in_force.running.model;
    let units = || model.units().iter().zip(&in_force.running.units);
    let sizes: Vec<_> = units()
        .map(|(unit, served)| part_sizes(unit, Some(served)))
        .collect();
    let found = daemon.accounts.lock();
    let draft = config::Draft::parse(&in_force.document.text);
    // What runs was read from it.
    let specs = draft.map(|draft| draft.quotas()).unwrap_or_default();
    let view = |(spec, quota): (spec::Quota, &Quota)| {
        let held = found.held.get(&quota.of);
        let counts = |unit: &&Unit| unit.counted().any(|part| quota.counts(unit, part));
        view::Quota {
            name: spec.name(),
            spec,
            luns: model
                .units()
                .iter()
                .filter(counts)
                .map(Unit::to_string)
                .collect(),
            provisioned_bytes: counted(quota, model, &sizes),
            provisioned_max_bytes: quota.provisioned_bytes,
            used_bytes: held.map(|held| held.bytes),
            used_max_bytes: quota.used_bytes,
            space: word(held.map(|held| held.space).unwrap_or_default()).to_owned(),
        }
    };
    specs.into_iter().zip(model.quotas()).map(view).collect()
}

const fn word(space: Space) -> &'static str {
    match space {
        Space::Free => "free",
        Space::Low => "low",
        Space::Full => "full",
    }
}

/// The thread that keeps the accounts, until this is dropped.
pub(crate) struct Accountant(Arc<Summons>);

impl Accountant {
    pub(crate) fn start(daemon: &Arc<Daemon>) -> io::Result<Self> {
        let summons = Arc::clone(&daemon.summons);
        let (daemon, own) = (Arc::downgrade(daemon), Arc::clone(&summons));
        let run = move || {
            while let Some(daemon) = daemon.upgrade() {
                daemon.account();
                drop(daemon);
                if !own.wait() {
                    break;
                }
            }
        };
        thread::Builder::new()
            .name("quotas".to_owned())
            .spawn(run)?;
        Ok(Self(summons))
    }
}

impl Drop for Accountant {
    fn drop(&mut self) {
        self.0.call(|called| called.ends = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_said_in_the_words_of_the_api() {
        let words = [Space::Free, Space::Low, Space::Full].map(word);
        assert_eq!(words, ["free", "low", "full"]);
    }
}
