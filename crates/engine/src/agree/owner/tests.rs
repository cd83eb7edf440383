use std::iter;
use std::ops::Range;

use scsi::{
    Cdb, DeviceType, Identity, Limits, Nexus, NexusId, Owner, PortName, Principal, Profile,
    TargetPort,
};
use store::Capabilities;

use super::*;
use std::io;

use crate::RequestNumber;
use crate::agree::{BlockSet, Round};

const CORES: usize = 3;
const PATIENCE: Duration = Duration::from_secs(6);
const START: Duration = Duration::from_secs(100);
/// What the unit was loaded from.
const RESTORED: Version = Version(4);

fn profile() -> Profile {
    Profile {
        device_type: DeviceType::Disk,
        identity: Identity {
            vendor: "TARN".to_owned(),
            product: "TEST".to_owned(),
            revision: "1".to_owned(),
            serial: "test".to_owned(),
            naa: vec![0x30, 0, 0, 0, 0, 0, 0, 1],
            eui: None,
            target_ports: vec![TargetPort {
                relative_id: 1,
                group: 1,
                scsi_name: "iqn.2026-11.example.tarn:test,t,0x0001".to_owned(),
                device_name: "iqn.2026-11.example.tarn:test".to_owned(),
                protocol_identifier: 5,
                protocol_version: 0x0960,
            }],
            task_management: [0xf8, 0],
            removable: false,
        },
        limits: Limits::default(),
        capabilities: Capabilities {
            reads_in_place: true,
            ..Capabilities::plain(1 << 20, 512)
        },
        keeps_state: true,
    }
}

fn nexus(number: u32) -> Nexus {
    let last = u8::try_from(number).unwrap();
    let mut transport_id = [0; 24];
    transport_id[0] = 0x45;
    transport_id[23] = last;
    Nexus {
        id: NexusId(number),
        port: PortName {
            transport_id: transport_id.into(),
            target_port: 1,
            principal: Principal::Nobody,
        },
        read_only: false,
    }
}

const fn ticket(core: usize, request: u64) -> Ticket {
    Ticket {
        core,
        request: RequestNumber(request),
    }
}

/// What an owner has said, in short.
#[derive(Debug, PartialEq)]
enum Said {
    Save,
    Install { generation: u64, aborts: usize },
    Changed(Ticket, Status, bool),
    Refuse(Vec<Range<u64>>, Round),
    Refused(Ticket),
    Raise(FenceNumber, Ticket),
    Granted(Ticket),
    Lower(FenceNumber),
}

struct Rig {
    owner: UnitOwner,
    now: Duration,
    saves: Vec<Save>,
}

impl Rig {
    fn new() -> Self {
        let owner = Owner::new(profile(), None).unwrap();
        let patience = Patience { change: PATIENCE };
        let mut rig = Self {
            owner: UnitOwner::new(owner, Some(RESTORED), CORES, patience),
            now: START,
            saves: Vec::new(),
        };
        for number in [1, 2] {
            let from = Some(nexus(number));
            let kind = ChangeKind::NexusAttached;
            let change = Change { from, kind };
            let ticket = Ticket::NOBODY;
            assert_eq!(rig.tell(ToOwner::Change { ticket, change }), []);
        }
        rig
    }

    fn said(&mut self) -> Vec<Said> {
        let mut said = Vec::new();
        while let Some(order) = self.owner.poll_order() {
            said.push(match order {
                Order::Save(save) => {
                    self.saves.push(save);
                    Said::Save
                }
                Order::PostToAll(ToCore::Install { shared, update }) => Said::Install {
                    generation: shared.generation,
                    aborts: update.abort.len(),
                },
                Order::PostToAll(ToCore::SetAccessRefused { blocks, round }) => {
                    Said::Refuse(blocks.ranges().to_vec(), round)
                }
                Order::PostToAll(ToCore::FenceRaise { fence, holder, .. }) => {
                    Said::Raise(fence, holder)
                }
                Order::PostToAll(ToCore::FenceLower { fence }) => Said::Lower(fence),
                Order::Post { core, message } => match message {
                    ToCore::Changed {
                        ticket,
                        reply,
                        is_complete,
                    } => {
                        assert_eq!(core, ticket.core);
                        Said::Changed(ticket, reply.status, is_complete)
                    }
                    ToCore::AccessRefused { ticket } => Said::Refused(ticket),
                    ToCore::FenceGranted { ticket } => Said::Granted(ticket),
                    other @ (ToCore::Install { .. }
                    | ToCore::SetAccessRefused { .. }
                    | ToCore::FenceRaise { .. }
                    | ToCore::FenceLower { .. }) => panic!("{other:?} to one core"),
                },
                Order::PostToAll(other) => panic!("{other:?} to all"),
            });
        }
        said
    }

    fn tell(&mut self, message: ToOwner) -> Vec<Said> {
        self.owner.handle(message, self.now);
        self.said()
    }

    /// The authority does what it should, with the version after the one that is replaced; or it fails.
    fn kept(&mut self, is_safe: bool) -> Vec<Said> {
        let replaces = self.saves.last().unwrap().replaces.unwrap();
        let failed = || SaveError::Failed(io::Error::other("full"));
        let outcome = is_safe.then_some(Version(replaces.0 + 1));
        self.saved(&outcome.ok_or_else(failed))
    }

    fn saved(&mut self, outcome: &Result<Version, SaveError>) -> Vec<Said> {
        self.owner.handle_saved(outcome, self.now);
        self.said()
    }

    /// Somebody else has saved.
    fn conflict(&mut self) -> Vec<Said> {
        let (found, advice) = (Version(9), String::new());
        self.saved(&Err(SaveError::Conflict { found, advice }))
    }

    /// The authority fails, and may have saved all the same.
    fn uncertain(&mut self) -> Vec<Said> {
        self.saved(&Err(SaveError::Uncertain(io::Error::other("no answer"))))
    }

    /// A change has failed and may be saved; the state in force could not be saved again.
    fn in_doubt(&mut self, key: u64) {
        let asker = ticket(1, 99);
        assert_eq!(self.change(asker, register(key)), [Said::Save]);
        assert_eq!(self.uncertain(), [Said::Save]);
        let answer = Said::Changed(asker, Status::CheckCondition, true);
        assert_eq!(self.kept(false), [answer]);
        assert!(self.owner.is_idle());
    }

    fn replaced(&self) -> Vec<u64> {
        let replaced = self.saves.iter().map(|save| save.replaces.unwrap().0);
        replaced.collect()
    }

    fn change(&mut self, ticket: Ticket, kind: ChangeKind) -> Vec<Said> {
        let from = Some(nexus(1));
        self.tell(ToOwner::Change {
            ticket,
            change: Change { from, kind },
        })
    }

    /// All cores confirm.
    fn installed(&mut self, is_complete: bool) -> Vec<Said> {
        let mut said = Vec::new();
        for core in 0..CORES {
            assert_eq!(said, [], "answered after {core} of {CORES} cores");
            let is_complete = is_complete || core > 0;
            said = self.tell(ToOwner::Installed { is_complete });
        }
        said
    }

    fn later(&mut self, by: Duration) -> Vec<Said> {
        self.now += by;
        self.owner.handle_timeout(self.now);
        self.said()
    }

    fn registrations(&self) -> usize {
        self.owner.shared().reservations.registration_count()
    }
}

/// PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY, kept over a power cycle.
fn register(key: u64) -> ChangeKind {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[8]) = (0x5f, 0x06, 24);
    let mut parameters = vec![0; 24];
    parameters[8..16].copy_from_slice(&key.to_be_bytes());
    parameters[20] = 1;
    let cdb = Cdb::new(&cdb);
    ChangeKind::Command { cdb, parameters }
}

/// START STOP UNIT, which is not kept.
fn stop() -> ChangeKind {
    let mut cdb = [0; 16];
    cdb[0] = 0x1b;
    ChangeKind::Command {
        cdb: Cdb::new(&cdb),
        parameters: Vec::new(),
    }
}

#[test]
fn a_change_is_answered_when_every_core_has_it() {
    let mut rig = Rig::new();
    let asker = ticket(1, 7);
    let (generation, aborts) = (1, 0);
    let install = Said::Install { generation, aborts };
    assert_eq!(rig.change(asker, stop()), [install]);
    assert!(!rig.owner.is_idle());
    let answer = Said::Changed(asker, Status::Good, true);
    assert_eq!(rig.installed(true), [answer]);
    assert!(rig.owner.is_idle());
}

#[test]
fn one_core_whose_tasks_have_not_ended_makes_the_answer_incomplete() {
    let mut rig = Rig::new();
    let asker = ticket(0, 7);
    let said = rig.change(asker, ChangeKind::LogicalUnitReset);
    assert!(
        matches!(said[..], [Said::Install { aborts: 1, .. }]),
        "{said:?}"
    );
    let answer = Said::Changed(asker, Status::Good, false);
    assert_eq!(rig.installed(false), [answer]);
}

#[test]
fn changes_come_one_after_the_other() {
    let mut rig = Rig::new();
    let (first, second) = (ticket(0, 1), ticket(2, 2));
    rig.change(first, stop());
    assert_eq!(rig.change(second, ChangeKind::LogicalUnitReset), []);
    let said = rig.installed(true);
    let (generation, aborts) = (2, 1);
    let install = Said::Install { generation, aborts };
    assert_eq!(said, [Said::Changed(first, Status::Good, true), install]);
    let answer = Said::Changed(second, Status::Good, true);
    assert_eq!(rig.installed(true), [answer]);
}

#[test]
fn a_change_that_changes_nothing_is_answered_at_once() {
    let mut rig = Rig::new();
    let blocks = rig.owner.shared().blocks;
    let asker = ticket(1, 1);
    let answer = Said::Changed(asker, Status::Good, true);
    let kind = ChangeKind::CapacityChanged { blocks };
    assert_eq!(rig.change(asker, kind), [answer]);
}

#[test]
fn nobody_sees_a_state_before_it_is_safe() {
    let mut rig = Rig::new();
    let asker = ticket(1, 1);
    assert_eq!(rig.change(asker, register(5)), [Said::Save]);
    assert_eq!(rig.registrations(), 0);
    let said = rig.kept(true);
    assert!(matches!(said[..], [Said::Install { .. }]), "{said:?}");
    assert_eq!(rig.registrations(), 1);
    assert_eq!(rig.saves[0].state, rig.owner.kept_state());
}

/// Whatever else the owner gets meanwhile: a refusal of access is no part of the state.
/// A set of one range.
fn one(range: Range<u64>) -> Vec<Range<u64>> {
    iter::once(range).collect()
}

#[test]
fn a_state_that_could_not_be_made_safe_never_comes_into_force() {
    let mut rig = Rig::new();
    let (asker, orphan) = (ticket(1, 1), ticket(2, 9));
    rig.change(asker, register(5));
    let round = Round(1);
    let named: BlockSet = iter::once(8..16).collect();
    let message = ToOwner::RefuseAccess {
        core: 2,
        blocks: named,
        ticket: Some(orphan),
    };
    let refuse = Said::Refuse(one(8..16), round);
    assert_eq!(rig.tell(message), [refuse]);
    let answer = Said::Changed(asker, Status::CheckCondition, true);
    assert_eq!(rig.kept(false), [answer]);
    assert_eq!(rig.registrations(), 0);
    for core in 1..CORES {
        assert_eq!(rig.tell(ToOwner::RefusalConfirmed { core, round }), []);
    }
    let answer = Said::Refused(orphan);
    let last = ToOwner::RefusalConfirmed { core: 0, round };
    assert_eq!(rig.tell(last), [answer]);
    assert!(!rig.owner.allows_access());
    let said = rig.tell(ToOwner::RefuseAccess {
        core: 2,
        blocks: BlockSet::default(),
        ticket: None,
    });
    assert_eq!(said, [Said::Refuse(Vec::new(), Round(2))]);
    assert!(rig.owner.allows_access());
    assert!(matches!(
        rig.change(asker, stop())[..],
        [Said::Install { .. }]
    ));
    rig.installed(true);
    assert_eq!(rig.registrations(), 0);
}

#[test]
fn a_state_that_is_kept_too_late_is_replaced_by_the_one_in_force() {
    let mut rig = Rig::new();
    let before = rig.owner.kept_state();
    let asker = ticket(1, 1);
    rig.change(asker, register(5));
    assert_eq!(rig.owner.poll_timeout(), Some(START + PATIENCE));
    assert_eq!(rig.later(PATIENCE - Duration::from_millis(1)), []);
    let answer = Said::Changed(asker, Status::CheckCondition, true);
    assert_eq!(rig.later(Duration::from_millis(1)), [answer]);
    assert_eq!(rig.owner.poll_timeout(), None);
    assert!(!rig.owner.is_idle());
    assert_eq!(rig.kept(true), [Said::Save]);
    assert_eq!(rig.saves.last().unwrap().state, before);
    assert_eq!(rig.kept(true), []);
    assert!(rig.owner.is_idle());
    assert_eq!(rig.registrations(), 0);
}

#[test]
fn a_state_that_is_given_up_and_then_fails_is_not_replaced() {
    let mut rig = Rig::new();
    rig.change(ticket(1, 1), register(5));
    rig.later(PATIENCE);
    assert_eq!(rig.kept(false), []);
    assert!(rig.owner.is_idle());
}

#[test]
fn what_a_failed_change_may_have_left_is_replaced_before_its_answer() {
    for gives_up in [false, true] {
        let mut rig = Rig::new();
        let before = rig.owner.kept_state();
        let asker = ticket(1, 1);
        let answer = || Said::Changed(asker, Status::CheckCondition, true);
        rig.change(asker, register(5));
        if gives_up {
            assert_eq!(rig.later(PATIENCE), [answer()]);
        }
        assert_eq!(rig.uncertain(), [Said::Save]);
        assert_eq!(rig.saves.last().unwrap().state, before);
        assert!(!rig.owner.is_idle());
        let said = rig.kept(true);
        assert_eq!(said, Vec::from_iter((!gives_up).then(answer)));
        assert!(rig.owner.is_idle());
        assert_eq!(rig.owner.poll_timeout(), None);
        assert_eq!(rig.registrations(), 0);
        assert_eq!(rig.replaced(), [RESTORED.0; 2]);
    }
}

#[test]
fn who_waits_for_the_state_in_force_to_be_saved_again_is_answered_at_the_deadline() {
    let mut rig = Rig::new();
    let asker = ticket(1, 1);
    rig.change(asker, register(5));
    rig.now += PATIENCE / 2;
    assert_eq!(rig.uncertain(), [Said::Save]);
    assert_eq!(rig.owner.poll_timeout(), Some(START + PATIENCE));
    let answer = Said::Changed(asker, Status::CheckCondition, true);
    assert_eq!(rig.later(PATIENCE / 2), [answer]);
    assert_eq!(rig.owner.poll_timeout(), None);
    assert_eq!(rig.kept(true), []);
    assert!(rig.owner.is_idle());
}

#[test]
fn the_state_in_force_is_saved_again_until_that_succeeds() {
    let mut rig = Rig::new();
    let before = rig.owner.kept_state();
    rig.in_doubt(5);
    for outcome in [false, true] {
        assert_eq!(rig.owner.poll_timeout(), Some(rig.now + RESTORE_PAUSE));
        let just_before = RESTORE_PAUSE - Duration::from_millis(1);
        assert_eq!(rig.later(just_before), []);
        assert_eq!(rig.later(Duration::from_millis(1)), [Said::Save]);
        assert_eq!(rig.saves.last().unwrap().state, before);
        assert_eq!(rig.kept(outcome), []);
    }
    assert_eq!(rig.owner.poll_timeout(), None);
}

#[test]
fn a_state_that_is_due_to_be_saved_again_waits_for_the_change_under_way() {
    let mut rig = Rig::new();
    rig.in_doubt(5);
    let said = rig.change(ticket(1, 1), stop());
    assert!(matches!(said[..], [Said::Install { .. }]), "{said:?}");
    assert_eq!(rig.owner.poll_timeout(), None);
    assert_eq!(rig.later(RESTORE_PAUSE), []);
    let answer = Said::Changed(ticket(1, 1), Status::Good, true);
    assert_eq!(rig.installed(true), [answer, Said::Save]);
    assert_eq!(rig.kept(true), []);
}

#[test]
fn while_another_state_may_be_saved_no_answer_relies_on_it() {
    let mut rig = Rig::new();
    rig.change(ticket(1, 1), register(5));
    rig.kept(true);
    rig.installed(true);
    let in_force = rig.owner.kept_state();
    rig.in_doubt(6);
    // It changes nothing that is saved.
    let again = ticket(1, 2);
    assert_eq!(rig.change(again, register(5)), [Said::Save]);
    assert_eq!(rig.saves.last().unwrap().state, in_force);
    let failed = Said::Changed(again, Status::CheckCondition, true);
    assert_eq!(rig.kept(false), [failed]);
    assert_eq!(rig.change(again, register(5)), [Said::Save]);
    let said = rig.kept(true);
    assert!(matches!(said[..], [Said::Install { .. }]), "{said:?}");
    rig.installed(true);
    // Now nothing is in doubt.
    let said = rig.change(again, register(5));
    assert!(matches!(said[..], [Said::Install { .. }]), "{said:?}");
}

#[test]
fn the_next_change_that_is_saved_replaces_what_a_failed_one_has_left() {
    let mut rig = Rig::new();
    rig.in_doubt(5);
    assert_eq!(rig.change(ticket(1, 2), register(6)), [Said::Save]);
    rig.kept(true);
    rig.installed(true);
    assert_eq!(rig.owner.poll_timeout(), None);
    assert_eq!(rig.saves.last().unwrap().state, rig.owner.kept_state());
}

#[test]
fn what_somebody_else_has_saved_after_a_failed_save_stays() {
    let mut rig = Rig::new();
    rig.in_doubt(5);
    assert_eq!(rig.later(RESTORE_PAUSE), [Said::Save]);
    assert_eq!(rig.conflict(), []);
    assert_eq!(rig.owner.poll_timeout(), None);
    let refused = Said::Changed(ticket(1, 2), Status::CheckCondition, true);
    assert_eq!(rig.change(ticket(1, 2), register(5)), [refused]);
}

#[test]
fn every_save_replaces_the_version_before_it_and_a_failed_one_counts_for_nothing() {
    let mut rig = Rig::new();
    rig.change(ticket(1, 1), register(5));
    rig.kept(false);
    rig.change(ticket(1, 1), register(5));
    rig.kept(true);
    rig.installed(true);
    rig.change(ticket(1, 2), register(6));
    rig.later(PATIENCE);
    assert_eq!(rig.kept(true), [Said::Save], "the state in force again");
    rig.kept(true);
    rig.change(ticket(1, 3), register(7));
    let first = RESTORED.0;
    let expected = [first, first, first + 1, first + 2, first + 3];
    assert_eq!(rig.replaced(), expected);
}

#[test]
fn what_somebody_else_has_saved_is_never_replaced_and_all_else_goes_on() {
    let mut rig = Rig::new();
    rig.change(ticket(1, 1), register(5));
    rig.change(ticket(2, 2), register(6));
    let refused = |ticket| Said::Changed(ticket, Status::CheckCondition, true);
    let both = [refused(ticket(1, 1)), refused(ticket(2, 2))];
    assert_eq!(rig.conflict(), both);
    assert_eq!(rig.registrations(), 0);
    assert!(rig.owner.is_idle());
    let again = ticket(1, 3);
    assert_eq!(rig.change(again, register(5)), [refused(again)]);
    assert_eq!(rig.saves.len(), 1);
    let said = rig.change(ticket(1, 4), stop());
    assert!(matches!(said[..], [Said::Install { .. }]));
}

#[test]
fn a_conflict_of_a_change_that_is_given_up_is_not_replaced_either() {
    for restores in [false, true] {
        let mut rig = Rig::new();
        rig.change(ticket(1, 1), register(5));
        rig.later(PATIENCE);
        if restores {
            assert_eq!(rig.kept(true), [Said::Save]);
        }
        assert_eq!(rig.conflict(), []);
        assert!(rig.owner.is_idle());
        let refused = Said::Changed(ticket(1, 2), Status::CheckCondition, true);
        assert_eq!(rig.change(ticket(1, 2), register(5)), [refused]);
    }
}

#[test]
fn commands_behind_a_change_that_takes_too_long_are_busy_and_all_else_waits() {
    let mut rig = Rig::new();
    rig.change(ticket(1, 1), register(5));
    rig.change(ticket(2, 2), stop());
    rig.change(ticket(2, 3), ChangeKind::LogicalUnitReset);
    rig.now += Duration::from_secs(1);
    rig.change(ticket(2, 4), stop());
    let said = rig.later(PATIENCE - Duration::from_secs(1));
    let busy = |ticket| Said::Changed(ticket, Status::Busy, true);
    let failed = Said::Changed(ticket(1, 1), Status::CheckCondition, true);
    assert_eq!(said, [failed, busy(ticket(2, 2))]);
    let said = rig.later(Duration::from_secs(1));
    assert_eq!(said, [busy(ticket(2, 4))]);
    // The reset is carried out when its turn comes.
    assert_eq!(rig.kept(true), [Said::Save]);
    let said = rig.kept(true);
    assert!(
        matches!(said[..], [Said::Install { aborts: 1, .. }]),
        "{said:?}"
    );
    let answer = Said::Changed(ticket(2, 3), Status::Good, true);
    assert_eq!(rig.installed(true), [answer]);
}

#[test]
fn who_wants_no_answer_gets_none() {
    let mut rig = Rig::new();
    assert_eq!(rig.change(Ticket::NOBODY, ChangeKind::NexusLost), []);
    let said = rig.change(Ticket::NOBODY, ChangeKind::TargetReset);
    assert!(matches!(said[..], [Said::Install { .. }]), "{said:?}");
    assert_eq!(rig.installed(true), []);
}

#[test]
fn where_the_unit_has_gone_askers_are_answered() {
    let change = Change {
        from: None,
        kind: ChangeKind::LogicalUnitReset,
    };
    let asker = ticket(1, 1);
    let ask = |ticket| ToOwner::Change {
        ticket,
        change: change.clone(),
    };
    let answer = ask(asker).answer_of_the_gone();
    assert!(matches!(answer, Some((1, ToCore::Changed { .. }))));
    assert!(ask(Ticket::NOBODY).answer_of_the_gone().is_none());
    let name = |ticket| ToOwner::RefuseAccess {
        core: 1,
        blocks: BlockSet::whole(),
        ticket,
    };
    let answer = name(Some(asker)).answer_of_the_gone();
    assert!(matches!(answer, Some((1, ToCore::AccessRefused { .. }))));
    assert!(name(None).answer_of_the_gone().is_none());
    let blocks = 0..1;
    let ticket = asker;
    assert!(
        ToOwner::FenceWanted { ticket, blocks }
            .answer_of_the_gone()
            .is_none()
    );
}

#[test]
fn who_waits_for_an_owner_that_goes_is_answered_once() {
    let (asker, next) = (ticket(1, 1), ticket(2, 2));
    let go = |rig: Rig| -> Vec<Ticket> {
        let answers = rig.owner.into_answers();
        let asked = |(core, message)| {
            let ToCore::Changed { ticket, .. } = message else {
                panic!("{message:?}");
            };
            assert_eq!(ticket.core, core);
            ticket
        };
        answers.map(asked).collect()
    };
    let begin = || {
        let mut rig = Rig::new();
        assert_eq!(rig.change(asker, register(1)), [Said::Save]);
        assert_eq!(rig.change(next, ChangeKind::LogicalUnitReset), []);
        assert_eq!(rig.change(Ticket::NOBODY, ChangeKind::NexusLost), []);
        rig
    };
    assert_eq!(go(begin()), [asker, next], "it is being saved");
    let mut rig = begin();
    assert_eq!(rig.uncertain(), [Said::Save]);
    assert_eq!(go(rig), [asker, next], "it is being taken back");
    let mut rig = begin();
    let said = rig.kept(true);
    assert!(matches!(said[..], [Said::Install { .. }]), "{said:?}");
    assert_eq!(go(rig), [asker, next], "it is on its way to the cores");
    let mut rig = begin();
    assert_eq!(rig.later(PATIENCE).len(), 1);
    assert_eq!(go(rig), [next], "it was answered as failed");
    assert_eq!(go(Rig::new()), []);
}

#[test]
fn fences_on_the_same_blocks_are_raised_one_after_the_other() {
    let mut rig = Rig::new();
    let holders = [ticket(0, 1), ticket(1, 2), ticket(2, 3)];
    let numbers = [0, 1, 2].map(FenceNumber);
    let want = |rig: &mut Rig, ticket, blocks| rig.tell(ToOwner::FenceWanted { ticket, blocks });
    let raise = |at: usize| Said::Raise(numbers[at], holders[at]);
    assert_eq!(want(&mut rig, holders[0], 0..8), [raise(0)]);
    assert_eq!(want(&mut rig, holders[1], 4..12), []);
    assert_eq!(want(&mut rig, holders[2], 20..21), [raise(2)]);
    let fence = numbers[0];
    for _ in 1..CORES {
        assert_eq!(rig.tell(ToOwner::FenceRaised { fence }), []);
    }
    let granted = Said::Granted(holders[0]);
    assert_eq!(rig.tell(ToOwner::FenceRaised { fence }), [granted]);
    let said = rig.tell(ToOwner::FenceDone { ticket: holders[0] });
    assert_eq!(said, [Said::Lower(fence), raise(1)]);
    // Its holder has given it up; a core's confirmation comes late.
    let said = rig.tell(ToOwner::FenceDone { ticket: holders[1] });
    assert_eq!(said, [Said::Lower(numbers[1])]);
    assert_eq!(rig.tell(ToOwner::FenceRaised { fence: numbers[1] }), []);
    assert!(!rig.owner.is_idle());
    rig.tell(ToOwner::FenceDone { ticket: holders[2] });
    assert!(rig.owner.is_idle());
}

#[test]
fn a_fence_that_was_never_raised_is_not_lowered() {
    let mut rig = Rig::new();
    let (first, second) = (ticket(0, 1), ticket(1, 2));
    for ticket in [first, second] {
        let blocks = 0..8;
        rig.tell(ToOwner::FenceWanted { ticket, blocks });
    }
    assert_eq!(rig.tell(ToOwner::FenceDone { ticket: second }), []);
}

#[test]
fn a_unit_says_something_else_of_itself_without_a_change_of_its_state() {
    let mut rig = Rig::new();
    let before = Arc::clone(rig.owner.shared());
    rig.owner.set_profile(Arc::new(profile()));
    assert_eq!(rig.owner.shared(), &before);
    assert_eq!(rig.said(), []);
}

#[test]
fn a_clear_by_an_administrator_is_saved_before_it_is_answered_and_never_happens_when_it_is_not() {
    for is_saved in [true, false] {
        let mut rig = Rig::new();
        rig.change(ticket(1, 1), register(5));
        rig.kept(true);
        rig.installed(true);
        let asker = ticket(0, 2);
        assert_eq!(
            rig.change(asker, ChangeKind::ClearReservations),
            [Said::Save]
        );
        assert_eq!(rig.registrations(), 1);
        let said = rig.kept(is_saved);
        if is_saved {
            assert!(
                matches!(said[..], [Said::Install { aborts: 0, .. }]),
                "{said:?}"
            );
            let answer = Said::Changed(asker, Status::Good, true);
            assert_eq!(rig.installed(true), [answer]);
        } else {
            assert_eq!(said, [Said::Changed(asker, Status::CheckCondition, true)]);
        }
        assert_eq!(rig.registrations(), usize::from(!is_saved));
    }
}

#[test]
fn a_clear_that_has_not_had_its_turn_in_time_does_not_come_later() {
    let mut rig = Rig::new();
    rig.change(ticket(1, 1), register(5));
    let asker = ticket(0, 2);
    assert_eq!(rig.change(asker, ChangeKind::ClearReservations), []);
    let said = rig.later(PATIENCE);
    let answer = Said::Changed(asker, Status::Busy, true);
    assert!(said.contains(&answer), "{said:?}");
    rig.kept(true);
    assert_eq!(rig.saves.len(), 2, "the register is taken back");
}
