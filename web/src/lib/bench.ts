/** Reports of `tarn bench --json`; docs/guide/measuring.md has the format. Pure: read from text that the user picked. */

export interface Spread {
  median: number;
  min: number;
  max: number;
}

export type Figure = "iops" | "mb_per_s" | "p50_us" | "p99_us" | "p999_us" | "target_cpu_us_per_io"
  | "target_user_us_per_io" | "target_system_us_per_io" | "generator_cpu_us_per_io";

export interface PointTarget {
  label: string;
  summary: Partial<Record<Figure, Spread>>;
}

export interface BenchPoint {
  rw: string;
  block_bytes: number;
  iodepth: number;
  sessions: number;
  read_percent: number | null;
  targets: PointTarget[];
}

export interface Report {
  format: "tarn-bench";
  version: number;
  host: { kernel?: string; cpu_model?: string; cpus?: number; date?: string; tarn_version?: string; command_line?: string };
  targets: { label: string; transport: string; place: string }[];
  failure: string | null;
  points: BenchPoint[];
}

const VERSION = 1;
/** A report larger than this is none. */
export const REPORT_BYTES_MAX = 16 * 1024 * 1024;

/** Reads a report. Throws an error that says what is wrong with the file. */
export function parseReport(text: string): Report {
  let value: Partial<Report> | null;
  try {
    value = JSON.parse(text) as Partial<Report> | null;
  } catch {
    throw new Error("this is not JSON; pick a file that tarn bench --json wrote");
  }
  if (value?.format !== "tarn-bench") throw new Error("this is no report of tarn bench; its format is not tarn-bench");
  if (value.version !== VERSION) {
    throw new Error(`the report has version ${String(value.version)}, this console reads ${VERSION}; take the Tarn that wrote it`);
  }
  if (!Array.isArray(value.points) || !Array.isArray(value.targets) || !value.points.every(isPoint)) {
    throw new Error("the report is damaged: its points or targets are missing; measure again");
  }
  return { ...value, host: value.host ?? {}, failure: value.failure ?? null } as Report;
}

function isPoint(point: Partial<BenchPoint> | null): boolean {
  return typeof point?.rw === "string" && typeof point.block_bytes === "number" && typeof point.iodepth === "number"
    && Array.isArray(point.targets)
    && point.targets.every((target) => typeof target?.label === "string" && typeof target.summary === "object");
}

/** What tells points apart, and joins those of several reports. */
export function pointName(point: BenchPoint): string {
  const block = point.block_bytes % 1048576 === 0 ? `${point.block_bytes / 1048576} MiB`
    : point.block_bytes % 1024 === 0 ? `${point.block_bytes / 1024} KiB` : `${point.block_bytes} B`;
  const mixed = point.read_percent === null || point.read_percent === undefined ? "" : ` ${point.read_percent} % reads`;
  const sessions = point.sessions > 1 ? ` × ${point.sessions} sessions` : "";
  return `${point.rw}${mixed} ${block}, depth ${point.iodepth}${sessions}`;
}

/** One target of one file: a column of the comparison. */
export interface Column {
  title: string;
  report: Report;
  label: string;
}

export interface NamedReport {
  name: string;
  report: Report;
}

/** The columns of all files; with several files each carries the name of its own. */
export function columnsOf(reports: NamedReport[]): Column[] {
  return reports.flatMap(({ name, report }) => report.targets.map(({ label }) => ({
    title: reports.length > 1 ? `${name}: ${label}` : label, report, label,
  })));
}

export interface Row {
  name: string;
  /** One for each column; `undefined` where it was not measured. */
  cells: (Spread | undefined)[];
}

/** The rows of a figure, in the order in which the points first appear. */
export function rowsOf(columns: Column[], figure: Figure): Row[] {
  const rows = new Map<string, Row>();
  for (const [at, column] of columns.entries()) {
    for (const point of column.report.points) {
      const name = pointName(point);
      const row = rows.get(name) ?? { name, cells: columns.map(() => undefined) };
      rows.set(name, row);
      row.cells[at] = point.targets.find(({ label }) => label === column.label)?.summary[figure];
    }
  }
  return [...rows.values()].filter((row) => row.cells.some((cell) => cell !== undefined));
}
