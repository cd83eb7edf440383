//! One mail to one address through a mail server, on the calling thread.
//!
//! Spec: RFC 5321; RFC 3207 for TLS; RFC 4954 and RFC 4616 for passwords. A server that is slow, silent or talks
//! without end costs [`LIMIT`] and [`REPLY_MAX`] bytes. A password is sent only over TLS or to this machine.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use crate::letter::{Letter, base64};
use crate::server::{Server, ServerError, system_trust};

/// For all of it, from the connection on: servers make strangers wait for some seconds on purpose.
const LIMIT: Duration = Duration::from_secs(60);

/// How long a reply may be, in bytes, with all its lines.
const REPLY_MAX: usize = 16 * 1024;

/// How much of a refusal is shown.
const SHOWN_MAX: usize = 200;

/// How a connection is protected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protection {
    /// Not at all: the server is on this machine.
    None,
    /// By STARTTLS, which the server has to offer.
    StartTls,
    /// By TLS from the first byte on.
    Tls,
}

/// Why a mail was not taken.
#[derive(Debug, thiserror::Error)]
pub enum SmtpError {
    /// The server cannot be reached.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// It is no SMTP.
    #[error("{authority} does not answer as a mail server does")]
    NoSmtp {
        /// Host and port.
        authority: String,
    },
    /// The connection would stay in clear.
    #[error("{authority} offers no STARTTLS; use its port for TLS, such as 465")]
    NoTls {
        /// Host and port.
        authority: String,
    },
    /// Passwords are not taken, or not in a way that is known here.
    #[error("{authority} takes no password by PLAIN or LOGIN; check smtp_user")]
    NoLogin {
        /// Host and port.
        authority: String,
    },
    /// It refused.
    #[error("{authority} refused {what}: {reply}")]
    Refused {
        /// Host and port.
        authority: String,
        /// Which command.
        what: &'static str,
        /// What it said.
        reply: String,
    },
}

/// A mail server, and from whom to whom mails go. Addresses are known to have no blanks, brackets or line ends.
#[derive(Clone, Debug)]
pub struct Mailer {
    server: Server,
    protection: Protection,
    tls: Option<Arc<ClientConfig>>,
    user: Option<String>,
    from: String,
    to: String,
    limit: Duration,
}

impl Mailer {
    /// A server at a host and a port. The certificates that this machine trusts are read now.
    ///
    /// # Errors
    ///
    /// TLS cannot be set up.
    pub fn new(
        (host, port, protection): (&str, u16, Protection),
        (from, to): (&str, &str),
        user: Option<&str>,
    ) -> Result<Self, SmtpError> {
        let server = Server::new(host, port);
        let tls = match protection {
            Protection::None => None,
            Protection::StartTls | Protection::Tls => Some(Arc::new(
                system_trust().map_err(|error| server.of_tls(error))?,
            )),
        };
        Ok(Self {
            server,
            protection,
            tls,
            user: user.map(str::to_owned),
            from: from.to_owned(),
            to: to.to_owned(),
            limit: LIMIT,
        })
    }

    /// Sends a mail, and waits until the server has taken it.
    ///
    /// # Errors
    ///
    /// It has not; it may have it all the same, where the connection broke after it was sent.
    pub fn send(&self, password: Option<&[u8]>, letter: Letter<'_>) -> Result<(), SmtpError> {
        let socket = self.server.connect(self.limit)?;
        match (self.protection, &self.tls) {
            (Protection::Tls, Some(tls)) => {
                let mut talk = Talk::new(&self.server, self.server.begin_tls(tls, socket)?);
                talk.greeting()?;
                let offers = talk.hello()?;
                self.deliver(&mut talk, &offers, password, letter)
            }
            (Protection::StartTls, Some(tls)) => {
                let mut clear = Talk::new(&self.server, socket);
                clear.greeting()?;
                if !clear.hello()?.has("STARTTLS") {
                    let authority = self.server.authority();
                    return Err(SmtpError::NoTls { authority });
                }
                clear.ask("STARTTLS", "STARTTLS", b'2')?;
                // What was sent before TLS began could be anybody's.
                let socket = clear.end()?;
                let mut talk = Talk::new(&self.server, self.server.begin_tls(tls, socket)?);
                let offers = talk.hello()?;
                self.deliver(&mut talk, &offers, password, letter)
            }
            (Protection::None | Protection::StartTls | Protection::Tls, _) => {
                let mut talk = Talk::new(&self.server, socket);
                talk.greeting()?;
                let offers = talk.hello()?;
                self.deliver(&mut talk, &offers, password, letter)
            }
        }
    }

    fn deliver<S: Read + Write>(
        &self,
        talk: &mut Talk<'_, S>,
        offers: &Reply,
        password: Option<&[u8]>,
        letter: Letter<'_>,
    ) -> Result<(), SmtpError> {
        if let (Some(user), Some(password)) = (&self.user, password) {
            talk.log_in(offers, user, password)?;
        }
        talk.ask("the sender", &format!("MAIL FROM:<{}>", self.from), b'2')?;
        talk.ask("the recipient", &format!("RCPT TO:<{}>", self.to), b'2')?;
        talk.ask("DATA", "DATA", b'3')?;
        let mut mail = letter.to_bytes(&self.from, &self.to);
        mail.extend_from_slice(b".");
        talk.ask_bytes("the mail", &mail, b'2')?;
        // It has the mail; whether it says farewell does not matter.
        let _unheard = talk.ask("QUIT", "QUIT", b'2');
        Ok(())
    }
}

/// What a server says: three digits, and text in one or several lines.
#[derive(Debug)]
struct Reply {
    text: String,
}

impl Reply {
    fn class(&self) -> u8 {
        self.text.bytes().next().unwrap_or(0)
    }

    /// The lines without their digits.
    fn lines(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter_map(|line| line.get(4..))
    }

    /// Whether the server offers something, with any parameters.
    fn has(&self, word: &str) -> bool {
        self.lines().any(|line| {
            let first = line.split(' ').next().unwrap_or_default();
            first.eq_ignore_ascii_case(word)
        })
    }

    /// Whether it takes passwords in this way. Some write `AUTH=`.
    fn takes(&self, way: &str) -> bool {
        self.lines().any(|line| {
            let line = line.to_ascii_uppercase();
            let ways = line.strip_prefix("AUTH").unwrap_or_default();
            ways.split([' ', '=']).any(|one| one == way)
        })
    }

    fn shown(&self) -> String {
        let words: Vec<&str> = self.text.split_whitespace().collect();
        let text: String = words
            .join(" ")
            .chars()
            .filter(|one| !one.is_control())
            .collect();
        text.chars().take(SHOWN_MAX).collect()
    }
}

/// One connection.
struct Talk<'a, S> {
    server: &'a Server,
    stream: S,
    /// What was received and not yet read.
    rest: Vec<u8>,
}

impl<'a, S: Read + Write> Talk<'a, S> {
    const fn new(server: &'a Server, stream: S) -> Self {
        Self {
            server,
            stream,
            rest: Vec::new(),
        }
    }

    fn no_smtp(&self) -> SmtpError {
        SmtpError::NoSmtp {
            authority: self.server.authority(),
        }
    }

    fn greeting(&mut self) -> Result<(), SmtpError> {
        let reply = self.reply()?;
        self.check("the connection", reply, b'2').map(drop)
    }

    fn hello(&mut self) -> Result<Reply, SmtpError> {
        // A literal is what a client without a name of its own says.
        self.ask("EHLO", "EHLO [127.0.0.1]", b'2')
    }

    /// Says one line, and wants a reply of this class.
    fn ask(&mut self, what: &'static str, line: &str, class: u8) -> Result<Reply, SmtpError> {
        self.ask_bytes(what, line.as_bytes(), class)
    }

    fn ask_bytes(
        &mut self,
        what: &'static str,
        line: &[u8],
        class: u8,
    ) -> Result<Reply, SmtpError> {
        let line = [line, b"\r\n"].concat();
        let sent = self
            .stream
            .write_all(&line)
            .and_then(|()| self.stream.flush());
        sent.map_err(|source| self.server.of_break(source))?;
        let reply = self.reply()?;
        self.check(what, reply, class)
    }

    fn check(&self, what: &'static str, reply: Reply, class: u8) -> Result<Reply, SmtpError> {
        if reply.class() == class {
            return Ok(reply);
        }
        Err(SmtpError::Refused {
            authority: self.server.authority(),
            what,
            reply: reply.shown(),
        })
    }

    fn log_in(&mut self, offers: &Reply, user: &str, password: &[u8]) -> Result<(), SmtpError> {
        let what = "the password of smtp_user";
        if offers.takes("PLAIN") {
            let both = [b"\0", user.as_bytes(), b"\0", password].concat();
            let line = format!("AUTH PLAIN {}", base64(&both));
            return self.ask(what, &line, b'2').map(drop);
        }
        if offers.takes("LOGIN") {
            self.ask(what, "AUTH LOGIN", b'3')?;
            self.ask(what, &base64(user.as_bytes()), b'3')?;
            return self.ask(what, &base64(password), b'2').map(drop);
        }
        Err(SmtpError::NoLogin {
            authority: self.server.authority(),
        })
    }

    /// One reply with all its lines; the last one has a blank behind the digits.
    fn reply(&mut self) -> Result<Reply, SmtpError> {
        let mut text = String::new();
        loop {
            let line = self.line()?;
            let digits = line.get(..3).unwrap_or_default();
            let is_reply = digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
            let mark = line.as_bytes().get(3);
            if !is_reply || !matches!(mark, None | Some(b' ' | b'-')) {
                return Err(self.no_smtp());
            }
            let is_last = mark != Some(&b'-');
            text += &line;
            text.push('\n');
            if text.len() > REPLY_MAX {
                return Err(self.no_smtp());
            }
            if is_last {
                return Ok(Reply { text });
            }
        }
    }

    fn line(&mut self) -> Result<String, SmtpError> {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
            }
            if self.rest.len() > REPLY_MAX {
                return Err(self.no_smtp());
            }
            let mut buffer = [0; 1024];
            let read = self.stream.read(&mut buffer);
            match read.map_err(|source| self.server.of_break(source))? {
                0 => return Err(self.no_smtp()),
                count => self.rest.extend(buffer.iter().take(count)),
            }
        }
    }

    /// The connection, if nothing of what was received is left.
    fn end(self) -> Result<S, SmtpError> {
        match self.rest.is_empty() {
            true => Ok(self.stream),
            false => Err(self.no_smtp()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A server that says these things, one after each line, and gives the lines it got. After DATA it reads up to
    /// the dot.
    fn serve(replies: &'static [&'static str]) -> (u16, thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let run = move || {
            let (stream, _) = listener.accept().unwrap();
            let server = Server::new("127.0.0.1", port);
            let mut talk = Talk::new(&server, stream);
            let mut lines_got = Vec::new();
            for reply in replies {
                if talk.stream.write_all(reply.as_bytes()).is_err() {
                    break;
                }
                let mut lines = Vec::new();
                while let Ok(line) = talk.line() {
                    let is_mail = lines_got.last().is_some_and(|last| last == "DATA");
                    let is_end = !is_mail || line == ".";
                    lines.push(line);
                    if is_end {
                        break;
                    }
                }
                lines_got.push(lines.join("\n"));
            }
            lines_got
        };
        (port, thread::spawn(run))
    }

    const LETTER: Letter<'static> = Letter {
        subject: "s",
        text: "t",
        at: 0,
        id: "1",
    };

    fn send(
        replies: &'static [&'static str],
        login: Option<(&str, &[u8])>,
    ) -> (Result<(), SmtpError>, Vec<String>) {
        let (port, server) = serve(replies);
        let at = ("127.0.0.1", port, Protection::None);
        let mailer = Mailer::new(at, ("a@x", "b@y"), login.map(|(user, _)| user)).unwrap();
        let sent = mailer.send(login.map(|(_, password)| password), LETTER);
        (sent, server.join().unwrap())
    }

    #[test]
    fn a_mail_is_taken_by_a_server_that_takes_it() {
        let (sent, lines_got) = send(
            &[
                "220 x\r\n",
                "250-x\r\n250 AUTH PLAIN\r\n",
                "250 ok\r\n",
                "250 ok\r\n",
                "354 go\r\n",
                "250 ok\r\n",
                "221 bye\r\n",
            ],
            None,
        );
        sent.unwrap();
        assert_eq!(
            lines_got[1..4],
            ["MAIL FROM:<a@x>", "RCPT TO:<b@y>", "DATA"]
        );
        assert!(
            lines_got[4].contains("\nSubject: s\n") && lines_got[4].ends_with("\n\nt\n."),
            "{}",
            lines_got[4]
        );
        assert_eq!(lines_got[5], "QUIT");
    }

    #[test]
    fn a_server_that_accepts_and_says_nothing_did_not_answer_in_time() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let at = ("127.0.0.1", port, Protection::None);
        let mut mailer = Mailer::new(at, ("a@x", "b@y"), None).unwrap();
        assert_eq!(
            mailer.limit,
            Duration::from_secs(60),
            "docs/guide/notifications.md"
        );
        mailer.limit = Duration::from_millis(10);
        let error = mailer.send(None, LETTER).unwrap_err().to_string();
        assert_eq!(error, format!("127.0.0.1:{port} did not answer in time"));
    }

    #[test]
    fn a_password_goes_in_the_way_that_the_server_takes() {
        let login = Some(("u", &b"p"[..]));
        let (_, lines_got) = send(
            &[
                "220 x\n",
                "250-x\n250-AUTH LOGIN PLAIN\n250 SIZE\n",
                "535 no\n",
            ],
            login,
        );
        assert_eq!(lines_got[1], format!("AUTH PLAIN {}", base64(b"\0u\0p")));
        let (sent, lines_got) = send(
            &[
                "220 x\n",
                "250-x\n250 AUTH=LOGIN\n",
                "334 VXNl\n",
                "334 UGFz\n",
                "535 no\n",
            ],
            login,
        );
        assert_eq!(
            lines_got[1..4],
            ["AUTH LOGIN".to_owned(), base64(b"u"), base64(b"p")]
        );
        let error = sent.unwrap_err().to_string();
        assert!(
            error.ends_with("refused the password of smtp_user: 535 no"),
            "{error}"
        );
        let (sent, _) = send(&["220 x\n", "250 x\n"], login);
        assert!(matches!(sent, Err(SmtpError::NoLogin { .. })));
    }

    #[test]
    fn what_is_refused_is_said_with_its_reason() {
        let (sent, _) = send(
            &["220 x\n", "250 x\n", "250 ok\n", "550-no\n550 such user\n"],
            None,
        );
        let error = sent.unwrap_err().to_string();
        assert!(
            error.ends_with("refused the recipient: 550-no 550 such user"),
            "{error}"
        );
    }

    #[test]
    fn what_is_no_mail_server_is_not_listened_to() {
        let long: &'static str = Box::leak("220-".repeat(1 << 18).into_boxed_str());
        let lines: &'static str = Box::leak("220-x\r\n".repeat(1 << 16).into_boxed_str());
        for greeting in [long, lines, "HTTP/1.1 200 OK\r\n", "22\r\n", "220x\r\n"] {
            let replies: &'static [&'static str] = Box::leak(Box::new([greeting]));
            let (port, server) = serve(replies);
            let at = ("127.0.0.1", port, Protection::None);
            let mailer = Mailer::new(at, ("a@x", "b@y"), None).unwrap();
            let sent = mailer.send(None, LETTER);
            let is_refused = matches!(
                sent,
                Err(SmtpError::NoSmtp { .. } | SmtpError::Server(ServerError::Broken { .. }))
            );
            assert!(is_refused, "{:?}", greeting.get(..20));
            server.join().unwrap();
        }
    }

    #[test]
    fn nothing_is_said_in_clear_where_tls_is_wanted() {
        let (port, server) = serve(&["220 x\n", "250-x\n250 AUTH PLAIN\n"]);
        let at = ("127.0.0.1", port, Protection::StartTls);
        let mailer = Mailer::new(at, ("a@x", "b@y"), Some("u")).unwrap();
        let sent = mailer.send(Some(b"p"), LETTER);
        assert!(matches!(sent, Err(SmtpError::NoTls { .. })));
        assert_eq!(server.join().unwrap(), ["EHLO [127.0.0.1]", ""]);
        let (port, server) = serve(&["220 x\n", "250-x\n250 STARTTLS\n", "220 go\n250 injected\n"]);
        let at = ("127.0.0.1", port, Protection::StartTls);
        let mailer = Mailer::new(at, ("a@x", "b@y"), None).unwrap();
        assert!(matches!(
            mailer.send(None, LETTER),
            Err(SmtpError::NoSmtp { .. })
        ));
        server.join().unwrap();
    }
}
