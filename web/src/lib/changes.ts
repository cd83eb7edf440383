/** The changes that pages offer, each as the edits it is made of. */
import type { Edit, Group, HyperscsiDeviceSpec, HyperscsiKeys, HyperscsiSpec, Lun, Name, TargetLun, TargetSpec, Thing, User } from "../api/types";
import type { Change } from "../ui/change";
import { bytes } from "./units";

export function resize({ spec: { id } }: Lun, size_bytes: number): Change {
  return { title: `Resize ${id} to ${bytes(size_bytes)}`, verb: "Resize", edits: [{ resize: { lun: id, size_bytes } }] };
}

export function rename({ spec: { id } }: Lun, to: string, done: () => void): Change {
  return { title: `Rename ${id} to ${to}`, verb: "Rename", done, edits: [{ rename: { lun: id, id: to } }] };
}

/** Takes a unit from every target that shows it, and away. Its data stays where it is. */
export function removeLun({ spec: { id } }: Lun, done: () => void): Change {
  const edits: Edit[] = [{ hide: { lun: id } }, { remove: { lun: id } }];
  return { title: `Remove ${id}`, verb: "Remove", isDestructive: true, done, edits };
}

/** A new target, or what differs of one that there is: what the form does not have stays as it is written. */
export function putTarget(target: TargetSpec, old: TargetSpec | null, done: () => void): Change {
  const { name, alias = "", portals = [], auth = [] } = target;
  const edit: Edit = old === null ? { add: { target } } : { set: { target: { name, alias, portals, auth } } };
  return { title: `${old === null ? "Add" : "Change"} target ${name}`, verb: old === null ? "Add" : "Change", done, edits: [edit] };
}

/** What a target exports, all of it. */
export function putViews({ name }: TargetSpec, luns: TargetLun[], title: string, verb: string, done: () => void): Change {
  return { title, verb, isDestructive: verb === "Remove", done, edits: [{ set: { target: { name, luns } } }] };
}

/** A section of its own, as `[[store]]`: made, or made so. */
export function putThing(thing: Thing, kind: string, name: string, isNew: boolean, done: () => void): Change {
  const verb = isNew ? "Add" : "Change";
  return { title: `${verb} ${kind} ${name}`, verb, done, edits: [isNew ? { add: thing } : { put: thing }] };
}

export function putGroup(group: Group, isNew: boolean, done: () => void): Change {
  return {
    title: `${isNew ? "Add" : "Change"} group ${group.id}`, verb: isNew ? "Add" : "Change", done,
    edits: [isNew ? { add: { group } } : { set: { group } }],
  };
}

/** A new group of HyperSCSI, with its first device. */
export function addHyperscsi(hyperscsi: HyperscsiSpec, done: () => void): Change {
  return { title: `Add group ${hyperscsi.name}`, verb: "Add", done, edits: [{ add: { hyperscsi } }] };
}

/** Other keys of a group of HyperSCSI. What is not given, such as the password, stays as it is. */
export function setHyperscsi(hyperscsi: HyperscsiKeys, done: () => void): Change {
  return { title: `Change group ${hyperscsi.hyperscsi}`, verb: "Change", done, edits: [{ set: { hyperscsi } }] };
}

/** A device of a group of HyperSCSI: a new one, or the one of its unit. */
export function putDevice(group: string, device: HyperscsiDeviceSpec, isNew: boolean, done: () => void): Change {
  const { id, level = "encrypt", readonly = false } = device;
  const edit: Edit = isNew ? { add: { device: { hyperscsi: group, device } } } : { set: { device: { hyperscsi: group, id, level, readonly } } };
  return { title: `${isNew ? "Add" : "Change"} device ${id} of ${group}`, verb: isNew ? "Add" : "Change", done, edits: [edit] };
}

export function removeDevice(group: string, id: string): Change {
  return { title: `Remove device ${id} from ${group}`, verb: "Remove", isDestructive: true, edits: [{ remove: { device: { hyperscsi: group, id } } }] };
}

/** A new user, or other secrets of one that there is: a secret that is not given stays. */
export function userEdit(user: User, isNew: boolean): Edit {
  return isNew ? { add: { user } } : { set: { user: { ...user, no_mutual: user.mutual === undefined } } };
}

type Removable = "target" | "group" | "user" | "store" | "nbd" | "quota" | "hyperscsi";

export function remove(kind: Removable, name: string): Change {
  const named = { [kind]: name } as Name;
  const words: Partial<Record<Removable, string>> = { hyperscsi: "group", nbd: "NBD server" };
  return { title: `Remove ${words[kind] ?? kind} ${name}`, verb: "Remove", isDestructive: true, edits: [{ remove: named }] };
}
