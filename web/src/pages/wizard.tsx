/** "Make a disk and give it to these initiators": four steps, one change, and what to type on the other side. */
import { useEffect, useState } from "preact/hooks";
import { api, problemFrom } from "../api/client";
import type { Group, Lun, Places, Plan, Target, User } from "../api/types";
import { faultsOf, fieldsOf, stepOf } from "../lib/faults";
import type { Faults } from "../lib/faults";
import { touch, useLoad, useTask } from "../lib/load";
import { seenInitiators } from "../lib/seen";
import { editsOf, editsUntil, FRESH, makesUser } from "../lib/wish";
import type { Wish } from "../lib/wish";
import { Button, Card, Notice, Page, ProblemBox, Shown } from "../ui/basics";
import { PlanView } from "../ui/change";
import { Done } from "./wizard-done";
import { DiskStep, InitiatorStep, TargetStep, wrongWith } from "./wizard-steps";

/** What there is already. */
export interface Known {
  luns: Lun[];
  targets: Target[];
  groups: Group[];
  users: User[];
  /** Where disks may be; nothing, if that is not known. */
  places: Places;
  /** Initiators that Tarn has met. */
  seen: string[];
}

const STEPS = ["Disk", "Target", "Initiators", "Review"] as const;

export function WizardPage() {
  const known = useLoad(async (): Promise<Known> => {
    const places = api.places().catch((): Places => ({ directories: [], devices: [], discs: [] }));
    const [luns, targets, groups, users, seen] = await Promise.all([api.luns(), api.targets(), api.groups(), api.users(), seenInitiators()]);
    return { luns, targets, groups, users, seen, places: await places };
  });
  // What was known at the beginning: the wizard's own change must not look like a clash of names.
  const [begun, setBegun] = useState<Known>();
  useEffect(() => {
    if (known.value && !begun) setBegun(known.value);
  }, [known.value]);
  return (
    <Page title="Add disk" lead="Add a disk and export it to initiators.">
      {begun ? <Wizard known={begun} /> : <Shown from={known}>{() => null}</Shown>}
    </Page>
  );
}

/** What is most likely meant. */
function firstWish(known: Known): Wish {
  const portal = known.targets[0]?.spec.portals?.[0]?.bind ?? `${location.hostname === "localhost" ? "127.0.0.1" : location.hostname}:3260`;
  return { ...FRESH, portal, audience: known.groups.length > 0 ? "group" : "new-group", group: known.groups[0]?.id ?? "" };
}

export interface StepProps {
  wish: Wish;
  set: (change: Partial<Wish>) => void;
  known: Known;
  /** What the server has found wrong, by field. */
  faults: Faults;
}

/** What the server finds wrong with what is known after a step; the problem itself, if no field has it. */
async function look(wish: Wish, step: number): Promise<Faults> {
  let said;
  try {
    said = await api.planEdits(editsUntil(wish, step));
  } catch (thrown) {
    said = problemFrom(thrown);
    if (fieldsOf(faultsOf(wish, said)).length === 0) throw thrown;
  }
  return faultsOf(wish, said);
}

function Wizard({ known }: { known: Known }) {
  const [wish, setWish] = useState(() => firstWish(known));
  const [at, setAt] = useState(0);
  const [isDone, setDone] = useState(false);
  const [faults, setFaults] = useState<Faults>({});
  const [corrections, setCorrections] = useState(0);
  const looking = useTask();
  const wrong = wrongWith(wish, known, at);
  const set = (change: Partial<Wish>) => {
    looking.clear();
    setWish((before) => ({ ...before, ...change }));
    // What is changed is not what was found wrong.
    setFaults((before) => Object.fromEntries(Object.entries(before).filter(([field]) => !(field in change) && !("kind" in change))));
  };
  const props: StepProps = { wish, known, faults, set };
  const correct = (found: Faults) => {
    setFaults(found);
    setAt(Math.min(...fieldsOf(found).map(stepOf)));
    setCorrections((before) => before + 1);
  };
  const next = (event: SubmitEvent) => {
    event.preventDefault();
    if (wrong) return;
    looking.run(async () => {
      // Groups and users are looked at with the whole of it.
      const found = at < STEPS.length - 2 ? await look(wish, at) : {};
      if (fieldsOf(found).length > 0) correct(found);
      else {
        setFaults({});
        setAt(at + 1);
      }
    });
  };
  useEffect(() => {
    // The next step begins at its first field.
    document.querySelector<HTMLElement>("form.step input, form.step select, .review h2")?.focus();
  }, [at]);
  useEffect(() => {
    if (corrections > 0) document.querySelector<HTMLElement>('form.step [aria-invalid="true"]')?.focus();
  }, [corrections]);
  if (isDone) return <Done wish={wish} />;
  return (
    <>
      <ol class="steps">
        {STEPS.map((step, each) => (
          <li key={step} aria-current={each === at ? "step" : undefined} class={each < at ? "past" : ""}>
            <span>{each + 1}</span>{step}
          </li>
        ))}
      </ol>
      {at === STEPS.length - 1 ? <Review wish={wish} correct={correct} back={() => setAt(at - 1)} done={() => setDone(true)} /> : (
        <Card>
          <form class="step" onSubmit={next}>
            {at === 0 && <DiskStep {...props} />}
            {at === 1 && <TargetStep {...props} />}
            {at === 2 && <InitiatorStep {...props} />}
            <ProblemBox problem={looking.problem} />
            <p class="hint bad" role="status">{wrong && wish.id ? wrong : Object.values(faults)[0] ?? ""}</p>
            <div class="actions end">
              {at > 0 && <Button onClick={() => setAt(at - 1)}>Back</Button>}
              <Button tone="primary" type="submit" disabled={Boolean(wrong) || looking.busy}>Next</Button>
            </div>
          </form>
        </Card>
      )}
    </>
  );
}

interface ReviewProps {
  wish: Wish;
  back: () => void;
  /** Leads back to the fields that are wrong. */
  correct: (faults: Faults) => void;
  done: () => void;
}

function Review({ wish, back, correct, done }: ReviewProps) {
  const edits = editsOf(wish);
  const [plan, setPlan] = useState<Plan>();
  const planning = useTask();
  const making = useTask();
  const look = () => {
    making.clear();
    planning.run(async () => setPlan(await api.planEdits(edits)));
  };
  useEffect(look, []);
  const said = planning.problem ?? (plan?.is_applicable === false ? plan : undefined);
  const faults = said ? faultsOf(wish, said) : {};
  const go = () => plan && making.run(async () => {
    await api.edit(edits, `add disk ${wish.id}`, plan.revision);
    touch();
    done();
  });
  return (
    <Card class="review" title={<span tabIndex={-1}>Plan</span>}>
      {makesUser(wish) && (
        <Notice>
          User <b>{wish.newUser}</b> is the only one that may log in to the target; its secret is kept in a private file.
        </Notice>
      )}
      <ProblemBox problem={planning.problem} retry={look} />
      {plan ? <PlanView plan={plan} /> : !planning.problem && <div class="loading" />}
      <ProblemBox problem={making.problem} retry={look} />
      <div class="actions end">
        <Button onClick={back}>Back</Button>
        {fieldsOf(faults).length > 0 && <Button onClick={() => correct(faults)}>Correct</Button>}
        <Button tone="primary" disabled={!plan?.is_applicable || making.busy} onClick={go}>{making.busy ? "Working…" : "Create disk"}</Button>
      </div>
    </Card>
  );
}
