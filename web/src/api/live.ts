/** The live stream: statistics once a second and events as they come, and what is remembered of them. */
import { Store } from "../lib/store";
import { bytesPerSecond, dataBuckets, iops, percentile, sampleBetween } from "../lib/rates";
import type { Figures, Sample } from "../lib/rates";
import { api, reachable } from "./client";
import type { Event, Stats } from "./types";

/** Seconds that are remembered. */
export const HISTORY = 300;
/** Units whose history is remembered all the time; beyond, only of those somebody looks at. */
const LUNS_REMEMBERED = 64;
/** Events that are remembered. */
const EVENTS_MAX = 1000;

/** One second of one unit, for charts. Latencies in microseconds, `undefined` when there was no command. */
export interface Point {
  at_ms: number;
  iops: number;
  readIops: number;
  writeIops: number;
  otherIops: number;
  readBytes: number;
  writeBytes: number;
  bytes: number;
  p50: number | undefined;
  p99: number | undefined;
  p999: number | undefined;
  buckets: number[];
  /** It stands for a time of which nothing is known. */
  isPause?: true;
}

/** The last second. */
export const latest = new Store<Sample | undefined>(undefined);
/** The last events, the oldest first. */
export const events = new Store<Event[]>([]);
/** Everything together, the oldest first. */
export const history: Point[] = [];
const lunHistory = new Map<string, Point[]>();

export function pointOf(at_ms: number, figures: Figures): Point {
  const buckets = dataBuckets(figures);
  return {
    at_ms, buckets,
    iops: iops(figures), bytes: bytesPerSecond(figures),
    readIops: figures.read.iops, writeIops: figures.write.iops, otherIops: figures.other.iops,
    readBytes: figures.read.bytes, writeBytes: figures.write.bytes,
    p50: percentile(buckets, 0.5), p99: percentile(buckets, 0.99), p999: percentile(buckets, 0.999),
  };
}

function remember(points: Point[], point: Point): void {
  points.push(point);
  if (points.length > HISTORY) points.shift();
}

/** The history of a unit, the oldest first. To ask is to look at it: from now on it is remembered. */
export function historyOf(lun: string): Point[] {
  let points = lunHistory.get(lun);
  if (!points) {
    points = [];
    lunHistory.set(lun, points);
  }
  return points;
}

let before: Stats | undefined;

/** Readings closer than this say nothing about rates. */
const INTERVAL_MIN_MS = 500;

function takeStats(now: Stats): void {
  const passed_ms = before ? now.at_ms - before.at_ms : INTERVAL_MIN_MS;
  // A clock that was set back begins anew.
  if (passed_ms >= 0 && passed_ms < INTERVAL_MIN_MS) return;
  const sample = before && sampleBetween(before, now);
  before = now;
  if (!sample) return;
  remember(history, pointOf(sample.at_ms, sample.all));
  for (const lun of sample.luns.keys()) if (lunHistory.size < LUNS_REMEMBERED) historyOf(lun);
  for (const [lun, points] of lunHistory) {
    const figures = sample.luns.get(lun);
    if (figures) remember(points, pointOf(sample.at_ms, figures));
  }
  latest.set(sample);
}

/** Events that came and are not shown yet: those of the beginning come by the hundred. */
let pending: Event[] = [];
let flushing: ReturnType<typeof setTimeout> | undefined;
const FLUSH_MS = 100;

function takeEvent(event: Event): void {
  const last = pending.at(-1) ?? events.get().at(-1);
  if (event.number <= (last?.number ?? 0)) return;
  pending.push(event);
  flushing ??= setTimeout(flush, FLUSH_MS);
}

function flush(): void {
  flushing = undefined;
  events.set([...events.get(), ...pending].slice(-EVENTS_MAX));
  pending = [];
}

const RETRY_MS = 3000;
let source: EventSource | undefined;
let retry: ReturnType<typeof setTimeout> | undefined;

/** The stream flows, as far as is known. */
export const flowing = new Store(true);

/** Opens the stream; it opens itself again when it breaks, until `closeLive`. */
export function openLive(): void {
  closeLive();
  const after = (pending.at(-1) ?? events.get().at(-1))?.number ?? 0;
  source = new EventSource(`/api/v1/live?after=${after}`);
  source.addEventListener("open", () => {
    reachable.set(true);
    flowing.set(true);
  });
  source.addEventListener("stats", (message) => takeStats(JSON.parse(message.data) as Stats));
  source.addEventListener("event", (message) => takeEvent(JSON.parse(message.data) as Event));
  // The browser's own retry would ask for the events of the beginning again.
  source.addEventListener("error", () => {
    source?.close();
    flowing.set(false);
    retry = setTimeout(openLive, RETRY_MS);
    // A stream does not say why it broke; if the login has ended, this does, and the login page comes.
    api.whoami().catch(() => undefined);
  });
}

export function closeLive(): void {
  clearTimeout(retry);
  source?.close();
  source = undefined;
}

/** Forgets everything, at logout. */
export function forgetLive(): void {
  closeLive();
  before = undefined;
  history.length = 0;
  lunHistory.clear();
  latest.set(undefined);
  clearTimeout(flushing);
  flushing = undefined;
  pending = [];
  events.set([]);
  flowing.set(true);
}
