//! Opening: what is refused, in which words, and what is left behind.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::open::denied;
use crate::testing::{Bench, Scratch, data, pattern};
use crate::{CacheMode, OpenFailure, OpenOptions, StoreKind};

fn failure(options: &OpenOptions) -> OpenFailure {
    options.open().unwrap_err().reason
}

#[test]
fn a_missing_file_is_created_only_when_its_size_is_given() {
    let scratch = Scratch::new();
    let path = scratch.path("new");
    let mut options = OpenOptions::new(StoreKind::Path, &path);
    assert!(matches!(failure(&options), OpenFailure::MissingAndNoSize));
    assert!(!path.exists());
    options.size_bytes = Some(1 << 20);
    options.read_only = true;
    assert!(matches!(failure(&options), OpenFailure::Missing));
    options.read_only = false;
    let shared = options.open().unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.len(), found.blocks()), (1 << 20, 0));
    assert_eq!(found.mode() & 0o077, 0, "for its owner only");
    assert!(shared.handle().unwrap().capabilities().thin);
}

#[test]
fn a_file_that_is_not_thin_takes_its_space_at_once() {
    let scratch = Scratch::new();
    let mut options = OpenOptions::new(StoreKind::File, scratch.path("new"));
    options.size_bytes = Some(1 << 20);
    options.thin = false;
    options.open().unwrap();
    let found = fs::metadata(&options.path).unwrap();
    assert!(found.blocks() * 512 >= 1 << 20, "{} blocks", found.blocks());
}

#[test]
fn a_file_that_could_not_become_a_disk_is_not_left_behind() {
    let scratch = Scratch::new();
    let mut options = OpenOptions::new(StoreKind::File, scratch.path("new"));
    // More than any file system allows.
    options.size_bytes = Some(i64::MAX as u64 / 4096 * 4096);
    options.thin = false;
    let found = failure(&options);
    let is_of_size = matches!(found, OpenFailure::TooLarge | OpenFailure::NoSpace);
    assert!(is_of_size, "{found}");
    assert!(!options.path.exists());
}

#[test]
fn a_file_grows_to_the_size_given_and_never_shrinks() {
    let scratch = Scratch::new();
    let path = scratch.file(8192);
    fs::write(&path, pattern(8192)).unwrap();
    let mut options = OpenOptions::new(StoreKind::File, &path);
    for (least, size) in [(4096, 8192), (8192, 8192), (16_384, 16_384), (8192, 16_384)] {
        options.size_bytes = Some(least);
        let shared = options.open().unwrap();
        let mut bench = Bench::new(&*shared);
        assert_eq!(bench.store.capabilities().size_bytes, size, "{least}");
        assert_eq!(bench.read(0, 8192).unwrap(), pattern(8192));
    }
    assert_eq!(fs::metadata(&path).unwrap().len(), 16_384);
    options.size_bytes = Some(32_768);
    options.read_only = true;
    assert!(matches!(failure(&options), OpenFailure::CannotGrow { .. }));
}

#[test]
fn sizes_are_whole_blocks() {
    let scratch = Scratch::new();
    for kind in [StoreKind::File, StoreKind::Memory, StoreKind::Null] {
        for (size, block, good) in [
            (0, 512, false),
            (511, 512, false),
            (512, 512, true),
            (512, 4096, false),
            (4096, 4096, true),
            (4096, 1024, false),
        ] {
            let mut options = OpenOptions::new(kind, scratch.path("disk"));
            options.size_bytes = Some(size);
            options.block_bytes = Some(block);
            let opened = options.open();
            assert_eq!(opened.is_ok(), good, "{kind:?} {size} {block}: {opened:?}");
            drop(fs::remove_file(&options.path));
        }
    }
    for kind in [StoreKind::Memory, StoreKind::Null] {
        let options = OpenOptions::new(kind, "");
        assert!(matches!(failure(&options), OpenFailure::NoSize));
    }
    let empty = OpenOptions::new(StoreKind::File, scratch.file(0));
    assert!(matches!(failure(&empty), OpenFailure::Empty));
}

#[test]
fn images_of_other_formats_are_refused_unless_forced() {
    let scratch = Scratch::new();
    let path = scratch.file(4096);
    for (offset, mark, name) in [
        (0, &b"QFI\xfb"[..], "qcow2"),
        (0, b"KDMV", "VMDK"),
        (0, b"# Disk DescriptorFile", "VMDK"),
        (0, b"vhdxfile", "VHDX"),
        (0, b"conectix", "VHD"),
        (64, b"\x7f\x10\xda\xbe", "VDI"),
    ] {
        let mut bytes = vec![0; 4096];
        bytes[offset..offset + mark.len()].copy_from_slice(mark);
        fs::write(&path, &bytes).unwrap();
        let mut options = OpenOptions::new(StoreKind::Path, &path);
        let text = options.open().unwrap_err().to_string();
        assert!(text.contains(name) && text.contains("format=raw"), "{text}");
        options.force_raw = true;
        options.open().unwrap();
        // One byte off is no mark.
        bytes[offset] ^= 1;
        fs::write(&path, &bytes).unwrap();
        options.force_raw = false;
        options.open().unwrap();
    }
}

#[test]
fn one_writer_or_many_readers() {
    let scratch = Scratch::new();
    let writer = OpenOptions::new(StoreKind::File, scratch.file(4096));
    let mut reader = writer.clone();
    reader.read_only = true;

    let held = writer.open().unwrap();
    assert!(matches!(failure(&writer), OpenFailure::InUse));
    assert!(matches!(failure(&reader), OpenFailure::InUseByWriter));
    // A handle of one core keeps the lock.
    let handle = held.handle().unwrap();
    drop(held);
    assert!(matches!(failure(&writer), OpenFailure::InUse));
    drop(handle);

    let first = reader.open().unwrap();
    let second = reader.open().unwrap();
    assert!(matches!(failure(&writer), OpenFailure::InUse));
    drop((first, second));
    writer.open().unwrap();
}

#[test]
fn what_is_no_disk_is_refused() {
    let scratch = Scratch::new();
    let mut options = OpenOptions::new(StoreKind::Path, scratch.as_ref());
    assert!(matches!(failure(&options), OpenFailure::NotADisk));
    options.path = "/dev/null".into();
    assert!(matches!(failure(&options), OpenFailure::NotADisk));
    let file = OpenOptions::new(StoreKind::Block, scratch.file(4096));
    assert!(matches!(failure(&file), OpenFailure::NotABlockDevice));
    let missing = OpenOptions::new(StoreKind::Block, scratch.path("missing"));
    assert!(matches!(failure(&missing), OpenFailure::Missing));
}

#[test]
fn root_is_not_told_to_change_the_owner() {
    assert!(denied(false).to_string().contains("owner or mode"));
    assert!(matches!(denied(true), OpenFailure::DeniedToRoot));
}

#[test]
fn cache_modes_say_whether_writes_may_be_lost() {
    let scratch = Scratch::new();
    let mut options = OpenOptions::new(StoreKind::File, scratch.file(1 << 20));
    for (cache, has_cache, own_buffer) in [
        (CacheMode::WriteBack, true, false),
        (CacheMode::WriteThrough, false, false),
        (CacheMode::Direct, true, true),
    ] {
        options.cache = cache;
        options.block_bytes = Some(4096);
        let handle = match options.open() {
            Ok(shared) => shared.handle().unwrap(),
            Err(error) if cache == CacheMode::Direct => {
                assert!(matches!(error.reason, OpenFailure::NoDirectIo), "{error}");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let capabilities = handle.capabilities();
        assert!(capabilities.volatile_cache);
        assert_eq!(capabilities.has_cache(), has_cache);
        assert_eq!(capabilities.needs_own_buffer, own_buffer);
        assert!(!capabilities.reads_in_place);
    }
}

/// A loop device over a file of our own, given back on drop.
struct LoopDevice(String);

impl LoopDevice {
    fn new(file: &std::path::Path) -> Self {
        let losetup = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output();
        let output = losetup.unwrap();
        assert!(output.status.success(), "{output:?}");
        Self(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        drop(Command::new("losetup").args(["--detach", &self.0]).status());
    }
}

#[test]
#[ignore = "needs root and a loop device"]
fn a_file_and_a_loop_device_of_it_are_not_served_together() {
    let scratch = Scratch::new();
    let path = scratch.file(1 << 20);
    let device = LoopDevice::new(&path);
    let mut file = OpenOptions::new(StoreKind::File, &path);
    let mut block = OpenOptions::new(StoreKind::Block, &device.0);
    let served = file.open().unwrap();
    let refused = failure(&block);
    assert!(
        matches!(refused, OpenFailure::BackingInUse { .. }),
        "{refused}"
    );
    drop(served);
    let served = block.open().unwrap();
    assert!(matches!(failure(&file), OpenFailure::InUse));
    drop(served);
    (file.read_only, block.read_only) = (true, true);
    let _both = (file.open().unwrap(), block.open().unwrap());
}

#[test]
#[ignore = "needs root and a loop device"]
fn a_block_device_is_a_disk_of_its_own_size() {
    let scratch = Scratch::new();
    let device = LoopDevice::new(&scratch.file(1 << 20));
    for cache in [
        CacheMode::WriteBack,
        CacheMode::WriteThrough,
        CacheMode::Direct,
    ] {
        let mut options = OpenOptions::new(StoreKind::Path, &device.0);
        options.cache = cache;
        let shared = options.open().unwrap();
        assert!(matches!(
            failure(&options),
            OpenFailure::InUse | OpenFailure::InUseByKernel
        ));
        let mut bench = Bench::new(&*shared);
        assert_eq!(bench.store.capabilities().size_bytes, 1 << 20);
        assert!(bench.store.capabilities().thin);
        bench.write(4096, &pattern(65_536)).unwrap();
        assert_eq!(bench.read(4096, 65_536).unwrap(), pattern(65_536));
        bench.unmap(8192..12_288).unwrap();
        assert_eq!(bench.read(8192, 4096).unwrap(), [0; 4096]);
        bench.write_zeros(512..1 << 20).unwrap();
        assert!(
            bench
                .read(512, 65_536)
                .unwrap()
                .iter()
                .all(|&byte| byte == 0)
        );
        bench.flush().unwrap();
        assert_eq!(bench.extents(0..1 << 20, 4).unwrap(), [data(0..1 << 20)]);
        assert_eq!(bench.store.refresh_size(), None);
        drop((bench, shared));

        options.kind = StoreKind::File;
        assert!(matches!(failure(&options), OpenFailure::NotAFile));
        options.kind = StoreKind::Block;
        options.size_bytes = Some(2 << 20);
        assert!(matches!(failure(&options), OpenFailure::CannotGrow { .. }));
    }
}

#[test]
fn a_disc_is_a_file_without_the_rest_or_nothing() {
    let scratch = Scratch::new();
    let disc = |path: std::path::PathBuf| {
        let mut options = OpenOptions::new(StoreKind::Disc, path);
        options.block_bytes = Some(2048);
        options.read_only = true;
        options
    };
    for (bytes, size_bytes) in [(2048, 2048), (2049, 2048), (3 * 2048 - 1, 2 * 2048)] {
        let options = disc(scratch.file(bytes));
        let capabilities = options.open().unwrap().capabilities();
        assert_eq!(capabilities.size_bytes, size_bytes);
        assert_eq!(capabilities.block_bytes, 2048);
        assert!(capabilities.read_only && !capabilities.has_cache());
        let probed = options.probe().unwrap().capabilities();
        assert_eq!(probed.size_bytes, size_bytes);
        fs::remove_file(&options.path).unwrap();
    }
    for bytes in [0, 2047] {
        let options = disc(scratch.file(bytes));
        assert!(
            matches!(failure(&options), OpenFailure::NoDisc { size_bytes } if size_bytes == bytes)
        );
        fs::remove_file(&options.path).unwrap();
    }
    let missing = disc(scratch.path("none"));
    assert!(matches!(failure(&missing), OpenFailure::Missing));
    assert!(matches!(
        failure(&disc("/tmp".into())),
        OpenFailure::NotADisk
    ));
    let mut disk = OpenOptions::new(StoreKind::File, scratch.file(4096));
    disk.block_bytes = Some(2048);
    assert!(matches!(failure(&disk), OpenFailure::BlockSize { .. }));
    let empty = disc(std::path::PathBuf::new())
        .open()
        .unwrap()
        .capabilities();
    assert_eq!((empty.size_bytes, empty.block_bytes), (0, 2048));
    assert!(empty.read_only && !empty.has_cache());
}
