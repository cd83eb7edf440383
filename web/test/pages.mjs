// Every page, narrow and wide, light and dark: it fits, it is accessible, it logs nothing; with --all a picture of it is kept.
import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { close, loaded, login, open, visit } from "./browser.mjs";
import { test, until } from "./harness.mjs";

const AXE = readFileSync(new URL("../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const REPORT = {
  format: "tarn-bench", version: 1, failure: null, verified: false,
  host: { kernel: "6.18", cpu_model: "Xeon", cpus: 2, date: "2026-11-20T10:00:00Z", tarn_version: "0.1.0", command_line: "tarn bench" },
  targets: [{ label: "ours", transport: "iscsi", place: "h1:3260" }, { label: "theirs", transport: "iscsi", place: "h2:3260" }],
  points: [[1, 53264, 37000], [32, 714113, 78000], [128, 864973, 80000]].map(([iodepth, ours, theirs]) => ({
    rw: "randread", block_bytes: 4096, iodepth, sessions: 1, read_percent: null,
    targets: [["ours", ours], ["theirs", theirs]].map(([label, iops]) => ({
      label, rounds: [], ratio_to_first: {},
      summary: { iops: spread(iops), p50_us: spread((iodepth * 1e6) / iops), p99_us: spread((iodepth * 2e6) / iops) },
    })),
  })),
};

function spread(median) {
  return { median, min: median * 0.94, max: median * 1.05 };
}

export const report = (name) => ({ name, mimeType: "application/json", buffer: Buffer.from(JSON.stringify(REPORT)) });

const pick = (page) => page.getByLabel("Report files").setInputFiles([report("monday.json"), report("tuesday.json")]);
const press = (name) => (page) => page.getByRole("button", { name, exact: true }).first().click();

/** Presses a button that only some servers have something for. */
const pressIfThere = (name) => async (page) => {
  const button = page.getByRole("button", { name, exact: true }).first();
  if (await button.count()) await button.click();
};

/** Name of the picture, the address (of things that are there), and what to do before. */
export const PAGES = [
  ["luns", () => "luns"],
  ["lun-eject", ({ medium }) => `luns/${medium}`, pressIfThere("Eject")],
  ["lun-remove", ({ lun }) => `luns/${lun}`, press("Remove")],
  ["targets", () => "targets"],
  ["target-add", () => "targets", press("Add target")],
  ["target", ({ target }) => `targets/${target}`],
  ["target-lun", ({ target }) => `targets/${target}`, press("Add LUN")],
  ["new-disk", () => "new-disk"],
  ["stores", () => "stores"],
  ["nbd", () => "nbd"],
  ["nbd-add", () => "nbd", press("Add NBD server")],
  ["quotas", () => "quotas"],
  ["hyperscsi", () => "hyperscsi"],
  ["hyperscsi-add", () => "hyperscsi", press("Add group")],
  ["hyperscsi-group", ({ hyperscsi }) => `hyperscsi/${hyperscsi}`],
  ["hyperscsi-device", ({ hyperscsi }) => `hyperscsi/${hyperscsi}`, pressIfThere("Add device")],
  ["groups", () => "groups"],
  ["group", ({ group }) => `groups/${group}`],
  ["group-add", () => "groups", press("Add group")],
  ["users", () => "users"],
  ["user-add", () => "users", press("Add user")],
  ["access", () => "access", async (page) => {
    await page.getByLabel("Initiator").fill("iqn.1993-08.org.debian:01:db1");
    await press("Ask")(page);
    await page.getByText("may log in").first().waitFor();
  }],
  ["sessions", () => "sessions"],
  ["session", ({ session }) => `sessions/${session}`],
  ["events", () => "events"],
  ["health", () => "health"],
  ["config", () => "config"],
  ["config-history", () => "config", press("History")],
  ["bench", () => "bench", pick],
  ["tokens", () => "tokens"],
  ["not-found", () => "nowhere"],
  // Last, when there is something to see in their charts.
  ["overview", () => ""],
  ["lun", ({ lun }) => `luns/${lun}`],
];

export async function things(page) {
  return page.evaluate(async () => {
    const get = async (path) => (await fetch(`/api/v1/${path}`)).json();
    const [luns, sessions, targets, groups, hyperscsi] = await Promise.all([get("luns"), get("sessions"), get("targets"), get("groups"), get("hyperscsi")]);
    return {
      lun: encodeURIComponent(luns[0].spec.id), session: sessions[0]?.id ?? 0, target: encodeURIComponent(targets[0].spec.name),
      group: encodeURIComponent(groups[0].id), hyperscsi: encodeURIComponent(hyperscsi[0]?.name ?? "none"),
      medium: encodeURIComponent(luns.find(({ medium }) => medium)?.spec.id ?? luns[0].spec.id),
    };
  });
}

/** Widest part of the page that stands out. */
const tooWide = (page) => page.evaluate(() => {
  const room = document.documentElement.clientWidth;
  return document.documentElement.scrollWidth <= room ? null
    : [...document.querySelectorAll("body *")].filter((each) => each.getBoundingClientRect().right > room + 1)
      .map((each) => `${each.tagName}.${each.className}`).slice(0, 5).join(", ");
});

async function accessible(page, what) {
  // As an expression of the debugger: the policy of the page would refuse it as a script.
  await page.evaluate(AXE);
  const found = await page.evaluate(async () => {
    const { violations } = await window.axe.run(document, { resultTypes: ["violations"] });
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).slice(0, 3).join(" | ")}`);
  });
  assert.deepEqual(found, [], what);
}

/** Higher than this, and nobody sees its end. */
const HEIGHT_MAX = 4000;

/** Pages of a large server, 300 LUNs and 1,000 sessions, with their heights. */
export function addLargeTests({ browser, large, token, out, all }) {
  for (const width of all ? [360, 768, 1440] : [360, 1440]) {
    test(`no page of a large server is higher than ${HEIGHT_MAX} px at ${width} px`, async () => {
      const page = await open(browser, large, { width });
      await login(page, token);
      const there = await things(page);
      const heights = {};
      for (const [name, hash, act] of PAGES) {
        if (name === "bench") continue;
        await visit(page, "events");
        await visit(page, hash(there));
        await act?.(page);
        await loaded(page);
        heights[name] = await page.evaluate(() => Math.max(document.documentElement.scrollHeight, ...[...document.querySelectorAll("dialog")].map((each) => each.scrollHeight)));
        if (all) await page.screenshot({ path: join(out, `large-${name}-${width}.png`), fullPage: true });
      }
      console.log(`      ${Object.entries(heights).map(([name, height]) => `${name} ${height}`).join(", ")}`);
      for (const [name, height] of Object.entries(heights)) assert.ok(height <= HEIGHT_MAX, `${name}: ${height} px`);
      await close(page);
    }, 240_000);
  }

  test("one of 1,000 sessions is found by a word, and all of them by leafing", async () => {
    const page = await open(browser, large);
    await login(page, token);
    await visit(page, "sessions");
    const rows = page.getByRole("table", { name: "Sessions" }).locator("tbody tr");
    const first = await rows.first().textContent();
    await page.getByRole("navigation", { name: "Pages of Sessions" }).getByRole("button", { name: "Next" }).click();
    await until(async () => (await rows.first().textContent()) !== first, "the next page");
    await page.getByLabel("Search").fill("host777");
    await until(async () => (await rows.count()) === 1, "one session");
    assert.match(await rows.first().textContent(), /host777/);
    await close(page);
  });
}

/** The pictures in the README, which this suite takes: BLESS=1 puts those of a run into docs/images. */
const PICTURES = [["overview", "light"], ["lun", "dark"]];

/** Where every page is looked at. Against a server fewer do: what differs there is its answers. */
const SIZES = { all: [360, 390, 768, 1440], light: [360, 1440], dark: [768] };

export function addPageTests({ browser, world, out, all }) {
  mkdirSync(out, { recursive: true });
  for (const scheme of ["light", "dark"]) {
    for (const width of SIZES[all ? "all" : scheme]) {
      if (!all && !world.large && width === 768) continue;
      test(`every page fits and is accessible at ${width} px, ${scheme}`, async () => {
        const page = await open(browser, world.base, { width, scheme });
        await page.goto(world.base);
        await page.getByLabel("Token").waitFor();
        if (all) await page.screenshot({ path: join(out, `login-${width}-${scheme}.png`) });
        await login(page, world.token);
        await accessible(page, "overview");
        const there = await things(page);
        for (const [name, hash, act] of PAGES) {
          await visit(page, "events");
          await visit(page, hash(there));
          await act?.(page);
          await loaded(page);
          assert.equal(await tooWide(page), null, `${name} is wider than ${width} px`);
          if (all) await page.screenshot({ path: join(out, `${name}-${width}-${scheme}.png`), fullPage: true });
          await accessible(page, `${name}, ${width} px, ${scheme}`);
        }
        await close(page);
      }, 180_000);
    }
  }

  for (const [name, scheme] of PICTURES) {
    test(`the picture of ${name} in the README is as large as the page`, async () => {
      const page = await open(browser, world.base, { width: 1440, scheme });
      await login(page, world.token);
      const there = await things(page);
      const [, hash, act] = PAGES.find(([each]) => each === name);
      await visit(page, hash(there));
      await act?.(page);
      await loaded(page);
      const taken = join(out, `readme-${name}.png`);
      await page.screenshot({ path: taken });
      const kept = fileURLToPath(new URL(`../../docs/images/console-${name}.png`, import.meta.url));
      if (process.env.BLESS) copyFileSync(taken, kept);
      // Figures and times differ from one run to the next; PNG has width and height at byte 16.
      assert.deepEqual(readFileSync(kept).subarray(16, 24), readFileSync(taken).subarray(16, 24), "run this test with BLESS=1");
      await close(page);
    }, 60_000);
  }

  test("charts have a past at once, for each time range", async () => {
    const page = await open(browser, world.base);
    const asked = [];
    page.on("request", (request) => { if (request.url().includes("/figures?")) asked.push(new URL(request.url()).searchParams.get("range")); });
    await login(page, world.token);
    const chart = page.getByRole("img", { name: /^Throughput over the last/ });
    for (const [title, range] of [["24 h", "24h"], ["30 d", "30d"], ["5 min", "1h"], ["1 h", "1h"]]) {
      asked.length = 0;
      await page.getByRole("button", { name: title, exact: true }).click();
      await until(async () => asked.includes(range), `the figures of ${title} are asked for`);
      await until(async () => (await chart.getAttribute("aria-label")).endsWith(title), `the chart is of ${title}`);
      const value = page.locator(".chart", { hasText: "Throughput" }).locator("output").first();
      await until(async () => (await value.textContent()) !== "–", `the chart of ${title} has a value`);
    }
    await close(page);
  });

  test("live figures move", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    const iops = page.locator('[data-figure="IOPS"]');
    const first = await until(async () => { const text = await iops.textContent(); return text !== "–" && text; }, "a first figure");
    await until(async () => (await iops.textContent()) !== first, "another figure");
    await close(page);
  });
}
