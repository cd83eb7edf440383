import { useState } from "preact/hooks";
import { api } from "../api/client";
import type { Access } from "../api/types";
import { useLoad, useTask } from "../lib/load";
import { href } from "../router";
import { Badge, Button, Card, Empty, Page, ProblemBox } from "../ui/basics";
import { Text } from "../ui/form";
import { Table } from "../ui/table";

export function AccessPage() {
  const sessions = useLoad(api.sessions);
  const users = useLoad(api.users);
  const [initiator, setInitiator] = useState("");
  const [address, setAddress] = useState("");
  const [user, setUser] = useState("");
  const [answer, setAnswer] = useState<Access[]>();
  const task = useTask();
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    setAnswer(undefined);
    task.run(async () => setAnswer(await api.access({ initiator, ...(address && { address }), ...(user && { user }) })));
  };
  const names = [...new Set((sessions.value ?? []).map((session) => session.initiator))];
  return (
    <Page title="Who sees what" lead="What an initiator would see: a dry run of the access rules. Nothing is changed.">
      <Card>
        <form class="row" onSubmit={submit}>
          <Text label="Initiator" value={initiator} set={setInitiator} required options={names} placeholder="iqn.1993-08.org.debian:01:host" hint="InitiatorName" />
          <Text label="Address" value={address} set={setAddress} placeholder="192.0.2.21" hint="Empty: an address in no rule" />
          <Text label="User" value={user} set={setUser} options={(users.value ?? []).map(({ name }) => name)} hint="Empty: no CHAP" />
          <Button tone="primary" type="submit" disabled={!initiator || task.busy}>Ask</Button>
        </form>
        <ProblemBox problem={task.problem} />
      </Card>
      {answer?.length === 0 && <Card><Empty title="There is no target." /></Card>}
      {answer?.map((access) => <Answer key={access.target} access={access} />)}
    </Page>
  );
}

function Answer({ access }: { access: Access }) {
  return (
    <Card
      title={<span class="name">{access.target}</span>}
      actions={(
        <>
          {access.may_login ? <Badge tone="good">may log in</Badge> : <Badge tone="bad">may not log in</Badge>}
          {access.needs_chap && <Badge tone="info">CHAP</Badge>}
          <Badge>{access.is_discovered ? "discovered" : "not discovered"}</Badge>
        </>
      )}
    >
      <p>{access.reason}</p>
      {access.luns.length > 0 && (
        <Table
          label="LUNs it would see" rows={access.luns} keyOf={({ lun }) => lun}
          columns={[
            { title: "LUN", cell: ({ lun }) => lun },
            { title: "Unit", cell: ({ id }) => <a class="name" href={href("luns", id)}>{id}</a> },
            { title: "Access", cell: ({ readonly }) => (readonly ? "read-only" : "read and write") },
          ]}
        />
      )}
    </Card>
  );
}
