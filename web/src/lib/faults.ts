/** What the server has found wrong with a wish, by the field of the wizard that has it. Pure. */
import type { Mistake, Plan, Problem } from "../api/types";
import { asks } from "./wish";
import type { Wish } from "./wish";

export type Faults = Partial<Record<keyof Wish, string>>;

/** The step of the wizard that asks for a field; those of the first step are not here. */
const STEP_OF: Partial<Record<keyof Wish, number>> = { newTarget: 1, portal: 1, newGroup: 2, initiators: 2, newUser: 2, secret: 2 };
export const stepOf = (field: keyof Wish): number => STEP_OF[field] ?? 0;

/** A place as the server writes it, as `lun "a": store` or `target "iqn.x": portals[0]`. */
const PLACE = /^(lun|target|group|user) "([^"]*)"(?:: (\w+)[^:]*)?/;

function fieldOf(wish: Wish, kind: string, name: string, key: string | undefined): keyof Wish | undefined {
  if (kind === "lun" && name === wish.id) {
    const store = asks(wish.kind).path ? "path" : "size";
    return ({ id: "id", log: "log", sync_bias: "log" } as const)[key ?? ""] ?? store;
  }
  const isTarget = kind === "target" && name.toLowerCase() === wish.newTarget.toLowerCase();
  if (!wish.target && isTarget) return key === "name" ? "newTarget" : "portal";
  if (kind === "group" && name === wish.newGroup) return key === "id" ? "newGroup" : "initiators";
  return kind === "user" && name === wish.newUser ? "secret" : undefined;
}

/** All that is said against it, in the order in which it is said. */
function textsOf(said: Plan | Problem): Mistake[] {
  if (!("steps" in said)) return [said, ...(said.mistakes ?? [])];
  const refused = said.steps.filter(({ effect }) => effect === "refused").map(({ kind, name, reason = "" }) => {
    const place = PLACE.exec(reason)?.[0];
    return place && reason.startsWith(`${place}: `) ? { place, detail: reason.slice(place.length + 2) } : { place: `${kind} "${name}"`, detail: reason };
  });
  return [...(said.mistakes ?? []), ...refused];
}

/** The first that is said against each field. */
export function faultsOf(wish: Wish, said: Plan | Problem): Faults {
  const faults: Faults = {};
  for (const { place, detail } of textsOf(said)) {
    const [, kind = "", name = "", key] = PLACE.exec(place ?? "") ?? [];
    const field = fieldOf(wish, kind, name, key);
    if (field) faults[field] ??= detail;
  }
  return faults;
}

export const fieldsOf = (faults: Faults) => Object.keys(faults) as (keyof Wish)[];
