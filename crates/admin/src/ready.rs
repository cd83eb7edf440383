//! Whether the daemon answers. Everybody may ask this, so the answer is kept for a moment and one
//! question of the daemon serves all who ask meanwhile.

use std::sync::Arc;
use std::time::Instant;

use api::problem::{Problem, ProblemKind};
use tokio::sync::Mutex;

use crate::call::Calls;
use crate::limits;

/// What the daemon said last.
#[derive(Debug)]
struct Said {
    at: Instant,
    outcome: Result<(), Problem>,
}

/// Whether the daemon answers.
#[derive(Debug, Default)]
pub(crate) struct Ready(Arc<Mutex<Option<Said>>>);

impl Ready {
    /// Asks the daemon, unless the last answer is still good at `now`.
    ///
    /// # Errors
    ///
    /// It does not answer.
    pub(crate) async fn ask(&self, calls: &Arc<Calls>, now: Instant) -> Result<(), Problem> {
        let mut last = Arc::clone(&self.0).lock_owned().await;
        if let Some(said) = &*last
            && now.saturating_duration_since(said.at) < limits::READY_AGE_MAX
        {
            return said.outcome.clone();
        }
        let calls = Arc::clone(calls);
        // In a task of its own: the daemon is not asked again because the caller has disconnected.
        let asked = tokio::spawn(async move {
            let answer = calls.read(|control| control.sessions().map(drop));
            let outcome = answer.await.flatten();
            *last = Some(Said {
                at: now.max(Instant::now()),
                outcome: outcome.clone(),
            });
            outcome
        });
        asked.await.unwrap_or_else(|error| {
            tracing::error!(%error, "the question whether the daemon answers failed");
            Err(Problem::new(
                ProblemKind::Unavailable,
                "it is not known whether the daemon answers",
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::{Double, app};
    use durable::scratch::Scratch;

    #[tokio::test]
    async fn many_who_ask_are_one_question_to_the_daemon() {
        let scratch = Scratch::new();
        let daemon = Arc::new(Double::default());
        let app = app(&daemon, &scratch);
        let now = Instant::now();
        let asks: Vec<_> = (0..100)
            .map(|_| {
                let app = Arc::clone(&app);
                tokio::spawn(async move { app.ready.ask(&app.calls, now).await })
            })
            .collect();
        for ask in asks {
            ask.await.unwrap().unwrap();
        }
        assert_eq!(daemon.asked_sessions(), 1);
        let later = now + Duration::from_secs(3600);
        app.ready.ask(&app.calls, later).await.unwrap();
        assert_eq!(daemon.asked_sessions(), 2);
    }

    #[tokio::test]
    async fn a_daemon_that_does_not_answer_is_not_ready() {
        let scratch = Scratch::new();
        let daemon = Arc::new(Double::that_answers_nothing());
        let app = app(&daemon, &scratch);
        let problem = app.ready.ask(&app.calls, Instant::now()).await.unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Unavailable);
    }
}
