/** A line that says that something was done, and goes by itself. */
import { Store, useStore } from "../lib/store";

/** At least; long lines stay as long as it takes to read them. */
const SHOWN_MS = 5000;
const CHARACTER_MS = 100;
const line = new Store("");
let timer: ReturnType<typeof setTimeout> | undefined;

export function say(text: string): void {
  clearTimeout(timer);
  line.set(text);
  timer = setTimeout(() => line.set(""), Math.max(SHOWN_MS, text.length * CHARACTER_MS));
}

export function Toast() {
  const text = useStore(line);
  return <div class={text ? "toast shown" : "toast"} role="status" aria-live="polite">{text}</div>;
}
