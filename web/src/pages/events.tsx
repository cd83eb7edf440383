import { useEffect, useState } from "preact/hooks";
import { api, problemFrom } from "../api/client";
import { events } from "../api/live";
import type { Event, Problem, Severity } from "../api/types";
import { useStore } from "../lib/store";
import { moment } from "../lib/units";
import { partsOf } from "../lib/words";
import { href } from "../router";
import { Button, Card, Empty, Page, ProblemBox, SeverityBadge } from "../ui/basics";
import { Select, Text } from "../ui/form";
import { Life } from "../ui/life";
import { Table } from "../ui/table";

type Least = Severity;
const LEAST: readonly (readonly [Least, string])[] = [["info", "everything"], ["warning", "warnings and errors"], ["error", "errors"]];
type Age = "all" | "1" | "24" | "168";
const AGES: readonly (readonly [Age, string])[] = [["all", "any time"], ["1", "the last hour"], ["24", "the last day"], ["168", "the last week"]];
const HOUR_MS = 3_600_000;

interface Filter {
  severity: Least;
  kind: string;
  lun: string;
  target: string;
  initiator: string;
  user: string;
  age: Age;
}
const ALL: Filter = { severity: "info", kind: "", lun: "", target: "", initiator: "", user: "", age: "all" };

/** How many the server gives at once. */
const MOST = 1000;

function questionOf({ age, ...filter }: Filter): Record<string, string> {
  const given = Object.entries(filter).filter(([, value]) => value !== "");
  const since = age === "all" ? [] : [["since", String(Date.now() - Number(age) * HOUR_MS)]];
  return Object.fromEntries([...given, ...since, ["most", String(MOST)]]);
}

/** Events that the server has found, again whenever there is a new one. */
function useEvents(filter: Filter): { found: Event[] | undefined; problem: Problem | undefined } {
  const last = useStore(events).at(-1)?.number ?? 0;
  const [found, setFound] = useState<Event[]>();
  const [problem, setProblem] = useState<Problem>();
  useEffect(() => {
    let isCurrent = true;
    // Whoever types, and events that come in a row, make one question.
    const timer = setTimeout(() => {
      api.events(questionOf(filter)).then((value) => {
        if (!isCurrent) return;
        setFound(value);
        setProblem(undefined);
      }, (thrown: unknown) => isCurrent && setProblem(problemFrom(thrown)));
    }, 250);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [JSON.stringify(filter), last]);
  return { found, problem };
}

export function EventsPage() {
  const known = useStore(events);
  const [filter, setFilter] = useState(ALL);
  const { found, problem } = useEvents(filter);
  const set = (change: Partial<Filter>) => setFilter((before) => ({ ...before, ...change }));
  const names = (key: "kind" | "lun" | "target" | "initiator" | "user") =>
    [...new Set([...known, ...(found ?? [])].map((event) => event[key] ?? ""))].filter(Boolean).sort();
  const isAll = JSON.stringify(filter) === JSON.stringify(ALL);
  return (
    <Page title="Events" lead="The newest first. Tarn keeps the last thousands while it runs; its log has all of them.">
      <Card>
        <div class="row filters">
          <Select label="Severity" value={filter.severity} set={(severity) => set({ severity })} options={LEAST} />
          <Select label="Kind" value={filter.kind} set={(kind) => set({ kind })} options={[["", "all kinds"], ...names("kind").map((each) => [each, each] as const)]} />
          <Select label="Time" value={filter.age} set={(age) => set({ age })} options={AGES} />
          <Text label="LUN" value={filter.lun} set={(lun) => set({ lun })} options={names("lun")} />
          <Text label="Target" value={filter.target} set={(target) => set({ target })} options={names("target")} />
          <Text label="Initiator" value={filter.initiator} set={(initiator) => set({ initiator })} options={names("initiator")} />
          <Text label="User" value={filter.user} set={(user) => set({ user })} options={names("user")} />
          <Button disabled={isAll} onClick={() => setFilter(ALL)}>Clear filters</Button>
        </div>
        <ProblemBox problem={problem} />
        {found === undefined ? !problem && <div class="loading" role="status"><span class="visually-hidden">Loading</span></div>
          : found.length === 0 ? <Empty title={isAll ? "Nothing has happened yet." : "No event matches."} />
            : <Events shown={[...found].reverse()} />}
      </Card>
    </Page>
  );
}

function Events({ shown }: { shown: Event[] }) {
  return (
    <Table
      label="Events" rows={shown} keyOf={({ number }) => number}
      search={{ hint: "by words of the event", text: (event) => `${event.kind} ${event.message} ${event.author ?? ""}` }}
      columns={[
        { title: "When", cell: ({ at_ms }) => <time class="nowrap" dateTime={new Date(at_ms).toISOString()}>{moment(at_ms)}</time> },
        { title: "Severity", cell: ({ severity }) => <SeverityBadge severity={severity} /> },
        { title: "Event", isWide: true, cell: What },
        { title: "Kind", isMinor: true, cell: (event) => <code class="nowrap">{event.kind}</code> },
      ]}
    />
  );
}

function What(event: Event) {
  const { author, command } = event;
  return (
    <>
      <EventWords event={event} />
      {author && !event.message.includes(author) && <span class="muted"> by {author}</span>}
      {command && <Life {...command} />}
    </>
  );
}

/** Where a name of an event leads to. */
function linksOf({ lun, target, initiator }: Event): [name: string, to: string][] {
  const links: [string | undefined, (name: string) => string][] = [
    [target, (name) => href("targets", name)], [initiator, () => href("sessions")], [lun, (name) => href("luns", name)],
  ];
  return links.flatMap(([name, to]) => (name ? [[name, to(name)] as [string, string]] : []));
}

/** The sentence of an event; names in it lead to their pages. */
export function EventWords({ event }: { event: Event }) {
  const links = linksOf(event);
  const parts = partsOf(event.message, links);
  const rest = links.filter(([name]) => name === event.lun && !parts.some(({ to, text }) => to && text === name));
  return (
    <span class="name">
      {rest.map(([name, to]) => <span key={name}><a href={to}>{name}</a>: </span>)}
      {parts.map(({ text, to }, at) => (to ? <a key={at} href={to}>{text}</a> : text))}
    </span>
  );
}
