//! The write cache of a unit: whether it is on, and what of it a flush has still to cover.

/// Whether writes may be answered before they are durable.
///
/// A cache that goes off is shown as on (WCE) until a flush has succeeded that began after it went off, and in the same
/// [epoch](Self::epoch).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WriteCache {
    state: State,
    /// It is off, and what it held may not be on the medium.
    is_unflushed: bool,
    /// How often it was switched on.
    epoch: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    On,
    /// An initiator has switched it off.
    Off,
    /// The store writes through, and no initiator can change that.
    Through {
        /// It was on before.
        was_on: bool,
    },
}

impl WriteCache {
    /// That of a unit which begins: of a store with a volatile cache, or of one without.
    pub const fn new(is_there: bool, is_on: bool) -> Self {
        Self {
            state: match (is_there, is_on) {
                (false, _) => State::Through { was_on: false },
                (true, true) => State::On,
                (true, false) => State::Off,
            },
            is_unflushed: false,
            epoch: 0,
        }
    }

    /// Initiators can switch it.
    pub const fn is_there(self) -> bool {
        !matches!(self.state, State::Through { .. })
    }

    /// A write need not be durable when it is answered.
    pub const fn is_on(self) -> bool {
        matches!(self.state, State::On)
    }

    /// It is off, and no flush since then is known to have succeeded.
    pub const fn is_unflushed(self) -> bool {
        self.is_unflushed
    }

    /// Initiators see it as on.
    pub const fn is_shown(self) -> bool {
        self.is_on() || self.is_unflushed
    }

    /// Something that was answered may not be on the medium.
    pub const fn may_hold(self) -> bool {
        self.is_there() || self.is_unflushed
    }

    /// A flush covers what was written in the epoch in which it began, and before.
    pub const fn epoch(self) -> u64 {
        self.epoch
    }

    /// An initiator switches it.
    pub const fn switch(&mut self, is_on: bool) {
        match (self.state, is_on) {
            (State::Through { .. }, _) => {}
            (_, true) => self.enter(State::On),
            (_, false) => self.enter(State::Off),
        }
    }

    /// An administrator has the store write through.
    pub const fn write_through(&mut self) {
        let was_on = self.is_on();
        if self.is_there() {
            self.enter(State::Through { was_on });
        }
    }

    /// That is taken back: it is as it was before.
    pub const fn take_back(&mut self) {
        match self.state {
            State::Through { was_on: true } => self.enter(State::On),
            State::Through { was_on: false } => self.enter(State::Off),
            State::On | State::Off => {}
        }
    }

    /// An administrator has the store write back: it is on.
    pub const fn write_back(&mut self) {
        self.enter(State::On);
    }

    /// A flush that began in this epoch, when it was off, has succeeded.
    pub const fn note_flushed(&mut self, epoch: u64) {
        if epoch == self.epoch && !self.is_on() {
            self.is_unflushed = false;
        }
    }

    const fn enter(&mut self, state: State) {
        match (self.state, state) {
            (State::On, State::On) => {}
            (State::On, State::Off | State::Through { .. }) => self.is_unflushed = true,
            (State::Off | State::Through { .. }, State::On) => {
                self.is_unflushed = false;
                self.epoch += 1;
            }
            (State::Off | State::Through { .. }, State::Off | State::Through { .. }) => {}
        }
        self.state = state;
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cache_begins_as_it_was_and_goes_back_to_that() {
        for (is_there, is_on, seen, back) in [
            (false, false, [false; 4], false),
            (false, true, [false; 4], false),
            (true, false, [true, false, false, true], false),
            (true, true, [true; 4], true),
        ] {
            let mut cache = WriteCache::new(is_there, is_on);
            let all = |cache: WriteCache| {
                [
                    cache.is_there(),
                    cache.is_on(),
                    cache.is_shown(),
                    cache.may_hold(),
                ]
            };
            assert_eq!((all(cache), cache.epoch()), (seen, 0));
            cache.write_through();
            let shown = is_there && is_on;
            assert_eq!(all(cache), [false, false, shown, shown]);
            cache.take_back();
            assert_eq!(all(cache), [true, back, back, true]);
            assert_eq!(cache.epoch(), u64::from(back));
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Switch(bool),
        WriteThrough,
        TakeBack,
        WriteBack,
        Write,
        BeginFlush,
        EndFlush(usize),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            any::<bool>().prop_map(Event::Switch),
            Just(Event::WriteThrough),
            Just(Event::TakeBack),
            Just(Event::WriteBack),
            Just(Event::Write),
            Just(Event::BeginFlush),
            (0_usize..4).prop_map(Event::EndFlush),
        ]
    }

    /// Keeps every write by itself, and which of them each flush covers.
    #[derive(Default)]
    struct Model {
        /// Those that are not durable, by their numbers.
        cached: Vec<u64>,
        writes: u64,
        /// The epoch of each flush that is under way while the cache is off, and the writes before it.
        flushes: Vec<(u64, u64)>,
    }

    proptest! {
        #[test]
        fn a_cache_that_is_shown_as_off_holds_nothing(is_there: bool, is_on: bool, events in vec(event(), 0..60)) {
            let mut cache = WriteCache::new(is_there, is_on);
            let mut model = Model::default();
            let mut before: Option<(bool, bool)> = None;
            for event in events {
                match event {
                    Event::Switch(is_on) => {
                        let is_there = cache.is_there();
                        cache.switch(is_on);
                        prop_assert_eq!(cache.is_on(), is_there && is_on);
                    }
                    Event::WriteThrough => {
                        if cache.is_there() {
                            before = Some((true, cache.is_on()));
                        }
                        cache.write_through();
                        prop_assert!(!cache.is_there() && !cache.is_on());
                    }
                    Event::TakeBack => {
                        let was_there = cache.is_there();
                        let was_on = cache.is_on();
                        cache.take_back();
                        let (_, on) = before.unwrap_or((false, false));
                        prop_assert!(cache.is_there());
                        prop_assert_eq!(cache.is_on(), if was_there { was_on } else { on });
                    }
                    Event::WriteBack => {
                        cache.write_back();
                        prop_assert!(cache.is_there() && cache.is_on());
                    }
                    Event::Write => {
                        model.writes += 1;
                        if cache.is_on() {
                            model.cached.push(model.writes);
                        }
                    }
                    Event::BeginFlush => {
                        // Only one that is off is flushed so that it is shown as off.
                        if !cache.is_on() {
                            model.flushes.push((cache.epoch(), model.writes));
                        }
                    }
                    Event::EndFlush(at) if at < model.flushes.len() => {
                        let (epoch, covered) = model.flushes.remove(at);
                        model.cached.retain(|write| *write > covered);
                        cache.note_flushed(epoch);
                        if epoch == cache.epoch() && !cache.is_on() {
                            prop_assert!(!cache.is_shown());
                        }
                    }
                    Event::EndFlush(_) => {}
                }
                if !model.cached.is_empty() {
                    prop_assert!(cache.is_shown() && cache.may_hold());
                }
                if cache.is_on() {
                    prop_assert!(cache.is_shown());
                }
                prop_assert!(cache.is_there() || cache.may_hold() == cache.is_shown());
            }
        }
    }
}
