//! By which connection a flush goes.

use super::*;

impl World {
    /// All connections break; what was not flushed is gone.
    pub(super) fn crash(&mut self) {
        self.go_down();
        self.server.disk.clone_from(&self.server.stable);
        for core in &mut self.cores {
            let broken = std::mem::take(&mut core.connections);
            for socket in broken.into_keys() {
                core.end_receive(socket, 104);
            }
        }
    }

    /// The connection of a core breaks.
    fn cut(&mut self, core: usize) {
        let core = &mut self.cores[core];
        let socket = *core.connections.keys().next().unwrap();
        core.connections.remove(&socket);
        core.end_receive(socket, 104);
    }

    /// Whether what a core's connection brings comes to a server that does nothing.
    fn set_dead(&mut self, core: usize, is_dead: bool) {
        let connection = self.cores[core].connections.values_mut().next();
        connection.unwrap().is_dead = is_dead;
    }
}

/// One connection is made again, to the server that has taken the place of the former one; the other does not know yet
/// that its server is no more.
#[test]
fn a_flush_goes_by_a_connection_that_was_there_before_the_writes() {
    for is_lost in [true, false] {
        let mut world = World::new(Wishes {
            cores: 2,
            flags: CAN_ALL | CAN_MULTI_CONN,
            ..Wishes::default()
        });
        world.pass(Duration::from_secs(2));
        world.go_down();
        world.cut(0);
        world.run();
        let write = world.write(1, 0, 1, 512, false);
        assert!(world.is_good(1, write));
        if is_lost {
            world.server.disk.clone_from(&world.server.stable);
            world.set_dead(1, true);
        }
        world.come_up();
        world.pass(Duration::from_secs(2));
        assert_eq!(world.cores[0].connections.len(), 1, "it is up");
        let flush = world.submit(0, IoRequest::Flush);
        let answer = world.answer(0, flush);
        assert_eq!(answer.is_none(), is_lost);
        if is_lost {
            world.cut(1);
            assert!(world.is_good(0, flush));
        }
        assert_eq!(world.lost(), u64::from(is_lost));
        assert_eq!(world.flush_now(0), Ok(()), "by its own connection");
        assert_eq!(world.flush_now(1), Ok(()));
    }
}

/// Each connection that a flush is sent on is lost, on either core.
#[test]
fn a_flush_that_every_connection_is_lost_for_ends_wherever_it_goes() {
    let mut world = World::new(Wishes {
        cores: 2,
        flags: CAN_ALL | CAN_MULTI_CONN,
        ..Wishes::default()
    });
    world.run();
    let write = world.write(1, 0, 1, 512, false);
    assert!(world.is_good(1, write));
    world.server.error = 108;
    let flush = world.submit(0, IoRequest::Flush);
    world.pass(Duration::from_secs(4 * u64::from(LOSSES_MAX)));
    let answer = world.answer(0, flush);
    assert!(matches!(answer, Some(Err(_))), "{answer:?}");
    // One that is cancelled while another core has it ends with the next connection.
    let flush = world.submit(0, IoRequest::Flush);
    world.run();
    let core = &mut world.cores[0];
    core.handle.cancel(flush, &mut core.outlet);
    world.pass(Duration::from_secs(4));
    assert!(matches!(world.answer(0, flush), Some(Err(_))));
    world.server.error = 0;
    world.pass(Duration::from_secs(4));
    assert_eq!(world.flush_now(0), Ok(()));
    assert_eq!(world.flush_now(1), Ok(()));
}

/// Of two connections one is down, then up again, and may lead to a server that has taken the place of the former one.
#[test]
fn a_core_without_connections_has_a_flush_done_where_it_covers_everything() {
    for is_up_again in [false, true] {
        let mut world = World::new(Wishes {
            cores: 4,
            flags: CAN_ALL | CAN_MULTI_CONN,
            ..Wishes::default()
        });
        world.pass(Duration::from_secs(2));
        world.go_down();
        world.cut(0);
        world.run();
        let write = world.write(1, 0, 1, 512, false);
        assert!(world.is_good(1, write));
        world.come_up();
        if is_up_again {
            world.pass(Duration::from_secs(2));
        }
        for core in [2, 3] {
            let write = world.write(1, 0, 1, 512, false);
            assert!(world.is_good(1, write));
            assert_eq!(world.flush_now(core), Ok(()));
        }
        assert_eq!(world.lost(), 0);
    }
}

/// A write is under way to a server that is no more when another connection comes up to the next one; its answer comes
/// after that.
#[test]
fn a_new_connection_does_not_cover_a_write_that_had_begun_before_it() {
    let mut world = World::new(Wishes {
        cores: 2,
        flags: CAN_ALL | CAN_MULTI_CONN,
        ..Wishes::default()
    });
    world.pass(Duration::from_secs(2));
    world.set_dead(1, true);
    let write = world.write(1, 0, 1, 512, false);
    world.run();
    world.go_down();
    world.cut(0);
    world.come_up();
    world.pass(Duration::from_secs(2));
    world.set_dead(1, false);
    assert!(world.is_good(1, write), "by the former server");
    world.set_dead(1, true);
    let flush = world.submit(0, IoRequest::Flush);
    let answer = world.answer(0, flush);
    assert!(
        answer.is_none(),
        "the new server has not got it: {answer:?}"
    );
    world.cut(1);
    assert!(world.is_good(0, flush));
    assert_eq!(world.lost(), 1);
    let write = world.write(1, 0, 1, 512, false);
    world.pass(Duration::from_secs(2));
    assert!(world.is_good(1, write));
    assert_eq!((world.flush_now(0), world.lost()), (Ok(()), 1));
}

#[test]
fn a_server_that_comes_back_with_a_cache_is_not_used() {
    const CAN_FLUSH: u16 = 4;
    let mut world = World::new(Wishes {
        flags: CAN_ALL & !CAN_FLUSH,
        ..Wishes::default()
    });
    world.run();
    world.server.flags = CAN_ALL;
    world.crash();
    world.come_up();
    world.pass(RETRY + Duration::from_secs(1));
    let write = world.write(0, 0, 1, 512, true);
    assert!(matches!(
        world.answer(0, write),
        Some(Err(IoFailure::NotReady))
    ));
    world.server.flags = CAN_ALL & !CAN_FLUSH;
    world.pass(Duration::from_secs(4));
    let write = world.write(0, 0, 1, 512, true);
    assert!(world.is_good(0, write));
}

/// Another Tarn is the server, which reports a lost cache to each connection once, and goes on.
#[test]
fn a_report_of_a_lost_cache_is_a_loss_and_no_failed_flush() {
    for cores in [1, 2] {
        let mut world = World::new(Wishes {
            cores,
            flags: CAN_ALL | CAN_MULTI_CONN,
            ..Wishes::default()
        });
        world.run();
        let write = world.write(0, 0, 1, 512, false);
        assert!(world.is_good(0, write));
        world.server.reports = 2;
        assert_eq!(world.flush_now(0), Ok(()), "it is sent again");
        assert_eq!(world.lost(), 1, "the engine reports this");
        let write = world.write(0, 0, 1, 512, true);
        assert!(world.is_good(0, write), "no latch");
        assert_eq!((world.flush_now(0), world.lost()), (Ok(()), 1));
        // One that never ends is no report.
        world.server.reports = u32::MAX;
        assert_eq!(world.flush_now(0), Err(IoFailure::NotReady));
        world.server.reports = 0;
        assert_eq!(world.flush_now(0), Ok(()));
    }
}
