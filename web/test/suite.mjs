// The tests of the console.
//
//     node test/suite.mjs [WORDS]                                     all, in a browser against the mock
//     node test/suite.mjs --url URL --token TOKEN [WORDS]             those in a browser, against a server
//     node test/suite.mjs --out DIRECTORY                             where pictures go; else out/
//     node test/suite.mjs --all                                       every page at all widths, light and dark, with a picture
//
// A server must have a LUN, a group that sees one, a session that may be ended, and an admin token; tests that change
// things make things of their own and take them away.
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { launch } from "./browser.mjs";
import { addBuildTests } from "./build.mjs";
import { runAll } from "./harness.mjs";
import { addLargeTests, addPageTests } from "./pages.mjs";
import { startMock } from "./server.mjs";
import { addTaskTests } from "./tasks.mjs";
import { addUnitTests } from "./unit.mjs";

const { values: flags, positionals: [words] } = parseArgs({
  allowPositionals: true,
  options: { all: { type: "boolean" }, url: { type: "string" }, token: { type: "string", default: "admin-token" }, out: { type: "string" } },
});
const out = flags.out ?? fileURLToPath(new URL("../out", import.meta.url));

/** Where to test: the server that is named, or a mock with things and one without. */
async function worldOf() {
  if (flags.url) return { base: flags.url.replace(/\/$/, ""), token: flags.token, stop: async () => undefined };
  const all = await Promise.all([startMock(), startMock("--empty"), startMock("--large")]);
  const [base, empty, large] = all.map((mock) => mock.base);
  return { base, empty, large, token: flags.token, stop: () => Promise.all(all.map((mock) => mock.stop())) };
}

if (!flags.url) {
  addBuildTests();
  await addUnitTests();
}
const world = await worldOf();
const browser = await launch();
try {
  addTaskTests({ browser, world });
  addPageTests({ browser, world, out, all: flags.all });
  if (world.large) addLargeTests({ browser, large: world.large, token: world.token, out, all: flags.all });
  process.exitCode = (await runAll(words)) ? 0 : 1;
} finally {
  await browser.close();
  await world.stop();
}
