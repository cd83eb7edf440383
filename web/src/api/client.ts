/** Requests to `/api/v1`. Every failure is a `Failure` with the problem the server told, or one that says it is away. */
import { Store } from "../lib/store";
import type {
  Access, Applied, Check, Document, Edit, Event, Figures, Finding, Group, HyperscsiView, Lun, NbdSpec, Places, Plan, Problem,
  QuotaView, Range, Reservations, Revision, RolledBack, Role, Session, Snapshot, Space, Stats, Status, StoreSpec, Target, Token, Trace, User, WhoAmI,
} from "./types";

const PREFIX = "/api/v1";

/** Why a request gave nothing. */
export class Failure extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail);
  }
}

/** Who is logged in: `undefined` while that is not known, `null` for nobody. */
export const whoami = new Store<WhoAmI | null | undefined>(undefined);

/** A login that there was has ended, other than by the user. */
export const ended = new Store(false);

/** The server answers. */
export const reachable = new Store(true);

interface Options {
  body?: unknown;
  /** The revision the change must start from. */
  revision?: number | undefined;
}

async function send(method: string, path: string, options: Options): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json" };
  const csrf = whoami.get()?.csrf;
  if (method !== "GET" && csrf) headers["X-Tarn-CSRF"] = csrf;
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  if (options.revision !== undefined) headers["If-Match"] = `"${options.revision}"`;
  const body = options.body === undefined ? null : JSON.stringify(options.body);
  try {
    const response = await fetch(PREFIX + path, { method, headers, body, credentials: "same-origin" });
    reachable.set(true);
    return response;
  } catch {
    reachable.set(false);
    throw new Failure({
      type: "unavailable", title: "Tarn does not answer", status: 0,
      detail: "no answer from the server; is tarn running, and is the network up?",
    });
  }
}

async function problemOf(response: Response): Promise<Problem> {
  try {
    const problem = (await response.json()) as Partial<Problem>;
    if (typeof problem.detail === "string") return problem as Problem;
  } catch {
    // Not JSON: something between here and the server answered. The status says what there is to say.
  }
  return {
    type: "unavailable", title: response.statusText || "The server failed", status: response.status,
    detail: `the server answered with status ${response.status} and no explanation`,
  };
}

async function request<T>(method: string, path: string, options: Options = {}): Promise<T> {
  const response = await send(method, path, options);
  if (response.status === 401) {
    if (whoami.get()) ended.set(true);
    whoami.set(null);
  }
  if (!response.ok) throw new Failure(await problemOf(response));
  if (response.status === 204) return undefined as T;
  const text = await response.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

const get = <T>(path: string) => request<T>("GET", path);

/** Path of a thing with a name. */
const at = (...parts: (string | number)[]) => "/" + parts.map((part) => encodeURIComponent(part)).join("/");

export const api = {
  whoami: () => get<WhoAmI>("/whoami"),
  login: (token: string) => request<WhoAmI>("POST", "/login", { body: { token } }),
  logout: () => request<void>("POST", "/logout"),

  status: () => get<Status>("/status"),
  findings: () => get<Finding[]>("/findings"),
  checks: () => get<Check[]>("/checks"),
  stats: () => get<Stats>("/stats"),
  space: () => get<Space>("/space"),
  figures: (range: Range, lun?: string) => get<Figures>("/figures?" + new URLSearchParams({ range, ...(lun !== undefined && { lun }) }).toString()),
  events: (question: Record<string, string>) => get<Event[]>("/events?" + new URLSearchParams(question).toString()),
  places: () => get<Places>("/places"),
  access: (question: { initiator: string; address?: string; user?: string; certificate?: string }) =>
    get<Access[]>("/access?" + new URLSearchParams(question as Record<string, string>).toString()),

  luns: () => get<Lun[]>("/luns"),
  eject: (id: string, force: boolean) => request<Lun>("POST", at("luns", id, "eject"), { body: { force } }),
  load: (id: string) => request<Lun>("POST", at("luns", id, "load")),
  reservations: (id: string) => get<Reservations>(at("luns", id, "reservations")),
  clearReservations: (id: string) => request<Lun>("POST", at("luns", id, "reservations", "clear")),
  snapshots: (lun: string) => get<Snapshot[]>(at("luns", lun, "snapshots")),
  takeSnapshot: (lun: string, name: string) =>
    request<void>("POST", "/snapshots", { body: name ? { luns: [lun], name } : { luns: [lun] } }),
  removeSnapshot: (lun: string, name: string) => request<void>("DELETE", at("luns", lun, "snapshots", name)),
  restoreSnapshot: (lun: string, name: string) => request<RolledBack>("POST", at("luns", lun, "snapshots", name, "rollback")),
  cloneSnapshot: (lun: string, name: string, clone: { id: string; store: string }) =>
    request<Applied>("POST", at("luns", lun, "snapshots", name, "clone"), { body: { lun: clone } }),
  targets: () => get<Target[]>("/targets"),
  groups: () => get<Group[]>("/groups"),
  users: () => get<User[]>("/users"),
  stores: () => get<StoreSpec[]>("/stores"),
  nbd: () => get<NbdSpec[]>("/nbd"),
  quotas: () => get<QuotaView[]>("/quotas"),
  hyperscsi: () => get<HyperscsiView[]>("/hyperscsi"),

  sessions: () => get<Session[]>("/sessions"),
  traces: () => get<Trace[]>("/traces"),
  endSession: (id: number) => request<void>("DELETE", at("sessions", id)),

  document: () => get<Document>("/config"),
  effective: () => get<Document>("/config/effective"),
  plan: (text: string) => request<Plan>("POST", "/plan", { body: { text } }),
  apply: (text: string, comment: string, revision: number) =>
    request<Applied>("PUT", "/config", { body: comment ? { text, comment } : { text }, revision }),
  planEdits: (edits: Edit[]) => request<Plan>("POST", "/config/edits?plan=true", { body: { edits } }),
  edit: (edits: Edit[], comment?: string, revision?: number) =>
    request<Applied>("POST", "/config/edits", { body: comment ? { edits, comment } : { edits }, revision }),
  history: () => get<Revision[]>("/config/history"),
  revision: (revision: number) => get<Document>(at("config", "history", revision)),
  rollback: (revision: number, comment: string, from: number) =>
    request<Applied>("POST", "/config/rollback", {
      body: comment ? { revision, comment } : { revision }, revision: from,
    }),

  tokens: () => get<Token[]>("/tokens"),
  makeToken: (name: string, role: Role) => request<Token>("POST", "/tokens", { body: { name, role } }),
  revokeToken: (name: string) => request<void>("DELETE", at("tokens", name)),
};

/** What each role may do; each may do what those before it may. */
const RANK: Record<Role, number> = { metrics: 0, viewer: 1, operator: 2, admin: 3 };

/** Whether the one who is logged in has at least this role. */
export function may(role: Role): boolean {
  const own = whoami.get()?.role;
  return own !== undefined && RANK[own] >= RANK[role];
}

/** The problem behind whatever was thrown. */
export function problemFrom(thrown: unknown): Problem {
  if (thrown instanceof Failure) return thrown.problem;
  const detail = thrown instanceof Error ? thrown.message : String(thrown);
  return { type: "bad-request", title: "This did not work", status: 0, detail };
}
