import { useState } from "preact/hooks";
import { api, may } from "../api/client";
import type { Target, User } from "../api/types";
import { remove, userEdit } from "../lib/changes";
import { touch, useLoad, useTask } from "../lib/load";
import { NONE } from "../lib/units";
import { href } from "../router";
import { Button, Card, Empty, Page, ProblemBox, Shown } from "../ui/basics";
import { ChangeDialog } from "../ui/change";
import type { Change } from "../ui/change";
import { Dialog } from "../ui/dialog";
import { Check, Text } from "../ui/form";
import { Table } from "../ui/table";
import { say } from "../ui/toast";

export function UsersPage() {
  const users = useLoad(api.users);
  const targets = useLoad(api.targets);
  const [edited, setEdited] = useState<User | null>();
  const [change, setChange] = useState<Change>();
  const add = may("admin") && <Button tone="primary" onClick={() => setEdited(null)}>Add user</Button>;
  return (
    <Page title="Users" lead="CHAP users: names and secrets with which initiators prove who they are." actions={add}>
      <Card>
        <Shown from={users}>
          {(value) => (
            <Users users={value} targets={targets.value ?? []} edit={setEdited} remove={(name) => setChange(remove("user", name))} />
          )}
        </Shown>
      </Card>
      {edited !== undefined && <Editor user={edited} close={() => setEdited(undefined)} />}
      {change && <ChangeDialog change={change} close={() => setChange(undefined)} />}
    </Page>
  );
}

interface Props {
  users: User[];
  targets: Target[];
  edit: (user: User) => void;
  remove: (name: string) => void;
}

function Users({ users, targets, edit, remove }: Props) {
  if (users.length === 0) return <Empty title="There is no user yet; targets require no authentication." />;
  const targetsOf = (user: User) => targets.filter(({ spec }) => spec.auth?.includes(user.name)).map(({ spec }) => spec.name);
  return (
    <Table
      label="Users" rows={users} keyOf={({ name }) => name} search={{ hint: "by name or target", text: (user) => `${user.name} ${targetsOf(user).join(" ")}` }}
      columns={[
        { title: "Name", by: ({ name }) => name, cell: ({ name }) => <span class="name strong">{name}</span> },
        { title: "Secret", isMinor: true, cell: ({ secret_file }) => (secret_file ? <code class="name">{secret_file}</code> : "kept") },
        { title: "Target proves itself as", isMinor: true, cell: ({ mutual }) => mutual?.name ?? NONE },
        { title: "May log in to", cell: (user) => <TargetList names={targetsOf(user)} /> },
        ...(may("admin") ? [{
          title: "Actions", numeric: true, cell: (user: User) => (
            <span class="actions">
              <Button onClick={() => edit(user)} aria-label={`Change ${user.name}`}>Change</Button>
              <Button tone="danger" onClick={() => remove(user.name)} aria-label={`Remove ${user.name}`}>Remove</Button>
            </span>
          ),
        }] : []),
      ]}
    />
  );
}

/** Targets that a row has room for. */
const TARGETS_SHOWN = 3;

function TargetList({ names }: { names: string[] }) {
  const more = names.length - TARGETS_SHOWN;
  return (
    <ul class="plain">
      {names.slice(0, TARGETS_SHOWN).map((name) => <li key={name}><a class="name" href={href("targets", name)}>{name}</a></li>)}
      {more > 0 && <li class="hint">and {more} more</li>}
    </ul>
  );
}

const SECRET_MIN = 12;
const SECRET_MAX = 128;
export const SECRET_HINT = "12 to 128 bytes. It goes in and never comes out; Windows takes at most 16.";

/** What is wrong with a secret that is typed; one that is empty is not given. */
export function secretError(secret: string): string | undefined {
  const size = new TextEncoder().encode(secret).length;
  return size === 0 || (size >= SECRET_MIN && size <= SECRET_MAX) ? undefined : `${size} bytes; ${SECRET_MIN} to ${SECRET_MAX} are needed`;
}

function Editor({ user, close }: { user: User | null; close: () => void }) {
  const [name, setName] = useState(user?.name ?? "");
  const [secret, setSecret] = useState("");
  const [isMutual, setMutual] = useState(user?.mutual !== undefined);
  const [mutualName, setMutualName] = useState(user?.mutual?.name ?? "");
  const [mutualSecret, setMutualSecret] = useState("");
  const task = useTask();
  const errors = [secretError(secret), isMutual ? secretError(mutualSecret) : undefined];
  const isWhole = name !== "" && (user !== null || secret !== "")
    && (!isMutual || (mutualName !== "" && (user?.mutual !== undefined || mutualSecret !== "")));
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    task.run(async () => {
      const mutual = isMutual && { mutual: { name: mutualName, ...(mutualSecret && { secret: mutualSecret }) } };
      await api.edit([userEdit({ name, ...(secret && { secret }), ...mutual }, user === null)]);
      touch();
      say(`User ${name} ${user ? "was changed" : "was added"}`);
      close();
    });
  };
  const hint = user ? "Empty: stays as it is. " + SECRET_HINT : SECRET_HINT;
  return (
    <Dialog title={user ? `Change ${user.name}` : "Add user"} close={close}>
      <form onSubmit={submit}>
        <Text label="Name" value={name} set={setName} required disabled={user !== null} hint="What the initiator sends (CHAP_N)" />
        <Text label="Secret" type="password" value={secret} set={setSecret} error={errors[0]} hint={hint} />
        <Check label="The target proves itself too (mutual CHAP)" value={isMutual} set={setMutual} />
        {isMutual && (
          <>
            <Text label="Name of the target" value={mutualName} set={setMutualName} required hint="What the target sends (CHAP_N)" />
            <Text label="Secret of the target" type="password" value={mutualSecret} set={setMutualSecret} error={errors[1]} hint={`Another one. ${hint}`} />
          </>
        )}
        <ProblemBox problem={task.problem} />
        <div class="actions end">
          <Button onClick={close}>Cancel</Button>
          <Button tone="primary" type="submit" disabled={!isWhole || errors.some(Boolean) || task.busy}>{user ? "Change" : "Add"}</Button>
        </div>
      </form>
    </Dialog>
  );
}
