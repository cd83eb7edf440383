//! Steps of a plan as text, before and after they were done.

use api::plan::{Action, Applied, DataFate, Effect, Kind, Plan, Step, Taken};
use api::problem::Mistake;

use super::human;
use super::output::{Output, Tone};
use daemon::error::plain;

/// Sessions that are named of each step.
const TAKEN_SHOWN: usize = 8;

/// How an action is shown: its sign, and the tone of it.
const fn sign(action: Action) -> (&'static str, Tone) {
    match action {
        Action::Add => ("+", Tone::Good),
        Action::Change => ("~", Tone::Odd),
        Action::Remove => ("-", Tone::Bad),
    }
}

const fn noun(kind: Kind) -> &'static str {
    match kind {
        Kind::Lun => "lun",
        Kind::Target => "target",
        Kind::Portal => "portal",
        Kind::View => "view",
        Kind::Store => "store",
        Kind::Group => "group",
        Kind::User => "user",
        Kind::Nbd => "nbd",
        Kind::HyperScsi => "hyperscsi",
        Kind::Quota => "quota",
        Kind::Notify => "notify",
        Kind::Server => "server",
        Kind::Limits => "limits",
        Kind::Admin => "admin",
        Kind::Confine => "confine",
    }
}

/// What a step costs, and the tone of it.
const fn cost(effect: Effect) -> (&'static str, Tone) {
    match effect {
        Effect::Online => ("online", Tone::Good),
        Effect::TakesAway => ("takes away", Tone::Bad),
        Effect::Drains => ("drains", Tone::Odd),
        Effect::Pending => ("pending", Tone::Odd),
        Effect::Refused => ("refused", Tone::Bad),
    }
}

/// A step: a line of what it does, and a line of what it costs unless that is nothing.
fn step(output: Output, step: &Step) -> String {
    let (sign, tone) = sign(step.action);
    let mut text = format!(
        "{} {} {}",
        output.toned(tone, sign),
        noun(step.kind),
        plain(&step.name)
    );
    if !step.detail.is_empty() {
        text.push_str(&format!("  {}", plain(&step.detail)));
    }
    text.push('\n');
    let mut costs = Vec::new();
    let (cost, tone) = cost(step.effect);
    match (&step.reason, step.effect) {
        (Some(reason), _) => costs.push(format!("{}: {}", output.toned(tone, cost), plain(reason))),
        (None, Effect::Online) => {}
        (None, Effect::TakesAway | Effect::Drains | Effect::Pending | Effect::Refused) => {
            costs.push(output.toned(tone, cost))
        }
    }
    if !step.sessions_ended.is_empty() {
        let sessions: Vec<_> = step.sessions_ended.iter().map(u64::to_string).collect();
        costs.push(format!("ends sessions {}", sessions.join(", ")));
    }
    if !costs.is_empty() {
        text.push_str(&format!("    {}\n", costs.join("; ")));
    }
    text.push_str(&taken(step));
    text
}

/// Who loses what, a line each.
fn taken(step: &Step) -> String {
    let line = |one: &Taken| {
        let place = match (&one.target, one.lun, &one.id) {
            (Some(target), Some(lun), Some(id)) => format!("{target} LUN {lun} ({id})"),
            (Some(target), _, _) => target.clone(),
            (None, _, Some(id)) => id.clone(),
            (None, _, None) => "its session".to_owned(),
        };
        let rate = human::count(one.ios_per_second, "I/O");
        let line = format!("{} loses {place}: {rate} in the last second", one.initiator);
        format!("      {}\n", plain(&line))
    };
    let shown: String = step.taken.iter().take(TAKEN_SHOWN).map(line).collect();
    let rest = step.taken_count.saturating_sub(TAKEN_SHOWN as u64);
    match rest {
        0 => shown,
        rest => format!("{shown}      and {rest} more\n"),
    }
}

/// Whether a person is to be asked before it is done: sessions lose what they use, or data is lost.
pub(super) fn takes_away(steps: &[Step]) -> bool {
    let takes = |step: &Step| step.effect == Effect::TakesAway || step.data == Some(DataFate::Lost);
    steps.iter().any(takes)
}

/// Whether sessions that there are lose something by it: without a person to ask, that needs --yes.
pub(super) fn sessions_lose(steps: &[Step]) -> bool {
    let loses = |step: &Step| step.taken_count > 0 || !step.sessions_ended.is_empty();
    steps.iter().any(loses)
}

/// The steps, one below the other.
pub(super) fn steps(output: Output, steps: &[Step]) -> String {
    steps.iter().map(|one| step(output, one)).collect()
}

/// What becomes of the data of units that go, as the end of a question.
pub(super) fn fate(steps: &[Step]) -> String {
    let removed = steps
        .iter()
        .filter(|step| step.kind == Kind::Lun && step.action == Action::Remove);
    let fates = removed.filter_map(|step| match step.data? {
        DataFate::Stays => Some(format!(" Its data stays in {}.", plain(&step.detail))),
        DataFate::Lost => Some(" Its data is in memory and is lost.".to_owned()),
    });
    fates.collect()
}

/// What a plan would do.
pub(super) fn plan(output: Output, plan: &Plan) -> String {
    let found = found(output, plan);
    match (plan.steps.is_empty(), plan.changes_text) {
        (true, _) if !found.is_empty() => return found,
        (true, true) => {
            return "no steps: only the text differs, such as comments; tarn apply takes it over\n"
                .to_owned();
        }
        (true, false) => {
            return format!("nothing to do: revision {} is the same\n", plan.revision);
        }
        (false, _) => {}
    }
    let count = |effect| plan.steps.iter().filter(|s| s.effect == effect).count() as u64;
    format!(
        "{}{found}{} from revision {}: {} online, {} taking away, {} draining, {} pending, {} refused\n",
        steps(output, &plan.steps),
        human::count(plan.steps.len() as u64, "step"),
        plan.revision,
        count(Effect::Online),
        count(Effect::TakesAway),
        count(Effect::Drains),
        count(Effect::Pending),
        count(Effect::Refused),
    )
}

/// What a plan has found wrong that no step names, and what it did not look at.
fn found(output: Output, plan: &Plan) -> String {
    let is_named = |mistake: &&Mistake| {
        let mut reasons = plan.steps.iter().filter_map(|step| step.reason.as_ref());
        reasons.any(|reason| reason.contains(&mistake.to_string()))
    };
    let mistakes = plan.mistakes.iter().filter(|mistake| !is_named(mistake));
    let mistakes = mistakes.map(|mistake| {
        let wrong = output.toned(Tone::Bad, "wrong");
        format!("{wrong}: {}\n", plain(&mistake.to_string()))
    });
    let not_probed = plan.not_probed.iter();
    let not_probed = not_probed.map(|what| format!("not looked at: {}\n", plain(what)));
    mistakes.chain(not_probed).collect()
}

/// What a change has done.
pub(super) fn done(output: Output, applied: &Applied) -> String {
    let revision = applied.revision;
    match (applied.steps.is_empty(), applied.changes_text) {
        (true, true) => format!("only the text changed, such as comments\nrevision {revision}\n"),
        (true, false) => format!("nothing to do: revision {revision} runs already\n"),
        (false, _) => format!("{}revision {revision}\n", steps(output, &applied.steps)),
    }
}

/// Says what is legal and most likely not meant.
pub(super) fn warn(output: Output, warnings: &[String]) {
    for warning in warnings {
        if output.is_json {
            output.remark(&format!("{}\n", serde_json::json!({ "warning": warning })));
            continue;
        }
        output.remark(&format!("tarn: warning: {}\n", plain(warning)));
    }
}
