import { useState } from "preact/hooks";
import { api, may } from "../api/client";
import type { Group, Target } from "../api/types";
import { putGroup, remove } from "../lib/changes";
import { useLoad } from "../lib/load";
import { href } from "../router";
import { Button, Card, Empty, Page, Shown } from "../ui/basics";
import { ChangeDialog } from "../ui/change";
import type { Change } from "../ui/change";
import { Dialog } from "../ui/dialog";
import { Lines, linesOf, Text } from "../ui/form";
import { Table } from "../ui/table";
import { ID, ID_HINT } from "./lun";

export function GroupsPage() {
  const groups = useLoad(api.groups);
  const targets = useLoad(api.targets);
  const [edited, setEdited] = useState<Group | null>();
  const [change, setChange] = useState<Change>();
  const add = may("admin") && <Button tone="primary" onClick={() => setEdited(null)}>Add group</Button>;
  return (
    <Page title="Groups" lead="Sets of initiators, by name, address or user; targets export LUNs to groups." actions={add}>
      <Shown from={groups}>
        {(value) => (value.length === 0 ? <Card><Empty title="There is no group yet; every initiator that may log in sees every LUN of the target." /></Card>
          : value.map((group) => (
            <GroupCard key={group.id} group={group} targets={targets.value ?? []} edit={() => setEdited(group)} remove={() => setChange(remove("group", group.id))} />
          )))}
      </Shown>
      {edited !== undefined && !change && <Editor group={edited} close={() => setEdited(undefined)} take={setChange} />}
      {change && <ChangeDialog change={change} close={() => setChange(undefined)} />}
    </Page>
  );
}

function GroupCard({ group, targets, edit, remove }: { group: Group; targets: Target[]; edit: () => void; remove: () => void }) {
  const views = targets.flatMap(({ spec }) =>
    (spec.luns ?? []).filter(({ groups }) => groups?.includes(group.id)).map((view) => ({ ...view, target: spec.name })));
  return (
    <Card
      title={<span class="name">{group.id}</span>}
      actions={may("admin") && (
        <>
          <Button onClick={edit} aria-label={`Edit ${group.id}`}>Edit</Button>
          <Button tone="danger" onClick={remove} aria-label={`Remove ${group.id}`}>Remove</Button>
        </>
      )}
    >
      <ul class="chips">{group.initiators.map((each) => <li key={each}><code class="name">{each}</code></li>)}</ul>
      {views.length === 0 ? <Empty title="It sees no LUN." /> : (
        <Table
          label="LUNs it sees" rows={views} keyOf={(view) => `${view.target} ${view.lun} ${view.id}`}
          columns={[
            { title: "Unit", cell: ({ id }) => <a class="name" href={href("luns", id)}>{id}</a> },
            { title: "Target", cell: ({ target }) => <span class="name">{target}</span> },
            { title: "LUN", cell: ({ lun }) => lun },
            { title: "Access", cell: ({ readonly }) => (readonly ? "read-only" : "read and write") },
          ]}
        />
      )}
    </Card>
  );
}

export const INITIATORS_HINT = "One a line: name with * and ?, address, network as 192.0.2.0/24, or user:NAME";

function Editor({ group, close, take }: { group: Group | null; close: () => void; take: (change: Change) => void }) {
  const [id, setId] = useState(group?.id ?? "");
  const [initiators, setInitiators] = useState((group?.initiators ?? []).join("\n"));
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
        <div class="actions end">
          <Button onClick={close}>Cancel</Button>
          <Button tone="primary" type="submit" disabled={!id || Boolean(error) || linesOf(initiators).length === 0}>Plan</Button>
        </div>
      </form>
    </Dialog>
  );
}
