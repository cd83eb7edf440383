/** A line that says that something was done, and goes by itself. */
import { Store, useStore } from "../lib/store";

const SHOWN_MS = 5000;
const line = new Store("");
let timer: ReturnType<typeof setTimeout> | undefined;

export function say(text: string): void {
  clearTimeout(timer);
  line.set(text);
  timer = setTimeout(() => line.set(""), SHOWN_MS);
}

export function Toast() {
  const text = useStore(line);
  return <div class={text ? "toast shown" : "toast"} role="status" aria-live="polite">{text}</div>;
}
