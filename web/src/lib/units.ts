/** Figures for people. Sizes are powers of 1024 with IEC units, rates powers of 1000 with SI units. */

const IEC = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const SI = ["", "k", "M", "G", "T"];
/** Stands for a figure that there is not. */
export const NONE = "–";

/** Three significant digits, without a lonely point: 1.23, 12.3, 123. */
function digits(value: number): string {
  if (value >= 99.95 || Number.isInteger(value)) return value.toFixed(0);
  return value >= 9.995 ? value.toFixed(1) : value.toFixed(2);
}

/** A size: `1.50 GiB`. */
export function bytes(value: number): string {
  let step = 0;
  while (value >= 1024 && step < IEC.length - 1) {
    value /= 1024;
    step += 1;
  }
  return `${digits(value)} ${IEC[step]}`;
}

/** A count or a rate without unit: `12.3k`. */
export function count(value: number): string {
  let step = 0;
  while (value >= 999.5 && step < SI.length - 1) {
    value /= 1000;
    step += 1;
  }
  if (step === 0) return value >= 9.95 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
  return digits(value) + SI[step];
}

/** Bytes a second: `12.3 MB/s`. */
export function throughput(bytesPerSecond: number): string {
  let step = 0;
  while (bytesPerSecond >= 999.5 && step < SI.length - 1) {
    bytesPerSecond /= 1000;
    step += 1;
  }
  return `${digits(bytesPerSecond)} ${SI[step]}B/s`;
}

/** A latency in microseconds: `123 µs`, `1.23 ms`, `1.23 s`; nothing was measured: a dash. */
export function latency(us: number | undefined): string {
  if (us === undefined || Number.isNaN(us)) return NONE;
  if (us < 999.5) return `${digits(us)} µs`;
  if (us < 999_500) return `${digits(us / 1000)} ms`;
  return `${digits(us / 1e6)} s`;
}

/** A span of time in its two largest units: `3 d 4 h`, `12 s`. */
export function duration(ms: number): string {
  const s = Math.max(0, Math.floor(ms / 1000));
  const parts: [number, string][] = [
    [Math.floor(s / 86400), "d"], [Math.floor(s / 3600) % 24, "h"], [Math.floor(s / 60) % 60, "min"], [s % 60, "s"],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  if (first < 0) return "0 s";
  return parts.slice(first, first + 2).filter(([value]) => value > 0).map(([value, unit]) => `${value} ${unit}`).join(" ");
}

/** A moment, local time: `2026-11-21 09:06:15`. */
export function moment(ms: number): string {
  const at = new Date(ms);
  const two = (value: number) => String(value).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${clock(ms)}`;
}

/** The time of day, local: `09:06:15`. */
export function clock(ms: number): string {
  const at = new Date(ms);
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map((value) => String(value).padStart(2, "0")).join(":");
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** A moment on the axis of a chart that covers so much: `09:06:15`, `09:06`, `21 Nov`. */
export function tick(ms: number, span_ms: number): string {
  if (span_ms > 2 * 86_400_000) {
    const at = new Date(ms);
    return `${at.getDate()} ${MONTHS[at.getMonth()]}`;
  }
  return clock(ms).slice(0, span_ms > 600_000 ? 5 : 8);
}

/** `1 session`, `2 sessions`. */
export function plural(value: number, one: string, many = one + "s"): string {
  return `${value} ${value === 1 ? one : many}`;
}

const SIZE = /^(\d+(?:\.\d+)?)\s*(k|M|G|T)?(?:i?B)?$/i;
const POWER: Record<string, number> = { "": 0, k: 1, m: 2, g: 3, t: 4 };

/** Bytes of a size as a person types it (`10G`, `512 MiB`, `4096`); `undefined` if it is none. */
export function parseSize(text: string): number | undefined {
  const found = SIZE.exec(text.trim());
  if (!found) return undefined;
  const value = Number(found[1]) * 1024 ** (POWER[(found[2] ?? "").toLowerCase()] ?? 0);
  return Number.isSafeInteger(value) && value > 0 ? value : undefined;
}

/** A size as the configuration writes it, exactly: `10G`, `1536M`, `4097`. */
export function exactSize(value: number): string {
  const suffixes = ["", "k", "M", "G", "T"];
  let step = 0;
  while (value % 1024 === 0 && value > 0 && step < suffixes.length - 1) {
    value /= 1024;
    step += 1;
  }
  return `${value}${suffixes[step]}`;
}
