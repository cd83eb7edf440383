// What is committed is what the sources give: types, built files, their size, and the types of the API.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { typesOf } from "../tools/types.mjs";
import { test } from "./harness.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const GZIP_BYTES_MAX = 90 * 1000;

const run = (name, ...flags) => {
  // Whatever mode this process runs in, what is built is for use.
  const env = { ...process.env, NODE_ENV: "production" };
  try {
    return execFileSync(join(root, "node_modules/.bin", name), flags, { cwd: root, env, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  } catch (error) {
    return assert.fail(`${name}: ${error.stdout}${error.stderr}`);
  }
};

/** Files below a directory with their content, in order. */
function filesOf(directory) {
  const names = readdirSync(directory, { recursive: true, withFileTypes: true }).filter((each) => each.isFile())
    .map((each) => join(each.parentPath ?? each.path, each.name)).sort();
  return names.map((name) => ({ name: relative(directory, name), bytes: readFileSync(name) }));
}

export function addBuildTests() {
  test("types are right", () => {
    run("tsc", "--noEmit");
  });

  test("types of the API are those of its document", () => {
    const kept = readFileSync(join(root, "src/api/types.ts"), "utf8");
    assert.ok(kept === typesOf(), "src/api/types.ts is not what docs/openapi.json gives; run: make web");
  });

  test("the built files that are committed are what the sources give, and small", () => {
    const directory = mkdtempSync(join(tmpdir(), "tarn-console-"));
    try {
      run("vite", "build", "--outDir", directory, "--logLevel", "error");
      const [built, kept] = [filesOf(directory), filesOf(join(root, "dist"))];
      assert.deepEqual(kept.map(({ name }) => name), built.map(({ name }) => name));
      for (const [at, { name, bytes }] of built.entries()) assert.ok(bytes.equals(kept[at].bytes), `dist/${name} is not what the sources give; run: make web`);
      const size = kept.reduce((sum, { bytes }) => sum + gzipSync(bytes, { level: 9 }).length, 0);
      console.log(`      ${size} bytes compressed, of ${GZIP_BYTES_MAX}`);
      assert.ok(size <= GZIP_BYTES_MAX, `${size} bytes compressed, ${GZIP_BYTES_MAX} are allowed`);
    } finally {
      rmSync(directory, { recursive: true });
    }
  });

  test("the lock file names no registry", () => {
    assert.equal(/"resolved"/.test(readFileSync(join(root, "package-lock.json"), "utf8")), false);
  });
}
