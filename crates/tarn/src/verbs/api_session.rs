//! Where verbs ask: the client, the output, and the ways most verbs share.

use api::edit::{Edit, Edits};
use api::plan::{Applied, Plan};
use clap::Args;
use client::{Answer, Client, ClientError, Endpoint, Limits, Path, path};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::changes;
use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;
use super::table::{self, Column};
use super::{Outcome, terminal};

/// A verb's connection to the API, and its output.
pub(super) struct ApiSession {
    pub(super) client: Client,
    pub(super) output: Output,
}

impl ApiSession {
    pub(super) fn open(endpoint: Endpoint, output: Output) -> Result<Self, Failure> {
        Ok(Self {
            client: Client::new(endpoint, Limits::default())?,
            output,
        })
    }

    /// The daemon is on this machine and sees the same files.
    pub(super) fn is_local(&self) -> bool {
        matches!(self.client.endpoint(), Endpoint::Socket(_))
    }

    pub(super) fn get<T: DeserializeOwned>(&self, path: &Path) -> Result<Answer<T>, Failure> {
        Ok(self.client.get(path)?)
    }

    /// Asks, and prints a table of what there is.
    pub(super) fn list<T: DeserializeOwned>(&self, path: &Path, columns: &[Column<T>]) -> Outcome {
        let answer = self.get::<Vec<T>>(path)?;
        self.output
            .print(&answer.json, || table::table(columns, &answer.value));
        Ok(Exit::Done)
    }

    /// Asks for one thing, and prints it.
    pub(super) fn show<T: DeserializeOwned>(
        &self,
        path: &Path,
        text: impl FnOnce(&T) -> String,
    ) -> Outcome {
        let answer = self.get::<T>(path)?;
        self.output.print(&answer.json, || text(&answer.value));
        Ok(Exit::Done)
    }

    /// Prints what a change has done.
    pub(super) fn applied(&self, answer: &Answer<Applied>) -> Outcome {
        let output = self.output;
        let applied = &answer.value;
        changes::warn(output, &applied.warnings);
        changes::warn(output, applied.unsettled.as_slice());
        output.print(&answer.json, || changes::done(output, applied));
        Ok(Exit::Done)
    }

    /// Says what a person should know, beside what was done.
    pub(super) fn note(&self, text: &str) {
        changes::warn(self.output, &[text.to_owned()]);
    }

    /// Somebody can answer a question.
    pub(super) fn may_ask(&self) -> bool {
        !self.output.is_json && terminal::has_person()
    }

    /// Asks the person whether it shall be, if there is one and it was not said before.
    pub(super) fn confirm(&self, is_said: bool, question: &str) -> Result<(), Failure> {
        if is_said || !self.may_ask() {
            return Ok(());
        }
        if terminal::ask_yes(question)? {
            Ok(())
        } else {
            Err(Failure::NotConfirmed)
        }
    }

    /// As [`Self::confirm`], for what discards data: without a terminal it needs `--yes`.
    pub(super) fn confirm_loss(&self, is_said: bool, question: &str) -> Result<(), Failure> {
        match is_said || self.may_ask() {
            true => self.confirm(is_said, question),
            false => Err(Failure::NeedsYes),
        }
    }

    /// Makes edits of the configuration, all of them or none, and prints what that did. Where that takes something
    /// away, a person is asked first.
    pub(super) fn edit(
        &self,
        consent: Consent,
        edits: Vec<Edit>,
        comment: Option<String>,
    ) -> Outcome {
        self.post(
            consent,
            &path(&["config", "edits"]),
            &Edits { edits, comment },
        )
    }

    /// Has something done, and prints what that did.
    pub(super) fn post(&self, consent: Consent, path: &Path, body: &impl Serialize) -> Outcome {
        self.agree(consent, None, || {
            self.client.post(&planned(path), body, None)
        })?;
        let answer = terminal::busy("applying", || self.client.post(path, body, None))?;
        self.applied(&answer)
    }

    /// Makes a thing, or makes it so, and prints what that did.
    pub(super) fn put(&self, consent: Consent, path: &Path, body: &impl Serialize) -> Outcome {
        self.agree(consent, None, || {
            self.client.put(&planned(path), body, None)
        })?;
        let answer = terminal::busy("applying", || self.client.put(path, body, None))?;
        self.applied(&answer)
    }

    /// Removes a thing that is configured, and prints what that did.
    pub(super) fn remove(&self, path: &Path, consent: Consent, question: &str) -> Outcome {
        self.agree(consent, Some(question), || {
            self.client.delete(&planned(path), None)
        })?;
        self.applied(&self.client.delete(path, None)?)
    }

    /// Asks the person whether a change shall be made that takes something away, or for which there is a question
    /// anyway. What cannot be made is left to the daemon to refuse.
    fn agree(
        &self,
        consent: Consent,
        question: Option<&str>,
        plan: impl FnOnce() -> Result<Answer<Plan>, ClientError>,
    ) -> Result<(), Failure> {
        if consent.is_given {
            return Ok(());
        }
        let Ok(Answer { value: plan, .. }) = plan() else {
            return Ok(());
        };
        if !plan.is_applicable {
            return Ok(());
        }
        if !self.may_ask() {
            return without_person(&plan);
        }
        let takes = changes::takes_away(&plan.steps);
        if takes {
            self.output.remark(&changes::plan(self.output, &plan));
        }
        match (takes, question) {
            (_, Some(question)) => {
                let fate = changes::fate(&plan.steps);
                self.confirm(false, &format!("{question}{fate}"))
            }
            (true, None) => self.confirm(false, "This takes away what is in use. Do it?"),
            (false, None) => Ok(()),
        }
    }
}

/// Lets nothing be done where nobody can be asked and sessions lose something.
pub(super) fn without_person(plan: &Plan) -> Result<(), Failure> {
    match plan.is_applicable && changes::sessions_lose(&plan.steps) {
        true => Err(Failure::NeedsYes),
        false => Ok(()),
    }
}

/// The same request, to be planned.
fn planned(path: &Path) -> Path {
    path.clone().with("plan", Some("true"))
}

/// Whether a change may be made without a question. The flag of each verb that can take something away.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Consent {
    /// Do not ask for confirmation. Use it in scripts.
    #[arg(long = "yes")]
    is_given: bool,
}

impl Consent {
    /// Of what takes nothing away by its nature.
    pub(super) const GIVEN: Self = Self { is_given: true };
}
