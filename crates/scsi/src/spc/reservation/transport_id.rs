//! TransportIDs: the names of initiator ports, as parameter lists carry them.

use std::sync::Arc;

/// The longest TransportID that is taken: a name of 223 bytes, a separator and a session
/// identifier, padded. In bytes.
pub const TRANSPORT_ID_BYTES_MAX: usize = 248;

/// The protocol identifier whose TransportID carries a text name of variable length. All other
/// protocols have TransportIDs of [`FIXED_BYTES`].
const TEXT_NAMES: u8 = 0x5;
const FIXED_BYTES: usize = 24;
const HEADER_BYTES: usize = 4;
/// ADDITIONAL LENGTH is at least this and a multiple of four.
const ADDITIONAL_BYTES_MIN: usize = 20;
/// Between the name of a device and what makes it the name of one of its ports.
const SEPARATOR: &[u8] = b",i,0x";

/// Whom a TransportID names.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Named {
    /// One initiator port, in canonical form.
    Port(Arc<[u8]>),
    /// A device, and with it all of its ports that are known here. The text of its name, as [`device_of`] gives it.
    Device(Vec<u8>),
}

/// The one form of an initiator port's TransportID that stands for all its spellings: text in
/// lower case, padded no more than needed. `None` if it is not the TransportID of a port.
///
/// Names are compared byte by byte here, so every [`crate::PortName`] must be made with this.
///
/// Spec: SPC-4, TransportID identifiers.
pub fn canonical_transport_id(bytes: &[u8]) -> Option<Arc<[u8]>> {
    match split_first(bytes) {
        Some((Named::Port(port), [])) => Some(port),
        Some((Named::Port(_) | Named::Device(_), _)) | None => None,
    }
}

/// True if both are of the same transport protocol.
pub(super) fn same_protocol(a: &[u8], b: &[u8]) -> bool {
    protocol(a).is_some() && protocol(a) == protocol(b)
}

/// Both canonical TransportIDs are of ports of one device.
pub(super) fn is_same_device(a: &[u8], b: &[u8]) -> bool {
    device_of(a) == device_of(b)
}

/// What a port, by its canonical TransportID, has in common with the others of its device: where names are text, its
/// name without that of the port.
pub fn device_of(id: &[u8]) -> &[u8] {
    if !is_text(id) {
        return id;
    }
    let text = text_of(id);
    let mut windows = text.windows(SEPARATOR.len());
    let end = windows.position(|window| window == SEPARATOR);
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

/// Reads the first TransportID of a list; the rest of the list comes back. `None` if it is cut
/// short or malformed.
pub(super) fn split_first(list: &[u8]) -> Option<(Named, &[u8])> {
    let format = list.first()? >> 6;
    if !is_text(list) {
        let (fixed, rest) = list.split_at_checked(FIXED_BYTES)?;
        return (format == 0).then(|| (Named::Port(fixed.into()), rest));
    }
    let &[_, _, high, low] = list.first_chunk()?;
    let additional = usize::from(u16::from_be_bytes([high, low]));
    let length = HEADER_BYTES.checked_add(additional)?;
    let is_legal = additional >= ADDITIONAL_BYTES_MIN
        && additional.is_multiple_of(4)
        && length <= TRANSPORT_ID_BYTES_MAX;
    let (id, rest) = list.split_at_checked(length).filter(|_| is_legal)?;
    let text = text_of(id).to_ascii_lowercase();
    // The name ends in a null character, inside what ADDITIONAL LENGTH counts.
    if text.is_empty() || text.len() == additional {
        return None;
    }
    let is_port = text
        .windows(SEPARATOR.len())
        .any(|window| window == SEPARATOR);
    match (format, is_port) {
        (0, false) => Some((Named::Device(text), rest)),
        (1, true) => Some((Named::Port(encode_port(&text)), rest)),
        _ => None,
    }
}

fn encode_port(text: &[u8]) -> Arc<[u8]> {
    let additional = text
        .len()
        .saturating_add(1)
        .next_multiple_of(4)
        .max(ADDITIONAL_BYTES_MIN);
    // It fits: the text came out of a TransportID that was not longer.
    let additional_length = u16::try_from(additional).unwrap_or(u16::MAX);
    let mut id = vec![0x40 | TEXT_NAMES, 0x00];
    id.extend_from_slice(&additional_length.to_be_bytes());
    id.extend_from_slice(text);
    id.resize(HEADER_BYTES.saturating_add(additional), 0x00);
    id.into()
}

fn protocol(id: &[u8]) -> Option<u8> {
    id.first().map(|first| first & 0x0f)
}

fn is_text(id: &[u8]) -> bool {
    protocol(id) == Some(TEXT_NAMES)
}

/// The text up to the first null character.
fn text_of(id: &[u8]) -> &[u8] {
    id.get(HEADER_BYTES..)
        .and_then(|rest| rest.split(|&byte| byte == 0x00).next())
        .unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_id(format: u8, text: &str, additional: usize) -> Vec<u8> {
        let mut id = vec![format << 6 | TEXT_NAMES, 0];
        id.extend_from_slice(&u16::try_from(additional).unwrap().to_be_bytes());
        id.extend_from_slice(text.as_bytes());
        id.resize(HEADER_BYTES.strict_add(additional), 0);
        id
    }

    #[test]
    fn all_spellings_of_a_port_have_one_form() {
        let short = text_id(1, "iqn.a:b,i,0x00023d000001", 28);
        let long = text_id(1, "IQN.A:b,i,0x00023D000001", 64);
        assert_eq!(&*canonical_transport_id(&short).unwrap(), &*short);
        assert_eq!(canonical_transport_id(&long).unwrap()[..], short[..]);
        let tiny = text_id(1, "a,i,0x1", 20);
        assert_eq!(&*canonical_transport_id(&tiny).unwrap(), &*tiny);
        let fixed = [0x06; FIXED_BYTES];
        assert_eq!(&*canonical_transport_id(&fixed).unwrap(), &fixed);
    }

    #[test]
    fn malformed_ids_are_refused() {
        let name = "iqn.a:b,i,0x00023d0000";
        let longest = TRANSPORT_ID_BYTES_MAX - HEADER_BYTES;
        assert!(canonical_transport_id(&text_id(1, name, longest)).is_some());
        let bad = [
            ("longer than any name", text_id(1, name, longest + 4)),
            ("no multiple of four", text_id(1, name, 26)),
            (
                "no null at the end",
                text_id(1, "iqn.abcd:b,i,0x00023d000", 24),
            ),
            ("shorter than allowed", text_id(1, "a,i,0x1", 16)),
            ("no name", text_id(1, "", 20)),
            ("a port without separator", text_id(1, "iqn.a:b", 20)),
            ("a device, not a port", text_id(0, "iqn.a:b", 20)),
            ("a device with a separator", text_id(0, name, 24)),
            ("a reserved format", text_id(2, name, 24)),
            ("cut short", text_id(1, name, 24)[..27].to_vec()),
            ("more than one", [text_id(1, name, 24), vec![0]].concat()),
            ("a fixed one cut short", vec![0x06; 23]),
            ("a fixed one of another format", vec![0x46; 24]),
            ("nothing", Vec::new()),
        ];
        for (what, id) in bad {
            assert_eq!(canonical_transport_id(&id), None, "{what}");
        }
    }

    #[test]
    fn a_device_is_what_its_ports_have_in_common() {
        let (device, rest) = split_first(&text_id(0, "iqn.a:b", 20))
            .map(|(n, r)| (n, r.len()))
            .unwrap();
        assert_eq!(rest, 0);
        let named = |port: &[u8]| Named::Device(device_of(port).to_vec());
        assert_eq!(device, named(&text_id(1, "iqn.a:b,i,0x1", 20)));
        assert_ne!(device, named(&text_id(1, "iqn.a:bb,i,0x1", 20)));
        assert_ne!(device, named(&[0x06; FIXED_BYTES]));
    }
}
