/** Which target exports which LUN to which host. Pure. */
import type { Session, Target } from "../api/types";

export interface Way {
  lun: string;
  targets: string[];
  hosts: string[];
}

/** LUNs in this order, each with the targets that export it and the initiators that see it. Pure. */
export function waysOf(luns: string[], targets: Target[], sessions: Session[]): Way[] {
  const of = new Map(luns.map((lun) => [lun, { lun, targets: new Set<string>(), hosts: new Set<string>() }]));
  for (const { spec } of targets) for (const { id } of spec.luns ?? []) of.get(id)?.targets.add(spec.name);
  for (const session of sessions) for (const { id } of session.luns) of.get(id)?.hosts.add(session.initiator);
  return [...of.values()].map(({ lun, targets: by, hosts }) => ({ lun, targets: [...by], hosts: [...hosts] }));
}

/** Names in the order in which they are met. */
export const names = (all: string[][]) => [...new Set(all.flat())];
/** What tells names apart comes last. */
export const short = (name: string) => name.split(":").at(-1) ?? name;

/** What people call the protocols of the API. */
export const PROTOCOLS: Record<string, string> = { iscsi: "iSCSI", nbd: "NBD", hyperscsi: "HyperSCSI" };
