import { useState } from "preact/hooks";
import { api, may } from "../api/client";
import type { Portal, Target, TargetSpec, User } from "../api/types";
import { putTarget, remove } from "../lib/changes";
import { useLoad } from "../lib/load";
import { count } from "../lib/units";
import { href } from "../router";
import { Badge, Button, Card, Empty, Page, Shown } from "../ui/basics";
import { ChangeDialog } from "../ui/change";
import type { Change } from "../ui/change";
import { Dialog } from "../ui/dialog";
import { Lines, linesOf, Several, Text } from "../ui/form";
import { Table } from "../ui/table";

export function TargetsPage() {
  const targets = useLoad(api.targets);
  const users = useLoad(api.users);
  const [edited, setEdited] = useState<TargetSpec | null>();
  const [change, setChange] = useState<Change>();
  const add = may("admin") && <Button tone="primary" onClick={() => setEdited(null)}>Add target</Button>;
  return (
    <Page title="Targets" lead="Initiators log in to targets. A target has addresses, access rules and LUNs." actions={add}>
      <Card>
        <Shown from={targets}>
          {(value) => (value.length === 0 ? <Empty title="There is no target yet." /> : (
            <Targets targets={value} edit={setEdited} remove={(name) => setChange(remove("target", name))} />
          ))}
        </Shown>
      </Card>
      {edited !== undefined && users.value && (
        <TargetEditor spec={edited} users={users.value} close={() => setEdited(undefined)} take={setChange} isBehind={change !== undefined} />
      )}
      {change && <ChangeDialog change={change} close={() => setChange(undefined)} />}
    </Page>
  );
}

export const portalText = ({ bind, advertise, group }: Portal) =>
  [bind, advertise && `as ${advertise}`, group !== undefined && `group ${group}`].filter(Boolean).join(", ");

/** Portals that a row has room for. */
const PORTALS_SHOWN = 2;

export function Portals({ portals }: { portals: Portal[] }) {
  const more = portals.length - PORTALS_SHOWN;
  return (
    <ul class="plain">
      {portals.slice(0, PORTALS_SHOWN).map((portal) => <li key={portal.bind}><code class="whole">{portalText(portal)}</code></li>)}
      {more > 0 && <li class="hint">and {more} more</li>}
    </ul>
  );
}

interface ListProps {
  targets: Target[];
  edit: (spec: TargetSpec) => void;
  remove: (name: string) => void;
}

function Targets({ targets, edit, remove: take }: ListProps) {
  const actions = ({ spec }: Target) => (
    <span class="actions">
      <Button onClick={() => edit(spec)} aria-label={`Edit ${spec.name}`}>Edit</Button>
      <Button tone="danger" onClick={() => take(spec.name)} aria-label={`Remove ${spec.name}`}>Remove</Button>
    </span>
  );
  return (
    <Table
      label="Targets" rows={targets} keyOf={({ spec }) => spec.name}
      search={{ hint: "by name, alias, address, user or LUN", text: ({ spec }) => JSON.stringify([spec.name, spec.alias, spec.portals, spec.auth, spec.luns?.map(({ id }) => id)]) }}
      columns={[
        { title: "Target", by: ({ spec }) => spec.name, cell: ({ spec }) => <><a class="name strong" href={href("targets", spec.name)}>{spec.name}</a>{spec.alias && <p class="hint">{spec.alias}</p>}</> },
        { title: "Portals", cell: ({ spec }) => <Portals portals={spec.portals ?? []} /> },
        { title: "Authentication", isMinor: true, by: ({ spec }) => spec.auth?.length ?? 0, cell: ({ spec }) => (spec.auth?.length ? `CHAP: ${spec.auth.slice(0, 3).join(", ")}` : <Badge tone="warn">none</Badge>) },
        { title: "LUNs", numeric: true, by: ({ spec }) => spec.luns?.length ?? 0, cell: ({ spec }) => count(spec.luns?.length ?? 0) },
        { title: "Sessions", numeric: true, by: ({ sessions }) => sessions, cell: ({ sessions }) => count(sessions) },
        ...(may("admin") ? [{ title: "Actions", numeric: true, cell: actions }] : []),
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
  users: User[];
  close: () => void;
  take: (change: Change) => void;
  /** The plan is shown above it. */
  isBehind: boolean;
}

/** All of a target but its LUNs, which have their own table on its page. */
export function TargetEditor({ spec, users, close, take, isBehind }: EditorProps) {
  const [name, setName] = useState(spec?.name ?? "");
  const [alias, setAlias] = useState(spec?.alias ?? "");
  const [portals, setPortals] = useState((spec?.portals ?? []).map(portalLine).join("\n"));
  const [auth, setAuth] = useState(spec?.auth ?? []);
  const parsed = linesOf(portals).map(portalOf);
  const nameError = name === "" || /^(iqn|eui|naa)\.\S+$/i.test(name) ? undefined : "begins with iqn., eui. or naa., without blanks";
  const portalError = parsed.includes(undefined) ? "ADDRESS:PORT, then perhaps: as HOST:PORT, group NUMBER" : undefined;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    take(putTarget({ name, ...(alias && { alias }), ...(parsed.length > 0 && { portals: parsed as Portal[] }), auth }, spec, close));
  };
  if (isBehind) return null;
  return (
    <Dialog title={spec ? "Edit target" : "Add target"} close={close} wide>
      <form onSubmit={submit}>
        <Text label="Name" value={name} set={setName} required disabled={spec !== null} error={nameError} placeholder="iqn.2026-11.example.san:name" hint="iSCSI name; it cannot be changed later" />
        <Text label="Alias" value={alias} set={setAlias} hint="A description for people (optional)" />
        <Lines
          label="Portals" value={portals} set={setPortals} rows={2} error={portalError} placeholder="192.0.2.1:3260"
          hint="One per line: ADDRESS:PORT, optionally followed by “as HOST:PORT” and “group NUMBER”. Empty: 127.0.0.1:3260, which only this machine reaches."
        />
        <Several
          label="Users that may log in (CHAP)" all={users.map((user) => user.name)} value={auth} set={setAuth}
          none="There is no user yet; every initiator that can connect may log in."
        />
        <div class="actions end">
          <Button onClick={close}>Cancel</Button>
          <Button tone="primary" type="submit" disabled={!name || Boolean(nameError || portalError)}>Plan</Button>
        </div>
      </form>
    </Dialog>
  );
}
