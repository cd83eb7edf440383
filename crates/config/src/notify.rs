//! `[[notify]]`: who gets events as they happen.

use std::path::Path;

use crate::error::At as _;
use crate::file::{FirstUse, read_secret};
use crate::keys::SECTION_NOTIFY;
use crate::reader::Section;
use crate::{ConfigError, Model, Place, Rule, SecretFile};

/// Names a [`Notify`] of one model.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NotifyIndex(pub(crate) usize);

impl NotifyIndex {
    /// Position in the list of the model, counted from zero.
    pub const fn position(self) -> usize {
        self.0
    }
}

/// A web server that gets events.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Notify {
    /// Where they go.
    pub url: WebhookUrl,
    /// What they are signed with.
    pub secret: SecretFile,
    /// Which kinds of events.
    pub events: Vec<String>,
    /// Where it is given.
    pub place: Place,
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

/// Kinds of events, in the order of docs/API.md.
#[rustfmt::skip]
pub const EVENT_KINDS: &[&str] = &[
    "session-began", "session-ended", "connection-joined", "login-failed", "slow-command", "command-hangs", "slow-send",
    "state-damaged", "state-unwritable", "state-foreign", "reservations-lost", "lun-withheld", "administration",
    "core-stalled", "lun-resized", "medium-ejected", "medium-loaded", "snapshot-taken", "snapshot-removed",
    "snapshot-restored", "snapshot-missed", "rollback-failed", "lun-flattened", "flatten-failed", "store-stuck",
    "store-freed", "store-lost", "store-reached", "state-not-kept", "state-conflict", "store-error", "finding-began", "finding-ended", "quota-soft", "quota-full",
    "quota-free", "config-applied", "admin-change", "admin-read", "admin-refused",
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

    fn parse(text: &str) -> Result<Self, Rule> {
        let wrong = || Rule::Webhook;
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
            return Err(Rule::WebhookInClear {
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

impl Model {
    /// Those that get events, by the position of their index.
    pub fn notify(&self) -> &[Notify] {
        &self.notify
    }
}

/// Those of a file.
pub(crate) fn read(top: &Section<'_>, directory: &Path) -> Result<Vec<Notify>, ConfigError> {
    let mut seen = FirstUse::new("url");
    let mut all = Vec::new();
    for entry in top.entries("notify")? {
        let section = entry.section(SECTION_NOTIFY)?;
        let url = section.required("url")?;
        let place = url.place();
        let url = WebhookUrl::parse(url.text()?).at(|| place.clone())?;
        seen.insert_as(url.text.clone(), url.origin().to_owned(), place.clone())?;
        let mut events = EVENTS_DEFAULT.map(str::to_owned).to_vec();
        if let Some(field) = section.field("events") {
            events.clear();
            for entry in field.entries()? {
                let kind = entry.text()?;
                if !EVENT_KINDS.contains(&kind) {
                    let kind = kind.to_owned();
                    return Err(Rule::EventKind { kind }.at(entry.place()));
                }
                events.push(kind.to_owned());
            }
            if events.is_empty() {
                return Err(Rule::NoEvents.at(field.place()));
            }
        }
        all.push(Notify {
            url,
            secret: read_secret(&section, directory)?,
            events,
            place,
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(keys: &str) -> Result<Model, String> {
        let text = format!("[[notify]]\nsecret_file = \"key\"\n{keys}\n");
        Model::from_toml(&text, Path::new("/etc/t.toml")).map_err(|error| error.to_string())
    }

    fn url(url: &str) -> Result<WebhookUrl, String> {
        Ok(model(&format!("url = {url:?}"))?.notify()[0].url.clone())
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
}
