//! `tarn doctor`

use api::event::{Finding, Severity};
use clap::Args;
use client::path;

use super::Outcome;
use super::api_session::ApiSession;
use super::exit::Exit;
use super::output::{Output, Tone};
use super::remote::Ask;
use daemon::error::plain;

const AFTER_HELP: &str = "\
Examples:
  tarn doctor
  tarn doctor --exit-code || mail -s 'look at tarn' root";

/// `tarn doctor`
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Doctor {
    /// End with exit code 10 when there are warnings or errors. Use it in scripts that monitor.
    #[arg(long)]
    exit_code: bool,
}

impl Ask for Doctor {
    fn ask(&self, api: &ApiSession) -> Outcome {
        let answer = api.get::<Vec<Finding>>(&path(&["findings"]))?;
        api.output.print(&answer.json, || {
            if answer.value.is_empty() {
                return "nothing found: all is well\n".to_owned();
            }
            findings(api.output, &answer.value)
        });
        let is_bad = answer.value.iter().any(|f| f.severity > Severity::Info);
        Ok(if self.exit_code && is_bad {
            Exit::Differs
        } else {
            Exit::Done
        })
    }
}

/// How bad it is, and the tone of it.
pub(super) const fn severity(severity: Severity) -> (&'static str, Tone) {
    match severity {
        Severity::Info => ("info", Tone::Strong),
        Severity::Warning => ("warning", Tone::Odd),
        Severity::Error => ("error", Tone::Bad),
    }
}

/// Two lines for each: what is the matter, what to do.
pub(super) fn findings(output: Output, findings: &[Finding]) -> String {
    let one = |finding: &Finding| {
        let (word, tone) = severity(finding.severity);
        let about = match finding.subject.as_str() {
            "" => String::new(),
            subject => format!(" {}", plain(subject)),
        };
        format!(
            "{} {}{about}: {}\n    {}\n",
            output.toned(tone, word),
            finding.code,
            plain(&finding.message),
            plain(&finding.remedy),
        )
    };
    findings.iter().map(one).collect()
}
