/** Groups of HyperSCSI, each with its devices and its sessions. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { api, may } from "../api/client";
import type { HyperscsiDeviceSpec, HyperscsiSpec, HyperscsiView, Session } from "../api/types";
import type { PageProps } from "../app";
import { addHyperscsi, putDevice, remove, removeDevice, setHyperscsi } from "../lib/changes";
import { useLoad } from "../lib/load";
import { count, plural } from "../lib/units";
import { go, href } from "../router";
import { Badge, Button, Card, Empty, Facts, Page, Shown } from "../ui/basics";
import { ChangeDialog } from "../ui/change";
import type { Change } from "../ui/change";
import { Dialog } from "../ui/dialog";
import { Check, Select, Text } from "../ui/form";
import { Table } from "../ui/table";

/** Protection, the weakest first. */
const LEVELS = [
  ["encrypt", "encrypt: encrypted and authenticated"], ["hash", "hash: authenticated, not encrypted"],
  ["crc", "crc: checksums against faults of the network only"], ["none", "none: no check at all"],
] as const;
type Level = (typeof LEVELS)[number][0];
const levelOf = (text: string | undefined): Level => LEVELS.find(([level]) => level === text)?.[0] ?? "encrypt";

const RETRANSMIT = [["selective", "selective: what was lost"], ["window", "window: all frames from the lost one on"]] as const;
const PROFILES = [["wired", "wired"], ["wireless", "wireless: longer timers, clients that sleep and come back"]] as const;

function Password({ group }: { group: HyperscsiView }) {
  if (group.password === "none") return <Badge tone="warn">none: everyone who reaches it</Badge>;
  return <>{group.password === "configuration" ? "needed; it stands in the configuration" : "needed"}</>;
}

export function HyperscsiPage() {
  const groups = useLoad(api.hyperscsi);
  const [isAdded, setAdded] = useState(false);
  const [change, setChange] = useState<Change>();
  const add = may("admin") && <Button tone="primary" onClick={() => setAdded(true)}>Add group</Button>;
  const actions = ({ name }: HyperscsiView) => (
    <Button tone="danger" onClick={() => setChange(remove("hyperscsi", name))} aria-label={`Remove ${name}`}>Remove</Button>
  );
  return (
    <Page title="HyperSCSI" lead="Groups of devices for clients that send SCSI in frames of Ethernet or over UDP." actions={add}>
      <Card>
        <Shown from={groups}>
          {(value) => (value.length === 0 ? <Empty title="There is no group of HyperSCSI yet." /> : (
            <Table
              label="Groups of HyperSCSI" rows={value} keyOf={({ name }) => name}
              search={{ hint: "by name, place or device", text: ({ name, spec }) => `${name} ${spec.device.map(({ id }) => id).join(" ")}` }}
              columns={[
                { title: "Group", by: ({ name }) => name, cell: ({ name, spec }) => <a class="name strong" href={href("hyperscsi", name)}>{spec.name}</a> },
                { title: "Served at", by: ({ place }) => place, cell: ({ place }) => <code>{place}</code> },
                { title: "Password", isMinor: true, cell: (group) => <Password group={group} /> },
                { title: "Devices", numeric: true, by: ({ spec }) => spec.device.length, cell: ({ spec }) => count(spec.device.length) },
                { title: "Sessions", numeric: true, by: ({ sessions }) => sessions.length, cell: ({ sessions }) => count(sessions.length) },
                ...(may("admin") ? [{ title: "Actions", numeric: true, cell: actions }] : []),
              ]}
            />
          ))}
        </Shown>
      </Card>
      {isAdded && groups.value && <Editor group={null} all={groups.value} close={() => setAdded(false)} take={setChange} isBehind={change !== undefined} />}
      {change && <ChangeDialog change={change} close={() => setChange(undefined)} />}
    </Page>
  );
}

export function HyperscsiGroupPage({ parts }: PageProps) {
  const [name = ""] = parts;
  const groups = useLoad(api.hyperscsi, name);
  const [isEdited, setEdited] = useState(false);
  const [change, setChange] = useState<Change>();
  const group = groups.value?.find((each) => each.name === name);
  const actions = group && may("admin") && (
    <>
      <Button onClick={() => setEdited(true)}>Edit</Button>
      <Button tone="danger" onClick={() => setChange({ ...remove("hyperscsi", name), done: () => go("hyperscsi") })}>Remove</Button>
    </>
  );
  const isBehind = change !== undefined;
  return (
    <Page title={group?.spec.name ?? name} lead={<a href={href("hyperscsi")}>All groups of HyperSCSI</a>} actions={actions}>
      <Shown from={groups}>{() => (group ? <Detail group={group} take={setChange} isBehind={isBehind} /> : <Empty title={`There is no group ${name}.`} />)}</Shown>
      {group && isEdited && <Editor group={group} all={groups.value ?? []} close={() => setEdited(false)} take={setChange} isBehind={isBehind} />}
      {change && <ChangeDialog change={change} close={() => setChange(undefined)} />}
    </Page>
  );
}

interface DetailProps {
  group: HyperscsiView;
  take: (change: Change) => void;
  /** The plan is shown above it. */
  isBehind: boolean;
}

function Detail({ group, take, isBehind }: DetailProps) {
  const { spec } = group;
  const sessions = useLoad(api.sessions, group.name);
  const facts: [string, ComponentChildren][] = [
    ["Served at", <code>{group.place}</code>],
    ["Password", <Password group={group} />],
    ["Clients log in as", spec.user ?? `${spec.name} (the name of the group)`],
    ["Profile", spec.profile ?? "wired"],
    ["Retransmission", spec.retransmit ?? "selective"],
    ["Sessions", plural(group.sessions.length, "session")],
  ];
  return (
    <>
      <Card title="Properties"><Facts facts={facts} /></Card>
      <Devices group={group} take={take} isBehind={isBehind} />
      <Card title="Sessions"><Shown from={sessions}>{(all) => <Sessions sessions={all.filter(({ id }) => group.sessions.includes(id))} />}</Shown></Card>
    </>
  );
}

function Devices({ group: { name, spec }, take, isBehind }: DetailProps) {
  const [edited, setEdited] = useState<HyperscsiDeviceSpec | null>();
  const close = () => setEdited(undefined);
  const rows = spec.device.map((device, at) => ({ device, at }));
  const actions = ({ device }: (typeof rows)[number]) => (
    <span class="actions">
      <Button onClick={() => setEdited(device)} aria-label={`Edit device ${device.id}`}>Edit</Button>
      <Button tone="danger" onClick={() => take(removeDevice(name, device.id))} aria-label={`Remove device ${device.id}`}>Remove</Button>
    </span>
  );
  return (
    <Card title="Devices" actions={may("admin") && <Button onClick={() => setEdited(null)}>Add device</Button>}>
      <Table
        label="Devices of the group" rows={rows} keyOf={({ device }) => device.id}
        search={{ hint: "by id or protection", text: ({ device }) => `${device.id} ${device.level ?? ""}` }}
        columns={[
          { title: "Position", numeric: true, by: ({ at }) => at, cell: ({ at }) => at },
          { title: "Device", by: ({ device }) => device.id, cell: ({ device: { id } }) => <a class="name" href={href("luns", id)}>{id}</a> },
          { title: "Least protection", by: ({ device }) => device.level ?? "", cell: ({ device: { level } }) => (level === "none" ? <Badge tone="warn">none</Badge> : level) },
          { title: "Access", isMinor: true, cell: ({ device }) => (device.readonly ? <Badge tone="info">read-only</Badge> : "read and write") },
          ...(may("admin") ? [{ title: "Actions", numeric: true, cell: actions }] : []),
        ]}
      />
      {edited !== undefined && !isBehind && (
        <DeviceEditor device={edited} taken={spec.device.map(({ id }) => id)} close={close} take={(device) => take(putDevice(name, device, edited === null, close))} />
      )}
    </Card>
  );
}

function Sessions({ sessions }: { sessions: Session[] }) {
  if (sessions.length === 0) return <Empty title="No client is logged in." />;
  return (
    <Table
      label="Sessions of the group" rows={sessions} keyOf={({ id }) => id} page={10} search={{ hint: "by client or address", text: ({ initiator, address }) => `${initiator} ${address}` }}
      columns={[
        { title: "Client", by: ({ initiator }) => initiator, cell: ({ id, initiator }) => <a class="name strong" href={href("sessions", id)}>{initiator}</a> },
        { title: "Address", by: ({ address }) => address, cell: ({ address }) => <code class="name">{address}</code> },
        { title: "Commands", numeric: true, by: ({ commands }) => commands, cell: ({ commands }) => count(commands) },
      ]}
    />
  );
}

/** The fields of a device. */
function DeviceFields({ device, set, isNew, taken }: {
  device: HyperscsiDeviceSpec; set: (device: HyperscsiDeviceSpec) => void; isNew: boolean; taken: string[];
}) {
  const luns = useLoad(api.luns);
  const ids = luns.value?.map(({ spec }) => spec.id);
  const error = isNew && ids && device.id !== "" ? unitError(device.id, ids, taken) : undefined;
  return (
    <>
      <Text
        label="Unit" value={device.id} set={(id) => set({ ...device, id })} options={ids?.filter((id) => !taken.includes(id)) ?? []} required
        disabled={!isNew} error={error} hint="The id of a disk; iSCSI may export it, too"
      />
      <Select label="Least protection" value={levelOf(device.level)} set={(level) => set({ ...device, level })} options={LEVELS} hint="A client that asks for less does not get the device" />
      <Check label="Read-only: refuse writes" value={device.readonly ?? false} set={(readonly) => set({ ...device, readonly })} />
    </>
  );
}

function unitError(id: string, ids: string[], taken: string[]): string | undefined {
  if (taken.includes(id)) return "the group has this device already";
  return ids.includes(id) ? undefined : "there is no such LUN";
}

const FRESH_DEVICE: HyperscsiDeviceSpec = { id: "", level: "encrypt", readonly: false };

function DeviceEditor({ device, taken, close, take }: {
  device: HyperscsiDeviceSpec | null; taken: string[]; close: () => void; take: (device: HyperscsiDeviceSpec) => void;
}) {
  const [value, setValue] = useState(device ?? FRESH_DEVICE);
  const isWrong = value.id === "" || (device === null && taken.includes(value.id));
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (!isWrong) take(value);
  };
  return (
    <Dialog title={device ? `Edit device ${device.id}` : "Add device"} close={close}>
      <form onSubmit={submit}>
        <DeviceFields device={value} set={setValue} isNew={device === null} taken={taken} />
        <div class="actions end">
          <Button onClick={close}>Cancel</Button>
          <Button tone="primary" type="submit" disabled={isWrong}>Plan</Button>
        </div>
      </form>
    </Dialog>
  );
}

/** How clients prove themselves: as they did, with a password that is typed here or in a file, or not at all. */
type Proof = "same" | "password" | "file" | "open";
const PROOFS: readonly (readonly [Proof, string])[] = [
  ["same", "as it is"], ["password", "a new password"], ["file", "a file with the password"], ["open", "none: open to everyone"],
];

interface GroupForm {
  name: string;
  carrier: "udp" | "interface";
  udp: string;
  interface: string;
  user: string;
  proof: Proof;
  password: string;
  file: string;
  retransmit: (typeof RETRANSMIT)[number][0];
  profile: (typeof PROFILES)[number][0];
}

const formOf = (spec: HyperscsiSpec | undefined): GroupForm => ({
  name: spec?.name ?? "", carrier: spec?.interface ? "interface" : "udp", udp: spec ? spec.udp ?? "" : "0.0.0.0:5674", interface: spec?.interface ?? "",
  user: spec?.user ?? "", proof: spec ? "same" : "password", password: "", file: spec?.password_file ?? "",
  retransmit: spec?.retransmit === "window" ? "window" : "selective", profile: spec?.profile === "wireless" ? "wireless" : "wired",
});

/** Those of the keys that are not as they were: what nobody has changed is not written. */
const differing = (before: GroupForm, keys: Pick<GroupForm, "user" | "retransmit" | "profile">) =>
  Object.fromEntries(Object.entries(keys).filter(([key, value]) => before[key as keyof GroupForm] !== value));

/** What the form says of the password, as the API takes it. */
function proofOf({ proof, password, file }: GroupForm) {
  return { same: {}, password: { password }, file: { password_file: file }, open: { open: true } }[proof];
}

const PASSWORD_BYTES = [8, 128] as const;
const bytesOf = (text: string) => new TextEncoder().encode(text).length;

function passwordError(text: string): string | undefined {
  const [least, most] = PASSWORD_BYTES;
  const length = bytesOf(text);
  return text === "" || (length >= least && length <= most) ? undefined : `${length} bytes; ${least} to ${most} are needed`;
}

const NAME_BYTES_MAX = 64;

/** Why it cannot be planned; nothing is wrong, if `undefined`. */
function formError(form: GroupForm): string | undefined {
  if (form.name === "") return "";
  if (bytesOf(form.name) > NAME_BYTES_MAX) return `the name has at most ${NAME_BYTES_MAX} bytes`;
  if (form[form.carrier].trim() === "") return "";
  if (form.proof === "password" && form.password === "") return "";
  return form.proof === "file" && form.file === "" ? "" : passwordError(form.password);
}

interface EditorProps {
  /** `null` for a new one. */
  group: HyperscsiView | null;
  all: HyperscsiView[];
  close: () => void;
  take: (change: Change) => void;
  isBehind: boolean;
}

/** A group: all of it and its first device, or what may be changed of one that there is. */
function Editor({ group, all, close, take, isBehind }: EditorProps) {
  const [form, setForm] = useState(() => formOf(group?.spec));
  const [device, setDevice] = useState(FRESH_DEVICE);
  const isNew = group === null;
  const set = (change: Partial<GroupForm>) => setForm((before) => ({ ...before, ...change }));
  const isWrong = formError(form) !== undefined || (isNew && device.id === "");
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const { name, carrier, user, retransmit, profile } = form;
    if (isNew) take(addHyperscsi({ name, [carrier]: form[carrier].trim(), ...(user && { user }), ...proofOf(form), retransmit, profile, device: [device] }, close));
    else take(setHyperscsi({ hyperscsi: group.name, ...differing(formOf(group.spec), { user, retransmit, profile }), ...proofOf(form) }, close));
  };
  if (isBehind) return null;
  return (
    <Dialog title={isNew ? "Add group" : `Edit group ${form.name}`} close={close} wide>
      <form onSubmit={submit}>
        <div class="row">
          <Text label="Name" value={form.name} set={(name) => set({ name })} required disabled={!isNew} error={bytesOf(form.name) > NAME_BYTES_MAX ? formError(form) : undefined} hint="Clients find the group by it; it cannot be changed later" />
          <Text label="User" value={form.user} set={(user) => set({ user })} placeholder={form.name} hint="Name that clients log in with; empty: the name of the group" />
        </div>
        <PlaceFields form={form} set={set} isNew={isNew} all={all} />
        <div class="row">
          <Select label="Password" value={form.proof} set={(proof) => set({ proof })} options={PROOFS.filter(([proof]) => !isNew || proof !== "same")} />
          {form.proof === "password" && <Text label="New password" type="password" value={form.password} set={(password) => set({ password })} error={passwordError(form.password)} hint={`${PASSWORD_BYTES[0]} to ${PASSWORD_BYTES[1]} bytes; Tarn keeps it in a private file`} />}
          {form.proof === "file" && <Text label="Password file" value={form.file} set={(file) => set({ file })} required placeholder="/etc/tarn/group.secret" hint="A file that nobody else may read" />}
        </div>
        <div class="row">
          <Select label="Retransmission" value={form.retransmit} set={(retransmit) => set({ retransmit })} options={RETRANSMIT} hint="What is sent again after a loss" />
          <Select label="Profile" value={form.profile} set={(profile) => set({ profile })} options={PROFILES} hint="What the path to the clients is like" />
        </div>
        {isNew && (
          <fieldset class="choice">
            <legend>First device</legend>
            <DeviceFields device={device} set={setDevice} isNew taken={[]} />
          </fieldset>
        )}
        <div class="actions end">
          <Button onClick={close}>Cancel</Button>
          <Button tone="primary" type="submit" disabled={isWrong}>Plan</Button>
        </div>
      </form>
    </Dialog>
  );
}

/** Where the group is served, which is a part of what it is known by. */
function PlaceFields({ form, set, isNew, all }: { form: GroupForm; set: (change: Partial<GroupForm>) => void; isNew: boolean; all: HyperscsiView[] }) {
  const known = (key: "udp" | "interface") => [...new Set(all.map(({ spec }) => spec[key]).filter((each) => each !== undefined))];
  const common = { required: true, disabled: !isNew };
  return (
    <div class="row">
      {isNew && <Select label="Reached by" value={form.carrier} set={(carrier) => set({ carrier })} options={[["udp", "UDP"], ["interface", "frames of an Ethernet interface"]]} hint="Frames do not cross routers; UDP does" />}
      {form.carrier === "udp"
        ? <Text label="Address" {...common} value={form.udp} set={(udp) => set({ udp })} options={known("udp")} placeholder="0.0.0.0:5674" hint={isNew ? "ADDRESS:PORT; 0.0.0.0:5674 means all addresses" : "It cannot be changed"} />
        : <Text label="Interface" {...common} value={form.interface} set={(name) => set({ interface: name })} options={known("interface")} placeholder="eth1" hint={isNew ? "The interface whose frames reach it" : "It cannot be changed"} />}
    </div>
  );
}
