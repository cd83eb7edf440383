/** Latencies over time: a column a second, a row a bucket, the darker the more commands. On a canvas. */
import { useEffect, useRef, useState } from "preact/hooks";
import { latest } from "../api/live";
import type { Point } from "../api/live";
import { BOUNDS_US, BUCKETS } from "../lib/rates";
import { clock, count, latency } from "../lib/units";
import { colour, onColours } from "../theme";
import { windowOf } from "./charts";

const HEIGHT = 220;
/** Room for the scale at the left and the time below. */
const LEFT = 64;
const BELOW = 18;
/** Rows that are shown at least, so that little spread does not look like much. */
const ROWS_MIN = 12;

interface Frame {
  width: number;
  /** Columns. */
  seconds: number;
  /** First bucket shown, and one past the last. */
  low: number;
  high: number;
}

/** The buckets that hold anything, with one row of air at each side. */
function frameOf(points: Point[], width: number): Frame {
  let low = BUCKETS;
  let high = 0;
  for (const { buckets } of points) {
    buckets.forEach((value, at) => {
      if (value > 0) {
        low = Math.min(low, at);
        high = Math.max(high, at + 1);
      }
    });
  }
  if (low > high) [low, high] = [6, 6 + ROWS_MIN];
  low = Math.max(0, low - 1);
  high = Math.min(BUCKETS, Math.max(high + 1, low + ROWS_MIN));
  return { width, seconds: windowOf(points), low: Math.min(low, high - 1), high };
}

const cellOf = (frame: Frame) => ({
  width: (frame.width - LEFT) / frame.seconds, height: (HEIGHT - BELOW) / (frame.high - frame.low),
});

/** Few commands must be seen beside many: the shade follows the logarithm. */
const shade = (value: number, top: number) => 0.12 + 0.88 * (Math.log1p(value) / Math.log1p(top));

function paint(canvas: HTMLCanvasElement, points: Point[], frame: Frame): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  const scale = devicePixelRatio || 1;
  canvas.width = frame.width * scale;
  canvas.height = HEIGHT * scale;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, frame.width, HEIGHT);
  const cell = cellOf(frame);
  const top = Math.max(1, ...points.map(({ buckets }) => Math.max(...buckets)));
  context.fillStyle = colour("--accent");
  for (const [at, { buckets }] of points.entries()) {
    const x = LEFT + (frame.seconds - points.length + at) * cell.width;
    for (let row = frame.low; row < frame.high; row += 1) {
      const value = buckets[row] ?? 0;
      if (value === 0) continue;
      context.globalAlpha = shade(value, top);
      context.fillRect(x, HEIGHT - BELOW - (row - frame.low + 1) * cell.height, cell.width + 0.3, cell.height - 0.5);
    }
  }
  context.globalAlpha = 1;
  paintScale(context, points, frame);
}

function paintScale(context: CanvasRenderingContext2D, points: Point[], frame: Frame): void {
  const cell = cellOf(frame);
  context.fillStyle = colour("--muted");
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "right";
  context.textBaseline = "middle";
  const every = Math.max(2, Math.ceil(20 / cell.height));
  for (let row = frame.low; row < frame.high; row += every) {
    const bound = BOUNDS_US[row] ?? BOUNDS_US.at(-1);
    context.fillText(latency(bound), LEFT - 8, HEIGHT - BELOW - (row - frame.low + 1) * cell.height + cell.height / 2);
  }
  const last = points.at(-1)?.at_ms;
  if (last === undefined) return;
  const marks = frame.width > 500 ? 5 : 2;
  for (let mark = 0; mark < marks; mark += 1) {
    const back = frame.seconds - (frame.seconds / marks) * (mark + 0.5);
    context.textAlign = "center";
    context.fillText(clock(last - back * 1000), LEFT + (frame.seconds - back) * cell.width, HEIGHT - 7);
  }
}

/** What is under the pointer, in words. */
function wordsAt(points: Point[], frame: Frame, x: number, y: number): string {
  const cell = cellOf(frame);
  const point = points[Math.floor((x - LEFT) / cell.width) - (frame.seconds - points.length)];
  const row = frame.low + Math.floor((HEIGHT - BELOW - y) / cell.height);
  if (!point || x < LEFT || row < frame.low || row >= frame.high) return "";
  const bound = BOUNDS_US[row];
  const range = bound === undefined ? `above ${latency(BOUNDS_US.at(-1))}` : `${latency(BOUNDS_US[row - 1] ?? 0)} to ${latency(bound)}`;
  return `${clock(point.at_ms)}: ${count(point.buckets[row] ?? 0)} commands of ${range}`;
}

export function Heatmap({ points, label }: { points: Point[]; label: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [words, setWords] = useState("");
  const frame = () => frameOf(points, canvas.current?.parentElement?.clientWidth ?? 300);
  useEffect(() => {
    const draw = () => canvas.current && paint(canvas.current, points, frame());
    draw();
    const ends = [latest.watch(draw), onColours(draw)];
    const resize = new ResizeObserver(draw);
    if (canvas.current?.parentElement) resize.observe(canvas.current.parentElement);
    return () => {
      ends.forEach((end) => end());
      resize.disconnect();
    };
  }, [points]);
  return (
    <figure class="chart">
      <figcaption><b>Latency heat map</b><span class="hint">{words || "reads and writes; point at a cell"}</span></figcaption>
      <div class="heat">
        <canvas
          ref={canvas} role="img" aria-label={label}
          onMouseMove={(event) => setWords(wordsAt(points, frame(), event.offsetX, event.offsetY))}
          onMouseLeave={() => setWords("")}
        />
      </div>
    </figure>
  );
}
