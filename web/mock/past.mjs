// What the mock tells of the past, of space and of places: invented, and the same each time.
import { nameOf, storeOf } from "./model.mjs";

const RANGES = { "1h": [10_000, 360], "24h": [300_000, 288], "30d": [7_200_000, 360] };

/** A number from 0 to 1 that follows from a number. */
const noise = (seed) => {
  const value = Math.sin(seed * 12.9898) * 43758.5453;
  return value - Math.floor(value);
};

/** `GET /figures` */
export function figures({ configuration }, range, lun) {
  const [step_ms, most] = RANGES[range];
  const first = Math.floor(Date.now() / step_ms) - most + 1;
  const weight = lun === undefined ? 1 : 1 / Math.max(1, configuration.model.lun.length);
  const points = configuration.model.lun.length === 0 ? [] : Array.from({ length: most }, (_, at) => {
    const wave = 1 + 0.4 * Math.sin((first + at) / 23) + 0.2 * noise(first + at);
    const iops = 21_000 * wave * weight;
    return {
      at_ms: (first + at) * step_ms, read_iops: iops * 0.7, write_iops: iops * 0.3, other_iops: 4, read_bytes: iops * 0.7 * 9000,
      write_bytes: iops * 0.3 * 16_000, errors: 0, p50_us: 90 * wave, p99_us: 900 * wave * (1 + 4 * (noise(first + at) > 0.97)), depth: 12 * wave,
      ...(lun === undefined && { busy: 0.5, sessions: 5 }),
    };
  });
  // An hour in which it did not run.
  return { range, step_ms, points: range === "24h" ? points.filter((_, at) => at < 100 || at > 112) : points };
}

/** `GET /space` */
export function space(model) {
  const luns = model.lun.map(({ id, store }) => {
    const { size, kind } = storeOf(store);
    return { lun: id, size_bytes: size, ...(kind === "file" && { allocated_bytes: Math.floor(size * noise(id.length + 3)) }) };
  });
  const directories = [...new Set(model.lun.map(({ store }) => storeOf(store)).filter(({ kind }) => kind === "file").map(({ path }) => path.replace(/\/[^/]*$/, "")))];
  const file_systems = directories.map((path, at) => ({ path, size_bytes: 8 * 2 ** 40, free_bytes: (1.2 + at / 4) * 2 ** 40, promised_bytes: 2.1 * 2 ** 40 }));
  return { luns, file_systems };
}

/** `GET /places` */
export function places(model) {
  const used = new Map(model.lun.map(({ id, store }) => [storeOf(store).path, id]));
  const device = (path, size_bytes) => ({ path, size_bytes, ...(used.has(path) && { lun: used.get(path) }) });
  return {
    directories: ["/srv/tarn", "/srv/tarn/fast", "/srv/tarn/slow"],
    discs: [],
    devices: [device("/dev/sdb", 4e12), device("/dev/vg0/vm-images", 2 * 2 ** 40), device("/dev/vg0/spare", 2 ** 40)],
  };
}

/** A quota, and what it counts. */
export function quotaView(model, spec) {
  const luns = model.lun.filter(({ owner, store }) => (spec.owner ? owner === spec.owner : storeOf(store).path?.startsWith(spec.pool)));
  const bytes = (text) => (text === undefined ? undefined : Number.parseInt(text, 10) * 1024 ** (1 + "kMGTP".indexOf(text.at(-1))));
  const provisioned_bytes = luns.reduce((sum, { store }) => sum + storeOf(store).size, 0);
  const [used_max_bytes, provisioned_max_bytes] = [bytes(spec.used), bytes(spec.provisioned)];
  return {
    name: spec.owner ? `owner:${spec.owner}` : `pool:${spec.pool}`, spec, luns: luns.map(({ id }) => id), provisioned_bytes, space: "free",
    ...(used_max_bytes && { used_max_bytes, used_bytes: Math.min(used_max_bytes, provisioned_bytes) * 0.4 }), ...(provisioned_max_bytes && { provisioned_max_bytes }),
  };
}

/** `GET /hyperscsi`: groups of the document. */
export function hyperscsi({ configuration }) {
  return configuration.model.hyperscsi.map(({ device = [], ...spec }) => ({
    name: nameOf("hyperscsi", spec), place: spec.interface ?? `udp:${spec.udp}`, password: spec.open ? "none" : "file", sessions: [],
    spec: { retransmit: "selective", profile: "wired", open: false, ...spec, device: device.map(({ id, level, readonly }) => ({ id, level: level ?? "encrypt", readonly: readonly ?? false })) },
  }));
}

/** What is looked for, from the document that lists it. */
export function checksOf(document) {
  const section = document.split("## What the doctor finds")[1].split("\n### ")[0];
  return [...section.matchAll(/^\| `([a-z-]+)` \| (.*) \|$/gm)].map(([, code, finding]) => ({ code, finding: finding.replaceAll("`", "").replace(/[;,:]? ?(see )?\(?\[[^\]]*\]\([^)]*\)\)?/g, "") }));
}
