/** Pages by the part of the address after `#`: nothing of it is sent to the server. */
import { Store } from "./lib/store";

export interface Route {
  /** As `luns` of `#/luns/demo`; empty for the first page. */
  page: string;
  /** As `["demo"]`. */
  parts: string[];
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    // A hand-written address with a stray percent sign means what it says.
    return part;
  }
}

function read(): Route {
  const [page = "", ...parts] = location.hash.replace(/^#\/?/, "").split("/").map(decode);
  return { page, parts };
}

export const route = new Store<Route>(read());
addEventListener("hashchange", () => route.set(read()));

/** The address of a page. */
export const href = (page: string, ...parts: (string | number)[]) =>
  "#/" + [page, ...parts].map((part) => encodeURIComponent(part)).join("/");

/** Goes to a page. */
export function go(page: string, ...parts: (string | number)[]): void {
  location.hash = href(page, ...parts);
}
