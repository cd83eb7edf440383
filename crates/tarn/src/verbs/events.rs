//! `tarn events`

use api::event::{Event, Severity};
use clap::{Args, ValueEnum};
use client::{Message, path};

use super::api_session::ApiSession;
use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;
use super::remote::Ask;
use super::{Outcome, doctor, human};
use crate::error::plain;

const AFTER_HELP: &str = "\
Examples:
  tarn events --most 1000 --severity warning
  tarn events --follow --json | jq .message";

/// `tarn events`
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Events {
    /// Print further events as they happen. Use it to watch; with --json there is one line per
    /// event.
    #[arg(long, short)]
    follow: bool,
    /// Only events with a higher number. Use it in scripts that continue where they stopped.
    /// [default: the newest events]
    #[arg(long, value_name = "N")]
    after: Option<u64>,
    /// How many past events to print at most. Use it to look further back.
    #[arg(long, value_name = "N", default_value_t = 100)]
    most: u32,
    /// Only events of at least this severity. Use it to find problems.
    #[arg(long, value_enum, default_value_t = Worst::Info)]
    severity: Worst,
}

/// How bad events must be.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Worst {
    /// All.
    Info,
    /// Unexpected, but no request failed.
    Warning,
    /// A request failed.
    Error,
}

impl Worst {
    /// As the API has it.
    fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl From<Worst> for Severity {
    fn from(worst: Worst) -> Self {
        match worst {
            Worst::Info => Self::Info,
            Worst::Warning => Self::Warning,
            Worst::Error => Self::Error,
        }
    }
}

impl Ask for Events {
    fn ask(&self, api: &ApiSession) -> Outcome {
        let question = path(&["events"])
            .with(
                "after",
                self.after.map(|after| after.to_string()).as_deref(),
            )
            .with("most", Some(&self.most.to_string()))
            .with("severity", Some(self.severity.word()));
        let answer = api.get::<Vec<Event>>(&question)?;
        if self.follow {
            let last = answer.value.last().map(|last| last.number).or(self.after);
            let rows = answer.json.as_array().map(Vec::as_slice);
            for (event, json) in answer.value.iter().zip(rows.unwrap_or_default()) {
                api.output.print_line(json, || line(api.output, event));
            }
            // What there was before and is not as bad comes again, and is left out again.
            return self.follow(api, last.unwrap_or(0));
        }
        api.output.print(&answer.json, || {
            let lines = answer.value.iter().map(|event| line(api.output, event));
            lines.collect()
        });
        Ok(Exit::Done)
    }
}

impl Events {
    fn has(&self, event: &Event) -> bool {
        event.severity >= self.severity.into()
    }

    /// Prints what happens until the daemon ends, which is a failure to follow it.
    fn follow(&self, api: &ApiSession, after: u64) -> Outcome {
        let stream = path(&["live"]).with("after", Some(&after.to_string()));
        for message in api.client.live(&stream)? {
            match message? {
                Message::Event(event, json) if self.has(&event) => {
                    api.output.print_line(&json, || line(api.output, &event));
                }
                Message::Event(..) | Message::Stats(_) => {}
            }
        }
        Err(Failure::StreamEnded)
    }
}

fn line(output: Output, event: &Event) -> String {
    let (word, tone) = doctor::severity(event.severity);
    // The message of an audit event names it already.
    let is_named = |author: &&String| event.message.contains(&format!(" by {author} "));
    let author = event.author.as_ref().filter(|author| !is_named(author));
    let author = author.map(|author| format!(" ({author})"));
    format!(
        "{}  {:7}  {}{}\n",
        human::moment(event.at_ms),
        output.toned(tone, word),
        plain(&event.message),
        plain(&author.unwrap_or_default()),
    )
}
