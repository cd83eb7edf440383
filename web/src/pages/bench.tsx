/** Reports of `tarn bench --json`, side by side. They are read here and go nowhere. */
import { useState } from "preact/hooks";
import { columnsOf, parseReport, REPORT_BYTES_MAX, rowsOf } from "../lib/bench";
import type { Column as Measured, Figure, NamedReport, Row, Spread } from "../lib/bench";
import { useTask } from "../lib/load";
import { bytes, count, latency, moment, NONE } from "../lib/units";
import { Button, Card, Empty, Facts, Notice, Page, ProblemBox } from "../ui/basics";
import { Select } from "../ui/form";
import { Table } from "../ui/table";

interface FigureKind {
  title: string;
  format: (value: number) => string;
  /** The smaller, the better. */
  isCost: boolean;
}

const FIGURES: Partial<Record<Figure, FigureKind>> = {
  iops: { title: "IOPS", format: count, isCost: false },
  mb_per_s: { title: "Throughput", format: (value) => `${count(value)} MB/s`, isCost: false },
  p50_us: { title: "Latency p50", format: latency, isCost: true },
  p99_us: { title: "Latency p99", format: latency, isCost: true },
  p999_us: { title: "Latency p99.9", format: latency, isCost: true },
  target_cpu_us_per_io: { title: "CPU of the target per I/O", format: latency, isCost: true },
  generator_cpu_us_per_io: { title: "CPU of the generator per I/O", format: latency, isCost: true },
};

async function readFile(file: File): Promise<NamedReport> {
  if (file.size > REPORT_BYTES_MAX) throw new Error(`${file.name}: ${bytes(file.size)} is more than a report has; the limit is ${bytes(REPORT_BYTES_MAX)}`);
  try {
    return { name: file.name, report: parseReport(await file.text()) };
  } catch (thrown) {
    throw new Error(`${file.name}: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  }
}

export function BenchPage() {
  const [reports, setReports] = useState<NamedReport[]>([]);
  const task = useTask();
  const pick = (input: HTMLInputElement) => task.run(async () => {
    const read = await Promise.all([...(input.files ?? [])].map(readFile));
    const names = new Set(read.map(({ name }) => name));
    setReports((before) => [...before.filter(({ name }) => !names.has(name)), ...read]);
    input.value = "";
  });
  return (
    <Page
      title="Benchmarks" lead={<>Reports of <code>tarn bench --json</code>. They are read in this browser and not sent anywhere.</>}
      actions={reports.length > 0 && <Button onClick={() => print()}>Print report</Button>}
    >
      <p class="brandmark"><img src="./tarn.svg" alt="" width="28" height="28" />Tarn benchmark report, {moment(Date.now())}</p>
      <Card class="no-print">
        <div class="row bottom">
          <div class="field">
            <label for="reports">Report files</label>
            <input id="reports" type="file" accept=".json,application/json" multiple onChange={(event) => pick(event.currentTarget)} />
            <p class="hint">Several are shown side by side.</p>
          </div>
          {reports.length > 0 && <Button onClick={() => setReports([])}>Clear</Button>}
        </div>
        <ProblemBox problem={task.problem} />
        {reports.length === 0 && !task.problem && <Empty title="No report is open." />}
      </Card>
      {reports.length > 0 && <Reports reports={reports} />}
    </Page>
  );
}

function Reports({ reports }: { reports: NamedReport[] }) {
  const columns = columnsOf(reports);
  const there = (Object.entries(FIGURES) as [Figure, FigureKind][]).filter(([figure]) => rowsOf(columns, figure).length > 0);
  const [chosen, setFigure] = useState<Figure>("iops");
  const figure = there.some(([each]) => each === chosen) ? chosen : there[0]?.[0];
  const kind = figure && FIGURES[figure];
  const failures = reports.filter(({ report }) => report.failure);
  return (
    <>
      {failures.map(({ name, report }) => <Notice key={name} tone="warn">{name} ended early: {report.failure}</Notice>)}
      {figure && kind ? (
        <Card>
          <Select label="Figure" value={figure} set={setFigure} options={there.map(([each, { title }]) => [each, title] as const)} hint={kind.isCost ? "Less is better; median, least to greatest." : "More is better; median, least to greatest."} />
          <Bars rows={rowsOf(columns, figure)} columns={columns} kind={kind} />
          <Numbers rows={rowsOf(columns, figure)} columns={columns} kind={kind} />
        </Card>
      ) : <Card><Empty title="The reports have no figures." /></Card>}
      <div class="columns">{reports.map((each) => <About key={each.name} {...each} />)}</div>
    </>
  );
}

interface FigureProps {
  rows: Row[];
  columns: Measured[];
  kind: FigureKind;
}

/** Colours of the columns; further columns begin again. */
const COLOURS = 4;
const BAR = { height: 10, gap: 3, width: 1000 };

function Bars({ rows, columns, kind }: FigureProps) {
  const top = Math.max(...rows.flatMap(({ cells }) => cells.map((cell) => cell?.max ?? 0)), 1e-9);
  const x = (value: number) => (value / top) * BAR.width;
  const height = columns.length * (BAR.height + BAR.gap);
  return (
    <>
      <ul class="legend">{columns.map(({ title }, at) => <li key={title}><i class={`key chart-${(at % COLOURS) + 1}`} />{title}</li>)}</ul>
      <div class="bars">
        {rows.map(({ name, cells }) => (
          <div class="bar-row" key={name}>
            <span>{name}</span>
            <svg viewBox={`0 0 ${BAR.width} ${height}`} preserveAspectRatio="none" height={height} role="img" aria-label={`${kind.title}, ${name}`}>
              {cells.map((cell, at) => cell && (
                <g key={at} class={`chart-${(at % COLOURS) + 1}`} transform={`translate(0 ${at * (BAR.height + BAR.gap)})`}>
                  <rect class="bar" width={Math.max(2, x(cell.median))} height={BAR.height} />
                  <line class="spread" x1={x(cell.min)} x2={x(cell.max)} y1={BAR.height / 2} y2={BAR.height / 2} vector-effect="non-scaling-stroke" />
                </g>
              ))}
            </svg>
          </div>
        ))}
      </div>
    </>
  );
}

function Numbers({ rows, columns, kind }: FigureProps) {
  const cell = (spread: Spread | undefined) => (spread
    ? <>{kind.format(spread.median)} <span class="hint">{kind.format(spread.min)} to {kind.format(spread.max)}</span></> : NONE);
  return (
    <Table
      label={kind.title} rows={rows} keyOf={({ name }) => name}
      columns={[
        { title: "Load", cell: ({ name }) => name },
        ...columns.map(({ title }, at) => ({
          title, numeric: true, by: ({ cells }: Row) => cells[at]?.median ?? 0, cell: ({ cells }: Row) => cell(cells[at]),
        })),
      ]}
    />
  );
}

function About({ name, report }: NamedReport) {
  const { host } = report;
  return (
    <Card title={name}>
      <Facts facts={[
        ["Measured", host.date ?? NONE],
        ["Machine", [host.cpu_model, host.cpus && `${host.cpus} CPUs`].filter(Boolean).join(", ") || NONE],
        ["Kernel", host.kernel ?? NONE],
        ["Tarn", host.tarn_version ?? NONE],
        ["Targets", report.targets.map(({ label, place }) => `${label} (${place})`).join(", ")],
      ]} />
    </Card>
  );
}
