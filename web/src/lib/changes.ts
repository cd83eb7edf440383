/** The changes that pages offer, each as its preview and its deed. */
import { api } from "../api/client";
import type { Group, Lun, Target, TargetSpec } from "../api/types";
import type { Change } from "../ui/change";
import { groupSection, lunSection, put, remove, targetSection } from "./toml";
import { bytes, exactSize } from "./units";

/** A whole document in one request: for changes of several things, which happen together or not at all. */
const applyText = (comment: string) => (text: string, revision: number) => api.apply(text, comment, revision);

/** A STORE with another size. */
export function withSize(store: string, size_bytes: number): string {
  const size = exactSize(size_bytes);
  if (/^(mem|null):/.test(store)) return store.replace(/^(mem|null):[^?]*/, `$1:${size}`);
  if (/[?&]size=/.test(store)) return store.replace(/([?&]size=)[^&]*/, `$1${size}`);
  return `${store}${store.includes("?") ? "&" : "?"}size=${size}`;
}

/** Targets that show a unit, each as it would be with its entries changed. */
function retarget(text: string, targets: Target[], id: string, entry: (spec: TargetSpec) => TargetSpec): string {
  return targets.filter(({ spec }) => spec.luns?.some((view) => view.id === id))
    .reduce((draft, { spec }) => put(draft, "target", spec.name, targetSection(entry(spec))), text);
}

export function resize(lun: Lun, size_bytes: number): Change {
  const { id, store } = lun.spec;
  return {
    title: `Resize ${id} to ${bytes(size_bytes)}`, verb: "Resize",
    draft: (text) => put(text, "lun", id, lunSection({ ...lun.spec, store: withSize(store, size_bytes) })),
    apply: (_text, revision) => api.resizeLun(id, size_bytes, revision),
  };
}

export function rename(lun: Lun, to: string, targets: Target[], done: () => void): Change {
  const { id } = lun.spec;
  return {
    title: `Rename ${id} to ${to}`, verb: "Rename", done,
    draft: (text) => retarget(put(text, "lun", id, lunSection({ ...lun.spec, id: to })), targets, id, (spec) => ({
      ...spec, luns: (spec.luns ?? []).map((view) => (view.id === id ? { ...view, id: to } : view)),
    })),
    apply: (_text, revision) => api.renameLun(id, to, revision),
  };
}

/** Takes a unit from every target that shows it, and away. Its data stays where it is. */
export function removeLun(lun: Lun, targets: Target[], done: () => void): Change {
  const { id } = lun.spec;
  return {
    title: `Remove ${id}`, verb: "Remove", isDestructive: true, done,
    draft: (text) => retarget(remove(text, "lun", id), targets, id, (spec) => ({
      ...spec, luns: (spec.luns ?? []).filter((view) => view.id !== id),
    })),
    apply: applyText(`remove lun ${id}`),
  };
}

export function putTarget(spec: TargetSpec, isNew: boolean, done: () => void): Change {
  return {
    title: `${isNew ? "Add" : "Change"} target ${spec.name}`, verb: isNew ? "Add" : "Change", done,
    draft: (text) => put(text, "target", spec.name, targetSection(spec)),
    apply: (_text, revision) => api.putTarget(spec, revision),
  };
}

export function removeTarget(name: string): Change {
  return {
    title: `Remove target ${name}`, verb: "Remove", isDestructive: true,
    draft: (text) => remove(text, "target", name), apply: (_text, revision) => api.removeTarget(name, revision),
  };
}

export function putGroup(group: Group, isNew: boolean, done: () => void): Change {
  return {
    title: `${isNew ? "Add" : "Change"} group ${group.id}`, verb: isNew ? "Add" : "Change", done,
    draft: (text) => put(text, "group", group.id, groupSection(group)),
    apply: (_text, revision) => api.putGroup(group, revision),
  };
}

export function removeGroup(id: string): Change {
  return {
    title: `Remove group ${id}`, verb: "Remove", isDestructive: true,
    draft: (text) => remove(text, "group", id), apply: (_text, revision) => api.removeGroup(id, revision),
  };
}

export function removeUser(name: string): Change {
  return {
    title: `Remove user ${name}`, verb: "Remove", isDestructive: true,
    draft: (text) => remove(text, "user", name), apply: (_text, revision) => api.removeUser(name, revision),
  };
}

/** The document as somebody wrote it. */
export function applyDocument(text: string, comment: string, done: () => void): Change {
  return { title: "Apply the document", verb: "Apply", done, draft: () => text, apply: (_text, revision) => api.apply(text, comment, revision) };
}
