/** What the wizard collects, and the edits that follow from it. Pure. */
import { STORE_KINDS } from "../api/types";
import type { Edit, TargetLun } from "../api/types";
import { exactSize, parseSize } from "./units";

export type StoreWord = (typeof STORE_KINDS)[number]["word"];

/** The kinds that a disk may be made of, whose data somebody wants to read again. */
const WORDS: readonly StoreWord[] = ["file", "block", "mem", "nbd", "nbds", "nbd+unix", "rbd", "hyperscsi", "iscsi"];
export const DISK_KINDS = STORE_KINDS.filter(({ word }) => WORDS.includes(word));
export type Audience = "everyone" | "group" | "new-group";
export type Proof = "none" | "user" | "new-user";

export interface Wish {
  kind: StoreWord;
  path: string;
  size: string;
  cache: "writeback" | "writethrough" | "direct";
  removable: boolean;
  readonly: boolean;
  /** The export of an NBD server on a socket; empty for its default one. */
  exported: string;
  /** Further options of the STORE, as `retry=60&connections=4`. */
  more: string;
  /** The STORE of a log device; empty for none. */
  log: string;
  /** What the log is for. */
  bias: "latency" | "throughput";
  id: string;
  /** Name of an existing target; empty for a new one. */
  target: string;
  newTarget: string;
  portal: string;
  audience: Audience;
  group: string;
  newGroup: string;
  initiators: string[];
  proof: Proof;
  user: string;
  newUser: string;
  secret: string;
}

export const FRESH: Wish = {
  kind: "file", path: "", size: "10G", cache: "writeback", removable: false, readonly: false, exported: "", more: "", log: "", bias: "latency", id: "", target: "", newTarget: "", portal: "",
  audience: "new-group", group: "", newGroup: "", initiators: [], proof: "none", user: "", newUser: "", secret: "",
};

export interface Asked {
  path: boolean;
  /** What its place is called: a file or device of this machine, or where others have the data. */
  place: "file" | "device" | "export" | "socket" | "image" | "member" | "disk";
  size: boolean;
  cache: boolean;
  /** A log device takes what is written first, and hands it on. */
  log: boolean;
  /** Options that no other field has. */
  more: string[];
}

/** Options that have a field, or a place of their own in the configuration. */
const OWN_FIELDS = ["size", "readonly", "cache", "removable", "socket", "serial"];

const PLACES: Partial<Record<StoreWord, Asked["place"]>> = { block: "device", nbd: "export", nbds: "export", "nbd+unix": "socket", rbd: "image", hyperscsi: "member", iscsi: "disk" };

/** What has to be asked for a store of this kind. */
export function asks(word: StoreWord): Asked {
  const kind = STORE_KINDS.find((each) => each.word === word);
  const options: readonly string[] = kind?.options ?? [];
  const isSized = kind?.place === "SIZE";
  return {
    path: !isSized, place: PLACES[word] ?? "file", size: isSized || options.includes("size"), cache: options.includes("cache"),
    log: options.includes("cache"), more: options.filter((option) => !OWN_FIELDS.includes(option)),
  };
}

/** What is wrong with the place of the data; nothing is, if `undefined`. */
export function placeError({ kind, path }: Wish): string | undefined {
  const { place } = asks(kind);
  if (place === "export") return /^[^/?#\s]+(\/[^?#\s]*)?$/.test(path) ? undefined : "HOST:PORT/EXPORT; port and export may be left out";
  if (place === "member") return /^[^/?#\s]+\/[^/?#\s]+$/.test(path) ? undefined : "GROUP/DEVICE";
  if (place === "disk") return /^[^/?#\s]+\/[^/?#\s]+\/\d+$/.test(path) ? undefined : "HOST:PORT/TARGET/LUN; the port may be left out";
  if (place === "image") return /^[^/@\s]+(\/[^/@\s]+){1,2}(@[^/@\s]+)?$/.test(path) ? undefined : "POOL/IMAGE";
  return path.startsWith("/") && !path.endsWith("/") ? undefined : "a path that begins with /";
}

/** What is wrong with the further options. */
export function moreError({ kind, more }: Wish): string | undefined {
  const { more: known } = asks(kind);
  const wrong = more.trim().split("&").filter(Boolean).map((each) => each.split("=")[0] ?? "").find((word) => !known.includes(word));
  return wrong === undefined ? undefined : `“${wrong}” is none of ${known.join(", ")}`;
}

/** Whether the configuration gives a unit its size: it can be resized then. `shown`: what the API calls its kind. */
export const isSized = (shown: string): boolean =>
  STORE_KINDS.some((kind) => kind.word !== "" && kind.shown === shown && asks(kind.word).size);

/** A character that begins the options or an escape stands for itself in a path. */
const pathOf = (path: string) => path.replaceAll("%", "%25").replaceAll("?", "%3F");

/** The STORE of the disk. */
export function storeOf(wish: Wish): string {
  const size = exactSize(parseSize(wish.size) ?? 0);
  const asked = asks(wish.kind);
  const options = [
    asked.path && asked.size && wish.size.trim() !== "" ? `size=${size}` : "", asked.cache && wish.cache !== "writeback" ? `cache=${wish.cache}` : "",
    asked.place === "socket" ? `socket=${pathOf(wish.path)}` : "", wish.readonly ? "readonly" : "", wish.removable ? "removable" : "", wish.more.trim(),
  ].filter(Boolean).join("&");
  const places = { file: pathOf(wish.path), device: pathOf(wish.path), export: `//${wish.path}`, socket: `///${wish.exported}`, image: wish.path, member: `//${wish.path}`, disk: `//${wish.path}` };
  return `${wish.kind}:${asked.path ? places[asked.place] : size}${options && "?" + options}`;
}

/** The lowest number that is free. */
export function freeLun(views: TargetLun[]): number {
  const taken = new Set(views.map(({ lun }) => lun));
  let lun = 0;
  while (taken.has(lun)) lun += 1;
  return lun;
}

export const nameOf = (wish: Wish) => wish.target || wish.newTarget;

/** Whether a user is made for the new target. */
export const makesUser = (wish: Wish) => wish.proof === "new-user" && wish.target === "";

function authOf(wish: Wish): string[] {
  if (wish.proof === "none") return [];
  return [wish.proof === "user" ? wish.user : wish.newUser];
}

function diskOf(wish: Wish): Edit {
  const log = asks(wish.kind).log && wish.log.trim();
  const keys = log && { log, ...(wish.bias !== "latency" && { sync_bias: wish.bias }) };
  return { add: { lun: { id: wish.id, store: storeOf(wish), ...keys } } };
}

/** What is known after a step: the disk, then its target, too. It is planned for what is wrong with it. */
export function editsUntil(wish: Wish, step: number): Edit[] {
  const target: Edit = { add: { target: { name: wish.newTarget, portals: [{ bind: wish.portal }], auth: [] } } };
  return [diskOf(wish), ...(step > 0 && !wish.target ? [target] : [])];
}

/** The disk, its group, its user and its target, which are made together or not at all. */
export function editsOf(wish: Wish): Edit[] {
  const edits: Edit[] = [diskOf(wish)];
  if (wish.audience === "new-group") {
    const initiators = wish.initiators.map((line) => line.trim()).filter(Boolean);
    edits.push({ add: { group: { id: wish.newGroup, initiators } } });
  }
  if (makesUser(wish)) edits.push({ add: { user: { name: wish.newUser, secret: wish.secret } } });
  if (!wish.target) {
    edits.push({ add: { target: { name: wish.newTarget, portals: [{ bind: wish.portal }], auth: authOf(wish) } } });
  }
  const groups = { everyone: [], group: [wish.group], "new-group": [wish.newGroup] }[wish.audience];
  edits.push({ add: { view: { target: nameOf(wish), id: wish.id, groups } } });
  return edits;
}
