//! Why logins fail.

use ::iscsi::framing::FramingError;
use ::iscsi::login::LoginViolation;
use ::iscsi::pdu::LoginStatus;

use super::unproved::Crowding;

/// Why a login failed, for programs.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum LoginCause {
    /// The connection began with something else.
    NoLogin,
    /// It was not complete in time.
    Timeout,
    /// The initiator closed the connection in the middle.
    Abandoned,
    /// CHAP was refused or did not succeed.
    AuthenticationFailure,
    /// The rules of access do not let the initiator in.
    AuthorizationFailure,
    /// No such target, or none that it may know of.
    NotFound,
    /// There are as many sessions, or unfinished logins, as there may be.
    OutOfResources,
    /// The session has as many connections as were agreed.
    TooManyConnections,
    /// The session to join is not there, is another's, or is ending.
    SessionDoesNotExist,
    /// The fault is ours.
    TargetError,
    /// The initiator broke a rule of the protocol, or asked for what cannot be.
    InitiatorError,
}

impl LoginCause {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::NoLogin,
        Self::Timeout,
        Self::Abandoned,
        Self::AuthenticationFailure,
        Self::AuthorizationFailure,
        Self::NotFound,
        Self::OutOfResources,
        Self::TooManyConnections,
        Self::SessionDoesNotExist,
        Self::TargetError,
        Self::InitiatorError,
    ];

    /// As it is counted and reported.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoLogin => "no-login",
            Self::Timeout => "timeout",
            Self::Abandoned => "abandoned",
            Self::AuthenticationFailure => "authentication-failure",
            Self::AuthorizationFailure => "authorization-failure",
            Self::NotFound => "not-found",
            Self::OutOfResources => "out-of-resources",
            Self::TooManyConnections => "too-many-connections",
            Self::SessionDoesNotExist => "session-does-not-exist",
            Self::TargetError => "target-error",
            Self::InitiatorError => "initiator-error",
        }
    }

    const fn of_status(status: LoginStatus) -> Self {
        match status {
            LoginStatus::AuthenticationFailure => Self::AuthenticationFailure,
            LoginStatus::AuthorizationFailure => Self::AuthorizationFailure,
            LoginStatus::NotFound | LoginStatus::TargetRemoved => Self::NotFound,
            LoginStatus::OutOfResources => Self::OutOfResources,
            LoginStatus::TooManyConnections => Self::TooManyConnections,
            LoginStatus::SessionDoesNotExist | LoginStatus::CannotIncludeInSession => {
                Self::SessionDoesNotExist
            }
            LoginStatus::TargetError | LoginStatus::ServiceUnavailable => Self::TargetError,
            LoginStatus::Success
            | LoginStatus::TargetMovedTemporarily
            | LoginStatus::TargetMovedPermanently
            | LoginStatus::InitiatorError
            | LoginStatus::UnsupportedVersion
            | LoginStatus::MissingParameter
            | LoginStatus::SessionTypeNotSupported
            | LoginStatus::InvalidRequestDuringLogin => Self::InitiatorError,
        }
    }
}

/// What ended a login.
#[derive(Debug, thiserror::Error)]
pub enum LoginFailure {
    /// The login machine, or the policy that it asked.
    #[error(transparent)]
    Violation(#[from] LoginViolation),
    /// Bytes in which no further PDU is found.
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// The connection ended.
    #[error("the connection ended before the login was complete")]
    Abandoned,
    /// That of HyperSCSI: nothing came that shows that the client knows the password.
    #[error("it did not prove the password: that is wrong, or the client is gone")]
    Unproved,
    /// A newer one took its place.
    #[error("displaced: {0}")]
    Displaced(Crowding),
}

impl LoginFailure {
    /// For programs.
    pub fn cause(&self) -> LoginCause {
        match self {
            Self::Violation(LoginViolation::DeadlinePassed) => LoginCause::Timeout,
            Self::Violation(violation) => violation
                .status()
                .map_or(LoginCause::NoLogin, LoginCause::of_status),
            Self::Framing(_) => LoginCause::InitiatorError,
            Self::Abandoned | Self::Unproved => LoginCause::Abandoned,
            Self::Displaced(_) => LoginCause::OutOfResources,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_its_cause() {
        let refused = |status| LoginFailure::from(LoginViolation::Refused(status));
        for (failure, cause) in [
            (LoginViolation::DeadlinePassed.into(), LoginCause::Timeout),
            (
                LoginViolation::NotALogin { opcode: 0 }.into(),
                LoginCause::NoLogin,
            ),
            (
                LoginViolation::SecuritySkipped.into(),
                LoginCause::AuthenticationFailure,
            ),
            (
                refused(LoginStatus::TooManyConnections),
                LoginCause::TooManyConnections,
            ),
            (
                refused(LoginStatus::AuthorizationFailure),
                LoginCause::AuthorizationFailure,
            ),
            (refused(LoginStatus::TargetRemoved), LoginCause::NotFound),
            (
                refused(LoginStatus::CannotIncludeInSession),
                LoginCause::SessionDoesNotExist,
            ),
            (
                refused(LoginStatus::ServiceUnavailable),
                LoginCause::TargetError,
            ),
            (
                refused(LoginStatus::MissingParameter),
                LoginCause::InitiatorError,
            ),
            (
                LoginFailure::Displaced(Crowding::Logins(1)),
                LoginCause::OutOfResources,
            ),
        ] {
            assert_eq!(failure.cause(), cause, "{failure}");
        }
    }

    #[test]
    fn each_cause_is_named_for_programs() {
        let names = LoginCause::ALL.map(LoginCause::as_str);
        #[rustfmt::skip]
        let expected = [
            "no-login", "timeout", "abandoned", "authentication-failure", "authorization-failure", "not-found",
            "out-of-resources", "too-many-connections", "session-does-not-exist", "target-error", "initiator-error",
        ];
        assert_eq!(names, expected);
    }
}
