/** Sentences with names in them that lead somewhere. Pure. */
/** A character of a name: `disk` is not to be found in `disk2`. */
const PART_OF_NAME = /[\w.-]/;

/** The place of a whole name in a text. */
function placeOf(text: string, name: string): number {
  for (let at = text.indexOf(name); at >= 0; at = text.indexOf(name, at + 1)) {
    const [before, after] = [text[at - 1] ?? " ", text[at + name.length] ?? " "];
    const ends = !PART_OF_NAME.test(after) || (after === "." && !PART_OF_NAME.test(text[at + name.length + 1] ?? " "));
    if (!PART_OF_NAME.test(before) && before !== ":" && ends) return at;
  }
  return -1;
}

export interface Part {
  text: string;
  to?: string;
}

/** A text in parts, those that are names with where they lead to. Pure. */
export function partsOf(message: string, links: [name: string, to: string][]): Part[] {
  let parts: Part[] = [{ text: message }];
  for (const [name, to] of links) {
    parts = parts.flatMap((part) => {
      const at = part.to === undefined ? placeOf(part.text, name) : -1;
      if (at < 0) return [part];
      return [{ text: part.text.slice(0, at) }, { text: name, to }, { text: part.text.slice(at + name.length) }];
    });
  }
  return parts.filter(({ text }) => text !== "");
}
