import { useState } from "preact/hooks";
import { api } from "../api/client";
import type { Access } from "../api/types";
import { useLoad, useTask } from "../lib/load";
import { seenInitiators } from "../lib/seen";
import { href } from "../router";
import { Badge, Button, Card, Empty, Page, ProblemBox } from "../ui/basics";
import { Text } from "../ui/form";
import { Pager, Table } from "../ui/table";

export function AccessPage() {
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
  const names = useLoad(seenInitiators).value ?? [];
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
      {answer && answer.length > 0 && <Answers answer={answer} />}
    </Page>
  );
}

/** Targets on a page; those that it may log in to come first. */
const PAGE = 5;

function Answers({ answer }: { answer: Access[] }) {
  const [at, setAt] = useState(0);
  const sorted = [...answer].sort((a, b) => Number(b.may_login) - Number(a.may_login));
  return (
    <>
      {sorted.slice(at * PAGE, (at + 1) * PAGE).map((access) => <Answer key={access.target} access={access} />)}
      <Pager label="targets" at={at} pages={Math.ceil(sorted.length / PAGE)} size={PAGE} rows={sorted.length} set={setAt} />
    </>
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
          {access.discovery_needs_chap && <Badge tone="warn">discovery needs CHAP</Badge>}
        </>
      )}
    >
      <p>{access.reason}</p>
      {access.luns.length > 0 && (
        <Table
          label="LUNs it would see" rows={access.luns} keyOf={({ lun }) => lun} page={10}
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
