import { api, may } from "../api/client";
import { latest } from "../api/live";
import type { Lun } from "../api/types";
import { useLoad } from "../lib/load";
import { PROTOCOLS, short } from "../lib/ways";
import { bytesPerSecond, iops } from "../lib/rates";
import { useStore } from "../lib/store";
import { bytes, count, NONE, throughput } from "../lib/units";
import { href } from "../router";
import { Badge, Card, Empty, Page, Shown } from "../ui/basics";
import { Table } from "../ui/table";

export function LunsPage() {
  const luns = useLoad(api.luns);
  const add = may("admin") && <a class="button primary" href={href("new-disk")}>Add disk</a>;
  return (
    <Page title="LUNs" lead="The disks. Each has one identity and one state, even if several targets export it." actions={add}>
      <Card><Shown from={luns}>{(value) => <Luns luns={value} />}</Shown></Card>
    </Page>
  );
}

function Luns({ luns }: { luns: Lun[] }) {
  const rates = useStore(latest)?.luns;
  if (luns.length === 0) return <Empty title="There is no disk yet.">{may("admin") && <a href={href("new-disk")}>Add disk</a>}</Empty>;
  const rate = (lun: Lun) => rates?.get(lun.spec.id);
  return (
    <Table
      label="LUNs" rows={luns} keyOf={(lun) => lun.spec.id}
      search={{ hint: "by id, store, serial number, target or owner", text: (lun) => [lun.spec.id, lun.spec.store, lun.serial, lun.naa, lun.spec.owner, ...lun.shown_by.map(({ target }) => target), ...lun.served_by.map(({ name }) => name)].join(" ") }}
      columns={[
        { title: "LUN", by: (lun) => lun.spec.id, cell: (lun) => <a class="name strong" href={href("luns", lun.spec.id)}>{lun.spec.id}</a> },
        { title: "Size", numeric: true, by: (lun) => lun.size_bytes, cell: (lun) => (lun.size_bytes > 0 ? bytes(lun.size_bytes) : NONE) },
        { title: "Store", by: (lun) => lun.spec.store, cell: (lun) => <code class="name">{lun.spec.store}</code> },
        { title: "Cache", isMinor: true, by: (lun) => lun.cache ?? "", cell: (lun) => <Marks lun={lun} /> },
        { title: "Serial", isMinor: true, by: (lun) => lun.serial, cell: (lun) => <code class="nowrap">{lun.serial}</code> },
        { title: "Exported by", by: (lun) => lun.shown_by.length + lun.served_by.length, cell: (lun) => <ShownBy lun={lun} /> },
        { title: "IOPS", numeric: true, by: (lun) => { const now = rate(lun); return now ? iops(now) : 0; }, cell: (lun) => { const now = rate(lun); return now ? count(iops(now)) : NONE; } },
        { title: "Throughput", numeric: true, isMinor: true, by: (lun) => { const now = rate(lun); return now ? bytesPerSecond(now) : 0; }, cell: (lun) => { const now = rate(lun); return now ? throughput(bytesPerSecond(now)) : NONE; } },
      ]}
    />
  );
}

/** By the code of the finding. */
const TROUBLE_WORDS: Record<string, string> = {
  "log-lost": "log lost",
  "log-failed": "log failed",
  "medium-changed": "other medium",
  "store-unopened": "not open",
};

export function Marks({ lun }: { lun: Lun }) {
  return (
    <span class="marks">
      <Badge>{lun.cache ?? lun.kind}</Badge>
      {lun.readonly && <Badge tone="info">read-only</Badge>}
      {lun.medium?.loaded === false && <Badge tone="warn">ejected</Badge>}
      {lun.outage && <Badge tone="bad">not ready</Badge>}
      {lun.trouble && <Badge tone="bad">{TROUBLE_WORDS[lun.trouble.code] ?? lun.trouble.code}</Badge>}
    </span>
  );
}

/** Ways that a row has room for. */
const WAYS_SHOWN = 2;

function ShownBy({ lun }: { lun: Lun }) {
  const ways = [
    ...lun.shown_by.map((path) => (
      <li key={`${path.target} ${path.lun}`} class="whole"><a href={href("targets", path.target)}>{short(path.target)}</a> <span class="muted nowrap">LUN {path.lun}</span></li>
    )),
    ...lun.served_by.map(({ protocol, name }) => <li key={`${protocol} ${name}`} class="whole">{name} <span class="muted nowrap">{PROTOCOLS[protocol] ?? protocol}</span></li>),
  ];
  if (ways.length === 0) return <Badge tone="warn">nobody</Badge>;
  const more = ways.length - WAYS_SHOWN;
  return (
    <ul class="plain">
      {ways.slice(0, WAYS_SHOWN)}
      {more > 0 && <li class="hint">and {more} more</li>}
    </ul>
  );
}
