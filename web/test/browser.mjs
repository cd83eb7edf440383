// A browser that tells on the console: errors, broken policies and requests to elsewhere fail the test.
import assert from "node:assert/strict";
import { chromium } from "playwright-core";
import { until } from "./harness.mjs";

const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
/** Debian's start script warns about locales and the like on its own; --no-sandbox is for tests as root. No GPU is emulated. */
const FLAGS = ["--disable-gpu", "--disable-gpu-rasterization", ...(process.getuid?.() === 0 ? ["--no-sandbox"] : [])];

export const launch = () => chromium.launch({ executablePath: CHROMIUM, args: FLAGS });

/** A page, not logged in, that remembers what went wrong. */
export async function open(browser, base, { width = 1280, height = 900, scheme = "light" } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: "reduce", ignoreHTTPSErrors: true });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  page.wrong = [];
  page.on("pageerror", (error) => page.wrong.push(`exception: ${error.message}`));
  page.on("console", (message) => {
    // The browser itself notes each answer that is no success; the tests ask for some of them.
    if (["error", "warning"].includes(message.type()) && !message.text().startsWith("Failed to load resource")) {
      page.wrong.push(`${message.type()}: ${message.text()}`);
    }
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(base + "/")) page.wrong.push(`request to elsewhere: ${request.url()}`);
  });
  page.base = base;
  return page;
}

/** Logs in with a token. */
export async function login(page, token) {
  await page.goto(page.base + "/");
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.locator("#menu").waitFor({ state: "attached" });
}

/** Nothing is being loaded any more. */
export const loaded = (page) => until(async () => (await page.locator(".loading").count()) === 0, "everything is loaded");

/** Goes to a page of the console and waits until it has what it shows. */
export async function visit(page, hash) {
  // The old page must be gone, or the test would press its buttons: after the frame that follows, it is.
  await page.evaluate((to) => new Promise((resolve) => {
    if (location.hash === to) return resolve();
    addEventListener("hashchange", () => requestAnimationFrame(() => setTimeout(resolve)), { once: true });
    location.hash = to;
    return undefined;
  }), `#/${hash}`);
  await page.locator("main h1").waitFor();
  await loaded(page);
}

/** Nothing went wrong since the page was opened. */
export async function close(page) {
  const { wrong } = page;
  await page.context().close();
  assert.deepEqual(wrong, []);
}
