/**
 * The types of `/api/v1`, as crate `api` defines them; that crate says what each field means. Sizes are bytes, times
 * milliseconds since 1970 (`_ms`), durations microseconds (`_us`).
 */

export type Role = "metrics" | "viewer" | "operator" | "admin";
export type Severity = "info" | "warning" | "error";

/** The answer to `GET /whoami` and `POST /login`. */
export interface Whoami {
  role: Role;
  /** Goes into the header `X-Tarn-CSRF` of every change. */
  csrf: string;
}

export interface Token {
  name: string;
  role: Role;
  made_ms: number;
  /** In the answer to the request that made it, and never again. */
  token?: string;
}

// --- spec: what is configured

export interface LunSpec {
  id: string;
  store: string;
  serial?: string;
  naa?: string;
}

export interface Portal {
  bind: string;
  advertise?: string;
  group?: number;
}

export interface TargetLun {
  lun: number;
  id: string;
  groups?: string[];
  readonly?: boolean;
}

export interface TargetSpec {
  name: string;
  alias?: string;
  portals?: Portal[];
  auth?: string[];
  chap_algorithms?: string[];
  cold_reset?: boolean;
  luns?: TargetLun[];
}

export interface Group {
  id: string;
  initiators: string[];
}

export interface Mutual {
  name: string;
  secret_file?: string;
  secret?: string;
}

export interface User {
  name: string;
  secret_file?: string;
  secret?: string;
  mutual?: Mutual;
  initiators?: string[];
}

// --- view: what runs

export interface Finding {
  severity: Severity;
  code: string;
  subject: string;
  message: string;
  remedy: string;
}

export interface Status {
  version: string;
  pid: number;
  started_ms: number;
  now_ms: number;
  revision: number;
  config_file?: string;
  state_directory: string;
  cores: number;
  luns: number;
  targets: number;
  sessions: number;
  findings: Finding[];
}

export interface LunPath {
  target: string;
  lun: number;
  groups: string[];
  readonly: boolean;
}

export interface Lun {
  spec: LunSpec;
  kind: string;
  size_bytes: number;
  block_bytes: number;
  readonly: boolean;
  cache?: string;
  thin: boolean;
  serial: string;
  naa: string;
  shown_by: LunPath[];
}

export interface Target {
  spec: TargetSpec;
  bound: string[];
  sessions: number;
}

export interface Connection {
  cid: number;
  address: string;
  portal: string;
}

export interface SessionLun {
  lun: number;
  id: string;
  readonly: boolean;
}

export interface Session {
  id: number;
  tsih: number;
  initiator: string;
  address: string;
  target?: string;
  portal_group: number;
  isid: string;
  user?: string;
  core: number;
  connections: number;
  connection_list: Connection[];
  since_ms: number;
  luns: SessionLun[];
  header_digest: boolean;
  data_digest: boolean;
  commands: number;
  window: number;
  violations: number;
  reinstatements: number;
}

export interface Access {
  target: string;
  may_login: boolean;
  needs_chap: boolean;
  is_discovered: boolean;
  reason: string;
  luns: SessionLun[];
}

// --- plan: changes

export interface Document {
  revision: number;
  text: string;
}

export type Effect = "online" | "needs-drain" | "refused";

export interface Step {
  action: "add" | "change" | "remove";
  kind: string;
  name: string;
  detail: string;
  effect: Effect;
  reason?: string;
  sessions_ended?: number[];
}

export interface Plan {
  revision: number;
  steps: Step[];
  is_applicable: boolean;
  warnings: string[];
}

export interface Applied {
  revision: number;
  steps: Step[];
  warnings: string[];
  unsettled?: string;
}

export interface Revision {
  revision: number;
  applied_ms: number;
  author: string;
  comment?: string;
  summary: string[];
}

// --- stats, events, problems

export interface Operations {
  count: number;
  bytes: number;
  errors: number;
  latency_us: number;
  latency?: number[];
}

export interface Series {
  lun: string;
  initiator: string;
  depth: number;
  slow: number;
  read: Operations;
  write: Operations;
  other: Operations;
}

export interface Core {
  core: number;
  busy_us: number;
  turns: number;
  sessions: number;
  pool_bytes: number;
  pool_free_bytes: number;
  starved: number;
}

export interface Stats {
  at_ms: number;
  cores: Core[];
  series: Series[];
  logins: { accepted: number; succeeded: number; failed: { cause: string; count: number }[] };
  sessions: number;
}

export interface Trace {
  subject: string;
  since_ms: number;
  data_bytes: number;
  keep_bytes: number;
  pdus: number;
  dropped: number;
}

export interface Event {
  number: number;
  at_ms: number;
  severity: Severity;
  kind: string;
  message: string;
  lun?: string;
  target?: string;
  initiator?: string;
  author?: string;
  command?: SlowCommand;
}

export interface SlowCommand {
  session: number;
  task_tag: number;
  name: string;
  lba?: number;
  blocks?: number;
  bytes: number;
  took_us: number;
  outcome?: string;
  phases: CommandPhase[];
  core_us: number;
  untold: number;
}

export interface CommandPhase {
  phase: string;
  from_us: number;
  us: number;
}

/** RFC 9457, `application/problem+json`. */
export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  place?: string;
  revision?: number;
}
