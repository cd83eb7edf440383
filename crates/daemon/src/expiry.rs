//! Certificates that are valid for a short time yet, or no longer.

use std::time::{Duration, SystemTime};

use api::event::Severity;
use config::Model;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What a certificate is of that is no server's.
pub(crate) const ADMINISTRATION: &str = "administration";

/// Somebody should see to it from then on.
const WARN: Duration = Duration::from_secs(30 * DAY.as_secs());
/// It is late.
const LATE: Duration = Duration::from_secs(7 * DAY.as_secs());

/// How near its end a certificate is: severity and code of the finding, and what it says. `None` where there is time.
pub(crate) fn verdict(
    not_after: SystemTime,
    now: SystemTime,
) -> Option<(Severity, &'static str, String)> {
    let left = not_after.duration_since(now).ok();
    let (severity, code) = match left {
        None => (Severity::Error, "certificate-expired"),
        Some(left) if left <= LATE => (Severity::Error, "certificate-last-week"),
        Some(left) if left <= WARN => (Severity::Warning, "certificate-expires"),
        Some(_) => return None,
    };
    let message = match left.map(|left| left.as_secs() / DAY.as_secs()) {
        None => "its certificate is valid no longer, and clients refuse it".to_owned(),
        Some(0) => "its certificate is valid for less than a day".to_owned(),
        Some(1) => "its certificate is valid for 1 more day".to_owned(),
        Some(days) => format!("its certificate is valid for {days} more days"),
    };
    Some((severity, code, message))
}

/// The same of the certificates that a configuration names: what has each, and what is said of it.
pub(crate) fn warnings(model: &Model, now: SystemTime) -> Vec<String> {
    let of_nbd = model.nbd().iter().filter_map(|server| {
        let tls = server.tls.as_ref()?;
        Some((server.at.to_string(), &tls.certificate))
    });
    let admin = model.admin();
    let of_admin = admin.certificate.as_ref().filter(|_| admin.tls);
    let of_admin = of_admin.map(|files| (ADMINISTRATION.to_owned(), files));
    let named = of_admin.into_iter().chain(of_nbd);
    let warnings = named.filter_map(|(of, files)| {
        let (_, _, message) = verdict(admin::not_after(&files.certificate)?, now)?;
        Some(format!("{of}: {message} ({})", files.certificate.display()))
    });
    warnings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_found_at_30_and_7_days_and_at_its_end() {
        let now = SystemTime::UNIX_EPOCH + 1000 * DAY;
        let second = Duration::from_secs(1);
        for (left, expected) in [
            (30 * DAY + second, None),
            (30 * DAY, Some(("certificate-expires", "for 30 more days"))),
            (
                7 * DAY + second,
                Some(("certificate-expires", "for 7 more days")),
            ),
            (7 * DAY, Some(("certificate-last-week", "for 7 more days"))),
            (DAY, Some(("certificate-last-week", "for 1 more day"))),
            (second, Some(("certificate-last-week", "less than a day"))),
        ] {
            let found = verdict(now + left, now);
            assert_eq!(found.as_ref().map(|it| it.1), expected.map(|it| it.0));
            let message = found.map_or_else(String::new, |it| it.2);
            assert!(
                message.contains(expected.map_or("", |it| it.1)),
                "{message}"
            );
        }
        let (severity, code, _) = verdict(now - second, now).unwrap();
        assert_eq!((severity, code), (Severity::Error, "certificate-expired"));
    }
}
