import { useState } from "preact/hooks";
import { api } from "../api/client";
import type { Role, Token } from "../api/types";
import { useLoad, useTask } from "../lib/load";
import { moment } from "../lib/units";
import { Badge, Button, Card, Copyable, Empty, Notice, Page, ProblemBox, Shown } from "../ui/basics";
import { Dialog } from "../ui/dialog";
import { Choice, Text } from "../ui/form";
import { Table } from "../ui/table";

const ROLES: readonly (readonly [Role, string, string])[] = [
  ["metrics", "Metrics", "reads /metrics, nothing else"],
  ["viewer", "Viewer", "reads everything but secrets"],
  ["operator", "Operator", "also ends sessions, resizes and renames LUNs"],
  ["admin", "Admin", "everything"],
];

export function TokensPage() {
  const tokens = useLoad(api.tokens);
  const [isNew, setNew] = useState(false);
  const [gone, setGone] = useState<Token>();
  return (
    <Page
      title="Tokens" lead="Who may use this console and the API over the network."
      actions={<Button tone="primary" onClick={() => setNew(true)}>Create token</Button>}
    >
      <Card>
        <Shown from={tokens}>
          {(value) => (value.length === 0 ? <Empty title="There is no token." /> : (
            <Table
              label="Tokens" search={{ hint: "by name or role", text: ({ name, role }) => `${name} ${role}` }} rows={value} keyOf={({ name }) => name}
              columns={[
                { title: "Name", by: ({ name }) => name, cell: ({ name }) => <span class="name strong">{name}</span> },
                { title: "Role", by: ({ role }) => role, cell: ({ role }) => <Badge>{role}</Badge> },
                { title: "Created", by: ({ made_ms }) => made_ms, cell: ({ made_ms }) => moment(made_ms) },
                { title: "Actions", numeric: true, cell: (token) => <Button tone="danger" onClick={() => setGone(token)} aria-label={`Revoke ${token.name}`}>Revoke</Button> },
              ]}
            />
          ))}
        </Shown>
      </Card>
      {isNew && <Make close={() => setNew(false)} done={tokens.reload} />}
      {gone && <Revoke token={gone} close={() => setGone(undefined)} done={tokens.reload} />}
    </Page>
  );
}

interface Props {
  close: () => void;
  done: () => void;
}

function Make({ close, done }: Props) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("viewer");
  const [made, setMade] = useState<Token>();
  const task = useTask();
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    task.run(async () => {
      setMade(await api.makeToken(name, role));
      done();
    });
  };
  if (made?.token) {
    return (
      <Dialog title={`Token ${made.name}`} close={close}>
        <Notice tone="warn">The token is not shown again. Tarn stores only its hash.</Notice>
        <Copyable text={made.token} label="token" />
        <div class="actions end"><Button tone="primary" onClick={close}>Done</Button></div>
      </Dialog>
    );
  }
  return (
    <Dialog title="Create token" close={close}>
      <form onSubmit={submit}>
        <Text label="Name" value={name} set={setName} required hint="Who or what uses it; the audit log has this name" />
        <Choice label="Role" value={role} set={setRole} options={ROLES} />
        <ProblemBox problem={task.problem} />
        <div class="actions end">
          <Button onClick={close}>Cancel</Button>
          <Button tone="primary" type="submit" disabled={!name || task.busy}>Create</Button>
        </div>
      </form>
    </Dialog>
  );
}

function Revoke({ token, close, done }: Props & { token: Token }) {
  const task = useTask();
  const revoke = () => task.run(async () => {
    await api.revokeToken(token.name);
    done();
    close();
  });
  return (
    <Dialog title={`Revoke ${token.name}`} close={close}>
      <p>Requests with it are refused from now on. This cannot be undone; you can create a new token.</p>
      <ProblemBox problem={task.problem} />
      <div class="actions end">
        <Button onClick={close}>Cancel</Button>
        <Button tone="danger" onClick={revoke} disabled={task.busy}>Revoke</Button>
      </div>
    </Dialog>
  );
}
