//! The client's part of a login.

use std::time::Duration;

use super::{Message, REQUEST_BYTES, Wish, context, decode_terms};
use crate::client::ClientSession;
use crate::exchange::ClientExchange;
use crate::keys::{Entropy, Keys, Opener};
use crate::limits::PROBE_MAX;
use crate::link::Settings;
use crate::pdu::Opcode;
use crate::plain;

/// A request is repeated after so long, at first.
const AGAIN: Duration = Duration::from_millis(100);

/// How many cookies are answered as soon as they come.
const COOKIES_AT_ONCE: u8 = 2;

/// Why a login failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LoginError {
    /// It is the wrong password, group or user, or not the server.
    #[error("the password is not that of the group or user on this server")]
    Password,
    /// The server has no place for another session.
    #[error("the server has no room for another session")]
    NoPlace,
    /// The deadline has come.
    #[error("the server did not answer in time")]
    Silent,
}

/// How far a login is.
#[derive(Debug)]
pub enum LoginProgress<D> {
    /// It goes on.
    Going,
    /// It led to a session.
    Done(Box<ClientSession<D>>),
    /// It is over.
    Failed(LoginError),
}

#[derive(Debug)]
enum Step {
    First,
    Last {
        suite: u16,
        login: u32,
        message: Vec<u8>,
        keys: Box<Keys>,
    },
    Over,
}

/// See above.
#[derive(Debug)]
pub struct Login<X> {
    wish: Wish,
    settings: Settings,
    exchange: X,
    entropy: Entropy,
    nonce: [u8; 8],
    cookie: [u8; 16],
    step: Step,
    next_at: Duration,
    again: Duration,
    /// How many cookies came.
    cookies: u8,
    gives_up_at: Duration,
}

impl<X: ClientExchange> Login<X> {
    /// Begins, and gives up at a deadline. `cookie` is that of the server's answer to discovery; any other is replaced.
    pub fn new(
        now: Duration,
        gives_up_at: Duration,
        wish: Wish,
        settings: Settings,
        cookie: [u8; 16],
        exchange: X,
        mut entropy: Entropy,
    ) -> Self {
        Self {
            wish,
            settings,
            exchange,
            nonce: entropy.bytes(),
            entropy,
            cookie,
            step: Step::First,
            next_at: now,
            again: AGAIN,
            cookies: 0,
            gives_up_at,
        }
    }

    fn first(&self) -> Vec<u8> {
        Message::First {
            nonce: self.nonce,
            cookie: self.cookie,
            wish: self.wish.clone(),
            message: self.exchange.first().to_vec(),
        }
        .encode()
    }

    /// When [`Self::handle_deadline`] and [`Self::poll_frame`] want to be called.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.next_at.min(self.gives_up_at)
    }

    /// Time has passed.
    pub fn handle_deadline<D>(&mut self, now: Duration) -> LoginProgress<D> {
        if now >= self.gives_up_at {
            self.step = Step::Over;
            return LoginProgress::Failed(LoginError::Silent);
        }
        LoginProgress::Going
    }

    /// The request of now, if its time has come.
    pub fn poll_frame(&mut self, now: Duration) -> Option<Vec<u8>> {
        (now >= self.next_at).then_some(())?;
        let body = match &self.step {
            Step::First => self.first(),
            Step::Last { login, message, .. } => Message::Last {
                nonce: self.nonce,
                login: *login,
                message: message.clone(),
            }
            .encode(),
            Step::Over => return None,
        };
        self.next_at = now.saturating_add(self.again);
        self.again = self.again.saturating_mul(2).min(PROBE_MAX);
        Some(plain::write(Opcode::Negotiation, &body, REQUEST_BYTES))
    }

    /// Takes a frame with tag 0 of the target's address. What is not for this login is left alone.
    pub fn handle_frame<D: AsRef<[u8]> + Default>(
        &mut self,
        now: Duration,
        frame: &[u8],
    ) -> LoginProgress<D> {
        let read = plain::read(frame).filter(|(opcode, _)| *opcode == Opcode::NegotiationAnswer);
        let Some(message) = read.and_then(|(_, body)| Message::decode(body)) else {
            return LoginProgress::Going;
        };
        match (message, &self.step) {
            (Message::Cookie { nonce, cookie }, Step::First)
                if nonce == self.nonce && cookie != self.cookie =>
            {
                self.cookie = cookie;
                // What follows is another question. An answer to the last one, which was made of the other cookie,
                // must not be taken for one to this: it would look like a wrong password.
                self.nonce = self.entropy.bytes();
                // A server has one, or two when it makes a new one; one that goes on is answered at its time.
                if self.cookies < COOKIES_AT_ONCE {
                    self.cookies = self.cookies.saturating_add(1);
                    self.go_on(now);
                }
                LoginProgress::Going
            }
            (
                Message::Answer {
                    nonce,
                    server,
                    suite,
                    login,
                    message,
                },
                Step::First,
            ) if nonce == self.nonce && self.wish.suites() & suite != 0 => {
                self.handle_answer(now, suite, &server, login, &message)
            }
            (Message::Accepted { nonce, sealed }, Step::Last { keys, suite, .. })
                if nonce == self.nonce =>
            {
                let mut room = Vec::new();
                let opened = Opener::new(keys.target_login, 0).open(&sealed, &mut room);
                let terms = opened
                    .ok()
                    .and_then(|opened| decode_terms(opened.text, *suite));
                let Some(terms) = terms else {
                    return LoginProgress::Going;
                };
                let progress = match terms {
                    Some(mut terms) => {
                        // Whatever the target says, this side has no longer ones.
                        let own = self.wish.frame_bytes_max;
                        terms.frame_bytes_max = terms.frame_bytes_max.min(own);
                        let session = ClientSession::new(now, keys, terms, self.settings);
                        LoginProgress::Done(Box::new(session))
                    }
                    None => LoginProgress::Failed(LoginError::NoPlace),
                };
                self.step = Step::Over;
                progress
            }
            (
                Message::Cookie { .. }
                | Message::First { .. }
                | Message::Answer { .. }
                | Message::Last { .. }
                | Message::Accepted { .. },
                Step::First | Step::Last { .. } | Step::Over,
            ) => LoginProgress::Going,
        }
    }

    fn handle_answer<D>(
        &mut self,
        now: Duration,
        suite: u16,
        server: &[u8; 16],
        login: u32,
        answer: &[u8],
    ) -> LoginProgress<D> {
        let context = context(&self.first(), suite, server, login);
        let Some((message, secret)) = self.exchange.finish(answer, &context, &mut self.entropy)
        else {
            self.step = Step::Over;
            return LoginProgress::Failed(LoginError::Password);
        };
        self.step = Step::Last {
            suite,
            login,
            message,
            keys: Box::new(Keys::new(&secret)),
        };
        self.go_on(now);
        LoginProgress::Going
    }

    fn go_on(&mut self, now: Duration) {
        self.next_at = now;
        self.again = AGAIN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Secret;
    use crate::keys::Sealer;
    use crate::link::Terms;
    use crate::login::{SUITE_BUNDLES, encode_terms};
    use crate::testing::terms;

    /// An exchange that ends with a secret that is known.
    #[derive(Debug)]
    struct Known;

    impl ClientExchange for Known {
        fn first(&self) -> &[u8] {
            &[7; 96]
        }

        fn finish(&mut self, _: &[u8], _: &[u8], _: &mut Entropy) -> Option<(Vec<u8>, Secret)> {
            Some((vec![1; 64], Secret::new(b"secret".to_vec())))
        }
    }

    #[test]
    fn a_target_cannot_widen_the_frames_of_its_client() {
        let wish = Wish {
            client: [3; 16],
            group: "ABC".to_owned(),
            user: None,
            slots: 8,
            window: 64,
            begun_bytes: 1 << 21,
            frame_bytes_max: 1500,
            bundles: true,
        };
        for (said, taken) in [(65_535, 1500), (9000, 1500), (1400, 1400)] {
            let (now, end) = (Duration::ZERO, Duration::from_secs(5));
            let settings = Settings::default();
            let entropy = Entropy::new(&[1; 32]);
            let mut login = Login::new(now, end, wish.clone(), settings, [0; 16], Known, entropy);
            let mut take = |message: Message| {
                let frame = plain::write(Opcode::NegotiationAnswer, &message.encode(), 0);
                login.handle_frame::<Vec<u8>>(now, &frame)
            };
            let nonce = Entropy::new(&[1; 32]).bytes();
            let going = take(Message::Answer {
                nonce,
                server: [2; 16],
                suite: SUITE_BUNDLES,
                login: 5,
                message: vec![0; 320],
            });
            assert!(matches!(going, LoginProgress::Going));
            let terms = encode_terms(&Terms {
                frame_bytes_max: said,
                ..terms(&Settings::default())
            });
            let mut sealed = vec![0; 200];
            let key = Keys::new(b"secret").target_login;
            let length = Sealer::new(key, 0).seal([0; 5], 0, &[&terms], &mut sealed);
            sealed.truncate(length.unwrap_or_default());
            let LoginProgress::Done(session) = take(Message::Accepted { nonce, sealed }) else {
                panic!("{said}");
            };
            assert_eq!(session.terms().frame_bytes_max, taken);
        }
    }
}
