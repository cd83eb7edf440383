/** Which target exports which LUN to which host: three columns with lines between them, or a table where that is too wide. */
import { href } from "../router";
import { names, short, waysOf } from "../lib/ways";
import { Table } from "./table";
import type { Session, Target } from "../api/types";

/** Entries of a column; the busiest LUNs are shown. */
const SHOWN_MAX = 10;
const ROW = 36;
const WIDTH = 100;

function Lines({ from, to, pairs }: { from: string[]; to: string[]; pairs: [string, string][] }) {
  const height = Math.max(from.length, to.length, 1) * ROW;
  const y = (at: number) => at * ROW + ROW / 2;
  return (
    <svg class="map-lines" viewBox={`0 0 ${WIDTH} ${height}`} height={height} preserveAspectRatio="none" aria-hidden="true">
      {pairs.map(([a, b]) => {
        const [low, high] = [y(from.indexOf(a)), y(to.indexOf(b))];
        return <path key={`${a} ${b}`} d={`M0 ${low}C${WIDTH / 2} ${low} ${WIDTH / 2} ${high} ${WIDTH} ${high}`} vector-effect="non-scaling-stroke" />;
      })}
    </svg>
  );
}

function Column({ title, all, link }: { title: string; all: string[]; link: (name: string) => string | undefined }) {
  return (
    <div>
      <h3 class="hint">{title}</h3>
      <ul class="map-column">
        {all.map((name) => {
          const to = link(name);
          return <li key={name} title={name}>{to ? <a href={to}>{short(name)}</a> : short(name)}</li>;
        })}
      </ul>
    </div>
  );
}

export function PathMap({ luns, targets, sessions }: { luns: string[]; targets: Target[]; sessions: Session[] }) {
  const ways = waysOf(luns.slice(0, SHOWN_MAX), targets, sessions);
  const by = names(ways.map((way) => way.targets)).slice(0, SHOWN_MAX);
  const hosts = names(ways.map((way) => way.hosts)).slice(0, SHOWN_MAX);
  const shown = ways.map(({ lun }) => lun);
  const ids = new Map(sessions.map(({ initiator, id }) => [initiator, id]));
  const toSession = (name: string) => { const id = ids.get(name); return id === undefined ? undefined : href("sessions", id); };
  const left = ways.flatMap((way) => way.targets.filter((name) => by.includes(name)).map((name): [string, string] => [name, way.lun]));
  const right = ways.flatMap((way) => way.hosts.filter((name) => hosts.includes(name)).map((name): [string, string] => [way.lun, name]));
  const hidden = Math.max(0, luns.length - SHOWN_MAX) + Math.max(0, names(ways.map((way) => way.hosts)).length - SHOWN_MAX);
  return (
    <>
      <div class="map">
        <Column title="Target" all={by} link={(name) => href("targets", name)} />
        <Lines from={by} to={shown} pairs={left} />
        <Column title="LUN" all={shown} link={(name) => href("luns", name)} />
        <Lines from={shown} to={hosts} pairs={right} />
        <Column title="Host" all={hosts} link={toSession} />
      </div>
      <div class="map-narrow">
        <Table
          label="Paths" page={3} rows={ways} keyOf={({ lun }) => lun}
          columns={[
            { title: "LUN", cell: ({ lun }) => <a class="name" href={href("luns", lun)}>{lun}</a> },
            { title: "Target", cell: (way) => <span class="name">{way.targets.map(short).join(", ")}</span> },
            { title: "Hosts", cell: (way) => <span class="name">{way.hosts.slice(0, 3).map(short).join(", ")}{way.hosts.length > 3 && ` and ${way.hosts.length - 3} more`}</span> },
          ]}
        />
      </div>
      {hidden > 0 && <p class="hint">The busiest LUNs and their first hosts; {hidden} more are on the pages of LUNs and sessions.</p>}
    </>
  );
}
