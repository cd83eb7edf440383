import type { ComponentChildren } from "preact";
import { api, may } from "../api/client";
import { events, latest } from "../api/live";
import type { Finding, Lun, Session, Space, Status, Target } from "../api/types";
import { usePast } from "../lib/past";
import type { Past } from "../lib/past";
import { useLoad } from "../lib/load";
import { bytesPerSecond, dataBuckets, errorsPerSecond, iops, percentile } from "../lib/rates";
import type { Figures } from "../lib/rates";
import { useStore } from "../lib/store";
import { bytes, count, duration, latency, moment, NONE, plural, throughput } from "../lib/units";
import { href } from "../router";
import { Badge, Card, Empty, Page, SeverityBadge, Shown } from "../ui/basics";
import { BYTES_LINES, Chart, IOPS_LINES, LATENCY_LINES, Sparkline, SpanButtons } from "../ui/charts";
import { PathMap } from "../ui/map";
import { Table } from "../ui/table";
import { EventWords } from "./events";

export function OverviewPage() {
  const status = useLoad(api.status);
  const sessions = useLoad(api.sessions);
  const past = usePast();
  const isEmpty = status.value?.luns === 0;
  return (
    <Page title="Overview" lead={status.value && <About status={status.value} />} actions={!isEmpty && <SpanButtons />}>
      <Shown from={status}>
        {(value) => (isEmpty ? <><div class="figures one"><Health findings={value.findings} /></div><First /></> : (
          <>
            <Tiles findings={value.findings} past={past} />
            <Serious findings={value.findings} />
            <Charts past={past} />
            <div class="columns">
              <Card title="Capacity"><Capacity /></Card>
              <Card title="Last warnings" actions={<a href={href("events")}>All events</a>}><Warnings /></Card>
            </div>
            <Card title="Paths"><Shown from={sessions}>{(all) => <Paths sessions={all} />}</Shown></Card>
            <div class="columns">
              <Card title="Busiest LUNs" actions={<a href={href("luns")}>All LUNs</a>}><TopLuns /></Card>
              <Card title="Busiest initiators" actions={<a href={href("sessions")}>All sessions</a>}>
                <TopSessions sessions={sessions.value ?? []} />
              </Card>
            </div>
            <Card title="Cores and memory"><Cores /></Card>
          </>
        ))}
      </Shown>
    </Page>
  );
}

function About({ status }: { status: Status }) {
  return (
    <>
      Tarn {status.version}, up {duration(status.now_ms - status.started_ms)}: {plural(status.luns, "LUN")},{" "}
      {plural(status.targets, "target")}, {plural(status.sessions, "session")}, configuration revision {status.revision}
    </>
  );
}

function First() {
  return (
    <Card>
      <Empty title="There is no disk yet.">
        <p>Add one and export it to an initiator; it takes a minute.</p>
        {may("admin") && <a class="button primary" href={href("new-disk")}>Add disk</a>}
      </Empty>
    </Card>
  );
}

const isSerious = ({ severity }: Finding) => severity !== "info";

/** One word for all of it, and how many findings there are. */
function Health({ findings }: { findings: Finding[] }) {
  const errors = findings.filter(({ severity }) => severity === "error").length;
  const warnings = findings.filter(({ severity }) => severity === "warning").length;
  const [tone, word] = errors > 0 ? ["bad", "At risk"] : warnings > 0 ? ["warn", "Warnings"] : ["good", "Healthy"];
  const parts = [errors > 0 && plural(errors, "error"), warnings > 0 && plural(warnings, "warning")].filter(Boolean);
  return (
    <div class={`card figure tile ${tone}`}>
      <h2>Health</h2>
      <p class="value" data-figure="Health">{word}</p>
      <p class="hint"><a href={href("health")}>{parts.join(", ") || "Nothing endangers it"}</a></p>
    </div>
  );
}

function Tiles({ findings, past }: { findings: Finding[]; past: Past }) {
  const all = useStore(latest)?.all;
  const p99 = all && percentile(dataBuckets(all), 0.99);
  const errors = all ? errorsPerSecond(all) : 0;
  return (
    <div class="figures">
      <Health findings={findings} />
      <Figure name="IOPS" value={all ? count(iops(all)) : NONE}>
        <Sparkline past={past} value={(point) => point.iops} label="IOPS over the time range" />
      </Figure>
      <Figure name="Throughput" value={all ? throughput(bytesPerSecond(all)) : NONE}>
        <Sparkline past={past} value={(point) => point.bytes} label="Throughput over the time range" />
      </Figure>
      <Figure name="Latency p99" value={latency(p99)}>
        <Sparkline past={past} value={(point) => point.p99} label="Latency p99 over the time range" />
      </Figure>
      <div class="card figure">
        <h2>Errors</h2>
        <p class={errors > 0 ? "value bad" : "value"} id="live-errors">{all ? `${count(errors)}/s` : NONE}</p>
        <p class="hint">{plural(all?.depth ?? 0, "command")} under way</p>
      </div>
    </div>
  );
}

function Figure({ name, value, children }: { name: string; value: string; children: ComponentChildren }) {
  return (
    <div class="card figure">
      <h2>{name}</h2>
      <p class="value" data-figure={name}>{value}</p>
      {children}
    </div>
  );
}

const FINDINGS_SHOWN = 3;

function Serious({ findings }: { findings: Finding[] }) {
  const serious = findings.filter(isSerious);
  if (serious.length === 0) return null;
  return (
    <Card title="Findings" actions={<a href={href("health")}>{plural(serious.length, "finding")}</a>}>
      <ul class="findings">
        {serious.slice(0, FINDINGS_SHOWN).map((finding) => (
          <li key={finding.code + finding.subject}>
            <SeverityBadge severity={finding.severity} />
            <span><b class="name">{finding.subject || "Tarn"}</b>: {finding.message}</span>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Charts({ past }: { past: Past }) {
  return (
    <>
      <div class="columns">
        <Card><Chart title="IOPS" past={past} lines={IOPS_LINES} format={count} /></Card>
        <Card><Chart title="Throughput" past={past} lines={BYTES_LINES} format={throughput} /></Card>
      </div>
      <Card><Chart title="Latency" past={past} lines={LATENCY_LINES} format={latency} isLogarithmic /></Card>
    </>
  );
}

const SYSTEMS_SHOWN = 4;

function Capacity() {
  const space = useLoad(api.space);
  return (
    <Shown from={space}>
      {(value) => (
        <>
          <Provisioned space={value} />
          {value.file_systems.slice(0, SYSTEMS_SHOWN).map((system) => {
            const used = 1 - system.free_bytes / Math.max(1, system.size_bytes);
            return (
              <div key={system.path} class="fill">
                <span class="name" title={system.path}>{system.path}</span>
                <meter min={0} max={1} low={0.8} high={0.95} optimum={0} value={used} aria-label={`${system.path} in use`} />
                <span class="hint">
                  {bytes(system.free_bytes)} free of {bytes(system.size_bytes)}
                  {system.promised_bytes > system.free_bytes && <> <Badge tone="warn">over-committed: files may grow by {bytes(system.promised_bytes)}</Badge></>}
                </span>
              </div>
            );
          })}
          {value.file_systems.length > SYSTEMS_SHOWN && <p class="hint">{value.file_systems.length - SYSTEMS_SHOWN} more file systems</p>}
        </>
      )}
    </Shown>
  );
}

function Provisioned({ space }: { space: Space }) {
  const size = space.luns.reduce((sum, { size_bytes }) => sum + size_bytes, 0);
  const allocated = space.luns.reduce((sum, { allocated_bytes }) => sum + (allocated_bytes ?? 0), 0);
  return (
    <p>
      <b class="value" data-figure="Capacity">{bytes(size)}</b> provisioned in {plural(space.luns.length, "LUN")};{" "}
      {bytes(allocated)} allocated in files
    </p>
  );
}

const WARNINGS_SHOWN = 4;

function Warnings() {
  const last = useStore(events).filter(({ severity }) => severity !== "info").slice(-WARNINGS_SHOWN).reverse();
  if (last.length === 0) return <Empty title="There has been no warning." />;
  return (
    <ul class="findings">
      {last.map((event) => (
        <li key={event.number}>
          <SeverityBadge severity={event.severity} />
          <span><EventWords event={event} /> <time class="hint" dateTime={new Date(event.at_ms).toISOString()}>{moment(event.at_ms)}</time></span>
        </li>
      ))}
    </ul>
  );
}

function Paths({ sessions }: { sessions: Session[] }) {
  const known = useLoad(async (): Promise<[Lun[], Target[]]> => Promise.all([api.luns(), api.targets()]));
  return (
    <Shown from={known}>
      {([luns, targets]) => {
        const busy = latest.get()?.luns;
        const rate = (id: string) => { const figures = busy?.get(id); return figures ? iops(figures) : 0; };
        const ids = luns.map(({ spec }) => spec.id).sort((a, b) => rate(b) - rate(a));
        return <PathMap luns={ids} targets={targets} sessions={sessions} />;
      }}
    </Shown>
  );
}

const TOP = 5;

/** The busiest of what has figures. */
function top<K>(figures: Iterable<[K, Figures]>): [K, Figures][] {
  return [...figures].sort(([, a], [, b]) => iops(b) - iops(a)).slice(0, TOP);
}

function TopLuns() {
  const rows = top(useStore(latest)?.luns ?? []);
  if (rows.length === 0) return <Empty title="There has been no command yet." />;
  return (
    <Table
      label="Busiest LUNs" rows={rows} keyOf={([id]) => id}
      columns={[
        { title: "LUN", cell: ([id]) => <a class="name" href={href("luns", id)}>{id}</a> },
        { title: "IOPS", numeric: true, cell: ([, figures]) => count(iops(figures)) },
        { title: "Throughput", numeric: true, isMinor: true, cell: ([, figures]) => throughput(bytesPerSecond(figures)) },
        { title: "p99", numeric: true, isMinor: true, cell: ([, figures]) => latency(percentile(dataBuckets(figures), 0.99)) },
      ]}
    />
  );
}

function TopSessions({ sessions }: { sessions: Session[] }) {
  const rows = top(useStore(latest)?.initiators ?? []);
  const ids = new Map(sessions.map((session) => [session.initiator, session.id]));
  if (rows.length === 0) return <Empty title="No initiator is active." />;
  return (
    <Table
      label="Busiest initiators" rows={rows} keyOf={([name]) => name}
      columns={[
        { title: "Initiator", cell: ([name]) => { const session = ids.get(name); return session === undefined ? name : <a class="name" href={href("sessions", session)}>{name}</a>; } },
        { title: "IOPS", numeric: true, cell: ([, figures]) => count(iops(figures)) },
        { title: "Throughput", numeric: true, isMinor: true, cell: ([, figures]) => throughput(bytesPerSecond(figures)) },
        { title: "Depth", numeric: true, isMinor: true, cell: ([, figures]) => figures.depth },
      ]}
    />
  );
}

/** Seconds between two readings of what cores say of themselves. */
const CORES_EVERY = 5;

function Cores() {
  const now = useStore(latest);
  const stats = useLoad(api.stats, Math.floor((now?.at_ms ?? 0) / 1000 / CORES_EVERY));
  return (
    <Shown from={stats}>
      {({ cores }) => (
        <Table
          label="Cores" rows={cores} keyOf={({ core }) => core} page={8}
          columns={[
            { title: "Core", cell: ({ core }) => core },
            { title: "Busy", cell: ({ core }) => <Meter value={now?.busy[core] ?? 0} label={`Core ${core} busy`} /> },
            { title: "Sessions", numeric: true, isMinor: true, cell: ({ sessions }) => sessions },
            { title: "Buffers in use", numeric: true, isMinor: true, cell: (core) => `${bytes(core.pool_bytes - core.pool_free_bytes)} of ${bytes(core.pool_bytes)}` },
            { title: "Waited for buffers", numeric: true, isMinor: true, cell: ({ starved }) => count(starved) },
          ]}
        />
      )}
    </Shown>
  );
}

function Meter({ value, label }: { value: number; label: string }) {
  return (
    <span class="meter">
      <meter min={0} max={1} low={0.7} high={0.9} optimum={0} value={value} aria-label={label} />
      {(value * 100).toFixed(0)} %
    </span>
  );
}
