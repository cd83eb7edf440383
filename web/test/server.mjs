// Starts the mock on a free port.
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

/** A mock that serves; `stop` ends it. */
export async function startMock(...flags) {
  const path = fileURLToPath(new URL("../mock/server.mjs", import.meta.url));
  const child = spawn(process.execPath, [path, "--port", "0", ...flags], { stdio: ["ignore", "pipe", "inherit"] });
  const base = await new Promise((resolve, reject) => {
    child.stdout.once("data", (text) => resolve(String(text).trim()));
    child.once("exit", (status) => reject(new Error(`the mock ended with status ${status}`)));
  });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  return { base, stop: () => child.kill() && ended };
}
