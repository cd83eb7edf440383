//! The files that a benchmark leaves.

use std::fs;
use std::path::Path;

use ::bench::host::Host;
use ::bench::process;
use ::bench::report::{Report, TargetNote, html, json};
use ::bench::suite::Beside;
use ::bench::url::redacted;
use ::bench::{Outcome, Plan, TargetPlan};
use anyhow::Context as _;

use super::BenchArgs;

/// The command line of this process, without secrets.
pub(super) fn command_line() -> Vec<String> {
    let arguments = std::env::args_os();
    arguments
        .map(|argument| redacted(&argument.to_string_lossy()))
        .collect()
}

/// Writes the files that were asked for.
///
/// # Errors
///
/// A file cannot be written.
pub(super) fn write(
    args: &BenchArgs,
    plan: &Plan,
    host: &Host,
    outcome: &Outcome,
    published: &[Beside<'_>],
) -> anyhow::Result<()> {
    let targets: Vec<_> = plan.targets.iter().map(note).collect();
    let failure = outcome.failure.as_ref().map(ToString::to_string);
    let report = Report {
        host,
        targets: &targets,
        results: &outcome.results,
        failure: failure.as_deref(),
        is_verified: plan.conditions.is_verified,
        published,
    };
    if let Some(path) = &args.json {
        put(path, "--json", &json::render(&report)?)?;
    }
    if let Some(path) = &args.html {
        put(path, "--html", &html::render(&report))?;
    }
    Ok(())
}

fn note(plan: &TargetPlan) -> TargetNote {
    let address = &plan.target.address;
    TargetNote {
        label: plan.target.label.clone(),
        transport: address.kind().to_owned(),
        place: address.place(),
        pid: plan.pid,
        cpus: plan.pid.and_then(process::allowed_cpus),
    }
}

fn put(path: &Path, flag: &str, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| {
        let path = path.display();
        format!("{flag}: cannot write {path}; name a file in a directory that you may write to")
    })
}
