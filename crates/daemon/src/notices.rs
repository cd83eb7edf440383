//! Sends events to web servers and mailboxes (`[[notify]]`).
//!
//! Each has a queue and a thread, so a server that is slow, silent or gone costs the others nothing, and a core a
//! moment. What a server does not take is sent again, with pauses that grow to [`PAUSE_MAX`], until it does; it may get
//! an event twice, which the number of the event shows. While it does not, the oldest events beyond [`WAITING_MAX`] are
//! dropped; the next message says how many, as do the log and a finding.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use api::event::{Event, Severity};
use config::{Model, NotifyTo};
use notify::{Letter, Mailer, Protection, Webhook};
use serde::Serialize;

use crate::StartError;
use crate::secret::{Secret, Secrets};

/// How many events wait for a server. Beyond that the oldest is dropped and counted.
const WAITING_MAX: usize = 1024;

/// How many events go with one message.
const MESSAGE_MAX: usize = 64;

/// After a first failure. Each further one doubles it.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Between two attempts, at most.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// An attempt that takes longer than this is a finding, before it fails.
const OVERDUE: Duration = Duration::from_secs(20);

/// Between two mails.
const MAIL_PAUSE: Duration = Duration::from_secs(10);

/// What is sent.
#[derive(Serialize)]
struct Message<'a> {
    /// The name of the machine.
    host: &'a str,
    /// How many events were dropped since the last message that was taken.
    dropped: u64,
    events: &'a [Event],
}

/// What waits for a server.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Event>,
    dropped: u64,
    /// Why the last attempt failed, while none has succeeded since.
    failure: Option<String>,
    /// When the attempt began that is under way.
    began: Option<Instant>,
}

impl Queue {
    /// What is the matter, in words.
    fn trouble(&self, now: Instant) -> Option<String> {
        let waited = |began| now.saturating_duration_since(began);
        let overdue = self.began.map(waited).filter(|waited| *waited > OVERDUE);
        let overdue = overdue.map(|waited| format!("no answer for {} s", waited.as_secs()));
        let failure = self.failure.clone().or(overdue)?;
        let (waiting, dropped) = (self.waiting.len(), self.dropped);
        Some(format!(
            "{failure}; {waiting} more events wait, {dropped} were dropped"
        ))
    }

    fn push(&mut self, event: Event) {
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
            self.dropped += 1;
        }
        self.waiting.push_back(event);
    }
}

/// How messages get there.
enum Way {
    /// Signed, to a web server.
    Webhook(Webhook, Secret),
    /// To a person, with the password of the mail server.
    Mail(Mailer, Option<Secret>),
}

/// Somebody who gets events, and which.
pub(crate) struct Receiver {
    /// Scheme, host and port of the URL, or the address: for those who may not see the rest.
    name: String,
    kinds: Vec<String>,
    way: Way,
    host: String,
    queue: Mutex<Queue>,
    came: Condvar,
}

impl Receiver {
    /// A step under the lock leaves a whole queue behind, also where its thread panicked.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an event if the server is to get it.
    fn offer(&self, event: &Event) {
        if self.kinds.contains(&event.kind) {
            self.lock().push(event.clone());
            self.came.notify_one();
        }
    }

    /// Waits until there are events, and takes some of them out, with the number of those that were dropped.
    fn take(&self) -> (Vec<Event>, u64) {
        let queue = self.lock();
        let queue = self
            .came
            .wait_while(queue, |queue| queue.waiting.is_empty());
        let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
        let count = queue.waiting.len().min(MESSAGE_MAX);
        let events = queue.waiting.drain(..count).collect();
        (events, std::mem::take(&mut queue.dropped))
    }

    /// Gives the reason where it was not taken.
    fn send(&self, events: &[Event], dropped: u64) -> Result<(), String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_secs());
        match &self.way {
            Way::Webhook(webhook, secret) => {
                let message = Message {
                    host: &self.host,
                    dropped,
                    events,
                };
                // These types have no maps and no floats: they always become JSON.
                let body = serde_json::to_vec(&message).unwrap_or_default();
                let sent = webhook.post(secret.as_bytes(), now, &body);
                sent.map_err(|error| error.to_string())
            }
            Way::Mail(mailer, password) => {
                // The same for what is sent again, and for no other mail, whichever machine has the address.
                let first = events.first();
                let (first, at_ms) = first.map_or((0, 0), |event| (event.number, event.at_ms));
                let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
                let host: String = self.host.chars().filter(is_plain).collect();
                let letter = Letter {
                    subject: &subject(&self.host, events),
                    text: &text(&self.host, dropped, events),
                    at: now,
                    id: &format!("tarn-{host}-{at_ms}-{first}-{}", events.len()),
                };
                let password = password.as_ref().map(Secret::as_bytes);
                let sent = mailer.send(password, letter);
                sent.map_err(|error| error.to_string())
            }
        }
    }

    /// As [`Self::send`], with a note for those who ask meanwhile.
    fn attempt(&self, events: &[Event], dropped: u64) -> Result<(), String> {
        self.lock().began = Some(Instant::now());
        let sent = self.send(events, dropped);
        self.lock().began = None;
        sent
    }

    /// Sends until the process ends.
    fn run(&self) {
        loop {
            let (events, dropped) = self.take();
            let mut pause = PAUSE_MIN;
            while let Err(error) = self.attempt(&events, dropped) {
                let before = self.lock().failure.replace(error.clone());
                if before.is_none() {
                    tracing::warn!(
                        receiver = self.name,
                        error,
                        "events cannot be sent; they are sent again"
                    );
                }
                // Nobody unparks this thread; a wake-up without cause only sends a little earlier.
                thread::park_timeout(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
            if self.lock().failure.take().is_some() || dropped > 0 {
                tracing::info!(receiver = self.name, dropped, "events are sent again");
            }
            if matches!(self.way, Way::Mail(..)) {
                // Events that come meanwhile go with the next mail: a stranger does not fill a mailbox.
                thread::park_timeout(MAIL_PAUSE);
            }
        }
    }

    /// What is the matter, in words.
    fn trouble(&self) -> Option<String> {
        self.lock().trouble(Instant::now())
    }
}

/// What a mail is about: the event, or how many there are and the worst.
fn subject(host: &str, events: &[Event]) -> String {
    let worst = events.iter().rev().max_by_key(|event| event.severity);
    let word = worst.map_or("info", |event| severity(event));
    let message = worst.map_or("", |event| &event.message);
    match events.len() {
        0 | 1 => format!("[{host}] {word}: {message}"),
        count => format!("[{host}] {count} events, {word}: {message}"),
    }
}

const fn severity(event: &Event) -> &'static str {
    match event.severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

/// What a mail says: a paragraph for each event, the oldest first.
fn text(host: &str, dropped: u64, events: &[Event]) -> String {
    let mut text = format!("Tarn on {host} reports:\n\n");
    for event in events {
        let at = notify::date(event.at_ms / 1000);
        let Event {
            kind,
            message,
            number,
            ..
        } = event;
        // Peers choose some of its words, and are to begin no paragraph.
        text += &format!(
            "{at} {}: {}\n    ({kind}, event {number})\n\n",
            severity(event),
            message.replace(char::is_control, " ")
        );
    }
    if dropped > 0 {
        text +=
            &format!("{dropped} earlier events were dropped, because mail could not be sent.\n\n");
    }
    text + "See tarn events, tarn doctor, or the console.\n"
}

/// All who get events.
#[derive(Clone, Default)]
pub(crate) struct Receivers(Vec<Arc<Receiver>>);

impl std::fmt::Debug for Receivers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|one| &one.name))
            .finish()
    }
}

impl Receivers {
    /// Those of a model, with their secrets. `uid` is the user this process runs as, `host` the name of the machine.
    ///
    /// # Errors
    ///
    /// A secret that cannot be used, or TLS that cannot be set up.
    pub(crate) fn of(model: &Model, uid: u32, host: &str) -> Result<Self, StartError> {
        let receiver = |one: &config::Notify| {
            Ok(Arc::new(Receiver {
                name: one.name().to_owned(),
                kinds: one.events.clone(),
                way: way(one, uid, host)?,
                host: host.to_owned(),
                queue: Mutex::default(),
                came: Condvar::new(),
            }))
        };
        let all: Result<_, StartError> = model.notify().iter().map(receiver).collect();
        Ok(Self(all?))
    }

    /// Starts a thread for each. They end with the process: what is not sent by then is lost.
    pub(crate) fn start(&self) -> io::Result<()> {
        for one in &self.0 {
            let receiver = Arc::clone(one);
            let thread = thread::Builder::new().name("notify".to_owned());
            thread.spawn(move || receiver.run())?;
        }
        Ok(())
    }

    /// Hands an event on. Takes a moment.
    pub(crate) fn offer(&self, event: &Event) {
        self.0.iter().for_each(|one| one.offer(event));
    }

    /// Those that do not take what is sent, and why.
    pub(crate) fn troubles(&self) -> Vec<(String, String)> {
        let one = |receiver: &Arc<Receiver>| Some((receiver.name.clone(), receiver.trouble()?));
        self.0.iter().filter_map(one).collect()
    }
}

/// How messages get to one of them. `host` is the name of the machine.
fn way(one: &config::Notify, uid: u32, host: &str) -> Result<Way, StartError> {
    let secret = Secrets::of_notify(one, uid)?;
    let failed = |reason: String| StartError::Notify {
        place: one.place.clone(),
        reason,
    };
    match &one.to {
        NotifyTo::Webhook { url, .. } => {
            let webhook = Webhook::new(&url.host, url.port, &url.path, url.is_tls);
            let webhook = webhook.map_err(|error| failed(error.to_string()))?;
            let secret = secret.ok_or_else(|| failed("it has no secret".to_owned()))?;
            Ok(Way::Webhook(webhook, secret))
        }
        NotifyTo::Mail(mail) => {
            let protection = match (mail.smtp.is_tls_at_once(), mail.smtp.is_in_clear()) {
                (true, _) => Protection::Tls,
                (false, true) => Protection::None,
                (false, false) => Protection::StartTls,
            };
            let from = mail.from.clone().unwrap_or_else(|| sender(host));
            let at = (mail.smtp.host.as_str(), mail.smtp.port, protection);
            let user = mail.login.as_ref().map(|login| login.user.as_str());
            let mailer = Mailer::new(at, (&from, &mail.to), user);
            let mailer = mailer.map_err(|error| failed(error.to_string()))?;
            Ok(Way::Mail(mailer, secret))
        }
    }
}

/// An address of this machine. Its name may have what no address has.
fn sender(host: &str) -> String {
    let is_plain = |one: &char| one.is_ascii_alphanumeric() || matches!(one, '-' | '.');
    let host: String = host.chars().filter(is_plain).collect();
    match host.is_empty() {
        true => "tarn@localhost".to_owned(),
        false => format!("tarn@{host}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::mpsc::sync_channel;

    use crate::scratch::Scratch;

    use super::*;

    /// Reads a request and answers it so. Gives its head and its body.
    fn answer(stream: TcpStream, status: &str) -> (String, String) {
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
        }
        let length = head.to_lowercase();
        let length = length.split("content-length: ").nth(1).unwrap();
        let length = length.lines().next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        stream.get_mut().write_all(answer.as_bytes()).unwrap();
        (head, String::from_utf8(body).unwrap())
    }

    /// Says what a mail server does that takes everything. Gives what it was told.
    fn take_mail(stream: TcpStream) -> Vec<String> {
        let mut stream = BufReader::new(stream);
        let say = |stream: &mut BufReader<TcpStream>, reply: &str| {
            stream
                .get_mut()
                .write_all(format!("{reply}\r\n").as_bytes())
                .unwrap();
        };
        say(&mut stream, "220 x");
        let (mut told, mut is_mail) = (Vec::new(), false);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).unwrap() == 0 {
                return told;
            }
            let line = line.trim_end().to_owned();
            is_mail = (is_mail || line == "DATA") && line != ".";
            match (is_mail, line.as_str()) {
                (true, "DATA") => say(&mut stream, "354 go on"),
                (true, _) => {}
                (false, _) => say(&mut stream, "250 x"),
            }
            told.push(line);
        }
    }

    /// Who is to get events of this kind and no others, at this server.
    fn receivers(scratch: &Scratch, port: u16) -> Result<Receivers, StartError> {
        let secret = scratch.path().join("s");
        fs::write(&secret, "a secret of the test").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let text = format!(
            "[[notify]]\nurl = \"http://127.0.0.1:{port}/hook\"\nsecret_file = \"s\"\nevents = [\"store-error\"]\n\
             [[notify]]\nmail = \"ops@example.org\"\nsmtp = \"127.0.0.1:{port}\"\nevents = [\"login-failed\"]\n"
        );
        let model = Model::from_toml(&text, &scratch.path().join("tarn.toml")).unwrap();
        Receivers::of(&model, rustix::process::geteuid().as_raw(), "san 1")
    }

    #[test]
    fn what_a_server_refuses_is_sent_again_until_it_takes_it_and_meanwhile_it_is_a_trouble() {
        let scratch = Scratch::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let receivers = receivers(&scratch, port).unwrap();
        let (name, address) = (
            format!("http://127.0.0.1:{port}"),
            "ops@example.org".to_owned(),
        );
        assert_eq!(format!("{receivers:?}"), format!("{:?}", [&name, &address]));
        let hook = &receivers.0[0];
        hook.lock().dropped = 2;
        receivers.start().unwrap();
        receivers.offer(&event("session-began", 6));
        receivers.offer(&event("store-error", 7));
        let (head, body) = answer(listener.accept().unwrap().0, "503 later");
        assert!(head.starts_with("POST /hook HTTP/1.1\r\n"), "{head}");
        let message: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (&message["host"], &message["dropped"]),
            (&"san 1".into(), &2.into())
        );
        let numbers = |body: &str| -> Vec<u64> {
            let message: serde_json::Value = serde_json::from_str(body).unwrap();
            let events = message["events"].as_array().unwrap().iter();
            events
                .map(|event| event["number"].as_u64().unwrap())
                .collect()
        };
        assert_eq!(numbers(&body), [7]);
        receivers.offer(&event("store-error", 8));
        // The attempt is over for its thread a moment after it is for the server.
        while hook.lock().failure.is_none() {
            thread::yield_now();
        }
        let troubles = receivers.troubles();
        assert_eq!(troubles.len(), 1, "{troubles:?}");
        assert_eq!(troubles[0].0, name);
        assert!(
            troubles[0]
                .1
                .ends_with("; 1 more events wait, 0 were dropped"),
            "{troubles:?}"
        );
        let (_, again) = answer(listener.accept().unwrap().0, "204 No Content");
        assert_eq!(again, body, "it is sent again as it was");
        let (_, next) = answer(listener.accept().unwrap().0, "204 No Content");
        assert_eq!(numbers(&next), [8]);
        assert!(next.contains("\"dropped\":0"), "{next}");
        assert!(receivers.troubles().is_empty());
    }

    #[test]
    fn a_mail_has_an_id_of_its_first_event_and_comes_from_the_machine() {
        let scratch = Scratch::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let receivers = receivers(&scratch, listener.local_addr().unwrap().port()).unwrap();
        receivers.start().unwrap();
        receivers.offer(&event("login-failed", 9));
        let (send, sent) = sync_channel(1);
        let stream = listener.accept().unwrap().0;
        thread::spawn(move || send.send(take_mail(stream)).unwrap());
        let told = sent.recv().unwrap();
        let has = |words: &str| told.iter().any(|line| line.contains(words));
        for words in [
            "MAIL FROM:<tarn@san1>",
            "RCPT TO:<ops@example.org>",
            "<tarn-san1-0-9-1@",
            "event 9)",
        ] {
            assert!(has(words), "{words}: {told:?}");
        }
    }

    #[test]
    fn a_message_begins_no_paragraph_of_a_mail() {
        let mut forged = event("login-failed", 7);
        forged.message = "user bob\n\n27 Nov 2026 error: lun a is gone\x1b[31m".to_owned();
        let text = text("san", 0, &[forged]);
        let line = text.lines().find(|line| line.contains("user bob"));
        let line = line.expect("the message");
        assert!(line.contains("lun a is gone [31m"), "{line:?}");
    }

    fn event(kind: &str, number: u64) -> Event {
        Event {
            number,
            at_ms: 0,
            severity: Severity::Info,
            kind: kind.to_owned(),
            message: String::new(),
            lun: None,
            target: None,
            initiator: None,
            user: None,
            author: None,
            command: None,
        }
    }

    fn receiver() -> Receiver {
        Receiver {
            name: "http://127.0.0.1:1".to_owned(),
            kinds: vec!["finding-began".to_owned()],
            way: Way::Webhook(
                Webhook::new("127.0.0.1", 1, "/", false).unwrap(),
                Secret::from_text("a secret of the test"),
            ),
            host: "san".to_owned(),
            queue: Mutex::default(),
            came: Condvar::new(),
        }
    }

    #[test]
    fn an_attempt_that_takes_long_is_a_trouble_before_it_fails() {
        let began = Instant::now();
        let queue = Queue {
            began: Some(began),
            ..Queue::default()
        };
        assert_eq!(queue.trouble(began + OVERDUE), None);
        let late = queue.trouble(began + OVERDUE + Duration::from_secs(1));
        assert!(late.unwrap().starts_with("no answer for 21 s; 0 more"));
    }

    #[test]
    fn only_what_is_asked_for_waits_and_goes_in_parts() {
        let receiver = receiver();
        receiver.offer(&event("session-began", 1));
        for number in 2..MESSAGE_MAX as u64 + 4 {
            receiver.offer(&event("finding-began", number));
        }
        let (first, dropped) = receiver.take();
        assert_eq!((first.len(), first[0].number, dropped), (MESSAGE_MAX, 2, 0));
        assert_eq!(receiver.take().0.len(), 2);
    }

    #[test]
    fn a_mail_says_what_is_worst_and_all_of_it_in_order() {
        let mut events = [
            event("finding-began", 7),
            event("store-error", 8),
            event("finding-ended", 9),
        ];
        events[0].message = "finding store-error of web".to_owned();
        events[0].severity = Severity::Warning;
        events[1].message = "web: a write failed".to_owned();
        events[1].severity = Severity::Error;
        assert_eq!(
            subject("san", &events[..1]),
            "[san] warning: finding store-error of web"
        );
        assert_eq!(
            subject("san", &events),
            "[san] 3 events, error: web: a write failed"
        );
        let text = text("san", 2, &events);
        let first = text
            .find("Thu, 1 Jan 1970 00:00:00 +0000 warning: finding store-error of web\n")
            .unwrap();
        assert!(
            first
                < text
                    .find("error: web: a write failed\n    (store-error, event 8)")
                    .unwrap()
        );
        assert!(text.contains("2 earlier events were dropped"));
    }

    #[test]
    fn the_sender_is_an_address_whatever_the_machine_is_called() {
        assert_eq!(sender("san1.example"), "tarn@san1.example");
        assert_eq!(sender("a b>\r\nc"), "tarn@abc");
        assert_eq!(sender(""), "tarn@localhost");
    }

    #[test]
    fn beyond_the_limit_the_oldest_are_dropped_and_counted() {
        let receiver = receiver();
        for number in 0..WAITING_MAX as u64 + 3 {
            receiver.offer(&event("finding-began", number));
        }
        let (events, dropped) = receiver.take();
        assert_eq!((events[0].number, dropped), (3, 3));
        assert_eq!(receiver.take().1, 0, "they are counted once");
    }

    /// The table of docs/reference/api.md has exactly the kinds that `events` may name.
    #[test]
    fn the_kinds_are_those_of_the_document() {
        let document = include_str!("../../../docs/reference/api.md");
        let table = document.split("| `kind` | event |").nth(1).unwrap();
        let rows = table
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with("| `"));
        let cells = rows.filter_map(|row| row.split('|').nth(1));
        let kinds: Vec<_> = cells
            .flat_map(|cell| cell.split(", "))
            .map(|kind| kind.trim().trim_matches('`'))
            .collect();
        assert_eq!(kinds, config::EVENT_KINDS);
    }
}
