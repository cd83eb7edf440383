/** A table that can be sorted, and becomes a list of cards where its columns would be too narrow to read. */
import type { ComponentChildren, RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Column<T> {
  title: string;
  cell: (row: T) => ComponentChildren;
  /** What to sort by; a column without is not sorted. */
  by?: (row: T) => string | number;
  /** Figures stand right. */
  numeric?: boolean;
}

interface Props<T> {
  label: string;
  rows: T[];
  columns: Column<T>[];
  /** What tells rows apart. */
  keyOf: (row: T) => string | number;
  /** Column and direction at first; as given otherwise. */
  sort?: { title: string; descending?: boolean };
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

/** Rows that are drawn; a filter finds the others. */
const ROWS_MAX = 500;

/** Pixels that a column takes on average at least. */
const COLUMN_MIN = 104;

/** Whether so many columns are too many for the place of an element. */
function useCards(element: RefObject<HTMLElement | null>, columns: number): boolean {
  const [isNarrow, setNarrow] = useState(false);
  useLayoutEffect(() => {
    const place = element.current?.parentElement;
    if (!place) return undefined;
    const measure = () => setNarrow(place.clientWidth < columns * COLUMN_MIN);
    const resize = new ResizeObserver(measure);
    measure();
    resize.observe(place);
    return () => resize.disconnect();
  }, [columns]);
  return isNarrow;
}

export function Table<T>({ label, rows, columns, keyOf, sort }: Props<T>) {
  const [order, setOrder] = useState<Order | undefined>(sort && { title: sort.title, descending: sort.descending ?? false });
  const element = useRef<HTMLTableElement>(null);
  const isCards = useCards(element, columns.length);
  const turn = (title: string) =>
    setOrder({ title, descending: order?.title === title ? !order.descending : false });
  return (
    <>
      <table ref={element} class={isCards ? "cards" : ""} aria-label={label}>
        <thead>
          <tr>{columns.map((column) => <Head key={column.title} column={column} order={order} turn={turn} />)}</tr>
        </thead>
        <tbody>
          {sorted(rows, columns, order).slice(0, ROWS_MAX).map((row) => (
            <tr key={keyOf(row)}>
              {columns.map((column) => (
                <td key={column.title} class={column.numeric ? "number" : ""} data-label={column.title}>
                  <div class="cell">{column.cell(row)}</div>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > ROWS_MAX && <p class="hint">{ROWS_MAX} of {rows.length} are shown; filter to see the others.</p>}
    </>
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
