//! The user to become, from `/etc/passwd` and `/etc/group`. No other name service is asked: its libraries
//! would be loaded into the process, and a statically linked one has none.

use std::path::Path;
use std::{fs, io};

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";

/// Who to become.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Account {
    /// The user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The groups it is in besides.
    pub groups: Vec<u32>,
}

/// Why there is no such account.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Unreadable {
        /// The file.
        path: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// No such name.
    #[error("there is no {what} {name:?} in {path}; add it, or name another")]
    Unknown {
        /// User or group.
        what: &'static str,
        /// The name.
        name: String,
        /// Where it was looked for.
        path: &'static str,
    },
}

impl Account {
    /// Finds a user, by name or number, with its own group or another one.
    ///
    /// # Errors
    ///
    /// A name that the files do not have. A number needs no entry if the group is named too.
    pub fn find(user: &str, group: Option<&str>) -> Result<Self, AccountError> {
        Self::find_in(&read(PASSWD)?, &read(GROUP)?, user, group)
    }

    /// Spec: passwd(5), group(5).
    fn find_in(
        passwd: &str,
        groups: &str,
        user: &str,
        group: Option<&str>,
    ) -> Result<Self, AccountError> {
        let entry = passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let (name, _, uid, gid) = (
                fields.next()?,
                fields.next()?,
                fields.next()?,
                fields.next()?,
            );
            (name == user || uid == user).then_some((name, uid.parse().ok()?, gid.parse().ok()?))
        });
        let group = group.map(|name| group_id(groups, name)).transpose()?;
        let (name, uid, gid) = match (entry, group, user.parse()) {
            (Some((name, uid, own)), group, _) => (name, uid, group.unwrap_or(own)),
            (None, Some(gid), Ok(uid)) => (user, uid, gid),
            (None, _, _) => {
                return Err(AccountError::Unknown {
                    what: "user",
                    name: user.to_owned(),
                    path: PASSWD,
                });
            }
        };
        Ok(Self {
            uid,
            gid,
            groups: groups_of(groups, name),
        })
    }
}

fn read(path: &'static str) -> Result<String, AccountError> {
    fs::read_to_string(Path::new(path)).map_err(|source| AccountError::Unreadable { path, source })
}

/// Name, number and members of each group.
fn entries(groups: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    groups.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, _, gid) = (fields.next()?, fields.next()?, fields.next()?);
        Some((name, gid, fields.next().unwrap_or_default()))
    })
}

fn group_id(groups: &str, wanted: &str) -> Result<u32, AccountError> {
    let listed = entries(groups).find(|(name, gid, _)| *name == wanted || *gid == wanted);
    let gid = listed.map_or(wanted, |(_, gid, _)| gid);
    gid.parse().map_err(|_| AccountError::Unknown {
        what: "group",
        name: wanted.to_owned(),
        path: GROUP,
    })
}

fn groups_of(groups: &str, user: &str) -> Vec<u32> {
    entries(groups)
        .filter(|(_, _, members)| members.split(',').any(|member| member == user))
        .filter_map(|(_, gid, _)| gid.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/sh\ntarn:x:998:997::/:/bin/false\nbroken\n";
    const GROUPS: &str = "root:x:0:\ndisk:x:6:backup,tarn\ntarn:x:997:\nkvm:x:5:tarnish\n";

    fn find(user: &str, group: Option<&str>) -> Result<(u32, u32, Vec<u32>), String> {
        let found = Account::find_in(USERS, GROUPS, user, group);
        found
            .map(|account| (account.uid, account.gid, account.groups))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_user_comes_with_its_groups_and_may_be_given_another() {
        for user in ["tarn", "998"] {
            assert_eq!(find(user, None), Ok((998, 997, vec![6])));
            assert_eq!(find(user, Some("disk")), Ok((998, 6, vec![6])));
            assert_eq!(find(user, Some("4711")), Ok((998, 4711, vec![6])));
        }
        assert_eq!(find("4711", Some("4711")), Ok((4711, 4711, vec![])));
    }

    #[test]
    fn who_is_not_there_is_told_with_the_file() {
        for user in ["tarnish", "4711", ""] {
            let expected =
                format!("there is no user {user:?} in /etc/passwd; add it, or name another");
            assert_eq!(find(user, None), Err(expected));
        }
        let expected = "there is no group \"staff\" in /etc/group; add it, or name another";
        assert_eq!(find("tarn", Some("staff")), Err(expected.to_owned()));
    }
}
