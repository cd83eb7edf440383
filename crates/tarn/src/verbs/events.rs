//! `tarn events`

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::event::{Event, Severity};
use api::request::EventQuestion;
use clap::{Args, ValueEnum};
use client::{Message, path};

use super::api_session::ApiSession;
use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;
use super::remote::Ask;
use super::{Outcome, doctor, human};
use daemon::error::plain;

const AFTER_HELP: &str = "\
Examples:
  tarn events --most 1000 --severity warning
  tarn events --lun web --since 2h
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
    #[arg(long, value_name = "N", default_value_t = 100, visible_alias = "limit")]
    most: u32,
    /// Only events of at least this severity. Use it to find problems.
    #[arg(long, value_enum, default_value_t = Worst::Info)]
    severity: Worst,
    /// Only events of these kinds, with commas between them; docs/reference/api.md lists them. Use it to
    /// leave out the rest.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    kind: Vec<String>,
    /// Only events about this LUN. Use it when a disk makes trouble.
    #[arg(long, value_name = "ID")]
    lun: Option<String>,
    /// Only events about this target. Use it when one of several makes trouble.
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// Only events about this initiator. Use it when a host makes trouble.
    #[arg(long, value_name = "NAME")]
    initiator: Option<String>,
    /// Only events about this user, or by this administrator. Use it to see what one has done.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only events of the last so many seconds, minutes, hours or days: 90s, 15m, 2h, 7d. Use
    /// it to look at one time.
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    since: Option<u64>,
}

/// A time back from now, in seconds.
fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no time; write 90s, 15m, 2h or 7d");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let factor = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    let number = text
        .strip_suffix(unit)
        .and_then(|number| number.parse::<u64>().ok());
    number
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(wrong)
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
        let wanted = self.wanted();
        let since = wanted.since_ms.map(|since| since.to_string());
        let kinds = (!self.kind.is_empty()).then(|| self.kind.join(","));
        let question = path(&["events"])
            .with(
                "after",
                self.after.map(|after| after.to_string()).as_deref(),
            )
            .with("most", Some(&self.most.to_string()))
            .with("severity", Some(self.severity.word()))
            .with("kind", kinds.as_deref())
            .with("lun", self.lun.as_deref())
            .with("target", self.target.as_deref())
            .with("initiator", self.initiator.as_deref())
            .with("user", self.user.as_deref())
            .with("since", since.as_deref());
        let answer = api.get::<Vec<Event>>(&question)?;
        if self.follow {
            let last = answer.value.last().map(|last| last.number).or(self.after);
            let rows = answer.json.as_array().map(Vec::as_slice);
            for (event, json) in answer.value.iter().zip(rows.unwrap_or_default()) {
                api.output.print_line(json, || line(api.output, event));
            }
            // What there was before and is not as bad comes again, and is left out again.
            return follow(api, &wanted, last.unwrap_or(0));
        }
        api.output.print(&answer.json, || {
            let lines = answer.value.iter().map(|event| line(api.output, event));
            lines.collect()
        });
        Ok(Exit::Done)
    }
}

impl Events {
    /// What is asked for, as the daemon has it.
    fn wanted(&self) -> EventQuestion {
        let since = self.since.map(|seconds| {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            let since = now.saturating_sub(Duration::from_secs(seconds));
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        });
        EventQuestion {
            severity: self.severity.into(),
            kinds: self.kind.clone(),
            lun: self.lun.clone(),
            target: self.target.clone(),
            initiator: self.initiator.clone(),
            user: self.user.clone(),
            since_ms: since,
            ..EventQuestion::default()
        }
    }
}

/// Prints what happens until the daemon ends, which is a failure to follow it.
fn follow(api: &ApiSession, wanted: &EventQuestion, after: u64) -> Outcome {
    let stream = path(&["live"]).with("after", Some(&after.to_string()));
    for message in api.client.live(&stream)? {
        match message? {
            Message::Event(event, json) if wanted.wants(&event) => {
                api.output.print_line(&json, || line(api.output, &event));
            }
            Message::Event(..) | Message::Stats(_) => {}
        }
    }
    Err(Failure::StreamEnded)
}

fn line(output: Output, event: &Event) -> String {
    let (word, tone) = doctor::severity(event.severity);
    // The message of an audit event names it already.
    let is_named = |author: &&String| event.message.contains(author.as_str());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_back_has_a_unit() {
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("15m"), Ok(900));
        assert_eq!(seconds("2h"), Ok(7_200));
        assert_eq!(seconds("7d"), Ok(604_800));
        for wrong in ["", "s", "90", "1.5h", "-1m", "9w", "18446744073709551615m"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_line_names_the_author_once() {
        let mut event = Event {
            at_ms: 1_796_000_000_000,
            severity: Severity::Warning,
            message: "bob did\n".to_owned(),
            ..serde_json::from_str(
                r#"{"number":1,"at_ms":0,"severity":"info","kind":"k","message":""}"#,
            )
            .unwrap()
        };
        for (author, expected) in [
            (None, "warning  bob did\\n"),
            (Some("bob"), "warning  bob did\\n"),
            (Some("eve\n"), "warning  bob did\\n (eve\\n)"),
        ] {
            event.author = author.map(str::to_owned);
            let text = line(Output::new(false, false), &event);
            assert_eq!(text, format!("2026-11-30 00:53:20Z  {expected}\n"));
        }
        event.severity = Severity::Info;
        let text = line(Output::new(false, false), &event);
        assert!(text.contains("Z  info     bob"), "{text}");
    }

    #[test]
    fn what_is_followed_is_what_was_asked_for() {
        let text = |text: &str| Some(text.to_owned());
        let mut asked = Events {
            follow: true,
            after: None,
            most: 1,
            severity: Worst::Warning,
            kind: vec!["k".to_owned()],
            lun: text("l"),
            target: text("t"),
            initiator: text("i"),
            user: text("u"),
            since: None,
        };
        let expected = EventQuestion {
            severity: Severity::Warning,
            kinds: vec!["k".to_owned()],
            lun: text("l"),
            target: text("t"),
            initiator: text("i"),
            user: text("u"),
            since_ms: None,
            ..EventQuestion::default()
        };
        assert_eq!(format!("{:?}", asked.wanted()), format!("{expected:?}"));
        for (worst, severity) in [
            (Worst::Info, Severity::Info),
            (Worst::Warning, Severity::Warning),
            (Worst::Error, Severity::Error),
        ] {
            assert_eq!(Severity::from(worst), severity);
            assert_eq!(serde_json::json!(severity), worst.word());
        }
        // A time back from now; one before all times is their beginning.
        asked.since = Some(3_600);
        let hour = asked.wanted().since_ms.unwrap();
        asked.since = Some(0);
        assert!(asked.wanted().since_ms.unwrap() - hour >= 3_600_000);
        asked.since = Some(u64::MAX);
        assert_eq!(asked.wanted().since_ms, Some(0));
    }
}
