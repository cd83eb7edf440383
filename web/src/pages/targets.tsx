import { useState } from "preact/hooks";
import { api, may } from "../api/client";
import type { Group, Lun, Portal, Target, TargetLun, TargetSpec, User } from "../api/types";
import { putTarget, remove } from "../lib/changes";
import { useLoad } from "../lib/load";
import { NONE, plural } from "../lib/units";
import { freeLun } from "../lib/wish";
import { href } from "../router";
import { Badge, Button, Card, Empty, Facts, Page, Shown } from "../ui/basics";
import { ChangeDialog } from "../ui/change";
import type { Change } from "../ui/change";
import { Dialog } from "../ui/dialog";
import { Check, Lines, linesOf, Select, Several, Text } from "../ui/form";
import { Table } from "../ui/table";

/** What a target can refer to. */
interface Known {
  luns: Lun[];
  groups: Group[];
  users: User[];
}

export function TargetsPage() {
  const targets = useLoad(api.targets);
  const known = useLoad(async (): Promise<Known> => {
    const [luns, groups, users] = await Promise.all([api.luns(), api.groups(), api.users()]);
    return { luns, groups, users };
  });
  const [edited, setEdited] = useState<TargetSpec | null>();
  const [change, setChange] = useState<Change>();
  const add = may("admin") && <Button tone="primary" onClick={() => setEdited(null)}>Add target</Button>;
  return (
    <Page title="Targets" lead="Initiators log in to targets. A target has addresses, access rules and LUNs." actions={add}>
      <Shown from={targets}>
        {(value) => (value.length === 0 ? <Card><Empty title="There is no target yet." /></Card> : value.map((target) => (
          <TargetCard key={target.spec.name} target={target} edit={() => setEdited(target.spec)} remove={() => setChange(remove("target", target.spec.name))} />
        )))}
      </Shown>
      {edited !== undefined && known.value && (
        <Editor spec={edited} known={known.value} close={() => setEdited(undefined)} take={setChange} isBehind={change !== undefined} />
      )}
      {change && <ChangeDialog change={change} close={() => setChange(undefined)} />}
    </Page>
  );
}

const portalText = ({ bind, advertise, group }: Portal) =>
  [bind, advertise && `as ${advertise}`, group !== undefined && `group ${group}`].filter(Boolean).join(", ");

function TargetCard({ target, edit, remove }: { target: Target; edit: () => void; remove: () => void }) {
  const { spec } = target;
  return (
    <Card
      title={<span class="name">{spec.name}</span>}
      actions={may("admin") && (
        <>
          <Button onClick={edit} aria-label={`Edit ${spec.name}`}>Edit</Button>
          <Button tone="danger" onClick={remove} aria-label={`Remove ${spec.name}`}>Remove</Button>
        </>
      )}
    >
      <Facts facts={[
        ["Alias", spec.alias ?? NONE],
        ["Portals", <ul class="plain">{(spec.portals ?? []).map((portal) => <li key={portal.bind}><code>{portalText(portal)}</code></li>)}</ul>],
        ["Who may log in", spec.auth?.length ? spec.auth.join(", ") : <Badge tone="warn">every initiator</Badge>],
        ["Sessions", plural(target.sessions, "session")],
      ]} />
      <Views views={spec.luns ?? []} />
    </Card>
  );
}

function Views({ views }: { views: TargetLun[] }) {
  if (views.length === 0) return <Empty title="It exports no LUN." />;
  return (
    <Table
      label="LUNs it exports" rows={views} keyOf={({ lun, id, groups = [] }) => `${lun} ${id} ${groups.join()}`}
      columns={[
        { title: "LUN", cell: ({ lun }) => lun },
        { title: "Unit", cell: ({ id }) => <a class="name" href={href("luns", id)}>{id}</a> },
        { title: "To", cell: ({ groups }) => (groups?.length ? groups.join(", ") : "all initiators") },
        { title: "Access", cell: ({ readonly }) => (readonly ? <Badge tone="info">read-only</Badge> : "read and write") },
      ]}
    />
  );
}

/** A portal as one line: `192.0.2.1:3260 as san.example:3260 group 2`. */
const PORTAL = /^(\S+)(?:\s+as\s+(\S+))?(?:\s+group\s+(\d+))?$/;
const portalLine = ({ bind, advertise, group }: Portal) =>
  bind + (advertise ? ` as ${advertise}` : "") + (group !== undefined && group !== 1 ? ` group ${group}` : "");

function portalOf(line: string): Portal | undefined {
  const found = PORTAL.exec(line);
  if (!found?.[1]) return undefined;
  return { bind: found[1], ...(found[2] && { advertise: found[2] }), ...(found[3] && { group: Number(found[3]) }) };
}

interface EditorProps {
  /** `null` for a new one. */
  spec: TargetSpec | null;
  known: Known;
  close: () => void;
  take: (change: Change) => void;
  /** The plan is shown above it. */
  isBehind: boolean;
}

function Editor({ spec, known, close, take, isBehind }: EditorProps) {
  const [name, setName] = useState(spec?.name ?? "");
  const [alias, setAlias] = useState(spec?.alias ?? "");
  const [portals, setPortals] = useState((spec?.portals ?? []).map(portalLine).join("\n"));
  const [auth, setAuth] = useState(spec?.auth ?? []);
  const [views, setViews] = useState(spec?.luns ?? []);
  const parsed = linesOf(portals).map(portalOf);
  const nameError = name === "" || /^(iqn|eui|naa)\.\S+$/i.test(name) ? undefined : "begins with iqn., eui. or naa., without blanks";
  const portalError = parsed.includes(undefined) ? "ADDRESS:PORT, then perhaps: as HOST:PORT, group NUMBER" : undefined;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    take(putTarget({
      name, ...(alias && { alias }), ...(parsed.length > 0 && { portals: parsed as Portal[] }), auth, luns: views,
    }, spec === null, close));
  };
  if (isBehind) return null;
  return (
    <Dialog title={spec ? "Edit target" : "Add target"} close={close} wide>
      <form onSubmit={submit}>
        <Text label="Name" value={name} set={setName} required disabled={spec !== null} error={nameError} placeholder="iqn.2026-11.example.san:name" hint="iSCSI name; it cannot be changed later" />
        <Text label="Alias" value={alias} set={setAlias} hint="A description for people (optional)" />
        <Lines
          label="Portals" value={portals} set={setPortals} rows={2} error={portalError} placeholder="192.0.2.1:3260"
          hint="One per line: ADDRESS:PORT, optionally followed by “as HOST:PORT” and “group NUMBER”; empty: 127.0.0.1:3260"
        />
        <Several
          label="Users that may log in (CHAP)" all={known.users.map((user) => user.name)} value={auth} set={setAuth}
          none="There is no user yet; every initiator that can connect may log in."
        />
        <ViewsEditor views={views} set={setViews} known={known} />
        <div class="actions end">
          <Button onClick={close}>Cancel</Button>
          <Button tone="primary" type="submit" disabled={!name || Boolean(nameError || portalError)}>Plan</Button>
        </div>
      </form>
    </Dialog>
  );
}

function ViewsEditor({ views, set, known }: { views: TargetLun[]; set: (views: TargetLun[]) => void; known: Known }) {
  const [first] = known.luns;
  const change = (at: number, view: TargetLun) => set(views.map((each, index) => (index === at ? view : each)));
  return (
    <fieldset class="views">
      <legend>LUNs it exports</legend>
      {views.map((view, at) => (
        <div class="view" key={at}>
          <Text label="LUN" value={String(view.lun)} set={(text) => change(at, { ...view, lun: Number.parseInt(text, 10) || 0 })} />
          <Select label="Unit" value={view.id} set={(id) => change(at, { ...view, id })} options={known.luns.map(({ spec }) => [spec.id, spec.id] as const)} />
          <Several
            label="To groups" all={known.groups.map(({ id }) => id)} value={view.groups ?? []} none="There is no group; every initiator that may log in sees it."
            set={(groups) => change(at, { ...view, groups })}
          />
          <Check label="Refuse writes" value={view.readonly ?? false} set={(readonly) => change(at, { ...view, readonly })} />
          <Button tone="plain" onClick={() => set(views.filter((_each, index) => index !== at))} aria-label={`Remove LUN ${view.lun}`}>Remove</Button>
        </div>
      ))}
      {first && <Button onClick={() => set([...views, { lun: freeLun(views), id: first.spec.id }])}>Add LUN</Button>}
    </fieldset>
  );
}
