/** Pictures of the last minutes: lines with uPlot, small lines as SVG. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { HISTORY, latest } from "../api/live";
import type { Point } from "../api/live";
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

function dataOf(points: Point[], lines: Line[]): uPlot.AlignedData {
  const now = points.at(-1)?.at_ms ?? Date.now();
  // One empty point at the left edge keeps the time axis as wide as the history from the beginning.
  const first = now / 1000 - HISTORY;
  return [
    [first, ...points.map(({ at_ms }) => at_ms / 1000)],
    ...lines.map((line) => [null, ...points.map((point) => line.value(point) ?? null)]),
  ];
}

function optionsOf({ lines, format }: Props, width: number): uPlot.Options {
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const font = "11px system-ui, sans-serif";
  return {
    width, height: HEIGHT, padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { points: { size: 6 }, drag: { x: false, y: false } },
    scales: { x: { time: true }, y: { range: (_chart, _low, high) => [0, Math.max(high * 1.1, 1)] } },
    axes: [
      { ...axis, font, space: 70, values: "{HH}:{mm}:{ss}" },
      { ...axis, font, size: AXIS_WIDTH, splits: splitsOf, values: (_chart, splits) => splits.map(format) },
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
      chart = new uPlot(optionsOf(props, element.clientWidth || 300), dataOf(points, lines), element);
    };
    const tell = () => lines.forEach((line, at) => {
      const value = points.length > 0 ? line.value(points[points.length - 1] as Point) : undefined;
      const item = legend.current?.children[at]?.querySelector("output");
      if (item) item.textContent = value === undefined ? "–" : format(value);
    });
    build();
    tell();
    const ends = [
      latest.watch(() => {
        chart?.setData(dataOf(points, lines));
        tell();
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

const SPARK = { width: 120, height: 32 };

/** A line without axes. */
export function Sparkline({ values, label }: { values: (number | undefined)[]; label: string }) {
  const top = Math.max(...values.map((value) => value ?? 0), 1e-9) * 1.1;
  const step = SPARK.width / Math.max(1, HISTORY / 5 - 1);
  const shown = values.slice(-HISTORY / 5);
  const from = SPARK.width - (shown.length - 1) * step;
  const path = shown.map((value, at) =>
    `${(from + at * step).toFixed(1)},${(SPARK.height - 1 - ((value ?? 0) / top) * (SPARK.height - 2)).toFixed(1)}`);
  return (
    <svg class="spark" viewBox={`0 0 ${SPARK.width} ${SPARK.height}`} preserveAspectRatio="none" role="img" aria-label={label}>
      {path.length > 1 && <polyline points={path.join(" ")} vector-effect="non-scaling-stroke" />}
    </svg>
  );
}
