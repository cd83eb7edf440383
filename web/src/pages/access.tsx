import { useState } from "preact/hooks";
import { api } from "../api/client";
import type { Access, SessionLun } from "../api/types";
import { useLoad, useTask } from "../lib/load";
import { seenInitiators } from "../lib/seen";
import { PROTOCOLS } from "../lib/ways";
import { href } from "../router";
import { Badge, Button, Card, Empty, Page, ProblemBox } from "../ui/basics";
import { Text } from "../ui/form";
import { Pager, Table } from "../ui/table";

export function AccessPage() {
  const users = useLoad(api.users);
  const [initiator, setInitiator] = useState("");
  const [address, setAddress] = useState("");
  const [user, setUser] = useState("");
  const [certificate, setCertificate] = useState("");
  const [answer, setAnswer] = useState<Access[]>();
  const task = useTask();
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    setAnswer(undefined);
    task.run(async () => setAnswer(await api.access({ initiator, ...(address && { address }), ...(user && { user }), ...(certificate && { certificate }) })));
  };
  const names = useLoad(seenInitiators).value ?? [];
  return (
    <Page title="Who sees what" lead="What an initiator would see: a dry run of the access rules. Nothing is changed.">
      <Card>
        <form class="row" onSubmit={submit}>
          <Text label="Initiator" value={initiator} set={setInitiator} required options={names} placeholder="iqn.1993-08.org.debian:01:host" hint="InitiatorName" />
          <Text label="Address" value={address} set={setAddress} placeholder="192.0.2.21" hint="Empty: an address in no rule" />
          <Text label="User" value={user} set={setUser} options={(users.value ?? []).map(({ name }) => name)} hint="Empty: no CHAP" />
          <Text label="Certificate" value={certificate} set={setCertificate} hint="Name in it, for NBD" />
          <Button tone="primary" type="submit" disabled={!initiator || task.busy}>Ask</Button>
        </form>
        <ProblemBox problem={task.problem} />
      </Card>
      {answer?.length === 0 && <Card><Empty title="There is no target, no server of NBD and no group of HyperSCSI." /></Card>}
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
      {sorted.slice(at * PAGE, (at + 1) * PAGE).map((access) => <Answer key={`${access.protocol} ${access.target}`} access={access} />)}
      <Pager label="answers" at={at} pages={Math.ceil(sorted.length / PAGE)} size={PAGE} rows={sorted.length} set={setAt} />
    </>
  );
}

function Answer({ access }: { access: Access }) {
  return (
    <Card
      title={<span class="name">{access.target}</span>}
      actions={(
        <>
          {access.protocol && access.protocol !== "iscsi" && <Badge>{PROTOCOLS[access.protocol] ?? access.protocol}</Badge>}
          {access.may_login ? <Badge tone="good">may log in</Badge> : <Badge tone="bad">may not log in</Badge>}
          {access.needs_chap && <Badge tone="info">CHAP</Badge>}
          {access.needs_password && <Badge tone="info">password</Badge>}
          <Badge>{access.is_discovered ? "discovered" : "not discovered"}</Badge>
          {access.discovery_needs_chap && <Badge tone="warn">discovery needs CHAP</Badge>}
        </>
      )}
    >
      <p>{access.reason}</p>
      {access.luns.length > 0 && (
        <Table
          label="LUNs it would see" rows={access.luns} keyOf={({ id, lun }) => `${lun} ${id}`} page={10}
          columns={[
            ...(access.protocol === "nbd" ? [] : [{ title: access.protocol === "hyperscsi" ? "Device" : "LUN", cell: ({ lun }: SessionLun) => lun }]),
            { title: "Unit", cell: ({ id }) => <a class="name" href={href("luns", id)}>{id}</a> },
            { title: "Access", cell: ({ readonly, level }) => `${readonly ? "read-only" : "read and write"}${level ? `, ${level}` : ""}` },
          ]}
        />
      )}
    </Card>
  );
}
