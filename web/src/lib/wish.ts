/** What the wizard collects, and the document that follows from it. Pure. */
import type { Target, TargetLun, TargetSpec } from "../api/types";
import { groupSection, lunSection, put, targetSection } from "./toml";
import { exactSize, parseSize } from "./units";

export type StoreKind = "file" | "block" | "memory";
export type Audience = "everyone" | "group" | "new-group";
export type Proof = "none" | "user" | "new-user";

export interface Wish {
  kind: StoreKind;
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

/** A character that begins the options or an escape stands for itself in a path. */
const pathOf = (path: string) => path.replaceAll("%", "%25").replaceAll("?", "%3F");

/** The STORE of the disk. */
export function storeOf(wish: Wish): string {
  const size = exactSize(parseSize(wish.size) ?? 0);
  if (wish.kind === "memory") return `mem:${size}`;
  const cache = wish.cache === "writeback" ? "" : `cache=${wish.cache}`;
  const options = [wish.kind === "file" ? `size=${size}` : "", cache].filter(Boolean).join("&");
  return `${wish.kind}:${pathOf(wish.path)}${options && "?" + options}`;
}

const groupOf = (wish: Wish): string[] =>
  wish.audience === "everyone" ? [] : [wish.audience === "group" ? wish.group : wish.newGroup];

/** The lowest number that is free. */
export function freeLun(views: TargetLun[]): number {
  const taken = new Set(views.map(({ lun }) => lun));
  let lun = 0;
  while (taken.has(lun)) lun += 1;
  return lun;
}

export const nameOf = (wish: Wish) => wish.target || wish.newTarget;

/** The user that the new target asks for; one that does not exist yet cannot be in a preview. */
function authOf(wish: Wish, hasUser: boolean): string[] {
  if (wish.proof === "user") return [wish.user];
  return wish.proof === "new-user" && hasUser ? [wish.newUser] : [];
}

/** The target as it will be, and the number the disk has there. */
export function targetOf(wish: Wish, targets: Target[], hasUser: boolean): { spec: TargetSpec; lun: number } {
  const old = targets.find(({ spec }) => spec.name === wish.target)?.spec;
  const views = old?.luns ?? [];
  const lun = freeLun(views);
  const luns = [...views, { lun, id: wish.id, groups: groupOf(wish) }];
  if (old) return { spec: { ...old, luns }, lun };
  return { spec: { name: wish.newTarget, portals: [{ bind: wish.portal }], auth: authOf(wish, hasUser), luns }, lun };
}

/** The document with the disk, the group and the target. `hasUser`: the new user is in the document already. */
export function draftOf(text: string, wish: Wish, targets: Target[], hasUser: boolean): string {
  let draft = put(text, "lun", wish.id, lunSection({ id: wish.id, store: storeOf(wish) }));
  if (wish.audience === "new-group") {
    draft = put(draft, "group", wish.newGroup, groupSection({ id: wish.newGroup, initiators: wish.initiators }));
  }
  const { spec } = targetOf(wish, targets, hasUser);
  return put(draft, "target", spec.name, targetSection(spec));
}
