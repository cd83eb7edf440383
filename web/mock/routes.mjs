// The REST paths, one function for each.
import { randomBytes } from "node:crypto";
import { makeEdit } from "./edits.mjs";
import { figures, hyperscsi, places, quotaView, space } from "./past.mjs";
import { Problem, nameOf, check, render, storeOf } from "./model.mjs";
import { access, findings, lunView, targetView } from "./views.mjs";

const RANK = { metrics: 0, viewer: 1, operator: 2, admin: 3 };
const missing = (what) => new Problem(404, "not-found", `there is no ${what}`);

function loginOf({ world, request }) {
  const cookie = /tarn=([0-9a-f]+)/.exec(request.headers.cookie ?? "")?.[1];
  const login = world.logins.get(cookie);
  if (!login) throw new Problem(401, "unauthorized", "log in with a token; tarn token add NAME makes one");
  return { cookie, ...login };
}

function demand(context, role) {
  const login = loginOf(context);
  if (context.request.method !== "GET" && context.request.headers["x-tarn-csrf"] !== login.csrf) {
    throw new Problem(403, "forbidden", "the header X-Tarn-CSRF is missing or wrong");
  }
  if (RANK[login.role] < RANK[role]) throw new Problem(403, "forbidden", `this needs the role ${role}; the token ${login.name} has ${login.role}`);
  return login;
}

function login({ world, body }) {
  const token = world.tokens.find((each) => each.token === body?.token);
  if (!token) throw new Problem(401, "unauthorized", "this token is not known; tarn token list shows the names of those there are");
  const [cookie, csrf] = [randomBytes(16).toString("hex"), randomBytes(16).toString("hex")];
  world.logins.set(cookie, { name: token.name, role: token.role, csrf });
  return { body: { role: token.role, csrf }, headers: { "Set-Cookie": `tarn=${cookie}; HttpOnly; SameSite=Strict; Path=/` } };
}

function status(world) {
  const { configuration, load } = world;
  const { model } = configuration;
  return {
    version: "0.1.0", pid: 4711, started_ms: load.started, now_ms: Date.now(), revision: configuration.document.revision,
    config_file: "/etc/tarn/tarn.toml", state_directory: "/var/lib/tarn", cores: load.cores.length, luns: model.lun.length,
    targets: model.target.length, sessions: load.sessions.length, findings: findings(model),
  };
}

function applied(context, text, comment) {
  const { world, only, isPlan } = context;
  const { configuration, load } = world;
  if (isPlan) return configuration.plan(text, load.sessions);
  const author = demand(context, "viewer").name;
  const before = configuration.document.revision;
  const result = configuration.apply(text, { comment, author, only, sessions: load.sessions });
  load.end(result.steps.flatMap((step) => step.sessions_ended ?? []));
  if (result.revision !== before) world.note("info", "config-applied", `revision ${result.revision}: ${result.steps.length} ${result.steps.length === 1 ? "step" : "steps"}`, { author });
  return result;
}

function resource(context, kind) {
  const { world, request, parts: [, name, action] } = context;
  if (kind === "lun" && action === "snapshots") return snapshotsOf(context, name);
  if (kind === "lun" && action === "reservations") return reservationsOf(context, name);
  const { model } = world.configuration;
  const moves = kind === "lun" && request.method === "POST";
  demand(context, moves ? "operator" : "viewer");
  const shown = { store: (spec) => spec, nbd: (spec) => spec, quota: (spec) => quotaView(model, spec), lun: (spec) => lunView(model, spec, world.ejected), target: (spec) => targetView(spec, world.load.sessions), group: (spec) => spec, user: (spec) => spec }[kind];
  if (name === undefined) return { body: model[kind].map(shown) };
  const found = model[kind].find((each) => nameOf(kind, each) === name);
  if (!found) throw missing(`${kind} ${name}`);
  if (moves) moveMedium(world, found, action);
  return { body: shown(found) };
}

/** What is at `luns/ID/reservations`. */
function reservationsOf(context, id) {
  const { world, parts: [, , , action] } = context;
  const spec = world.configuration.model.lun.find((each) => each.id === id);
  if (!spec) throw missing(`lun ${id}`);
  demand(context, action === "clear" ? "admin" : "viewer");
  if (action !== "clear") return { body: world.reservations.get(id) ?? { registered: 0, aptpl: false, lost: false } };
  world.reservations.delete(id);
  return { body: lunView(world.configuration.model, spec, world.ejected) };
}

/** What is at `luns/ID/snapshots`. */
function snapshotsOf(context, id) {
  const { world, request, parts: [, , , name, action], body } = context;
  const spec = world.configuration.model.lun.find((each) => each.id === id);
  if (!spec) throw missing(`lun ${id}`);
  demand(context, name === undefined ? "viewer" : "admin");
  fileOf(spec);
  const own = world.snapshots.filter(({ lun }) => lun === id);
  if (name === undefined) return { body: own };
  const found = own.find((each) => each.name === name);
  if (!found) throw missing(`snapshot ${name}`);
  if (action === "clone") {
    const model = structuredClone(world.configuration.model);
    makeEdit(model, { add: body });
    return { body: applied(context, render(model), `lun ${body.lun.id} from ${id}@${name}`) };
  }
  if (action === "rollback") {
    world.note("info", "snapshot-restored", `lun ${id}: snapshot ${name}: it has the data again`, { lun: id });
    return { body: { lun: id } };
  }
  if (action === undefined) {
    world.snapshots.splice(world.snapshots.indexOf(found), 1);
    world.note("info", "snapshot-removed", `lun ${id}: snapshot ${name}: it is removed`, { lun: id });
  }
  return { status: 204 };
}

/** The file of a unit; others have no snapshots. */
function fileOf({ id, store }) {
  const { kind, path } = storeOf(store);
  if (kind !== "file") throw new Problem(409, "conflict", `lun "${id}" has no snapshots, because its store is no file`);
  return path;
}

/** `POST /snapshots` */
function takeSnapshots(context) {
  const { world, body: { luns, name = new Date().toISOString().slice(0, 19).replaceAll(":", "-") + "Z" } } = context;
  demand(context, "operator");
  const { model } = world.configuration;
  const taken = luns.map((lun) => {
    const spec = model.lun.find(({ id }) => id === lun);
    if (!spec) throw missing(`lun ${lun}`);
    const path = `${fileOf(spec)}.snapshots/${name}`;
    if (world.snapshots.some((each) => each.path === path)) throw new Problem(409, "conflict", `there is a snapshot ${name} already`);
    return { lun, name, path, size_bytes: lunView(model, spec, world.ejected).size_bytes, taken_ms: Date.now() };
  });
  world.snapshots.push(...taken);
  for (const { lun } of taken) world.note("info", "snapshot-taken", `lun ${lun}: snapshot ${name} is taken`, { lun });
  return { status: 201, body: { snapshots: taken, paused_us: 900 } };
}

/** `POST /luns/ID/eject` and `load`. */
function moveMedium(world, { id, store }, action) {
  if (!storeOf(store).removable) throw new Problem(409, "conflict", `the medium of lun "${id}" is fixed`);
  if (action === "eject") {
    world.ejected.add(id);
    world.note("info", "medium-ejected", "its medium is out", { lun: id });
  } else {
    world.ejected.delete(id);
    world.note("info", "medium-loaded", "its medium is in", { lun: id });
  }
}

/** `POST /config/edits`: all of them or none. */
function edits(context) {
  const { world, body, isPlan } = context;
  const isSmall = body.edits.every((edit) => edit.resize || edit.rename);
  demand(context, isSmall || isPlan ? "operator" : "admin");
  const model = structuredClone(world.configuration.model);
  for (const edit of body.edits) makeEdit(model, edit);
  return { body: applied(context, render(model), body.comment) };
}

function sessions(context) {
  const { world, request, parts: [, id] } = context;
  demand(context, request.method === "GET" ? "viewer" : "operator");
  const { load } = world;
  if (id === undefined) return { body: load.sessions.map((session) => load.view(session)) };
  const session = load.sessions.find((each) => each.id === Number(id));
  if (!session) throw missing(`session ${id}`);
  if (request.method === "GET") return { body: load.view(session) };
  load.end([session.id]);
  world.note("info", "session-ended", `session ${id} of ${session.initiator} was ended by an administrator`, { initiator: session.initiator, target: session.target });
  return { status: 204 };
}

function config(context) {
  const { world, request, parts: [, action, revision], body } = context;
  const { configuration } = world;
  if (action === "edits") return edits(context);
  demand(context, request.method === "GET" ? "viewer" : "admin");
  const kept = (number) => configuration.kept.find((each) => each.revision === Number(number)) ?? null;
  if (request.method === "PUT") return { body: applied(context, body.text, body.comment) };
  if (action === undefined) return { body: configuration.document };
  if (action === "effective") return { body: { ...configuration.document, text: render(configuration.model) } };
  if (action === "rollback") {
    const old = kept(body.revision);
    if (!old) throw missing(`revision ${body.revision}`);
    return { body: applied(context, old.text, body.comment ?? `back to ${body.revision}`) };
  }
  if (revision === undefined) return { body: configuration.kept.map(({ text, ...rest }) => rest) };
  const old = kept(revision);
  if (!old) throw missing(`revision ${revision}`);
  return { body: { revision: old.revision, text: old.text } };
}

function tokens(context) {
  const { world, request, parts: [, name], body } = context;
  demand(context, "admin");
  if (request.method === "POST") {
    if (world.tokens.some((token) => token.name === body.name)) throw new Problem(409, "conflict", `there is a token ${body.name}; choose another name`);
    const token = { ...body, made_ms: Date.now(), token: randomBytes(32).toString("base64url") };
    world.tokens.push(token);
    return { status: 201, body: token };
  }
  if (request.method === "DELETE") {
    world.tokens = world.tokens.filter((token) => token.name !== name);
    return { status: 204 };
  }
  return { body: world.tokens.map(({ token, ...rest }) => rest) };
}

const SEVERITIES = ["info", "warning", "error"];

/** Those that are asked for; without a number, the newest. */
function eventsOf(world, query) {
  const most = Number(query.get("most") ?? 100);
  const least = SEVERITIES.indexOf(query.get("severity") ?? "info");
  const found = world.events.filter((event) => event.number > Number(query.get("after") ?? 0) && event.at_ms >= Number(query.get("since") ?? 0)
    && SEVERITIES.indexOf(event.severity) >= least && (!query.get("kind") || event.kind === query.get("kind"))
    && ["lun", "target", "initiator"].every((key) => !query.get(key) || event[key] === query.get(key))
    && (!query.get("user") || event.user === query.get("user") || event.author === query.get("user")));
  return query.has("after") ? found.slice(0, most) : found.slice(-most);
}

function live({ world, request, response, query }) {
  response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
  const after = Number(query.get("after") ?? 0);
  for (const event of world.events.filter(({ number }) => number > after)) response.write(`event: event\ndata: ${JSON.stringify(event)}\n\n`);
  response.write(`event: stats\ndata: ${JSON.stringify(world.load.stats())}\n\n`);
  world.streams.add(response);
  request.on("close", () => world.streams.delete(response));
}

const reading = (answer) => (context) => {
  demand(context, "viewer");
  return { body: answer(context) };
};

const TABLE = {
  login, sessions, config, tokens, snapshots: takeSnapshots,
  luns: (context) => resource(context, "lun"),
  targets: (context) => resource(context, "target"),
  groups: (context) => resource(context, "group"),
  users: (context) => resource(context, "user"),
  stores: (context) => resource(context, "store"),
  nbd: (context) => resource(context, "nbd"),
  quotas: (context) => resource(context, "quota"),
  hyperscsi: reading(({ world }) => hyperscsi(world)),
  checks: reading(({ world }) => world.checks),
  space: reading(({ world }) => space(world.configuration.model)),
  figures: reading(({ world, query }) => figures(world, query.get("range") ?? "1h", query.get("lun") ?? undefined)),
  places: (context) => {
    demand(context, "admin");
    return { body: places(context.world.configuration.model) };
  },
  status: reading(({ world }) => status(world)),
  findings: reading(({ world }) => findings(world.configuration.model)),
  stats: reading(({ world }) => world.load.stats()),
  traces: reading(({ world }) => world.load.sessions.slice(0, 1).map(({ initiator }) => ({
    subject: initiator, since_ms: Date.now() - 6e5, data_bytes: 64, keep_bytes: 1 << 20, pdus: 4210, dropped: 118,
  }))),
  access: reading(({ world, query }) => access(world.configuration.model, { initiator: query.get("initiator"), user: query.get("user") ?? undefined })),
  events: reading(({ world, query }) => eventsOf(world, query)),
  whoami: (context) => {
    const { role, csrf } = loginOf(context);
    return { body: { role, csrf } };
  },
  logout: (context) => {
    context.world.logins.delete(demand(context, "metrics").cookie);
    return { status: 204 };
  },
  plan: (context) => {
    demand(context, "viewer");
    check(context.body?.text ?? "");
    return { body: context.world.configuration.plan(context.body.text, context.world.load.sessions) };
  },
  live: (context) => {
    demand(context, "viewer");
    live(context);
  },
};

/** The answer of a request: `{status, body, headers}`, or nothing if it was answered already. */
export function routes(context) {
  const route = TABLE[context.parts[0]];
  if (!route) throw missing(`path ${context.request.url}`);
  return route(context);
}
