//! What every store promises, asked of every store.

use std::ops::Range;
use std::sync::Arc;

use crate::testing::{Bench, Scratch, data, hole, pattern};
use crate::{
    CacheMode, Composed, Form, IoFailure, IoRequest, Member, OpenOptions, SharedStore, StoreKind,
};

const SIZE: u64 = 4 << 20;

/// A store that keeps what is written, in each way there is, and what keeps it alive.
struct Candidate {
    name: String,
    shared: Arc<dyn SharedStore>,
    block: usize,
    _scratch: Option<Scratch>,
}

fn candidates() -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for block in [512, 4096] {
        for thin in [true, false] {
            candidates.extend(compositions(block, thin));
            let mut memory = OpenOptions::new(StoreKind::Memory, "");
            memory.size_bytes = Some(SIZE);
            memory.block_bytes = Some(block);
            memory.thin = thin;
            candidates.push(Candidate {
                name: format!("memory, blocks of {block}, thin {thin}"),
                shared: memory.open().unwrap(),
                block: block as usize,
                _scratch: None,
            });
            for cache in [
                CacheMode::WriteBack,
                CacheMode::WriteThrough,
                CacheMode::Direct,
            ] {
                let scratch = Scratch::new();
                let mut file = OpenOptions::new(StoreKind::File, scratch.path("disk"));
                file.size_bytes = Some(SIZE);
                file.block_bytes = Some(block);
                file.thin = thin;
                file.cache = cache;
                let shared = match file.open() {
                    Ok(shared) => shared,
                    // Some file systems have no direct I/O for files, or not for small blocks.
                    Err(_) if cache == CacheMode::Direct => continue,
                    Err(error) => panic!("{error}"),
                };
                candidates.push(Candidate {
                    name: format!("file, {cache:?}, blocks of {block}, thin {thin}"),
                    shared,
                    block: block as usize,
                    _scratch: Some(scratch),
                });
            }
        }
    }
    candidates
}

/// Stripes and concats of memory, and of memory and a file, which is no whole number of chunks.
fn compositions(block: u32, thin: bool) -> Vec<Candidate> {
    let stripe = |chunk_bytes| Form::Stripe { chunk_bytes };
    let forms = [
        (stripe(4096), [SIZE / 4; 4]),
        (stripe(65_536), [SIZE / 4; 4]),
        (Form::Concat, [SIZE / 2, SIZE / 4, 8192, SIZE / 4 - 8192]),
    ];
    let mut candidates = Vec::new();
    for (form, sizes) in forms {
        for has_file in [false, true] {
            let scratch = Scratch::new();
            let member = |(number, size_bytes): (usize, u64)| {
                let is_file = has_file && number == 1;
                let (kind, more) = match form {
                    _ if !is_file => (StoreKind::Memory, 0),
                    Form::Stripe { .. } => (StoreKind::File, 8192),
                    Form::Concat => (StoreKind::File, 0),
                };
                let mut options = OpenOptions::new(kind, scratch.path("disk"));
                options.size_bytes = Some(size_bytes + more);
                options.block_bytes = Some(block);
                options.thin = thin;
                Member {
                    name: number.to_string(),
                    store: options.open().unwrap(),
                    bytes: None,
                }
            };
            let members = (0..).zip(sizes).map(member).collect();
            candidates.push(Candidate {
                name: format!("{form:?}, file {has_file}, blocks of {block}, thin {thin}"),
                shared: Arc::new(Composed::new(form, members, false).unwrap()),
                block: block as usize,
                _scratch: Some(scratch),
            });
        }
    }
    candidates
}

/// Holds a store against a vector of bytes.
struct Checked<'a> {
    name: &'a str,
    bench: Bench,
    model: Vec<u8>,
}

impl<'a> Checked<'a> {
    fn new(candidate: &'a Candidate) -> Self {
        Self {
            name: &candidate.name,
            bench: Bench::new(&*candidate.shared),
            model: vec![0; usize::try_from(SIZE).unwrap()],
        }
    }

    fn write(&mut self, offset: usize, bytes: &[u8], durable: bool) {
        let offset_bytes = offset as u64;
        let written = if durable {
            self.bench.write_durably(offset_bytes, bytes)
        } else {
            self.bench.write(offset_bytes, bytes)
        };
        written.unwrap_or_else(|failure| panic!("{}: {failure}", self.name));
        self.model[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn zero(&mut self, range: Range<usize>, unmap: bool) {
        let bytes = range.start as u64..range.end as u64;
        let zeroed = if unmap {
            self.bench.unmap(bytes)
        } else {
            self.bench.write_zeros(bytes)
        };
        zeroed.unwrap_or_else(|failure| panic!("{}: {failure}", self.name));
        self.model[range].fill(0);
    }

    fn check(&mut self) {
        let len = self.model.len();
        let bytes = self.bench.read(0, len).unwrap();
        let difference = bytes.iter().zip(&self.model).position(|(a, b)| a != b);
        assert_eq!(difference, None, "{}: first difference", self.name);
    }
}

#[test]
fn what_was_written_is_read_and_the_rest_reads_zeros() {
    for candidate in &candidates() {
        let mut store = Checked::new(candidate);
        store.check();
        let block = candidate.block;
        let size = store.model.len();
        for (offset, len) in [
            (0, block),
            (block, 3 * block),
            (8 * block, 1 << 20),
            (size - block, block),
        ] {
            store.write(offset, &pattern(len), offset % 2 == 0);
            store.check();
        }
        let part = store.bench.read(block as u64 * 2, block).unwrap();
        assert_eq!(part, store.model[2 * block..3 * block], "{}", store.name);
        store.bench.flush().unwrap();
    }
}

#[test]
fn unmapped_and_zeroed_ranges_read_zeros_at_every_alignment() {
    for candidate in &candidates() {
        let mut store = Checked::new(candidate);
        let block = candidate.block;
        let size = store.model.len();
        for unmap in [true, false] {
            store.write(0, &pattern(size), false);
            for range in [
                0..block,
                3 * block..4 * block,
                16 * block..16 * block + 8192,
                33 * block..99 * block,
                size - 7 * block..size,
            ] {
                store.zero(range, unmap);
                store.check();
            }
            store.zero(0..size, unmap);
            store.check();
        }
        // And zeroing what is zero already.
        store.zero(0..size, true);
        store.check();
    }
}

#[test]
fn extents_cover_the_range_and_agree_with_what_was_written() {
    for candidate in &candidates() {
        let mut store = Checked::new(candidate);
        let thin = store.bench.store.capabilities().thin;
        store.write(1 << 20, &pattern(65_536), true);
        store.write(3 << 20, &pattern(65_536), true);
        store.zero((3 << 20) + 16_384..(3 << 20) + 32_768, true);
        let extents = store.bench.extents(0..SIZE, 100).unwrap();
        assert_eq!(extents.first().unwrap().range.start, 0, "{}", store.name);
        assert_eq!(extents.last().unwrap().range.end, SIZE, "{}", store.name);
        for pair in extents.windows(2) {
            assert_eq!(pair[0].range.end, pair[1].range.start, "{}", store.name);
        }
        for extent in extents.iter().filter(|extent| !extent.mapped) {
            let offset = usize::try_from(extent.range.start).unwrap();
            let end = usize::try_from(extent.range.end).unwrap();
            let zeros = store.model[offset..end].iter().all(|&byte| byte == 0);
            assert!(zeros, "{}: {extent:?} holds data", store.name);
        }
        if thin {
            assert_eq!(
                extents,
                [
                    hole(0..1 << 20),
                    data(1 << 20..(1 << 20) + 65_536),
                    hole((1 << 20) + 65_536..3 << 20),
                    data(3 << 20..(3 << 20) + 16_384),
                    hole((3 << 20) + 16_384..(3 << 20) + 32_768),
                    data((3 << 20) + 32_768..(3 << 20) + 65_536),
                    hole((3 << 20) + 65_536..SIZE),
                ],
                "{}",
                store.name
            );
        }
        // From the middle, and no more than there is room for.
        let start = (1 << 20) + 4096;
        let some = store.bench.extents(start..SIZE, 1).unwrap();
        assert_eq!(some.len(), 1, "{}", store.name);
        assert!(some[0].mapped && some[0].range.start == start);
    }
}

#[test]
fn nothing_happens_behind_the_end() {
    for candidate in &candidates() {
        let mut store = Checked::new(candidate);
        let block = candidate.block;
        let end = Err(IoFailure::Truncated { offset: SIZE });
        let last = SIZE - block as u64;
        assert_eq!(store.bench.read(last, 2 * block).map(drop), end);
        assert_eq!(store.bench.write(last, &pattern(2 * block)), end);
        assert_eq!(store.bench.unmap(last..SIZE + 4096), end);
        assert_eq!(store.bench.write_zeros(SIZE..SIZE + 4096), end);
        assert_eq!(store.bench.extents(last..SIZE + 4096, 1).map(drop), end);
        store.check();
    }
}

#[test]
fn requests_of_no_bytes_are_done_at_once() {
    for candidate in &candidates() {
        let mut store = Checked::new(candidate);
        assert_eq!(store.bench.read(512, 0), Ok(Vec::new()));
        assert_eq!(store.bench.write(SIZE, &[]), Ok(()));
        assert_eq!(store.bench.unmap(4096..4096), Ok(()));
        assert_eq!(store.bench.write_zeros(4096..4096), Ok(()));
        assert_eq!(store.bench.extents(4096..4096, 1), Ok(vec![]));
    }
}

/// Two cores see one medium.
#[test]
fn a_write_by_one_handle_is_read_by_another() {
    for candidate in &candidates() {
        let mut writer = Bench::new(&*candidate.shared);
        let mut reader = Bench::new(&*candidate.shared);
        writer.write(8192, &pattern(8192)).unwrap();
        assert_eq!(reader.read(8192, 8192).unwrap(), pattern(8192));
        reader.unmap(8192..12_288).unwrap();
        assert_eq!(writer.read(8192, 4096).unwrap(), [0; 4096]);
        assert_eq!(writer.read(12_288, 4096).unwrap(), pattern(8192)[4096..]);
    }
}

/// Data of every form that crate `memory` has.
#[test]
fn data_is_taken_wherever_it_lies() {
    for candidate in &candidates() {
        let mut source = Bench::new(&*candidate.shared);
        if source.store.capabilities().needs_own_buffer {
            continue;
        }
        let mut chunk = source.pool.allocate(8192 + 48).unwrap();
        chunk[48..].copy_from_slice(&pattern(8192));
        let mapping = Arc::new(memory::Mapping::sparse(16_384).unwrap());
        mapping.copy_in(100, &pattern(8192));
        let mapping = memory::CoreMapping::new(&mapping);
        let forms = [
            memory::Payload::Heap(pattern(8192)),
            memory::Payload::Received {
                chunk: std::rc::Rc::new(chunk),
                offset: 48,
                len: 8192,
            },
            memory::Payload::Mapped(memory::MappedRange::new(&mapping, 100, 8192)),
        ];
        for (n, data) in (0..).zip(forms) {
            let offset = n * 8192;
            let durable = false;
            let request = IoRequest::Write {
                offset,
                data,
                durable,
            };
            source.run(request).unwrap();
            assert_eq!(
                source.read(offset, 8192).unwrap(),
                pattern(8192),
                "{}",
                candidate.name
            );
        }
    }
}

#[test]
fn capabilities_are_consistent() {
    for Candidate {
        name,
        shared,
        block,
        ..
    } in &candidates()
    {
        let handle = shared.handle().unwrap();
        let capabilities = handle.capabilities();
        let physical = capabilities.physical_block_bytes;
        assert_eq!(capabilities.size_bytes, SIZE, "{name}");
        assert_eq!(capabilities.block_bytes as usize, *block, "{name}");
        assert!(physical.is_power_of_two(), "{name}");
        assert_eq!(physical % capabilities.block_bytes, 0, "{name}");
        assert_eq!(
            capabilities.unmap_granularity_bytes % capabilities.block_bytes,
            0,
            "{name}"
        );
    }
}
