//! What a session sees changes while it runs.

use engine::{Carrier, Engine, SessionKey, VisibleLun};

/// Gives a session what it sees now and did not before, and takes what it does not see any more. The receipt is kept
/// until commands on what was taken are over.
pub(crate) fn change_luns<C: Carrier>(
    engine: &mut Engine<C>,
    key: SessionKey,
    (before, now): (&[VisibleLun], &[VisibleLun]),
    receipt: &C::Receipt,
) where
    C::Receipt: Clone,
{
    let is_in = |all: &[VisibleLun], one: &VisibleLun| {
        let same = |other: &&VisibleLun| other.lun == one.lun && other.unit == one.unit;
        all.iter().find(same).copied()
    };
    let gone = before.iter().filter(|old| is_in(now, old).is_none());
    let gone: Vec<VisibleLun> = gone.copied().collect();
    let come = now.iter().filter(|new| is_in(before, new).is_none());
    let come: Vec<VisibleLun> = come.copied().collect();
    let luns_differ = !(gone.is_empty() && come.is_empty());
    for old in before {
        let Some(new) = is_in(now, old) else {
            continue;
        };
        // A unit that stays says that others came or went, and whether it may be written to.
        if luns_differ {
            engine.notify_luns_changed(key, new.lun);
        }
        if old.read_only != new.read_only {
            engine.set_read_only(key, new.lun, new.read_only, receipt.clone());
        }
    }
    for lun in gone {
        engine.take_lun(key, lun.lun, receipt.clone());
    }
    for lun in come {
        engine.give_lun(key, lun, receipt.clone());
    }
}
