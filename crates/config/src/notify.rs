//! `[[notify]]`: who gets events as they happen.

use std::path::Path;

use crate::error::{At as _, Broken as _};
use crate::fields::check_text;
use crate::keys::SECTION_NOTIFY;
use crate::names::FirstUse;
use crate::reader::{Field, Section};
use crate::value::{KeyOf, key, list, path, quoted};
use crate::{ConfigError, Place, SecretFile};

/// Why nobody can get events so.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum NotifyRule {
    /// What events cannot be sent to.
    #[error(
        "this is no address that events can be sent to; write https://HOST[:PORT]/PATH, without user and fragment"
    )]
    Webhook,
    /// Events would go over the network for all to read.
    #[error(
        "{origin:?} has no TLS; write https://, as http:// is for localhost, 127.0.0.1 and [::1] only"
    )]
    WebhookInClear {
        /// Scheme, host and port, as they are written.
        origin: String,
    },
    /// A kind of events that there is not.
    #[error("there are no events of the kind {kind:?}; docs/reference/api.md lists the kinds")]
    EventKind {
        /// As it is written.
        kind: String,
    },
    /// No mail server.
    #[error("{server:?} is not a mail server; write \"HOST:PORT\", such as mail.example.org:587")]
    Smtp {
        /// As it is written.
        server: String,
    },
    /// No address of mail.
    #[error("{address:?} is not a mail address; write NAME@HOST in ASCII, without blanks")]
    MailAddress {
        /// As it is written.
        address: String,
    },
    /// A web server and a mailbox.
    #[error("url and mail exclude each other; write two [[notify]] sections")]
    Two,
    /// Neither a web server nor a mailbox.
    #[error("a [[notify]] needs url or mail; name who gets events")]
    Nobody,
    /// A key that does nothing here.
    #[error("{key} is for {with} only; take it out")]
    Key {
        /// The key.
        key: &'static str,
        /// What it goes with.
        with: &'static str,
    },
    /// A user without a password, or a password without a user.
    #[error("smtp_user and smtp_password_file go together; give both")]
    LoginHalf,
    /// A server that gets nothing.
    #[error("events is empty, so nothing would be sent; name kinds of events, or leave it out")]
    NoEvents,
}

/// Somebody who gets events.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Notify {
    /// Where they go.
    pub to: NotifyTo,
    /// Which kinds of events.
    pub events: Vec<String>,
    /// Where it is given.
    pub place: Place,
}

/// Where events go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NotifyTo {
    /// To a web server.
    Webhook {
        /// Which.
        url: WebhookUrl,
        /// What requests are signed with.
        secret: SecretFile,
    },
    /// To a person.
    Mail(Mail),
}

/// A mailbox, and the server that takes mail for it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mail {
    /// The address.
    pub to: String,
    /// From whom; `None`: `tarn@` and the name of the machine.
    pub from: Option<String>,
    /// The server.
    pub smtp: SmtpServer,
    /// What it wants to know.
    pub login: Option<MailLogin>,
}

/// A mail server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SmtpServer {
    /// As it is written.
    pub text: String,
    /// The host, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// A user of a mail server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MailLogin {
    /// The name.
    pub user: String,
    /// The file with the password.
    pub password: SecretFile,
}

impl Notify {
    /// Scheme, host and port of the URL, or the address: for those who may not see the rest, which is often as good as
    /// a password.
    pub fn name(&self) -> &str {
        match &self.to {
            NotifyTo::Webhook { url, .. } => url.origin(),
            NotifyTo::Mail(mail) => &mail.to,
        }
    }

    /// The URL or the address, whole. No two have the same.
    pub(crate) fn whole(&self) -> &str {
        match &self.to {
            NotifyTo::Webhook { url, .. } => &url.text,
            NotifyTo::Mail(mail) => &mail.to,
        }
    }

    /// The file with what it needs to know.
    pub fn secret(&self) -> Option<&SecretFile> {
        match &self.to {
            NotifyTo::Webhook { secret, .. } => Some(secret),
            NotifyTo::Mail(mail) => mail.login.as_ref().map(|login| &login.password),
        }
    }

    /// The port that is connected to.
    pub fn port(&self) -> u16 {
        match &self.to {
            NotifyTo::Webhook { url, .. } => url.port,
            NotifyTo::Mail(mail) => mail.smtp.port,
        }
    }

    /// Whether the certificate of the server is checked.
    pub fn is_tls(&self) -> bool {
        match &self.to {
            NotifyTo::Webhook { url, .. } => url.is_tls,
            NotifyTo::Mail(mail) => !mail.smtp.is_in_clear(),
        }
    }
}

impl SmtpServer {
    /// The mail server of this machine.
    fn local() -> Self {
        Self {
            text: SMTP_DEFAULT.to_owned(),
            host: "127.0.0.1".to_owned(),
            port: 25,
        }
    }

    fn parse(text: &str) -> Result<Self, NotifyRule> {
        let wrong = || NotifyRule::Smtp {
            server: text.to_owned(),
        };
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        let (host, port) = split_port(text).ok_or_else(wrong)?;
        let is_host = !host.is_empty() && is_plain && !host.contains(['/', '@']);
        match port {
            Some(port) if is_host => Ok(Self {
                text: text.to_owned(),
                host: host.to_owned(),
                port,
            }),
            Some(_) | None => Err(wrong()),
        }
    }

    /// TLS begins with the first byte.
    pub const fn is_tls_at_once(&self) -> bool {
        self.port == SMTPS
    }

    /// It is on this machine: nothing that is sent to it can be read by others.
    pub fn is_in_clear(&self) -> bool {
        !self.is_tls_at_once() && LOOPBACK.contains(&&*self.host)
    }
}

/// The mail server of this machine, as it is written.
pub(crate) const SMTP_DEFAULT: &str = "127.0.0.1:25";

/// Spec: RFC 8314 section 3.3.
const SMTPS: u16 = 465;

/// Spec: RFC 5321 section 4.5.3.1.3, without the brackets.
const ADDRESS_MAX: usize = 254;

/// An address of mail, in ASCII: a name and a host. What could end a line or a command of SMTP is none.
fn address(text: &str) -> Result<String, NotifyRule> {
    let is_part = |part: &str| {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"<>()[]\\,;:\"@".contains(&byte);
        !part.is_empty() && part.bytes().all(is_plain)
    };
    match text.split_once('@') {
        Some((name, host)) if is_part(name) && is_part(host) && text.len() <= ADDRESS_MAX => {
            Ok(text.to_owned())
        }
        Some(_) | None => Err(NotifyRule::MailAddress {
            address: text.to_owned(),
        }),
    }
}

/// Where messages go over HTTP.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WebhookUrl {
    /// As it is written.
    pub text: String,
    /// With TLS.
    pub is_tls: bool,
    /// The host, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path, with what follows it.
    pub path: String,
}

/// Kinds of events, in the order of docs/reference/api.md.
#[rustfmt::skip]
pub const EVENT_KINDS: &[&str] = &[
    "session-began", "session-ended", "connection-joined", "login-failed", "slow-command", "command-hangs", "slow-send",
    "state-damaged", "state-unwritable", "state-foreign", "reservations-lost", "lun-withheld", "administration",
    "core-stalled", "lun-resized", "medium-ejected", "medium-loaded", "snapshot-taken", "snapshot-removed",
    "snapshot-restored", "snapshot-missed", "rollback-failed", "lun-flattened", "flatten-failed", "store-stuck",
    "store-freed", "store-lost", "store-reached", "state-not-kept", "state-conflict", "medium-replaced",
    "reservation-conflict", "store-error", "finding-began", "finding-ended", "quota-soft", "quota-full", "quota-free", "config-applied", "admin-change", "admin-read", "admin-refused",
];

/// Of `events`, where it is left out.
const EVENTS_DEFAULT: [&str; 2] = ["finding-began", "finding-ended"];

/// Hosts of this machine, which need no TLS.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Scheme, host and port of a URL, as they are written. What follows may be as good as a password.
pub(crate) fn origin_of(url: &str) -> &str {
    let begin = url.find("://").map_or(0, |at| at + "://".len());
    let end = url
        .char_indices()
        .find(|(at, sign)| *at >= begin && ['/', '?', '#'].contains(sign));
    end.map_or(url, |(at, _)| url.get(..at).unwrap_or_default())
}

impl WebhookUrl {
    /// What everybody may see of it: scheme, host and port, as they are written.
    pub fn origin(&self) -> &str {
        origin_of(&self.text)
    }

    fn parse(text: &str) -> Result<Self, NotifyRule> {
        let wrong = || NotifyRule::Webhook;
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        let (is_tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(wrong()),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (host, port) = split_port(authority).ok_or_else(wrong)?;
        let is_wrong =
            host.is_empty() || authority.contains('@') || text.contains('#') || !is_plain;
        if is_wrong {
            return Err(wrong());
        }
        if !is_tls && !LOOPBACK.contains(&host) {
            return Err(NotifyRule::WebhookInClear {
                origin: origin_of(text).to_owned(),
            });
        }
        Ok(Self {
            text: text.to_owned(),
            is_tls,
            host: host.to_owned(),
            port: port.unwrap_or(if is_tls { 443 } else { 80 }),
            path: match path.starts_with('/') {
                true => path.to_owned(),
                false => format!("/{path}"),
            },
        })
    }
}

/// A host, without the brackets of an IPv6 address, and a port.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(inner) => inner.split_once(']')?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    match rest.strip_prefix(':') {
        Some(port) => {
            let port = port.parse().ok().filter(|port| *port != 0)?;
            Some((host, Some(port)))
        }
        None => rest.is_empty().then_some((host, None)),
    }
}

/// Somebody who gets events, without what they are found by.
pub(crate) const NOTIFY: &[KeyOf<Notify>] = &[
    key("secret_file", |notify| match &notify.to {
        NotifyTo::Webhook { secret, .. } => Some(path(&secret.path)),
        NotifyTo::Mail(_) => None,
    }),
    key("smtp", |notify| Some(quoted(&mail(notify)?.smtp.text))),
    key("from", |notify| Some(quoted(mail(notify)?.from.as_ref()?))),
    key("smtp_user", |notify| {
        Some(quoted(&mail(notify)?.login.as_ref()?.user))
    }),
    key("smtp_password_file", |notify| {
        Some(path(&mail(notify)?.login.as_ref()?.password.path))
    }),
    key("events", |notify| {
        Some(list(notify.events.iter().map(|kind| quoted(kind))))
    }),
];

/// What is said of the mail of one who gets mail.
const fn mail(notify: &Notify) -> Option<&Mail> {
    match &notify.to {
        NotifyTo::Mail(mail) => Some(mail),
        NotifyTo::Webhook { .. } => None,
    }
}

/// Those of a file.
pub(crate) fn read(top: &Section<'_>, directory: &Path) -> Result<Vec<Notify>, ConfigError> {
    let mut seen = FirstUse::new("url or mail");
    let mut all = Vec::new();
    for entry in top.entries("notify")? {
        let section = entry.section(SECTION_NOTIFY)?;
        let (to, place) = match (section.field("url"), section.field("mail")) {
            (Some(url), None) => (read_webhook(&section, &url, directory)?, url.place()),
            (None, Some(mail)) => (read_mail(&section, &mail, directory)?, mail.place()),
            (Some(_), Some(mail)) => return Err(NotifyRule::Two.at(mail.place())),
            (None, None) => return Err(NotifyRule::Nobody.at(section.place())),
        };
        let notify = Notify {
            to,
            events: read_events(&section)?,
            place: place.clone(),
        };
        seen.insert_as(notify.whole().to_owned(), notify.name().to_owned(), place)?;
        all.push(notify);
    }
    Ok(all)
}

/// Keys of the other kind would do nothing.
fn refuse(
    section: &Section<'_>,
    keys: &[&'static str],
    with: &'static str,
) -> Result<(), ConfigError> {
    match keys
        .iter()
        .find_map(|key| Some((*key, section.field(key)?)))
    {
        Some((key, field)) => Err(NotifyRule::Key { key, with }.at(field.place())),
        None => Ok(()),
    }
}

fn read_webhook(
    section: &Section<'_>,
    url: &Field<'_>,
    directory: &Path,
) -> Result<NotifyTo, ConfigError> {
    refuse(
        section,
        &["smtp", "from", "smtp_user", "smtp_password_file"],
        "mail",
    )?;
    Ok(NotifyTo::Webhook {
        url: WebhookUrl::parse(url.text()?).at(|| url.place())?,
        secret: SecretFile::read(
            "path of the secret",
            &section.required("secret_file")?,
            directory,
        )?,
    })
}

fn read_mail(
    section: &Section<'_>,
    mail: &Field<'_>,
    directory: &Path,
) -> Result<NotifyTo, ConfigError> {
    refuse(section, &["secret_file"], "url")?;
    let smtp = match section.field("smtp") {
        Some(field) => SmtpServer::parse(field.text()?).at(|| field.place())?,
        None => SmtpServer::local(),
    };
    let from = section.field("from");
    let from = from.map(|field| address(field.text()?).at(|| field.place()));
    let login = match (
        section.field("smtp_user"),
        section.field("smtp_password_file"),
    ) {
        (None, None) => None,
        (Some(user), Some(file)) => Some(MailLogin {
            user: read_user(&user)?,
            password: SecretFile::read("path of the password", &file, directory)?,
        }),
        (Some(alone), None) | (None, Some(alone)) => {
            return Err(NotifyRule::LoginHalf.at(alone.place()));
        }
    };
    Ok(NotifyTo::Mail(Mail {
        to: address(mail.text()?).at(|| mail.place())?,
        from: from.transpose()?,
        smtp,
        login,
    }))
}

/// The name of a user of a mail server.
fn read_user(field: &Field<'_>) -> Result<String, ConfigError> {
    let user = field.text()?;
    check_text("name of the user", ADDRESS_MAX, user).at(|| field.place())?;
    Ok(user.to_owned())
}

fn read_events(section: &Section<'_>) -> Result<Vec<String>, ConfigError> {
    let Some(field) = section.field("events") else {
        return Ok(EVENTS_DEFAULT.map(str::to_owned).to_vec());
    };
    let mut events = Vec::new();
    for entry in field.entries()? {
        let kind = entry.text()?;
        if !EVENT_KINDS.contains(&kind) {
            let kind = kind.to_owned();
            return Err(NotifyRule::EventKind { kind }.at(entry.place()));
        }
        events.push(kind.to_owned());
    }
    if events.is_empty() {
        return Err(NotifyRule::NoEvents.at(field.place()));
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    fn model(keys: &str) -> Result<Model, String> {
        let text = format!("[[notify]]\nsecret_file = \"key\"\n{keys}\n");
        Model::from_toml(&text, Path::new("/etc/t.toml")).map_err(|error| error.to_string())
    }

    fn url(url: &str) -> Result<WebhookUrl, String> {
        let model = model(&format!("url = {url:?}"))?;
        match &model.notify()[0].to {
            NotifyTo::Webhook { url, .. } => Ok(url.clone()),
            NotifyTo::Mail(_) => Err("it is mail".to_owned()),
        }
    }

    #[test]
    fn a_url_names_a_server_a_port_and_a_path() {
        for (text, host, port, path) in [
            ("https://alerts.example", "alerts.example", 443, "/"),
            (
                "https://alerts.example:8443/a/b?c=d",
                "alerts.example",
                8443,
                "/a/b?c=d",
            ),
            ("https://[2001:db8::1]/x", "2001:db8::1", 443, "/x"),
            ("https://a?b", "a", 443, "/?b"),
            ("http://127.0.0.1:9/", "127.0.0.1", 9, "/"),
            ("http://[::1]", "::1", 80, "/"),
        ] {
            let url = url(text).unwrap();
            assert_eq!(
                (&*url.host, url.port, &*url.path),
                (host, port, path),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_url_of_a_server_is_refused() {
        for text in [
            "",
            "alerts.example",
            "ftp://a",
            "https://",
            "https://:443/",
            "https://a:0",
            "https://a:65536",
            "https://a:b",
            "https://u:p@a/",
            "https://a/#b",
            "https://a b/",
            "https://[::1",
            "https://[::1]x",
        ] {
            assert!(url(text).is_err(), "{text}");
        }
        for wrong in [
            "http://alerts.example/",
            "ftp://a/token",
            "https://u:token@a",
        ] {
            let error = url(wrong).unwrap_err();
            assert!(error.contains("https://"), "{error}");
            assert!(!error.contains("token"), "{error}");
        }
    }

    #[test]
    fn of_a_url_everybody_may_see_scheme_host_and_port() {
        for (text, origin) in [
            ("https://alerts.example", "https://alerts.example"),
            (
                "https://alerts.example:8443/token?token",
                "https://alerts.example:8443",
            ),
            ("https://[2001:db8::1]?token", "https://[2001:db8::1]"),
            ("http://127.0.0.1:9/", "http://127.0.0.1:9"),
        ] {
            assert_eq!(url(text).unwrap().origin(), origin);
        }
        let twice = "[[notify]]\nurl = \"https://a/token\"\nsecret_file = \"k\"\n".repeat(2);
        let error = Model::from_toml(&twice, Path::new("/etc/t.toml")).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("https://a") && !error.contains("token"),
            "{error}"
        );
    }

    #[test]
    fn findings_are_sent_where_nothing_else_is_asked_for() {
        let of = |events: &str| {
            let model = model(&format!("url = \"https://a\"\n{events}"))?;
            Ok::<_, String>(model.notify()[0].events.clone())
        };
        assert_eq!(of("").unwrap(), EVENTS_DEFAULT);
        assert_eq!(of("events = [\"login-failed\"]").unwrap(), ["login-failed"]);
        assert!(
            of("events = [\"login-fails\"]")
                .unwrap_err()
                .contains("login-fails")
        );
        assert!(of("events = []").is_err());
    }

    #[test]
    fn one_server_gets_events_once_and_a_secret_is_needed() {
        let text = "[[notify]]\nurl = \"https://a\"\nsecret_file = \"k\"\n";
        let twice = Model::from_toml(&text.repeat(2), Path::new("/etc/t.toml"));
        assert!(twice.is_err());
        let without = Model::from_toml(
            "[[notify]]\nurl = \"https://a\"\n",
            Path::new("/etc/t.toml"),
        );
        assert!(without.is_err());
    }

    fn mail(keys: &str) -> Result<Mail, String> {
        let text = format!("[[notify]]\n{keys}\n");
        let model = Model::from_toml(&text, Path::new("/etc/t.toml"));
        match &model.map_err(|error| error.to_string())?.notify()[0].to {
            NotifyTo::Mail(mail) => Ok(mail.clone()),
            NotifyTo::Webhook { .. } => Err("it is a webhook".to_owned()),
        }
    }

    #[test]
    fn mail_goes_to_the_server_of_this_machine_unless_another_is_named() {
        let local = mail("mail = \"ops@example.org\"").unwrap();
        assert_eq!(
            (&*local.to, &local.from, &local.login),
            ("ops@example.org", &None, &None)
        );
        assert_eq!(local.smtp, SmtpServer::parse("127.0.0.1:25").unwrap());
        let far = mail(
            "mail = \"ops@example.org\"\nsmtp = \"[2001:db8::1]:465\"\nfrom = \"san@example.org\"\n\
             smtp_user = \"san\"\nsmtp_password_file = \"p\"",
        )
        .unwrap();
        assert_eq!((&*far.smtp.host, far.smtp.port), ("2001:db8::1", 465));
        assert_eq!(far.from.as_deref(), Some("san@example.org"));
        let login = far.login.unwrap();
        assert_eq!(
            (&*login.user, &*login.password.path),
            ("san", Path::new("/etc/p"))
        );
    }

    #[test]
    fn what_a_connection_needs_is_known_before_it_is_made() {
        let far = "mail = \"a@b\"\nsmtp = \"m.example:465\"\nsmtp_user = \"u\"\nsmtp_password_file = \"p\"";
        for (keys, name, whole, port, is_tls, secret) in [
            (
                "url = \"https://a:8443/token\"\nsecret_file = \"k\"",
                "https://a:8443",
                "https://a:8443/token",
                8443,
                true,
                Some("/etc/k"),
            ),
            (
                "url = \"http://127.0.0.1/token\"\nsecret_file = \"k\"",
                "http://127.0.0.1",
                "http://127.0.0.1/token",
                80,
                false,
                Some("/etc/k"),
            ),
            ("mail = \"a@b\"", "a@b", "a@b", 25, false, None),
            (far, "a@b", "a@b", 465, true, Some("/etc/p")),
        ] {
            let text = format!("[[notify]]\n{keys}\n");
            let model = Model::from_toml(&text, Path::new("/etc/t.toml")).unwrap();
            let one = &model.notify()[0];
            let found = one.secret().map(|secret| &*secret.path);
            assert_eq!((one.name(), one.whole()), (name, whole));
            assert_eq!((one.port(), one.is_tls()), (port, is_tls), "{name}");
            assert_eq!(found, secret.map(Path::new), "{name}");
        }
    }

    #[test]
    fn only_this_machine_gets_mail_in_clear() {
        for (server, is_in_clear, is_at_once) in [
            ("localhost:25", true, false),
            ("[::1]:587", true, false),
            ("127.0.0.1:465", false, true),
            ("mail.example:25", false, false),
            ("mail.example:465", false, true),
        ] {
            let server = SmtpServer::parse(server).unwrap();
            let found = (server.is_in_clear(), server.is_tls_at_once());
            assert_eq!(found, (is_in_clear, is_at_once), "{}", server.text);
        }
    }

    #[test]
    fn what_is_no_address_and_no_server_is_refused() {
        let long = format!("{}@example.org", "a".repeat(243));
        for to in [
            "",
            "ops",
            "@example.org",
            "ops@",
            "a@b@c",
            "a b@c",
            "a\\nb@c",
            "<a@c>",
            "a@c,b@c",
            &long,
        ] {
            assert!(mail(&format!("mail = \"{to}\"")).is_err(), "{to}");
        }
        let longest = format!("mail = \"{}@example.org\"", "a".repeat(242));
        assert!(mail(&longest).is_ok());
        for server in [
            "",
            "mail.example",
            "mail.example:0",
            ":25",
            "a b:25",
            "u@a:25",
            "smtp://a:25",
        ] {
            assert!(
                mail(&format!("mail = \"a@b\"\nsmtp = \"{server}\"")).is_err(),
                "{server}"
            );
        }
    }

    #[test]
    fn keys_belong_to_a_webhook_or_to_mail_and_a_login_is_whole() {
        for keys in [
            "",
            "mail = \"a@b\"\nurl = \"https://a\"\nsecret_file = \"k\"",
            "mail = \"a@b\"\nsecret_file = \"k\"",
            "url = \"https://a\"\nsecret_file = \"k\"\nfrom = \"a@b\"",
            "mail = \"a@b\"\nsmtp_user = \"u\"",
            "mail = \"a@b\"\nsmtp_password_file = \"p\"",
        ] {
            assert!(mail(keys).is_err(), "{keys}");
        }
        let twice = "[[notify]]\nmail = \"a@b\"\n".repeat(2);
        assert!(Model::from_toml(&twice, Path::new("/etc/t.toml")).is_err());
    }
}
