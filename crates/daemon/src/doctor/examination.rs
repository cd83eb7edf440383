//! What the rules are given: the service as it is now.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use api::event::Finding;
use api::stats::{FileSystemSpace, LunSpace};
use plane::{Conflict, UnitIndex};

use super::frames::FrameCounts;
use super::reservations::Stranded;
use super::space::{Room, UnitFile};
use super::{Doctor, Facts, Inquirer, document, examine, hindrance, locked, stores};
use crate::daemon::{Daemon, InForce};
use crate::effect::blame;
use crate::hyperscsi::interfaces;
use crate::reservations::initiators_of;
use crate::running::RunningUnit;
use crate::{quotas, stats, traces, views};

impl Doctor {
    /// What limits or endangers the service, now.
    pub(crate) fn findings(&self, daemon: &Daemon, inquirer: Inquirer) -> Vec<Finding> {
        let asks_cores = inquirer == Inquirer::Administrator;
        let in_force = daemon.in_force();
        let running = &in_force.running;
        let stats = stats::stats(daemon);
        let now = Instant::now();
        let portals: Vec<_> = running.bound().into_iter().flatten().collect();
        // Cores that do not answer are no reason to say nothing of the rest.
        let sessions = asks_cores.then(|| daemon.sessions_now());
        let sessions = sessions.and_then(Result::ok).unwrap_or_default();
        let units = running.model.units().iter().zip(&running.units);
        let failed = units
            .clone()
            .filter(|(_, served)| served.store.is_flush_latched());
        let outages = units
            .clone()
            .filter_map(|(unit, served)| Some((unit.to_string(), served.store.outage()?)));
        let conflicts = units.filter_map(|(unit, served)| {
            let what = served.identity.state.conflict()?;
            Some((unit.to_string(), what))
        });
        let hindered = running.model.units().iter().zip(&running.units);
        let hindered = hindered
            .filter_map(|(unit, served)| Some((unit.to_string(), hindrance(&served.opened)?)));
        let frames = || {
            let reports = asks_cores.then(|| daemon.plane.hyperscsi().ok())??;
            Some(FrameCounts::of(&reports))
        };
        let held = daemon.accounts.held();
        let mut findings = Vec::from_iter(self.document.look(daemon));
        findings.extend(document::pending(&daemon.pending()));
        findings.extend(examine(&Facts {
            model: &running.model,
            failed: &failed.map(|(unit, _)| unit.to_string()).collect::<Vec<_>>(),
            troubled: &stores::troubled(running, &daemon.plane.counts()),
            now,
            unsent: &daemon.events.unsent(),
            outages: &outages.collect::<Vec<_>>(),
            conflicts: &conflicts.collect::<Vec<_>>(),
            stranded: &stranded(daemon, &in_force, now),
            certificates: &daemon.certificates(),
            quotas: &held,
            exceeded: &quotas::exceeded(running),
            hindered: &hindered.collect::<Vec<_>>(),
            missed: &daemon.missed().clone().into_iter().collect::<Vec<_>>(),
            interfaces: &interfaces(&running.model),
            sessions: &views::sessions(&in_force, &sessions),
            shares: &locked(&self.looks).shares(now, &stats.cores),
            stats: &stats,
            machine: &self.machine,
            memory: self.memory.as_deref(),
            hosts: &locked(&self.network).hosts(now, &portals, inquirer),
            frames: locked(&self.frames).look(now, frames),
            room: &self.room(daemon, &in_force, now),
            kept: &locked(&self.keep).room(now, daemon.state.directory()),
            traces: &traces::list(&daemon.plane),
            guessing: &daemon.plane.login_counts().guessing,
            clock: self.clock(now),
        }));
        // The worst first.
        findings.sort_by_key(|found| std::cmp::Reverse(found.severity));
        findings
    }

    /// How far the clock of the day went since the start, and how much time passed.
    fn clock(&self, now: Instant) -> (Duration, Duration) {
        let (started, began) = self.started;
        let went = SystemTime::now().duration_since(started);
        let passed = now.saturating_duration_since(began);
        (went.unwrap_or_default(), passed)
    }

    fn room(&self, daemon: &Daemon, in_force: &InForce, now: Instant) -> Room {
        let files = || unit_files(daemon, in_force);
        let room = locked(&self.space).room(now, files);
        room.with_images(&unit_images(daemon, in_force))
    }

    /// The space of units and file systems, from the look that findings are from.
    pub(crate) fn space(&self, daemon: &Daemon) -> api::stats::Space {
        let in_force = daemon.in_force();
        let files = || unit_files(daemon, &in_force);
        let room = locked(&self.space).room(Instant::now(), files);
        let running = &in_force.running;
        let units = running.model.units().iter().zip(&running.units);
        let luns = units.map(|(unit, served)| {
            let lun = unit.to_string();
            let files = room.files.iter().filter(|file| file.lun == lun);
            let taken = files
                .map(|file| file.taken_bytes)
                .reduce(u64::saturating_add);
            LunSpace {
                lun,
                device_type: served.device_type(unit).word().to_owned(),
                size_bytes: served.store.capabilities().size_bytes,
                allocated_bytes: taken,
            }
        });
        let systems = room.systems.iter().map(|system| FileSystemSpace {
            path: system.path.display().to_string(),
            size_bytes: system.size_bytes,
            free_bytes: system.free_bytes,
            promised_bytes: system.promised_bytes,
        });
        api::stats::Space {
            luns: luns.collect(),
            file_systems: systems.collect(),
        }
    }
}

fn unit_files(daemon: &Daemon, in_force: &InForce) -> Vec<UnitFile> {
    unit_media(daemon, in_force, |spec| Some(spec.at.node()?.0.to_owned()))
}

fn unit_images(daemon: &Daemon, in_force: &InForce) -> Vec<UnitFile> {
    unit_media(daemon, in_force, |spec| {
        let medium = spec.at.image().and_then(|_| spec.at.medium())?;
        Some(PathBuf::from(medium.to_string()))
    })
}

/// The parts of units that have such a path.
fn unit_media(
    daemon: &Daemon,
    in_force: &InForce,
    path: impl Fn(&config::StoreSpec) -> Option<PathBuf>,
) -> Vec<UnitFile> {
    let running = &in_force.running;
    let units = running.model.units().iter().zip(&running.units);
    let files = |(unit, served): (&config::Unit, &RunningUnit)| {
        let is_in = daemon.plane.medium(served.index).is_in;
        let parts = unit.parts().zip(served.opened.parts());
        let file = |((spec, _), store): ((&config::StoreSpec, _), Arc<dyn store::SharedStore>)| {
            Some(UnitFile {
                lun: unit.to_string(),
                path: path(spec)?,
                size_bytes: store.capabilities().size_bytes,
                open: is_in.then_some(store),
            })
        };
        parts.filter_map(file).collect::<Vec<_>>()
    };
    units.flat_map(files).collect()
}

/// It is over when no command has met a conflict for so long, or one of the holders is back.
const QUIET: Duration = Duration::from_secs(5 * 60);

/// Cores are asked for their sessions only where a command has met a conflict within [`QUIET`].
fn stranded(daemon: &Daemon, in_force: &InForce, now: Instant) -> Vec<Stranded> {
    let mut last: BTreeMap<UnitIndex, Conflict> = BTreeMap::new();
    for trouble in daemon
        .plane
        .counts()
        .into_iter()
        .flat_map(|core| core.troubles)
    {
        let Some(conflict) = trouble.conflict else {
            continue;
        };
        let is_recent = now.saturating_duration_since(conflict.at) < QUIET;
        let is_last = last
            .get(&trouble.unit)
            .is_none_or(|one| one.at < conflict.at);
        if is_recent && is_last {
            last.insert(trouble.unit, conflict);
        }
    }
    if last.is_empty() {
        return Vec::new();
    }
    let Ok(sessions) = daemon.sessions_now() else {
        return Vec::new();
    };
    let running = &in_force.running;
    let stranded = last.into_iter().filter_map(|(index, conflict)| {
        let unit = running.model.units().get(running.unit_position(index)?)?;
        let report = daemon.plane.reservations(index);
        let here = initiators_of(&sessions, index);
        let holders = report.holders();
        let is_there = holders.iter().any(|one| here.contains(&one.initiator.name));
        (!holders.is_empty() && !is_there).then(|| Stranded {
            lun: unit.to_string(),
            initiator: conflict.initiator.into(),
            blame: blame(&report),
        })
    });
    stranded.collect()
}
