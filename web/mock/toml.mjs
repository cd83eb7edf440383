// As much of TOML as configurations use: tables, arrays of tables, strings, numbers, booleans, arrays, inline tables.

export class TomlError extends Error {
  constructor(line, message) {
    super(message);
    this.line = line;
  }
}

/** Reads a document into plain objects. */
export function parse(text) {
  const state = { text, at: 0 };
  const root = {};
  let table = root;
  for (skip(state, true); state.at < text.length; skip(state, true)) {
    if (peek(state) === "[") table = header(state, root);
    else {
      const path = keys(state);
      expect(state, "=");
      put(state, table, path, value(state));
    }
    skip(state, false);
    if (state.at < text.length && peek(state) !== "\n") fail(state, "one key or table a line");
  }
  return root;
}

const peek = (state) => state.text[state.at];
const lineOf = (state) => state.text.slice(0, state.at).split("\n").length;

function fail(state, message) {
  throw new TomlError(lineOf(state), message);
}

function skip(state, newlines) {
  const space = newlines ? /(?:[ \t\r\n]|#[^\n]*)*/y : /(?:[ \t\r]|#[^\n]*)*/y;
  space.lastIndex = state.at;
  state.at += space.exec(state.text)[0].length;
}

function expect(state, character) {
  skip(state, false);
  if (peek(state) !== character) fail(state, `expected "${character}"`);
  state.at += 1;
  skip(state, false);
}

function match(state, pattern) {
  pattern.lastIndex = state.at;
  const found = pattern.exec(state.text);
  if (found) state.at += found[0].length;
  return found?.[0];
}

function string(state) {
  const literal = match(state, /'[^'\n]*'/y);
  if (literal !== undefined) return literal.slice(1, -1);
  const basic = match(state, /"(?:[^"\\\n]|\\.)*"/y);
  return basic === undefined ? undefined : JSON.parse(basic);
}

function keys(state) {
  const path = [];
  do {
    skip(state, false);
    const key = string(state) ?? match(state, /[A-Za-z0-9_-]+/y);
    if (key === undefined) fail(state, "expected a key");
    path.push(key);
    skip(state, false);
  } while (peek(state) === "." && ++state.at);
  return path;
}

function put(state, table, path, given) {
  for (const key of path.slice(0, -1)) table = table[key] ??= {};
  if (path.at(-1) in table) fail(state, `${path.join(".")} is there twice`);
  table[path.at(-1)] = given;
}

function header(state, root) {
  const isArray = state.text.startsWith("[[", state.at);
  state.at += isArray ? 2 : 1;
  const path = keys(state);
  for (let bracket = isArray ? 2 : 1; bracket > 0; bracket -= 1) expect(state, "]");
  let table = root;
  for (const key of path.slice(0, -1)) {
    table = table[key] ??= {};
    if (Array.isArray(table)) table = table.at(-1);
  }
  if (!isArray) return table[path.at(-1)] ??= {};
  const list = table[path.at(-1)] ??= [];
  list.push({});
  return list.at(-1);
}

function value(state) {
  const text = string(state);
  if (text !== undefined) return text;
  if (peek(state) === "[") return array(state);
  if (peek(state) === "{") return inline(state);
  const word = match(state, /[A-Za-z0-9_+.-]+/y);
  if (word === "true" || word === "false") return word === "true";
  if (word === undefined || Number.isNaN(Number(word))) fail(state, "expected a value");
  return Number(word);
}

function array(state) {
  const list = [];
  state.at += 1;
  for (skip(state, true); peek(state) !== "]"; skip(state, true)) {
    list.push(value(state));
    skip(state, true);
    if (peek(state) === ",") state.at += 1;
    else if (peek(state) !== "]") fail(state, 'expected "," or "]"');
  }
  state.at += 1;
  return list;
}

function inline(state) {
  const table = {};
  state.at += 1;
  for (skip(state, false); peek(state) !== "}"; skip(state, false)) {
    const path = keys(state);
    expect(state, "=");
    put(state, table, path, value(state));
    skip(state, false);
    if (peek(state) === ",") state.at += 1;
    else if (peek(state) !== "}") fail(state, 'expected "," or "}"');
  }
  state.at += 1;
  return table;
}
