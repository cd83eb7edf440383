/** Light or dark: as the system says, unless the user chose. */
import { Store } from "./lib/store";

export type Theme = "system" | "light" | "dark";
const KEY = "tarn-theme";
const ORDER: Theme[] = ["system", "light", "dark"];

function stored(): Theme {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    // Storage is forbidden in some private windows; the choice then lasts as long as the page.
    return "system";
  }
}

export const theme = new Store<Theme>(stored());

function show(value: Theme): void {
  if (value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = value;
}

show(theme.get());

/** Takes the next of system, light, dark. */
export function nextTheme(): void {
  const value = ORDER[(ORDER.indexOf(theme.get()) + 1) % ORDER.length] ?? "system";
  show(value);
  try {
    localStorage.setItem(KEY, value);
  } catch {
    // As above.
  }
  theme.set(value);
}

/** Calls `redraw` when colours change, for what is painted and not styled. Gives back what ends that. */
export function onColours(redraw: () => void): () => void {
  const query = matchMedia("(prefers-color-scheme: dark)");
  query.addEventListener("change", redraw);
  const end = theme.watch(redraw);
  return () => {
    query.removeEventListener("change", redraw);
    end();
  };
}

/** The value of a colour of the style sheet, as `--accent`. */
export const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
