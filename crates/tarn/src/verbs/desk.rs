//! Where verbs ask: the client, the paper, and the ways most verbs share.

use api::plan::{Applied, Document};
use api::problem::ProblemKind;
use client::{Answer, Client, ClientError, Endpoint, Limits, Path, path};
use config::Draft;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::changes;
use super::exit::Exit;
use super::failure::Failure;
use super::paper::Paper;
use super::table::{self, Column};
use super::{Outcome, terminal};

/// How often a change is made anew because others changed the configuration meanwhile.
const TRIES_MAX: usize = 5;

/// Where verbs ask.
pub(super) struct Desk {
    pub(super) client: Client,
    pub(super) paper: Paper,
}

impl Desk {
    pub(super) fn open(endpoint: Endpoint, paper: Paper) -> Result<Self, Failure> {
        Ok(Self {
            client: Client::new(endpoint, Limits::default())?,
            paper,
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
        self.paper
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
        self.paper.print(&answer.json, || text(&answer.value));
        Ok(Exit::Done)
    }

    /// Prints what a change has done.
    pub(super) fn applied(&self, answer: &Answer<Applied>) -> Outcome {
        let paper = self.paper;
        let applied = &answer.value;
        changes::warn(paper, &applied.warnings);
        changes::warn(paper, applied.unsettled.as_slice());
        paper.print(&answer.json, || changes::done(paper, applied));
        Ok(Exit::Done)
    }

    /// Asks the person whether it shall be, if there is one and it was not said before.
    pub(super) fn confirm(&self, is_said: bool, question: &str) -> Result<(), Failure> {
        if is_said || self.paper.is_json || !terminal::has_person() {
            return Ok(());
        }
        if terminal::ask_yes(question)? {
            Ok(())
        } else {
            Err(Failure::NotConfirmed)
        }
    }

    /// Makes a change that depends on the configuration that runs: `make` gets the revision and
    /// the text, and is called again when somebody else changed it meanwhile.
    pub(super) fn change(
        &self,
        make: impl Fn(u64, Draft) -> Result<Answer<Applied>, Failure>,
    ) -> Outcome {
        for _ in 0..TRIES_MAX {
            let document = self.get::<Document>(&path(&["config"]))?.value;
            let draft = Draft::parse(&document.text).map_err(Failure::Document)?;
            match make(document.revision, draft) {
                Err(Failure::Client(ClientError::Problem(problem)))
                    if problem.kind == ProblemKind::RevisionMismatch => {}
                outcome => return self.applied(&outcome?),
            }
        }
        Err(Failure::Overtaken { tries: TRIES_MAX })
    }

    /// Applies a draft, if the revision it was made from still runs.
    pub(super) fn apply(
        &self,
        revision: u64,
        draft: &Draft,
        comment: String,
    ) -> Result<Answer<Applied>, Failure> {
        let change = api::plan::Change {
            text: draft.to_string(),
            comment: Some(comment),
        };
        Ok(self
            .client
            .put(&path(&["config"]), &change, Some(revision))?)
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
