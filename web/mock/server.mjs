// A server with the REST paths of Tarn and nothing behind them: for work on the console without a daemon, for its tests
// and for screenshots. State is in memory.
//
//     node mock/server.mjs [--port 3451] [--empty | --large] [--dist DIRECTORY]
//
// Tokens: admin-token, operator-token, viewer-token.
import { createReadStream, existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Load } from "./load.mjs";
import { large, LARGE_SESSIONS } from "./large.mjs";
import { Configuration, Problem } from "./model.mjs";
import { checksOf } from "./past.mjs";
import { routes } from "./routes.mjs";

const { values: flags } = parseArgs({
  options: { port: { type: "string", default: "3451" }, empty: { type: "boolean", default: false }, large: { type: "boolean", default: false }, dist: { type: "string" } },
});
const here = fileURLToPath(new URL(".", import.meta.url));
const dist = flags.dist ?? join(here, "../dist");
const BODY_BYTES_MAX = 1 << 20;
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
// As the daemon sends it: whatever needs more than this fails here too.
const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/** A cluster whose holder is gone. */
function reservations() {
  const nexus = (host, has_session) => ({ transport: "iscsi", initiator: `iqn.1993-08.org.debian:01:${host}`, isid: "00023d000001", target_port: 1, has_session });
  const [a, b] = [nexus("node-a", false), nexus("node-b", true)];
  const since_ms = Date.now() - 36e5;
  return {
    type: "write-exclusive-registrants-only", holder: a, since_ms, registered: 2, aptpl: true, lost: false,
    registrations: [{ nexus: a, key: "0x00000000000a0001", holder: true, since_ms }, { nexus: b, key: "0x00000000000b0001", holder: false }],
  };
}

const empty = "# Nothing is configured yet.\n";
const demo = readFileSync(join(here, "demo.toml"), "utf8");
const configuration = new Configuration(flags.empty ? empty : flags.large ? large() : demo);
const load = new Load(configuration, flags.large ? LARGE_SESSIONS : 0);
const world = {
  configuration, load, checks: checksOf(readFileSync(join(here, "../../docs/reference/cli.md"), "utf8")), events: [], logins: new Map(), streams: new Set(), ejected: new Set(), snapshots: [],
  reservations: new Map(configuration.model.lun.slice(0, 1).map(({ id }) => [id, reservations()])),
  tokens: ["admin", "operator", "viewer"].map((role) => ({ name: role, role, made_ms: Date.now() - 9e7, token: `${role}-token` })),
  note(severity, kind, message, about = {}) {
    const event = { number: (this.events.at(-1)?.number ?? 0) + 1, at_ms: Date.now(), severity, kind, message, ...about };
    this.events.push(event);
    for (const stream of this.streams) stream.write(`event: event\ndata: ${JSON.stringify(event)}\n\n`);
  },
};
for (const { initiator, address, target } of load.sessions) {
  world.note("info", "session-began", `${initiator} from ${address} logged in to ${target}`, { initiator, target });
}
if (flags.large) {
  for (let at = 0; at < 2000; at += 1) {
    const lun = `disk${at % 300}`;
    world.note(at % 7 ? "info" : "warning", at % 7 ? "lun-resized" : "store-error", `lun ${lun}: ${at % 7 ? "it has another size" : "a write failed (EIO)"}`, { lun });
  }
}
if (!flags.empty) {
  world.note("warning", "login-failed", "192.0.2.77: CHAP of user bob failed", { initiator: "iqn.1993-08.org.debian:01:test" });
  world.note("warning", "slow-command", "backup, iqn.1993-08.org.debian:01:test: WRITE (10), 256 blocks at 4096, 131072 bytes: GOOD after 5.120 s, data 0.020 s, store 5.098 s; session 4242, task 0x0000002a", {
    lun: "backup",
    command: {
      session: 4242, task_tag: 42, name: "WRITE (10)", lba: 4096, blocks: 256, bytes: 131_072, took_us: 5_120_000, outcome: "GOOD", core_us: 2000, untold: 0,
      phases: [{ phase: "data", from_us: 1000, us: 20_000 }, { phase: "store", from_us: 21_000, us: 5_098_000 }],
    },
  });
}

async function bodyOf(request) {
  const parts = [];
  let size = 0;
  for await (const part of request) {
    size += part.length;
    if (size > BODY_BYTES_MAX) throw new Problem(413, "too-large", `a body has at most ${BODY_BYTES_MAX} bytes`);
    parts.push(part);
  }
  if (size === 0) return undefined;
  try {
    return JSON.parse(Buffer.concat(parts).toString("utf8"));
  } catch {
    throw new Problem(400, "bad-request", "the body is not JSON");
  }
}

function send(response, status, body, headers = {}) {
  const type = status >= 400 ? "application/problem+json" : "application/json";
  response.writeHead(status, { "Content-Type": type, "Cache-Control": "no-store", ...headers });
  response.end(body === undefined ? "" : JSON.stringify(body));
}

async function answer(request, response, url) {
  const parts = url.pathname.slice("/api/v1/".length).split("/").map(decodeURIComponent);
  const context = {
    world, request, response, query: url.searchParams, isPlan: url.searchParams.get("plan") === "true", parts, body: await bodyOf(request),
    only: request.headers["if-match"] ? Number(request.headers["if-match"].replaceAll('"', "")) : undefined,
  };
  const result = routes(context);
  if (result === undefined) return;
  const { status = 200, body, headers } = result;
  send(response, status, body, { ETag: `"${configuration.document.revision}"`, ...headers });
}

function file(response, path) {
  const name = join(dist, normalize(path === "/" ? "/index.html" : path));
  if (!name.startsWith(dist) || !existsSync(name)) return send(response, 404, new Problem(404, "not-found", `no file ${path}`).body);
  response.writeHead(200, { "Content-Type": TYPES[extname(name)] ?? "application/octet-stream", "Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff" });
  return createReadStream(name).pipe(response);
}

const server = createServer(async (request, response) => {
  const url = new URL(request.url, "http://mock");
  if (!url.pathname.startsWith("/api/v1/")) return file(response, url.pathname);
  try {
    return await answer(request, response, url);
  } catch (error) {
    if (error instanceof Problem) return send(response, error.body.status, error.body);
    console.error(error);
    return send(response, 500, { type: "unavailable", title: "the mock failed", status: 500, detail: String(error) });
  }
});

setInterval(() => {
  const stats = JSON.stringify(load.stats());
  for (const stream of world.streams) stream.write(`event: stats\ndata: ${stats}\n\n`);
}, 1000).unref();
server.listen(Number(flags.port), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
