/** The questions of the wizard. */
import { bytes, parseSize } from "../lib/units";
import { asks, DISK_KINDS, moreError, placeError } from "../lib/wish";
import type { StoreWord, Wish } from "../lib/wish";
import { Check, Choice, Lines, linesOf, Select, Suggest, Text } from "../ui/form";
import { INITIATORS_HINT } from "./groups";
import { ID, ID_HINT } from "./lun";
import { SECRET_HINT, secretError } from "./users";
import type { Known, StepProps } from "./wizard";

/** What a kind is for, where what the server says of it is its name again. */
const MEANINGS: Partial<Record<StoreWord, string>> = {
  file: "a file of this machine; it is made if it is not there", block: "a disk, partition or volume of this machine",
  nbd: "an export of another machine", nbds: "encrypted, of another machine", "nbd+unix": "of a program on this machine",
  iscsi: "a LUN of another target",
};
const STORES = DISK_KINDS.map(({ word, title, meaning }): readonly [StoreWord, string, string] => [word, title, MEANINGS[word] ?? meaning]);

export function DiskStep({ wish, set, known, faults }: StepProps) {
  const takenBy = known.luns.find(({ spec }) => spec.id === wish.id);
  const idError = takenBy ? "a LUN with this id exists" : wish.id === "" || ID.test(wish.id) ? undefined : ID_HINT;
  const asked = asks(wish.kind);
  return (
    <>
      <Text label="Id" value={wish.id} set={(id) => set({ id })} required error={idError ?? faults.id} hint={`Name of the disk: ${ID_HINT}`} />
      <Choice label="Store" value={wish.kind} set={(kind) => set({ kind, path: "", more: "" })} options={STORES} />
      {asked.path && <PlaceField wish={wish} set={set} known={known} faults={faults} />}
      {asked.place === "socket" && <Text label="Export" value={wish.exported} set={(exported) => set({ exported })} hint="Its name on the server; empty for the default export" />}
      {asked.size && (
        <Text
          label="Size" value={wish.size} set={(size) => set({ size })} required hint={sizeHint(wish)}
          error={isSizeWrong(wish) ? "a number with k, M, G or T, such as 10G" : faults.size}
        />
      )}
      {asked.cache && (
        <Select
          label="Cache" value={wish.cache} set={(cache) => set({ cache })}
          options={[
            ["writeback", "writeback: as the cache of a disk; initiators flush"],
            ["writethrough", "writethrough: each write is on stable storage before it is answered"],
            ["direct", "direct: past the page cache"],
          ]}
        />
      )}
      <fieldset class="choice">
        <legend>Options</legend>
        <Check label="Read-only: the store is never written" value={wish.readonly} set={(readonly) => set({ readonly })} />
        <Check label="Removable: the medium can be ejected and loaded" value={wish.removable} set={(removable) => set({ removable })} />
      </fieldset>
      {asked.more.length > 0 && (
        <Text
          label="More options" value={wish.more} set={(more) => set({ more })} error={moreError(wish)} placeholder={MORE[asked.place] ?? ""}
          hint={`Optional: as in a STORE, with & between them; ${asked.more.join(", ")}`}
        />
      )}
      {asked.log && <LogFields wish={wish} set={set} known={known} faults={faults} />}
    </>
  );
}

/** Options that others than files most often need. */
const MORE: Partial<Record<ReturnType<typeof asks>["place"], string>> = {
  export: "connections=4&retry=60", image: "user=tarn&keyring=/etc/ceph/tarn.keyring",
  member: "udp=192.0.2.1&password_file=/etc/tarn/group.secret", disk: "user=tarn&password_file=/etc/tarn/disk.secret",
};

/** The log device: synchronous writes go there first. */
function LogFields({ wish, set, known, faults }: StepProps) {
  const options = known.places.directories.map((directory) => `file:${directory}/${wish.id || "disk"}.log?size=4G`);
  const error = wish.log.trim() === "" || LOG.test(wish.log.trim()) ? faults.log : "file:PATH?size=SIZE or block:PATH";
  return (
    <>
      <Text
        label="Log device" value={wish.log} set={(log) => set({ log })} options={options} placeholder="file:/srv/fast/log.img?size=4G" error={error}
        hint="Optional: a file or device on a fast disk that takes synchronous writes first"
      />
      {wish.log.trim() !== "" && (
        <Select
          label="Log for" value={wish.bias} set={(bias) => set({ bias })} hint="sync_bias of the LUN"
          options={[["latency", "latency: every durable write goes to the log"], ["throughput", "throughput: large writes go to the disk alone"]]}
        />
      )}
    </>
  );
}

const LOG = /^((file:)?\/[^?]+(\?size=[0-9]+[kMGT]?)?|block:\/[^?]+)$/;

const PLACE = {
  file: { label: "File", hint: "A path on the machine that runs Tarn" },
  device: { label: "Device", hint: "A block device of the machine that runs Tarn; its data is exported as it is" },
  export: { label: "Export", hint: "HOST:PORT/EXPORT of the NBD server; the port may be left out" },
  socket: { label: "Socket", hint: "The unix socket of the NBD server" },
  image: { label: "Image", hint: "POOL/IMAGE of the Ceph cluster" },
  member: { label: "Device", hint: "GROUP/DEVICE; say with udp= or interface= below how its server is reached" },
  disk: { label: "Disk", hint: "HOST:PORT/TARGET/LUN; the port may be left out" },
} as const;

/** Where the data is, with what this machine has to offer. */
function PlaceField({ wish, set, known, faults }: StepProps) {
  const { place } = asks(wish.kind);
  const { label, hint } = PLACE[place];
  const file = `${wish.id || "disk"}.img`;
  const options = {
    file: known.places.directories.map((directory) => `${directory}/${file}`),
    device: known.places.devices.filter(({ lun }) => !lun).map(({ path }) => path),
    export: [], socket: [], image: [], member: [], disk: [],
  }[place];
  const placeholder = { file: `/srv/tarn/${file}`, device: "/dev/vg0/disk", export: "nas.example:10809/disk", socket: "/run/nbd.sock", image: `rbd/${wish.id || "disk"}`, member: "ABC/disk", disk: "192.0.2.9/iqn.2026-11.example.san:disk/0" }[place];
  const device = known.places.devices.find(({ path }) => path === wish.path);
  const size = device?.size_bytes === undefined ? "" : `${bytes(device.size_bytes)}. `;
  return (
    <Text
      label={label} value={wish.path} set={(path) => set({ path })} required placeholder={placeholder} hint={size + hint} options={options}
      error={wish.path === "" ? undefined : placeError(wish) ?? faults.path}
    />
  );
}

/** An image that is there has its size. */
const needsSize = (wish: Wish) => wish.kind !== "rbd";
const isSizeWrong = (wish: Wish) => (needsSize(wish) || wish.size.trim() !== "") && parseSize(wish.size) === undefined;
const sizeHint = (wish: Wish) => `Powers of 1024: 512M, 10G, 2T${needsSize(wish) ? "" : "; empty for an image that is there"}`;

const PREFIX = "iqn.2026-11.example.tarn";

/** A name beside those there are. */
function suggestion(wish: Wish, known: Known): string {
  const prefix = known.targets[0]?.spec.name.split(":")[0] ?? PREFIX;
  return `${prefix}:${wish.id.toLowerCase().replaceAll("_", "-")}`;
}

export function TargetStep({ wish, set, known, faults }: StepProps) {
  const isNew = wish.target === "";
  if (isNew && wish.newTarget === "") set({ newTarget: suggestion(wish, known) });
  const options = [["", "a new target"] as const, ...known.targets.map(({ spec }) => [spec.name, spec.name] as const)];
  const auth = known.targets.find(({ spec }) => spec.name === wish.target)?.spec.auth ?? [];
  return (
    <>
      <Select label="Target" value={wish.target} set={(target) => set({ target })} options={options} hint="Initiators log in to a target; it can export many disks." />
      {isNew ? (
        <>
          <Text label="Name" value={wish.newTarget} set={(newTarget) => set({ newTarget })} required error={targetError(wish, known) ?? faults.newTarget} hint="iSCSI name; it cannot be changed later" />
          <Text label="Portal" value={wish.portal} set={(portal) => set({ portal })} required options={portalsOf(known)} error={faults.portal} hint={LOOPBACK.test(wish.portal) ? "Only this machine reaches 127.0.0.1; 0.0.0.0:3260 means all addresses" : "ADDRESS:PORT to listen on; 0.0.0.0:3260 means all addresses"} placeholder="192.0.2.1:3260" />
        </>
      ) : (
        <p class="hint">{auth.length > 0 ? `CHAP users that may log in: ${auth.join(", ")}.` : "It requires no authentication."}</p>
      )}
    </>
  );
}

const LOOPBACK = /^(127\.|\[::1\]|localhost)/;

/** Addresses that targets have, and the usual ones. */
const portalsOf = (known: Known) =>
  [...new Set([...known.targets.flatMap(({ spec }) => (spec.portals ?? []).map(({ bind }) => bind)), "0.0.0.0:3260", "[::]:3260"])];

function targetError(wish: Wish, known: Known): string | undefined {
  if (!/^(iqn|eui|naa)\.\S+$/i.test(wish.newTarget)) return "begins with iqn., eui. or naa., without blanks";
  const isTaken = known.targets.some(({ spec }) => spec.name.toLowerCase() === wish.newTarget.toLowerCase());
  return isTaken ? "there is a target of this name; choose it above" : undefined;
}

export function InitiatorStep({ wish, set, known, faults }: StepProps) {
  const groups = known.groups.map(({ id }) => [id, id] as const);
  return (
    <>
      <Choice
        label="Who sees the disk" value={wish.audience} set={(audience) => set({ audience })}
        options={[
          ...(groups.length > 0 ? [["group", "An existing group"] as const] : []),
          ["new-group", "These initiators", "a new group with these members"],
          ["everyone", "All initiators that may log in", "several machines that mount one ordinary file system destroy its data"],
        ]}
      />
      {wish.audience === "group" && <Select label="Group" value={wish.group} set={(group) => set({ group })} options={groups} />}
      {wish.audience === "new-group" && (
        <>
          <Text label="Id of the group" value={wish.newGroup} set={(newGroup) => set({ newGroup })} required hint={ID_HINT} error={groupError(wish, known) ?? faults.newGroup} />
          <Lines label="Initiators" value={wish.initiators.join("\n")} set={(text) => set({ initiators: text.split("\n") })} error={faults.initiators} hint={INITIATORS_HINT} placeholder="iqn.1993-08.org.debian:01:host" />
          <Suggest label="Seen by Tarn" options={known.seen} hint="Initiators that logged in or tried to" add={(name) => set({ initiators: [...wish.initiators.filter(Boolean), name] })} />
        </>
      )}
      {wish.target === "" && <ProofFields wish={wish} set={set} known={known} faults={faults} />}
    </>
  );
}

function groupError(wish: Wish, known: Known): string | undefined {
  if (known.groups.some(({ id }) => id === wish.newGroup)) return "a group with this id exists; choose it above";
  return wish.newGroup === "" || ID.test(wish.newGroup) ? undefined : ID_HINT;
}

function ProofFields({ wish, set, known, faults }: StepProps) {
  const users = known.users.map(({ name }) => [name, name] as const);
  return (
    <>
      <Choice
        label="Authentication" value={wish.proof} set={(proof) => set({ proof, user: wish.user || users[0]?.[0] || "" })}
        options={[
          ["none", "None", "anyone can pretend to a name or address; only for trusted networks"],
          ...(users.length > 0 ? [["user", "An existing user", "CHAP"] as const] : []),
          ["new-user", "A new user", "CHAP"],
        ]}
      />
      {wish.proof === "user" && <Select label="User" value={wish.user} set={(user) => set({ user })} options={users} />}
      {wish.proof === "new-user" && (
        <>
          <Text label="Name of the user" value={wish.newUser} set={(newUser) => set({ newUser })} required error={known.users.some(({ name }) => name === wish.newUser) ? "a user with this name exists; choose it above" : undefined} />
          <Text label="Secret" type="password" value={wish.secret} set={(secret) => set({ secret })} error={secretError(wish.secret) ?? faults.secret} hint={SECRET_HINT} />
        </>
      )}
    </>
  );
}

/** Why one cannot go on from a step; nothing is wrong, if `undefined`. */
export function wrongWith(wish: Wish, known: Known, step: number): string | undefined {
  return [wrongDisk, wrongTarget, wrongInitiators][step]?.(wish, known);
}

function wrongDisk(wish: Wish, known: Known): string | undefined {
  if (!ID.test(wish.id) || known.luns.some(({ spec }) => spec.id === wish.id)) return "the disk needs an id of its own";
  const asked = asks(wish.kind);
  if (asked.path && placeError(wish)) return `${PLACE[asked.place].label}: ${placeError(wish)}`;
  if (asked.size && isSizeWrong(wish)) return "the disk needs a size";
  const log = wish.log.trim();
  return asked.log && log && !LOG.test(log) ? "the log device is file:PATH?size=SIZE or block:PATH" : moreError(wish);
}

function wrongTarget(wish: Wish, known: Known): string | undefined {
  if (wish.target) return undefined;
  return targetError(wish, known) ?? (wish.portal.trim() === "" ? "the target needs a portal" : undefined);
}

function wrongInitiators(wish: Wish, known: Known): string | undefined {
  if (wish.audience === "new-group") {
    if (wish.newGroup === "" || groupError(wish, known)) return "the group needs an id of its own";
    if (linesOf(wish.initiators.join("\n")).length === 0) return "name at least one initiator";
  }
  if (wish.proof !== "new-user" || wish.target) return undefined;
  if (wish.newUser === "" || known.users.some(({ name }) => name === wish.newUser)) return "the user needs a name of its own";
  return wish.secret === "" ? "the user needs a secret" : secretError(wish.secret);
}
