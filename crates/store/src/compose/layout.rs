//! Where the bytes of a composition lie: the table that every request is looked up in. Knows nothing of stores.

use std::ops::Range;

use crate::request::Extent;

/// How the bytes are laid over the members.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// In turn: a chunk of each member, then the next chunk of each.
    Stripe {
        /// A power of two.
        chunk_bytes: u64,
    },
    /// All of one member, then all of the next.
    Concat,
}

/// Bytes that lie together on one member, and together in the composition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Piece {
    pub(super) member: usize,
    /// Where it begins on the member.
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Members that are used in turn. A concat has one for each member, a stripe has one.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Zone {
    /// In bytes of the composition.
    start: u64,
    end: u64,
    /// The members.
    first: usize,
    width: u64,
    chunk: u64,
}

/// The layout for members of certain sizes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Layout {
    zones: Vec<Zone>,
}

impl Layout {
    /// Of members of these sizes, in bytes. What a stripe has no whole chunk of on every member is not used.
    pub(super) fn new(form: Form, sizes: &[u64]) -> Self {
        let zones = match form {
            Form::Stripe { chunk_bytes } => {
                let rows = sizes.iter().min().map_or(0, |size| size / chunk_bytes);
                let width = sizes.len() as u64;
                vec![Zone {
                    start: 0,
                    end: rows.saturating_mul(chunk_bytes).saturating_mul(width),
                    first: 0,
                    width,
                    chunk: chunk_bytes,
                }]
            }
            Form::Concat => {
                let mut start = 0;
                let zone = |(first, size): (usize, &u64)| {
                    let zone = Zone {
                        start,
                        end: size.saturating_add(start),
                        first,
                        width: 1,
                        chunk: *size,
                    };
                    start = zone.end;
                    zone
                };
                sizes.iter().enumerate().map(zone).collect()
            }
        };
        Self { zones }
    }

    /// In bytes.
    pub(super) fn size(&self) -> u64 {
        self.zones.last().map_or(0, |zone| zone.end)
    }

    /// The largest power of two of which no multiple lies inside what may be one piece, but at its ends. 0: there is
    /// one piece at most.
    pub(super) fn unit(&self) -> u64 {
        let borders = self.zones.iter().map(|zone| {
            let chunk = if zone.width > 1 { zone.chunk } else { 0 };
            zone.start | chunk
        });
        let all = borders.fold(0, |all, border| all | border);
        all & all.wrapping_neg()
    }

    fn zone(&self, offset: u64) -> Option<&Zone> {
        self.zones.iter().find(|zone| offset < zone.end)
    }

    /// The bytes from `offset` on that lie together, at most `len` of them. `None` behind the end.
    #[inline]
    pub(super) fn piece(&self, offset: u64, len: u64) -> Option<Piece> {
        let zone = self.zone(offset)?;
        let place = zone.place(offset);
        Some(Piece {
            member: place.member,
            offset: place.offset,
            len: len.min(place.left),
        })
    }

    /// What a range has on each member, in bytes of that; members that have nothing of it are left out.
    pub(super) fn shares(&self, range: &Range<u64>) -> impl Iterator<Item = (usize, Range<u64>)> {
        let range = range.clone();
        self.zones.iter().flat_map(move |zone| {
            let (start, end) = (range.start.max(zone.start), range.end.min(zone.end));
            let members = (0..zone.width).filter(move |_| start < end);
            let share = move |member| {
                let share = zone.before(start, member)..zone.before(end, member);
                let index = zone.first + usize::try_from(member).unwrap_or_default();
                (index, share)
            };
            members.map(share).filter(|(_, share)| !share.is_empty())
        })
    }

    /// Where a byte of a member is in the composition.
    pub(super) fn whole_offset(&self, member: usize, offset: u64) -> u64 {
        let has = |zone: &&Zone| {
            let width = usize::try_from(zone.width).unwrap_or_default();
            (zone.first..zone.first + width).contains(&member)
        };
        let Some(zone) = self.zones.iter().find(has) else {
            return self.size();
        };
        let column = (member - zone.first) as u64;
        let row = offset.checked_div(zone.chunk).unwrap_or_default();
        let within = offset - row * zone.chunk;
        let before = row.saturating_mul(zone.width).saturating_add(column);
        let start = before.saturating_mul(zone.chunk).saturating_add(within);
        zone.start.saturating_add(start)
    }

    /// The extents of a range, from those of its members, as far as these go. Each list is that of the
    /// member's share, in order. At most `count_max`, neighbours that are alike are one.
    ///
    /// The work is bounded by how many extents there are: rows of chunks in which nothing changes are taken at once.
    pub(super) fn merge(
        &self,
        range: &Range<u64>,
        lists: &[(usize, Vec<Extent>)],
        count_max: usize,
    ) -> Vec<Extent> {
        let mut cursors = vec![0; lists.len()];
        let mut merged: Vec<Extent> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let Some((mapped, len)) = self.run(at, range.end, lists, &mut cursors) else {
                break;
            };
            let is_full = merged.len() == count_max;
            match merged.last_mut() {
                Some(last) if last.mapped == mapped => last.range.end = at + len,
                Some(_) | None if is_full => break,
                Some(_) | None => merged.push(Extent {
                    range: at..at + len,
                    mapped,
                }),
            }
            at += len;
        }
        merged
    }

    /// Whether the bytes at `at` are mapped, and for how many that is known to hold; `None` where it is not known.
    fn run(
        &self,
        at: u64,
        end: u64,
        lists: &[(usize, Vec<Extent>)],
        cursors: &mut [usize],
    ) -> Option<(bool, u64)> {
        let zone = self.zone(at)?;
        let place = zone.place(at);
        let mut extent_at = |member: usize, offset: u64| {
            let nth = lists.iter().position(|(of, _)| *of == member)?;
            let (list, cursor) = (&lists.get(nth)?.1, cursors.get_mut(nth)?);
            while list.get(*cursor)?.range.end <= offset {
                *cursor += 1;
            }
            list.get(*cursor)
        };
        let extent = extent_at(place.member, place.offset)?;
        let mapped = extent.mapped;
        let alone = place
            .left
            .min(end - at)
            .min(extent.range.end - place.offset);
        let row_bytes = zone.chunk.saturating_mul(zone.width);
        let is_start = (at - zone.start).is_multiple_of(row_bytes);
        if zone.width == 1 || lists.len() as u64 != zone.width || !is_start {
            return Some((mapped, alone));
        }
        // At the start of a row every member is at the same offset.
        let mut rows = (end.min(zone.end) - at) / row_bytes;
        for member in zone.first..zone.first + lists.len() {
            let same = extent_at(member, place.offset).filter(|extent| extent.mapped == mapped);
            let bytes = same.map_or(0, |extent| extent.range.end - place.offset);
            rows = rows.min(bytes / zone.chunk);
        }
        let together = rows * row_bytes;
        Some((mapped, if rows > 0 { together } else { alone }))
    }
}

/// Where a byte is.
struct Place {
    member: usize,
    offset: u64,
    /// So many bytes from it on lie together.
    left: u64,
}

impl Zone {
    #[inline]
    fn place(&self, offset: u64) -> Place {
        let within = offset - self.start;
        if self.width == 1 {
            return Place {
                member: self.first,
                offset: within,
                left: self.end - offset,
            };
        }
        // A power of two where there are several members.
        let bits = self.chunk.trailing_zeros();
        let (chunk, rest) = (within >> bits, within & (self.chunk - 1));
        let (row, column) = (chunk / self.width, chunk % self.width);
        Place {
            member: self.first + usize::try_from(column).unwrap_or_default(),
            offset: (row << bits) + rest,
            left: self.chunk - rest,
        }
    }

    /// How many bytes of a member of the zone lie before `offset` of the composition.
    fn before(&self, offset: u64, member: u64) -> u64 {
        let within = offset - self.start;
        if self.width == 1 {
            return within;
        }
        let (chunk, rest) = (within / self.chunk, within % self.chunk);
        let (row, column) = (chunk / self.width, chunk % self.width);
        row * self.chunk
            + match member.cmp(&column) {
                std::cmp::Ordering::Less => self.chunk,
                std::cmp::Ordering::Equal => rest,
                std::cmp::Ordering::Greater => 0,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{data, hole};

    const STRIPE: Form = Form::Stripe { chunk_bytes: 4096 };

    fn layouts() -> Vec<Layout> {
        vec![
            Layout::new(STRIPE, &[5 * 4096, 5 * 4096 + 512, 6 * 4096]),
            Layout::new(STRIPE, &[4096, 4096]),
            Layout::new(Form::Concat, &[3 * 512, 512, 7 * 512]),
            Layout::new(Form::Concat, &[4096]),
        ]
    }

    #[test]
    fn a_stripe_has_whole_chunks_of_the_smallest_and_a_concat_the_sum() {
        let sizes: Vec<u64> = layouts().iter().map(Layout::size).collect();
        assert_eq!(sizes, [15 * 4096, 2 * 4096, 11 * 512, 4096]);
        assert_eq!(Layout::new(STRIPE, &[4095, 1 << 40]).size(), 0);
    }

    /// Byte by byte the other way round: every block has one place, no place has two, and shares are those places.
    #[test]
    fn pieces_shares_and_offsets_agree() {
        for layout in layouts() {
            let size = layout.size();
            let mut seen = std::collections::BTreeSet::new();
            for at in (0..size).step_by(512) {
                let piece = layout.piece(at, 512).unwrap();
                assert_eq!(piece.len, 512);
                assert!(seen.insert((piece.member, piece.offset)), "{at}");
                assert_eq!(layout.whole_offset(piece.member, piece.offset), at);
            }
            assert_eq!(layout.piece(size, 1), None);
            for start in (0..size).step_by(512) {
                for end in (start..=size).step_by(1536) {
                    let mut by_piece = std::collections::BTreeMap::<usize, Range<u64>>::new();
                    let mut at = start;
                    while at < end {
                        let piece = layout.piece(at, end - at).unwrap();
                        let of = by_piece
                            .entry(piece.member)
                            .or_insert(piece.offset..piece.offset);
                        assert_eq!(of.end, piece.offset, "a share is in one piece");
                        of.end += piece.len;
                        at += piece.len;
                    }
                    let shares = layout.shares(&(start..end)).collect();
                    assert_eq!(by_piece, shares, "{start}..{end} of {layout:?}");
                }
            }
        }
    }

    #[test]
    fn no_piece_crosses_a_multiple_of_the_unit() {
        let units: Vec<u64> = layouts().iter().map(Layout::unit).collect();
        assert_eq!(units, [4096, 4096, 512, 0]);
        assert_eq!(
            Layout::new(Form::Concat, &[3 << 20, 1 << 20, 5]).unit(),
            1 << 20
        );
    }

    #[test]
    fn extents_of_members_merge_to_those_of_the_whole() {
        let layout = Layout::new(STRIPE, &[1 << 40, 1 << 40]);
        let all = 0..layout.size();
        let lists = [(0, vec![hole(0..1 << 40)]), (1, vec![hole(0..1 << 40)])];
        assert_eq!(layout.merge(&all, &lists, 10), [hole(0..1 << 41)]);
        // What members say beyond the range is not of it.
        assert_eq!(layout.merge(&(0..8192), &lists, 10), [hole(0..8192)]);
        let lists = [
            (0, vec![hole(0..1 << 30), data(1 << 30..1 << 40)]),
            (
                1,
                vec![hole(0..4096), data(4096..8192), hole(8192..1 << 40)],
            ),
        ];
        let expected = [
            hole(0..3 * 4096),
            data(3 * 4096..4 * 4096),
            hole(4 * 4096..1 << 31),
            data(1 << 31..(1 << 31) + 4096),
            hole((1 << 31) + 4096..(1 << 31) + 8192),
        ];
        assert_eq!(layout.merge(&all, &lists, 5), expected);
        assert_eq!(layout.merge(&all, &lists, 2), expected[..2]);
        // From the middle of a chunk, and no farther than every member has said.
        let lists = [(0, vec![data(5120..8192)]), (1, vec![data(4096..6144)])];
        let range = 2 * 4096 + 1024..1 << 20;
        assert_eq!(
            layout.merge(&range, &lists, 5),
            [data(range.start..3 * 4096 + 2048)]
        );
        assert!(layout.merge(&range, &[(0, vec![])], 5).is_empty());
        let layout = Layout::new(Form::Concat, &[8192, 4096]);
        let lists = [
            (0, vec![data(4096..6144), hole(6144..8192)]),
            (1, vec![hole(0..512), data(512..4096)]),
        ];
        let expected = [data(4096..6144), hole(6144..8704), data(8704..12_288)];
        assert_eq!(layout.merge(&(4096..12_288), &lists, 5), expected);
    }
}
