//! `tarn plan`, `tarn apply`, `tarn show`

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use api::plan::{Applied, Change, Document, Effect, Plan};
use api::problem::Mistake;
use api::view::Status;
use clap::Args;
use client::{Answer, ClientError, path};

use super::api_session::{ApiSession, without_person};
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
  tarn plan new.toml --exit-code     # 0: no difference, 10: some

It ends with the exit code with which tarn apply would end: 0 if that would succeed, 2 if the file
is wrong, 7 if something in it cannot be done while Tarn runs.";

/// `tarn plan`
#[derive(Args, Debug)]
#[command(after_help = PLAN_HELP)]
pub struct PlanArgs {
    /// The configuration file; - for the standard input.
    file: PathBuf,
    /// End with exit code 10 when there is a difference that could be applied. Use it in scripts that
    /// watch for drift.
    #[arg(long)]
    exit_code: bool,
}

const APPLY_HELP: &str = "\
On a terminal, the plan is shown and has to be confirmed; elsewhere, sessions lose something only
with --yes.

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
        let source = Source::new(api, &self.file);
        let answer = plan(api, read(&self.file)?).map_err(|error| source.failure(error))?;
        let answer = source.plan(answer);
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
        let source = Source::new(api, &self.file);
        let in_file = |error| source.failure(error);
        let only_at = self.agree(api, &change).map_err(in_file)?;
        let answer = terminal::busy("applying", || {
            let at = path(&["config"]);
            api.client.put::<Applied>(&at, &change, only_at)
        });
        let answer = answer.map_err(|error| in_file(error.into()))?;
        api.applied(&source.applied(answer))
    }
}

impl Apply {
    /// Shows a person the plan and asks; then it is to be carried out as it was seen or not at all.
    /// Gives the revision it must start from.
    fn agree(&self, api: &ApiSession, change: &Change) -> Result<Option<u64>, Failure> {
        if self.yes {
            return Ok(self.revision);
        }
        // Without a person applying it says what is wrong.
        let answer = match plan(api, change.text.clone()) {
            Err(_) if !api.may_ask() => return Ok(self.revision),
            answer => answer?,
        };
        let plan = Source::new(api, &self.file).plan(answer).value;
        if !api.may_ask() {
            without_person(&plan)?;
            return Ok(self.revision);
        }
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

/// A text that the daemon looks at as if it stood in its own configuration file, which its messages name. Here they
/// name the file that was read.
pub(super) struct Source<'a> {
    api: &'a ApiSession,
    file: &'a Path,
}

impl<'a> Source<'a> {
    /// Of a text that was read from this file.
    pub(super) const fn new(api: &'a ApiSession, file: &'a Path) -> Self {
        Self { api, file }
    }

    /// The same failure.
    pub(super) fn failure(&self, mut failure: Failure) -> Failure {
        if let Failure::Client(ClientError::Problem(problem)) = &mut failure {
            let first = std::iter::once(&mut problem.detail).chain(&mut problem.place);
            self.rename(first.chain(problem.mistakes.iter_mut().flat_map(texts)));
        }
        failure
    }

    /// The same plan.
    pub(super) fn plan(&self, mut answer: Answer<Plan>) -> Answer<Plan> {
        let Plan {
            steps,
            warnings,
            mistakes,
            not_probed,
            ..
        } = &mut answer.value;
        let reasons = steps.iter_mut().filter_map(|step| step.reason.as_mut());
        let mistakes = mistakes.iter_mut().flat_map(texts);
        let of_plan = warnings.iter_mut().chain(not_probed).chain(mistakes);
        self.rename(of_plan.chain(reasons));
        answer
    }

    /// The same change.
    fn applied(&self, mut answer: Answer<Applied>) -> Answer<Applied> {
        self.rename(answer.value.warnings.iter_mut());
        answer
    }

    fn rename<'t>(&self, texts: impl Iterator<Item = &'t mut String>) {
        let mut texts = texts.peekable();
        if texts.peek().is_none() {
            return;
        }
        // A daemon that does not say has no file, or is gone: then its words stay as they are.
        let status = self.api.get::<Status>(&path(&["status"]));
        let Some(theirs) = status.ok().and_then(|status| status.value.config_file) else {
            return;
        };
        let ours = if self.file.as_os_str() == STANDARD_INPUT {
            "standard input".to_owned()
        } else {
            self.file.display().to_string()
        };
        for text in texts {
            *text = renamed(text, &theirs, &ours);
        }
    }
}

/// What names lines of the file.
fn texts(mistake: &mut Mistake) -> impl Iterator<Item = &mut String> {
    let Mistake { place, detail } = mistake;
    std::iter::once(detail).chain(place)
}

/// A text that names lines of our file instead of theirs.
fn renamed(text: &str, theirs: &str, ours: &str) -> String {
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(theirs) {
        let (before, behind) = (&rest[..at], &rest[at + theirs.len()..]);
        let is_whole = !before.ends_with(|c: char| c.is_alphanumeric() || "/._-".contains(c));
        let mut line = behind.strip_prefix(':').unwrap_or_default().chars();
        let is_line = line.next().is_some_and(|digit| digit.is_ascii_digit());
        done += before;
        done += if is_whole && is_line { ours } else { theirs };
        rest = behind;
    }
    done + rest
}

/// Prints a plan and its warnings.
pub(super) fn show_plan(api: &ApiSession, answer: &Answer<Plan>) {
    changes::warn(api.output, &answer.value.warnings);
    let text = || changes::plan(api.output, &answer.value);
    api.output.print(&answer.json, text);
}

/// The exit code of a plan: that of applying it where that would fail, and that of a difference with --exit-code.
pub(super) fn exit(is_asked: bool, plan: &Plan) -> Exit {
    match (plan.outcome, is_asked && !plan.steps.is_empty()) {
        (Some(outcome), _) => Exit::of_problem(outcome),
        (None, true) => Exit::Differs,
        (None, false) => Exit::Done,
    }
}

/// Ends here when a step of the plan, which was shown, would be refused.
pub(super) fn check_applicable(plan: &Plan) -> Result<(), Failure> {
    let Some(outcome) = plan.outcome else {
        return Ok(());
    };
    let is_refused = |step: &&api::plan::Step| step.effect == Effect::Refused;
    Err(Failure::Refused {
        outcome,
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
    fn every_line_is_named_in_the_file_that_was_read() {
        for (text, expected) in [
            ("DIR/tarn.toml:7", "new.toml:7"),
            (
                "lun \"a\" is already used at DIR/tarn.toml:2: lun[0].id; give each its own",
                "lun \"a\" is already used at new.toml:2: lun[0].id; give each its own",
            ),
            (
                "DIR/tarn.toml:3 and DIR/tarn.toml:5",
                "new.toml:3 and new.toml:5",
            ),
            (
                "cannot write DIR/tarn.toml: full",
                "cannot write DIR/tarn.toml: full",
            ),
            ("/x/DIR/tarn.toml:5", "/x/DIR/tarn.toml:5"),
            ("--queue-depth", "--queue-depth"),
        ] {
            assert_eq!(renamed(text, "DIR/tarn.toml", "new.toml"), expected);
        }
        assert_eq!(renamed("mytarn.toml:1", "tarn.toml", "n"), "mytarn.toml:1");
    }
}
