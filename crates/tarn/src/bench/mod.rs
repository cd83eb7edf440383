//! `tarn bench`: from the command line to a plan, and from results to what is printed.

mod args;
mod error;
mod papers;
mod progress;
mod reports;
mod table;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::bench::host::Host;
use ::bench::suite::{Suite, beside};
use ::bench::url::{Address, Login, Password, Target};
use ::bench::workload::{Access, Point, Sweep};
use ::bench::{Conditions, Outcome, Plan, TargetPlan};
use signal_hook::consts::SIGINT;

pub use args::{BenchArgs, CpuList};
use config::{ConfigError, Place, StoreSpec};
pub(crate) use error::BenchError;
use remote::HyperscsiOptions;

use daemon::device_options;
use daemon::environment::Environment;
use daemon::error::StartError;
use daemon::password;
use daemon::secret::{self, Secret};

use crate::attach;
use progress::Teller;

/// Runs the benchmark and prints it.
///
/// # Errors
///
/// What keeps it from being carried out, I/O errors and miscompares among it.
pub(crate) fn run(args: &BenchArgs, environment: &Environment) -> anyhow::Result<()> {
    let plan = plan(args, environment)?;
    let interrupt = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGINT, Arc::clone(&interrupt))?;
    let host = Host::here(plan.conditions.cpus.clone(), reports::command_line());
    let one = plan.conditions.warmup + plan.conditions.runtime;
    let mut teller = Teller::new(plan.points.len(), one);
    let outcome = ::bench::run(&plan, &interrupt, &mut teller);
    teller.clear();
    let outcome = outcome.map_err(BenchError::from)?;
    let published = if args.suite == Some(Suite::Papers) {
        beside(&outcome.results)
    } else {
        Vec::new()
    };
    reports::write(args, &plan, &host, &outcome, &published)?;
    let blocks: Vec<_> = outcome.results.iter().map(table::point).collect();
    let mut text = blocks.join("\n");
    text.push_str(&papers::table(&published));
    daemon::say(io::stdout().lock(), &text);
    if interrupt.load(Ordering::Relaxed) {
        daemon::say(
            io::stderr().lock(),
            "tarn: interrupted; this is what there is\n",
        );
    }
    verdict(outcome)
}

/// The benchmark is good when nothing went wrong in it.
fn verdict(outcome: Outcome) -> anyhow::Result<()> {
    if let Some(failure) = outcome.failure {
        return Err(failure.into());
    }
    let samples = outcome.results.iter().flat_map(|result| &result.targets);
    let mut bad = samples.flat_map(|target| {
        let samples = target.samples.iter().filter(|sample| !sample.is_good());
        samples.map(|sample| (&target.label, sample))
    });
    match bad.next() {
        None => Ok(()),
        Some((label, sample)) => {
            let (errors, wrong) = (sample.tally.errors, sample.tally.miscompares);
            let failure = sample.failure.as_deref().unwrap_or("see above");
            anyhow::bail!("{label}: {errors} I/O errors, {wrong} miscompares: {failure}")
        }
    }
}

fn plan(args: &BenchArgs, environment: &Environment) -> Result<Plan, BenchError> {
    let login = login(args, environment)?;
    let mut targets = Vec::new();
    for (n, url) in args.urls.iter().enumerate() {
        let mut target = Target::parse(url, |url| device(args, environment, url))?;
        if let Address::Iscsi { login: own, .. } = &mut target.address
            && own.is_none()
        {
            own.clone_from(&login);
        }
        // 0 stands for none, so that those behind it keep their place.
        let pid = args.pid.get(n).copied().filter(|&pid| pid != 0);
        targets.push(TargetPlan { target, pid });
    }
    if args.pid.len() > targets.len() {
        return Err(BenchError::Pids {
            pids: args.pid.len(),
            urls: targets.len(),
        });
    }
    distinguish(&mut targets);
    Ok(Plan {
        targets,
        points: points(args)?,
        conditions: Conditions {
            runtime: args.runtime,
            warmup: args.warmup,
            is_verified: args.verify,
            span_bytes: args.span,
            threads: args.threads,
            cpus: args.cpus.clone().map(|list| list.0).unwrap_or_default(),
        },
        rounds: args.repeat,
        may_overwrite: args.overwrite,
        initiator: args.initiator.clone(),
        header_digest: args.header_digest,
        data_digest: args.data_digest,
    })
}

/// The device of a URL, reached as it says or else as the flags do.
fn device(
    args: &BenchArgs,
    environment: &Environment,
    url: &str,
) -> Result<HyperscsiOptions, BenchError> {
    let place = Place::argument(format!("URL {url:?}"));
    let reached = attach::Reached {
        udp: args.udp.as_deref(),
        interface: args.interface.as_deref(),
    };
    let store = attach::with_carrier(url, reached)?;
    let spec = StoreSpec::parse(&store)
        .map_err(|rule| StartError::from(ConfigError::new(rule, place.clone())))?;
    let Some(device) = spec.at.device() else {
        return Err(StartError::Argument {
            place,
            reason: "it is no device; write hyperscsi://GROUP/DEVICE".to_owned(),
        }
        .into());
    };
    let mut options = device_options(&spec, device, &place)?;
    if device.password_file.is_none() {
        let given = args.password_file.as_deref();
        let password = password::given(given, environment, "--password-file")?;
        options.password = password.unwrap_or_default();
    }
    Ok(options)
}

/// The points of the suite or of the lists.
fn points(args: &BenchArgs) -> Result<Vec<Point>, BenchError> {
    let Some(suite) = args.suite else {
        return Ok(sweep(args)?.points());
    };
    let mut points = suite.points();
    let all = points.len();
    points.retain(|point| args.overwrite || !point.access.writes());
    let left_out = all - points.len();
    if left_out > 0 {
        let name = suite.name();
        let text =
            format!("tarn: suite {name} without its {left_out} writes; add --overwrite for them\n");
        daemon::say(io::stderr().lock(), &text);
    }
    Ok(points)
}

fn sweep(args: &BenchArgs) -> Result<Sweep, BenchError> {
    let accesses = match args.rw.as_slice() {
        [Access::RandRead | Access::Mixed] if args.verify => vec![Access::Mixed],
        _ if args.verify => return Err(BenchError::VerifiesMixed),
        accesses => accesses.to_vec(),
    };
    Ok(Sweep {
        accesses,
        block_bytes: args.bs.clone(),
        sessions: args.sessions.clone(),
        depths: args.iodepth.clone(),
        read_percent: args.read_percent,
    })
}

/// Who logs in where the URL does not say.
fn login(args: &BenchArgs, environment: &Environment) -> Result<Option<Login>, BenchError> {
    let Some(user) = &args.user else {
        return Ok(None);
    };
    let from_file = args.secret_file.as_ref();
    let from_file =
        from_file.map(|path| secret::read_alone("--secret-file", path, environment.uid));
    let secret: Option<Secret> = match from_file {
        Some(secret) => Some(secret?),
        None => environment.bench_secret.clone(),
    };
    let secret = secret.ok_or(BenchError::NoSecret)?;
    Ok(Some(Login {
        user: user.clone(),
        password: Password::new(secret.as_bytes().to_vec()),
    }))
}

/// Two targets of one label could not be distinguished in a report.
fn distinguish(targets: &mut [TargetPlan]) {
    let labels: Vec<_> = targets.iter().map(|t| t.target.label.clone()).collect();
    for (n, plan) in targets.iter_mut().enumerate() {
        let label = &plan.target.label;
        let is_shared = labels.iter().filter(|other| *other == label).count() > 1;
        if is_shared {
            plan.target.label = format!("{label} #{}", n + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(more: &[&str]) -> BenchArgs {
        let all = [&["tarn", "bench"], more].concat();
        let command = Cli::try_parse_from(all).unwrap().command;
        let Command::Bench(args) = command else {
            panic!("bench was asked for");
        };
        *args
    }

    fn plan_of(more: &[&str]) -> Result<Plan, String> {
        plan(&args(more), &Environment::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn lists_make_points_and_urls_make_targets() {
        let plan = plan_of(&[
            "--rw",
            "read,randwrite",
            "--bs",
            "512,4k,1m",
            "--iodepth",
            "1,32",
            "--sessions",
            "1,2",
            "--pid",
            "0",
            "--pid",
            "77",
            "--cpus",
            "1",
            "iscsi://h/iqn.x/0",
            "iscsi://h/iqn.x/1",
            "c=iscsi://h/iqn.x/2",
        ])
        .unwrap();
        assert_eq!(plan.points.len(), 24);
        let labels: Vec<_> = plan
            .targets
            .iter()
            .map(|t| t.target.label.as_str())
            .collect();
        assert_eq!(labels, ["h:3260 #1", "h:3260 #2", "c"]);
        let pids: Vec<_> = plan.targets.iter().map(|t| t.pid).collect();
        assert_eq!(pids, [None, Some(77), None]);
        assert_eq!(plan.conditions.cpus, [1]);
    }

    #[test]
    fn verification_is_a_mixed_load() {
        let plan = plan_of(&["--verify", "iscsi://h/iqn.x/0"]).unwrap();
        assert_eq!(plan.points[0].access, Access::Mixed);
        assert!(plan.conditions.is_verified);
        let error = plan_of(&["--verify", "--rw", "read", "iscsi://h/iqn.x/0"]);
        assert!(error.err().unwrap().contains("--verify"));
    }

    #[test]
    fn a_secret_comes_from_the_environment_and_a_url_has_its_own() {
        let both = [
            "--user",
            "al",
            "iscsi://h/iqn.x/0",
            "iscsi://bob%bobs@h/iqn.x/0",
        ];
        assert!(plan_of(&both).err().unwrap().contains("TARN_BENCH_SECRET"));
        let environment = Environment {
            bench_secret: Some(Secret::from_text("twelve bytes")),
            ..Environment::default()
        };
        let plan = plan(&args(&both), &environment).unwrap();
        let logins = plan.targets.iter().map(|t| match &t.target.address {
            Address::Iscsi { login, .. } => login.as_ref().unwrap().password.as_bytes().to_vec(),
            Address::Nbd { .. }
            | Address::NbdUnix { .. }
            | Address::Hyperscsi(_)
            | Address::File { .. } => panic!("iscsi"),
        });
        let logins: Vec<_> = logins.collect();
        assert_eq!(logins, [&b"twelve bytes"[..], b"bobs"]);
    }

    #[test]
    fn a_device_is_reached_by_its_url_or_by_the_flags() {
        let device = |more: &[&str]| -> Result<HyperscsiOptions, String> {
            let plan = plan_of(more)?;
            let Address::Hyperscsi(options) = &plan.targets[0].target.address else {
                panic!("no device");
            };
            Ok((**options).clone())
        };
        let url = "hyperscsi://g/d?level=hash&server=s";
        let options = device(&["--udp", "h:1", url]).unwrap();
        assert_eq!(options.carrier, remote::Carrier::udp("h", Some(1)));
        assert_eq!(
            (options.group, options.device),
            ("g".to_owned(), "d".to_owned())
        );
        assert_eq!(options.server.as_deref(), Some("s"));
        assert_eq!(options.level, Some(remote::Level::Hash));
        let own = device(&["--udp", "h:1", "x=hyperscsi://g/d?udp=i"]).unwrap();
        assert_eq!(own.carrier, remote::Carrier::udp("i", None));
        let error = device(&[url]).err().unwrap();
        assert!(
            error.ends_with("or add --udp HOST[:PORT] or --interface IF"),
            "{error}"
        );
        let error = device(&["--interface", "no-such-one", url]).err().unwrap();
        assert!(error.contains("there is no interface"), "{error}");
    }

    #[test]
    fn a_suite_has_its_own_points_and_spares_data() {
        let all = plan_of(&["--suite", "papers", "--overwrite", "iscsi://h/iqn.x/0"]).unwrap();
        let reads = plan_of(&["--suite", "papers", "iscsi://h/iqn.x/0"]).unwrap();
        assert!(all.points.iter().any(|point| point.access.writes()));
        assert!(!reads.points.iter().any(|point| point.access.writes()));
        assert!(all.points.len() > reads.points.len() && !reads.points.is_empty());
    }

    #[test]
    fn more_processes_than_targets_are_refused() {
        let error = plan_of(&["--pid", "1", "--pid", "2", "iscsi://h/iqn.x/0"]).err();
        assert!(error.unwrap().contains("--pid"));
    }
}
