// Edits of the configuration, on its model.
import { nameOf, Problem, storeOf } from "./model.mjs";

const missing = (what) => new Problem(404, "not-found", `there is no ${what}`);
const withoutEmpty = (thing) => Object.fromEntries(Object.entries(thing).filter(([, value]) => value !== "" && value?.length !== 0));

function find(model, kind, name) {
  const found = model[kind].find((each) => nameOf(kind, each) === name);
  if (!found) throw missing(`${kind} ${name}`);
  return found;
}

const secretless = ({ secret, mutual, no_mutual, ...rest }, name = rest.name) => ({
  ...rest, ...(secret && { secret_file: `secrets/${name}` }), ...(mutual && { mutual: secretless(mutual, name) }),
});

function add(model, thing) {
  const [[kind, whole]] = Object.entries(thing);
  if (kind === "view") {
    const { luns = [], ...target } = find(model, "target", whole.target);
    const { target: _target, lun, groups, ...rest } = whole;
    let free = 0;
    while (luns.some((view) => view.lun === free)) free += 1;
    const views = [...luns, { lun: lun ?? free, ...rest, ...(groups?.length && { groups }) }];
    Object.assign(find(model, "target", target.name), { luns: views });
    return;
  }
  if (kind === "device") {
    find(model, "hyperscsi", whole.hyperscsi).device.push(withoutEmpty(whole.device));
    return;
  }
  const name = nameOf(kind, whole);
  if (model[kind].some((each) => nameOf(kind, each) === name)) throw new Problem(409, "conflict", `${kind} "${name}" exists already; choose another name`);
  model[kind].push(kind === "user" ? secretless(whole) : withoutEmpty(kind === "hyperscsi" ? passwordless(whole, whole.name) : whole));
}

/** Its password is in a file of Tarn. */
const passwordless = ({ password, ...rest }, name) => ({ ...rest, ...(password && { password_file: `secrets/${name}` }) });

function setHyperscsi(model, { hyperscsi, ...keys }) {
  const group = find(model, "hyperscsi", hyperscsi);
  if (keys.open) delete group.password_file;
  else if (keys.password || keys.password_file) delete group.open;
  Object.assign(group, passwordless(keys, group.name));
  for (const [key, value] of Object.entries(group)) if (value === "") delete group[key];
}

function set(model, keys) {
  const [[kind, given]] = Object.entries(keys);
  if (kind === "hyperscsi") return setHyperscsi(model, given);
  if (kind === "device") {
    const { hyperscsi, id, ...rest } = given;
    return void Object.assign(find(model, "hyperscsi", hyperscsi).device.find((each) => each.id === id), rest);
  }
  const thing = find(model, kind, nameOf(kind, given));
  Object.assign(thing, kind === "user" ? secretless(given) : given);
  if (given.no_mutual) delete thing.mutual;
  for (const [key, value] of Object.entries(thing)) if (value === "" || value?.length === 0) delete thing[key];
  return undefined;
}

/** Makes a thing, or makes it so. */
function put(model, thing) {
  const [[kind, whole]] = Object.entries(thing);
  const at = model[kind].findIndex((each) => nameOf(kind, each) === nameOf(kind, whole));
  if (at < 0) add(model, thing);
  else model[kind][at] = withoutEmpty(whole);
}

function inUse(model, kind, name) {
  if (kind === "nbd" || kind === "quota" || kind === "store" || kind === "hyperscsi") return [];
  const users = model.target.filter((target) => (kind === "user" ? target.auth?.includes(name)
    : (target.luns ?? []).some((view) => (kind === "lun" ? view.id === name : view.groups?.includes(name)))));
  return users.map((target) => target.name);
}

function remove(model, named) {
  const [[kind, name]] = Object.entries(named);
  if (kind === "device") {
    const group = find(model, "hyperscsi", name.hyperscsi);
    group.device = group.device.filter(({ id }) => id !== name.id);
    return;
  }
  const at = model[kind].indexOf(find(model, kind, name));
  const by = inUse(model, kind, name);
  if (by.length > 0) throw new Problem(409, "conflict", `${kind} ${name} is used by ${by.join(", ")}; take it out there first`);
  model[kind].splice(at, 1);
}

function hide(model, { lun }) {
  for (const target of model.target) target.luns = (target.luns ?? []).filter(({ id }) => id !== lun);
}

/** Bytes with the largest suffix that leaves no rest. */
function sizeText(bytes) {
  const [suffix, power] = [["T", 4], ["G", 3], ["M", 2], ["k", 1], ["", 0]].find(([, each]) => bytes % 1024 ** each === 0);
  return `${bytes / 1024 ** power}${suffix}`;
}

function resize(model, { lun: id, size_bytes }) {
  const lun = find(model, "lun", id);
  if (size_bytes < storeOf(lun.store).size) throw new Problem(409, "refused", "a unit does not shrink; make a smaller one and copy");
  const store = lun.store.replace(/[?&]size=[^&]*/, "");
  lun.store = `${store}${store.includes("?") ? "&" : "?"}size=${sizeText(size_bytes)}`;
}

function rename(model, { lun, id }) {
  find(model, "lun", lun).id = id;
  for (const target of model.target) for (const view of target.luns ?? []) if (view.id === lun) view.id = id;
}

const EDITS = { add, put, set, remove, hide, resize, rename };

/** Makes one edit. */
export function makeEdit(model, edit) {
  const [[what, about]] = Object.entries(edit);
  if (!EDITS[what]) throw new Problem(400, "bad-request", `the mock knows no edit "${what}"`);
  EDITS[what](model, about);
}
