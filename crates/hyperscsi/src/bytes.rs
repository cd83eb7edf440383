//! Reading and writing fields in network order.

/// Takes fields from the front of bytes. A field that is not there is `None`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A name: a byte with its length, then so many bytes, from 1 to `max`, which are text without control characters:
    /// it goes into lines that people read.
    pub(crate) fn name(&mut self, max: usize) -> Option<&'a str> {
        let length = usize::from(self.u8()?);
        let bytes = self.bytes(length)?;
        (1..=max).contains(&length).then_some(())?;
        let name = std::str::from_utf8(bytes).ok()?;
        (!name.contains(char::is_control)).then_some(name)
    }
}

/// Writes a name as [`Reader::name`] reads it. What is longer than a byte can say is cut off.
pub(crate) fn put_name(to: &mut Vec<u8>, name: &str) {
    let bytes = name.as_bytes();
    let length = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    to.push(length);
    to.extend(bytes.iter().take(usize::from(length)));
}

/// A length as a field of two bytes; ours always fit.
pub(crate) fn short(length: usize) -> u16 {
    debug_assert!(u16::try_from(length).is_ok(), "{length} bytes");
    u16::try_from(length).unwrap_or(u16::MAX)
}

/// A length as a field of four bytes; ours always fit.
pub(crate) fn long(length: usize) -> u32 {
    debug_assert!(u32::try_from(length).is_ok(), "{length} bytes");
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// A field of four bytes as a length.
pub(crate) fn size(field: u32) -> usize {
    usize::try_from(field).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_text_of_one_line() {
        for (name, is_one) in [
            ("ABC", true),
            ("Gr\u{fc}n 7", true),
            ("", false),
            ("ab\ncd", false),
            ("\x1b[31m", false),
            ("a\u{85}b", false),
            ("12345678", true),
            ("123456789", false),
        ] {
            let mut bytes = Vec::new();
            put_name(&mut bytes, name);
            assert_eq!(Reader::new(&bytes).name(8).is_some(), is_one, "{name:?}");
        }
        assert_eq!(Reader::new(&[2, 0xff, 0xfe]).name(8), None);
    }
}
