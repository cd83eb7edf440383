//! Mode parameters as far as the reference knows them. Spec: SPC-4 7.5, SBC-3 6.5.

/// Fields of mode pages that matter here.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Mode {
    pub(crate) write_cache: bool,
    pub(crate) write_protect: bool,
    pub(crate) descriptor_sense: bool,
}

/// Mode pages behind the header of a parameter list: page code, and the page with its header.
pub(crate) fn mode_pages(list: &[u8], is_short: bool) -> Vec<(u8, &[u8])> {
    let (header, descriptors) = match list {
        [_, _, _, length, ..] if is_short => (4, usize::from(*length)),
        [_, _, _, _, _, _, high, low, ..] if !is_short => {
            (8, usize::from(*high) << 8 | usize::from(*low))
        }
        _ => return Vec::new(),
    };
    let mut rest = list.get(header + descriptors..).unwrap_or_default();
    let mut pages = Vec::new();
    while let [code, second, ..] = rest {
        let has_subpage = code & 0x40 != 0;
        let long = rest.get(2..4).map_or(0, |length| {
            usize::from(length[0]) << 8 | usize::from(length[1])
        });
        let length = if has_subpage {
            4 + long
        } else {
            2 + usize::from(*second)
        };
        let page = rest.get(..length).unwrap_or(rest);
        // A page with a subpage is never one of those that matter here.
        pages.push((if has_subpage { 0xff } else { code & 0x3f }, page));
        rest = rest.get(length..).unwrap_or_default();
    }
    pages
}
