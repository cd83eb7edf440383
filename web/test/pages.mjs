// Every page, narrow and wide, light and dark: it fits, it is accessible, it logs nothing; and a picture of it is kept.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
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

/** Name of the picture, the address (of things that are there), and what to do before. */
const PAGES = [
  ["luns", () => "luns"],
  ["lun-remove", ({ lun }) => `luns/${lun}`, press("Remove")],
  ["targets", () => "targets"],
  ["target-add", () => "targets", press("Add target")],
  ["new-disk", () => "new-disk"],
  ["groups", () => "groups"],
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
  ["doctor", () => "doctor"],
  ["config", () => "config"],
  ["config-history", () => "config", press("History")],
  ["bench", () => "bench", pick],
  ["tokens", () => "tokens"],
  ["not-found", () => "nowhere"],
  // Last, when there is something to see in their charts.
  ["overview", () => ""],
  ["lun", ({ lun }) => `luns/${lun}`],
];

async function things(page) {
  return page.evaluate(async () => {
    const get = async (path) => (await fetch(`/api/v1/${path}`)).json();
    const [luns, sessions] = await Promise.all([get("luns"), get("sessions")]);
    return { lun: encodeURIComponent(luns[0].spec.id), session: sessions[0]?.id ?? 0 };
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

export function addPageTests({ browser, world, out }) {
  mkdirSync(out, { recursive: true });
  for (const scheme of ["light", "dark"]) {
    for (const width of [360, 768, 1440]) {
      test(`every page fits and is accessible at ${width} px, ${scheme}`, async () => {
        const page = await open(browser, world.base, { width, scheme });
        await page.goto(world.base);
        await page.getByLabel("Token").waitFor();
        await page.screenshot({ path: join(out, `login-${width}-${scheme}.png`) });
        await login(page, world.token);
        await accessible(page, "overview");
        const there = await things(page);
        for (const [name, hash, act] of PAGES) {
          await visit(page, "events");
          await visit(page, hash(there));
          await act?.(page);
          await loaded(page);
          assert.equal(await tooWide(page), null, `${name} is wider than ${width} px`);
          await page.screenshot({ path: join(out, `${name}-${width}-${scheme}.png`), fullPage: true });
          await accessible(page, `${name}, ${width} px, ${scheme}`);
        }
        await close(page);
      }, 180_000);
    }
  }

  test("live figures move", async () => {
    const page = await open(browser, world.base);
    await login(page, world.token);
    const iops = page.locator('[data-figure="IOPS"]');
    const first = await until(async () => { const text = await iops.textContent(); return text !== "–" && text; }, "a first figure");
    await until(async () => (await iops.textContent()) !== first, "another figure");
    await close(page);
  });
}
