import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { api, may } from "../api/client";
import { historyOf, latest } from "../api/live";
import type { Lun, Medium } from "../api/types";
import type { PageProps } from "../app";
import { removeLun, rename, resize } from "../lib/changes";
import { touch, useLoad, useTask } from "../lib/load";
import { usePast } from "../lib/past";
import { percentile } from "../lib/rates";
import { ReservationCard } from "./lun-reservations";
import { Snapshots } from "./lun-snapshots";
import { useStore } from "../lib/store";
import { PROTOCOLS } from "../lib/ways";
import { isSized } from "../lib/wish";
import { bytes, count, exactSize, latency, NONE, parseSize, throughput } from "../lib/units";
import { go, href } from "../router";
import { Badge, Button, Card, Empty, Facts, Notice, Page, ProblemBox, Shown } from "../ui/basics";
import { ChangeDialog } from "../ui/change";
import type { Change } from "../ui/change";
import { BYTES_LINES, Chart, IOPS_LINES, LATENCY_LINES, SpanButtons } from "../ui/charts";
import { Dialog } from "../ui/dialog";
import { Choice, Text } from "../ui/form";
import { Heatmap } from "../ui/heatmap";
import { Table } from "../ui/table";
import { say } from "../ui/toast";

export function LunPage({ parts }: PageProps) {
  const [id = ""] = parts;
  const luns = useLoad(api.luns, id);
  const lun = luns.value?.find((each) => each.spec.id === id);
  return (
    <Page
      title={id} lead={<a href={href("luns")}>All LUNs</a>}
      actions={lun && <Actions lun={lun} />}
    >
      <Shown from={luns}>{() => (lun ? <Detail lun={lun} /> : <Empty title={`There is no LUN ${id}.`} />)}</Shown>
    </Page>
  );
}

function Detail({ lun }: { lun: Lun }) {
  const points = useMemo(() => historyOf(lun.spec.id), [lun.spec.id]);
  const past = usePast(lun.spec.id);
  return (
    <>
      {lun.trouble && <Notice tone="warn">{lun.trouble.code === "log-failed" ? "Its log is not used" : "It is not served"}: {lun.trouble.why}</Notice>}
      {lun.outage && <Notice tone="warn">Its data cannot be reached: {lun.outage}</Notice>}
      <SpanButtons />
      <div class="columns">
        <Card><Chart title="IOPS" past={past} lines={IOPS_LINES} format={count} /></Card>
        <Card><Chart title="Throughput" past={past} lines={BYTES_LINES} format={throughput} /></Card>
      </div>
      <Card><Chart title="Latency" past={past} lines={LATENCY_LINES} format={latency} isLogarithmic /></Card>
      <Card><Heatmap points={points} label={`Latencies of ${lun.spec.id} over the last minutes`} /></Card>
      <Card title="Commands now"><Operations id={lun.spec.id} /></Card>
      <div class="columns">
        <Card title="Properties"><About lun={lun} /></Card>
        <Card title="Exported by"><Paths lun={lun} /><Services lun={lun} /></Card>
      </div>
      <ReservationCard id={lun.spec.id} />
      <Snapshots lun={lun} />
    </>
  );
}

const KINDS = ["read", "write", "other"] as const;

function Operations({ id }: { id: string }) {
  const figures = useStore(latest)?.luns.get(id);
  if (!figures) return <Empty title="There has been no command yet." />;
  return (
    <Table
      label="Commands by kind" rows={KINDS.map((kind) => ({ kind, flow: figures[kind] }))} keyOf={({ kind }) => kind}
      columns={[
        { title: "Kind", cell: ({ kind }) => kind },
        { title: "IOPS", numeric: true, cell: ({ flow }) => count(flow.iops) },
        { title: "Throughput", numeric: true, cell: ({ flow }) => throughput(flow.bytes) },
        { title: "Size", numeric: true, cell: ({ flow }) => (flow.iops > 0 && flow.bytes > 0 ? bytes(flow.bytes / flow.iops) : NONE) },
        { title: "p50", numeric: true, cell: ({ flow }) => latency(percentile(flow.buckets, 0.5)) },
        { title: "p99", numeric: true, cell: ({ flow }) => latency(percentile(flow.buckets, 0.99)) },
        { title: "Errors", numeric: true, cell: ({ flow }) => `${count(flow.errors)}/s` },
      ]}
    />
  );
}

const TYPES: Record<string, string> = {
  cdrom: "CD or DVD drive", tape: "tape drive", changer: "library", "write-once": "write-once device", optical: "optical memory",
};

/** A device of others has no size, blocks or cache here: its commands are passed. */
const isPassed = (lun: Lun) => lun.block_bytes === 0;

function About({ lun }: { lun: Lun }) {
  const type = TYPES[lun.type] ?? lun.type;
  const medium: [string, ComponentChildren][] = isPassed(lun) ? [] : [
    ["Size", lun.size_bytes > 0 ? `${bytes(lun.size_bytes)} (${lun.size_bytes.toLocaleString("en")} bytes)` : NONE],
    ["Block", bytes(lun.block_bytes)],
    ["Cache", lun.cache ?? "none"],
    ["Thin provisioning", lun.thin ? "on" : "off"],
    ["Access", lun.readonly ? "read-only (store)" : "read and write"],
  ];
  return (
    <Facts facts={[
      ["Type", isPassed(lun) ? `${type}, passed through` : type],
      ...medium,
      ["Kind", lun.kind],
      ["Store", <code>{lun.spec.store}</code>],
      ...(lun.spec.log ? [["Log device", <code>{lun.spec.log}</code>] as [string, ComponentChildren]] : []),
      ...(lun.spec.owner ? [["Owner", lun.spec.owner] as [string, ComponentChildren]] : []),
      ["Serial number", <code>{lun.serial}</code>],
      ["NAA", <code>{lun.naa}</code>],
      ...(lun.medium ? [["Medium", <MediumFact lun={lun} medium={lun.medium} />] as [string, ComponentChildren]] : []),
    ]} />
  );
}

function MediumFact({ lun, medium }: { lun: Lun; medium: Medium }) {
  const names = medium.prevented_by;
  return (
    <>
      {medium.loaded ? "loaded" : lun.size_bytes === 0 ? "none" : <Badge tone="warn">ejected</Badge>}
      {names.length > 0 && <>, removal prevented by {names.map((name) => <code class="name">{name}</code>)}</>}
    </>
  );
}

function Paths({ lun }: { lun: Lun }) {
  if (lun.shown_by.length === 0) {
    return lun.served_by.length === 0 ? <Empty title="Nothing exports it, so nobody sees it." /> : null;
  }
  return (
    <Table
      label="Targets that export it" page={10} rows={lun.shown_by} keyOf={(path) => `${path.target} ${path.lun} ${path.groups.join()}`}
      columns={[
        { title: "Target", cell: (path) => <a class="name" href={href("targets", path.target)}>{path.target}</a> },
        { title: "LUN", cell: (path) => path.lun },
        { title: "To", cell: (path) => (path.groups.length > 0 ? path.groups.join(", ") : "all initiators") },
        { title: "Access", cell: (path) => (path.readonly ? <Badge tone="info">read-only</Badge> : "read and write") },
      ]}
    />
  );
}

/** Servers of NBD and groups of HyperSCSI. */
function Services({ lun }: { lun: Lun }) {
  if (lun.served_by.length === 0) return null;
  return (
    <Table
      label="Servers of NBD and groups of HyperSCSI" page={10} rows={lun.served_by} keyOf={({ protocol, name }) => `${protocol} ${name}`}
      columns={[
        { title: "Protocol", cell: ({ protocol }) => PROTOCOLS[protocol] ?? protocol },
        { title: "Server or group", cell: ({ name }) => <span class="name">{name}</span> },
        { title: "To", cell: ({ protocol, groups }) => (protocol === "hyperscsi" ? "clients of the group" : groups?.join(", ") || "all clients") },
        { title: "Access", cell: ({ readonly, level }) => <>{readonly ? <Badge tone="info">read-only</Badge> : "read and write"}{level && <>, {level}</>}</> },
      ]}
    />
  );
}

function Actions({ lun }: { lun: Lun }) {
  const [asked, setAsked] = useState<"resize" | "rename" | "eject" | "load">();
  const [change, setChange] = useState<Change>();
  const take = (next: Change) => {
    setAsked(undefined);
    setChange(next);
  };
  const canGrow = isSized(lun.kind);
  return (
    <>
      {may("operator") && canGrow && <Button onClick={() => setAsked("resize")}>Resize</Button>}
      {may("operator") && <Button onClick={() => setAsked("rename")}>Rename</Button>}
      {may("operator") && lun.medium?.loaded && <Button onClick={() => setAsked("eject")}>Eject</Button>}
      {may("operator") && canLoad(lun) && <Button onClick={() => setAsked("load")}>Load</Button>}
      {may("admin") && <Button tone="danger" onClick={() => take(removeLun(lun, () => go("luns")))}>Remove</Button>}
      {asked === "resize" && <Resize lun={lun} close={() => setAsked(undefined)} take={take} />}
      {asked === "rename" && <Rename lun={lun} close={() => setAsked(undefined)} take={take} />}
      {asked === "load" && <Load lun={lun} close={() => setAsked(undefined)} take={take} />}
      {asked === "eject" && <Eject lun={lun} close={() => setAsked(undefined)} />}
      {change && <ChangeDialog change={change} close={() => setChange(undefined)} />}
    </>
  );
}

/** A disc is exchanged while it is in. */
const canLoad = (lun: Lun) => lun.medium?.loaded === false || (lun.medium !== undefined && may("admin") && isDrive(lun));

interface Asking {
  lun: Lun;
  close: () => void;
  take: (change: Change) => void;
}

function Eject({ lun, close }: { lun: Lun; close: () => void }) {
  const task = useTask();
  const { id } = lun.spec;
  const names = lun.medium?.prevented_by ?? [];
  const isPrevented = names.length > 0;
  const eject = (force: boolean) => task.run(async () => {
    await api.eject(id, force);
    touch();
    say(`The medium of ${id} is ejected`);
    close();
  });
  return (
    <Dialog title={`Eject the medium of ${id}`} close={close}>
      <p>Commands under way end first, and what was written is flushed. Initiators find no medium until it is loaded again.</p>
      {isPrevented && (
        <p>Removal is prevented by {names.map((name) => <code class="name">{name}</code>)}. Ask for it, which drives report there, or eject by force.</p>
      )}
      <ProblemBox problem={task.problem} />
      <div class="actions end">
        <Button onClick={close}>Cancel</Button>
        {isPrevented && <Button onClick={() => eject(false)} disabled={task.busy}>Ask</Button>}
        <Button tone="danger" onClick={() => eject(isPrevented)} disabled={task.busy}>{isPrevented ? "Eject by force" : "Eject"}</Button>
      </div>
    </Dialog>
  );
}

/** The medium that was ejected, or another one, which is a change of the configuration. */
function Load({ lun, close, take }: Asking) {
  const task = useTask();
  const { id } = lun.spec;
  const disc = isDrive(lun);
  const [way, setWay] = useState<"same" | "other">(lun.medium?.loaded || lun.size_bytes === 0 ? "other" : "same");
  const [store, setStore] = useState("");
  const places = useLoad(async () => (may("admin") ? await api.places() : undefined));
  const typed = store.trim();
  const text = disc && !typed.startsWith("cdrom:") && typed !== "" ? `cdrom:${typed}` : typed;
  const error = text === "" || disc || hasRemovable(text) ? undefined : "a medium needs the option removable, as in file:/srv/other.img?removable";
  const isOther = way === "other" && text !== lun.spec.store;
  const isWrong = way === "other" && (text === "" || error !== undefined);
  const load = async () => {
    await api.load(id);
    touch();
    say(`The medium of ${id} is loaded`);
  };
  // Where only words of the STORE differ, the unit does not start again with it, and its medium is still out.
  const done = () => task.run(async () => {
    const now = (await api.luns()).find(({ spec }) => spec.id === id);
    if (now?.medium?.loaded === false) await load();
  });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (isOther) take({ title: `Load another medium into ${id}`, verb: "Load", done, edits: [{ set: { lun: { id, store: text } } }] });
    else task.run(async () => { await load(); close(); });
  };
  return (
    <Dialog title={`Load a medium into ${id}`} close={close}>
      <form onSubmit={submit}>
        {may("admin") && (
          <Choice
            label="Medium" value={way} set={setWay}
            options={[["same", lun.medium?.loaded ? "The medium that is in" : "The same medium", lun.spec.store], ["other", "Another medium", "the LUN keeps its identity; the configuration gets the other STORE"]]}
          />
        )}
        {way === "other" && (
          <Text
            label={disc ? "ISO file" : "STORE"} value={store} set={setStore} required error={error}
            placeholder={disc ? "/srv/iso/other.iso" : "file:/srv/other.img?removable&readonly"}
            options={(disc ? places.value?.discs : places.value?.directories.map((directory) => `file:${directory}/${id}.img?removable`)) ?? []}
            hint={disc ? "Initiators find another disc; sessions and reservations stay" : `With blocks of ${lun.block_bytes} bytes, as the LUN has them`}
          />
        )}
        <ProblemBox problem={task.problem} />
        <div class="actions end">
          <Button onClick={close}>Cancel</Button>
          <Button tone="primary" type="submit" disabled={isWrong || task.busy}>{isOther ? "Plan" : "Load"}</Button>
        </div>
      </form>
    </Dialog>
  );
}

const isDrive = (lun: Lun) => lun.kind === "cdrom";

const hasRemovable = (store: string) => /[?&]removable(=true)?(&|$)/.test(store);

function sizeError(text: string, lun: Lun): string | undefined {
  const size = parseSize(text);
  if (size === undefined) return "a number with k, M, G or T, as 20G";
  if (size < lun.size_bytes) return `a unit does not shrink; it has ${bytes(lun.size_bytes)}`;
  return size % lun.block_bytes === 0 ? undefined : `whole blocks of ${lun.block_bytes} bytes`;
}

function Resize({ lun, close, take }: Asking) {
  const [text, setText] = useState(exactSize(lun.size_bytes));
  const error = sizeError(text, lun);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const size = parseSize(text);
    if (!error && size !== undefined) take(resize(lun, size));
  };
  return (
    <Dialog title={`Resize ${lun.spec.id}`} close={close}>
      <form onSubmit={submit}>
        <Text label="New size" value={text} set={setText} error={error} hint="Initiators are notified by unit attention." />
        <div class="actions end"><Button onClick={close}>Cancel</Button><Button tone="primary" type="submit" disabled={Boolean(error)}>Plan</Button></div>
      </form>
    </Dialog>
  );
}

/** What the configuration takes as an id. */
export const ID = /^[A-Za-z0-9._-]{1,64}$/;
export const ID_HINT = "1 to 64 of a-z A-Z 0-9 - _ .";

function Rename({ lun, close, take }: Asking) {
  const [text, setText] = useState(lun.spec.id);
  const error = ID.test(text) ? undefined : ID_HINT;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (!error) take(rename(lun, text, () => go("luns", text)));
  };
  return (
    <Dialog title={`Rename ${lun.spec.id}`} close={close}>
      <form onSubmit={submit}>
        <Text label="New id" value={text} set={setText} error={error} hint="Serial number and NAA designator do not change; initiators do not notice." />
        <div class="actions end"><Button onClick={close}>Cancel</Button><Button tone="primary" type="submit" disabled={Boolean(error) || text === lun.spec.id}>Plan</Button></div>
      </form>
    </Dialog>
  );
}
