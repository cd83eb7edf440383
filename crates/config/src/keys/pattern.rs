//! What strings look like, for an editor that checks while somebody types. A pattern takes
//! everything that the reader takes, and as little more as can be said in one line.

/// Any text but none.
pub(super) const ANYTHING: &str = "^.+$";
/// A text of the protocol.
pub(super) const TEXT: &str = r"^[^\x00-\x1f\x7f]{1,255}$";
/// A name on the wire of HyperSCSI.
pub(super) const NAME_64: &str = r"^[^\x00-\x1f\x7f]{1,64}$";
/// What names a unit or a group.
pub(super) const ID_PATTERN: &str = r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,64}$";
/// An address with its port.
pub(super) const ADDRESS_PORT: &str = r"^(?:[0-9.]+|\[[0-9A-Fa-f:.%]+\]):[0-9]{1,5}$";
/// The same, where the port may be left out.
pub(super) const BIND: &str = r"^(?:[0-9.]+|[0-9A-Fa-f:.]+|\[[0-9A-Fa-f:.%]+\])(?::[0-9]{1,5})?$";
/// A name of a node of iSCSI.
pub(super) const ISCSI_NAME: &str = concat!(
    r"^(?:[iI][qQ][nN]\.[0-9]{4}-[0-9]{2}\.[A-Za-z0-9.:_-]+",
    r"|[eE][uU][iI]\.[0-9a-fA-F]{16}",
    r"|[nN][aA][aA]\.(?:[0-9a-fA-F]{16}|[0-9a-fA-F]{32}))$",
);
/// A number of bytes with a suffix.
pub(crate) const SIZE: &str = "^[0-9]+(?:[kKmMgGtT](?:iB|B|i)?|[bB])?$";

/// Names of standard INQUIRY data: printable ASCII without a blank at either end.
pub(super) const INQUIRY_4: &str = r"^[!-~](?:[ -~]{0,2}[!-~])?$";
pub(super) const INQUIRY_8: &str = r"^[!-~](?:[ -~]{0,6}[!-~])?$";
pub(super) const INQUIRY_16: &str = r"^[!-~](?:[ -~]{0,14}[!-~])?$";
