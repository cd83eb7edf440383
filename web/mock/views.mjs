// What the mock tells of the things of its configuration.
import { createHash } from "node:crypto";
import { nameOf, storeOf } from "./model.mjs";

const digest = (text) => createHash("sha256").update(text).digest("hex");

/** `ejected`: ids of units whose medium is out. */
export function lunView(model, spec, ejected) {
  const store = storeOf(spec.store);
  const shown_by = model.target.flatMap((target) => (target.luns ?? []).filter(({ id }) => id === spec.id)
    .map(({ lun, groups, readonly }) => ({ target: target.name, lun, groups: groups ?? [], readonly: readonly ?? false })));
  const has = ({ luns }) => luns?.includes(spec.id);
  const served_by = [
    ...(model.nbd ?? []).filter(has).map((server) => ({ protocol: "nbd", name: nameOf("nbd", server), device: spec.id, groups: server.groups ?? [], readonly: store.readonly })),
    ...(model.hyperscsi ?? []).flatMap((group) => (group.device ?? []).filter(({ id }) => id === spec.id)
      .map(({ level, readonly }) => ({ protocol: "hyperscsi", name: nameOf("hyperscsi", group), device: spec.id, readonly: readonly ?? false, level: level ?? "encrypt" }))),
  ];
  return {
    spec, kind: store.kind, type: "disk", size_bytes: store.size, block_bytes: store.block, readonly: store.readonly, cache: store.cache,
    thin: store.kind !== "block", serial: spec.serial ?? digest(spec.id).slice(0, 16).toUpperCase(),
    naa: spec.naa ?? `3${digest(spec.id).slice(0, 15)}`, shown_by, served_by,
    ...(store.removable && { medium: { loaded: !ejected.has(spec.id), prevented_by: [] } }),
  };
}

export function targetView(spec, sessions) {
  const portals = (spec.portals ?? ["127.0.0.1:3260"]).map((portal) => (typeof portal === "string" ? { bind: portal } : portal));
  return {
    spec: { ...spec, portals }, bound: portals.map(({ bind }) => bind),
    sessions: sessions.filter(({ target }) => target === spec.name).length,
  };
}

const asPattern = (text) => new RegExp(`^${text.replace(/[.+^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".")}$`, "i");

/** The dry run of the rules of access, without networks. */
export function access(model, { initiator, user }) {
  const inGroup = (id) => model.group.find((group) => group.id === id)?.initiators
    .some((entry) => (user && entry === `user:${user}`) || asPattern(entry).test(initiator));
  const targets = model.target.map((target) => {
    const isKnown = !target.auth?.length || (user !== undefined && target.auth.includes(user));
    const luns = (target.luns ?? []).filter(({ groups }) => !groups?.length || groups.some(inGroup))
      .map(({ lun, id, readonly }) => ({ lun, id, readonly: readonly ?? false }));
    const may_login = isKnown && (luns.length > 0 || !target.luns?.length);
    const reason = !isKnown ? "it must prove to be a user of auth" : luns.length > 0 ? "it belongs to a group that sees units, or units are for everyone"
      : "no group that sees a unit has it";
    return {
      protocol: "iscsi", target: target.name, may_login, needs_chap: Boolean(target.auth?.length), needs_password: false,
      is_discovered: may_login, reason, luns: may_login ? luns : [],
    };
  });
  const groups = (model.hyperscsi ?? []).map((group) => ({
    protocol: "hyperscsi", target: nameOf("hyperscsi", group), may_login: true, needs_chap: false, needs_password: !group.open, is_discovered: true,
    reason: group.open ? "it needs no password, and is for all that reach it" : "it is for all that have its password",
    luns: (group.device ?? []).map(({ id, level, readonly }, at) => ({ lun: at + 1, id, readonly: readonly ?? false, level: level ?? "encrypt" })),
  }));
  const servers = (model.nbd ?? []).filter(({ groups }) => !groups?.length).map((server) => ({
    protocol: "nbd", target: nameOf("nbd", server), may_login: true, needs_chap: false, needs_password: false, is_discovered: true,
    reason: "it is for all that reach it", luns: (server.luns ?? []).map((id) => ({ lun: 0, id, readonly: false })),
  }));
  return [...targets, ...servers, ...groups];
}

/** What `tarn doctor` would say. */
export function findings(model) {
  const open = model.target.filter((target) => !target.auth?.length && (target.portals ?? []).includes("0.0.0.0:3260"));
  return [
    ...open.map(({ name }) => ({
      severity: "warning", code: "config", subject: "", message: `target ${name} is open without CHAP to everyone who can connect to 0.0.0.0:3260`,
      remedy: "change the configuration if this is a mistake",
    })),
    ...model.lun.filter(({ store }) => store.includes("writethrough")).map(({ id }) => ({
      severity: "info", code: "write-cache", subject: id, message: "cache=writethrough: each write waits for the disk, 2.2 ms at the median",
      remedy: "if its initiators flush, as file systems and databases do, take cache=writeback",
    })),
  ];
}
