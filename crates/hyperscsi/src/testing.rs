//! For tests of other crates: passwords that are not stretched, so that a login costs a hundredth of what it does, and
//! sessions without a login. A target does not stretch passwords, and takes both.

use std::time::Duration;

use opaque_ke::ksf::Identity;
use opaque_ke::{
    CipherSuite, ClientLogin, ClientLoginFinishParameters, ClientRegistration,
    ClientRegistrationFinishParameters, CredentialResponse, RegistrationRequest, Ristretto255,
    ServerRegistration, ServerSetup, TripleDh,
};

use crate::client::ClientSession;
use crate::device::Device;
use crate::exchange::{ClientExchange, NAMELESS, OpaqueTarget, Secret, Source};
use crate::keys::{Entropy, Keys};
use crate::link::{Settings, Terms};
use crate::pdu::Level;
use crate::target::TargetSession;

/// The suite without stretching.
struct Suite;

impl CipherSuite for Suite {
    type OprfCs = Ristretto255;
    type KeyExchange = TripleDh<Ristretto255, sha2::Sha512>;
    type Ksf = Identity;
}

/// The record of a name with a password that is not stretched.
#[must_use]
pub fn record(
    target: &OpaqueTarget,
    name: &[u8],
    password: &[u8],
    entropy: &mut Entropy,
) -> Option<Vec<u8>> {
    let setup = ServerSetup::<Suite>::deserialize(&target.to_bytes()).ok()?;
    let started = ClientRegistration::<Suite>::start(&mut Source(entropy), password).ok()?;
    let request = RegistrationRequest::deserialize(&started.message.serialize()).ok()?;
    let answer = ServerRegistration::start(&setup, request, name).ok()?;
    let parameters = ClientRegistrationFinishParameters::new(NAMELESS, None);
    let source = &mut Source(entropy);
    let finished = started
        .state
        .finish(source, password, answer.message, parameters);
    let record = ServerRegistration::finish(finished.ok()?.message);
    Some(record.serialize().to_vec())
}

/// A client whose password is not stretched.
pub struct UnstretchedClient {
    password: Vec<u8>,
    state: ClientLogin<Suite>,
    first: Vec<u8>,
}

impl std::fmt::Debug for UnstretchedClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UnstretchedClient")
    }
}

impl UnstretchedClient {
    /// Begins with a password; `None` where the random bytes are of no use.
    #[must_use]
    pub fn new(password: &[u8], entropy: &mut Entropy) -> Option<Self> {
        let started = ClientLogin::start(&mut Source(entropy), password).ok()?;
        Some(Self {
            password: password.to_vec(),
            state: started.state,
            first: started.message.serialize().to_vec(),
        })
    }
}

impl ClientExchange for UnstretchedClient {
    fn first(&self) -> &[u8] {
        &self.first
    }

    fn finish(
        &mut self,
        answer: &[u8],
        context: &[u8],
        entropy: &mut Entropy,
    ) -> Option<(Vec<u8>, Secret)> {
        let answer = CredentialResponse::deserialize(answer).ok()?;
        let parameters = ClientLoginFinishParameters::new(Some(context), NAMELESS, None);
        let source = &mut Source(entropy);
        let finished = self
            .state
            .clone()
            .finish(source, &self.password, answer, parameters);
        let finished = finished.ok()?;
        let secret = Secret::new(finished.session_key.to_vec());
        Some((finished.message.serialize().to_vec(), secret))
    }
}

/// A disk of 512 MiB, named by its handle.
#[must_use]
pub fn disk(handle: u16, level: Level) -> Device {
    Device {
        handle,
        level,
        is_read_only: false,
        is_removable: false,
        peripheral_type: 0,
        block_bytes: 512,
        blocks: 1 << 20,
        data_max_bytes: 1 << 20,
        designator: [1; 16],
        name: format!("disk{handle}"),
    }
}

/// What ends agree on that do the same on both sides.
#[must_use]
pub const fn terms(settings: &Settings) -> Terms {
    Terms {
        session: 7,
        first_tag: 1,
        slots: 64,
        peer_window: settings.window,
        peer_begun_bytes: settings.begun_bytes,
        frame_bytes_max: settings.frame_bytes_max,
        profile: settings.profile,
        bundles: true,
    }
}

/// Both ends of a session that does the same on both sides.
#[must_use]
pub fn session<C: AsRef<[u8]> + Default, T: AsRef<[u8]> + Default>(
    now: Duration,
    settings: Settings,
    slots: u16,
    devices: Vec<Device>,
) -> (ClientSession<C>, TargetSession<T>) {
    let terms = Terms {
        slots,
        ..terms(&settings)
    };
    let keys = Keys::new(b"both ends");
    (
        ClientSession::new(now, &keys, terms, settings),
        TargetSession::new(now, &keys, terms, settings, devices),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::TargetExchange as _;

    #[test]
    fn a_target_takes_a_password_that_is_not_stretched() {
        let mut entropy = Entropy::new(&[1; 32]);
        let target = OpaqueTarget::new(&mut entropy);
        let record = record(&target, b"group", b"password", &mut entropy).unwrap();
        for (password, is_right) in [(&b"password"[..], true), (b"passwore", false)] {
            let mut client = UnstretchedClient::new(password, &mut entropy).unwrap();
            let first = client.first().to_vec();
            let answered = target.answer(b"group", Some(&record), &first, b"c", &mut entropy);
            let (pending, answer) = answered.unwrap();
            let finished = client.finish(&answer, b"c", &mut entropy);
            assert_eq!(finished.is_some(), is_right);
            if let Some((last, secret)) = finished {
                assert_eq!(target.finish(pending, &last, b"c"), Some(secret));
            }
        }
    }
}
