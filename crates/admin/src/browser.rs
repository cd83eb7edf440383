//! Logins of the console: a cookie stands for a token, and changes need a second secret that no
//! other site can read.

use std::time::Instant;

use crate::limits;
use crate::places::Places;
use crate::random::{self, Hash};
use crate::tokens::Holder;

/// A login that lives.
struct Login {
    hash: Hash,
    csrf: String,
    holder: Holder,
    ends: Instant,
}

/// What a new login gives the browser.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The value of the cookie.
    pub(crate) cookie: String,
    /// What every change has to bring along.
    pub(crate) csrf: String,
}

/// All logins that live.
pub(crate) struct Logins(Places<Login>);

impl Default for Logins {
    fn default() -> Self {
        Self(Places::new(limits::LOGINS_MAX))
    }
}

impl Logins {
    /// Opens one for the holder of a token. Where the token has all of its places, its oldest login ends.
    ///
    /// # Errors
    ///
    /// The system has no random bytes.
    pub(crate) fn open(
        &mut self,
        holder: Holder,
        now: Instant,
    ) -> Result<Opened, getrandom::Error> {
        self.0.retain(|login| login.ends > now);
        let (cookie, csrf) = (random::secret()?, random::secret()?);
        let token = holder.name.clone();
        let login = Login {
            hash: Hash::of(&cookie),
            csrf: csrf.clone(),
            holder,
            ends: now + limits::LOGIN_TIME_MAX,
        };
        self.0.take(&token, login);
        Ok(Opened { cookie, csrf })
    }

    /// Who this cookie stands for, and the secret for changes.
    pub(crate) fn find(&self, cookie: &str, now: Instant) -> Option<(Holder, String)> {
        let hash = Hash::of(cookie);
        let mut found = None;
        for login in self.0.items() {
            if login.hash.is(&hash) && login.ends > now {
                found = Some((login.holder.clone(), login.csrf.clone()));
            }
        }
        found
    }

    /// Ends all logins that this token has opened.
    pub(crate) fn close_all_of(&mut self, holder: &Holder) {
        self.0.retain(|login| login.holder != *holder);
    }

    /// Ends the login of this cookie.
    pub(crate) fn close(&mut self, cookie: &str) {
        let hash = Hash::of(cookie);
        self.0.retain(|login| !login.hash.is(&hash));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use api::access::Role;

    use super::*;

    fn holder(name: &str) -> Holder {
        Holder {
            name: name.to_owned(),
            role: Role::Viewer,
            token: Hash::of(name),
        }
    }

    #[test]
    fn a_login_ends_at_its_time_and_not_before() {
        let mut logins = Logins::default();
        let start = Instant::now();
        let opened = logins.open(holder("a"), start).unwrap();
        let end = start + limits::LOGIN_TIME_MAX;
        let last = end - Duration::from_nanos(1);
        let (found, csrf) = logins.find(&opened.cookie, last).unwrap();
        assert_eq!((found, csrf), (holder("a"), opened.csrf));
        assert!(logins.find(&opened.cookie, end).is_none());
    }

    #[test]
    fn a_closed_login_is_gone_and_others_stay() {
        let mut logins = Logins::default();
        let now = Instant::now();
        let one = logins.open(holder("a"), now).unwrap();
        let other = logins.open(holder("b"), now).unwrap();
        logins.close(&one.cookie);
        assert!(logins.find(&one.cookie, now).is_none());
        assert!(logins.find(&other.cookie, now).is_some());
    }

    #[test]
    fn the_logins_of_a_token_end_together_and_others_stay() {
        let mut logins = Logins::default();
        let now = Instant::now();
        let of_a = [(); 2].map(|()| logins.open(holder("a"), now).unwrap());
        let of_b = logins.open(holder("b"), now).unwrap();
        logins.close_all_of(&holder("a"));
        for login in of_a {
            assert!(logins.find(&login.cookie, now).is_none());
        }
        assert!(logins.find(&of_b.cookie, now).is_some());
    }

    #[test]
    fn the_oldest_login_of_a_token_makes_room_for_its_next_and_no_other_does() {
        let mut logins = Logins::default();
        let now = Instant::now();
        let of_another = logins.open(holder("a"), now).unwrap();
        let first = logins.open(holder("b"), now).unwrap();
        for _ in 1..limits::LOGINS_MAX {
            logins.open(holder("b"), now).unwrap();
        }
        assert!(logins.find(&first.cookie, now).is_some());
        logins.open(holder("b"), now).unwrap();
        assert!(logins.find(&first.cookie, now).is_none());
        assert!(logins.find(&of_another.cookie, now).is_some());
    }

    #[test]
    fn logins_that_are_over_take_no_places() {
        let mut logins = Logins::default();
        let start = Instant::now();
        logins.open(holder("a"), start).unwrap();
        logins
            .open(holder("b"), start + limits::LOGIN_TIME_MAX)
            .unwrap();
        assert_eq!(logins.0.items().count(), 1);
    }
}
