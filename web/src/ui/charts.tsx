/** Pictures of what was: lines with uPlot, small lines as SVG. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { HISTORY, latest } from "../api/live";
import type { Point } from "../api/live";
import { span, SPAN_MS, SPANS } from "../lib/past";
import type { Past } from "../lib/past";
import { useStore } from "../lib/store";
import { NONE, tick } from "../lib/units";
import { colour, onColours } from "../theme";

export interface Line {
  title: string;
  /** A colour of the style sheet, as `--chart-1`. */
  colour: string;
  value: (point: Point) => number | undefined;
  /** Drawn below the axis: writes, beside reads above it. */
  isDown?: boolean;
}

interface Props {
  title: string;
  past: Past;
  lines: Line[];
  format: (value: number) => string;
  /** Latencies: from fast to slow there are many powers of ten. */
  isLogarithmic?: boolean;
}

const HEIGHT = 190;
const AXIS_WIDTH = 76;
const AXIS_HEIGHT = 22;
/** Half of the label of a moment, so that the last one is not cut. */
const LABEL_HALF = 28;
/** With fewer points than this, lines alone would not be seen. */
const POINTS_SEEN = 4;

/** Seconds that a picture of seconds shows. */
export const windowOf = (points: Point[]) => Math.min(HISTORY, Math.max(60, points.length));

function dataOf(points: Point[], lines: Line[]): uPlot.AlignedData {
  const value = (line: Line, point: Point) => {
    const found = point.isPause ? undefined : line.value(point);
    return found === undefined ? null : line.isDown ? -found : found;
  };
  return [points.map(({ at_ms }) => at_ms / 1000), ...lines.map((line) => points.map((point) => value(line, point)))];
}

/** Room above and below the axis, with a little air. */
const linear = (_chart: uPlot, low: number, high: number): [number, number] =>
  [low < 0 ? Math.min(low * 1.1, -1) : 0, Math.max((high || 0) * 1.1, 1)];

/** Whole powers of ten. */
function decades(_chart: uPlot, low: number, high: number): [number, number] {
  const whole = (value: number, round: (power: number) => number) => 10 ** round(Math.log10(value));
  const [from, to] = [whole(low > 0 ? low : 10, Math.floor), whole(high > 0 ? high : 1000, Math.ceil)];
  return [from, to > from ? to : from * 10];
}

/** Powers of ten; of few of them also twice and five times each. */
function decadesOf(_chart: uPlot, _axis: number, low: number, high: number): number[] {
  const powers = Math.round(Math.log10(high / low));
  const steps = powers > 2 ? [1] : [1, 2, 5];
  const all = Array.from({ length: powers + 1 }, (_, at) => steps.map((step) => low * 10 ** at * step)).flat();
  return all.filter((value) => value <= high * 1.001);
}

function optionsOf(props: Props, width: number, point: (at: number | null | undefined) => void): uPlot.Options {
  const { lines, format, past, isLogarithmic } = props;
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const font = "11px system-ui, sans-serif";
  const span_ms = SPAN_MS[past.span];
  const reach = (): [number, number] => {
    const last = past.points().at(-1)?.at_ms ?? 0;
    const end = (past.span === "5min" ? last || Date.now() : Date.now()) / 1000;
    return [end - span_ms / 1000, end];
  };
  return {
    width, height: HEIGHT, padding: [8, LABEL_HALF, 0, 0],
    legend: { show: false },
    cursor: { points: { size: 6 }, drag: { x: false, y: false } },
    hooks: { setCursor: [(chart) => point(chart.cursor.idx)] },
    scales: { x: { time: true, range: reach }, y: isLogarithmic ? { distr: 3, range: decades } : { range: linear } },
    axes: [
      { ...axis, font, size: AXIS_HEIGHT, space: 90, values: (_chart, splits) => splits.map((at) => tick(at * 1000, span_ms)) },
      {
        ...axis, font, size: AXIS_WIDTH, splits: isLogarithmic ? decadesOf : splitsOf,
        // uPlot leaves out labels of a logarithmic axis by rules of its own.
        filter: (_chart, splits) => splits,
        values: (_chart, splits) => splits.map((value) => format(Math.abs(value))),
      },
    ],
    series: [{}, ...lines.map((line) => {
      const ink = colour(line.colour);
      return {
        label: line.title, stroke: ink, width: 1.6, spanGaps: false, ...(!isLogarithmic && { fill: `${ink}22` }),
        points: { show: (_chart: uPlot, _at: number, from: number, to: number) => to - from < POINTS_SEEN, size: 5 },
      };
    })],
  };
}

/** Some five even steps, with the zero among them: with prefixes of units, rounder figures are not needed. */
function splitsOf(_chart: uPlot, _axis: number, low: number, high: number): number[] {
  const raw = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= raw) ?? raw;
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, at) => (first + at) * step);
}

/** Lines over a span of time, with their last values as a legend. */
export function Chart(props: Props) {
  const host = useRef<HTMLDivElement>(null);
  const legend = useRef<HTMLUListElement>(null);
  const { past, lines, format } = props;
  useEffect(() => {
    const element = host.current;
    if (!element) return undefined;
    let chart: uPlot | undefined;
    const build = () => {
      chart?.destroy();
      chart = new uPlot(optionsOf(props, element.clientWidth || 300, show), dataOf(past.points(), lines), element);
    };
    /** The values under the pointer, or the last ones. */
    const show = (pointed?: number | null) => {
      const points = past.points();
      lines.forEach((line, at) => {
        const point = points[pointed ?? points.length - 1];
        const value = point && !point.isPause ? line.value(point) : undefined;
        const item = legend.current?.children[at]?.querySelector("output");
        if (item) item.textContent = value === undefined ? NONE : format(value);
      });
    };
    build();
    show();
    const ends = [
      latest.watch(() => {
        if (past.span !== "5min") return;
        chart?.setData(dataOf(past.points(), lines));
        show(chart?.cursor.idx);
      }),
      onColours(build),
    ];
    const resize = new ResizeObserver(() => {
      if (element.clientWidth > 0) chart?.setSize({ width: element.clientWidth, height: HEIGHT });
    });
    resize.observe(element);
    return () => {
      ends.forEach((end) => end());
      resize.disconnect();
      chart?.destroy();
    };
    // The lines of a chart are constants; another unit, span or reading brings another function.
  }, [past.points, past.span]);
  const words = SPANS.find(([each]) => each === past.span)?.[1];
  return (
    <figure class="chart">
      <figcaption>
        <b>{props.title}</b>
        <ul class="legend" ref={legend}>
          {lines.map((line) => (
            <li key={line.title}><i class={`key ${line.colour.slice(2)}`} />{line.title} <output>{NONE}</output></li>
          ))}
        </ul>
      </figcaption>
      <div ref={host} class="plot" role="img" aria-label={`${props.title} over the last ${words}`} />
    </figure>
  );
}

/** The buttons that set the span of all charts. */
export function SpanButtons() {
  const chosen = useStore(span);
  return (
    <div class="tabs" role="group" aria-label="Time range of the charts">
      {SPANS.map(([each, title]) => (
        <button key={each} type="button" aria-pressed={each === chosen} onClick={() => span.set(each)}>{title}</button>
      ))}
    </div>
  );
}

export const IOPS_LINES: Line[] = [
  { title: "read", colour: "--chart-1", value: ({ readIops }) => readIops },
  { title: "write", colour: "--chart-2", value: ({ writeIops }) => writeIops, isDown: true },
];
export const BYTES_LINES: Line[] = [
  { title: "read", colour: "--chart-1", value: ({ readBytes }) => readBytes },
  { title: "write", colour: "--chart-2", value: ({ writeBytes }) => writeBytes, isDown: true },
];
export const LATENCY_LINES: Line[] = [
  { title: "p50", colour: "--chart-1", value: ({ p50 }) => p50 },
  { title: "p99", colour: "--chart-2", value: ({ p99 }) => p99 },
];

const SPARK = { width: 120, height: 32 };

/** What was, as a line without axes. */
export function Sparkline({ past, value, label }: { past: Past; value: (point: Point) => number | undefined; label: string }) {
  const shown = past.points().map((point) => (point.isPause ? undefined : value(point)));
  const top = Math.max(...shown.map((each) => each ?? 0), 1e-9) * 1.1;
  const step = SPARK.width / Math.max(1, shown.length - 1);
  const path = shown.map((each, at) =>
    `${(at * step).toFixed(1)},${(SPARK.height - 1 - ((each ?? 0) / top) * (SPARK.height - 2)).toFixed(1)}`);
  return (
    <svg class="spark" viewBox={`0 0 ${SPARK.width} ${SPARK.height}`} preserveAspectRatio="none" role="img" aria-label={label}>
      {path.length > 1 && <polyline points={path.join(" ")} vector-effect="non-scaling-stroke" />}
    </svg>
  );
}
