//! `tarn plan`, `tarn apply`, `tarn show`

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use api::plan::{Applied, Change, Document, Effect, Plan};
use clap::Args;
use client::{Answer, ClientError, path};

use super::api_session::ApiSession;
use super::exit::Exit;
use super::failure::Failure;
use super::remote::Ask;
use super::{Outcome, changes, human, terminal};

/// A configuration is a text that people write.
const TEXT_BYTES_MAX: u64 = 16 << 20;
/// The name of a file that means the standard input.
const STANDARD_INPUT: &str = "-";

const PLAN_HELP: &str = "\
Examples:
  tarn plan /etc/tarn/tarn.toml
  tarn plan new.toml --exit-code     # 0: no difference, 10: some, 7: it would be refused";

/// `tarn plan`
#[derive(Args, Debug)]
#[command(after_help = PLAN_HELP)]
pub struct PlanArgs {
    /// The configuration file; - for the standard input.
    file: PathBuf,
    /// End with exit code 10 when there is a difference, 7 when it would be refused. Use it in
    /// scripts that watch for drift.
    #[arg(long)]
    exit_code: bool,
}

const APPLY_HELP: &str = "\
On a terminal, the plan is shown and has to be confirmed.

Examples:
  tarn apply /etc/tarn/tarn.toml
  tarn apply new.toml --revision 42 --comment 'second shelf' --yes";

/// `tarn apply`
#[derive(Args, Debug)]
#[command(after_help = APPLY_HELP)]
pub struct Apply {
    /// The configuration file; - for the standard input.
    file: PathBuf,
    /// Apply only if this is still the running revision. Use it in scripts that have read that
    /// revision.
    #[arg(long, value_name = "N")]
    revision: Option<u64>,
    /// What the change is for. Use it to explain the revision in the history.
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    /// Do not ask for confirmation. Use it in scripts.
    #[arg(long)]
    yes: bool,
}

/// `tarn show`
#[derive(Args, Debug)]
pub struct Show {
    /// Also print every default. Use it to see all values in force.
    #[arg(long, conflicts_with = "revision")]
    effective: bool,
    /// Print this revision instead. Use it to look at earlier ones; tarn history lists them.
    #[arg(long, value_name = "N")]
    revision: Option<u64>,
}

impl Ask for PlanArgs {
    fn ask(&self, api: &ApiSession) -> Outcome {
        let answer = plan(api, read(&self.file)?).map_err(|error| of_file(error, &self.file))?;
        show_plan(api, &answer);
        Ok(exit(self.exit_code, &answer.value))
    }
}

impl Ask for Apply {
    fn ask(&self, api: &ApiSession) -> Outcome {
        let change = Change {
            text: read(&self.file)?,
            comment: self.comment.clone(),
        };
        let in_file = |error| of_file(error, &self.file);
        let only_at = self.agree(api, &change).map_err(in_file)?;
        let answer = terminal::busy("applying", || {
            let at = path(&["config"]);
            api.client.put::<Applied>(&at, &change, only_at)
        });
        let answer = answer.map_err(|error| in_file(error.into()))?;
        api.applied(&answer)
    }
}

impl Apply {
    /// Shows a person the plan and asks; then it is to be carried out as it was seen or not at all.
    /// Gives the revision it must start from.
    fn agree(&self, api: &ApiSession, change: &Change) -> Result<Option<u64>, Failure> {
        if self.yes || api.output.is_json || !terminal::has_person() {
            return Ok(self.revision);
        }
        let plan = plan(api, change.text.clone())?.value;
        if !plan.steps.is_empty() {
            api.output.remark(&changes::plan(api.output, &plan));
            check_applicable(&plan)?;
            api.confirm(false, "Apply it?")?;
        }
        Ok(self.revision.or(Some(plan.revision)))
    }
}

impl Ask for Show {
    fn ask(&self, api: &ApiSession) -> Outcome {
        let number = self.revision.map(|number| number.to_string());
        let at = match &number {
            Some(number) => path(&["config", "history", number]),
            None if self.effective => path(&["config", "effective"]),
            None => path(&["config"]),
        };
        api.show(&at, |document: &Document| document.text.clone())
    }
}

/// Asks what applying a text would do.
pub(super) fn plan(api: &ApiSession, text: String) -> Result<Answer<Plan>, Failure> {
    let change = Change {
        text,
        comment: None,
    };
    Ok(api.client.post(&path(&["plan"]), &change, None)?)
}

/// The same failure, with a mistake placed in the file that was read: the daemon knows its own file
/// alone.
pub(super) fn of_file(mut failure: Failure, file: &Path) -> Failure {
    if let Failure::Client(ClientError::Problem(problem)) = &mut failure {
        let place = problem.place.take();
        problem.place = place.map(|place| placed_in(file, &place));
    }
    failure
}

/// `tarn.toml:7: key` in another file: what stands before the number of the line is a path.
fn placed_in(file: &Path, place: &str) -> String {
    let is_line = |&(at, _): &(usize, &str)| {
        let rest = place[at + 1..].split(':').next().unwrap_or_default();
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
    };
    let at = place.match_indices(':').find(is_line);
    at.map_or_else(
        || place.to_owned(),
        |(at, _)| format!("{}{}", file.display(), &place[at..]),
    )
}

/// Prints a plan and its warnings.
pub(super) fn show_plan(api: &ApiSession, answer: &Answer<Plan>) {
    changes::warn(api.output, &answer.value.warnings);
    let text = || changes::plan(api.output, &answer.value);
    api.output.print(&answer.json, text);
}

/// The exit code of a command that looks for a difference, with --exit-code.
pub(super) fn exit(is_asked: bool, plan: &Plan) -> Exit {
    match (is_asked, plan.is_applicable, plan.steps.is_empty()) {
        (false, _, _) | (true, true, true) => Exit::Done,
        (true, true, false) => Exit::Differs,
        (true, false, _) => Exit::Refused,
    }
}

/// Ends here when a step of the plan, which was shown, would be refused.
pub(super) fn check_applicable(plan: &Plan) -> Result<(), Failure> {
    if plan.is_applicable {
        return Ok(());
    }
    let is_refused = |step: &&api::plan::Step| step.effect == Effect::Refused;
    Err(Failure::Refused {
        refused: plan.steps.iter().filter(is_refused).count(),
        steps: human::count(plan.steps.len() as u64, "step"),
    })
}

/// Reads a configuration that the command line names.
pub(super) fn read(path: &Path) -> Result<String, Failure> {
    let unreadable = |source| Failure::Unreadable {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    let mut take = |from: &mut dyn Read| from.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text);
    let bytes = if path.as_os_str() == STANDARD_INPUT {
        take(&mut io::stdin().lock())
    } else {
        File::open(path).and_then(|mut file| take(&mut file))
    };
    if bytes.map_err(unreadable)? as u64 > TEXT_BYTES_MAX {
        return Err(Failure::TooLong {
            path: path.to_owned(),
            max: TEXT_BYTES_MAX,
        });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_placed_in_the_file_that_was_read() {
        let file = Path::new("new.toml");
        for (place, expected) in [
            ("/etc/tarn/tarn.toml:7", "new.toml:7"),
            ("tarn.toml:7: [[lun]] store", "new.toml:7: [[lun]] store"),
            ("a:b/tarn.toml:12: key", "new.toml:12: key"),
            ("--queue-depth", "--queue-depth"),
        ] {
            assert_eq!(placed_in(file, place), expected);
        }
    }
}
