//! As what failures of stores are counted.

use std::borrow::Cow;
use std::fmt;

use crate::request::IoFailure;

/// Why a request failed, without the place where it did.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Cause {
    /// The medium does not give or take bytes.
    Medium,
    /// No space left, or a quota is used up.
    NoSpace,
    /// The store ends before the bytes.
    Truncated,
    /// A flush failed, this one or an earlier one.
    FlushFailed,
    /// The store cannot be reached now.
    NotReady,
    /// Another error number of the system; 0 is an unknown one.
    System(i32),
}

/// Names of error numbers that stores meet.
///
/// Spec: errno(3), as Linux numbers them on every architecture that Tarn is built for.
#[rustfmt::skip]
const NAMES: &[(i32, &str)] = &[
    (1, "EPERM"), (2, "ENOENT"), (4, "EINTR"), (5, "EIO"), (6, "ENXIO"), (9, "EBADF"), (11, "EAGAIN"), (12, "ENOMEM"),
    (13, "EACCES"), (14, "EFAULT"), (16, "EBUSY"), (19, "ENODEV"), (22, "EINVAL"), (27, "EFBIG"), (28, "ENOSPC"),
    (30, "EROFS"), (32, "EPIPE"), (52, "EBADE"), (61, "ENODATA"), (71, "EPROTO"), (84, "EILSEQ"), (95, "EOPNOTSUPP"),
    (103, "ECONNABORTED"), (104, "ECONNRESET"), (107, "ENOTCONN"), (108, "ESHUTDOWN"), (110, "ETIMEDOUT"),
    (111, "ECONNREFUSED"), (112, "EHOSTDOWN"), (113, "EHOSTUNREACH"), (116, "ESTALE"), (117, "EUCLEAN"),
    (121, "EREMOTEIO"), (122, "EDQUOT"), (123, "ENOMEDIUM"), (125, "ECANCELED"),
];

impl Cause {
    /// In one word, for a label: the name of an error number, or what has none.
    pub fn label(self) -> Cow<'static, str> {
        match self {
            Self::Medium => Cow::Borrowed("EIO"),
            Self::NoSpace => Cow::Borrowed("ENOSPC"),
            Self::Truncated => Cow::Borrowed("truncated"),
            Self::FlushFailed => Cow::Borrowed("flush-failed"),
            Self::NotReady => Cow::Borrowed("not-ready"),
            Self::System(0) => Cow::Borrowed("unknown"),
            Self::System(errno) => {
                let name = NAMES.iter().find(|(number, _)| *number == errno);
                name.map_or_else(
                    || Cow::Owned(format!("errno-{errno}")),
                    |(_, name)| Cow::Borrowed(*name),
                )
            }
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())
    }
}

impl IoFailure {
    /// As what this is counted. `None` where nothing is wrong with the store: the request was cancelled, the data that
    /// it compares differs, the store is only read here, or another client has it.
    pub const fn cause(&self) -> Option<Cause> {
        match self {
            Self::Medium { .. } => Some(Cause::Medium),
            Self::Hardware { errno } => Some(Cause::System(*errno)),
            Self::NoSpace { .. } => Some(Cause::NoSpace),
            Self::Truncated { .. } => Some(Cause::Truncated),
            Self::FlushLatched | Self::CacheLost => Some(Cause::FlushFailed),
            Self::NotReady => Some(Cause::NotReady),
            Self::Cancelled | Self::ReadOnly | Self::Miscompare { .. } | Self::HeldElsewhere => {
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_has_one_word() {
        for (cause, word) in [
            (Cause::Medium, "EIO"),
            (Cause::NoSpace, "ENOSPC"),
            (Cause::Truncated, "truncated"),
            (Cause::FlushFailed, "flush-failed"),
            (Cause::NotReady, "not-ready"),
            (Cause::System(5), "EIO"),
            (Cause::System(116), "ESTALE"),
            (Cause::System(0), "unknown"),
            (Cause::System(77), "errno-77"),
        ] {
            assert_eq!(cause.label(), word, "{cause:?}");
            assert_eq!(cause.to_string(), word);
        }
    }

    #[test]
    fn what_the_store_is_not_to_blame_for_has_no_cause() {
        for (failure, cause) in [
            (IoFailure::Medium { offset: 0 }, Some(Cause::Medium)),
            (IoFailure::Hardware { errno: 7 }, Some(Cause::System(7))),
            (IoFailure::FlushLatched, Some(Cause::FlushFailed)),
            (IoFailure::CacheLost, Some(Cause::FlushFailed)),
            (IoFailure::NotReady, Some(Cause::NotReady)),
            (IoFailure::Cancelled, None),
            (IoFailure::ReadOnly, None),
            (IoFailure::Miscompare { offset: 0 }, None),
            (IoFailure::HeldElsewhere, None),
        ] {
            assert_eq!(failure.cause(), cause, "{failure}");
        }
    }
}
