/** The changes that pages offer, each as the edits it is made of. */
import type { Edit, Group, Lun, TargetSpec, User } from "../api/types";
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
export function putTarget(target: TargetSpec, isNew: boolean, done: () => void): Change {
  const { name, alias = "", portals = [], auth = [], luns = [] } = target;
  const edit: Edit = isNew ? { add: { target } } : { set: { target: { name, alias, portals, auth, luns } } };
  return { title: `${isNew ? "Add" : "Change"} target ${name}`, verb: isNew ? "Add" : "Change", done, edits: [edit] };
}

export function putGroup(group: Group, isNew: boolean, done: () => void): Change {
  return {
    title: `${isNew ? "Add" : "Change"} group ${group.id}`, verb: isNew ? "Add" : "Change", done,
    edits: [isNew ? { add: { group } } : { set: { group } }],
  };
}

/** A new user, or other secrets of one that there is: a secret that is not given stays. */
export function userEdit(user: User, isNew: boolean): Edit {
  return isNew ? { add: { user } } : { set: { user: { ...user, no_mutual: user.mutual === undefined } } };
}

type Removable = "target" | "group" | "user";

export function remove(kind: Removable, name: string): Change {
  const named = { target: { target: name }, group: { group: name }, user: { user: name } }[kind];
  return { title: `Remove ${kind} ${name}`, verb: "Remove", isDestructive: true, edits: [{ remove: named }] };
}
