/** What charts show: the last five minutes by the second, or an hour, a day, thirty days as the daemon has kept them. */
import { useCallback, useEffect, useState } from "preact/hooks";
import { api } from "../api/client";
import { history, HISTORY, historyOf } from "../api/live";
import type { Point } from "../api/live";
import type { FigurePoint, Figures, Range } from "../api/types";
import { Store, useStore } from "./store";

export type Span = "5min" | Range;

/** Each with the word on its button. */
export const SPANS: readonly (readonly [Span, string])[] = [["5min", "5 min"], ["1h", "1 h"], ["24h", "24 h"], ["30d", "30 d"]];
const MINUTE_MS = 60_000;
export const SPAN_MS: Record<Span, number> = {
  "5min": HISTORY * 1000, "1h": 60 * MINUTE_MS, "24h": 24 * 60 * MINUTE_MS, "30d": 30 * 24 * 60 * MINUTE_MS,
};

/** How often what the daemon has kept is read again. */
const AGAIN_MS: Record<Span, number> = { "5min": MINUTE_MS, "1h": 10_000, "24h": MINUTE_MS, "30d": 5 * MINUTE_MS };

/** The span of all charts. */
export const span = new Store<Span>("1h");

/** A pause longer than this part of a step has no line. */
const PAUSE_STEPS = 2.5;

function pointOf(figure: FigurePoint, step_ms: number): Point {
  return {
    at_ms: figure.at_ms + step_ms / 2, buckets: [],
    iops: figure.read_iops + figure.write_iops + figure.other_iops, bytes: figure.read_bytes + figure.write_bytes,
    readIops: figure.read_iops, writeIops: figure.write_iops, otherIops: figure.other_iops,
    readBytes: figure.read_bytes, writeBytes: figure.write_bytes, p50: figure.p50_us, p99: figure.p99_us, p999: undefined,
  };
}

/** Points of figures, with one that stands for nothing where there is a pause. Pure. */
export function pointsOf({ points, step_ms }: Figures): Point[] {
  const all: Point[] = [];
  for (const figure of points) {
    const point = pointOf(figure, step_ms);
    const last = all.at(-1);
    if (last && point.at_ms - last.at_ms > PAUSE_STEPS * step_ms) all.push({ ...point, at_ms: last.at_ms + step_ms, isPause: true });
    all.push(point);
  }
  return all;
}

export interface Past {
  /** The oldest first. Another function when there is something else to show; the same one may give more each second. */
  points: () => Point[];
  span: Span;
}

/** What was, of a unit or of all together. */
export function usePast(lun?: string): Past {
  const chosen = useStore(span);
  const [kept, setKept] = useState<Point[]>([]);
  useEffect(() => {
    let isCurrent = true;
    // What cannot be read leaves the chart as it is; that the server is away is said elsewhere.
    const read = () => api.figures(chosen === "5min" ? "1h" : chosen, lun)
      .then((figures) => isCurrent && setKept(pointsOf(figures)), () => undefined);
    void read();
    const timer = setInterval(() => void read(), AGAIN_MS[chosen]);
    return () => {
      isCurrent = false;
      clearInterval(timer);
    };
  }, [chosen, lun]);
  const points = useCallback(() => {
    if (chosen !== "5min") return kept;
    const live = lun === undefined ? history : historyOf(lun);
    const first = live[0]?.at_ms ?? Date.now();
    return [...kept.filter(({ at_ms }) => at_ms < first && at_ms > first - SPAN_MS["5min"]), ...live];
  }, [kept, chosen, lun]);
  return { points, span: chosen };
}
