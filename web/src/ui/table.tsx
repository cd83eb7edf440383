/** A table that can be sorted, searched and leafed through. Where it is narrow, columns of less weight are left out, and
 * then it becomes a list of cards. */
import type { ComponentChildren, RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Button } from "./basics";
import { Text } from "./form";

export interface Column<T> {
  title: string;
  cell: (row: T) => ComponentChildren;
  /** What to sort by; a column without is not sorted. */
  by?: (row: T) => string | number;
  /** Figures stand right. */
  numeric?: boolean;
  /** Left out where there is little room. The page of the row has it. */
  isMinor?: boolean;
  /** Sentences: it takes the room of two. */
  isWide?: boolean;
}

interface Props<T> {
  label: string;
  rows: T[];
  columns: Column<T>[];
  /** What tells rows apart. */
  keyOf: (row: T) => string | number;
  /** Column and direction at first; as given otherwise. */
  sort?: { title: string; descending?: boolean };
  /** What is searched; without it there is no field for it. */
  search?: { hint: string; text: (row: T) => string };
  /** Rows of a page; as cards, fewer. */
  page?: number;
}

interface Order {
  title: string;
  descending: boolean;
}

function sorted<T>(rows: T[], columns: Column<T>[], order: Order | undefined): T[] {
  const by = columns.find(({ title }) => title === order?.title)?.by;
  if (!by || !order) return rows;
  const sign = order.descending ? -1 : 1;
  const compare = (a: string | number, b: string | number) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return [...rows].sort((a, b) => sign * compare(by(a), by(b)));
}

/** Rows of a page, if nothing else is said. */
const PAGE = 25;
/** Cards are higher than rows. */
const CARDS_MAX = 7;
/** More rows than this, and there is a field to search them. */
const SEARCH_FROM = 8;

/** Pixels that a column takes on average at least. */
const COLUMN_MIN = 104;

type Room = "all" | "reduced" | "cards";

/** In columns of usual width. */
const widthOf = (columns: { isWide?: boolean }[]) => columns.reduce((sum, { isWide }) => sum + (isWide ? 2 : 1), 0);

/** How many of the columns have room in the place of an element. */
function useRoom(element: RefObject<HTMLElement | null>, all: number, major: number): Room {
  const [room, setRoom] = useState<Room>("all");
  useLayoutEffect(() => {
    const place = element.current?.parentElement;
    if (!place) return undefined;
    const { paddingLeft, paddingRight } = getComputedStyle(place);
    const padding = Number.parseFloat(paddingLeft) + Number.parseFloat(paddingRight);
    const measure = () => {
      const width = place.clientWidth - padding;
      setRoom(width >= all * COLUMN_MIN ? "all" : width >= major * COLUMN_MIN ? "reduced" : "cards");
    };
    const resize = new ResizeObserver(measure);
    measure();
    resize.observe(place);
    return () => resize.disconnect();
  }, [all, major]);
  return room;
}

export function Table<T>({ label, rows, columns, keyOf, sort, search, page = PAGE }: Props<T>) {
  const [order, setOrder] = useState<Order | undefined>(sort && { title: sort.title, descending: sort.descending ?? false });
  const [word, setWord] = useState("");
  const [at, setAt] = useState(0);
  const element = useRef<HTMLTableElement>(null);
  const major = columns.filter(({ isMinor }) => !isMinor);
  const room = useRoom(element, widthOf(columns), widthOf(major));
  const shownColumns = room === "all" ? columns : major;
  const turn = (title: string) => {
    setOrder({ title, descending: order?.title === title ? !order.descending : false });
    setAt(0);
  };
  const find = (next: string) => {
    setWord(next);
    setAt(0);
  };
  const found = search && word ? rows.filter((row) => search.text(row).toLowerCase().includes(word.toLowerCase())) : rows;
  const size = room === "cards" ? Math.min(page, CARDS_MAX) : page;
  const pages = Math.max(1, Math.ceil(found.length / size));
  const here = Math.min(at, pages - 1);
  const hasSearch = search && rows.length > SEARCH_FROM;
  return (
    <>
      {hasSearch && <div class="search"><Text label="Search" value={word} set={find} hint={search.hint} /></div>}
      <table ref={element} class={room === "cards" ? "cards" : ""} aria-label={label}>
        <thead>
          <tr>{shownColumns.map((column) => <Head key={column.title} column={column} order={order} turn={turn} />)}</tr>
        </thead>
        <tbody>
          {sorted(found, columns, order).slice(here * size, (here + 1) * size).map((row) => (
            <tr key={keyOf(row)}>
              {shownColumns.map((column) => (
                <td key={column.title} class={column.numeric ? "number" : ""} data-label={column.title}>
                  <div class="cell">{column.cell(row)}</div>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {found.length === 0 && word && <p class="hint" role="status">Nothing has “{word}”.</p>}
      <Pager label={label} at={here} pages={pages} size={size} rows={found.length} set={setAt} />
    </>
  );
}

/** Leads through pages, where there are several. */
export function Pager({ label, at, pages, size, rows, set }: {
  label: string; at: number; pages: number; size: number; rows: number; set: (at: number) => void;
}) {
  if (pages < 2) return null;
  return (
    <nav class="pager" aria-label={`Pages of ${label}`}>
      <Button disabled={at === 0} onClick={() => set(at - 1)}>Previous</Button>
      <span role="status">{at * size + 1} to {Math.min(rows, (at + 1) * size)} of {rows}</span>
      <Button disabled={at >= pages - 1} onClick={() => set(at + 1)}>Next</Button>
    </nav>
  );
}

function Head<T>({ column, order, turn }: { column: Column<T>; order: Order | undefined; turn: (title: string) => void }) {
  const kind = column.numeric ? "number" : "";
  if (!column.by) return <th scope="col" class={kind}>{column.title}</th>;
  const isOrder = order?.title === column.title;
  const direction = isOrder ? (order.descending ? "descending" : "ascending") : "none";
  return (
    <th scope="col" class={kind} aria-sort={direction}>
      <button type="button" class="sort" onClick={() => turn(column.title)}>
        {column.title}<span aria-hidden="true">{isOrder ? (order.descending ? " ↓" : " ↑") : ""}</span>
      </button>
    </th>
  );
}
