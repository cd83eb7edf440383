import { useState } from "preact/hooks";
import { api, may } from "../api/client";
import type { Group, Target } from "../api/types";
import type { PageProps } from "../app";
import { putGroup, remove } from "../lib/changes";
import { seenInitiators } from "../lib/seen";
import { useLoad } from "../lib/load";
import { short } from "../lib/ways";
import { go, href } from "../router";
import { Button, Card, Empty, Page, Shown } from "../ui/basics";
import { ChangeDialog } from "../ui/change";
import type { Change } from "../ui/change";
import { Dialog } from "../ui/dialog";
import { Lines, linesOf, Suggest, Text } from "../ui/form";
import { Table } from "../ui/table";
import { ID, ID_HINT } from "./lun";

interface View {
  target: string;
  lun: number;
  id: string;
  readonly?: boolean;
}

const viewsOf = (id: string, targets: Target[]): View[] => targets.flatMap(({ spec }) =>
  (spec.luns ?? []).filter(({ groups }) => groups?.includes(id)).map((view) => ({ ...view, target: spec.name })));

export function GroupsPage() {
  const groups = useLoad(api.groups);
  const targets = useLoad(api.targets);
  const [edited, setEdited] = useState<Group | null>();
  const [change, setChange] = useState<Change>();
  const add = may("admin") && <Button tone="primary" onClick={() => setEdited(null)}>Add group</Button>;
  return (
    <Page title="Groups" lead="Sets of initiators, by name, address or user; targets export LUNs to groups." actions={add}>
      <Card>
        <Shown from={groups}>
          {(value) => (value.length === 0 ? <Empty title="There is no group yet; every initiator that may log in sees every LUN of the target." />
            : <Groups groups={value} targets={targets.value ?? []} edit={setEdited} remove={(id) => setChange(remove("group", id))} />)}
        </Shown>
      </Card>
      {edited !== undefined && !change && <Editor group={edited} close={() => setEdited(undefined)} take={setChange} />}
      {change && <ChangeDialog change={change} close={() => setChange(undefined)} />}
    </Page>
  );
}

/** Members that a row has room for. */
const MEMBERS_SHOWN = 3;

function Members({ all }: { all: string[] }) {
  const more = all.length - MEMBERS_SHOWN;
  return (
    <ul class="chips">
      {all.slice(0, MEMBERS_SHOWN).map((each) => <li key={each}><code class="name">{each}</code></li>)}
      {more > 0 && <li>and {more} more</li>}
    </ul>
  );
}

function Groups({ groups, targets, edit, remove: take }: { groups: Group[]; targets: Target[]; edit: (group: Group) => void; remove: (id: string) => void }) {
  const seen = (id: string) => viewsOf(id, targets).length;
  const actions = (group: Group) => (
    <span class="actions">
      <Button onClick={() => edit(group)} aria-label={`Edit ${group.id}`}>Edit</Button>
      <Button tone="danger" onClick={() => take(group.id)} aria-label={`Remove ${group.id}`}>Remove</Button>
    </span>
  );
  return (
    <Table
      label="Groups" rows={groups} keyOf={({ id }) => id}
      search={{ hint: "by id or member", text: ({ id, initiators }) => `${id} ${initiators.join(" ")}` }}
      columns={[
        { title: "Group", by: ({ id }) => id, cell: ({ id }) => <a class="name strong" href={href("groups", id)}>{id}</a> },
        { title: "Initiators", by: ({ initiators }) => initiators.length, cell: ({ initiators }) => <Members all={initiators} /> },
        { title: "LUNs", numeric: true, by: ({ id }) => seen(id), cell: ({ id }) => seen(id) },
        ...(may("admin") ? [{ title: "Actions", numeric: true, cell: actions }] : []),
      ]}
    />
  );
}

export function GroupPage({ parts }: PageProps) {
  const [id = ""] = parts;
  const groups = useLoad(api.groups, id);
  const targets = useLoad(api.targets);
  const [isEdited, setEdited] = useState(false);
  const [change, setChange] = useState<Change>();
  const group = groups.value?.find((each) => each.id === id);
  const actions = group && may("admin") && (
    <>
      <Button onClick={() => setEdited(true)}>Edit</Button>
      <Button tone="danger" onClick={() => setChange({ ...remove("group", id), done: () => go("groups") })}>Remove</Button>
    </>
  );
  return (
    <Page title={id} lead={<a href={href("groups")}>All groups</a>} actions={actions}>
      <Shown from={groups}>
        {() => (group ? (
          <>
            <Card title="Initiators">
              <Table
                label="Initiators" rows={group.initiators} keyOf={(each) => each} search={{ hint: "by name, address or user", text: (each) => each }}
                columns={[{ title: "Name, address, network or user", by: (each) => each, cell: (each) => <code class="name">{each}</code> }]}
              />
            </Card>
            <Card title="LUNs it sees"><Seen views={viewsOf(id, targets.value ?? [])} /></Card>
          </>
        ) : <Empty title={`There is no group ${id}.`} />)}
      </Shown>
      {group && isEdited && !change && <Editor group={group} close={() => setEdited(false)} take={setChange} />}
      {change && <ChangeDialog change={change} close={() => setChange(undefined)} />}
    </Page>
  );
}

function Seen({ views }: { views: View[] }) {
  if (views.length === 0) return <Empty title="It sees no LUN." />;
  return (
    <Table
      label="LUNs it sees" rows={views} keyOf={(view) => `${view.target} ${view.lun} ${view.id}`}
      search={{ hint: "by unit or target", text: ({ id, target }) => `${id} ${target}` }}
      columns={[
        { title: "Unit", by: ({ id }) => id, cell: ({ id }) => <a class="name" href={href("luns", id)}>{id}</a> },
        { title: "Target", by: ({ target }) => target, cell: ({ target }) => <a class="name" href={href("targets", target)}>{short(target)}</a> },
        { title: "LUN", numeric: true, by: ({ lun }) => lun, cell: ({ lun }) => lun },
        { title: "Access", cell: ({ readonly }) => (readonly ? "read-only" : "read and write") },
      ]}
    />
  );
}

export const INITIATORS_HINT = "One a line: name with * and ?, address, network as 192.0.2.0/24, or user:NAME; with ! in front, one that is left out";

function Editor({ group, close, take }: { group: Group | null; close: () => void; take: (change: Change) => void }) {
  const [id, setId] = useState(group?.id ?? "");
  const [initiators, setInitiators] = useState((group?.initiators ?? []).join("\n"));
  const seen = useLoad(seenInitiators);
  const error = id === "" || ID.test(id) ? undefined : ID_HINT;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    take(putGroup({ id, initiators: linesOf(initiators) }, group === null, close));
  };
  return (
    <Dialog title={group ? "Edit group" : "Add group"} close={close}>
      <form onSubmit={submit}>
        <Text label="Id" value={id} set={setId} required disabled={group !== null} error={error} hint={ID_HINT} />
        <Lines label="Initiators" value={initiators} set={setInitiators} rows={5} hint={INITIATORS_HINT} placeholder="iqn.1993-08.org.debian:*" />
        <Suggest label="Seen by Tarn" options={seen.value ?? []} hint="Initiators that logged in or tried to" add={(name) => setInitiators([...linesOf(initiators), name].join("\n"))} />
        <div class="actions end">
          <Button onClick={close}>Cancel</Button>
          <Button tone="primary" type="submit" disabled={!id || Boolean(error) || linesOf(initiators).length === 0}>Plan</Button>
        </div>
      </form>
    </Dialog>
  );
}
