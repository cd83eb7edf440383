import { useState } from "preact/hooks";
import { api, may } from "../api/client";
import { latest } from "../api/live";
import type { Session, Trace } from "../api/types";
import type { PageProps } from "../app";
import { touch, useLoad, useTask } from "../lib/load";
import { bytesPerSecond, dataBuckets, iops, percentile } from "../lib/rates";
import { useStore } from "../lib/store";
import { short } from "../lib/ways";
import { bytes, count, duration, latency, moment, NONE, plural, throughput } from "../lib/units";
import { go, href } from "../router";
import { Badge, Button, Card, Empty, type Fact, Facts, Page, ProblemBox, Shown } from "../ui/basics";
import { Dialog } from "../ui/dialog";
import { Table } from "../ui/table";
import { say } from "../ui/toast";

export function SessionsPage() {
  const sessions = useLoad(api.sessions);
  const traces = useLoad(api.traces);
  return (
    <Page title="Sessions" lead="Initiators that are logged in.">
      <Card><Shown from={sessions}>{(value) => <Sessions sessions={value} />}</Shown></Card>
      {traces.value && traces.value.length > 0 && <Card title="Traces"><Traces traces={traces.value} /></Card>}
    </Page>
  );
}

/** Begun and ended on the command line (tarn trace); whoever may read them takes the file from here, too. */
function Traces({ traces }: { traces: Trace[] }) {
  return (
    <Table
      label="Traces" rows={traces} keyOf={({ subject }) => subject}
      columns={[
        { title: "Session or initiator", cell: ({ subject }) => <span class="name">{subject}</span> },
        { title: "Since", cell: ({ since_ms }) => <time class="nowrap" dateTime={new Date(since_ms).toISOString()}>{moment(since_ms)}</time> },
        { title: "PDUs", numeric: true, cell: ({ pdus }) => count(pdus) },
        { title: "Dropped", numeric: true, cell: ({ dropped }) => count(dropped) },
        { title: "Keeps", numeric: true, cell: ({ keep_bytes }) => bytes(keep_bytes) },
        { title: "File", cell: ({ subject }) => (may("operator") ? <a href={`/api/v1/traces/${encodeURIComponent(subject)}`} download="trace.pcap">Save</a> : NONE) },
      ]}
    />
  );
}

function Sessions({ sessions }: { sessions: Session[] }) {
  const rates = useStore(latest)?.initiators;
  if (sessions.length === 0) return <Empty title="No initiator is logged in." />;
  const text = ({ initiator, address, target, user }: Session) => `${initiator} ${address} ${target ?? ""} ${user ?? ""}`;
  const rate = (session: Session) => {
    const figures = rates?.get(session.initiator);
    return figures ? iops(figures) : undefined;
  };
  const now = Date.now();
  return (
      <Table
        label="Sessions" rows={sessions} keyOf={({ id }) => id} search={{ hint: "by initiator, address, target or user", text }}
        columns={[
          { title: "Initiator", by: ({ initiator }) => initiator, cell: ({ id, initiator }) => <a class="name strong" href={href("sessions", id)}>{initiator}</a> },
          { title: "Address", by: ({ address }) => address, cell: ({ address }) => <code class="whole">{address}</code> },
          { title: "Target", by: ({ target }) => target ?? "", cell: ({ target }) => <TargetName target={target} isShort /> },
          { title: "User", isMinor: true, by: ({ user }) => user ?? "", cell: ({ user }) => user ?? NONE },
          { title: "Digests", isMinor: true, cell: digests },
          { title: "Commands", numeric: true, isMinor: true, by: ({ commands }) => commands, cell: ({ commands, window }) => `${commands} of ${window}` },
          { title: "Age", numeric: true, by: ({ since_ms }) => -since_ms, cell: ({ since_ms }) => duration(now - since_ms) },
          { title: "Trouble", isMinor: true, by: (session) => { const { violations, reinstatements } = counted(session); return violations + reinstatements; }, cell: trouble },
          { title: "Initiator IOPS", numeric: true, by: (session) => rate(session) ?? 0, cell: (session) => { const value = rate(session); return value === undefined ? NONE : count(value); } },
        ]}
      />
  );
}

/** Sessions of NBD and HyperSCSI have the export or the group in place of a target. */
function TargetName({ target, isShort }: { target: string | undefined; isShort?: boolean }) {
  const text = target === undefined ? "discovery" : isShort && target.startsWith("iqn.") ? short(target) : target;
  if (target?.startsWith("hyperscsi:")) return <a class="name" href={href("hyperscsi")}>{text}</a>;
  if (target === undefined || target.startsWith("nbd:")) return <span class="name">{text}</span>;
  return <a class={isShort ? "whole" : "name"} href={href("targets", target)}>{text}</a>;
}

/** What only a session of iSCSI has. */
const iscsiOf = ({ transport }: Session) => ("iscsi" in transport ? transport.iscsi : undefined);
const counted = (session: Session) => iscsiOf(session) ?? { violations: 0, reinstatements: 0 };

function digests(session: Session) {
  const connections = iscsiOf(session)?.connections;
  if (!connections) return NONE;
  const has = (key: "header_digest" | "data_digest") => connections.some((each) => each[key]);
  return [has("header_digest") && "header", has("data_digest") && "data"].filter(Boolean).join(", ") || "off";
}

function trouble(session: Session) {
  const { violations, reinstatements } = counted(session);
  if (violations === 0 && reinstatements === 0) return NONE;
  return (
    <span class="marks">
      {violations > 0 && <Badge tone="bad">{plural(violations, "violation")}</Badge>}
      {reinstatements > 0 && <Badge tone="warn">{plural(reinstatements, "reinstatement")}</Badge>}
    </span>
  );
}

export function SessionPage({ parts }: PageProps) {
  const id = Number(parts[0]);
  const sessions = useLoad(api.sessions, id);
  const session = sessions.value?.find((each) => each.id === id);
  const [isEnding, setEnding] = useState(false);
  return (
    <Page
      title={session ? `Session ${id}` : "Session"} lead={<a href={href("sessions")}>All sessions</a>}
      actions={session && may("operator") && <Button tone="danger" onClick={() => setEnding(true)}>End session</Button>}
    >
      <Shown from={sessions}>{(all) => (session ? <Detail session={session} of={all.filter(({ initiator }) => initiator === session.initiator).length} /> : <Empty title="This session has ended." />)}</Shown>
      {session && isEnding && <End session={session} close={() => setEnding(false)} />}
    </Page>
  );
}

/** What the transport calls the two ends of a session. */
function ends({ transport }: Session): Fact[] {
  if ("iscsi" in transport) {
    const { isid, tsih, portal_group } = transport.iscsi;
    return [["Transport", "iSCSI"], ["ISID", <code>{isid}</code>], ["TSIH", tsih], ["Portal group", portal_group]];
  }
  if ("nbd" in transport) {
    const { service, names } = transport.nbd;
    return [["Transport", "NBD"], ["Server", <code>{service}</code>], ["Certificate", names.join(", ") || "none"]];
  }
  return [["Transport", "HyperSCSI"], ["Place", <code>{transport.hyperscsi.place}</code>]];
}

/** What is counted is counted by initiator, which has so many sessions (`of`). */
function Detail({ session, of }: { session: Session; of: number }) {
  const figures = useStore(latest)?.initiators.get(session.initiator);
  const iscsi = iscsiOf(session);
  return (
    <>
      <div class="columns">
        <Card title="Initiator">
          <Facts facts={[
            ["Initiator", <span class="name">{session.initiator}</span>],
            ["Address", <code>{session.address}</code>],
            ["Target", <TargetName target={session.target} />],
            ["CHAP user", session.user ?? "none"],
            ...ends(session),
          ]} />
        </Card>
        <Card title="Session">
          <Facts facts={[
            ["Since", `${moment(session.since_ms)} (${duration(Date.now() - session.since_ms)})`],
            ["Core", session.core],
            ["Commands", `${session.commands} of ${session.window}`],
            ...(iscsi ? [
              ["Connections", iscsi.connections.length],
              ["Digests", digests(session)],
              ["Violations", iscsi.violations],
              ["Reinstatements", iscsi.reinstatements],
            ] satisfies Fact[] : []),
          ]} />
        </Card>
      </div>
      <Card title="The initiator now">
        {of > 1 && <p class="hint">All {of} sessions of this initiator together; Tarn does not count them one by one.</p>}
        <Facts facts={[
          ["IOPS", figures ? count(iops(figures)) : NONE],
          ["Throughput", figures ? throughput(bytesPerSecond(figures)) : NONE],
          ["Latency p50", latency(figures && percentile(dataBuckets(figures), 0.5))],
          ["Latency p99", latency(figures && percentile(dataBuckets(figures), 0.99))],
        ]} />
      </Card>
      <Card title="LUNs">
        {session.luns.length === 0 ? <Empty title="No LUN." /> : (
          <Table
            label="LUNs of this session" rows={session.luns} keyOf={({ lun }) => lun} search={{ hint: "by number or unit", text: ({ lun, id }) => `${lun} ${id}` }}
            columns={[
              { title: "LUN", cell: ({ lun }) => lun },
              { title: "Unit", cell: ({ id }) => <a class="name" href={href("luns", id)}>{id}</a> },
              { title: "Access", cell: ({ readonly }) => (readonly ? <Badge tone="info">read-only</Badge> : "read and write") },
            ]}
          />
        )}
      </Card>
    </>
  );
}

function End({ session, close }: { session: Session; close: () => void }) {
  const task = useTask();
  const end = () => task.run(async () => {
    await api.endSession(session.id);
    touch();
    say(`Session ${session.id} has ended`);
    close();
    go("sessions");
  });
  return (
    <Dialog title={`End session ${session.id}`} close={close}>
      <p>
        <b class="name">{session.initiator}</b> loses its {plural(iscsiOf(session)?.connections.length ?? 1, "connection")} and{" "}
        {plural(session.commands, "command")} under way. Most initiators log in again by themselves; to keep it out, change
        its group or user first.
      </p>
      <ProblemBox problem={task.problem} />
      <div class="actions end">
        <Button onClick={close}>Cancel</Button>
        <Button tone="danger" onClick={end} disabled={task.busy}>End session</Button>
      </div>
    </Dialog>
  );
}
