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

#[cfg(test)]
mod tests {
    use super::*;

    fn step_of(action: Action, kind: Kind, effect: Effect, reason: Option<&str>) -> Step {
        Step {
            action,
            kind,
            name: "a\n".to_owned(),
            detail: String::new(),
            effect,
            reason: reason.map(str::to_owned),
            sessions_ended: Vec::new(),
            taken: Vec::new(),
            taken_count: 0,
            data: None,
        }
    }

    fn takes(target: Option<&str>, lun: Option<u16>, id: Option<&str>, rate: u64) -> Taken {
        Taken {
            session: 7,
            initiator: "i".to_owned(),
            target: target.map(str::to_owned),
            lun,
            id: id.map(str::to_owned),
            ios_per_second: rate,
        }
    }

    fn output() -> Output {
        Output::new(false, false)
    }

    /// One of each effect and action.
    fn all() -> Vec<Step> {
        let add = Step {
            detail: "mem:1M\r".to_owned(),
            ..step_of(Action::Add, Kind::Lun, Effect::Online, None)
        };
        let ends = Step {
            sessions_ended: vec![3, 4],
            ..step_of(Action::Remove, Kind::View, Effect::TakesAway, None)
        };
        vec![
            add,
            ends,
            step_of(Action::Change, Kind::Nbd, Effect::Drains, Some("slow\n")),
            step_of(Action::Change, Kind::Limits, Effect::Pending, None),
            step_of(Action::Add, Kind::User, Effect::Online, Some("at once")),
            step_of(Action::Change, Kind::Admin, Effect::Refused, Some("no")),
        ]
    }

    const ALL: &str = "\
+ lun a\\n  mem:1M\\r
- view a\\n
    takes away; ends sessions 3, 4
~ nbd a\\n
    drains: slow\\n
~ limits a\\n
    pending
+ user a\\n
    online: at once
~ admin a\\n
    refused: no
";

    #[test]
    fn a_step_has_a_line_and_another_of_what_it_costs() {
        assert_eq!(steps(output(), &all()), ALL);
        for (action, expected) in [
            (Action::Add, ("+", Tone::Good)),
            (Action::Change, ("~", Tone::Odd)),
            (Action::Remove, ("-", Tone::Bad)),
        ] {
            assert_eq!(sign(action), expected);
        }
        let tones = all().into_iter().map(|step| cost(step.effect).1);
        let expected = [
            Tone::Good,
            Tone::Bad,
            Tone::Odd,
            Tone::Odd,
            Tone::Good,
            Tone::Bad,
        ];
        assert_eq!(tones.collect::<Vec<_>>(), expected);
        use Kind::{Admin, Confine, Group, HyperScsi, Limits, Lun, Nbd, Notify};
        use Kind::{Portal, Quota, Server, Store, Target, User, View};
        for kind in [
            Lun, Store, Target, Portal, View, Group, User, Nbd, HyperScsi, Quota, Notify, Server,
            Limits, Admin, Confine,
        ] {
            assert_eq!(serde_json::json!(kind), noun(kind), "as the API has it");
        }
    }

    #[test]
    fn those_that_lose_something_are_named_up_to_a_number() {
        let mut step = step_of(Action::Remove, Kind::Lun, Effect::TakesAway, None);
        step.taken = vec![
            takes(Some("t"), Some(0), Some("a"), 1),
            takes(Some("t"), None, Some("a"), 0),
            takes(None, Some(0), Some("a\n"), 2),
            takes(None, None, None, 3),
        ];
        let lines = "      i loses t LUN 0 (a): 1 I/O in the last second
      i loses t: 0 I/Os in the last second
      i loses a\\n: 2 I/Os in the last second
      i loses its session: 3 I/Os in the last second
";
        assert_eq!(taken(&step), lines);
        step.taken = vec![takes(None, None, None, 0); TAKEN_SHOWN + 1];
        for (count, more) in [
            (8, ""),
            (9, "      and 1 more\n"),
            (1000, "      and 992 more\n"),
        ] {
            step.taken_count = count;
            let text = taken(&step);
            assert_eq!(text.matches("loses").count(), TAKEN_SHOWN);
            assert!(text.ends_with(&format!("last second\n{more}")), "{text}");
        }
    }

    #[test]
    fn a_question_is_asked_for_what_is_lost() {
        let online = step_of(Action::Remove, Kind::Lun, Effect::Online, None);
        let with = |change: fn(&mut Step)| {
            let mut step = online.clone();
            change(&mut step);
            vec![online.clone(), step]
        };
        for (steps, takes, lose, said) in [
            (with(|_| {}), false, false, ""),
            (
                with(|step| step.effect = Effect::TakesAway),
                true,
                false,
                "",
            ),
            (with(|step| step.effect = Effect::Drains), false, false, ""),
            (with(|step| step.sessions_ended.push(1)), false, true, ""),
            (with(|step| step.taken_count = 1), false, true, ""),
            (
                with(|step| step.data = Some(DataFate::Lost)),
                true,
                false,
                " Its data is in memory and is lost.",
            ),
            (
                with(|step| {
                    step.data = Some(DataFate::Stays);
                    step.detail = "/a".to_owned();
                }),
                false,
                false,
                " Its data stays in /a.",
            ),
            (
                with(|step| {
                    step.data = Some(DataFate::Stays);
                    step.kind = Kind::Store;
                }),
                false,
                false,
                "",
            ),
            (
                with(|step| {
                    step.data = Some(DataFate::Stays);
                    step.action = Action::Change;
                }),
                false,
                false,
                "",
            ),
        ] {
            assert_eq!(takes_away(&steps), takes, "{steps:?}");
            assert_eq!(sessions_lose(&steps), lose, "{steps:?}");
            assert_eq!(fate(&steps), said, "{steps:?}");
        }
    }

    #[test]
    fn a_plan_and_what_it_has_done_are_summed_up() {
        let wrong = |place: Option<&str>| Mistake {
            place: place.map(str::to_owned),
            detail: "no".to_owned(),
        };
        let empty = Plan {
            revision: 6,
            steps: Vec::new(),
            is_applicable: true,
            changes_text: false,
            warnings: Vec::new(),
            mistakes: Vec::new(),
            outcome: None,
            not_probed: Vec::new(),
        };
        let text = Plan {
            changes_text: true,
            ..empty.clone()
        };
        let bad = Plan {
            mistakes: vec![wrong(Some("a:1\n")), wrong(None)],
            not_probed: vec!["/b\n".to_owned()],
            ..text.clone()
        };
        let full = Plan {
            steps: all(),
            ..bad.clone()
        };
        let said = "wrong: a:1\\n: no\nwrong: no\nnot looked at: /b\\n\n";
        let sum =
            "6 steps from revision 6: 2 online, 1 taking away, 1 draining, 1 pending, 1 refused\n";
        for (made, expected) in [
            (&empty, "nothing to do: revision 6 is the same\n".to_owned()),
            (
                &text,
                "no steps: only the text differs, such as comments; tarn apply takes it over\n"
                    .to_owned(),
            ),
            (&bad, said.to_owned()),
            // The second mistake is the reason of a step.
            (
                &full,
                format!("{ALL}wrong: a:1\\n: no\nnot looked at: /b\\n\n{sum}"),
            ),
        ] {
            assert_eq!(plan(output(), made), expected);
        }
        for (steps, changes_text, expected) in [
            (
                Vec::new(),
                true,
                "only the text changed, such as comments\nrevision 7\n".to_owned(),
            ),
            (
                Vec::new(),
                false,
                "nothing to do: revision 7 runs already\n".to_owned(),
            ),
            (all(), false, format!("{ALL}revision 7\n")),
        ] {
            let applied = Applied {
                revision: 7,
                steps,
                changes_text,
                warnings: Vec::new(),
                unsettled: None,
            };
            assert_eq!(done(output(), &applied), expected);
        }
    }
}
