/** From counters to rates: what happened between two readings of the statistics. Pure. */
import type { Operations, Series, Stats } from "../api/types";

/** Upper bounds of the latency buckets in microseconds, two to the octave; as in crate `api`, module `stats`. */
export const BOUNDS_US: readonly number[] = Array.from({ length: 40 }, (_, at) => {
  const octave = 2 ** (Math.floor(at / 2) + 2);
  return at % 2 === 0 ? octave : octave * 1.5;
});
/** The last one holds what is above all bounds. */
export const BUCKETS = BOUNDS_US.length + 1;

/** One kind of command over one interval. */
export interface Flow {
  /** Commands a second. */
  iops: number;
  /** Bytes a second. */
  bytes: number;
  /** Commands a second that were not answered GOOD. */
  errors: number;
  /** How many fell into each bucket within the interval. */
  buckets: number[];
}

/** A unit, a session or everything, over one interval. */
export interface Figures {
  read: Flow;
  write: Flow;
  other: Flow;
  /** Commands under way at its end. */
  depth: number;
}

/** One interval. */
export interface Sample {
  at_ms: number;
  all: Figures;
  luns: Map<string, Figures>;
  initiators: Map<string, Figures>;
  /** By core: the part of the time its thread had a processor, 0 to 1. */
  busy: number[];
}

export const noFlow = (): Flow => ({ iops: 0, bytes: 0, errors: 0, buckets: new Array<number>(BUCKETS).fill(0) });
export const noFigures = (): Figures => ({ read: noFlow(), write: noFlow(), other: noFlow(), depth: 0 });

const KINDS = ["read", "write", "other"] as const;
const NOTHING: Operations = { count: 0, bytes: 0, errors: 0, latency_us: 0 };

/** What one counter gained. One that shrank belongs to something that began again: all of it is new. */
const gained = (now: number, before: number) => (now >= before ? now - before : now);

function addFlow(flow: Flow, now: Operations, before: Operations, seconds: number): void {
  flow.iops += gained(now.count, before.count) / seconds;
  flow.bytes += gained(now.bytes, before.bytes) / seconds;
  flow.errors += gained(now.errors, before.errors) / seconds;
  now.latency?.forEach((value, at) => {
    flow.buckets[at] = (flow.buckets[at] ?? 0) + gained(value, before.latency?.[at] ?? 0);
  });
}

function addSeries(figures: Figures, now: Series, before: Series | undefined, seconds: number): void {
  for (const kind of KINDS) addFlow(figures[kind], now[kind], before?.[kind] ?? NOTHING, seconds);
  figures.depth += now.depth;
}

function entry<K>(map: Map<K, Figures>, key: K): Figures {
  let figures = map.get(key);
  if (!figures) {
    figures = noFigures();
    map.set(key, figures);
  }
  return figures;
}

/** A series is one unit and one initiator, whatever its session is at the moment. */
const keyOf = (series: Series) => JSON.stringify([series.lun, series.initiator]);

/** What happened between two readings; `undefined` if no time has passed. */
export function sampleBetween(before: Stats, now: Stats): Sample | undefined {
  const seconds = (now.at_ms - before.at_ms) / 1000;
  if (seconds <= 0) return undefined;
  const old = new Map(before.series.map((series) => [keyOf(series), series]));
  const sample: Sample = { at_ms: now.at_ms, all: noFigures(), luns: new Map(), initiators: new Map(), busy: [] };
  for (const series of now.series) {
    const earlier = old.get(keyOf(series));
    addSeries(sample.all, series, earlier, seconds);
    addSeries(entry(sample.luns, series.lun), series, earlier, seconds);
    addSeries(entry(sample.initiators, series.initiator), series, earlier, seconds);
  }
  const busy = new Map(before.cores.map((core) => [core.core, core.busy_us]));
  sample.busy = now.cores.map((core) =>
    Math.min(1, gained(core.busy_us, busy.get(core.core) ?? core.busy_us) / (seconds * 1e6)));
  return sample;
}

/** Reads and writes together, and everything else. */
export const iops = (figures: Figures) => figures.read.iops + figures.write.iops + figures.other.iops;
export const bytesPerSecond = (figures: Figures) => figures.read.bytes + figures.write.bytes;
export const errorsPerSecond = (figures: Figures) => figures.read.errors + figures.write.errors + figures.other.errors;

/** Buckets of the commands that move data. */
export function dataBuckets(figures: Figures): number[] {
  return figures.read.buckets.map((value, at) => value + (figures.write.buckets[at] ?? 0));
}

/**
 * The latency that a part `q` (0 to 1) of the commands did not exceed, in microseconds, interpolated within its bucket;
 * `undefined` when there were none. What is above the last bound counts as the last bound.
 */
export function percentile(buckets: readonly number[], q: number): number | undefined {
  const total = buckets.reduce((sum, value) => sum + value, 0);
  if (total === 0) return undefined;
  let left = q * total;
  for (const [at, value] of buckets.entries()) {
    if (value > 0 && left <= value) {
      const low = at === 0 ? 0 : (BOUNDS_US[at - 1] ?? 0);
      const high = BOUNDS_US[at] ?? low;
      return low + (high - low) * (left / value);
    }
    left -= value;
  }
  return BOUNDS_US.at(-1);
}
