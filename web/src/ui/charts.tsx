/** Pictures of the last minutes: lines with uPlot, small lines as SVG. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { HISTORY, latest } from "../api/live";
import type { Point } from "../api/live";
import { clock } from "../lib/units";
import { colour, onColours } from "../theme";

export interface Line {
  title: string;
  /** A colour of the style sheet, as `--chart-1`. */
  colour: string;
  value: (point: Point) => number | undefined;
}

interface Props {
  title: string;
  /** Oldest first; the array grows in place. */
  points: Point[];
  lines: Line[];
  format: (value: number) => string;
}

const HEIGHT = 190;
const AXIS_WIDTH = 76;
const AXIS_HEIGHT = 22;

/** Seconds that a picture shows: what there is, but not so little that it looks like much. */
export const windowOf = (points: Point[]) => Math.min(HISTORY, Math.max(60, points.length));

function dataOf(points: Point[], lines: Line[]): uPlot.AlignedData {
  return [
    points.map(({ at_ms }) => at_ms / 1000),
    ...lines.map((line) => points.map((point) => line.value(point) ?? null)),
  ];
}

function optionsOf({ lines, format, points }: Props, width: number, point: (at: number | null | undefined) => void): uPlot.Options {
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const font = "11px system-ui, sans-serif";
  const span = (): [number, number] => {
    const end = (points.at(-1)?.at_ms ?? Date.now()) / 1000;
    return [end - windowOf(points), end];
  };
  return {
    width, height: HEIGHT, padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { points: { size: 6 }, drag: { x: false, y: false } },
    hooks: { setCursor: [(chart) => point(chart.cursor.idx)] },
    scales: { x: { time: true, range: span }, y: { range: (_chart, _low, high) => [0, Math.max(high * 1.1, 1)] } },
    axes: [
      { ...axis, font, size: AXIS_HEIGHT, space: 90, values: (_chart, splits) => splits.map((at) => clock(at * 1000)) },
      {
        ...axis, font, size: AXIS_WIDTH, splits: splitsOf,
        values: (_chart, splits) => splits.map((value) => (points.length > 0 ? format(value) : "")),
      },
    ],
    series: [{}, ...lines.map((line) => ({
      label: line.title, stroke: colour(line.colour), width: 1.6, points: { show: false }, spanGaps: false,
    }))],
  };
}

/** Four even steps: with prefixes of units, rounder figures than uPlot's own are not needed. */
function splitsOf(_chart: uPlot, _axis: number, low: number, high: number): number[] {
  const raw = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= raw) ?? raw;
  return Array.from({ length: Math.floor((high - low) / step) + 1 }, (_, at) => low + at * step);
}

/** Lines over the last minutes, with their last values as a legend. */
export function Chart(props: Props) {
  const host = useRef<HTMLDivElement>(null);
  const legend = useRef<HTMLUListElement>(null);
  const { points, lines, format } = props;
  useEffect(() => {
    const element = host.current;
    if (!element) return undefined;
    let chart: uPlot | undefined;
    const build = () => {
      chart?.destroy();
      chart = new uPlot(optionsOf(props, element.clientWidth || 300, tell), dataOf(points, lines), element);
    };
    /** The values under the pointer, or the last ones. */
    const tell = (pointed?: number | null) => lines.forEach((line, at) => {
      const point = points[pointed ?? points.length - 1];
      const value = point && line.value(point);
      const item = legend.current?.children[at]?.querySelector("output");
      if (item) item.textContent = value === undefined ? "–" : format(value);
    });
    build();
    tell();
    const ends = [
      latest.watch(() => {
        chart?.setData(dataOf(points, lines));
        tell(chart?.cursor.idx);
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
    // The lines of a chart are constants; another unit brings another array of points.
  }, [points]);
  return (
    <figure class="chart">
      <figcaption>
        <b>{props.title}</b>
        <ul class="legend" ref={legend}>
          {lines.map((line) => (
            <li key={line.title}><i class={`key ${line.colour.slice(2)}`} />{line.title} <output>–</output></li>
          ))}
        </ul>
      </figcaption>
      <div ref={host} class="plot" role="img" aria-label={`${props.title} over the last ${HISTORY / 60} minutes`} />
    </figure>
  );
}

const SPARK = { width: 120, height: 32, points: 60 };

/** The last minute as a line without axes. */
export function Sparkline({ values, label }: { values: (number | undefined)[]; label: string }) {
  const shown = values.slice(-SPARK.points);
  const top = Math.max(...shown.map((value) => value ?? 0), 1e-9) * 1.1;
  const step = SPARK.width / (SPARK.points - 1);
  const from = SPARK.width - (shown.length - 1) * step;
  const path = shown.map((value, at) =>
    `${(from + at * step).toFixed(1)},${(SPARK.height - 1 - ((value ?? 0) / top) * (SPARK.height - 2)).toFixed(1)}`);
  return (
    <svg class="spark" viewBox={`0 0 ${SPARK.width} ${SPARK.height}`} preserveAspectRatio="none" role="img" aria-label={label}>
      {path.length > 1 && <polyline points={path.join(" ")} vector-effect="non-scaling-stroke" />}
    </svg>
  );
}
