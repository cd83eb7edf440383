/** The snapshots of a LUN, and what can be done with them. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { api, may } from "../api/client";
import type { Lun, ScheduleSpec, Snapshot } from "../api/types";
import { touch, useLoad, useTask } from "../lib/load";
import { bytes, moment } from "../lib/units";
import { Button, Card, Empty, ProblemBox } from "../ui/basics";
import { ChangeDialog } from "../ui/change";
import type { Change } from "../ui/change";
import { Dialog } from "../ui/dialog";
import { Text } from "../ui/form";
import { Table } from "../ui/table";
import { say } from "../ui/toast";

/** What the server takes as the name of a snapshot. */
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const NAME_HINT = "a letter or digit, then letters, digits, . _ and -, 64 at most";

type Asked = { what: "take" } | { what: "schedule" } | { what: "remove" | "restore" | "clone"; snapshot: Snapshot };

export function Snapshots({ lun }: { lun: Lun }) {
  const { id } = lun.spec;
  const all = useLoad(() => api.snapshots(id), id);
  const [asked, setAsked] = useState<Asked>();
  const close = () => setAsked(undefined);
  // A store without snapshots says so, and what to do instead.
  const none = all.problem?.status === 409 ? all.problem.detail : undefined;
  return (
    <Card
      title="Snapshots"
      actions={!none && (
        <>
          {may("admin") && <Button onClick={() => setAsked({ what: "schedule" })}>Schedule</Button>}
          {may("operator") && <Button onClick={() => setAsked({ what: "take" })}>Take snapshot</Button>}
        </>
      )}
    >
      {none ? <p>{none}</p> : <ProblemBox problem={all.problem} retry={all.reload} />}
      {all.value?.length === 0 && !all.problem && <Empty title="There are none." />}
      {all.value && all.value.length > 0 && <List all={all.value} ask={setAsked} />}
      {lun.spec.snapshots && <p class="hint">{scheduleWords(lun.spec.snapshots)}</p>}
      {asked?.what === "schedule" && <ScheduleEditor lun={lun} close={close} />}
      {asked?.what === "take" && <Take id={id} close={close} />}
      {asked?.what === "remove" && <Remove of={asked.snapshot} close={close} />}
      {asked?.what === "restore" && <Restore of={asked.snapshot} close={close} />}
      {asked?.what === "clone" && <Clone of={asked.snapshot} lun={lun} close={close} />}
    </Card>
  );
}

const PERIODS = ["hourly", "daily", "weekly"] as const;
/** Of each period, as the server takes them. */
const KEPT_MAX = { hourly: 168, daily: 180, weekly: 104 } as const;

function scheduleWords(schedule: ScheduleSpec): string {
  const parts = PERIODS.filter((period) => schedule[period]).map((period) => `${schedule[period]} ${period}`);
  return `Taken by themselves and kept: ${parts.join(", ")}${schedule.at ? `, at ${schedule.at} UTC` : ""}.`;
}

function ScheduleEditor({ lun: { spec }, close }: { lun: Lun; close: () => void }) {
  const [kept, setKept] = useState(() => Object.fromEntries(PERIODS.map((period) => [period, String(spec.snapshots?.[period] ?? "")])));
  const [at, setAt] = useState(spec.snapshots?.at ?? "");
  const [change, setChange] = useState<Change>();
  const wrong = (period: (typeof PERIODS)[number]) => (/^\d*$/.test(kept[period] ?? "") && Number(kept[period]) <= KEPT_MAX[period] ? undefined : `a number up to ${KEPT_MAX[period]}`);
  const atError = at === "" || /^([01]\d|2[0-3]):[0-5]\d$/.test(at) ? undefined : "HH:MM";
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const numbers = PERIODS.filter((period) => Number(kept[period]) > 0).map((period) => [period, Number(kept[period])]);
    // What is not in it is taken out; the whole of it is replaced.
    const snapshots: ScheduleSpec = { ...Object.fromEntries(numbers), ...(at && numbers.length > 0 && { at }) };
    setChange({ title: `Change the snapshots of ${spec.id}`, verb: "Change", done: close, edits: [{ set: { lun: { id: spec.id, snapshots } } }] });
  };
  if (change) return <ChangeDialog change={change} close={() => setChange(undefined)} />;
  return (
    <Dialog title={`Schedule of snapshots of ${spec.id}`} close={close}>
      <form onSubmit={submit}>
        <p>How many are kept of those that Tarn takes by itself. Empty or 0: none.</p>
        {PERIODS.map((period) => (
          <Text key={period} label={`Kept ${period}`} value={kept[period] ?? ""} set={(value) => setKept((before) => ({ ...before, [period]: value }))} error={wrong(period)} />
        ))}
        <Text label="Time of day" value={at} set={setAt} error={atError} hint="HH:MM in UTC, for those of days and weeks; empty: midnight" />
        <div class="actions end">
          <Button onClick={close}>Cancel</Button>
          <Button tone="primary" type="submit" disabled={PERIODS.some(wrong) || Boolean(atError)}>Plan</Button>
        </div>
      </form>
    </Dialog>
  );
}

function List({ all, ask }: { all: Snapshot[]; ask: (asked: Asked) => void }) {
  const buttons = (snapshot: Snapshot) => (
    <div class="actions">
      <Button onClick={() => ask({ what: "clone", snapshot })}>Clone</Button>
      <Button tone="danger" onClick={() => ask({ what: "restore", snapshot })}>Roll back</Button>
      <Button tone="danger" onClick={() => ask({ what: "remove", snapshot })}>Remove</Button>
    </div>
  );
  return (
    <Table
      label="Snapshots" page={10} search={{ hint: "by name", text: ({ name }) => name }} rows={all} keyOf={({ name }) => name} sort={{ title: "Taken", descending: true }}
      columns={[
        { title: "Name", cell: ({ name }) => <code class="name">{name}</code>, by: ({ name }) => name },
        { title: "Taken", cell: ({ taken_ms }) => moment(taken_ms), by: ({ taken_ms }) => taken_ms },
        { title: "Size", cell: ({ size_bytes }) => bytes(size_bytes), by: ({ size_bytes }) => size_bytes, numeric: true },
        ...(may("admin") ? [{ title: "Actions", numeric: true, cell: buttons }] : []),
      ]}
    />
  );
}

/** A dialog that does one thing, which cannot be done before `error` is empty. */
function Deed(props: {
  title: string; verb: string; close: () => void; run: () => Promise<string | undefined | void>; done: string; danger?: boolean;
  error?: string | undefined; children: ComponentChildren;
}) {
  const task = useTask();
  const { title, verb, close, run, done, danger, error, children } = props;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (error) return;
    task.run(async () => {
      const unsettled = await run();
      touch();
      say(unsettled ?? done);
      close();
    });
  };
  return (
    <Dialog title={title} close={close}>
      <form onSubmit={submit}>
        {children}
        <ProblemBox problem={task.problem} />
        <div class="actions end">
          <Button onClick={close}>Cancel</Button>
          <Button tone={danger ? "danger" : "primary"} type="submit" disabled={task.busy || Boolean(error)}>{verb}</Button>
        </div>
      </form>
    </Dialog>
  );
}

function Take({ id, close }: { id: string; close: () => void }) {
  const [name, setName] = useState("");
  const error = name === "" || NAME.test(name) ? undefined : NAME_HINT;
  return (
    <Deed
      title={`Take a snapshot of ${id}`} verb="Take" close={close} error={error} done={`A snapshot of ${id} is taken`}
      run={() => api.takeSnapshot(id, name)}
    >
      <p>It has all that was answered until then. What initiators have in memory is not in it.</p>
      <Text label="Name" value={name} set={setName} error={error} hint="If left empty, the time in UTC." />
    </Deed>
  );
}

function Remove({ of: { lun, name }, close }: { of: Snapshot; close: () => void }) {
  return (
    <Deed
      title={`Remove snapshot ${name} of ${lun}`} verb="Remove" danger close={close} done={`Snapshot ${name} of ${lun} is removed`}
      run={() => api.removeSnapshot(lun, name)}
    >
      <p>The data of {lun} and its other snapshots stay.</p>
    </Deed>
  );
}

function Restore({ of: { lun, name, taken_ms }, close }: { of: Snapshot; close: () => void }) {
  const [text, setText] = useState("");
  const sessions = useLoad(api.sessions, lun);
  const names = (sessions.value ?? []).filter(({ luns }) => luns.some(({ id }) => id === lun)).map(({ initiator }) => initiator);
  return (
    <Deed
      title={`Roll ${lun} back to ${name}`} verb="Roll back" danger close={close} done={`${lun} has the data of ${name} again`}
      error={text === lun ? undefined : `type ${lun}`} run={async () => (await api.restoreSnapshot(lun, name)).unsettled}
    >
      <p>All data written since {moment(taken_ms)} is gone. Take a snapshot first to keep it.</p>
      {names.length === 0 ? <p>No session sees it now.</p> : (
        <p>These sessions end; unmount its file systems there first: {names.map((each) => <code class="name">{each} </code>)}</p>
      )}
      <Text label={`Type ${lun} to confirm`} value={text} set={setText} />
    </Deed>
  );
}

/** The path of the STORE with another last part. */
const beside = (store: string, name: string) => {
  const path = store.replace(/\?.*/, "").replace(/^file:/, "");
  return `file:${path.slice(0, path.lastIndexOf("/") + 1)}${name}.img`;
};

function Clone({ of: { lun, name }, lun: { spec, block_bytes }, close }: { of: Snapshot; lun: Lun; close: () => void }) {
  const [id, setId] = useState(`${lun}-clone`);
  const [store, setStore] = useState(beside(spec.store, `${lun}-clone`) + (block_bytes === 512 ? "" : `?blocksize=${block_bytes}`));
  const error = /^[A-Za-z0-9._-]{1,64}$/.test(id) ? undefined : "1 to 64 of a-z A-Z 0-9 - _ .";
  return (
    <Deed
      title={`Clone ${name} of ${lun}`} verb="Clone" close={close} done={`LUN ${id} has the data of ${name}`}
      error={error ?? (store ? undefined : "name a file")} run={async () => (await api.cloneSnapshot(lun, name, { id, store })).unsettled}
    >
      <p>A new LUN with the data of the snapshot. Both share blocks until one of them changes.</p>
      <Text label="Id" value={id} set={setId} error={error} />
      <Text label="Store" value={store} set={setStore} hint="A file that is not there yet, on the file system of the snapshot." />
    </Deed>
  );
}
