// End-to-end tests in a browser.
//
//     node test/e2e.mjs [--url URL --token TOKEN] [--out DIRECTORY] [WORDS]
//
// Without URL against the mock. With URL against a server that has at least one LUN, some sessions and load; tests that
// change things make things of their own and take them away.
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { launch } from "./browser.mjs";
import { runAll } from "./harness.mjs";
import { addPageTests } from "./pages.mjs";
import { addTaskTests } from "./tasks.mjs";
import { startMock } from "./server.mjs";

const { values: flags, positionals: [words] } = parseArgs({
  allowPositionals: true,
  options: { url: { type: "string" }, token: { type: "string", default: "admin-token" }, out: { type: "string" } },
});
const out = flags.out ?? fileURLToPath(new URL("../out", import.meta.url));

const mocks = flags.url ? [] : [await startMock(), await startMock("--empty")];
const world = { base: flags.url?.replace(/\/$/, "") ?? mocks[0].base, token: flags.token, empty: mocks[1]?.base, mock: mocks[0] };
const browser = await launch();
try {
  const given = { browser: () => browser, world: () => world, out };
  addTaskTests(given);
  addPageTests(given);
  process.exitCode = (await runAll(words)) ? 0 : 1;
} finally {
  await browser.close();
  await Promise.all(mocks.map((mock) => mock.stop()));
}
