/** Reading from the server within components. */
import { useCallback, useEffect, useState } from "preact/hooks";
import { events, flowing } from "../api/live";
import { problemFrom } from "../api/client";
import type { Problem } from "../api/types";
import { Store, useStore } from "./store";

/** Grows whenever what the server shows may have changed: pages then read again. */
export const generation = new Store(0);
export const touch = () => generation.set(generation.get() + 1);

/** Events after which lists look different. */
const TELLING = /^(config-|session-|lun-|snapshot-|reservation-)/;
let seen = 0;
/** Lists are read again at most so often. */
const TOUCH_MS = 300;
let later: ReturnType<typeof setTimeout> | undefined;
const touchLater = () => {
  later = undefined;
  touch();
};
events.watch((all) => {
  const fresh = all.filter(({ number }) => number > seen);
  seen = all.at(-1)?.number ?? 0;
  // However many there are, lists are read again once.
  if (fresh.some(({ kind }) => TELLING.test(kind))) later ??= setTimeout(touchLater, TOUCH_MS);
});

// What happened while the stream was broken is not known.
flowing.watch((isFlowing) => isFlowing && touch());

export interface Loaded<T> {
  /** The last good answer; kept while it is read again. */
  value: T | undefined;
  problem: Problem | undefined;
  reload: () => void;
}

/** Reads when the component appears, when `key` changes, and when the server's state may have changed. */
export function useLoad<T>(read: () => Promise<T>, key: unknown = ""): Loaded<T> {
  const at = useStore(generation);
  const [again, setAgain] = useState(0);
  const [state, setState] = useState<{ value: T | undefined; problem: Problem | undefined }>({
    value: undefined, problem: undefined,
  });
  useEffect(() => {
    let isCurrent = true;
    read().then(
      (value) => isCurrent && setState({ value, problem: undefined }),
      (thrown: unknown) => isCurrent && setState(({ value }) => ({ value, problem: problemFrom(thrown) })),
    );
    return () => {
      isCurrent = false;
    };
    // `read` is a new function each time; `key` says when it reads something else.
  }, [at, again, key]);
  const reload = useCallback(() => setAgain((value) => value + 1), []);
  return { ...state, reload };
}

/** Something the user started: whether it runs, and why it failed. */
export function useTask(): { busy: boolean; problem: Problem | undefined; run: (task: () => Promise<void>) => void; clear: () => void } {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  const run = useCallback((task: () => Promise<void>) => {
    setBusy(true);
    setProblem(undefined);
    task().catch((thrown: unknown) => setProblem(problemFrom(thrown))).finally(() => setBusy(false));
  }, []);
  const clear = useCallback(() => setProblem(undefined), []);
  return { busy, problem, run, clear };
}
