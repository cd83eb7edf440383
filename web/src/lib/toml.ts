/**
 * Changes to sections of the configuration document, as text: what the console previews with `POST /plan`. It knows
 * where sections begin and end and leaves everything outside of the one it changes as it is. Pure.
 *
 * Only arrays of tables are changed (`[[lun]]`), the form that the documentation shows; a document that writes them
 * as inline arrays is refused here and is for the editor of the page "Configuration".
 */
import type { Group, LunSpec, Portal, TargetLun, TargetSpec, User } from "../api/types";

export type Kind = "lun" | "target" | "group" | "user";
/** The key that names a thing of each kind. */
const NAME_KEY: Record<Kind, string> = { lun: "id", target: "name", group: "id", user: "name" };

/** A document that cannot be changed here. */
export class DraftError extends Error {}

interface Section {
  kind: string;
  name: string | undefined;
  /** Lines, the end not included; comments after the last key belong to what follows. */
  from: number;
  to: number;
}

/** A TOML string. */
export function quoted(text: string): string {
  const short: Record<string, string> = { '"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r" };
  const escaped = text.replace(/["\\\u0000-\u001f\u007f]/g, (character) =>
    short[character] ?? "\\u" + character.charCodeAt(0).toString(16).padStart(4, "0"));
  return `"${escaped}"`;
}

/** The text of a TOML string, basic or literal, at the beginning of `value`; `undefined` if there is none. */
function unquoted(value: string): string | undefined {
  const literal = /^'([^']*)'/.exec(value);
  if (literal) return literal[1];
  const basic = /^"(?:[^"\\]|\\.)*"/.exec(value);
  if (!basic) return undefined;
  try {
    // The escapes of JSON are those of TOML but for \UXXXXXXXX and \e, which no name needs.
    return JSON.parse(basic[0]) as string;
  } catch {
    return undefined;
  }
}

/** What is open at the end of a line: brackets, or one of the multi-line strings. */
interface Open {
  depth: number;
  quote: '"""' | "'''" | undefined;
}

const TOKEN = /"""|'''|"(?:[^"\\]|\\.)*"|'[^']*'|#|[[\]{}]|\\./g;

/** Follows one line, so that what looks like a header within a value is not taken for one. */
function follow(line: string, open: Open): Open {
  let { depth, quote } = open;
  for (const [token] of line.matchAll(TOKEN)) {
    if (quote) {
      if (token === quote) quote = undefined;
      continue;
    }
    if (token === "#") break;
    if (token === '"""' || token === "'''") quote = token;
    if (token === "[" || token === "{") depth += 1;
    if (token === "]" || token === "}") depth -= 1;
  }
  return { depth, quote };
}

const HEADER = /^\s*\[\[?\s*([A-Za-z0-9_-]+)\s*((?:\.[^\]]*)?)\]/;
const BLANK = /^\s*(#.*)?$/;

/** The sections of a document, in their order. `[target.x]` and `[[target.luns]]` belong to the target before them. */
function sectionsOf(lines: string[]): Section[] {
  const sections: Section[] = [];
  let open: Open = { depth: 0, quote: undefined };
  let isOwn = false;
  for (const [at, line] of lines.entries()) {
    const isTop = open.depth === 0 && !open.quote;
    const header = isTop ? HEADER.exec(line) : null;
    const last = sections.at(-1);
    if (header && !(header[2] && last?.kind === header[1])) {
      sections.push({ kind: header[1] ?? "", name: undefined, from: at, to: at + 1 });
      isOwn = true;
    } else if (last && (!isTop || !BLANK.test(line))) {
      last.to = at + 1;
      isOwn = isOwn && !header;
      const key = isTop && isOwn && /^\s*(id|name)\s*=\s*(.*)$/.exec(line);
      if (key && NAME_KEY[last.kind as Kind] === key[1]) last.name = unquoted(key[2] ?? "");
    }
    open = header ? { depth: 0, quote: undefined } : follow(line, open);
  }
  return sections;
}

/** Names are compared as the server compares them: those of targets without regard to case. */
const isSame = (kind: Kind, a: string | undefined, b: string) =>
  kind === "target" ? a?.toLowerCase() === b.toLowerCase() : a === b;

function refuseInline(kind: Kind, lines: string[]): void {
  if (lines.some((line) => new RegExp(`^\\s*${kind}\\s*=`).test(line))) {
    throw new DraftError(`the document writes its ${kind}s as one inline array; change it on the page "Configuration"`);
  }
}

/** The document with this section in the place of the one of that name, or at its end. */
export function put(text: string, kind: Kind, name: string, section: string): string {
  const lines = text.split("\n");
  refuseInline(kind, lines);
  const old = sectionsOf(lines).find((each) => each.kind === kind && isSame(kind, each.name, name));
  if (old) {
    lines.splice(old.from, old.to - old.from, ...section.split("\n"));
    return lines.join("\n");
  }
  return text.trimEnd() === "" ? section + "\n" : `${text.trimEnd()}\n\n${section}\n`;
}

/** The document without that section, and without the blank line before it. */
export function remove(text: string, kind: Kind, name: string): string {
  const lines = text.split("\n");
  refuseInline(kind, lines);
  const old = sectionsOf(lines).find((each) => each.kind === kind && isSame(kind, each.name, name));
  if (!old) throw new DraftError(`the document has no ${kind} ${name}; was it given on the command line?`);
  const before = old.from > 0 && lines[old.from - 1]?.trim() === "" ? 1 : 0;
  lines.splice(old.from - before, old.to - old.from + before);
  return lines.join("\n");
}

// --- the sections

const list = (values: string[]) => `[${values.map(quoted).join(", ")}]`;

function section(kind: Kind, keys: [string, string | undefined][]): string {
  const given = keys.filter(([, value]) => value !== undefined);
  return [`[[${kind}]]`, ...given.map(([key, value]) => `${key} = ${value}`)].join("\n");
}

const text = (value: string | undefined) => (value ? quoted(value) : undefined);
const many = (values: string[] | undefined) => (values?.length ? list(values) : undefined);

function inline(keys: [string, string | undefined][]): string {
  return `{ ${keys.filter(([, value]) => value !== undefined).map(([key, value]) => `${key} = ${value}`).join(", ")} }`;
}

function portal(value: Portal): string {
  if (!value.advertise && value.group === undefined) return quoted(value.bind);
  return inline([
    ["bind", quoted(value.bind)], ["advertise", text(value.advertise)],
    ["group", value.group === undefined ? undefined : String(value.group)],
  ]);
}

function view(value: TargetLun): string {
  return inline([
    ["lun", String(value.lun)], ["id", quoted(value.id)], ["groups", many(value.groups)],
    ["readonly", value.readonly ? "true" : undefined],
  ]);
}

const rows = (values: string[]) => (values.length ? `[\n${values.map((value) => `    ${value},`).join("\n")}\n]` : undefined);

export const lunSection = (lun: LunSpec) => section("lun", [
  ["id", quoted(lun.id)], ["store", quoted(lun.store)], ["serial", text(lun.serial)], ["naa", text(lun.naa)],
]);

export const groupSection = (group: Group) => section("group", [
  ["id", quoted(group.id)], ["initiators", list(group.initiators)],
]);

/** Without secrets, which are never in the document. */
export const userSection = (user: User) => section("user", [
  ["name", quoted(user.name)], ["secret_file", text(user.secret_file)],
  ["mutual", user.mutual && inline([["name", quoted(user.mutual.name)], ["secret_file", text(user.mutual.secret_file)]])],
]);

export const targetSection = (target: TargetSpec) => section("target", [
  ["name", quoted(target.name)], ["alias", text(target.alias)],
  ["portals", target.portals && `[${target.portals.map(portal).join(", ")}]`],
  ["auth", many(target.auth)], ["chap_algorithms", target.chap_algorithms && list(target.chap_algorithms)],
  ["cold_reset", target.cold_reset ? "true" : undefined],
  ["luns", rows((target.luns ?? []).map(view))],
]);
