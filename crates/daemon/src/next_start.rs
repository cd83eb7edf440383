//! What the next start will meet with keys that take effect with it, as far as it can be tried before.
//!
//! A change of such a key is accepted and waits; nobody would learn before the restart that Tarn does not start any
//! more. So the same questions are asked when the change is planned: memory, the state directory, the socket of the
//! administration, the user and the roots of `[confine]`. What only the next start can find out is named: what the
//! rights of that process let it reach.

use std::path::Path;

use admin::ListenError;
use api::plan::Kind;
use config::Model;
use rustix::fs::{Access, access};

use super::effect::PlannedStep;
use crate::confinement::{Reach, account};
use crate::{StartError, headroom};

/// A mistake, and the keys that it is of.
pub(super) type OfKeys = (StartError, fn(&PlannedStep) -> bool);

fn is_of_memory(step: &PlannedStep) -> bool {
    matches!(
        (step.kind, step.name.as_str()),
        (Kind::Server, "cores") | (Kind::Limits, "pool_per_core_bytes")
    )
}

fn is_state(step: &PlannedStep) -> bool {
    step.kind == Kind::Server && step.name == "state"
}

fn is_socket(step: &PlannedStep) -> bool {
    step.kind == Kind::Admin && step.name == "socket"
}

fn is_confine(step: &PlannedStep) -> bool {
    step.kind == Kind::Confine
}

/// What is wrong. `file` is the configuration file.
pub(super) fn mistakes(steps: &[PlannedStep], model: &Model, file: &Path) -> Vec<OfKeys> {
    let has = |is_its: fn(&PlannedStep) -> bool| steps.iter().any(is_its);
    let mut wrong: Vec<OfKeys> = Vec::new();
    if has(is_of_memory)
        && let Ok(cores) = headroom::cores(model)
        && let Err(error) = headroom::size(model, cores, headroom::at_start())
    {
        wrong.push((error, is_of_memory));
    }
    if has(is_state)
        && let Some(directory) = &model.server().state
        && let Err(source) = probe_directory(directory)
    {
        let path = directory.clone();
        wrong.push((StartError::StateUnusable { path, source }, is_state));
    }
    if has(is_socket)
        && let Some(path) = &model.admin().socket
        // Who serves it now may be this very process, or be gone then.
        && let Err(error @ (ListenError::NoSocket { .. } | ListenError::Unix { .. })) =
            admin::probe_unix(path, |lock| store::is_locked(lock, true))
    {
        wrong.push((StartError::AdminSocket(error), is_socket));
    }
    if has(is_confine) {
        let account = account(model).map(drop);
        let reach = || Reach::of(model, Some(file), None).map(drop);
        if let Err(error) = account.and_then(|()| reach()) {
            wrong.push((error, is_confine));
        }
    }
    wrong
}

/// What is not tried.
pub(super) fn untried(steps: &[PlannedStep]) -> Option<String> {
    steps.iter().any(is_confine).then(|| {
        "whether the next start reaches its files and devices with the new [confine]".to_owned()
    })
}

/// Whether a directory can be used, or made.
fn probe_directory(directory: &Path) -> std::io::Result<()> {
    let mut above = directory.ancestors();
    let there = above.find(|path| path.symlink_metadata().is_ok());
    let there = there.filter(|path| !path.as_os_str().is_empty());
    let there = there.unwrap_or_else(|| Path::new("."));
    if !there.is_dir() {
        return Err(std::io::ErrorKind::NotADirectory.into());
    }
    Ok(access(there, Access::WRITE_OK | Access::EXEC_OK)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use api::plan::Action;
    use durable::scratch::Scratch;

    use super::*;

    #[test]
    fn what_would_keep_the_next_start_from_succeeding_is_found_by_its_key() {
        let scratch = Scratch::new();
        let at = |name: &str| scratch.path().join(name).display().to_string();
        fs::write(at("file"), "").unwrap();
        let file = scratch.path().join("tarn.toml");
        let found = |kind: Kind, name: &str, text: String| {
            let model = Model::from_toml(&text, &file).unwrap();
            let (name, detail) = (name.to_owned(), String::new());
            let step = PlannedStep::new(Action::Change, kind, name, detail);
            let mistakes = mistakes(std::slice::from_ref(&step), &model, &file);
            assert!(mistakes.iter().all(|(_, is_its)| is_its(&step)));
            mistakes.len()
        };
        for (state, count) in [("new/state", 0), ("file/state", 1), ("file", 1)] {
            let text = format!("[server]\nstate = {:?}\n", at(state));
            assert_eq!(found(Kind::Server, "state", text), count, "{state}");
        }
        for (socket, count) in [("new/a.sock", 0), ("file", 1)] {
            let text = format!("[admin]\nsocket = {:?}\n", at(socket));
            assert_eq!(found(Kind::Admin, "socket", text), count, "{socket}");
        }
        for (root, count) in [("", 0), ("none", 1)] {
            let text = format!("[confine]\nroots = [{:?}]\n", at(root));
            assert_eq!(found(Kind::Confine, "roots", text), count, "{root}");
        }
        let pool = "[server]\ncores = 64\n[limits]\npool_per_core_bytes = \"64G\"\n".to_owned();
        assert_eq!(found(Kind::Limits, "pool_per_core_bytes", pool), 1);
    }
}
