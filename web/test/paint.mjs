// How long a browser takes to show each page of a server: what bench/console.py measures.
//
//     node test/paint.mjs --url URL --token TOKEN [--rounds 7] [--width 1440] [WORDS]
//
// Each time a browser context of its own opens the address of the page, with nothing in its cache. Prints one line of
// JSON for each page: `paint` and `contentful` as the browser tells them, `stands` when nothing is being loaded any more
// and the table of the page, if it has one, has its rows; all in ms from the beginning of the navigation.
import { parseArgs } from "node:util";
import { close, launch, login, open } from "./browser.mjs";
import { until } from "./harness.mjs";
import { PAGES, things } from "./pages.mjs";

const text = { type: "string" };
const { values, positionals: [words = ""] } = parseArgs({
  allowPositionals: true, options: { url: text, token: text, rounds: { ...text, default: "7" }, width: { ...text, default: "1440" } },
});
/** After this without another change nothing more comes, in ms. */
const QUIET_MS = 400;

/** Runs in the page before its own script: remembers when it began to stand, for the last time. */
function watch() {
  window.stood = { at: undefined, isNow: false, hasRows: false };
  const look = () => {
    const hasRows = document.querySelector("main table tbody tr") !== null;
    const isNow = document.querySelector("main .card, main form, main .empty") !== null && document.querySelector("main .loading") === null;
    const began = isNow && (!window.stood.isNow || (hasRows && !window.stood.hasRows));
    window.stood.isNow = isNow;
    window.stood.hasRows ||= hasRows;
    // It is to be seen with the next frame.
    if (began) requestAnimationFrame(() => { window.stood.at = performance.now(); });
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true });
}

async function once(browser, state, hash) {
  const context = await browser.newContext({ viewport: { width: Number(values.width), height: 900 }, storageState: state, ignoreHTTPSErrors: true, reducedMotion: "reduce" });
  const page = await context.newPage();
  await page.addInitScript(watch);
  await page.goto(`${values.url}/#/${hash}`);
  const read = () => page.evaluate(() => {
    const { at, isNow } = window.stood;
    const now = performance.now();
    const of = (name) => performance.getEntriesByName(name)[0]?.startTime;
    return { stands: isNow ? at : undefined, quiet: now - (at ?? now), paint: of("first-paint"), contentful: of("first-contentful-paint") };
  });
  const { stands, paint, contentful } = await until(async () => {
    const figures = await read();
    return figures.stands !== undefined && figures.contentful !== undefined && figures.quiet > QUIET_MS && figures;
  }, `${hash} stands`);
  await context.close();
  return { paint, contentful, stands };
}

const browser = await launch();
try {
  const page = await open(browser, values.url);
  await login(page, values.token);
  const there = await things(page);
  const state = await page.context().storageState();
  await close(page);
  // Pages with a dialog or a report that was opened are the same pages.
  const pages = PAGES.filter(([name, , act]) => !act && name.includes(words));
  for (const [name, hash] of pages) {
    const figures = [];
    for (let round = 0; round < Number(values.rounds); round += 1) figures.push(await once(browser, state, hash(there)));
    console.log(JSON.stringify({ page: name, figures }));
  }
} finally {
  await browser.close();
}
