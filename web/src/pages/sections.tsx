/** Sections of the configuration that are things of their own: named stores, servers of NBD, quotas. */
import { useState } from "preact/hooks";
import { api, may } from "../api/client";
import type { NbdSpec, QuotaView, StoreSpec, Thing } from "../api/types";
import { putThing, remove } from "../lib/changes";
import { useLoad } from "../lib/load";
import { bytes, NONE } from "../lib/units";
import { href } from "../router";
import { Badge, Button, Card, Empty, Page, Shown } from "../ui/basics";
import { ChangeDialog } from "../ui/change";
import type { Change } from "../ui/change";
import { Dialog } from "../ui/dialog";
import { Several, Text } from "../ui/form";
import { Table } from "../ui/table";
import type { Column } from "../ui/table";
import { ID, ID_HINT } from "./lun";

/** A field of the form of a section. Lists are of ids that there are. */
interface FieldOf {
  key: string;
  label: string;
  hint: string;
  placeholder?: string;
  required?: boolean;
  /** It names the thing, so it stays. */
  isName?: boolean;
  list?: "luns" | "groups";
  wrong?: (value: string) => string | undefined;
}

type Values = Record<string, string | string[]>;

interface Section<T> {
  title: string;
  lead: string;
  /** What one of them is called. */
  one: string;
  kind: "store" | "nbd" | "quota";
  none: string;
  read: () => Promise<T[]>;
  nameOf: (item: T) => string;
  columns: Column<T>[];
  fields: FieldOf[];
  valuesOf: (item: T) => Values;
  thingOf: (values: Values) => Thing;
  /** What is wrong with all of it. */
  wrong?: (values: Values) => string | undefined;
}

function SectionPage<T>({ section }: { section: Section<T> }) {
  const all = useLoad(section.read, section.kind);
  const [edited, setEdited] = useState<T | null>();
  const [change, setChange] = useState<Change>();
  const add = may("admin") && <Button tone="primary" onClick={() => setEdited(null)}>Add {section.one}</Button>;
  const name = (item: T) => section.nameOf(item);
  const actions = (item: T) => (
    <span class="actions">
      <Button onClick={() => setEdited(item)} aria-label={`Edit ${name(item)}`}>Edit</Button>
      <Button tone="danger" onClick={() => setChange(remove(section.kind, name(item)))} aria-label={`Remove ${name(item)}`}>Remove</Button>
    </span>
  );
  return (
    <Page title={section.title} lead={section.lead} actions={add}>
      <Card>
        <Shown from={all}>
          {(value) => (value.length === 0 ? <Empty title={section.none} /> : (
            <Table
              label={section.title} rows={value} keyOf={name} search={{ hint: "by any of its words", text: (item) => JSON.stringify(item) }}
              columns={[...section.columns, ...(may("admin") ? [{ title: "Actions", numeric: true, cell: actions }] : [])]}
            />
          ))}
        </Shown>
      </Card>
      {edited !== undefined && !change && <Editor section={section} item={edited} close={() => setEdited(undefined)} take={setChange} />}
      {change && <ChangeDialog change={change} close={() => setChange(undefined)} />}
    </Page>
  );
}

interface EditorProps<T> {
  section: Section<T>;
  item: T | null;
  close: () => void;
  take: (change: Change) => void;
}

function Editor<T>({ section, item, close, take }: EditorProps<T>) {
  const [values, setValues] = useState<Values>(() => (item ? section.valuesOf(item) : {}));
  const known = useLoad(async () => {
    const [luns, groups] = await Promise.all([api.luns(), api.groups()]);
    return { luns: luns.map(({ spec }) => spec.id), groups: groups.map(({ id }) => id) };
  });
  const text = (key: string) => { const value = values[key]; return typeof value === "string" ? value : ""; };
  const list = (key: string) => { const value = values[key]; return Array.isArray(value) ? value : []; };
  const set = (key: string) => (value: string | string[]) => setValues((before) => ({ ...before, [key]: value }));
  const errorOf = ({ key, wrong }: FieldOf) => (text(key) ? wrong?.(text(key)) : undefined);
  const isWhole = section.fields.every((field) => !errorOf(field) && (!field.required || text(field.key) || list(field.key).length > 0));
  const wrong = section.wrong?.(values);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const thing = section.thingOf(values);
    const made = Object.values(thing)[0] as T;
    take(putThing(thing, section.one, section.nameOf(made), item === null, close));
  };
  return (
    <Dialog title={item ? `Edit ${section.one}` : `Add ${section.one}`} close={close}>
      <form onSubmit={submit}>
        {section.fields.map((field) => (field.list ? (
          <Several key={field.key} label={field.label} all={known.value?.[field.list] ?? []} value={list(field.key)} set={set(field.key)} none="There is none yet." />
        ) : (
          <Text
            key={field.key} label={field.label} value={text(field.key)} set={set(field.key)} hint={field.hint} required={field.required ?? false}
            disabled={(field.isName ?? false) && item !== null} error={errorOf(field)} placeholder={field.placeholder ?? ""}
          />
        )))}
        {wrong && <p class="hint bad" role="status">{wrong}</p>}
        <div class="actions end">
          <Button onClick={close}>Cancel</Button>
          <Button tone="primary" type="submit" disabled={!isWhole || Boolean(wrong)}>Plan</Button>
        </div>
      </form>
    </Dialog>
  );
}

/** Those of the values that are given, as the server takes them. */
const given = (values: Values) => Object.fromEntries(Object.entries(values).filter(([, value]) => value && value.length > 0));
const links = (ids: string[]) => (
  <span class="marks">{ids.slice(0, 4).map((id) => <a key={id} class="name" href={href("luns", id)}>{id}</a>)}{ids.length > 4 && <span class="hint">and {ids.length - 4} more</span>}</span>
);

const STORES: Section<StoreSpec> = {
  title: "Named stores", lead: "Stores that are members of others: a LUN whose store is stripe:A,B or concat:A,B names them.", one: "store", kind: "store",
  none: "There is no named store; LUNs name their stores themselves.", read: api.stores, nameOf: ({ id }) => id,
  columns: [
    { title: "Store", by: ({ id }) => id, cell: ({ id }) => <b class="name">{id}</b> },
    { title: "Data", cell: ({ store }) => <code class="name">{store}</code> },
  ],
  fields: [
    { key: "id", label: "Id", hint: ID_HINT, required: true, isName: true, wrong: (id) => (ID.test(id) ? undefined : ID_HINT) },
    { key: "store", label: "Store", hint: "Where the data lives", required: true, placeholder: "file:/srv/part1.img?size=100G" },
  ],
  valuesOf: ({ id, store }) => ({ id, store }),
  thingOf: (values) => ({ store: given(values) as unknown as StoreSpec }),
};

const NBD: Section<NbdSpec> = {
  title: "NBD servers", lead: "LUNs as exports for clients of the Network Block Device protocol.", one: "NBD server", kind: "nbd",
  none: "There is no NBD server.", read: api.nbd, nameOf: ({ socket, bind }) => socket ?? bind ?? "127.0.0.1:10809",
  columns: [
    { title: "Socket or address", cell: ({ socket, bind }) => <code class="name">{socket ?? bind}</code> },
    { title: "Exports", cell: ({ luns }) => links(luns) },
    { title: "Groups", isMinor: true, cell: ({ groups }) => (groups?.length ? groups.join(", ") : "all clients") },
    { title: "TLS", cell: ({ certificate, ca }) => (certificate ? <Badge tone="good">{ca ? "both sides" : "on"}</Badge> : <Badge>off</Badge>) },
  ],
  fields: [
    { key: "bind", label: "Address", hint: "ADDRESS:PORT; leave it empty for a socket", placeholder: "127.0.0.1:10809", isName: true },
    { key: "socket", label: "Unix socket", hint: "A path, instead of an address", placeholder: "/run/tarn/nbd.sock", isName: true },
    { key: "luns", label: "Exports", hint: "", list: "luns", required: true },
    { key: "groups", label: "Groups that find them", hint: "", list: "groups" },
    { key: "certificate", label: "Certificate", hint: "A file in PEM; clients then have to use TLS" },
    { key: "key", label: "Private key", hint: "A file in PEM" },
    { key: "ca", label: "Authorities of clients", hint: "A file in PEM; clients then need a certificate" },
    { key: "mode", label: "Mode of the socket", hint: "As 0660", wrong: (mode) => (/^0[0-7]{3}$/.test(mode) ? undefined : "four octal digits, as 0660") },
  ],
  valuesOf: (spec) => ({ ...spec, bind: spec.socket ? "" : spec.bind ?? "" }),
  thingOf: (values) => ({ nbd: given(values) as unknown as NbdSpec }),
  wrong: ({ bind, socket, certificate, key }) => (!bind && !socket ? "name an address or a socket" : bind && socket ? "name an address or a socket, not both"
    : Boolean(certificate) !== Boolean(key) ? "certificate and key go together" : undefined),
};

const used = ({ used_bytes, used_max_bytes }: QuotaView) => {
  // The server may write null for what is not limited or not known.
  if (typeof used_max_bytes !== "number") return NONE;
  return (
    <span class="meter">
      <meter min={0} max={1} low={0.8} high={0.95} optimum={0} value={(used_bytes ?? 0) / Math.max(1, used_max_bytes)} aria-label="Part of the quota in use" />
      {typeof used_bytes === "number" ? bytes(used_bytes) : NONE} of {bytes(used_max_bytes)}
    </span>
  );
};
const SPACE: Record<string, string> = { free: "good", low: "warn", full: "bad" };
const sizeWrong = (text: string) => (/^\d+[kMGTP]?$/.test(text) ? undefined : "a number with k, M, G or T, such as 500G");

const QUOTAS: Section<QuotaView> = {
  title: "Quotas", lead: "Limits on the space that the disks of an owner, or in a directory or pool, take together.", one: "quota", kind: "quota",
  none: "There is no quota.", read: api.quotas,
  // A quota that is being made is as it is configured, without a name of its own.
  nameOf: (quota) => quota.name ?? quotaName(quota as unknown as QuotaView["spec"]),
  columns: [
    { title: "Quota", by: ({ name }) => name, cell: ({ name }) => <b class="name">{name}</b> },
    { title: "State", cell: ({ space }) => <Badge tone={SPACE[space] ?? ""}>{space}</Badge> },
    { title: "In use", cell: used },
    { title: "Provisioned", numeric: true, isMinor: true, cell: ({ provisioned_bytes, provisioned_max_bytes: most }) => `${bytes(provisioned_bytes)}${typeof most === "number" ? ` of ${bytes(most)}` : ""}` },
    { title: "LUNs", isMinor: true, cell: ({ luns }) => links(luns) },
  ],
  fields: [
    { key: "owner", label: "Owner", hint: "Counts the LUNs of this owner; leave it empty for a pool", isName: true },
    { key: "pool", label: "Pool", hint: "A directory, or rbd:POOL, instead of an owner", placeholder: "/srv/tenants/a", isName: true },
    { key: "used", label: "In use, at most", hint: "What the disks may take together, as 500G", wrong: sizeWrong },
    { key: "provisioned", label: "Provisioned, at most", hint: "How large the disks may be together, as 2T", wrong: sizeWrong },
    { key: "soft", label: "Warn from", hint: "Percent of what may be in use", wrong: (text) => (/^[1-9]\d?$/.test(text) ? undefined : "1 to 99") },
  ],
  valuesOf: ({ spec }) => ({ ...spec, soft: typeof spec.soft === "number" ? String(spec.soft) : "" } as Values),
  thingOf: (values) => {
    const { soft, ...rest } = given(values);
    return { quota: { ...rest, ...(soft !== undefined && { soft: Number(soft) }) } };
  },
  wrong: ({ owner, pool, used: most, provisioned }) => (Boolean(owner) === Boolean(pool) ? "name an owner or a pool" : !most && !provisioned ? "limit what is in use, what is provisioned, or both" : undefined),
};

const quotaName = ({ owner, pool }: QuotaView["spec"]) => (owner ? `owner:${owner}` : `pool:${pool ?? ""}`);

export const StoresPage = () => <SectionPage section={STORES} />;
export const NbdPage = () => <SectionPage section={NBD} />;
export const QuotasPage = () => <SectionPage section={QUOTAS} />;
