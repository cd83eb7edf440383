//! `tarn diff`

use std::path::PathBuf;

use api::plan::Document;
use api::view::Status;
use clap::Args;
use client::path;
use similar::TextDiff;

use super::api_session::ApiSession;
use super::exit::Exit;
use super::failure::Failure;
use super::output::{Output, Tone};
use super::remote::Ask;
use super::{Outcome, changes, configuration};
use daemon::error::plain;

/// Lines of context around a difference.
const CONTEXT_LINES: usize = 3;

const AFTER_HELP: &str = "\
Lines with - are only in the running configuration, lines with + only in the file. Then come the
steps that would apply the file.

Examples:
  tarn diff
  tarn diff new.toml --exit-code     # 0: no difference, 10: some, 2 or 7: it would be refused";

/// `tarn diff`
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Diff {
    /// The configuration file; - for the standard input. [default: the one the daemon was started
    /// with]
    file: Option<PathBuf>,
    /// End with exit code 10 when there is a difference, with that of tarn apply when that would
    /// fail. Use it in scripts that watch for drift.
    #[arg(long)]
    exit_code: bool,
}

impl Ask for Diff {
    fn ask(&self, api: &ApiSession) -> Outcome {
        let file = match &self.file {
            Some(file) => file.clone(),
            None => started_with(api)?,
        };
        let wanted = configuration::read(&file)?;
        let running = api.get::<Document>(&path(&["config"]))?.value;
        let source = configuration::Source::new(api, &file);
        let plan =
            configuration::plan(api, wanted.clone()).map_err(|error| source.failure(error))?;
        let plan = source.plan(plan);
        changes::warn(api.output, &plan.value.warnings);
        api.output.print(&plan.json, || {
            let name = file.display().to_string();
            let lines = lines(api.output, &running, &name, &wanted);
            format!("{lines}{}", changes::plan(api.output, &plan.value))
        });
        if self.exit_code {
            Ok(configuration::exit(true, &plan.value))
        } else {
            Ok(Exit::Done)
        }
    }
}

/// The file that the daemon was started with, if this is its machine.
fn started_with(api: &ApiSession) -> Result<PathBuf, Failure> {
    if !api.is_local() {
        return Err(Failure::NoFile {
            how: "on another machine",
        });
    }
    let status = api.get::<Status>(&path(&["status"]))?.value;
    let file = status.config_file.ok_or(Failure::NoFile {
        how: "with stores on its command line",
    })?;
    Ok(file.into())
}

fn lines(output: Output, running: &Document, name: &str, wanted: &str) -> String {
    let from = format!("running (revision {})", running.revision);
    let diff = TextDiff::from_lines(running.text.as_str(), wanted);
    let mut unified = diff.unified_diff();
    let text = unified
        .context_radius(CONTEXT_LINES)
        .header(&from, &plain(name))
        .to_string();
    text.lines().map(|line| toned(output, line)).collect()
}

fn toned(output: Output, line: &str) -> String {
    let line = plain(line);
    let text = match line.as_bytes().first() {
        Some(b'+') => output.toned(Tone::Good, &line),
        Some(b'-') => output.toned(Tone::Bad, &line),
        Some(b'@') => output.toned(Tone::Strong, &line),
        _ => line,
    };
    format!("{text}\n")
}
