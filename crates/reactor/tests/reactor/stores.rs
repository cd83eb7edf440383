//! The stores on a real ring: what crate `store` tests with plain system calls holds there too.

use std::io::Read;
use std::net::{TcpListener, TcpStream};

use crate::common::{HANG, event, pattern, reactor};
use memory::{Message, Payload};
use reactor::{Event, Reactor, SendEnd, Socket};
use store::{
    Backstore, CacheMode, Extent, IoAnswer, IoRequest, IoResult, IoTag, OpenOptions, Order, Outlet,
    StoreKind, Submitted,
};

const SIZE: u64 = 8 << 20;

/// Carries one request through.
fn run(reactor: &mut Reactor, store: &mut dyn Backstore, request: IoRequest) -> IoResult {
    let tag = IoTag(3);
    let mut outlet = Outlet::default();
    if let Submitted::Done(result) = store.submit(tag, request, &mut outlet) {
        return result;
    }
    loop {
        match outlet.next_order() {
            Some(Order::Answer { result, .. }) => return result,
            Some(Order::Ring { part, operation }) => {
                reactor.submit_store(tag.0, operation);
                match event(reactor) {
                    Event::Store {
                        operation, result, ..
                    } => store.handle_ring_result(part, operation, result, &mut outlet),
                    other => panic!("{other:?}"),
                }
            }
            Some(Order::Helper { part, operation }) => {
                reactor.submit_helper(tag.0, operation);
                match event(reactor) {
                    Event::Helper { result, .. } => {
                        store.handle_helper_result(part, result, &mut outlet);
                    }
                    other => panic!("{other:?}"),
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn read(reactor: &mut Reactor, store: &mut dyn Backstore, offset: u64, len: usize) -> Payload {
    let in_place = store.capabilities().reads_in_place;
    let buffer = (!in_place).then(|| reactor.pool().allocate(len).unwrap());
    let request = IoRequest::Read {
        offset,
        len,
        buffer,
    };
    match run(reactor, store, request).unwrap() {
        IoAnswer::Data(data) => data,
        other => panic!("{other:?}"),
    }
}

fn exercise(options: &OpenOptions) {
    let mut reactor = reactor();
    let shared = match options.open() {
        Ok(shared) => shared,
        // Not every file system has it.
        Err(_) if options.cache == CacheMode::Direct => return,
        Err(error) => panic!("{error}"),
    };
    let mut handle = shared.handle().unwrap();
    let store = &mut *handle;
    let mut model = vec![0; usize::try_from(SIZE).unwrap()];
    for (offset, len, durable) in [
        (0, 4096, true),
        (8192, 3 << 20, false),
        (7 << 20, 65_536, true),
    ] {
        let mut buffer = reactor.pool().allocate(len).unwrap();
        buffer.copy_from_slice(&pattern(len));
        model[offset..offset + len].copy_from_slice(&buffer);
        let request = IoRequest::Write {
            offset: offset as u64,
            data: Payload::Pool(buffer),
            durable,
        };
        run(&mut reactor, store, request).unwrap();
    }
    run(&mut reactor, store, IoRequest::Flush).unwrap();
    for (range, unmap) in [(12_288..1 << 20, true), (1 << 20..(1 << 20) + 4096, false)] {
        model[range.clone()].fill(0);
        let range = range.start as u64..range.end as u64;
        let request = if unmap {
            IoRequest::Unmap { range }
        } else {
            let durable = true;
            IoRequest::WriteZeros { range, durable }
        };
        run(&mut reactor, store, request).unwrap();
    }
    let all = read(&mut reactor, store, 0, model.len());
    assert_eq!(all.first_difference(0, &model), None, "{options:?}");

    let request = IoRequest::Extents {
        range: 0..SIZE,
        count_max: 4,
    };
    let extents = match run(&mut reactor, store, request).unwrap() {
        IoAnswer::Extents(extents) => extents,
        other => panic!("{other:?}"),
    };
    // Zeros that were written behind it may count as unmapped in a file.
    let unmapped = |extent: &Extent| {
        !extent.mapped && extent.range.start == 12_288 && extent.range.end >= 1 << 20
    };
    assert!(extents.iter().any(unmapped), "{extents:?}");
    send_from_the_store(&mut reactor, all, &model);
    assert_eq!(reactor.in_flight(), 0);
}

/// Data goes out from where the store has it, zero field and medium alike.
fn send_from_the_store(reactor: &mut Reactor, all: Payload, model: &[u8]) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_read_timeout(Some(HANG)).unwrap();
    let (ours, _) = listener.accept().unwrap();
    let socket = Socket::new(ours.into()).unwrap();
    let len = all.len();
    let mut message = Message::default();
    let payload = message.push_payload(all);
    message.push_part(payload, 0, len);
    let peer = std::thread::spawn(move || {
        let mut bytes = vec![0xff; len];
        peer.read_exact(&mut bytes).unwrap();
        bytes
    });
    reactor.send(&socket, 1, message, SendEnd::Wakes);
    match event(reactor) {
        Event::Sent { result, .. } => result.unwrap(),
        other => panic!("{other:?}"),
    }
    assert!(peer.join().unwrap() == model);
}

#[test]
fn a_memory_disk_keeps_its_data() {
    let mut options = OpenOptions::new(StoreKind::Memory, "");
    options.size_bytes = Some(SIZE);
    exercise(&options);
}

#[test]
fn a_file_keeps_its_data_in_every_cache_mode() {
    for cache in [
        CacheMode::WriteBack,
        CacheMode::WriteThrough,
        CacheMode::Direct,
    ] {
        let name = format!("tarn-reactor-{}-{cache:?}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = OpenOptions::new(StoreKind::File, &path);
        options.size_bytes = Some(SIZE);
        options.cache = cache;
        exercise(&options);
        drop(std::fs::remove_file(&path));
    }
}
