import { api, may } from "../api/client";
import { history, latest } from "../api/live";
import type { Finding, Session, Status } from "../api/types";
import { useLoad } from "../lib/load";
import { bytesPerSecond, dataBuckets, errorsPerSecond, iops, percentile } from "../lib/rates";
import type { Figures } from "../lib/rates";
import { useStore } from "../lib/store";
import { bytes, count, duration, latency, NONE, plural, throughput } from "../lib/units";
import { href } from "../router";
import { Badge, Card, Empty, Page, SeverityBadge, Shown } from "../ui/basics";
import { Chart, Sparkline } from "../ui/charts";
import { Table } from "../ui/table";

export function OverviewPage() {
  const status = useLoad(api.status);
  const sessions = useLoad(api.sessions);
  const isEmpty = status.value?.luns === 0;
  return (
    <Page title="Overview" lead={status.value && <About status={status.value} />}>
      <Shown from={status}>{(value) => <Health findings={value.findings} />}</Shown>
      {isEmpty ? <First /> : (
        <>
          <FigureRow />
          <Card><Rates /></Card>
          <div class="columns">
            <Card title="Busiest LUNs" actions={<a href={href("luns")}>All LUNs</a>}><TopLuns /></Card>
            <Card title="Busiest sessions" actions={<a href={href("sessions")}>All sessions</a>}>
              <Shown from={sessions}>{(value) => <TopSessions sessions={value} />}</Shown>
            </Card>
          </div>
          <Card title="Cores and memory"><Cores /></Card>
        </>
      )}
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

const FINDINGS_SHOWN = 3;

function Health({ findings }: { findings: Finding[] }) {
  const serious = findings.filter(({ severity }) => severity !== "info");
  if (serious.length === 0) {
    return <p class="health"><Badge tone="good">healthy</Badge> Nothing endangers or limits the service.</p>;
  }
  return (
    <Card title="Findings" actions={<a href={href("doctor")}>All findings</a>}>
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

/** The three figures of the front page, and errors. */
function FigureRow() {
  const all = useStore(latest)?.all;
  const p99 = all && percentile(dataBuckets(all), 0.99);
  const errors = all ? errorsPerSecond(all) : 0;
  return (
    <div class="figures">
      <Figure name="IOPS" value={all ? count(iops(all)) : NONE} spark={history.map((point) => point.iops)} />
      <Figure name="Throughput" value={all ? throughput(bytesPerSecond(all)) : NONE} spark={history.map((point) => point.bytes)} />
      <Figure name="Latency p99" value={latency(p99)} spark={history.map((point) => point.p99)} />
      <div class="card figure">
        <h2>Errors</h2>
        <p class={errors > 0 ? "value bad" : "value"} id="live-errors">{all ? `${count(errors)}/s` : NONE}</p>
        <p class="hint">{plural(all?.depth ?? 0, "command")} under way</p>
      </div>
    </div>
  );
}

function Figure({ name, value, spark }: { name: string; value: string; spark: (number | undefined)[] }) {
  return (
    <div class="card figure">
      <h2>{name}</h2>
      <p class="value" data-figure={name}>{value}</p>
      <Sparkline values={spark} label={`${name} over the last minute`} />
    </div>
  );
}

const RATE_LINES = [
  { title: "read", colour: "--chart-1", value: (point: { readBytes: number }) => point.readBytes },
  { title: "write", colour: "--chart-2", value: (point: { writeBytes: number }) => point.writeBytes },
];

function Rates() {
  return <Chart title="Throughput" points={history} lines={RATE_LINES} format={throughput} />;
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
        { title: "Throughput", numeric: true, cell: ([, figures]) => throughput(bytesPerSecond(figures)) },
        { title: "p99", numeric: true, cell: ([, figures]) => latency(percentile(dataBuckets(figures), 0.99)) },
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
        { title: "Throughput", numeric: true, cell: ([, figures]) => throughput(bytesPerSecond(figures)) },
        { title: "Depth", numeric: true, cell: ([, figures]) => figures.depth },
      ]}
    />
  );
}

function Cores() {
  const busy = useStore(latest)?.busy ?? [];
  const stats = useLoad(api.stats, Math.floor(history.length / 5));
  return (
    <Shown from={stats}>
      {({ cores }) => (
        <Table
          label="Cores" rows={cores} keyOf={({ core }) => core}
          columns={[
            { title: "Core", cell: ({ core }) => core },
            { title: "Busy", cell: ({ core }) => <Meter value={busy[core] ?? 0} label={`Core ${core} busy`} /> },
            { title: "Sessions", numeric: true, cell: ({ sessions }) => sessions },
            { title: "Buffers in use", numeric: true, cell: (core) => `${bytes(core.pool_bytes - core.pool_free_bytes)} of ${bytes(core.pool_bytes)}` },
            { title: "Waited for buffers", numeric: true, cell: ({ starved }) => count(starved) },
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
