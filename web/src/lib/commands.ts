/** What the administrator of an initiator types to reach a target. Pure. */

export interface Way {
  target: string;
  /** `HOST:PORT` of each, at least one. */
  portals: string[];
  lun: number;
  /** CHAP user, if the target asks for one. */
  user?: string | undefined;
  /** Name of the target for mutual CHAP, if the user has one. */
  mutual?: string | undefined;
  /** The CHAP user of discovery, if that asks for one. */
  discoverer?: string | undefined;
}

export interface Recipe {
  title: string;
  note?: string;
  text: string;
}

const portalOf = ({ portals }: Way) => portals[0] ?? "";

const PORT_DEFAULT = "3260";

/** Host and port of a portal; IPv6 keeps its brackets. */
export function splitPortal(portal: string): [host: string, port: string] {
  const found = /^(\[[^\]]*\]|[^:]*)(?::(\d+))?$/.exec(portal);
  return [found?.[1] ?? portal, found?.[2] ?? PORT_DEFAULT];
}

/** For a POSIX shell: as it is if that is safe, else in single quotes. */
const shell = (word: string) => (/^[\w.:@%+,/=[\]-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
/** For PowerShell, in single quotes. */
const power = (word: string) => `'${word.replaceAll("'", "''")}'`;

function linux(way: Way): string {
  const named = `iscsiadm -m node -T ${shell(way.target)}`;
  // Without a portal it is about all that discovery has found.
  const node = way.portals.length > 1 ? named : `${named} -p ${portalOf(way)}`;
  const chap = way.user
    ? [`${node} -o update -n node.session.auth.authmethod -v CHAP`,
      `${node} -o update -n node.session.auth.username -v ${shell(way.user)}`,
      `${node} -o update -n node.session.auth.password -v 'SECRET'`]
    : [];
  const mutual = way.mutual
    ? [`${node} -o update -n node.session.auth.username_in -v ${shell(way.mutual)}`,
      `${node} -o update -n node.session.auth.password_in -v 'SECRET_OF_TARGET'`]
    : [];
  // Discovery with CHAP takes six commands; a node can be named without.
  const first = way.discoverer ? way.portals.map((portal) => `${named} -p ${portal} -o new`) : [`iscsiadm -m discovery -t sendtargets -p ${portalOf(way)}`];
  return [...first, ...chap, ...mutual, `${node} --login`].join("\n");
}

function windows(way: Way): string {
  const [host, port] = splitPortal(portalOf(way));
  const address = host.replace(/^\[|\]$/g, "");
  const chap = way.user
    ? ` -AuthenticationType ONEWAYCHAP -ChapUsername ${power(way.user)} -ChapSecret 'SECRET'` : "";
  const discovery = way.discoverer
    ? ` -AuthenticationType ONEWAYCHAP -ChapUsername ${power(way.discoverer)} -ChapSecret '${secretOf(way, way.discoverer)}'` : "";
  return [
    `New-IscsiTargetPortal -TargetPortalAddress ${address} -TargetPortalPortNumber ${port}${discovery}`,
    `Connect-IscsiTarget -NodeAddress ${power(way.target)} -IsPersistent $true${chap}`,
  ].join("\n");
}

/** What stands for the secret of a user of discovery. */
const secretOf = (way: Way, user: string) => (user === way.user ? "SECRET" : "SECRET_OF_DISCOVERY");

/** A target that is named needs no discovery, so that one user of the adapter is enough. */
function esxi(way: Way): string {
  const adapter = "--adapter=$A";
  const chap = way.user
    ? [`esxcli iscsi adapter auth chap set ${adapter} --direction=uni --level=required --authname=${shell(way.user)} --secret='SECRET'`] : [];
  const mutual = way.mutual
    ? [`esxcli iscsi adapter auth chap set ${adapter} --direction=mutual --level=required --authname=${shell(way.mutual)} --secret='SECRET_OF_TARGET'`] : [];
  const find = way.user || way.discoverer
    ? way.portals.map((portal) => `esxcli iscsi adapter discovery statictarget add ${adapter} --address=${portal} --name=${shell(way.target)}`)
    : [`esxcli iscsi adapter discovery sendtarget add ${adapter} --address=${portalOf(way)}`];
  return [
    "esxcli iscsi software set --enabled=true",
    "A=$(esxcli iscsi adapter list | awk '/iscsi_vmk/ {print $1; exit}')",
    ...chap, ...mutual, ...find, `esxcli storage core adapter rescan ${adapter}`,
  ].join("\n");
}

function freebsd(way: Way): string {
  const chap = way.user ? ` -u ${shell(way.user)} -s 'SECRET'` : "";
  return ["service iscsid onestart", `iscsictl -A -p ${portalOf(way)} -t ${shell(way.target)}${chap}`, "iscsictl -L"].join("\n");
}

const urlOf = (way: Way) =>
  `iscsi://${way.user ? `${encodeURIComponent(way.user)}%SECRET@` : ""}${portalOf(way)}/${way.target}/${way.lun}`;

/** The commands, by initiator. */
export function recipes(way: Way): Recipe[] {
  return [
    { title: "Linux", note: "package open-iscsi, as root; the disk appears as /dev/sdX", text: linux(way) },
    { title: "Windows", note: "PowerShell, as administrator", text: windows(way) },
    { title: "VMware ESXi", note: "ESXi shell, as root", text: esxi(way) },
    {
      title: "FreeBSD", text: freebsd(way),
      note: way.mutual ? "as root; mutual CHAP needs tgtChapName and tgtChapSecret in /etc/iscsi.conf" : "as root; the disk appears as /dev/daX",
    },
    {
      title: "QEMU", note: "on Debian with package qemu-block-extra",
      text: `qemu-system-x86_64 -drive ${shell(`file=${urlOf(way)},format=raw`)}`,
    },
    { title: "libiscsi", note: "package libiscsi-bin", text: `iscsi-inq ${shell(urlOf(way))}` },
  ];
}
