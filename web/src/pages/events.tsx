import { useState } from "preact/hooks";
import { events } from "../api/live";
import type { Event, Severity } from "../api/types";
import { useStore } from "../lib/store";
import { moment } from "../lib/units";
import { href } from "../router";
import { Card, Empty, Page, SeverityBadge } from "../ui/basics";
import { Select, Text } from "../ui/form";
import { Life } from "../ui/life";
import { Table } from "../ui/table";

type Least = Severity | "all";
const LEAST: readonly (readonly [Least, string])[] = [
  ["all", "everything"], ["warning", "warnings and errors"], ["error", "errors"],
];
const RANK: Record<Severity, number> = { info: 0, warning: 1, error: 2 };

export function EventsPage() {
  const all = useStore(events);
  const [least, setLeast] = useState<Least>("all");
  const [kind, setKind] = useState("");
  const [words, setWords] = useState("");
  const kinds = [...new Set(all.map((event) => event.kind))].sort();
  const isWanted = (event: Event) =>
    (least === "all" || RANK[event.severity] >= RANK[least]) && (kind === "" || event.kind === kind)
    && [event.message, event.lun, event.target, event.initiator, event.author].join(" ").toLowerCase().includes(words.toLowerCase());
  const shown = all.filter(isWanted).reverse();
  return (
    <Page title="Events" lead="The newest first.">
      <Card>
        <div class="row">
          <Select label="Show" value={least} set={setLeast} options={LEAST} />
          <Select label="Kind" value={kind} set={setKind} options={[["", "all kinds"], ...kinds.map((each) => [each, each] as const)]} />
          <Text label="Contains" value={words} set={setWords} />
        </div>
        {shown.length === 0 ? <Empty title={all.length === 0 ? "Nothing has happened yet." : "No event is like that."} /> : <Events shown={shown} />}
      </Card>
    </Page>
  );
}

function Events({ shown }: { shown: Event[] }) {
  return (
    <Table
      label="Events" rows={shown} keyOf={({ number }) => number}
      columns={[
        { title: "When", cell: ({ at_ms }) => <time class="nowrap" dateTime={new Date(at_ms).toISOString()}>{moment(at_ms)}</time> },
        { title: "Severity", cell: ({ severity }) => <SeverityBadge severity={severity} /> },
        { title: "Kind", cell: (event) => <code>{event.kind}</code> },
        { title: "What", cell: What },
        { title: "About", cell: About },
      ]}
    />
  );
}

function What({ message, command }: Event) {
  return (
    <>
      <span class="name">{message}</span>
      {command && <Life {...command} />}
    </>
  );
}

function About({ lun, author }: Event) {
  if (!lun && !author) return null;
  return (
    <span class="marks">
      {lun && <a class="name" href={href("luns", lun)}>{lun}</a>}
      {author && <span class="muted">by {author}</span>}
    </span>
  );
}
