//! Where verbs ask: the client, the output, and the ways most verbs share.

use api::edit::{Edit, Edits};
use api::plan::Applied;
use client::{Answer, Client, Endpoint, Limits, Path, path};
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

    /// Asks the person whether it shall be, if there is one and it was not said before.
    pub(super) fn confirm(&self, is_said: bool, question: &str) -> Result<(), Failure> {
        if is_said || self.output.is_json || !terminal::has_person() {
            return Ok(());
        }
        if terminal::ask_yes(question)? {
            Ok(())
        } else {
            Err(Failure::NotConfirmed)
        }
    }

    /// Makes edits of the configuration, all of them or none, and prints what that did.
    pub(super) fn edit(&self, edits: Vec<Edit>, comment: Option<String>) -> Outcome {
        self.post(&path(&["config", "edits"]), &Edits { edits, comment })
    }

    /// Has something done, and prints what that did.
    pub(super) fn post(&self, path: &Path, body: &impl Serialize) -> Outcome {
        let answer = terminal::busy("applying", || self.client.post(path, body, None))?;
        self.applied(&answer)
    }

    /// Makes a thing, or makes it so, and prints what that did.
    pub(super) fn put(&self, path: &Path, body: &impl Serialize) -> Outcome {
        let answer = terminal::busy("applying", || self.client.put(path, body, None))?;
        self.applied(&answer)
    }

    /// Removes a thing that is configured, and prints what that did.
    pub(super) fn remove(&self, path: &Path, is_said: bool, question: &str) -> Outcome {
        self.confirm(is_said, question)?;
        self.applied(&self.client.delete(path, None)?)
    }
}
