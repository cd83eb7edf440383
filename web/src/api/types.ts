/**
 * The types of `/api/v1`, made of docs/openapi.json by tools/types.mjs: change crate `api`, then run `make web`.
 * Sizes are bytes, times milliseconds since 1970 (`_ms`), durations microseconds (`_us`).
 */

/** What that initiator would meet at one target, server of NBD or group of HyperSCSI. */
export interface Access {
  /**
   * Discovery asks for CHAP (`discovery_auth` of `[server]`), and this initiator would not pass: it finds no
   * target, but may log in to one that it names.
   */
  discovery_needs_chap?: boolean;
  /**
   * Discovery shows the target, the list of the server has exports for it, or the group answers who asks for its
   * name.
   */
  is_discovered: boolean;
  /** What it would see. */
  luns: SessionLun[];
  /** It may log in. */
  may_login: boolean;
  /** CHAP is asked for. */
  needs_chap: boolean;
  /** The password of the group of HyperSCSI is asked for. */
  needs_password?: boolean;
  /** What is met: `iscsi`, `nbd` or `hyperscsi`. */
  protocol: string;
  /** Why, in words. */
  reason: string;
  /** The target, the place of the server, or `NAME at PLACE` of the group. */
  target: string;
}

/** What a step does. */
export type Action = "add" | "change" | "remove";

/** A change that was made. */
export interface Applied {
  /** The text is not the one that ran before, if only in comments. */
  changes_text?: boolean;
  /** The revision that runs now; the old one when nothing differed. */
  revision: number;
  /** What was done. */
  steps: Step[];
  /**
   * Why the change, which is in force, may not have taken effect everywhere yet. There is
   * nothing to try again.
   */
  unsettled?: string;
  /** What is legal and most likely not meant, and was not so before. */
  warnings: string[];
}

/** A block device. */
export interface BlockDevice {
  /** The unit that has its data there. */
  lun?: string;
  /** Its path. */
  path: string;
  /** Its size; absent where it is not known. */
  size_bytes?: number;
}

/** A certificate in use. */
export interface Certificate {
  /** It is valid no longer than this; of several in its file, the first that ends. */
  not_after_ms: number;
  /** What has it: `administration`, or the place of a server of NBD. */
  of: string;
}

/** A change to be made: the whole new configuration. */
export interface Change {
  /** What it is for, for the history; one line. */
  comment?: string;
  /** TOML. */
  text: string;
}

/** Something that the doctor looks for, whether it has found it or not. */
export interface Check {
  /** The code that a finding has. */
  code: string;
  /** What the finding says. */
  finding: string;
}

/** How long a command waited for something. */
export interface CommandPhase {
  /** When it began to, counted from its arrival. */
  from_us: number;
  /**
   * For what: `arrival` (its immediate data, the commands before it), `order` (older commands, as
   * its task attribute asks), `data` (Data-Out), `memory`, `fence` (others on the same blocks),
   * `owner` (a change of state that all cores share), `store`.
   */
  phase: string;
  /** How long, all times taken together. */
  us: number;
}

/** A connection of a session of iSCSI. */
export interface Connection {
  /** Where it comes from, `ADDRESS:PORT`. */
  address: string;
  /** CID, the initiator's number for it. */
  cid: number;
  /** Negotiated: data digests are on. */
  data_digest: boolean;
  /** Negotiated: header digests are on. */
  header_digest: boolean;
  /** The address of this host that it reached. */
  portal: string;
}

/** How the store of a unit reaches those who have its data: servers of NBD, a Ceph cluster. */
export interface Connections {
  /** How often one was made again that was up before. */
  again: number;
  /** Requests that wait for one, or for an answer on one that is silent. */
  held: number;
  /** The unit. */
  lun: string;
  /** Connections that are up; an image that is open is one. */
  up: number;
}

/** A core. */
export interface Core {
  /** Processor time it has used. */
  busy_us: number;
  /** Its number. */
  core: number;
  /** Memory for data in flight. */
  pool_bytes: number;
  /** How much of it is not in use. */
  pool_free_bytes: number;
  /** Sessions that live on it. */
  sessions: number;
  /** Commands that had to wait for memory. */
  starved: number;
  /** Turns of its loop. */
  turns: number;
}

/** What becomes of data. */
export type DataFate = "stays" | "lost";

/** Keys to set; all others stay. An empty value removes its key from the document. */
export interface DeviceKeys {
  /** The group: `NAME at PLACE`, or its name where no other group has that. */
  hyperscsi: string;
  /** Which device, by the `id` of its unit. */
  id: string;
  /** The least protection that is accepted: `none`, `crc`, `hash` or `encrypt`; absent: `encrypt`. */
  level?: string;
  /** Writes are refused. */
  readonly?: boolean;
}

/** The configuration that runs. */
export interface Document {
  /** Its revision. */
  revision: number;
  /** TOML, with its comments. */
  text: string;
}

/**
 * One change of the document. What it does not name stays as it is: comments, order, keys that are not written.
 * A value that is a table is set as a whole.
 */
export type Edit = {
  /** Makes a thing; a conflict if there is one of its name. */
  add: Thing;
} | {
  /** Makes a thing, or makes it so: keys that are not given are taken out. */
  put: Thing;
} | {
  /** Changes the keys that are given, of a thing that is there. */
  set: Keys;
} | {
  /** Removes a thing that nothing refers to. */
  remove: Name;
} | {
  /** Takes a unit from every target that shows it. */
  hide: {
    /** Its `id`. */
    lun: string;
  };
} | {
  /** Gives a unit another size. */
  resize: {
    /** Its `id`. */
    lun: string;
    /** The new size. */
    size_bytes: number;
  };
} | {
  /** Gives a unit another `id`; targets follow. */
  rename: {
    /** The new one. */
    id: string;
    /** The `id` that it has. */
    lun: string;
  };
};

/** Edits that are made one after the other, all of them or none, as one revision. */
export interface Edits {
  /** What it is for, for the history; one line. */
  comment?: string;
  /** What to change, in this order. */
  edits: Edit[];
}

/** What a step costs those who work meanwhile. */
export type Effect = "online" | "takes-away" | "drains" | "pending" | "refused";

/** The way out for the medium of a unit. */
export interface Eject {
  /** Although initiators prevent the removal. */
  force?: boolean;
}

/** Something that happened. The last some thousand are kept. */
export interface Event {
  /** When. */
  at_ms: number;
  /** Who did it, if an administrator. */
  author?: string;
  command?: SlowCommand;
  /** The initiator it is about. */
  initiator?: string;
  /**
   * Of initiators `session-began`, `session-ended`, `connection-joined`, `login-failed`,
   * `slow-command`, `command-hangs`, `slow-send`; of units `lun-resized`, `medium-ejected`,
   * `medium-loaded`, `snapshot-taken`, `snapshot-removed`, `snapshot-restored`, `snapshot-missed`,
   * `rollback-failed`, `lun-flattened`, `flatten-failed`, `store-error`, `store-stuck`, `store-freed`,
   * `store-lost`, `store-reached`, `state-not-kept`, `state-conflict`,
   * `reservation-conflict`; of quotas `quota-soft`,
   * `quota-full`, `quota-free`; of findings `finding-began`, `finding-ended`; of cores `core-stalled`; of
   * the start `state-damaged`, `state-unwritable`, `state-foreign`, `reservations-lost`,
   * `lun-withheld`, `administration`; of administrators `config-applied`, `admin-change`,
   * `admin-read`, `admin-refused`.
   */
  kind: string;
  /** The unit it is about. */
  lun?: string;
  /** One line for people. */
  message: string;
  /** Grows by one; a gap means that events were dropped. */
  number: number;
  /** How bad. */
  severity: Severity;
  /** The target it is about. */
  target?: string;
  /** The user that the initiator has proved to be. */
  user?: string;
}

/** The figures of one step: means over the time in it that Tarn ran. */
export interface FigurePoint {
  /** When the step began. The last one may not be over yet. */
  at_ms: number;
  /** The part of the time that the cores had a processor, 0 to 1; only of all units together. */
  busy?: number;
  /** Commands that waited for something. */
  depth: number;
  /** Reads and writes that were not answered GOOD, per second. */
  errors: number;
  /** Other commands per second. */
  other_iops: number;
  /** The latency that half of the reads and writes did not exceed; absent if there were none. */
  p50_us?: number;
  /** The same for 99 of 100. */
  p99_us?: number;
  /** Bytes read per second. */
  read_bytes: number;
  /** Reads per second. */
  read_iops: number;
  /** Sessions; only of all units together. */
  sessions?: number;
  /** Bytes written per second. */
  write_bytes: number;
  /** Writes per second. */
  write_iops: number;
}

/** Figures of the past, of one unit or of all together. They are kept with three digits. */
export interface Figures {
  /** The oldest first. A step in which Tarn did not run has none; nor has one before the first command of a unit. */
  points: FigurePoint[];
  /** How far back. */
  range: Range;
  /** What each point covers. */
  step_ms: number;
}

/** The space of a file system. */
export interface FileSystemSpace {
  /** What others than root may still write. */
  free_bytes: number;
  /** One of the files on it. */
  path: string;
  /** What the files of units may still take: where it is more than is free, the file system is over-committed. */
  promised_bytes: number;
  /** All. */
  size_bytes: number;
}

/** What limits or endangers the service, in words: `tarn doctor`. */
export interface Finding {
  /**
   * Stable, for scripts. Of the state `lun-withheld`, `reservations-lost`, `state-damaged`,
   * `state-unwritable`, `state-foreign`, `state-conflict`, `administration`; of the configuration
   * file `file-invalid`, `file-edited`, `restart-pending`; of the service `notify-failed`, `flush-failed`,
   * `store-lost`, `store-error`, `store-stuck`, `store-slow`, `log-lost`, `reservation-stranded`,
   * `certificate-expires`, `certificate-last-week`, `certificate-expired`,
   * `log-failed`, `config`, `cores-busy`, `one-session`, `core-busy`, `buffers-short`, `window-full`,
   * `write-cache`, `descriptors`, `strangers`, `little-memory`,
   * `socket-buffers`, `violations`, `digests`, `clock`, `trace`; of the network `mtu`,
   * `unanswered`, `retransmissions`, `frames-lost`, `frames-corrupt`, `receive-window`, `send-buffer`; of files
   * `file-system`, `space`, `file-replaced`, `store-short`, `disc-cut`, `snapshot-missed`; of quotas `quota-soft`,
   * `quota-full`, `quota-exceeded`.
   */
  code: string;
  /** The unit it is about. */
  lun?: string;
  /** What is the matter, with the figure that shows it. */
  message: string;
  /** What to do. */
  remedy: string;
  /** How bad. */
  severity: Severity;
  /** What it is about: an id, a name, an address; empty for the whole daemon. */
  subject: string;
}

/** How far a flatten is. */
export interface Flattened {
  /** It has all of its data. Otherwise the flatten goes on; who asks again waits for it. */
  done: boolean;
  /** The unit. */
  lun: string;
  /** How much of it is done. */
  percent: number;
}

/** `[[group]]`: a group of initiators. */
export interface Group {
  /** What units call the group. */
  id: string;
  /** Name patterns, addresses, networks and users; what follows a `!` is not in the group. */
  initiators: string[];
}

/** A device of a group of HyperSCSI. */
export interface GroupDevice {
  /** The device. */
  device: HyperscsiDeviceSpec;
  /** The group: `NAME at PLACE`, or its name where no other group has that. */
  hyperscsi: string;
}

/** Who is in a group. */
export interface GroupKeys {
  /** Who is in it as well. */
  add?: string[];
  /** Which group. */
  id: string;
  /** All who are in it from now on; absent: those who were. */
  initiators?: string[];
  /** Who is in it no more. */
  remove?: string[];
}

/** A device of a group of HyperSCSI. */
export interface HyperscsiDeviceSpec {
  /** The `id` of its unit. */
  id: string;
  /** The least protection that is accepted: `none`, `crc`, `hash` or `encrypt`; absent: `encrypt`. */
  level?: string;
  /** Writes are refused. */
  readonly?: boolean;
}

/** Keys of a group of HyperSCSI. The password goes in and never comes out. */
export interface HyperscsiKeys {
  /** Its devices, all of them. */
  device?: HyperscsiDeviceSpec[];
  /** Which group: `NAME at PLACE`, or its name where no other group has that. */
  hyperscsi: string;
  /** True: nobody needs a password any more. */
  open?: boolean;
  /** The password, 8 to 128 bytes; Tarn keeps it in a private file of its own. */
  password?: string;
  /** The file of the password, which must be private. */
  password_file?: string;
  /** What the path is like. */
  profile?: string;
  /** What is sent again after a loss. */
  retransmit?: string;
  /** The name that clients log in with. */
  user?: string;
}

/** A session as HyperSCSI has it. */
export interface HyperscsiSession {
  /** Name of the group. */
  group: string;
  /** Where the group is served: the interface, or the address of UDP with its real port. */
  place: string;
}

/**
 * `[[hyperscsi.group]]`: units for clients of HyperSCSI. It is known as `NAME at PLACE`, where PLACE is its
 * interface or `udp:ADDRESS:PORT`.
 */
export interface HyperscsiSpec {
  /** Its devices, at least one; clients may call them by their positions. */
  device: HyperscsiDeviceSpec[];
  /** The interface whose frames reach it. */
  interface?: string;
  /** By which clients find it. */
  name: string;
  /** Clients need no password. */
  open?: boolean;
  /** The password, 8 to 128 bytes; only ever in requests. Tarn keeps it in a private file of its own. */
  password?: string;
  /**
   * The file of the password, which must be private. In a request without it, `password` and `open`, what clients
   * need stays as it is.
   */
  password_file?: string;
  /** What the path is like: `wired` or `wireless`. */
  profile?: string;
  /** What is sent again after a loss: `selective` or `window`. */
  retransmit?: string;
  /** The address at which UDP reaches it, instead. */
  udp?: string;
  /** The name that clients log in with; absent: that of the group. */
  user?: string;
}

/** A group of HyperSCSI. */
export interface HyperscsiView {
  /** What it is known by: `NAME at INTERFACE` or `NAME at udp:ADDRESS:PORT`. */
  name: string;
  /** Where the password is: `file`, `configuration` or, without one, `none`. */
  password: string;
  /** Where it is served: a port 0 of the file is the real one here. */
  place: string;
  /** The ids of its sessions. */
  sessions: number[];
  /** As it is configured, defaults filled in. */
  spec: HyperscsiSpec;
}

/** A session as iSCSI has it. */
export interface IscsiSession {
  /** Its connections, as they are now. */
  connections: Connection[];
  /** ISID, 12 hexadecimal digits. */
  isid: string;
  /** Target portal group tag. */
  portal_group: number;
  /** How often this initiator port replaced a session of its own since the daemon began. */
  reinstatements: number;
  /** TSIH: what the target calls the session. */
  tsih: number;
  /** Violations of the protocol by the initiator, on all connections that the session has had. */
  violations: number;
}

/** Keys of a thing. A key that is absent stays; an empty text or list takes the key out of the document. */
export type Keys = {
  /** Of a unit. */
  lun: LunKeys;
} | {
  /** Of a named store. */
  store: StoreKeys;
} | {
  /** Of a server of NBD. */
  nbd: NbdKeys;
} | {
  /** Of a quota. */
  quota: QuotaKeys;
} | {
  /** Of a group of HyperSCSI. */
  hyperscsi: HyperscsiKeys;
} | {
  /** Of a device of such a group. */
  device: DeviceKeys;
} | {
  /** Of a target. */
  target: TargetKeys;
} | {
  /** Of a group of initiators. */
  group: GroupKeys;
} | {
  /** Of a CHAP user. */
  user: UserKeys;
};

/** What a step is about. */
export type Kind = "lun" | "store" | "target" | "portal" | "view" | "group" | "user" | "nbd" | "hyperscsi" | "quota" | "notify" | "server" | "limits" | "admin" | "confine";

/** The way into the console. */
export interface Login {
  /** A token of a role above `metrics`. */
  token: string;
}

/** Logins that failed for one cause. */
export interface LoginFailures {
  /** As `authentication-failure`, `not-found`, `timeout`. */
  cause: string;
  /** How many. */
  count: number;
}

/** Logins since the start. */
export interface Logins {
  /** Connections that were accepted. */
  accepted: number;
  /** Logins that failed. */
  failed: LoginFailures[];
  /** Logins that led to a session or joined one. */
  succeeded: number;
}

/** A logical unit. */
export interface Lun {
  /** Size of a logical block; 0 of a device of others, which says that itself. */
  block_bytes: number;
  /** `writeback`, `writethrough` or `direct`; absent where there is nothing to cache. */
  cache?: string;
  /** `file`, `block`, `memory`, `null`, `nbd`, `rbd` or `cdrom`. */
  kind: string;
  medium?: Medium;
  /** The NAA designator in use, hexadecimal. */
  naa: string;
  /** Why its data cannot be reached, in words; absent where it can. */
  outage?: string;
  /** The store refuses writes. */
  readonly: boolean;
  reservations?: Reservations;
  /** The serial number in use. */
  serial: string;
  /** The servers of NBD and the groups of HyperSCSI that serve it. */
  served_by: LunService[];
  /** The targets that export it. */
  shown_by: LunPath[];
  /** Size of its medium; 0 where there is none. */
  size_bytes: number;
  /** As it is configured. A STORE of the command line has the store as its `id`. */
  spec: LunSpec;
  /** Unmapped blocks give their space back. */
  thin: boolean;
  trouble?: LunTrouble;
  /** What it is for initiators: `disk`, or `cdrom`, a CD or DVD drive. */
  type: string;
}

/** Keys to set; all others stay. An empty value removes its key from the document. */
export interface LunKeys {
  /** Which unit. */
  id: string;
  /** The log device, as `file:/srv/log.img?size=4G`, if there is one. */
  log?: string;
  /** NAA designator in hexadecimal digits, if not the one that was made. */
  naa?: string;
  /** Whose disk it is, for quotas. */
  owner?: string;
  /** Product identification, if not `DISK`. */
  product?: string;
  /** Product revision level, if not the version of Tarn. */
  revision?: string;
  /** Unit serial number, if not the one that was made. */
  serial?: string;
  snapshots?: ScheduleSpec;
  /** Where the data lives, as `file:/srv/disk.img?size=10G`. */
  store?: string;
  /** What the log is for: `latency` or `throughput`. */
  sync_bias?: string;
  /** T10 vendor identification, if not `TARN`. */
  vendor?: string;
  /** Commands of the vendor are passed to the device, too. */
  vendor_commands?: boolean;
}

/** One way to a unit. */
export interface LunPath {
  /** Who sees it; empty: everyone who may log in. */
  groups: string[];
  /** The logical unit number there. */
  lun: number;
  /** Writes are refused on this way. */
  readonly: boolean;
  /** The target. */
  target: string;
}

/** A server of NBD or a group of HyperSCSI that serves a unit. */
export interface LunService {
  /** What clients call the unit there. */
  device: string;
  /** The groups of clients that find it; empty: all that reach the server. Those of HyperSCSI need the password. */
  groups?: string[];
  /** The least protection that a group of HyperSCSI accepts for it. */
  level?: string;
  /** What it is known by: the place of the server, or `NAME at PLACE` of the group. */
  name: string;
  /** `nbd` or `hyperscsi`. */
  protocol: string;
  /** Writes are refused there. */
  readonly: boolean;
}

/** The space of a unit. */
export interface LunSpace {
  /** What its files take where they are; `None` where it has none, or nothing is known yet. */
  allocated_bytes?: number;
  /** The unit. */
  lun: string;
  /** What initiators see. */
  size_bytes: number;
  /** What it is for initiators, as `type` of `/luns`. */
  type: string;
}

/** `[[lun]]`: a logical unit. */
export interface LunSpec {
  /** What targets call the unit. */
  id: string;
  /** The log device, as `file:/srv/log.img?size=4G`, if there is one. */
  log?: string;
  /** NAA designator in hexadecimal digits, if not the one that was made. */
  naa?: string;
  /** Whose disk it is, for quotas. */
  owner?: string;
  /** Product identification, if not `DISK`. */
  product?: string;
  /** Product revision level, if not the version of Tarn. */
  revision?: string;
  /** Unit serial number, if not the one that was made. */
  serial?: string;
  snapshots?: ScheduleSpec;
  /** Where the data lives, as `file:/srv/disk.img?size=10G`. */
  store: string;
  /** What the log is for: `latency` or `throughput`. */
  sync_bias?: string;
  /** T10 vendor identification, if not `TARN`. */
  vendor?: string;
  /** Commands of the vendor are passed to the device, too. */
  vendor_commands?: boolean;
}

/** What keeps a unit, or its log, from being used. */
export interface LunTrouble {
  /**
   * The code of the finding. The unit is not served: `log-lost`, until somebody decides about its log;
   * `medium-changed`, its store is not what was served; `store-unopened`, its store cannot be opened. It is served,
   * but not by its log: `log-failed`.
   */
  code: string;
  /** Why, in words. */
  why: string;
}

/** A medium that can be ejected. */
export interface Medium {
  /** It is in. One that is ejected stays so over a restart. */
  loaded: boolean;
  /** InitiatorNames of the sessions that prevent its removal, one for each session. */
  prevented_by: string[];
}

/** One thing that keeps a configuration from being applied. */
export interface Mistake {
  /** What is wrong, and the remedy; one line. */
  detail: string;
  /** Where: a line of the document (`tarn.toml:12: lun[2].store`). */
  place?: string;
}

/** The target's side of mutual CHAP. */
export interface Mutual {
  /** CHAP_N of the target. */
  name: string;
  /** As [`User::secret`]. */
  secret?: string;
  /** As [`User::secret_file`]. */
  secret_file?: string;
}

/** What names a thing. */
export type Name = {
  /** The `id` of a unit. */
  lun: string;
} | {
  /** The `id` of a named store. */
  store: string;
} | {
  /** The socket or the address of a server of NBD. */
  nbd: string;
} | {
  /** What a quota counts: `owner:NAME` or `pool:PLACE`. */
  quota: string;
} | {
  /** A group of HyperSCSI: `NAME at PLACE`, or its name where no other group has that. */
  hyperscsi: string;
} | {
  /** A device of such a group. */
  device: {
    /** The group. */
    hyperscsi: string;
    /** The `id` of its unit. */
    id: string;
  };
} | {
  /** The name of a target. */
  target: string;
} | {
  /** The `id` of a group. */
  group: string;
} | {
  /** The name of a user. */
  user: string;
} | {
  /** A number of a target. */
  view: {
    /**
     * The group that sees it no more, or `*` for those who are in no group; needed where several units have the
     * number.
     */
    group?: string;
    /** The logical unit number. */
    lun: number;
    /** The target. */
    target: string;
  };
} | {
  /** An address of a target. */
  portal: {
    /** The address it is bound to. */
    bind: string;
    /** The target. */
    target: string;
  };
};

/** Keys to set; all others stay. An empty value removes its key from the document. */
export interface NbdKeys {
  /** The file of those who vouch for the certificates of clients. */
  ca?: string;
  /** The file of its certificate: clients have to begin TLS. */
  certificate?: string;
  /** The groups of clients that find them; empty: everyone. */
  groups?: string[];
  /** The file of the private key. */
  key?: string;
  /** The `id`s of the units that are its exports. */
  luns?: string[];
  /** The mode of the file of the socket, as `0660`. */
  mode?: string;
  /** Which server: its socket or address. */
  nbd: string;
}

/** A session as NBD has it: one connection. */
export interface NbdSession {
  /** Name of the export. */
  export: string;
  /** The names that the client's certificate proves; empty without one. */
  names: string[];
  /** The server that the client reached, as it is configured: its socket or address. */
  service: string;
}

/** `[[nbd]]`: a server of NBD. It is known by its `socket`, else by its `bind`. */
export interface NbdSpec {
  /** The address it listens on, as `127.0.0.1:10809`, which is what is meant if neither this nor `socket` is there. */
  bind?: string;
  /** The file of those who vouch for the certificates of clients. */
  ca?: string;
  /** The file of its certificate: clients have to begin TLS. */
  certificate?: string;
  /** The groups of clients that find them; empty: everyone. */
  groups?: string[];
  /** The file of the private key. */
  key?: string;
  /** The `id`s of the units that are its exports. */
  luns: string[];
  /** The mode of the file of the socket, as `0660`. */
  mode?: string;
  /** The unix socket it listens on instead. */
  socket?: string;
}

/** A new unit with the data of a snapshot. */
export interface NewClone {
  /** The unit. Its STORE is a file that is not there, on the file system of the snapshot. */
  lun: LunSpec;
  view?: View;
}

/** A token to be made. */
export interface NewToken {
  /** For the audit log and to revoke it. */
  name: string;
  /** What it may do. */
  role: Role;
}

/** What was counted of one kind of command. */
export interface Operations {
  /** Data that went with them. */
  bytes: number;
  /** Commands that were answered. */
  count: number;
  /** Commands that were not answered GOOD. */
  errors: number;
  /**
   * How many fell into each bucket of [`LATENCY_BOUNDS_US`], and one more for those above; empty
   * when there were none.
   */
  latency?: number[];
  /** The sum of their latencies. */
  latency_us: number;
}

/** Places on this machine where the data of units may be. */
export interface Places {
  /** Block devices. */
  devices: BlockDevice[];
  /** Directories: the `roots` of `[confine]` and what is in them; without `roots`, those that have files of units. */
  directories: string[];
  /** Files of discs (`.iso`) beside those that are in drives. */
  discs: string[];
}

/** The way from the running configuration to another one. */
export interface Plan {
  /** The text is not the one that runs, if only in comments. */
  changes_text?: boolean;
  /** Applying it now would succeed, as far as it was looked at. */
  is_applicable: boolean;
  /**
   * All that was found wrong by looking: stores, addresses, secrets, certificates. Each is the reason of a refused
   * step, too, where it belongs to one. Steps that are refused by a rule are not here.
   */
  mistakes?: Mistake[];
  /** What was not looked at, and may still keep it from being applied. */
  not_probed?: string[];
  outcome?: ProblemKind;
  /** The revision it starts from. */
  revision: number;
  /** What would be done, in this order; empty when nothing differs. */
  steps: Step[];
  /** What is legal and most likely not meant. */
  warnings: string[];
}

/** An address of a target. */
export interface Portal {
  /** `HOST:PORT` that discovery reports, if not the address the initiator came to. */
  advertise?: string;
  /** `ADDRESS:PORT` to listen on, IPv6 in brackets. */
  bind: string;
  /** Target portal group tag; absent: 1. */
  group?: number;
}

/**
 * The body of every answer that is not a success, as `application/problem+json`.
 *
 * Spec: RFC 9457.
 */
export interface Problem {
  /** What is wrong here, and the remedy; one line. */
  detail: string;
  /** All that is wrong, where it is more than what `detail` and `place` say; the first of it is that. */
  mistakes?: Mistake[];
  /** Where: a line of the document (`tarn.toml:12: lun[2].store`), or a field of the request. */
  place?: string;
  /** The revision that runs, when the request was for another. */
  revision?: number;
  /** The status code of HTTP. */
  status: number;
  /** The kind in words. */
  title: string;
  /** As `conflict`, `refused`, `invalid-config`, `not-found`; stable, for scripts. */
  type: ProblemKind;
}

/** What kind of problem it is. */
export type ProblemKind = "bad-request" | "unauthorized" | "forbidden" | "not-found" | "method-not-allowed" | "invalid-config" | "refused" | "conflict" | "revision-mismatch" | "too-large" | "unsupported-media-type" | "too-many-requests" | "apply-failed" | "storage-full" | "failed" | "unavailable";

/** Keys to set; all others stay. An empty value removes its key from the document. */
export interface QuotaKeys {
  /** The most that their sizes may be together, as `2T` or in bytes. */
  provisioned?: string;
  /** Which quota: `owner:NAME` or `pool:PLACE`. */
  quota: string;
  /** The part of `used`, in percent, from which on everyone is notified. */
  soft?: number;
  /** The most that they may take together, as `500G` or in bytes. */
  used?: string;
}

/** `[[quota]]`: what some disks may take together. It is known as `owner:NAME` or `pool:PLACE`. */
export interface QuotaSpec {
  /** It counts the disks of this owner. */
  owner?: string;
  /** It counts the disks in this directory, or with `rbd:POOL` the images of this pool. */
  pool?: string;
  /** The most that their sizes may be together, as `2T` or in bytes. */
  provisioned?: string;
  /** The part of `used`, in percent, from which on everyone is notified. */
  soft?: number;
  /** The most that they may take together, as `500G` or in bytes. */
  used?: string;
}

/** A quota, and what the disks hold that it counts. */
export interface QuotaView {
  /** The units that it counts, some of them perhaps in part. */
  luns: string[];
  /** `owner:NAME` or `pool:PLACE`. */
  name: string;
  /** How large they are together. */
  provisioned_bytes: number;
  /** How large they may be together. */
  provisioned_max_bytes?: number;
  /** `free`; `low`: initiators are notified; `full`: what needs space fails. */
  space: string;
  /** As it is configured. */
  spec: QuotaSpec;
  /** What they were found to take together; absent: nobody has looked, as is so without `used`. */
  used_bytes?: number;
  /** What they may take together. */
  used_max_bytes?: number;
}

/** How far back. */
export type Range = "1h" | "24h" | "30d";

/** A registration for persistent reservations. */
export interface Registration {
  /** It holds the reservation, alone or with all that are registered. */
  holder: boolean;
  /** Its key, as `0x` and 16 hexadecimal digits. */
  key: string;
  /** Who is registered. */
  nexus: ReservationNexus;
  /** Since when; absent where that is before the start of the daemon. */
  since_ms?: number;
}

/** Another id for a unit. */
export interface Rename {
  /** The new id. */
  id: string;
}

/** An I_T nexus that is registered, or holds a reservation. */
export interface ReservationNexus {
  /**
   * The initiator has a session that sees the unit, perhaps of another port; absent in lists of units, and where the
   * data plane does not answer.
   */
  has_session?: boolean;
  /** InitiatorName, or what sessions of another transport have in its place. */
  initiator: string;
  /** ISID of the initiator port, 12 hexadecimal digits; absent where the transport has none. */
  isid?: string;
  /** Relative target port identifier. */
  target_port: number;
  /** `iscsi`, `nbd` or `hyperscsi`. */
  transport: string;
}

/** The reservations of a unit. */
export interface Reservations {
  /** Registrations and reservation outlive a restart (APTPL). */
  aptpl: boolean;
  holder?: ReservationNexus;
  /** They could not be read, so every command that they could forbid is refused. */
  lost: boolean;
  /** How many I_T nexuses are registered. */
  registered: number;
  /** Who is registered, in the order of registration; only in `/luns/{id}/reservations`. */
  registrations?: Registration[];
  reserved_by?: ReservationNexus;
  /** Since when it is held; absent where that is before the start of the daemon. */
  since_ms?: number;
  /**
   * The type of the persistent reservation, as `write-exclusive` or `exclusive-access-registrants-only`; absent
   * without one.
   */
  type?: string;
}

/** Another size for a unit. */
export interface Resize {
  /** The new size. */
  size_bytes: number;
}

/** A revision of the past, or the one that runs. */
export interface Revision {
  /** When it was applied. */
  applied_ms: number;
  /**
   * Who applied it: `uid 1000` on the socket, the token's name elsewhere, `start` for a file
   * read at the start, `SIGHUP` for one read again.
   */
  author: string;
  /** What it was for. */
  comment?: string;
  /** Its number. */
  revision: number;
  /** Its steps, one line each. */
  summary: string[];
}

/** What a token may do. Each may do what those before it may. */
export type Role = "metrics" | "viewer" | "operator" | "admin";

/** The way back to a revision. */
export interface Rollback {
  /** What it is for, for the history; one line. */
  comment?: string;
  /** The revision whose document is to run again, as a new revision. */
  revision: number;
}

/** What has come of a rollback. */
export interface RolledBack {
  /** The unit. */
  lun: string;
  /**
   * Why it is not known yet which data it has; its commands wait until that is known. Absent when it has the data of
   * the snapshot.
   */
  unsettled?: string;
}

/** How often snapshots of a unit are taken, and how many of each period are kept; absent: none of it. */
export interface ScheduleSpec {
  /** When those of days and weeks are taken, `HH:MM` in UTC; absent: midnight. */
  at?: string;
  /** How many are kept of those of days, up to 180. */
  daily?: number;
  /** How many are kept of those of full hours, up to 168. */
  hourly?: number;
  /** How many are kept of those of weeks (Sundays), up to 104. */
  weekly?: number;
}

/** The commands of one initiator to one unit. */
export interface Series {
  /** Commands that wait for something: data, the store, another command. */
  depth: number;
  /** InitiatorName, or `other`. */
  initiator: string;
  /** The unit. */
  lun: string;
  /** All others. */
  other: Operations;
  /** Commands that read the medium. */
  read: Operations;
  /** Commands that took longer than `slow_command_ms` of `[limits]`, aborted ones too. */
  slow?: number;
  /** Commands that write the medium. */
  write: Operations;
}

/** A session of the target role. */
export interface Session {
  /** Where it comes from, `ADDRESS:PORT`; of a client on Ethernet its MAC address. */
  address: string;
  /** Commands under way. */
  commands: number;
  /** The core it lives on. */
  core: number;
  /** Names the session: counted from 1, never given again while this daemon runs. */
  id: number;
  /** InitiatorName, or what sessions of another transport have in its place. */
  initiator: string;
  /** What it sees. */
  luns: SessionLun[];
  /** When it began. */
  since_ms: number;
  /** TargetName, `nbd:EXPORT` or `hyperscsi:GROUP`; absent for discovery. */
  target?: string;
  /** What only sessions of its transport have. */
  transport: Transport;
  /** The CHAP user it proved to be. */
  user?: string;
  /** Commands it may have under way. */
  window: number;
}

/** A unit as a session sees it. */
export interface SessionLun {
  /** The unit. */
  id: string;
  /** At which level of protection a session of HyperSCSI has opened it: `none`, `crc`, `hash` or `encrypt`. */
  level?: string;
  /** The number. */
  lun: number;
  /** Writes are refused. */
  readonly: boolean;
}

/** How bad. */
export type Severity = "info" | "warning" | "error";

/** A command that took long, or still does. */
export interface SlowCommand {
  /** How many blocks, if the CDB names them. */
  blocks?: number;
  /** Data that goes with it. */
  bytes: number;
  /** What is left of the time: the core was at work, for it or for others. */
  core_us: number;
  /** The first block, if the CDB names one. */
  lba?: number;
  /** Its name in the standards. */
  name: string;
  /** Its status in the words of the standard, or `aborted`; absent while it waits. */
  outcome?: string;
  /** What it waited for, in the order in which it began to. */
  phases: CommandPhase[];
  /** The id of its session. */
  session: number;
  /** Initiator Task Tag. */
  task_tag: number;
  /** From its header to the moment its answer was given to the kernel, or until now. */
  took_us: number;
  /** How many slow commands of its core were not reported since the last one that was. */
  untold: number;
}

/** The data of a unit as it was at one moment. */
export interface Snapshot {
  /** The unit whose store has it. */
  lun: string;
  /** Its name. The unit has no other one of this name. */
  name: string;
  /** The file that has it, or the STORE of it in its cluster without options. */
  path: string;
  /** Size of the unit then. */
  size_bytes: number;
  /** When it was taken. */
  taken_ms: number;
}

/** Snapshots of one moment. */
export interface SnapshotsTaken {
  /** How long commands of these units waited. */
  paused_us: number;
  /** One for each unit, in the order they were asked for. */
  snapshots: Snapshot[];
}

/** The space that units have, and that of the file systems they are on. */
export interface Space {
  /** File systems with files of units. */
  file_systems: FileSystemSpace[];
  /** Units. */
  luns: LunSpace[];
}

/** Everything that is counted, at one moment. */
export interface Stats {
  /** When it was read. */
  at_ms: number;
  /** Each core. */
  cores: Core[];
  /** Logins. */
  logins: Logins;
  /**
   * Commands, by unit and initiator. Beyond the limit of series those that came last are
   * counted together under the initiator `other`.
   */
  series: Series[];
  /** Sessions now. */
  sessions: number;
  /**
   * Commands that failed because of a store, by unit and cause, since the unit was opened. Unit attentions,
   * reservations and bad commands are none.
   */
  store_errors?: StoreErrors[];
  /** The connections of units whose data others have. */
  stores?: Connections[];
}

/** The daemon in one look. */
export interface Status {
  /** Certificates in use that say how long they are valid. */
  certificates?: Certificate[];
  /** The file it was started with; absent for a daemon that was given stores on its command line. */
  config_file?: string;
  /** Threads that serve. */
  cores: number;
  /** What an administrator should look at, the worst first. */
  findings: Finding[];
  /** Logical units. */
  luns: number;
  /** Now, by the clock of the daemon. */
  now_ms: number;
  /** Keys of the configuration that take effect when Tarn starts again, as `[server] cores: 2 -> 4`. */
  pending?: string[];
  /** Process. */
  pid: number;
  /** Revision of the configuration that runs. */
  revision: number;
  /** Sessions, discovery sessions too. */
  sessions: number;
  /** When it began. */
  started_ms: number;
  /** The state directory. */
  state_directory: string;
  /** Targets. */
  targets: number;
  /** Version of Tarn. */
  version: string;
}

/** One step of a plan. */
export interface Step {
  /** What happens. */
  action: Action;
  data?: DataFate;
  /** What differs, one line, as `store: "mem:1G" -> "mem:2G"`. */
  detail: string;
  /** With what consequence. */
  effect: Effect;
  /** To what kind of thing. */
  kind: Kind;
  /** Its id, name, address or key. */
  name: string;
  /** Why it is refused, and the remedy; or what is drained. */
  reason?: string;
  /** The sessions that end with it. */
  sessions_ended?: number[];
  /** What it takes away from sessions, the busiest first; at most 100, of `taken_count`. */
  taken?: Taken[];
  /** How many units, or sessions without one, it takes away from sessions. */
  taken_count?: number;
}

/** Commands that failed because of a store, for one cause. */
export interface StoreErrors {
  /** How many. */
  count: number;
  /** The name of an error number (`EIO`, `ENOSPC`), or `truncated`, `flush-failed`, `not-ready`, `unknown`. */
  errno: string;
  /** The unit. */
  lun: string;
}

/** Keys to set; all others stay. An empty value removes its key from the document. */
export interface StoreKeys {
  /** Which store. */
  id: string;
  /** Where the data lives, as `file:/srv/disk.img?size=10G`. */
  store?: string;
}

/** `[[store]]`: a store that a unit names as a member. */
export interface StoreSpec {
  /** What compositions call the store. */
  id: string;
  /** Where the data lives, as `file:/srv/disk.img?size=10G`. */
  store: string;
}

/** Snapshots of units. */
export interface TakeSnapshots {
  /** The units: all of them at one moment, and all or none. */
  luns: string[];
  /**
   * What each of the snapshots is called: letters, digits, `.`, `_` and `-`, at most 64; the time in UTC if it is
   * absent.
   */
  name?: string;
}

/** Something that a session uses and loses. */
export interface Taken {
  /** The unit. */
  id?: string;
  /** InitiatorName. */
  initiator: string;
  /** Commands of that initiator to that unit in the last second. */
  ios_per_second: number;
  /** The logical unit number; absent where the session sees none and ends. */
  lun?: number;
  /** The session. */
  session: number;
  /** TargetName; absent for sessions that have none. */
  target?: string;
}

/** A target. */
export interface Target {
  /** Where it listens, in the order of the portals: a port 0 of the file is the real one here. */
  bound: string[];
  /** Sessions it has. */
  sessions: number;
  /** As it is configured, defaults filled in. */
  spec: TargetSpec;
}

/** Keys to set; all others stay. An empty value removes its key from the document. */
export interface TargetKeys {
  /** TargetAlias. */
  alias?: string;
  /** CHAP users that may log in; empty: everyone. */
  auth?: string[];
  /** CHAP algorithms; absent: all. */
  chap_algorithms?: string[];
  /** TARGET COLD RESET of an initiator ends the sessions of all. */
  cold_reset?: boolean;
  /** What it shows. */
  luns?: TargetLun[];
  /** Which target. */
  name: string;
  /** Where it is reached; absent: the default of the file. */
  portals?: Portal[];
}

/** An entry of a target's `luns`. */
export interface TargetLun {
  /** The groups that see it; empty: everyone who may log in. */
  groups?: string[];
  /** The `id` of the unit. */
  id: string;
  /** The logical unit number, up to 16383. Several entries may have it if each is for other groups. */
  lun: number;
  /** Writes are refused through this entry. */
  readonly?: boolean;
}

/** An address of a target. */
export interface TargetPortal {
  /** The address. */
  portal: Portal;
  /** The target. */
  target: string;
}

/** `[[target]]`: an iSCSI target. */
export interface TargetSpec {
  /** TargetAlias. */
  alias?: string;
  /** CHAP users that may log in; empty: everyone. */
  auth?: string[];
  /** CHAP algorithms; absent: all. */
  chap_algorithms?: string[];
  /** TARGET COLD RESET of an initiator ends the sessions of all. */
  cold_reset?: boolean;
  /** What it shows. */
  luns?: TargetLun[];
  /** TargetName. */
  name: string;
  /** Where it is reached; absent: the default of the file. */
  portals?: Portal[];
}

/** A thing, with all its keys. */
export type Thing = {
  /** A unit. */
  lun: LunSpec;
} | {
  /** A named store. */
  store: StoreSpec;
} | {
  /** A server of NBD. */
  nbd: NbdSpec;
} | {
  /** A quota. */
  quota: QuotaSpec;
} | {
  /** A group of HyperSCSI. */
  hyperscsi: HyperscsiSpec;
} | {
  /** A device of such a group. */
  device: GroupDevice;
} | {
  /** A target. */
  target: TargetSpec;
} | {
  /** A group of initiators. */
  group: Group;
} | {
  /** A CHAP user. */
  user: User;
} | {
  /** A unit as a target shows it. */
  view: View;
} | {
  /** An address of a target. */
  portal: TargetPortal;
};

/** A token, as it is listed. */
export interface Token {
  /** When it was made. */
  made_ms: number;
  /** Its name. */
  name: string;
  /** What it may do. */
  role: Role;
  /** The token itself: in the answer to the request that made it, and never again. */
  token?: string;
}

/** The last PDUs of a session or an initiator, as they are kept; of a session of HyperSCSI its frames. */
export interface Trace {
  /** How much it keeps of the data of each SCSI PDU and ping. */
  data_bytes: number;
  /** Older ones that are gone. */
  dropped: number;
  /** How much it keeps in all, as a file. */
  keep_bytes: number;
  /** PDUs that it has. */
  pdus: number;
  /** When it began. */
  since_ms: number;
  /** The id of a session, or an InitiatorName. */
  subject: string;
}

/** How much a trace keeps. */
export interface Tracing {
  /** Of the data of each SCSI PDU and ping; 64 if it is absent. */
  data_bytes?: number;
  /** In all, as a file; 1 MiB if it is absent. The oldest PDUs go for new ones. */
  keep_bytes?: number;
}

/** The transport of a session, with what only its sessions have. */
export type Transport = {
  /** iSCSI. */
  iscsi: IscsiSession;
} | {
  /** NBD. */
  nbd: NbdSession;
} | {
  /** HyperSCSI. */
  hyperscsi: HyperscsiSession;
};

/** `[[user]]`: a CHAP user. Secrets go in and never come out. */
export interface User {
  /**
   * The InitiatorNames (patterns) that are this user's alone and the only ones it may have. Absent in
   * a request: they stay; empty: it may have any.
   */
  initiators?: string[];
  mutual?: Mutual;
  /** CHAP_N of the initiator. */
  name: string;
  /** The secret, 12 to 128 bytes; only ever in requests. */
  secret?: string;
  /**
   * The file of the secret, which must be private. Absent in a request that brings a `secret`:
   * Tarn keeps it in a private file of its own.
   */
  secret_file?: string;
}

/** Keys of a CHAP user. Secrets go in and never come out. */
export interface UserKeys {
  /** The InitiatorNames (patterns) that are this user's alone; empty: it may have any. */
  initiators?: string[];
  mutual?: Mutual;
  /** Which user. */
  name: string;
  /** The target proves itself no more. */
  no_mutual?: boolean;
  /** The secret, 12 to 128 bytes; Tarn keeps it in a private file of its own. */
  secret?: string;
  /** The file of the secret, which must be private. */
  secret_file?: string;
}

/** A unit as a target shows it. */
export interface View {
  /** The groups that see it; empty: everyone who may log in. */
  groups?: string[];
  /** The `id` of the unit. */
  id: string;
  /** The logical unit number; absent: the lowest that nobody sees. */
  lun?: number;
  /** Writes are refused through this entry. */
  readonly?: boolean;
  /** The target. */
  target: string;
}

/** Who asks. */
export interface WhoAmI {
  /** What a browser's changes bring along as `X-Tarn-CSRF`; empty where none is needed. */
  csrf: string;
  /** The token's name, or `uid 0` on the socket. */
  name: string;
  /** What they may do. */
  role: Role;
}

/** The kinds of stores: how a STORE is written, and which options it takes. */
export const STORE_KINDS = [
  {"word":"","place":"PATH","shown":"file","title":"File or block device","meaning":"a file or a block device, whichever is there","options":["size","blocksize","readonly","cache","thin","serial","format","removable"]},
  {"word":"file","place":"PATH","shown":"file","title":"File","meaning":"a regular file","options":["size","blocksize","readonly","cache","thin","serial","format","removable"]},
  {"word":"block","place":"PATH","shown":"block","title":"Block device","meaning":"a block device","options":["blocksize","readonly","cache","thin","serial","format","removable"]},
  {"word":"mem","place":"SIZE","shown":"memory","title":"Memory","meaning":"memory, gone when Tarn ends","options":["blocksize","readonly","thin","serial","removable"]},
  {"word":"null","place":"SIZE","shown":"null","title":"Nothing","meaning":"nothing: writes are dropped, reads are zeros; for measuring","options":["blocksize","readonly","thin","serial","removable"]},
  {"word":"nbd","place":"//HOST[:PORT][/EXPORT]","shown":"nbd","title":"NBD export","meaning":"an export of an NBD server","options":["blocksize","readonly","thin","serial","removable","connections","retry"]},
  {"word":"nbds","place":"//HOST[:PORT][/EXPORT]","shown":"nbd","title":"NBD export over TLS","meaning":"an export of an NBD server, over TLS","options":["blocksize","readonly","thin","serial","removable","ca","connections","retry"]},
  {"word":"nbd+unix","place":"///[EXPORT]?socket=PATH","shown":"nbd","title":"NBD export on a unix socket","meaning":"an export of an NBD server on a unix socket","options":["blocksize","readonly","thin","serial","removable","socket","connections","retry"]},
  {"word":"rbd","place":"POOL[/NAMESPACE]/IMAGE[@SNAP]","shown":"rbd","title":"Ceph RBD image","meaning":"an image of a Ceph cluster, or a snapshot of one (needs librbd1)","options":["size","blocksize","readonly","thin","serial","removable","retry","conf","user","keyring","takeover"]},
  {"word":"hyperscsi","place":"//GROUP/DEVICE","shown":"hyperscsi","title":"HyperSCSI device","meaning":"a device of a HyperSCSI group","options":["blocksize","readonly","thin","serial","removable","retry","user","server","udp","interface","password_file","level"]},
  {"word":"iscsi","place":"//HOST[:PORT]/TARGET/LUN","shown":"iscsi","title":"iSCSI disk","meaning":"a disk of an iSCSI target","options":["blocksize","readonly","thin","serial","removable","retry","user","password_file","initiator","mutual_user","mutual_password_file"]},
  {"word":"snap","place":"LUN@NAME","shown":"snapshot","title":"Snapshot","meaning":"a snapshot of a LUN of this configuration, which is only read","options":["readonly","serial"]},
  {"word":"stripe","place":"ID,...","shown":"stripe","title":"Stripe","meaning":"2 to 16 named stores (`[[store]]`), a chunk of each in turn","options":["readonly","serial","removable","chunk"]},
  {"word":"concat","place":"ID,...","shown":"concat","title":"Concat","meaning":"1 to 16 named stores (`[[store]]`), one behind the other; more can be added at its end","options":["readonly","serial","removable"]},
  {"word":"cdrom","place":"[PATH]","shown":"cdrom","title":"CD or DVD drive","meaning":"a CD or DVD drive with an ISO file in it, or an empty one (`cdrom:`)","options":["serial"]},
  {"word":"scsi","place":"DEVICE","shown":"scsi","title":"SCSI device","meaning":"a SCSI device of any type, passed through: `/dev/NODE` of this machine, or `iscsi://HOST[:PORT]/TARGET/LUN`","options":["serial","retry","user","password_file","initiator","mutual_user","mutual_password_file"]},
  {"word":"handler","place":"SOCKET","shown":"handler","title":"Handler","meaning":"a device of any type that another process emulates, which listens on a unix socket","options":["serial","retry"]},
] as const;
