/** Differences of two texts, line by line. Pure. */

export interface DiffLine {
  mark: " " | "+" | "-";
  text: string;
}

/** Beyond this many cells of comparison the middle is told as wholly replaced. */
const CELLS_MAX = 4_000_000;

/** The lines of both texts, in order, each marked as common, new or gone. */
export function diff(before: string, after: string): DiffLine[] {
  const a = before.split("\n");
  const b = after.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const same = (lines: string[]): DiffLine[] => lines.map((text) => ({ mark: " ", text }));
  return [
    ...same(a.slice(0, head)),
    ...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)),
    ...same(a.slice(a.length - tail)),
  ];
}

/** By the longest common subsequence. */
function middle(a: string[], b: string[]): DiffLine[] {
  const gone = (text: string): DiffLine => ({ mark: "-", text });
  const fresh = (text: string): DiffLine => ({ mark: "+", text });
  if ((a.length + 1) * (b.length + 1) > CELLS_MAX) return [...a.map(gone), ...b.map(fresh)];
  const width = b.length + 1;
  const length = new Uint32Array((a.length + 1) * width);
  const cell = (i: number, j: number) => length[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      length[i * width + j] = a[i] === b[j] ? cell(i + 1, j + 1) + 1 : Math.max(cell(i + 1, j), cell(i, j + 1));
    }
  }
  const lines: DiffLine[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ mark: " ", text: a[i] ?? "" });
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && cell(i + 1, j) >= cell(i, j + 1))) {
      lines.push(gone(a[i] ?? ""));
      i += 1;
    } else {
      lines.push(fresh(b[j] ?? ""));
      j += 1;
    }
  }
  return lines;
}

/** The changes with `around` common lines beside them; `undefined` marks where common lines are left out. */
export function hunks(lines: DiffLine[], around = 3): (DiffLine | undefined)[] {
  const near = new Set<number>();
  for (const [at, line] of lines.entries()) {
    if (line.mark !== " ") for (let each = at - around; each <= at + around; each += 1) near.add(each);
  }
  const shown: (DiffLine | undefined)[] = [];
  for (const [at, line] of lines.entries()) {
    if (near.has(at)) shown.push(line);
    else if (shown.length === 0 || shown.at(-1) !== undefined) shown.push(undefined);
  }
  if (shown.at(-1) === undefined) shown.pop();
  return shown;
}
