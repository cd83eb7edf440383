//! A whole benchmark: every point, every round, every target in turn.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use remote::HyperscsiOptions;
use store::{CacheMode, OpenOptions, StoreKind};

use crate::control::Interrupt;
use crate::engine::{Conditions, Job};
use crate::entropy::random_bytes;
use crate::error::BenchError;
use crate::process::Process;
use crate::result::{PointResult, TargetResult};
use crate::tally::Sample;
use crate::transport::file::{FileConnector, FileLane};
use crate::transport::hyperscsi::{HyperscsiConnector, HyperscsiLane};
use crate::transport::iscsi::{IscsiConnector, IscsiLane};
use crate::transport::nbd::{NbdConnector, NbdLane, NbdServer};
use crate::url::{Address, Target};
use crate::workload::{IN_FLIGHT_BYTES_MAX, Point};

/// What is to be measured.
#[expect(
    missing_debug_implementations,
    reason = "secrets are not to reach a log"
)]
pub struct Plan {
    /// The targets; later ones are compared with the first.
    pub targets: Vec<TargetPlan>,
    /// The points.
    pub points: Vec<Point>,
    /// How each is measured.
    pub conditions: Conditions,
    /// Rounds of each point.
    pub rounds: u32,
    /// Nothing on the targets is worth keeping.
    pub may_overwrite: bool,
    /// iSCSI: the InitiatorName.
    pub initiator: String,
    /// iSCSI: insist on CRC32C over headers.
    pub header_digest: bool,
    /// iSCSI: insist on CRC32C over data.
    pub data_digest: bool,
}

/// A target and its process.
#[expect(
    missing_debug_implementations,
    reason = "secrets are not to reach a log"
)]
pub struct TargetPlan {
    /// Where it is.
    pub target: Target,
    /// The process whose CPU time is charged to it, if one is.
    pub pid: Option<u32>,
}

/// How far a benchmark is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The point under way, from 0.
    pub point_index: usize,
    /// How many there are.
    pub points: usize,
    /// The point.
    pub point: &'a Point,
    /// The round, from 0.
    pub round: u32,
    /// How many there are.
    pub rounds: u32,
    /// The target, from 0.
    pub target_index: usize,
    /// How many there are.
    pub targets: usize,
    /// Its label.
    pub label: &'a str,
    /// How much of the window is over.
    pub elapsed: Duration,
    /// Good I/Os in it.
    pub ios: u64,
    /// Their median latency in nanoseconds.
    pub median_ns: u64,
}

/// Is notified of what happens during a benchmark.
pub trait Observer {
    /// A measurement is under way; some times a second.
    fn progress(&mut self, progress: &Progress<'_>);

    /// A point is measured in all rounds.
    fn point_done(&mut self, index: usize, result: &PointResult);
}

/// What came of a benchmark.
#[derive(Debug)]
pub struct Outcome {
    /// The points that were measured; the last one may lack rounds or targets.
    pub results: Vec<PointResult>,
    /// What ended it early.
    pub failure: Option<BenchError>,
}

/// Measures everything, until it is done, something fails or `interrupt` is set.
///
/// # Errors
///
/// The plan cannot be carried out; nothing was done.
pub fn run(
    plan: &Plan,
    interrupt: &Interrupt,
    observer: &mut dyn Observer,
) -> Result<Outcome, BenchError> {
    check(plan)?;
    let targets = prepare(plan)?;
    let mut run = Run {
        plan,
        targets,
        interrupt,
        observer,
        results: Vec::new(),
    };
    let failure = run.all_points().err();
    if run.results.is_empty()
        && let Some(failure) = failure
    {
        return Err(failure);
    }
    Ok(Outcome {
        results: run.results,
        failure,
    })
}

/// What can be said without connecting.
fn check(plan: &Plan) -> Result<(), BenchError> {
    for point in &plan.points {
        let bytes = point.in_flight_bytes();
        if bytes > IN_FLIGHT_BYTES_MAX {
            return Err(BenchError::TooMuchInFlight {
                point: point.to_string(),
                bytes,
                limit: IN_FLIGHT_BYTES_MAX,
            });
        }
    }
    let writing = plan.points.iter().find(|point| point.access.writes());
    match writing {
        Some(point) if !plan.may_overwrite => Err(BenchError::OverwriteNotAllowed {
            what: point.access.name(),
            targets: join(plan.targets.iter().map(|plan| plan.target.label.as_str())),
        }),
        Some(_) | None => Ok(()),
    }
}

fn join<'a>(labels: impl Iterator<Item = &'a str>) -> String {
    labels.collect::<Vec<_>>().join(", ")
}

/// A target, ready to be connected to any number of times.
struct Ready<'a> {
    label: &'a str,
    connector: Connector,
    process: Option<(Process, u32)>,
}

/// By transport.
enum Connector {
    Iscsi(IscsiConnector),
    Nbd(NbdConnector),
    Hyperscsi(Box<HyperscsiConnector>),
    File(FileConnector),
}

fn prepare(plan: &Plan) -> Result<Vec<Ready<'_>>, BenchError> {
    let isid = random_bytes()?;
    plan.targets
        .iter()
        .map(|TargetPlan { target, pid }| {
            let process = pid.map(|pid| (Process::new(pid), pid));
            if let Some((process, pid)) = &process {
                let look = process.look();
                look.map_err(|source| BenchError::Process { pid: *pid, source })?;
            }
            Ok(Ready {
                label: &target.label,
                connector: connector(plan, target, isid)?,
                process,
            })
        })
        .collect()
}

fn connector(plan: &Plan, target: &Target, isid: [u8; 3]) -> Result<Connector, BenchError> {
    let label = target.label.clone();
    match &target.address {
        Address::Iscsi {
            host,
            port,
            target,
            lun,
            login,
        } => Ok(Connector::Iscsi(IscsiConnector {
            label,
            host: host.clone(),
            port: *port,
            target: target.clone(),
            lun: *lun,
            initiator: plan.initiator.clone(),
            login: login.clone(),
            header_digest: plan.header_digest,
            data_digest: plan.data_digest,
            isid,
        })),
        Address::Nbd { host, port, export } => Ok(Connector::Nbd(NbdConnector {
            label,
            server: NbdServer::Tcp {
                host: host.clone(),
                port: *port,
            },
            export: export.clone(),
        })),
        Address::NbdUnix { socket, export } => Ok(Connector::Nbd(NbdConnector {
            label,
            server: NbdServer::Unix(socket.clone()),
            export: export.clone(),
        })),
        Address::Hyperscsi(options) => Ok(Connector::Hyperscsi(Box::new(HyperscsiConnector {
            label,
            options: HyperscsiOptions {
                read_only: !plan.points.iter().any(|point| point.access.writes()),
                ..(**options).clone()
            },
        }))),
        Address::File { path, direct } => open_file(plan, label, path, *direct),
    }
}

fn open_file(
    plan: &Plan,
    label: String,
    path: &Path,
    direct: bool,
) -> Result<Connector, BenchError> {
    if !path.exists() {
        return Err(BenchError::Unfit {
            target: label,
            problem: "the file or device does not exist; create it first, or check the path"
                .to_owned(),
        });
    }
    let mut options = OpenOptions::new(StoreKind::Path, path);
    options.read_only = !plan.points.iter().any(|point| point.access.writes());
    options.cache = if direct {
        CacheMode::Direct
    } else {
        CacheMode::WriteBack
    };
    // Whatever it is an image of, here it is bytes, and --overwrite was given for writes.
    options.force_raw = true;
    match options.open() {
        Ok(store) => Ok(Connector::File(FileConnector { label, store })),
        Err(source) => Err(BenchError::Open {
            target: label,
            source,
        }),
    }
}

/// The state of a benchmark.
struct Run<'a> {
    plan: &'a Plan,
    targets: Vec<Ready<'a>>,
    interrupt: &'a Interrupt,
    observer: &'a mut dyn Observer,
    results: Vec<PointResult>,
}

impl Run<'_> {
    fn all_points(&mut self) -> Result<(), BenchError> {
        for (index, point) in self.plan.points.iter().enumerate() {
            if self.is_interrupted() {
                return Ok(());
            }
            let mut result = PointResult {
                point: *point,
                targets: self
                    .targets
                    .iter()
                    .map(|target| TargetResult {
                        label: target.label.to_owned(),
                        samples: Vec::new(),
                    })
                    .collect(),
            };
            let ended = self.all_rounds(index, &mut result);
            // What there is of a point is kept, whatever came then.
            if result.targets.iter().any(|t| !t.samples.is_empty()) {
                self.observer.point_done(index, &result);
                self.results.push(result);
            }
            if !ended? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// False when no more is to be measured.
    fn all_rounds(&mut self, index: usize, result: &mut PointResult) -> Result<bool, BenchError> {
        for round in 0..self.plan.rounds {
            for target in 0..self.targets.len() {
                let sample = self.measure(index, &result.point, round, target)?;
                let goes_on = sample.failure.is_none() && !self.is_interrupted();
                if let Some(place) = result.targets.get_mut(target) {
                    place.samples.push(sample);
                }
                if !goes_on {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    fn measure(
        &mut self,
        point_index: usize,
        point: &Point,
        round: u32,
        target_index: usize,
    ) -> Result<Sample, BenchError> {
        let plan = self.plan;
        let targets = self.targets.len();
        let Some(target) = self.targets.get(target_index) else {
            return Ok(Sample::default());
        };
        let seed = u64::from(round) << 32 | point_index as u64;
        let job = Job {
            label: target.label,
            point,
            conditions: &plan.conditions,
            process: target
                .process
                .as_ref()
                .map(|(process, pid)| (process, *pid)),
            seed,
            interrupt: self.interrupt,
        };
        let mut show = |elapsed, ios, median_ns| {
            self.observer.progress(&Progress {
                point_index,
                points: plan.points.len(),
                point,
                round,
                rounds: plan.rounds,
                target_index,
                targets,
                label: target.label,
                elapsed,
                ios,
                median_ns,
            });
        };
        match &target.connector {
            Connector::Iscsi(connector) => job.measure::<IscsiLane>(connector, &mut show),
            Connector::Nbd(connector) => job.measure::<NbdLane>(connector, &mut show),
            Connector::Hyperscsi(connector) => job.measure::<HyperscsiLane>(connector, &mut show),
            Connector::File(connector) => job.measure::<FileLane>(connector, &mut show),
        }
    }
}
