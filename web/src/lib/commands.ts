/** What the administrator of an initiator types to reach a target. Pure. */

export interface Way {
  target: string;
  /** `HOST:PORT`. */
  portal: string;
  lun: number;
  /** CHAP user, if the target asks for one. */
  user?: string | undefined;
  /** Name of the target for mutual CHAP, if the user has one. */
  mutual?: string | undefined;
  /** Discovery asks for CHAP. */
  isDiscoveryClosed?: boolean;
}

export interface Recipe {
  title: string;
  note?: string;
  text: string;
}

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
  const node = `iscsiadm -m node -T ${shell(way.target)} -p ${way.portal}`;
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
  const first = way.isDiscoveryClosed ? `${node} -o new` : `iscsiadm -m discovery -t sendtargets -p ${way.portal}`;
  return [first, ...chap, ...mutual, `${node} --login`].join("\n");
}

function windows(way: Way): string {
  const [host, port] = splitPortal(way.portal);
  const address = host.replace(/^\[|\]$/g, "");
  const chap = way.user
    ? ` -AuthenticationType ONEWAYCHAP -ChapUsername ${power(way.user)} -ChapSecret 'SECRET'` : "";
  return [
    `New-IscsiTargetPortal -TargetPortalAddress ${address} -TargetPortalPortNumber ${port}`,
    `Connect-IscsiTarget -NodeAddress ${power(way.target)} -IsPersistent $true${chap}`,
  ].join("\n");
}

const urlOf = (way: Way) =>
  `iscsi://${way.user ? `${encodeURIComponent(way.user)}%SECRET@` : ""}${way.portal}/${way.target}/${way.lun}`;

/** The commands, by initiator. */
export function recipes(way: Way): Recipe[] {
  return [
    { title: "Linux", note: "package open-iscsi, as root; the disk appears as /dev/sdX", text: linux(way) },
    { title: "Windows", note: "PowerShell, as administrator", text: windows(way) },
    {
      title: "QEMU", note: "on Debian with package qemu-block-extra",
      text: `qemu-system-x86_64 -drive ${shell(`file=${urlOf(way)},format=raw`)}`,
    },
    { title: "libiscsi", note: "package libiscsi-bin", text: `iscsi-inq ${shell(urlOf(way))}` },
  ];
}
