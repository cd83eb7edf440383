//! The layer over a cluster in memory.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use memory::{Payload, Pool};

use super::testing::{FakeCluster, Faults, Manner, library};
use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

fn image(fake: &FakeCluster) -> Image {
    let within = Patience::Within(Duration::from_secs(1));
    let cluster = Arc::new(Cluster::connect(library(), &fake.options(), within).unwrap());
    Image::open(cluster.pool("rbd", "").unwrap(), "disk", &Mode::Write).unwrap()
}

/// A `done` and what it is called with.
fn wait() -> (
    impl FnOnce(Completion) + Send + 'static,
    mpsc::Receiver<Completion>,
) {
    let (sender, receiver) = mpsc::channel();
    (move |completion| sender.send(completion).unwrap(), receiver)
}

#[test]
fn memory_comes_back_with_its_completion() {
    let fake = FakeCluster::new(1 << 20);
    let image = image(&fake);
    let pool = Pool::new(0).unwrap();
    let mut buffer = pool.allocate(4096).unwrap();
    buffer.fill(7);
    let (done, end) = wait();
    let lent = image.write(8192, Payload::Pool(buffer), done).unwrap();
    let completion = end.recv_timeout(PATIENCE).unwrap();
    assert_eq!(completion.result, Ok(0));
    assert!(lent.end(&completion).is_some());
    assert_eq!(
        (fake.byte(8191), fake.byte(8192), fake.byte(12287)),
        (0, 7, 7)
    );
    let (done, end) = wait();
    let lent = image
        .read(8192, pool.allocate(4096).unwrap(), done)
        .unwrap();
    let completion = end.recv_timeout(PATIENCE).unwrap();
    assert_eq!(completion.result, Ok(4096));
    assert_eq!(*lent.end(&completion).unwrap(), [7; 4096]);
    assert_eq!(pool.free_bytes(), pool.capacity_bytes());
}

#[test]
fn memory_whose_request_has_not_ended_is_leaked() {
    let fake = FakeCluster::new(1 << 20);
    let image = image(&fake);
    let pool = Pool::new(0).unwrap();
    fake.treat_next([Manner::Held]);
    let (done, end) = wait();
    let lent = image.read(0, pool.allocate(4096).unwrap(), done).unwrap();
    let (free, leaked) = (pool.free_bytes(), memory::leaked_bytes());
    drop(lent);
    assert_eq!(pool.free_bytes(), free);
    assert!(memory::leaked_bytes() >= leaked + 4096);
    fake.release();
    assert_eq!(end.recv_timeout(PATIENCE).unwrap().result, Ok(4096));
}

#[test]
fn errors_and_differences_arrive() {
    let fake = FakeCluster::new(1 << 20);
    let image = image(&fake);
    fake.treat_next([Manner::Fails(libc::ENOSPC)]);
    let (done, end) = wait();
    image.write_zeroes(0..4096, false, done).unwrap();
    assert_eq!(
        end.recv_timeout(PATIENCE).unwrap().result,
        Err(libc::ENOSPC)
    );
    let mut data = vec![0; 1024];
    data[5] = 1;
    let (done, end) = wait();
    let lent = image
        .compare_and_write(0, Payload::Heap(data), done)
        .unwrap();
    let completion = end.recv_timeout(PATIENCE).unwrap();
    assert_eq!(
        (completion.result, completion.mismatch),
        (Err(libc::EILSEQ), 5)
    );
    drop(lent.end(&completion));
    let (done, end) = wait();
    image.flush(done).unwrap();
    assert_eq!(end.recv_timeout(PATIENCE).unwrap().result, Ok(0));
}

#[test]
fn an_image_says_what_it_is_and_who_has_it() {
    let fake = FakeCluster::new(1 << 20);
    let image = image(&fake);
    assert_eq!(image.size_bytes(), Ok(1 << 20));
    assert_eq!(image.id(), "abc123");
    assert_eq!(
        (image.has_exclusive_lock(), image.has_cache()),
        (Ok(true), Ok(false))
    );
    assert_eq!(image.lock(), Ok(Lock::Free));
    let (address, errno) = ("192.0.2.1:0/77".to_owned(), libc::EROFS);
    for is_alive in [true, false] {
        fake.set_faults(Faults {
            owner: Some((address.clone(), is_alive)),
            lock: Some(errno),
            ..Faults::default()
        });
        match image.lock().unwrap() {
            Lock::Held {
                holder,
                is_alive: found,
            } => assert_eq!((holder.to_string(), found), (address.clone(), is_alive)),
            other @ (Lock::Free | Lock::Own { .. }) => panic!("{other:?}"),
        }
        assert_eq!(image.acquire_lock().unwrap_err().errno, errno);
    }
    let Lock::Held { holder, .. } = image.lock().unwrap() else {
        panic!("nobody has it");
    };
    fake.set_owner(Some(("192.0.2.1:0/78", true)));
    assert_eq!(image.break_lock(&holder).unwrap_err().errno, libc::EBUSY);
    fake.set_owner(Some((&address, true)));
    image.break_lock(&holder).unwrap();
    assert_eq!(image.lock(), Ok(Lock::Free));
    assert_eq!(image.break_lock(&holder).unwrap_err().errno, libc::ENOENT);
    let (sender, changes) = mpsc::channel();
    let watch = image.watch(move || sender.send(()).unwrap()).unwrap();
    fake.resize(2 << 20);
    changes.recv_timeout(PATIENCE).unwrap();
    assert_eq!(image.size_bytes(), Ok(2 << 20));
    image.end_watch(watch);
    assert!(changes.recv().is_err(), "what the watch has is dropped");
    let (done, end) = wait();
    let lent = image
        .write(1 << 20, Payload::Heap(vec![1; 512]), done)
        .unwrap();
    drop(lent.end(&end.recv_timeout(PATIENCE).unwrap()));
    let mapped = image.mapped(0..2 << 20, 4).unwrap();
    assert_eq!(mapped.len(), 1);
    assert_eq!(mapped[0], 1 << 20..(1 << 20) + (64 << 10));
}

#[test]
fn an_image_grows_and_never_shrinks() {
    let fake = FakeCluster::new(1 << 20);
    let image = image(&fake);
    image.grow(2 << 20).unwrap();
    assert_eq!(image.size_bytes(), Ok(2 << 20));
    assert_eq!(image.grow(1 << 20).unwrap_err().errno, libc::EINVAL);
}

#[test]
fn metadata_of_any_length_comes_back() {
    let fake = FakeCluster::new(1 << 20);
    let image = image(&fake);
    assert_eq!(image.metadata("tarn.a"), Ok(None));
    for value in ["", "a b", &"x".repeat(4095), &"y".repeat(70_000)] {
        image.set_metadata("tarn.a", value).unwrap();
        assert_eq!(image.metadata("tarn.a").unwrap().unwrap(), value);
    }
    assert_eq!(
        image.set_metadata("tarn.a", "a\0b").unwrap_err().errno,
        libc::EINVAL
    );
    fake.set_metadata("tarn.b", &"z".repeat(17 << 20));
    assert_eq!(image.metadata("tarn.b").unwrap_err().errno, libc::ERANGE);
}

#[test]
fn an_image_is_made_once() {
    let fake = FakeCluster::new(1 << 20);
    let within = Patience::Within(Duration::from_secs(1));
    let cluster = Arc::new(Cluster::connect(library(), &fake.options(), within).unwrap());
    let pool = cluster.pool("rbd", "").unwrap();
    fake.remove_image();
    pool.create_image("disk", 3 << 20).unwrap();
    let error = pool.create_image("disk", 3 << 20).unwrap_err();
    assert_eq!(error.errno, libc::EEXIST);
    assert_eq!(image(&fake).size_bytes(), Ok(3 << 20));
}

#[test]
fn everything_is_closed_when_it_is_dropped() {
    let fake = FakeCluster::new(1 << 20);
    let image = image(&fake);
    assert_eq!(fake.counts(), (1, 1, 1));
    drop(image);
    assert_eq!(fake.counts(), (0, 1, 0));
}

#[test]
fn what_is_not_there_is_an_error_of_its_call() {
    let fake = FakeCluster::new(1 << 20);
    let within = Patience::Within(Duration::from_secs(1));
    let nowhere = ClusterOptions {
        conf: Some("nowhere".into()),
        ..ClusterOptions::default()
    };
    let error = Cluster::connect(library(), &nowhere, within).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rados_conf_read_file: No such file or directory"
    );
    let cluster = Arc::new(Cluster::connect(library(), &fake.options(), within).unwrap());
    assert_eq!(
        cluster.pool("none", "").unwrap_err().call,
        "rados_ioctx_create"
    );
    let open = |name: &str, mode: &Mode| Image::open(cluster.pool("rbd", "").unwrap(), name, mode);
    assert_eq!(open("none", &Mode::Write).unwrap_err().call, "rbd_open");
    let snapshot = |name: &str| Mode::Read {
        snapshot: Some(name.to_owned()),
    };
    assert!(open("disk", &snapshot("yesterday")).is_ok());
    assert_eq!(
        open("disk", &snapshot("never")).unwrap_err().call,
        "rbd_open"
    );
    assert_eq!(open("a\0b", &Mode::Write).unwrap_err().errno, libc::EINVAL);
}

#[test]
fn an_image_has_snapshots_and_goes_back_to_one() {
    let fake = FakeCluster::new(1 << 20);
    let image = image(&fake);
    assert_eq!(image.snapshots().unwrap(), []);
    for n in 0..70 {
        image.take_snapshot(&format!("s{n}")).unwrap();
    }
    image.take_snapshot("in trash").unwrap();
    let all = image.snapshots().unwrap();
    assert_eq!(
        (all.len(), &*all[69].name, all[69].size_bytes),
        (70, "s69", 1 << 20)
    );
    assert_eq!(image.take_snapshot("s1").unwrap_err().errno, libc::EEXIST);
    image.rename_snapshot("s1", "one").unwrap();
    assert_eq!(
        image.rename_snapshot("one", "s2").unwrap_err().errno,
        libc::EEXIST
    );
    image.remove_snapshot("s2").unwrap();
    assert_eq!(image.remove_snapshot("s2").unwrap_err().errno, libc::ENOENT);
    image.grow(2 << 20).unwrap();
    let ended = image.roll_back("one", &|_, _| false).unwrap_err();
    assert_eq!(
        (ended.errno, image.size_bytes()),
        (libc::ECANCELED, Ok(2 << 20))
    );
    let seen = std::sync::Mutex::new(Vec::new());
    let note = |done, all| {
        seen.lock().unwrap().push((done, all));
        true
    };
    image.roll_back("one", &note).unwrap();
    assert_eq!(*seen.lock().unwrap(), [(0, 4), (1, 4), (2, 4), (3, 4)]);
    assert_eq!(image.size_bytes(), Ok(1 << 20));
}

#[test]
fn a_snapshot_has_clones_and_a_clone_is_flattened() {
    let fake = FakeCluster::new(1 << 20);
    let image = image(&fake);
    image.take_snapshot("a").unwrap();
    assert_eq!(image.is_snapshot_protected("a"), Ok(false));
    assert_eq!(image.clones("a").unwrap(), [""; 0]);
    let pool = image.other_pool("rbd", "").unwrap();
    image.clone_to(("disk", "a"), &pool, "copy").unwrap();
    assert_eq!(
        image
            .clone_to(("disk", "b"), &pool, "copy")
            .unwrap_err()
            .errno,
        libc::ENOENT
    );
    assert_eq!(image.clones("a").unwrap(), ["rbd/copy"]);
    pool.remove_image("copy").unwrap();
    assert_eq!(pool.remove_image("copy").unwrap_err().errno, libc::ENOENT);
    fake.protect_snapshots();
    assert_eq!(image.is_snapshot_protected("a"), Ok(true));
    assert_eq!(image.remove_snapshot("a").unwrap_err().errno, libc::EBUSY);
    assert_eq!(image.flatten(&|_, _| true).unwrap_err().errno, libc::EINVAL);
    fake.make_clone();
    assert_eq!(
        image.flatten(&|_, _| false).unwrap_err().errno,
        libc::ECANCELED
    );
    image.flatten(&|_, _| true).unwrap();
}

#[test]
fn an_image_has_its_own_objects_and_its_snapshots_have_those_that_differ() {
    const OBJECT: u64 = 64 << 10;
    let fake = FakeCluster::new(1 << 20);
    let image = image(&fake);
    let write = |at: u64| {
        let (sender, ended) = mpsc::channel();
        let data = Payload::Heap(vec![7; 512]);
        let lent = image.write(at, data, move |ended| sender.send(ended).unwrap());
        lent.unwrap().end(&ended.recv().unwrap());
    };
    let own = |image: &Image, since| image.own_bytes(since, 0..1 << 20, &|| true);
    assert_eq!(
        (image.knows_objects(), own(&image, None)),
        (Ok(true), Ok(0))
    );
    write(0);
    write(5 * OBJECT);
    assert_eq!(own(&image, None), Ok(2 * OBJECT));
    image.take_snapshot("a").unwrap();
    assert_eq!(own(&image, Some("a")), Ok(0));
    image.grow(2 << 20).unwrap();
    write(9 * OBJECT);
    assert_eq!(own(&image, Some("a")), Ok(OBJECT));
    let there = image.at_snapshot("a").unwrap();
    assert_eq!(own(&there, None), Ok(2 * OBJECT));
    let ended = image.own_bytes(None, 0..1 << 20, &|| false).unwrap_err();
    assert_eq!(ended.errno, libc::ECANCELED);
    let missing = own(&image, Some("b")).unwrap_err();
    assert_eq!(missing.errno, libc::ENOENT);
    assert_eq!(image.at_snapshot("b").unwrap_err().errno, libc::ENOENT);
}

#[test]
fn the_lock_of_a_client_of_this_process_is_its_own_also_after_its_end() {
    let fake = FakeCluster::new(1 << 20);
    let (one, other) = (image(&fake), image(&fake));
    one.acquire_lock().unwrap();
    let address = one.cluster().address().to_owned();
    assert_eq!(fake.owner().as_ref(), Some(&address));
    let own = |is_this| Lock::Own {
        is_this,
        address: address.clone(),
    };
    assert_eq!((one.lock(), other.lock()), (Ok(own(true)), Ok(own(false))));
    // The library takes it for gone, as its watch has ended, and would blocklist it.
    fake.set_owner(Some((&address, false)));
    assert_eq!(other.acquire_lock().unwrap_err().errno, libc::EALREADY);
    assert!(fake.clients().iter().all(|(_, is_fenced)| !is_fenced));
    drop(one);
    fake.set_owner(Some((&address, false)));
    assert_eq!(other.lock(), Ok(own(false)));
    other.acquire_lock().unwrap();
}

#[test]
fn any_call_shows_that_a_client_was_blocklisted() {
    let fake = FakeCluster::new(1 << 20);
    type Call = fn(&Image) -> Result<(), CallError>;
    let calls: [Call; 4] = [
        |image| image.set_metadata("key", "value"),
        |image| image.acquire_lock(),
        |image| image.snapshots().map(drop),
        |image| image.id_named("disk").map(drop),
    ];
    for call in calls {
        let image = image(&fake);
        assert_eq!((call(&image), image.cluster().is_fenced()), (Ok(()), false));
        fake.fence_all();
        let error = call(&image).unwrap_err();
        assert_eq!(error.errno, libc::ESHUTDOWN);
        assert!(image.cluster().is_fenced());
    }
}

#[test]
fn an_image_is_found_by_its_identity_and_not_cloned_by_the_name_of_another() {
    let fake = FakeCluster::new(1 << 20);
    let image = image(&fake);
    image.take_snapshot("a").unwrap();
    let pool = image.other_pool("rbd", "").unwrap();
    assert_eq!(pool.image_id("disk").unwrap().as_deref(), Some("abc123"));
    for name_of in [Some("def456"), None] {
        fake.rename(name_of);
        assert_eq!(pool.image_id("disk").unwrap().as_deref(), name_of);
        let by_id = Image::open_by_id(image.other_pool("rbd", "").unwrap(), "abc123", &Mode::Write);
        assert_eq!(by_id.unwrap().id(), "abc123");
        assert_eq!(image.at_snapshot("a").unwrap().id(), "abc123");
        let refused = image.clone_to(("disk", "a"), &pool, "copy").unwrap_err();
        assert_eq!(refused.errno, libc::ESTALE);
        assert_eq!(image.clones("a").unwrap(), [""; 0]);
    }
}
