/** One target: its addresses, its rules, its LUNs and its sessions. */
import { useState } from "preact/hooks";
import { api, may } from "../api/client";
import type { Group, Lun, Session, Target, TargetLun } from "../api/types";
import type { PageProps } from "../app";
import { putViews, remove } from "../lib/changes";
import { useLoad } from "../lib/load";
import { duration, NONE, plural } from "../lib/units";
import { freeLun } from "../lib/wish";
import { go, href } from "../router";
import { Badge, Button, Card, Empty, Facts, Page, Shown } from "../ui/basics";
import { ChangeDialog } from "../ui/change";
import type { Change } from "../ui/change";
import { Dialog } from "../ui/dialog";
import { Check, Several, Text } from "../ui/form";
import { Table } from "../ui/table";
import { portalText, TargetEditor } from "./targets";

export function TargetPage({ parts }: PageProps) {
  const [name = ""] = parts;
  const targets = useLoad(api.targets, name);
  const target = targets.value?.find(({ spec }) => spec.name.toLowerCase() === name.toLowerCase());
  const [isEdited, setEdited] = useState(false);
  const [change, setChange] = useState<Change>();
  const users = useLoad(api.users);
  const actions = target && may("admin") && (
    <>
      <Button onClick={() => setEdited(true)}>Edit</Button>
      <Button tone="danger" onClick={() => setChange({ ...remove("target", target.spec.name), done: () => go("targets") })}>Remove</Button>
    </>
  );
  return (
    <Page title={target?.spec.name ?? name} lead={<a href={href("targets")}>All targets</a>} actions={actions}>
      <Shown from={targets}>{() => (target ? <Detail target={target} take={setChange} isBehind={change !== undefined} /> : <Empty title={`There is no target ${name}.`} />)}</Shown>
      {target && isEdited && users.value && (
        <TargetEditor spec={target.spec} users={users.value} close={() => setEdited(false)} take={setChange} isBehind={change !== undefined} />
      )}
      {change && <ChangeDialog change={change} close={() => setChange(undefined)} />}
    </Page>
  );
}

interface DetailProps {
  target: Target;
  take: (change: Change) => void;
  isBehind: boolean;
}

function Detail({ target, take, isBehind }: DetailProps) {
  const { spec } = target;
  const sessions = useLoad(api.sessions, spec.name);
  return (
    <>
      <Card title="Properties">
        <Facts facts={[
          ["Alias", spec.alias ?? NONE],
          ["Portals", <ul class="plain">{(spec.portals ?? []).map((portal) => <li key={portal.bind}><code>{portalText(portal)}</code></li>)}</ul>],
          ["Listens on", <ul class="plain">{target.bound.map((bound) => <li key={bound}><code>{bound}</code></li>)}</ul>],
          ["Who may log in", spec.auth?.length ? `CHAP users ${spec.auth.join(", ")}` : <Badge tone="warn">every initiator</Badge>],
          ["Sessions", plural(target.sessions, "session")],
        ]} />
      </Card>
      <Views target={target} take={take} isBehind={isBehind} />
      <Card title="Sessions"><Shown from={sessions}>{(all) => <Sessions sessions={all.filter((session) => session.target === spec.name)} />}</Shown></Card>
    </>
  );
}

const keyOf = ({ lun, id, groups = [] }: TargetLun) => `${lun} ${id} ${groups.join()}`;

function Views({ target: { spec }, take, isBehind }: DetailProps) {
  const views = spec.luns ?? [];
  const [edited, setEdited] = useState<TargetLun | null>();
  const close = () => setEdited(undefined);
  const without = (view: TargetLun) => views.filter((each) => each !== view);
  const drop = (view: TargetLun) => take(putViews(spec, without(view), `Remove LUN ${view.lun} from ${spec.name}`, "Remove", () => undefined));
  const set = (view: TargetLun) => {
    const next = edited ? views.map((each) => (each === edited ? view : each)) : [...views, view];
    take(putViews(spec, next, `${edited ? "Change" : "Add"} LUN ${view.lun} of ${spec.name}`, edited ? "Change" : "Add", close));
  };
  const actions = (view: TargetLun) => (
    <span class="actions">
      <Button onClick={() => setEdited(view)} aria-label={`Edit LUN ${view.lun}`}>Edit</Button>
      <Button tone="danger" onClick={() => drop(view)} aria-label={`Remove LUN ${view.lun}`}>Remove</Button>
    </span>
  );
  return (
    <Card title="LUNs" actions={may("admin") && <Button onClick={() => setEdited(null)}>Add LUN</Button>}>
      {views.length === 0 ? <Empty title="It exports no LUN." /> : (
        <Table
          label="LUNs it exports" rows={views} keyOf={keyOf}
          search={{ hint: "by number, unit or group", text: keyOf }}
          columns={[
            { title: "LUN", numeric: true, by: ({ lun }) => lun, cell: ({ lun }) => lun },
            { title: "Unit", by: ({ id }) => id, cell: ({ id }) => <a class="name" href={href("luns", id)}>{id}</a> },
            { title: "To", by: ({ groups }) => groups?.join() ?? "", cell: ({ groups }) => (groups?.length ? groups.join(", ") : "all initiators") },
            { title: "Access", isMinor: true, cell: ({ readonly }) => (readonly ? <Badge tone="info">read-only</Badge> : "read and write") },
            ...(may("admin") ? [{ title: "Actions", numeric: true, cell: actions }] : []),
          ]}
        />
      )}
      {edited !== undefined && !isBehind && <ViewEditor view={edited} views={views} close={close} take={set} />}
    </Card>
  );
}

function ViewEditor({ view, views, close, take }: { view: TargetLun | null; views: TargetLun[]; close: () => void; take: (view: TargetLun) => void }) {
  const known = useLoad(async (): Promise<[Lun[], Group[]]> => Promise.all([api.luns(), api.groups()]));
  const [lun, setLun] = useState(String(view?.lun ?? freeLun(views)));
  const [id, setId] = useState(view?.id ?? "");
  const [groups, setGroups] = useState(view?.groups ?? []);
  const [readonly, setReadonly] = useState(view?.readonly ?? false);
  const ids = known.value?.[0].map(({ spec }) => spec.id) ?? [];
  const lunError = /^\d{1,5}$/.test(lun) && Number(lun) <= 16383 ? undefined : "a number from 0 to 16383";
  const idError = id === "" || !known.value || ids.includes(id) ? undefined : "there is no such LUN";
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    take({ lun: Number(lun), id, ...(groups.length > 0 && { groups }), ...(readonly && { readonly }) });
  };
  return (
    <Dialog title={view ? `Edit LUN ${view.lun}` : "Add LUN"} close={close}>
      <form onSubmit={submit}>
        <Text label="Unit" value={id} set={setId} options={ids} required error={idError} hint="The id of a disk" />
        <Text label="LUN" value={lun} set={setLun} error={lunError} hint="The number that initiators see; several groups may have different units under one" />
        <Several label="To groups" all={known.value?.[1].map((group) => group.id) ?? []} value={groups} set={setGroups} none="There is no group; every initiator that may log in sees it." />
        <Check label="Read-only: refuse writes" value={readonly} set={setReadonly} />
        <div class="actions end">
          <Button onClick={close}>Cancel</Button>
          <Button tone="primary" type="submit" disabled={!id || Boolean(lunError || idError)}>Plan</Button>
        </div>
      </form>
    </Dialog>
  );
}

function Sessions({ sessions }: { sessions: Session[] }) {
  if (sessions.length === 0) return <Empty title="No initiator is logged in." />;
  return (
    <Table
      label="Sessions of the target" rows={sessions} keyOf={({ id }) => id} page={10}
      search={{ hint: "by initiator, address or user", text: (session) => `${session.initiator} ${session.address} ${session.user ?? ""}` }}
      columns={[
        { title: "Initiator", by: ({ initiator }) => initiator, cell: ({ id, initiator }) => <a class="name strong" href={href("sessions", id)}>{initiator}</a> },
        { title: "Address", by: ({ address }) => address, cell: ({ address }) => <code class="name">{address}</code> },
        { title: "User", isMinor: true, by: ({ user }) => user ?? "", cell: ({ user }) => user ?? NONE },
        { title: "Age", numeric: true, by: ({ since_ms }) => -since_ms, cell: ({ since_ms }) => duration(Date.now() - since_ms) },
      ]}
    />
  );
}
