/** Who has reserved a LUN, and the end of that. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { api, may } from "../api/client";
import type { ReservationNexus, Reservations } from "../api/types";
import { touch, useLoad, useTask } from "../lib/load";
import { moment } from "../lib/units";
import { Badge, Button, Card, Empty, Facts, Notice, ProblemBox } from "../ui/basics";
import { Dialog } from "../ui/dialog";
import { Text } from "../ui/form";
import { Table } from "../ui/table";
import { say } from "../ui/toast";

export function ReservationCard({ id }: { id: string }) {
  const found = useLoad(() => api.reservations(id), id);
  const [asked, setAsked] = useState(false);
  const held = found.value;
  const isSome = held !== undefined && (held.registered > 0 || held.reserved_by !== undefined || held.lost);
  return (
    <Card
      title="Reservations"
      actions={(
        <>
          <Button onClick={found.reload}>Refresh</Button>
          {isSome && may("admin") && <Button tone="danger" onClick={() => setAsked(true)}>Clear</Button>}
        </>
      )}
    >
      <ProblemBox problem={found.problem} retry={found.reload} />
      {held && !isSome && <Empty title="Nobody has reserved it, and nobody is registered." />}
      {held && isSome && <Held held={held} />}
      {asked && <Clear id={id} close={() => setAsked(false)} />}
    </Card>
  );
}

function Held({ held }: { held: Reservations }) {
  const facts: [string, ComponentChildren][] = [
    ["Persistent reservation", held.type ?? "none"],
    ...(held.type ? [["Holder", held.holder ? <Nexus nexus={held.holder} /> : "all that are registered"], ["Since", since(held.since_ms)]] as [string, ComponentChildren][] : []),
    ...(held.reserved_by ? [["RESERVE (SPC-2)", <Nexus nexus={held.reserved_by} />]] as [string, ComponentChildren][] : []),
    ["Outlives a restart (APTPL)", held.aptpl ? "yes" : "no"],
  ];
  return (
    <>
      {held.lost && <Notice tone="warn">Its reservations could not be read, so it refuses every command that they could forbid.</Notice>}
      <Facts facts={facts} />
      {held.registrations && held.registrations.length > 0 && (
        <Table
          label="Registrations" page={10} rows={held.registrations}
          keyOf={({ nexus }) => `${nexus.transport} ${nexus.initiator} ${nexus.isid ?? ""} ${nexus.target_port}`}
          columns={[
            { title: "Initiator", cell: ({ nexus, holder }) => <><Nexus nexus={nexus} />{holder && <> <Badge tone="info">holder</Badge></>}</> },
            { title: "Key", cell: ({ key }) => <code>{key}</code> },
            { title: "ISID", cell: ({ nexus }) => <code>{nexus.isid ?? nexus.transport}</code> },
            { title: "Port", numeric: true, cell: ({ nexus }) => nexus.target_port },
            { title: "Since", cell: ({ since_ms }) => since(since_ms) },
          ]}
        />
      )}
    </>
  );
}

function Nexus({ nexus }: { nexus: ReservationNexus }) {
  return <><span class="name">{nexus.initiator}</span>{nexus.has_session === false && <> <Badge tone="warn">no session</Badge></>}</>;
}

const since = (ms: number | undefined) => (ms === undefined ? "before the start of Tarn" : moment(ms));

function Clear({ id, close }: { id: string; close: () => void }) {
  const task = useTask();
  const [typed, setTyped] = useState("");
  const clear = () => task.run(async () => {
    await api.clearReservations(id);
    touch();
    say(`Nobody has reserved ${id}`);
    close();
  });
  return (
    <Dialog title={`Clear the reservations of ${id}`} close={close}>
      <p>All reservations and registrations end, and whoever was registered gets a unit attention. Hosts that they keep apart may write at the same time then.</p>
      <Text label={`Type ${id} to confirm`} value={typed} set={setTyped} />
      <ProblemBox problem={task.problem} />
      <div class="actions end">
        <Button onClick={close}>Cancel</Button>
        <Button tone="danger" onClick={clear} disabled={task.busy || typed !== id}>Clear</Button>
      </div>
    </Dialog>
  );
}
