/** What the wizard collects, and the edits that follow from it. Pure. */
import { STORE_KINDS } from "../api/types";
import type { Edit, TargetLun } from "../api/types";
import { exactSize, parseSize } from "./units";

/** The kinds that a disk may be made of: those on this machine whose data somebody wants to read again. */
export const DISK_KINDS = STORE_KINDS.filter(({ word, place }) =>
  word !== "" && word !== "null" && (place === "PATH" || place === "SIZE"));

export type StoreWord = (typeof STORE_KINDS)[number]["word"];
export type Audience = "everyone" | "group" | "new-group";
export type Proof = "none" | "user" | "new-user";

export interface Wish {
  kind: StoreWord;
  path: string;
  size: string;
  cache: "writeback" | "writethrough" | "direct";
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
  kind: "file", path: "", size: "10G", cache: "writeback", id: "", target: "", newTarget: "", portal: "",
  audience: "new-group", group: "", newGroup: "", initiators: [], proof: "none", user: "", newUser: "", secret: "",
};

/** What has to be asked for a store of this kind. */
export function asks(word: StoreWord): { path: boolean; size: boolean; cache: boolean } {
  const kind = STORE_KINDS.find((each) => each.word === word);
  const options: readonly string[] = kind?.options ?? [];
  const isSized = kind?.place === "SIZE";
  return { path: !isSized, size: isSized || options.includes("size"), cache: options.includes("cache") };
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
  if (!asked.path) return `${wish.kind}:${size}`;
  const options = [
    asked.size ? `size=${size}` : "", asked.cache && wish.cache !== "writeback" ? `cache=${wish.cache}` : "",
  ].filter(Boolean).join("&");
  return `${wish.kind}:${pathOf(wish.path)}${options && "?" + options}`;
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

/** The disk, its group, its user and its target, which are made together or not at all. */
export function editsOf(wish: Wish): Edit[] {
  const edits: Edit[] = [{ add: { lun: { id: wish.id, store: storeOf(wish) } } }];
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
