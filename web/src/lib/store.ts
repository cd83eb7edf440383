/** A value that components can watch. */
import { useEffect, useState } from "preact/hooks";

export class Store<T> {
  private watchers = new Set<(value: T) => void>();

  constructor(private value: T) {}

  get(): T {
    return this.value;
  }

  set(value: T): void {
    if (Object.is(value, this.value)) return;
    this.value = value;
    for (const watcher of [...this.watchers]) watcher(value);
  }

  /** Calls `watcher` after each change. Gives back what ends that. */
  watch(watcher: (value: T) => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }
}

/** The value of a store; the component is drawn again when it changes. */
export function useStore<T>(store: Store<T>): T {
  const [value, setValue] = useState(() => store.get());
  useEffect(() => {
    // It may have changed between drawing and now. The arrow keeps a value that is a function from being called.
    setValue(() => store.get());
    return store.watch((next) => setValue(() => next));
  }, [store]);
  return value;
}
