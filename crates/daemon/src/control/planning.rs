//! What a change would do, before anything is done.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use api::access::Role;
use api::plan::{Inspection, Origin, Plan, Step};
use api::problem::{Mistake, Problem, ProblemKind};
use config::{ConfigError, Differences, Model, NewSecrets, SpokenPaths};

use crate::StartError;
use crate::access::{ModelPolicy, judge};
use crate::attempts::Patience;
use crate::daemon::{Daemon, InForce};
use crate::effect::PlannedStep;
use crate::look::{self, Kept, Look, Looked};
use crate::losses::Users;
use crate::running::{Running, RunningUnit};
use crate::secret::Secrets;
use crate::steps::{self, Match};
use crate::{file, foresight, hyperscsi, quotas, secrets, views};

/// The warning of every plan that looks at no file, whatever the document says.
const NOT_INSPECTED: &str = "no file was read, because the role is below admin: secret files, stores and addresses are \
    checked when an admin plans or applies this";

/// A document that was read and compared with what runs.
pub(super) struct Planned {
    pub(super) model: Model,
    /// Those of the model, with a look at files.
    pub(super) secrets: Secrets,
    pub(super) units: Match,
    /// What the look has, if there was one.
    pub(super) kept: Kept,
    pub(super) plan: Plan,
    /// The role that applying it needs.
    pub(super) needs: Role,
    /// What applying it is answered with, if it cannot be.
    pub(super) refusal: Option<Problem>,
}

/// A document as it is compared with what runs.
struct Wanted<'a> {
    old: &'a Running,
    model: Model,
    secrets: Secrets,
    /// What is wrong with files of secrets.
    wrong: Vec<StartError>,
    inspection: Inspection,
}

impl Daemon {
    /// Reads a document and finds out what it would do. Steps that cannot be carried out are refused.
    ///
    /// # Errors
    ///
    /// The text breaks rules of the configuration, or the cores do not answer.
    pub(super) fn planned(
        &self,
        now: &InForce,
        text: &str,
        (origin, inspection): (&Origin, Inspection),
        patience: Patience<'_>,
    ) -> Result<Planned, Problem> {
        let (file, old) = (self.file()?, &now.running);
        let wanted = self.wanted(now, text, (origin, inspection))?;
        let differences = wanted.differences(origin);
        let Wanted {
            model,
            secrets,
            wrong,
            ..
        } = wanted;
        let units = Match::of(&old.model, &model, &differences);
        let sizes_of = |at: usize| old.units[at].opened.sizes();
        let mut steps = steps::steps(&old.model, &model, &differences, sizes_of);
        let looks = inspection == Inspection::Files;
        let mode = looks.then(|| self.mode_of(file)).flatten();
        let mut warnings = model.new_warnings(&old.model, mode.map(|mode| (file, mode)));
        warnings.extend((!looks).then(|| NOT_INSPECTED.to_owned()));
        self.refuse(&mut steps, old, (&model, &units), inspection);
        let looked = match inspection {
            Inspection::Files => {
                let look = Look {
                    looked: Looked::default(),
                    old,
                    model: &model,
                    units: &units,
                    steps: &mut steps,
                    means: &self.means(patience, &model),
                    file,
                };
                look.run(wrong)
            }
            Inspection::DocumentOnly => Looked::nothing(&steps),
        };
        let policy = old.policy_of(&model, &units.from, &secrets);
        self.name_users(&mut steps, old, (&model, &policy))?;
        let speech = Speech::of(origin, text, file);
        let mistakes = speech.mistakes(&looked.mistakes);
        let refusal = look::refusal(&steps, &looked.mistakes, &mistakes);
        let refusal = refusal.map(|problem| speech.problem(problem));
        speech.lines(&mut warnings);
        let mut steps: Vec<Step> = steps.into_iter().map(Step::from).collect();
        speech.lines(steps.iter_mut().filter_map(|step| step.reason.as_mut()));
        foresight::name_sizes_to_come(&mut steps, old, (&model, &units), &looked.sizes);
        let plan = Plan {
            revision: now.document.revision,
            is_applicable: refusal.is_none(),
            changes_text: changes_text(text, &now.document.text, (&steps, inspection)),
            steps,
            warnings,
            mistakes,
            outcome: refusal.as_ref().map(|problem| problem.kind),
            not_probed: looked.not_probed,
        };
        Ok(Planned {
            model,
            secrets,
            units,
            kept: looked.kept,
            plan,
            needs: steps::needs(&differences),
            refusal,
        })
    }

    /// Refuses steps for what is known of this process, its stores and media, and adds those for files that hold
    /// something else now.
    fn refuse(
        &self,
        steps: &mut Vec<PlannedStep>,
        old: &Running,
        (model, units): (&Model, &Match),
        inspection: Inspection,
    ) {
        if inspection == Inspection::Files {
            let administration = self.administration.get();
            let (reach, inherited) = (&self.reach, &self.inherited);
            foresight::inspect(
                steps,
                old,
                model,
                reach,
                inherited,
                administration,
                self.cores,
            );
        }
        let medium = |unit: &RunningUnit| self.plane.medium(unit.index);
        foresight::refuse_by_media(steps, old, model, units, medium);
        foresight::refuse_by_stores(steps, old, model, units);
        quotas::refuse(steps, old, model, units);
    }

    /// The mode of the configuration file; `None` where its file system does not answer.
    fn mode_of(&self, file: &Path) -> Option<u32> {
        let at = file.to_owned();
        let ask = move || fs::metadata(at).ok().map(|found| found.mode() & 0o7777);
        let answer = self.attempts.begin_look().ask_in_turn(file, ask);
        answer.ok().flatten()
    }

    /// Puts those who lose something beside the steps that are the reason.
    fn name_users(
        &self,
        steps: &mut [PlannedStep],
        old: &Running,
        (model, policy): (&Model, &ModelPolicy),
    ) -> Result<(), Problem> {
        let sessions = self.sessions_now()?;
        let mut verdict = judge(policy, &sessions);
        verdict
            .ended
            .extend(hyperscsi::ended(old, model, &sessions));
        for grant in &mut verdict.granted {
            let session = sessions.iter().find(|one| one.id == grant.session);
            let kept = |session| hyperscsi::kept(old, (model, policy.units()), session);
            grant.luns = session
                .and_then(kept)
                .unwrap_or_else(|| std::mem::take(&mut grant.luns));
        }
        views::name_ended(steps, old, verdict.ended.clone());
        let users = Users {
            old,
            sessions: &sessions,
            rates: &self.readings.rates(&self.plane.counts()),
        };
        users.name(steps, &verdict);
        Ok(())
    }

    fn wanted<'a>(
        &self,
        now: &'a InForce,
        text: &str,
        (origin, inspection): (&Origin, Inspection),
    ) -> Result<Wanted<'a>, Problem> {
        let path = self.file()?;
        if matches!(origin, Origin::Written) {
            refuse_nothing(text, &now.running.model)?;
        }
        file::check_length(text, &now.document.text)?;
        let mut model = Model::read(text, path)
            .map_err(|errors| Speech::of(origin, text, path).problem(invalid(origin, &errors)))?;
        self.flags.work_into(&mut model);
        let old = &now.running;
        let (secrets, wrong) = self.secrets_of(old, &model, inspection)?;
        Ok(Wanted {
            old,
            model,
            secrets,
            wrong,
            inspection,
        })
    }

    /// The secrets of a model: as they are on disk, with what is wrong with them, or those that run already.
    fn secrets_of(
        &self,
        old: &Running,
        model: &Model,
        inspection: Inspection,
    ) -> Result<(Secrets, Vec<StartError>), Problem> {
        match inspection {
            Inspection::Files => {
                self.reach.check_secrets(model)?;
                Ok(Secrets::read_all(model, self.uid))
            }
            Inspection::DocumentOnly => {
                Ok((old.secrets.carried_over(&old.model, model), Vec::new()))
            }
        }
    }
}

/// Refuses a text without a word that would take away all that is served: a command that has failed writes such a text
/// to its pipe, and an editor to a full disk.
fn refuse_nothing(text: &str, runs: &Model) -> Result<(), Problem> {
    let (targets, luns) = (runs.targets().len(), runs.units().len());
    let others = runs.users().len() + runs.groups().len();
    if !text.trim().is_empty() || targets + luns + others == 0 {
        return Ok(());
    }
    let detail = format!(
        "the configuration is empty, and targets ({targets}) and luns ({luns}) are served; if all of it is to go, \
         write a comment into it, such as `# nothing`"
    );
    Err(Problem::new(ProblemKind::InvalidConfig, detail))
}

/// Whether a text differs from the one in force, by what those who ask may see of both.
fn changes_text(text: &str, known: &str, (steps, inspection): (&[Step], Inspection)) -> bool {
    let shown = |text| config::without_secrets(text);
    match inspection {
        Inspection::Files => text != known,
        Inspection::DocumentOnly => !steps.is_empty() || shown(text) != shown(known),
    }
}

impl Wanted<'_> {
    fn differences(&self, origin: &Origin) -> Differences {
        let Self {
            old,
            model,
            secrets,
            wrong: _,
            inspection,
        } = self;
        let secrets_differ = |user: &str| match inspection {
            Inspection::Files => {
                secrets::differ((&old.model, &old.secrets), (model, secrets), user)
            }
            Inspection::DocumentOnly => NewSecrets::default(),
        };
        let renames = match origin {
            Origin::Written | Origin::Past => None,
            Origin::Edited { renames, .. } => Some(renames),
        };
        let mut differences = config::diff_with(&old.model, model, renames, secrets_differ);
        if *inspection == Inspection::Files {
            differences.add_new_passwords(&old.model, model, |group| {
                let old = (&*old.model, &*old.secrets);
                secrets::password_differs(old, (model, secrets), group)
            });
        }
        differences
    }
}

/// The problem of a text that breaks rules. An edit that names what does not exist is answered as any other
/// question for it; in a file that is a mistake of the file.
fn invalid(origin: &Origin, errors: &[ConfigError]) -> Problem {
    let is_edit = matches!(origin, Origin::Edited { .. });
    let is_missing =
        |error: &ConfigError| matches!(error.broken(), Some(config::Rule::Unknown { .. }));
    let kind = match is_edit && !errors.is_empty() && errors.iter().all(is_missing) {
        true => ProblemKind::NotFound,
        false => ProblemKind::InvalidConfig,
    };
    let mistakes = errors.iter().map(|error| Mistake {
        place: Some(error.place.to_string()),
        detail: error.rule.to_string(),
    });
    Problem::of_mistakes(kind, mistakes.collect())
}

/// How mistakes are worded: with lines for the author of the text, with names and verbs for the author of an edit, who
/// has no line of the text before them.
struct Speech<'a> {
    paths: SpokenPaths<'a>,
    file: &'a Path,
    is_of_edit: bool,
}

impl<'a> Speech<'a> {
    fn of(origin: &Origin, text: &'a str, file: &'a Path) -> Self {
        Self {
            paths: SpokenPaths::of(text),
            file,
            is_of_edit: matches!(origin, Origin::Edited { .. }),
        }
    }

    fn mistakes(&self, errors: &[StartError]) -> Vec<Mistake> {
        let texts = errors.iter().map(|error| crate::error::chain(error));
        let mistakes = texts.map(|text| look::mistake(&text, self.file));
        mistakes.map(|mistake| self.mistake(mistake)).collect()
    }

    fn mistake(&self, mistake: Mistake) -> Mistake {
        if !self.is_of_edit {
            return mistake;
        }
        let place = mistake.place.and_then(|place| self.place(place));
        Mistake {
            place,
            detail: self.words(&mistake.detail),
        }
    }

    fn problem(&self, problem: Problem) -> Problem {
        let said = |mistake: Mistake| self.mistake(mistake);
        let first = said(Mistake {
            place: problem.place,
            detail: problem.detail,
        });
        Problem {
            place: first.place,
            detail: first.detail,
            mistakes: problem.mistakes.into_iter().map(said).collect(),
            ..problem
        }
    }

    /// Whole messages, each with its place before it.
    fn lines<'t>(&self, lines: impl IntoIterator<Item = &'t mut String>) {
        for line in lines.into_iter().filter(|_| self.is_of_edit) {
            *line = self.mistake(look::mistake(line, self.file)).to_string();
        }
    }

    /// A place without the line, by the name of what has the key. One that is said so already stays.
    fn place(&self, place: String) -> Option<String> {
        let file = format!("{}:", self.file.display());
        let Some(line) = place.strip_prefix(&file) else {
            return Some(place);
        };
        let (_, key) = line.split_once(": ")?;
        Some(self.paths.spoken(key))
    }

    /// The words of a message: lines of the text have no name there, and what is to be added has a verb.
    fn words(&self, detail: &str) -> String {
        let file = format!("{}:", self.file.display());
        let mut said = String::new();
        let mut rest = detail;
        while let Some((before, behind)) = rest.split_once(&file) {
            let digits = behind.len()
                - behind
                    .trim_start_matches(|c: char| c.is_ascii_digit())
                    .len();
            let behind = behind.get(digits..).unwrap_or_default();
            let behind = behind.strip_prefix(": ").unwrap_or(behind);
            let end = behind.find([';', ',', ')', ' ']).unwrap_or(behind.len());
            let (key, behind) = behind.split_at(end);
            said += before;
            said += &self.paths.spoken(key);
            rest = behind;
        }
        said += rest;
        for noun in ["lun", "store", "group", "user", "target", "nbd", "quota"] {
            said = said.replace(
                &format!("add a [[{noun}]] of that name"),
                &format!("add it: tarn {noun} add"),
            );
        }
        said
    }
}

/// What stands in the way of a plan beside what it does: it cannot be applied either.
pub(super) fn stand_in_the_way(plan: &mut Plan, problem: Problem) {
    plan.is_applicable = false;
    plan.outcome = Some(problem.kind);
    let Problem { place, detail, .. } = problem;
    plan.mistakes.insert(0, Mistake { place, detail });
}

impl Looked {
    /// Of a plan that looks at nothing.
    fn nothing(steps: &[PlannedStep]) -> Self {
        Self {
            not_probed: steps.iter().filter_map(PlannedStep::looks_at).collect(),
            ..Self::default()
        }
    }
}
