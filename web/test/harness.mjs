// Tests are functions with a claim and a time limit; the last line is the one that tests/run reads.
import assert from "node:assert/strict";

const LIMIT_MS = 120_000;
const tests = [];

/** Adds a test; its name is its claim. */
export function test(name, run, limitMs = LIMIT_MS) {
  tests.push({ name, run, limitMs });
}

/** Leaves a test out; the text says why. */
export class Skip extends Error {}

async function limited({ run, limitMs }) {
  let timer;
  const late = new Promise((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`longer than ${limitMs / 1000} s`)), limitMs);
  });
  try {
    await Promise.race([run(), late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Runs all of them, or those whose names have the words. True when none failed. */
export async function runAll(words = "") {
  const found = { passed: 0, failed: 0, skipped: 0 };
  for (const each of tests.filter(({ name }) => name.includes(words))) {
    try {
      await limited(each);
      found.passed += 1;
      console.log(`ok    ${each.name}`);
    } catch (error) {
      const isSkip = error instanceof Skip;
      found[isSkip ? "skipped" : "failed"] += 1;
      console.log(`${isSkip ? "skip" : "FAIL"}  ${each.name}\n      ${isSkip ? error.message : error.stack}`);
    }
  }
  console.log(`= ${found.passed} passed, ${found.failed} failed, ${found.skipped} skipped`);
  return found.failed === 0;
}

/** Waits until `condition` gives a value. */
export async function until(condition, what, seconds = 30) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > end) assert.fail(`not within ${seconds} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
