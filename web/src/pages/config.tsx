import { useEffect, useState } from "preact/hooks";
import { api, may } from "../api/client";
import type { Document, Plan, Revision } from "../api/types";
import { diff, hunks } from "../lib/diff";
import { touch, useLoad, useTask } from "../lib/load";
import { moment } from "../lib/units";
import { Badge, Button, Card, Empty, Notice, Page, ProblemBox, Shown } from "../ui/basics";
import { PlanView, sayApplied } from "../ui/change";
import { Dialog } from "../ui/dialog";
import { Editor } from "../ui/editor";
import { Text } from "../ui/form";
import { Pager } from "../ui/table";

type Tab = "document" | "effective" | "history";
const TABS: readonly (readonly [Tab, string])[] = [["document", "Document"], ["effective", "Effective"], ["history", "History"]];

export function ConfigPage() {
  const [tab, setTab] = useState<Tab>("document");
  const pending = useLoad(api.status).value?.pending ?? [];
  return (
    <Page title="Configuration" lead="One document. Every change is planned first, then made as a whole or not at all.">
      <Pending keys={pending} />
      <div class="tabs" role="group" aria-label="Views of the configuration">
        {TABS.map(([each, title]) => (
          <button key={each} type="button" aria-pressed={each === tab} onClick={() => setTab(each)}>{title}</button>
        ))}
      </div>
      {tab === "document" && <DocumentTab isPending={pending.length > 0} />}
      {tab === "effective" && <EffectiveTab />}
      {tab === "history" && <HistoryTab isPending={pending.length > 0} />}
    </Page>
  );
}

/** Keys that have another value in the document than in force. */
function Pending({ keys }: { keys: string[] }) {
  if (keys.length === 0) return null;
  return (
    <Notice tone="warn">
      Takes effect when Tarn is restarted:
      <ul>{keys.map((key) => <li key={key}><code>{key}</code></li>)}</ul>
    </Notice>
  );
}

const PENDING = <Badge tone="warn">partly pending until restart</Badge>;

function DocumentTab({ isPending }: { isPending: boolean }) {
  const [base, setBase] = useState<Document>();
  const reading = useTask();
  const read = () => reading.run(async () => setBase(await api.document()));
  useEffect(read, []);
  return (
    <>
      <ProblemBox problem={reading.problem} retry={read} />
      {base ? <Draft key={base.revision} base={base} rebase={setBase} isPending={isPending} /> : <div class="loading" />}
    </>
  );
}

/** The document as somebody edits it, from the revision he began with. */
function Draft({ base, rebase, isPending }: { base: Document; rebase: (base: Document) => void; isPending: boolean }) {
  const [text, setText] = useState(base.text);
  const [comment, setComment] = useState("");
  const [planned, setPlanned] = useState<{ plan: Plan; text: string }>();
  const [newer, setNewer] = useState<Document>();
  const planning = useTask();
  const applying = useTask();
  const isChanged = text !== base.text;
  const isPlanned = planned?.text === text && planned.plan.revision === base.revision;
  const plan = () => planning.run(async () => {
    const made = await api.plan(text);
    setPlanned({ plan: made, text });
    if (made.revision !== base.revision) setNewer(await api.document());
  });
  const apply = () => applying.run(async () => {
    try {
      const applied = await api.apply(text, comment, base.revision);
      touch();
      sayApplied(`Applied: revision ${applied.revision}`, applied, planned?.plan);
      rebase(await api.document());
    } catch (thrown) {
      const now = await api.document();
      if (now.revision !== base.revision) setNewer(now);
      throw thrown;
    }
  });
  const change = (next: string) => {
    setText(next);
    planning.clear();
    applying.clear();
  };
  return (
    <Card title={`Revision ${base.revision}`} actions={isChanged ? <Badge tone="warn">not applied</Badge> : isPending && PENDING}>
      <Editor value={text} set={change} label="Document of the configuration" readonly={!may("admin")} />
      {newer && <Newer base={base} newer={newer} text={text} take={() => rebase(newer)} />}
      <ProblemBox problem={planning.problem} />
      <ProblemBox problem={applying.problem} />
      {planned && planned.text === text && <PlanView plan={planned.plan} />}
      {may("admin") && (
        <div class="row bottom">
          <Text label="Comment" value={comment} set={setComment} hint="Reason for the change; shown in the history" />
          <div class="actions">
            <Button disabled={!isChanged} onClick={() => change(base.text)}>Discard</Button>
            <Button disabled={!isChanged || planning.busy} onClick={plan}>Plan</Button>
            <Button tone="primary" disabled={!isChanged || !isPlanned || !planned.plan.is_applicable || applying.busy} onClick={apply}>Apply</Button>
          </div>
        </div>
      )}
    </Card>
  );
}

/** Somebody else was faster. */
function Newer({ base, newer, text, take }: { base: Document; newer: Document; text: string; take: () => void }) {
  const [isCompared, setCompared] = useState(false);
  return (
    <Notice tone="warn">
      <p><b>The configuration has changed meanwhile</b>: revision {newer.revision} runs, you began with {base.revision}. Copy what
        you need, then read it again.</p>
      <div class="actions">
        <Button onClick={() => setCompared(!isCompared)} aria-expanded={isCompared}>Compare</Button>
        <Button tone="danger" onClick={take}>Discard my changes and reload</Button>
      </div>
      {isCompared && <Diff before={newer.text} after={text} label={`Revision ${newer.revision} and yours`} />}
    </Notice>
  );
}

function Diff({ before, after, label }: { before: string; after: string; label: string }) {
  const lines = hunks(diff(before, after));
  if (lines.length === 0) return <Empty title="They are the same." />;
  const kinds = { " ": "same", "+": "new", "-": "gone" } as const;
  return (
    <pre class="diff" tabIndex={0} aria-label={label}>
      {lines.map((line, at) => (
        <span key={at} class={line ? kinds[line.mark] : "cut"}>{line ? `${line.mark} ${line.text}` : "⋯"}{"\n"}</span>
      ))}
    </pre>
  );
}

function EffectiveTab() {
  const effective = useLoad(api.effective);
  return (
    <Card title="With every default written out">
      <Shown from={effective}>{({ text }) => <Editor value={text} label="Effective configuration" readonly />}</Shown>
    </Card>
  );
}

/** Revisions of a page. */
const PAGE = 15;
/** Characters of a summary: a change may have hundreds of steps. */
const SUMMARY_MAX = 400;
const shortened = (text: string) => (text.length > SUMMARY_MAX ? `${text.slice(0, SUMMARY_MAX)}…` : text);

function HistoryTab({ isPending }: { isPending: boolean }) {
  const [at, setAt] = useState(0);
  const history = useLoad(api.history);
  const [chosen, setChosen] = useState<number>();
  const runs = history.value?.[0]?.revision;
  return (
    <Card title="Revisions">
      <Shown from={history}>
        {(value) => (
          <>
            <ul class="revisions">
              {value.slice(at * PAGE, (at + 1) * PAGE).map((revision) => (
                <RevisionLine key={revision.revision} revision={revision} isRunning={revision.revision === runs} isPending={isPending} choose={() => setChosen(revision.revision)} />
              ))}
            </ul>
            <Pager label="revisions" at={at} pages={Math.ceil(value.length / PAGE)} size={PAGE} rows={value.length} set={setAt} />
          </>
        )}
      </Shown>
      {chosen !== undefined && runs !== undefined && <Rollback key={chosen} revision={chosen} close={() => setChosen(undefined)} />}
    </Card>
  );
}

function RevisionLine({ revision, isRunning, isPending, choose }: { revision: Revision; isRunning: boolean; isPending: boolean; choose: () => void }) {
  return (
    <li>
      <div>
        <b>Revision {revision.revision}</b> {isRunning && <Badge tone="good">runs</Badge>} {isRunning && isPending && PENDING}
        <span class="muted"> {moment(revision.applied_ms)} by {revision.author}</span>
        {revision.comment && <p>{revision.comment}</p>}
        {revision.summary.length > 0 && <p class="hint name">{shortened(revision.summary.join("; "))}</p>}
      </div>
      {!isRunning && <Button onClick={choose} aria-label={`Compare revision ${revision.revision}`}>Compare</Button>}
    </li>
  );
}

/** What lies between a revision and the one that runs, and the way back. */
function Rollback({ revision, close }: { revision: number; close: () => void }) {
  const both = useLoad(async () => {
    const [now, then] = await Promise.all([api.document(), api.revision(revision)]);
    return { now, then, plan: await api.plan(then.text) };
  }, revision);
  const task = useTask();
  const back = (from: number, plan: Plan) => task.run(async () => {
    const applied = await api.rollback(revision, `back to revision ${revision}`, from);
    touch();
    sayApplied(`Revision ${applied.revision} is revision ${revision} again`, applied, plan);
    close();
  });
  return (
    <Dialog title={`Revision ${revision} and the one that runs`} close={close} wide>
      <Shown from={both}>
        {({ now, then, plan }) => (
          <>
            <Diff before={now.text} after={then.text} label={`From revision ${now.revision} to ${revision}`} />
            {may("admin") && (
              <>
                <h3>Plan of the rollback</h3>
                <PlanView plan={plan} />
                <ProblemBox problem={task.problem} />
                <div class="actions end">
                  <Button onClick={close}>Cancel</Button>
                  <Button tone="danger" disabled={!plan.is_applicable || task.busy} onClick={() => back(now.revision, plan)}>Roll back</Button>
                </div>
              </>
            )}
          </>
        )}
      </Shown>
    </Dialog>
  );
}
