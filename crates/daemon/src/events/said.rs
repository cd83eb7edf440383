//! What events say.

use super::*;

#[test]
fn what_sessions_do_names_who_and_what_and_how_many_are_not_listed() {
    let who = Who {
        session: plane::SessionId(7),
        initiator: "iqn.2026-11.acme:h1",
        peer: plane::Station::Link([2, 0, 0, 0, 0, 7]),
        target: Some("iqn.2026-11.acme:disks"),
        user: Some("alice"),
    };
    let nameless = FailedLogin {
        peer: who.peer,
        initiator: None,
        target: None,
        cause: plane::LoginCause::Timeout,
        reason: "it took too long",
        unreported: 0,
    };
    let denied = FailedLogin {
        initiator: Some(who.initiator),
        target: who.target,
        cause: plane::LoginCause::NotFound,
        reason: "no such target",
        unreported: 2,
        ..nameless
    };
    let joined = |replaces| plane::Event::ConnectionJoined {
        who,
        cid: 1,
        replaces,
    };
    let sent = |unreported| plane::Event::SlowSend {
        who,
        took: Duration::from_millis(1500),
        bytes: 4096,
        unreported,
    };
    let reserved = ReservationReport::default();
    let met = |unreported| plane::Event::ReservationConflict {
        unit: "web",
        initiator: who.initiator,
        reserved: &reserved,
        unreported,
    };
    let events = Events::default();
    let discovery = Who {
        target: None,
        ..who
    };
    for event in [
        plane::Event::SessionBegan { who: discovery },
        joined(false),
        joined(true),
        plane::Event::LoginFailed(&nameless),
        plane::Event::LoginFailed(&denied),
        sent(0),
        sent(3),
        met(0),
        met(1),
        plane::Event::UnitResized {
            unit: "web",
            before: 8,
            blocks: 4,
        },
    ] {
        events.emit(&event);
    }
    assert_eq!(said(&events), OF_SESSIONS);
}

#[test]
fn what_a_quota_or_a_file_of_the_state_has_names_it() {
    let events = Events::default();
    let held = |space| Held {
        quota: "owner bob".to_owned(),
        bytes: 6,
        most_bytes: 8,
        space,
    };
    let trouble = |subject: &str| Trouble {
        severity: Severity::Error,
        code: "administration",
        subject: subject.to_owned(),
        is_of_unit: subject == "web",
        message: "there is none".to_owned(),
        remedy: String::new(),
    };
    events.emit(&plane::Event::CoreStalled {
        core: 1,
        seconds: 61,
    });
    for space in [Space::Free, Space::Low, Space::Full] {
        events.note(of_quota(&held(space)));
    }
    for subject in ["", "tokens", "web"] {
        events.note(of_trouble(&trouble(subject)));
    }
    assert_eq!(said(&events), OF_THE_DAEMON);
}

/// All of them, with whom and what each is found by.
fn said(events: &Events) -> String {
    let all = events.find(&EventQuestion::after(0, usize::MAX));
    all.iter().map(line).collect()
}

fn line(event: &Event) -> String {
    let Event {
        severity,
        kind,
        lun,
        target,
        initiator,
        user,
        message,
        ..
    } = event;
    let of = [lun, initiator, target, user].map(|one| one.as_deref().unwrap_or("-"));
    format!("{severity:?} {kind} [{}]\n  {message}\n", of.join(" "))
}

const OF_SESSIONS: &str = "\
Info connection-joined [- iqn.2026-11.acme:h1 iqn.2026-11.acme:disks alice]
  iqn.2026-11.acme:h1 added a connection to iqn.2026-11.acme:disks as alice from 02:00:00:00:00:07, CID 1 of session 7
Info connection-joined [- iqn.2026-11.acme:h1 iqn.2026-11.acme:disks alice]
  iqn.2026-11.acme:h1 added a connection to iqn.2026-11.acme:disks as alice from 02:00:00:00:00:07, CID 1 of \
session 7, in place of an older one
Warning login-failed [- - - -]
  an initiator without a name could not log in from 02:00:00:00:00:07: it took too long (timeout)
Warning login-failed [- iqn.2026-11.acme:h1 iqn.2026-11.acme:disks -]
  iqn.2026-11.acme:h1 could not log in to iqn.2026-11.acme:disks from 02:00:00:00:00:07: no such target (not-found); \
2 more failed and are not listed
Warning slow-send [- iqn.2026-11.acme:h1 iqn.2026-11.acme:disks alice]
  iqn.2026-11.acme:h1 is logged in to iqn.2026-11.acme:disks as alice from 02:00:00:00:00:07 and took 1.500 s to take \
4096 bytes of answers, session 7
Warning slow-send [- iqn.2026-11.acme:h1 iqn.2026-11.acme:disks alice]
  iqn.2026-11.acme:h1 is logged in to iqn.2026-11.acme:disks as alice from 02:00:00:00:00:07 and took 1.500 s to take \
4096 bytes of answers, session 7; 3 more were slow and are not listed
Info reservation-conflict [web iqn.2026-11.acme:h1 - -]
  lun web: a command of iqn.2026-11.acme:h1 met a reservation conflict: nobody holds it or is registered
Info reservation-conflict [web iqn.2026-11.acme:h1 - -]
  lun web: a command of iqn.2026-11.acme:h1 met a reservation conflict: nobody holds it or is registered; 1 more \
did and are not listed
Error lun-resized [web - - -]
  lun web: its store has shrunk from 8 to 4 blocks: what was behind them is lost
";

const OF_THE_DAEMON: &str = "\
Error core-stalled [- - - -]
  core 1 has been stuck for 61 s; its sessions wait
Info quota-free [- - - -]
  the disks of owner bob take 6 bytes of 8
Warning quota-soft [- - - -]
  the disks of owner bob take 6 bytes of 8
Error quota-full [- - - -]
  the disks of owner bob take 6 bytes of 8; writes to blocks without space fail
Error administration [- - - -]
  there is none
Error administration [- - - -]
  tokens: there is none
Error administration [web - - -]
  lun web: there is none
";
