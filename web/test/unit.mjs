// The pure parts: figures, rates, documents, differences, reports.
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { createServer } from "vite";
import { test } from "./harness.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));

/** Loads modules of the console as they are written. */
async function load(...names) {
  const vite = await createServer({ root, configFile: false, logLevel: "error", server: { middlewareMode: true, ws: false, watch: null }, appType: "custom" });
  const modules = await Promise.all(names.map((name) => vite.ssrLoadModule(`/src/lib/${name}.ts`)));
  await vite.close();
  return modules;
}

/** Each with what must come out. */
function table(run, rows) {
  for (const [given, wanted] of rows) assert.equal(run(given), wanted, String(given));
}

function addUnits([units, rates, diff, bench, commands, wish, words, ways, past, faults]) {
  test("names in a sentence lead to their pages, and parts of other names do not", () => {
    const links = [["iqn.x:a", "t"], ["iqn.x:host", "i"], ["disk", "l"]];
    const of = (text) => words.partsOf(text, links).map(({ text: part, to }) => (to ? `[${part}]` : part)).join("");
    assert.equal(of("iqn.x:host logged in to iqn.x:a as disk2: disk."), "[iqn.x:host] logged in to [iqn.x:a] as disk2: [disk].");
    assert.equal(of("disk-1, my.disk and iqn.x:a.b, iqn.x:disk"), "disk-1, my.disk and iqn.x:a.b, iqn.x:disk");
    assert.equal(of(""), "");
  });

  test("a map has the targets that export a LUN and the hosts that see it", () => {
    const target = (name, ...ids) => ({ spec: { name, luns: ids.map((id, lun) => ({ lun, id })) } });
    const session = (initiator, ...ids) => ({ initiator, luns: ids.map((id, lun) => ({ lun, id })) });
    const found = ways.waysOf(["b", "a"], [target("t1", "a", "a"), target("t2", "a", "c")], [session("h1", "a"), session("h1", "a", "b")]);
    assert.deepEqual(found, [{ lun: "b", targets: [], hosts: ["h1"] }, { lun: "a", targets: ["t1", "t2"], hosts: ["h1"] }]);
  });

  test("a pause in the figures is a pause in the chart", () => {
    const point = (at_ms) => ({ at_ms, read_iops: 1, write_iops: 2, other_iops: 3, read_bytes: 4, write_bytes: 5, errors: 0, depth: 0 });
    const points = past.pointsOf({ range: "1h", step_ms: 10, points: [point(0), point(10), point(30), point(60)] });
    assert.deepEqual(points.map(({ at_ms, isPause }) => [at_ms, isPause ?? false]), [[5, false], [15, false], [35, false], [45, true], [65, false]]);
    assert.deepEqual([points[0].iops, points[0].bytes, points[0].p99], [6, 9, undefined]);
  });

  test("figures change their unit where the next digit would be the fourth", () => {
    table(units.bytes, [[0, "0 B"], [1023, "1023 B"], [1024, "1 KiB"], [1536, "1.50 KiB"], [10 * 2 ** 30, "10 GiB"]]);
    table(units.count, [[0, "0"], [9.94, "9.9"], [9.95, "10"], [999, "999"], [999.5, "1.00k"], [12345, "12.3k"]]);
    table(units.throughput, [[999, "999 B/s"], [1000, "1 kB/s"], [1.5e9, "1.50 GB/s"]]);
    table(units.latency, [[undefined, "–"], [95, "95 µs"], [999.4, "999 µs"], [999.5, "1.00 ms"], [999_499, "999 ms"], [2e6, "2 s"]]);
    table(units.duration, [[999, "0 s"], [61_000, "1 min 1 s"], [86_400_000, "1 d"], [90_061_000, "1 d 1 h"]]);
  });

  test("an axis names what its span needs", () => {
    const at = new Date(2026, 10, 21, 9, 6, 15).getTime();
    assert.deepEqual([300_000, 3_600_000, 86_400_000, 30 * 86_400_000].map((span) => units.tick(at, span)), ["09:06:15", "09:06", "09:06", "21 Nov"]);
  });

  test("sizes are read and written exactly", () => {
    table(units.parseSize, [["10G", 10 * 2 ** 30], ["512 MiB", 2 ** 29], ["1.5k", 1536], ["4097", 4097], ["", undefined], ["10X", undefined], ["-1", undefined], ["0", undefined]]);
    table(units.exactSize, [[1024, "1k"], [4097, "4097"], [1.5 * 2 ** 30, "1536M"], [2 ** 40, "1T"]]);
  });

  addRates(rates);

  test("a difference has every line of both texts", () => {
    const marks = (a, b) => diff.diff(a, b).map(({ mark, text }) => mark + text);
    assert.deepEqual(marks("a\nb\nc", "a\nx\nc\nd"), [" a", "-b", "+x", " c", "+d"]);
    assert.deepEqual(marks("a\nb", "a\nb"), [" a", " b"]);
    const long = Array.from({ length: 20 }, (_, at) => `line ${at}`);
    const shown = diff.hunks(diff.diff(long.join("\n"), long.with(10, "new").join("\n")), 1);
    assert.deepEqual(shown.map((line) => line && line.mark), [undefined, " ", "-", "+", " "]);
  });

  test("reports of several files stand side by side by their points", () => {
    const point = (iodepth, iops) => ({ rw: "randread", block_bytes: 4096, iodepth, sessions: 1, read_percent: null, targets: [{ label: "a", summary: { iops: { median: iops, min: iops, max: iops } } }] });
    const file = (...points) => bench.parseReport(JSON.stringify({ format: "tarn-bench", version: 1, host: {}, targets: [{ label: "a" }], points }));
    const columns = bench.columnsOf([{ name: "x", report: file(point(1, 5), point(8, 6)) }, { name: "y", report: file(point(8, 7)) }]);
    const rows = bench.rowsOf(columns, "iops").map(({ name, cells }) => [name, ...cells.map((cell) => cell?.median)]);
    assert.deepEqual(rows, [["randread 4 KiB, depth 1", 5, undefined], ["randread 4 KiB, depth 8", 6, 7]]);
    for (const [text, why] of [["{", /not JSON/], ["null", /no report/], ['{"format":"tarn-bench","version":2}', /version 2/], ['{"format":"tarn-bench","version":1,"points":[3],"targets":[]}', /damaged/]]) {
      assert.throws(() => bench.parseReport(text), why);
    }
  });

  test("commands quote what a shell would take apart", () => {
    const [linux, windows, esxi, freebsd, qemu, libiscsi] = commands.recipes({ target: "iqn.x:a", portals: ["[2001:db8::1]:3261"], lun: 2, user: "o'brien" });
    assert.match(linux.text, /username -v 'o'\\''brien'/);
    assert.match(windows.text, /TargetPortalAddress 2001:db8::1 -TargetPortalPortNumber 3261\n.*ChapUsername 'o''brien'/);
    assert.match(qemu.text, /file=iscsi:\/\/o'\\''brien%SECRET@\[2001:db8::1\]:3261\/iqn\.x:a\/2/);
    assert.match(libiscsi.text, /^iscsi-inq /);
    assert.match(esxi.text, /auth chap set --adapter=\$A --direction=uni --level=required --authname='o'\\''brien' --secret='SECRET'\nesxcli iscsi adapter discovery statictarget add --adapter=\$A --address=\[2001:db8::1\]:3261 --name=iqn\.x:a\n/);
    assert.match(freebsd.text, /iscsictl -A -p \[2001:db8::1\]:3261 -t iqn\.x:a -u 'o'\\''brien' -s 'SECRET'/);
    assert.deepEqual(commands.splitPortal("san.example"), ["san.example", "3260"]);
    assert.match(linux.text, /^iscsiadm -m discovery /);
    const [closed, closedWindows, closedEsxi] = commands.recipes({ target: "iqn.x:a", portals: ["192.0.2.1:3260"], lun: 2, user: "u", mutual: "san", discoverer: "finder" });
    assert.match(closedWindows.text, /TargetPortalPortNumber 3260 -AuthenticationType ONEWAYCHAP -ChapUsername 'finder' -ChapSecret 'SECRET_OF_DISCOVERY'\n/);
    assert.match(closedEsxi.text, /--direction=mutual .*--authname=san --secret='SECRET_OF_TARGET'\nesxcli iscsi adapter discovery statictarget /);
    const open = commands.recipes({ target: "iqn.x:a", portals: ["192.0.2.1:3260"], lun: 2 })[2];
    assert.match(open.text, /sendtarget add --adapter=\$A --address=192\.0\.2\.1:3260\n/);
    assert.match(closed.text, /^iscsiadm -m node -T iqn\.x:a -p 192\.0\.2\.1:3260 -o new\n/);
    assert.match(closed.text, /username_in -v san\n.*password_in -v 'SECRET_OF_TARGET'\n/);
  });

  test("commands are for all portals of a target", () => {
    const way = { target: "iqn.x:a", portals: ["192.0.2.1:3260", "192.0.2.2:3260"], lun: 2 };
    const [linux] = commands.recipes(way);
    assert.equal(linux.text, "iscsiadm -m discovery -t sendtargets -p 192.0.2.1:3260\niscsiadm -m node -T iqn.x:a --login");
    const [closed, , esxi] = commands.recipes({ ...way, discoverer: "finder" });
    for (const portal of way.portals) {
      assert.ok(closed.text.includes(`iscsiadm -m node -T iqn.x:a -p ${portal} -o new\n`), closed.text);
      assert.ok(esxi.text.includes(`--address=${portal} --name=iqn.x:a`), esxi.text);
    }
  });

  test("a store has the options that its kind takes", () => {
    const given = { ...wish.FRESH, path: "/srv/a?b%.img", size: "1G", cache: "direct" };
    const stores = ["file", "block", "mem"].map((kind) => wish.storeOf({ ...given, kind }));
    assert.deepEqual(stores, ["file:/srv/a%3Fb%25.img?size=1G&cache=direct", "block:/srv/a%3Fb%25.img?cache=direct", "mem:1G"]);
    const options = { ...given, cache: "writeback", removable: true, readonly: true };
    assert.deepEqual([["nbd", "nas:10809/disk"], ["nbds", "nas"], ["nbd+unix", "/run/a b.sock"], ["rbd", "rbd/image"]].map(([kind, path]) => wish.storeOf({ ...options, kind, path })),
      ["nbd://nas:10809/disk?readonly&removable", "nbds://nas?readonly&removable", "nbd+unix:///?socket=/run/a b.sock&readonly&removable", "rbd:rbd/image?size=1G&readonly&removable"]);
    assert.equal(wish.storeOf({ ...given, kind: "rbd", path: "rbd/image", size: "" }), "rbd:rbd/image");
    const wrong = (kind, path) => wish.placeError({ ...given, kind, path }) === undefined;
    for (const [kind, path, isRight] of [["file", "/a", true], ["file", "a", false], ["file", "/a/", false], ["nbd", "nas:1/x/y", true], ["nbd", "nas?x", false], ["rbd", "pool/ns/image", true], ["rbd", "image", false]]) {
      assert.equal(wrong(kind, path), isRight, `${kind} ${path}`);
    }
    assert.deepEqual(["file", "block", "memory", "null"].map(wish.isSized), [true, false, true, true]);
  });

  test("further options of a store are those that its kind knows", () => {
    const given = { ...wish.FRESH, kind: "nbds", path: "nas/disk", more: "connections=4&ca=/etc/ca.pem" };
    assert.equal(wish.storeOf(given), "nbds://nas/disk?connections=4&ca=/etc/ca.pem");
    assert.equal(wish.moreError(given), undefined);
    assert.match(wish.moreError({ ...given, kind: "nbd" }), /“ca” is none of blocksize, thin, connections, retry/);
    assert.equal(wish.storeOf({ ...given, kind: "nbd+unix", path: "/run/n.sock", exported: "disk", more: "" }), "nbd+unix:///disk?socket=/run/n.sock");
    const stores = [["hyperscsi", "ABC/disk", "udp=192.0.2.1"], ["iscsi", "nas/iqn.x:a/0", "user=u"]].map(([kind, path, more]) => {
      assert.equal(wish.placeError({ ...given, kind, path }), undefined);
      return wish.storeOf({ ...given, kind, path, more });
    });
    assert.deepEqual(stores, ["hyperscsi://ABC/disk?udp=192.0.2.1", "iscsi://nas/iqn.x:a/0?user=u"]);
    assert.ok(wish.placeError({ ...given, kind: "iscsi", path: "nas/iqn.x:a" }) && wish.placeError({ ...given, kind: "hyperscsi", path: "ABC" }));
  });

  test("a log device brings its sync_bias, if it is not the usual one", () => {
    const given = { ...wish.FRESH, id: "new", path: "/srv/a.img", log: "file:/srv/l.img?size=4G", target: "iqn.x:a" };
    const lunOf = (change) => wish.editsUntil({ ...given, ...change }, 0)[0].add.lun;
    const plain = { id: "new", store: "file:/srv/a.img?size=10G", log: given.log };
    assert.deepEqual([lunOf({}), lunOf({ bias: "throughput" })], [plain, { ...plain, sync_bias: "throughput" }]);
    assert.deepEqual(lunOf({ kind: "mem", size: "1G", bias: "throughput" }), { id: "new", store: "mem:1G" });
    assert.deepEqual(lunOf({ log: " ", bias: "throughput" }), { id: "new", store: "file:/srv/a.img?size=10G" });
  });

  test("what a plan finds wrong stands at the field that has it", () => {
    const given = { ...wish.FRESH, id: "n", path: "/nowhere/a.img", log: "file:/nowhere/l.img", newTarget: "iqn.x:A", portal: "192.0.2.7:3260", newGroup: "g", newUser: "u" };
    const step = (kind, name, reason) => ({ action: "add", kind, name, detail: "", effect: "refused", reason });
    const plan = {
      mistakes: [{ place: 'lun "n": log', detail: "no room" }, { place: 'target "iqn.x:a": portals[0]', detail: "foreign" }],
      steps: [{ ...step("lun", "n", 'lun "n": store: /nowhere/a.img: no directory'), }, step("lun", "n", 'lun "n": log: later'), { ...step("group", "g", "fine"), effect: "online" }],
    };
    assert.deepEqual(faults.faultsOf(given, plan), { log: "no room", portal: "foreign", path: "/nowhere/a.img: no directory" });
    assert.deepEqual(faults.faultsOf({ ...given, kind: "mem" }, { steps: [step("lun", "n", "memory disks of 100 TiB: too much")] }), { size: "memory disks of 100 TiB: too much" });
    const problem = (place) => faults.faultsOf(given, { type: "invalid-config", title: "", status: 422, detail: "bad", place });
    assert.deepEqual([problem('group "g": initiators[0]'), problem('user "u": secret'), problem('lun "other": store'), problem(undefined)], [{ initiators: "bad" }, { secret: "bad" }, {}, {}]);
    assert.deepEqual(faults.faultsOf({ ...given, target: "iqn.x:a" }, plan).portal, undefined);
    assert.deepEqual(["path", "log", "portal", "newTarget", "initiators", "secret"].map(faults.stepOf), [0, 0, 1, 1, 2, 2]);
  });

  test("the wizard asks for one edit of each thing that it makes", () => {
    const given = { ...wish.FRESH, id: "new", kind: "mem", size: "1G", newTarget: "iqn.x:a", portal: "127.0.0.1:3260", newGroup: "g", initiators: [" iqn.y ", ""], proof: "new-user", newUser: "u", secret: "0123456789ab" };
    assert.deepEqual(wish.editsOf(given), [
      { add: { lun: { id: "new", store: "mem:1G" } } },
      { add: { group: { id: "g", initiators: ["iqn.y"] } } },
      { add: { user: { name: "u", secret: "0123456789ab" } } },
      { add: { target: { name: "iqn.x:a", portals: [{ bind: "127.0.0.1:3260" }], auth: ["u"] } } },
      { add: { view: { target: "iqn.x:a", id: "new", groups: ["g"] } } },
    ]);
    const there = { ...given, target: "iqn.x:b", audience: "everyone" };
    assert.deepEqual(wish.editsOf(there).slice(1), [{ add: { view: { target: "iqn.x:b", id: "new", groups: [] } } }]);
  });
}

function addRates(rates) {
  const operations = (count, bucket, bytes = 0) => ({ count, bytes, errors: 0, latency_us: 0, latency: Array.from({ length: rates.BUCKETS }, (_, at) => (at === bucket ? count : 0)) });
  const none = { count: 0, bytes: 0, errors: 0, latency_us: 0 };
  const series = (lun, initiator, count) => ({ lun, initiator, depth: 1, read: operations(count, 3, count * 10), write: none, other: none });
  const stats = (at_ms, busy_us, ...all) => ({ at_ms, cores: [{ core: 0, busy_us }], series: all, logins: {}, sessions: 0 });

  test("bounds of latencies are those of the server", () => {
    assert.deepEqual(rates.BOUNDS_US.slice(0, 6), [4, 6, 8, 12, 16, 24]);
    assert.equal(rates.BOUNDS_US.length, 40);
    assert.equal(rates.BOUNDS_US[39], 3 << 20);
  });

  test("rates are what was gained, over the time that passed", () => {
    const sample = rates.sampleBetween(stats(1000, 0, series("a", "x", 10)), stats(3000, 1e6, series("a", "x", 30), series("a", "y", 4)));
    assert.deepEqual([sample.all.read.iops, sample.luns.get("a").read.iops, sample.initiators.get("x").read.iops, sample.initiators.get("y").read.iops], [12, 12, 10, 2]);
    assert.deepEqual([sample.all.read.bytes, sample.all.read.buckets[3], sample.all.depth, sample.busy[0]], [120, 24, 2, 0.5]);
    assert.equal(rates.sampleBetween(stats(1000, 0), stats(1000, 0)), undefined);
  });

  test("a counter that began again is not a loss", () => {
    const sample = rates.sampleBetween(stats(0, 5, series("a", "x", 100, 1)), stats(1000, 0, series("a", "x", 7, 3)));
    assert.equal(sample.all.read.iops, 7);
  });

  test("percentiles lie within their bucket", () => {
    const buckets = new Array(rates.BUCKETS).fill(0);
    assert.equal(rates.percentile(buckets, 0.5), undefined);
    buckets[3] = 100;
    assert.deepEqual([0, 0.5, 1].map((q) => rates.percentile(buckets, q)), [8, 10, 12]);
    buckets[40] = 100;
    assert.equal(rates.percentile(buckets, 0.99), 3 << 20);
  });
}

/** Adds the tests of the pure parts. */
export async function addUnitTests() {
  addUnits(await load("units", "rates", "diff", "bench", "commands", "wish", "words", "ways", "past", "faults"));
}
