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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_what_is_the_matter_and_what_to_do() {
        let finding = |severity, subject: &str| Finding {
            severity,
            code: "odd".to_owned(),
            subject: subject.to_owned(),
            message: "it is\n".to_owned(),
            remedy: "mend it\r".to_owned(),
            lun: None,
        };
        let all = [finding(Severity::Error, "a\n"), finding(Severity::Info, "")];
        assert_eq!(
            findings(Output::new(false, false), &all),
            "error odd a\\n: it is\\n\n    mend it\\r\ninfo odd: it is\\n\n    mend it\\r\n"
        );
        for (found, expected) in [
            (Severity::Info, ("info", Tone::Strong)),
            (Severity::Warning, ("warning", Tone::Odd)),
            (Severity::Error, ("error", Tone::Bad)),
        ] {
            assert_eq!(severity(found), expected);
        }
    }
}
