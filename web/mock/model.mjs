// The configuration of the mock: documents, what a change of them would do, revisions. In memory.
import { parse, TomlError } from "./toml.mjs";

/** An answer that is no success. */
export class Problem extends Error {
  constructor(status, type, detail, more = {}) {
    super(detail);
    this.body = { type, title: type.replaceAll("-", " "), status, detail, ...more };
  }
}

export const KINDS = { lun: "id", store: "id", target: "name", group: "id", user: "name", nbd: "nbd", quota: "quota", hyperscsi: "name" };

/** What a thing is known by. */
export function nameOf(kind, thing) {
  if (kind === "nbd") return thing.nbd ?? thing.socket ?? thing.bind;
  if (kind === "quota") return thing.quota ?? (thing.owner ? `owner:${thing.owner}` : thing.pool && `pool:${thing.pool}`);
  if (kind === "hyperscsi") return typeof thing.hyperscsi === "string" ? thing.hyperscsi : `${thing.name} at ${thing.interface ?? `udp:${thing.udp}`}`;
  return thing[KINDS[kind]];
}
const POWER = { "": 0, k: 1, M: 2, G: 3, T: 4 };

/** Bytes of a size of the configuration; undefined if it is none. */
export function sizeOf(text) {
  const found = /^(\d+)([kMGT]?)(?:i?B)?$/.exec(text ?? "");
  return found ? Number(found[1]) * 1024 ** POWER[found[2]] : undefined;
}

/** What a STORE says. */
export function storeOf(store) {
  const [head, query = ""] = store.split(/\?(.*)/s);
  const options = new URLSearchParams(query);
  const [, kind, rest] = /^(?:(file|block|mem|null|nbds|nbd\+unix|nbd|rbd|stripe|concat):)?(.*)$/s.exec(head);
  const isMemory = kind === "mem" || kind === "null";
  const size = sizeOf(isMemory ? rest : options.get("size")) ?? (isMemory ? undefined : 8 * 1024 ** 3);
  return {
    kind: { mem: "memory", nbds: "nbd", "nbd+unix": "nbd" }[kind] ?? kind ?? "file",
    size, isMemory, path: rest,
    block: Number(options.get("blocksize") ?? 512),
    cache: isMemory ? undefined : options.get("cache") ?? "writeback",
    readonly: options.has("readonly"),
    removable: options.has("removable"),
  };
}

/** Reads a document into a model, and checks it. */
export function check(text) {
  let model;
  try {
    model = parse(text);
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    throw new Problem(422, "invalid-config", error.message, { place: `tarn.toml:${error.line}` });
  }
  model.hyperscsi = model.hyperscsi?.group;
  for (const kind of Object.keys(KINDS)) {
    model[kind] ??= [];
    names(model, kind);
  }
  for (const lun of model.lun) {
    if (typeof lun.store !== "string") invalid(`lun ${lun.id}`, "store is required; name a file, as file:/srv/disk.img?size=10G");
    if (storeOf(lun.store).size === undefined) invalid(`lun ${lun.id}: store`, `size in "${lun.store}" is none; use k, M, G or T`);
  }
  for (const target of model.target) references(model, target);
  return model;
}

function invalid(place, detail) {
  throw new Problem(422, "invalid-config", detail, { place });
}

function names(model, kind) {
  const seen = new Set();
  for (const thing of model[kind]) {
    const name = nameOf(kind, thing);
    if (typeof name !== "string" || name === "") invalid(kind, `${KINDS[kind]} is required`);
    if (seen.has(name)) invalid(`${kind} ${name}`, "there twice; choose another name");
    seen.add(name);
  }
}

function references(model, target) {
  const has = (kind, name, what) => {
    if (!model[kind].some((each) => nameOf(kind, each) === name)) {
      invalid(`target ${target.name}`, `${what} "${name}" is not configured; add a [[${kind}]]`);
    }
  };
  if (!/^(iqn|eui|naa)\./.test(target.name)) invalid(`target ${target.name}: name`, "an iSCSI name begins with iqn., eui. or naa.");
  for (const view of target.luns ?? []) {
    has("lun", view.id, "unit");
    for (const group of view.groups ?? []) has("group", group, "group");
  }
  for (const user of target.auth ?? []) has("user", user, "user");
}

const CONTAINED = { target: ["luns", "portals"] };

function* stepsOf(before, after, sessions) {
  for (const kind of Object.keys(KINDS)) {
    const old = new Map(before[kind].map((thing) => [nameOf(kind, thing), thing]));
    const now = new Map(after[kind].map((thing) => [nameOf(kind, thing), thing]));
    for (const [name, thing] of now) {
      if (!old.has(name)) yield opened(step("add", kind, name, describe(kind, thing)), kind, thing);
      else yield* changes(kind, name, old.get(name), thing, sessions);
    }
    for (const name of old.keys()) {
      if (!now.has(name)) yield drained(step("remove", kind, name, ""), kind, name, sessions);
    }
  }
}

const step = (action, kind, name, detail) => ({ action, kind, name, detail, effect: "online" });

/** A path below /nowhere is in a directory that is not there. */
function opened(made, kind, thing) {
  const [key, store] = Object.entries(kind === "lun" ? { store: thing.store, log: thing.log } : {}).find(([, each]) => each?.includes(":/nowhere/")) ?? [];
  if (!key) return made;
  const path = storeOf(store).path;
  return { ...made, effect: "refused", reason: `lun "${thing.id}": ${key}: ${path} cannot be created because its directory does not exist; create that first` };
}

function describe(kind, thing) {
  if (kind === "lun") return `store: "${thing.store}"`;
  if (kind === "group") return `initiators: ${thing.initiators?.join(", ")}`;
  return "";
}

function drained(made, kind, name, sessions) {
  const ended = kind === "target" ? sessions.filter(({ target }) => target === name).map(({ id }) => id) : [];
  const isDrained = kind === "lun" || ended.length > 0;
  return isDrained
    ? { ...made, effect: ended.length > 0 ? "takes-away" : "drains", reason: "commands under way are ended first", sessions_ended: ended } : made;
}

function* changes(kind, name, old, now, sessions) {
  for (const key of new Set([...Object.keys(old), ...Object.keys(now)])) {
    const [a, b] = [JSON.stringify(old[key] ?? null), JSON.stringify(now[key] ?? null)];
    if (a === b) continue;
    if (CONTAINED[kind]?.includes(key)) yield* contained(name, key, old[key] ?? [], now[key] ?? []);
    else if (key === "store" && kind === "lun") yield storeChange(name, old.store, now.store);
    else {
      const made = step("change", kind, name, `${key}: ${a} -> ${b}`);
      yield key === "auth" ? drained(made, kind, name, sessions) : made;
    }
  }
}

function* contained(target, key, old, now) {
  const [kind, id] = key === "luns" ? ["view", (each) => each.lun] : ["portal", (each) => each.bind ?? each];
  const detail = (each) => (key === "luns" ? `unit ${each.id}${each.groups ? ` for ${each.groups.join(", ")}` : ""}` : "");
  const before = new Map(old.map((each) => [id(each), each]));
  const after = new Map(now.map((each) => [id(each), each]));
  for (const [name, each] of after) {
    if (!before.has(name)) yield step("add", kind, `${target} ${name}`, detail(each));
    else if (JSON.stringify(before.get(name)) !== JSON.stringify(each)) yield step("change", kind, `${target} ${name}`, detail(each));
  }
  for (const [name, each] of before) {
    if (!after.has(name)) yield { ...step("remove", kind, `${target} ${name}`, detail(each)), effect: "drains", reason: "commands under way are ended first" };
  }
}

function storeChange(name, old, now) {
  const made = step("change", "lun", name, `store: "${old}" -> "${now}"`);
  const [before, after] = [storeOf(old), storeOf(now)];
  if (before.kind === after.kind && before.path === after.path && !after.isMemory && after.size >= before.size) return made;
  if (before.removable && after.removable) return made;
  return { ...made, effect: "refused", reason: "a unit grows while Tarn runs; for another store remove it and add it again" };
}

/** The document of a model; comments are lost, which the real one keeps. */
export function render(model) {
  const write = (value) =>
    Array.isArray(value) ? `[${value.map(write).join(", ")}]`
      : typeof value === "object" ? `{ ${Object.entries(value).map(([key, each]) => `${key} = ${write(each)}`).join(", ")} }`
        : JSON.stringify(value);
  const table = (head, thing) => [head, ...Object.entries(thing).map(([key, value]) => `${key} = ${write(value)}`)].join("\n");
  const parts = [];
  for (const [kind, things] of Object.entries(model)) {
    if (Array.isArray(things)) parts.push(...things.map((thing) => table(kind === "hyperscsi" ? "[[hyperscsi.group]]" : `[[${kind}]]`, thing)));
    else parts.push(table(`[${kind}]`, things));
  }
  return parts.join("\n\n") + "\n";
}

/** The configuration that runs, and those that ran. */
export class Configuration {
  constructor(text) {
    this.kept = [{ revision: 1, applied_ms: Date.now() - 86_400_000, author: "start", summary: [], text }];
    this.model = check(text);
  }

  get document() {
    const { revision, text } = this.kept[0];
    return { revision, text };
  }

  plan(text, sessions) {
    const after = check(text);
    const steps = [...stepsOf(this.model, after, sessions)];
    const open = after.target.filter((target) => !target.auth?.length && JSON.stringify(target.portals ?? "").includes("0.0.0.0"));
    return {
      revision: this.document.revision, steps,
      is_applicable: steps.every(({ effect }) => effect !== "refused"),
      changes_text: text !== this.document.text,
      mistakes: steps.filter(({ effect, reason }) => effect === "refused" && reason.includes(" cannot be created "))
        .map(({ reason }) => { const [, place, detail] = /^(lun "[^"]*": \w+): (.*)$/.exec(reason); return { place, detail }; }),
      warnings: open.map(({ name }) => `target ${name} listens for others without auth and groups; whoever reaches it can use its disks`),
    };
  }

  apply(text, { comment, author, only, sessions }) {
    if (only !== undefined && only !== this.document.revision) {
      throw new Problem(412, "revision-mismatch", `the configuration has revision ${this.document.revision}, not ${only}; read it again`, { revision: this.document.revision });
    }
    const plan = this.plan(text, sessions);
    const refused = plan.steps.find(({ effect }) => effect === "refused");
    if (refused) throw new Problem(409, "refused", `${refused.kind} ${refused.name}: ${refused.reason}`);
    const isSame = plan.steps.length === 0 && text === this.document.text;
    if (!isSame) {
      const summary = plan.steps.map(({ action, kind, name }) => `${action} ${kind} ${name}`);
      this.kept.unshift({ revision: this.document.revision + 1, applied_ms: Date.now(), author, comment, summary, text });
      this.model = check(text);
    }
    return { revision: this.document.revision, steps: plan.steps, changes_text: plan.changes_text, warnings: plan.warnings };
  }
}
