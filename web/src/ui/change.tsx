/** Changes: the plan first, then the deed. */
import { useEffect, useState } from "preact/hooks";
import { api } from "../api/client";
import type { Applied, DataFate, Edit, Effect, Plan, Step, Taken } from "../api/types";
import { touch, useTask } from "../lib/load";
import { plural } from "../lib/units";
import { Badge, Button, Notice, ProblemBox } from "./basics";
import { Dialog } from "./dialog";
import { say } from "./toast";
import { Table } from "./table";

/** A change of the configuration that can be looked at before it is made. */
export interface Change {
  title: string;
  /** What the button says, as "Remove". */
  verb: string;
  isDestructive?: boolean;
  /** What is done, together or not at all. */
  edits: Edit[];
  /** Afterwards. */
  done?: () => void;
}

const EFFECTS: Record<Effect, [tone: string, words: string]> = {
  online: ["good", "online"],
  "takes-away": ["warn", "takes away"],
  drains: ["warn", "ends what is under way"],
  pending: ["warn", "at the next start"],
  refused: ["bad", "refused"],
};

/** How many of those who lose something are named; the API names a hundred. */
const TAKEN_SHOWN = 5;

const FATES: Record<DataFate, string> = { stays: "the data stays where it is", lost: "the data is gone with it" };

/** Who loses what, and how busy they are with it. */
function taken({ initiator, target, lun, ios_per_second }: Taken): string {
  const what = lun === undefined ? "its session" : `LUN ${lun}`;
  return `${initiator} loses ${what}${target ? ` of ${target}` : ""}${ios_per_second > 0 ? `, ${ios_per_second} I/Os in the last second` : ""}`;
}

function consequence(step: Step): string {
  const [ended, shown] = [step.sessions_ended?.length ?? 0, (step.taken ?? []).slice(0, TAKEN_SHOWN)];
  const more = (step.taken_count ?? 0) - shown.length;
  return [
    step.reason, ...shown.map(taken), more > 0 && `and ${more} more`,
    ended > 0 && `${plural(ended, "session")} ended: ${step.sessions_ended?.join(", ")}`,
    step.data && FATES[step.data],
  ].filter(Boolean).join("; ");
}

/** The steps of a plan as a table. */
export function PlanView({ plan }: { plan: Plan }) {
  return (
    <div class="plan">
      {plan.warnings.map((warning) => <Notice key={warning} tone="warn">{warning}</Notice>)}
      {plan.mistakes?.map(({ detail, place }) => <Notice key={detail} tone="warn">{place ? `${place}: ` : ""}{detail}</Notice>)}
      {plan.not_probed?.map((text) => <Notice key={text}>Not looked at: {text}</Notice>)}
      {plan.steps.length === 0 ? (
        <Notice>
          {plan.changes_text ? "Only the text differs, such as comments." : "There is no difference from the running configuration."}
        </Notice>
      ) : (
        <Table
          label="Steps of the plan" rows={plan.steps.map((step, at) => ({ ...step, at }))} keyOf={({ at }) => at}
          columns={[
            { title: "Step", cell: ({ action, kind }) => <><b>{action}</b> {kind}</> },
            { title: "Name", cell: ({ name }) => <span class="name">{name}</span> },
            { title: "What", cell: ({ detail }) => detail && <code>{detail}</code> },
            { title: "Effect", cell: ({ effect }) => <Badge tone={EFFECTS[effect][0]}>{EFFECTS[effect][1]}</Badge> },
            { title: "Consequence", cell: consequence },
          ]}
        />
      )}
    </div>
  );
}

/** Says that a change was made, with what its plan did not foretell. */
export function sayApplied(done: string, applied: Applied, plan: Plan | undefined): void {
  const news = applied.warnings.filter((warning) => !plan?.warnings.includes(warning));
  say([done, ...news, ...(applied.unsettled ? [applied.unsettled] : [])].join(". "));
}

/** Shows what a change would do, and makes it when it is confirmed. */
export function ChangeDialog({ change, close }: { change: Change; close: () => void }) {
  const [plan, setPlan] = useState<Plan>();
  const planning = useTask();
  const applying = useTask();
  const look = () => {
    applying.clear();
    planning.run(async () => setPlan(await api.planEdits(change.edits)));
  };
  useEffect(look, []);
  const make = () => plan && applying.run(async () => {
    const applied = await api.edit(change.edits, change.title, plan.revision);
    touch();
    sayApplied(`${change.title}: done, revision ${applied.revision}`, applied, plan);
    close();
    change.done?.();
  });
  const isPossible = plan?.is_applicable === true && plan.steps.length > 0;
  const isStale = applying.problem?.type === "revision-mismatch";
  return (
    <Dialog title={change.title} close={close} wide>
      <ProblemBox problem={planning.problem} retry={look} />
      <ProblemBox problem={applying.problem} />
      {plan ? <PlanView plan={plan} /> : !planning.problem && <div class="loading" />}
      <div class="actions end">
        <Button onClick={close}>Cancel</Button>
        {isStale ? <Button tone="primary" onClick={look}>Plan again</Button> : (
          <Button tone={change.isDestructive ? "danger" : "primary"} disabled={!isPossible || applying.busy} onClick={make}>
            {applying.busy ? "Working…" : change.verb}
          </Button>
        )}
      </div>
    </Dialog>
  );
}
