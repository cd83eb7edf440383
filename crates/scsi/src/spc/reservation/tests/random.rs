//! Random sequences against the invariants.

use super::*;
use std::collections::HashSet;

/// SplitMix64; equal seeds give equal sequences.
struct Prng(u64);

impl Prng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        let at = usize::try_from(self.below(u64::try_from(from.len()).unwrap())).unwrap();
        from[at].clone()
    }
}

fn random_command(prng: &mut Prng, own_key: Option<u64>) -> (Vec<u8>, Vec<u8>) {
    let action = u8::try_from(prng.below(10)).unwrap();
    let kind = prng.pick(&[WE, EA, WERO, EARO, WEAR, EAAR, 0]);
    let flags = prng.pick(&[0, 0, 0, APTPL, ALL_TG_PT, SPEC_I_PT | APTPL]);
    let mut command = out(action, prng.below(4), prng.below(4))
        .kind(kind)
        .flags(flags);
    if flags & SPEC_I_PT != 0 {
        command.ids = initiator(usize::try_from(prng.below(6)).unwrap()).to_vec();
    }
    // Without a hint the right key would be rare, and with it what takes several steps.
    if prng.below(4) != 0 {
        command.key = own_key.unwrap_or(0);
    }
    let mut list = command.list();
    if action == REGISTER_AND_MOVE {
        let to = initiator(usize::try_from(prng.below(6)).unwrap());
        list.truncate(16);
        list.extend_from_slice(&[0, prng.pick(&[0, 1, 2, 3]), 0, prng.pick(&[1, 1, 2])]);
        list.extend_from_slice(&u32::try_from(to.len()).unwrap().to_be_bytes());
        list.extend_from_slice(&to);
    }
    (cdb(action, 0, kind, list.len()), list)
}

fn check(before: &Reservations, after: &Reservations, from: &PortName, effects: &Effects) {
    let ports: HashSet<_> = after.registrations.iter().map(|one| &one.port).collect();
    assert_eq!(ports.len(), after.registrations.len(), "registered twice");
    assert!(after.registrations.iter().all(|one| one.key != 0));
    if let Some(held) = &after.held {
        assert_eq!(held.by.is_none(), held.kind.is_all_registrants());
        assert!(!ports.is_empty());
        assert!(held.by.iter().all(|holder| ports.contains(holder)));
    }
    let step = after.generation.wrapping_sub(before.generation);
    assert!(
        step <= 1,
        "the generation went from {} to {}",
        before.generation,
        after.generation
    );
    if before.registrations != after.registrations {
        assert_eq!(step, 1, "registrations changed unnoticed");
    }
    for (port, attention) in &effects.attentions {
        assert_ne!(port, from, "the sender gets {attention:?}");
        assert!(
            before.key_of(port).is_some(),
            "an unregistered nexus gets {attention:?}"
        );
    }
    // Who loses a registration to someone else learns of it.
    for lost in before
        .registrations
        .iter()
        .filter(|one| after.key_of(&one.port).is_none())
    {
        let by_itself = lost.port.transport_id == from.transport_id;
        let is_notified = effects
            .attentions
            .iter()
            .any(|(port, _)| *port == lost.port);
        assert!(by_itself || is_notified, "{:?} was not notified", lost.port);
    }
    let has_changed = before.encode() != after.encode();
    assert_eq!(effects.persist, has_changed);
    let decoded = Reservations::decode(&after.encode()).unwrap();
    assert_eq!(
        decoded.registrations.is_empty(),
        !after.is_kept || ports.is_empty()
    );
    assert_eq!(decoded.encode(), after.encode());
}

#[test]
fn random_sequences_keep_the_invariants() {
    let mut accepted = [0u32; 10];
    for seed in 0..200 {
        let mut prng = Prng(seed);
        let mut unit = Unit::default();
        for _ in 0..100 {
            let from = through(
                usize::try_from(prng.below(4)).unwrap(),
                prng.pick(&[1, 1, 2]),
            );
            let (cdb, list) = random_command(&mut prng, unit.state.key_of(&from));
            let before = unit.state.clone();
            // The harness asserts that a refusal changes nothing.
            if let Ok(effects) = unit.raw(&from, &cdb, &list) {
                accepted[usize::from(cdb[1])] += 1;
                check(&before, &unit.state, &from, &effects);
            }
        }
    }
    // The sequences get somewhere: each service action but the last two was carried out.
    assert!(
        accepted[..8].iter().all(|&count| count > 20),
        "{accepted:?}"
    );
    assert_eq!(accepted[8..], [0, 0]);
}

#[test]
fn random_bytes_are_refused_or_obeyed_but_never_break_anything() {
    let mut prng = Prng(7);
    let mut unit = Unit::held_by_a(WERO);
    for _ in 0..20_000 {
        let length = usize::try_from(prng.below(80)).unwrap();
        let mut list: Vec<u8> = (0..length)
            .map(|_| prng.next().to_be_bytes()[0] & 0x47)
            .collect();
        if let Some(flags) = list.get_mut(20) {
            *flags |= 0x08;
        }
        let mut cdb = cdb(prng.next().to_be_bytes()[0], 0, 1, length);
        cdb[1] &= 0x1f;
        let from = nexus(A);
        let before = unit.state.clone();
        if let Ok(effects) = unit.raw(&from, &cdb, &list) {
            check(&before, &unit.state, &from, &effects);
        }
        let record: Vec<u8> = (0..length).map(|_| prng.next().to_be_bytes()[0]).collect();
        assert!(Reservations::decode(&record).is_err());
    }
}
