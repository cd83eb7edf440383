// Invented initiators: sessions, and counters that move as under a real load.

const BOUNDS_US = Array.from({ length: 40 }, (_, at) => 2 ** (Math.floor(at / 2) + 2) * (at % 2 === 0 ? 1 : 1.5));

// Seeded, so that two runs show the same figures.
let seed = 42;
function random() {
  seed = (seed * 1664525 + 1013904223) % 2 ** 32;
  return seed / 2 ** 32;
}

/** Roughly normal, mean 0, deviation 1. */
const normal = () => random() + random() + random() + random() + random() + random() - 3;

const operations = () => ({ count: 0, bytes: 0, errors: 0, latency_us: 0, latency: new Array(41).fill(0) });

/** How hard an initiator works: I/Os a second, part of reads, bytes of each, median latency. */
const HABITS = [
  { iops: 21000, reads: 0.7, bytes: 8192, us: 95 },
  { iops: 6400, reads: 0.95, bytes: 4096, us: 140 },
  { iops: 900, reads: 0.2, bytes: 131072, us: 1400 },
  { iops: 2600, reads: 0.5, bytes: 16384, us: 310 },
  { iops: 55, reads: 0.9, bytes: 65536, us: 5200 },
];

const SESSIONS = [
  ["iqn.1993-08.org.debian:01:db1", "192.0.2.21:51122", 0, "alice", 2, 96],
  ["iqn.1993-08.org.debian:01:db2", "192.0.2.22:40311", 0, "alice", 1, 64],
  ["iqn.1991-05.com.microsoft:hv-03.corp.example", "192.0.2.40:49771", 1, undefined, 1, 32],
  ["iqn.1998-01.com.vmware:esx-11-4f2a77c1", "198.51.100.11:33821", 1, undefined, 2, 128],
  ["iqn.2008-11.org.linux-kvm:guest-build-07", "[2001:db8::7]:58110", 2, undefined, 1, 8],
];

/** Sessions that work; the others are logged in. */
const WORKING_MAX = 40;

export class Load {
  /** `more`: sessions that do little, for a large server. */
  constructor(configuration, more = 0) {
    this.configuration = configuration;
    this.started = Date.now() - 3 * 86_400_000;
    this.last = Date.now();
    this.cores = [0, 1].map((core) => ({ core, busy_us: 0, turns: 0, sessions: 3 - core, pool_bytes: 268435456, pool_free_bytes: 201326592, starved: 0 }));
    this.series = new Map();
    const targets = configuration.model.target.map(({ name }) => name);
    const quiet = Array.from({ length: more }, (_, at) => [
      `iqn.1993-08.org.debian:01:host${at}`, `198.18.${at >> 8}.${at & 255}:${40000 + at}`, at % Math.max(1, targets.length), undefined, 1, 0,
    ]);
    this.sessions = [...SESSIONS, ...quiet].filter((each) => targets[each[2]]).map(([initiator, address, target, user, connections, commands], at) => ({
      id: at + 1, initiator, address, target: targets[target], user, core: at % 2, since_ms: Date.now() - (1 + at % 90) * 7_410_000,
      commands, window: 128,
      transport: {
        iscsi: {
          tsih: (0x1f00 + 97 * at) % 65536, isid: `00023d0${String(at % 10)}0000`, portal_group: 1,
          connections: Array.from({ length: connections }, (_, cid) => ({
            cid, address, portal: "192.0.2.1:3260", header_digest: at === 2, data_digest: at === 2,
          })),
          violations: at === 3 ? 2 : 0, reinstatements: at % 3,
        },
      },
    }));
  }

  /** Ends sessions; what they did stays counted. */
  end(ids) {
    this.sessions = this.sessions.filter(({ id }) => !ids.includes(id));
    const alive = new Set(this.sessions.map(({ initiator }) => initiator));
    for (const series of this.series.values()) {
      if (!alive.has(series.initiator)) series.depth = 0;
    }
  }

  /** What a session sees. */
  view(session) {
    const target = this.configuration.model.target.find(({ name }) => name === session.target);
    const luns = (target?.luns ?? []).map(({ lun, id, readonly }) => ({ lun, id, readonly: readonly ?? false }));
    return { ...session, luns };
  }

  /** Counts what would have happened since the last time. */
  work(now = Date.now()) {
    const seconds = Math.min(5, (now - this.last) / 1000);
    if (seconds < 0.2) return;
    this.last = now;
    for (const session of this.sessions.slice(0, WORKING_MAX)) {
      const views = this.view(session).luns;
      const [first] = views.filter(({ lun }) => lun === session.id % Math.max(1, views.length));
      if (first) this.drive(session, first.id, seconds, now);
    }
    for (const core of this.cores) {
      core.busy_us += seconds * 1e6 * (0.45 + 0.2 * core.core + 0.05 * normal());
      core.turns += Math.round(seconds * 21000);
      core.sessions = this.sessions.filter((session) => session.core === core.core).length;
    }
  }

  drive(session, lun, seconds, now) {
    const key = `${lun} ${session.initiator}`;
    const series = this.series.get(key) ?? { lun, initiator: session.initiator, depth: 0, slow: 0, read: operations(), write: operations(), other: operations() };
    this.series.set(key, series);
    const habit = HABITS[(session.id - 1) % HABITS.length];
    const wave = 1 + 0.3 * Math.sin(now / 9000 + session.id) + 0.06 * normal();
    const total = Math.max(1, Math.round(habit.iops * wave * seconds));
    const reads = Math.round(total * habit.reads);
    const slow = now % 47_000 < 3000 ? 6 : 1;
    count(series.read, reads, habit.bytes, habit.us * slow);
    count(series.write, total - reads, habit.bytes, habit.us * 1.6 * slow);
    count(series.other, Math.round(3 * seconds), 0, 12);
    series.depth = Math.max(1, Math.round(session.commands * wave * 0.5));
    session.commands = Math.max(1, Math.min(128, Math.round(session.commands + 4 * normal())));
  }

  stats() {
    this.work();
    return {
      at_ms: Date.now(), cores: this.cores, series: [...this.series.values()],
      logins: { accepted: 112, succeeded: 97, failed: [{ cause: "authentication-failure", count: 11 }, { cause: "not-found", count: 4 }] },
      sessions: this.sessions.length,
    };
  }
}

const DRAWS = 200;

/** Adds commands whose latencies spread around a median. */
function count(into, commands, bytes, median) {
  into.count += commands;
  into.bytes += commands * bytes;
  const draws = Math.min(DRAWS, commands);
  for (let draw = 0; draw < draws; draw += 1) {
    const part = Math.floor((commands * (draw + 1)) / draws) - Math.floor((commands * draw) / draws);
    const us = median * Math.exp(0.45 * normal() + (random() < 0.015 ? 1.8 : 0));
    const at = BOUNDS_US.findIndex((bound) => us <= bound);
    into.latency[at < 0 ? 40 : at] += part;
    into.latency_us += Math.round(us * part);
  }
}
