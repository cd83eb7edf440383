//! The key exchange by password: what a login needs of it, and OPAQUE, which does it.
//!
//! Both ends hold a password, the target only what it made of it. Neither what goes over the wire nor what an impostor
//! gets to see lets anybody try passwords without asking the target once for each.
//!
//! Spec: RFC 9807 (OPAQUE-3DH with ristretto255, SHA-512 and Argon2id).

use opaque_ke::argon2::Argon2;
use opaque_ke::rand::{CryptoRng, Error, RngCore};
use opaque_ke::{
    CipherSuite, ClientLogin, ClientLoginFinishParameters, ClientRegistration,
    ClientRegistrationFinishParameters, CredentialFinalization, CredentialRequest,
    CredentialResponse, Identifiers, RegistrationRequest, Ristretto255, ServerLogin,
    ServerLoginParameters, ServerRegistration, ServerSetup, TripleDh,
};
use zeroize::Zeroizing;

use crate::keys::Entropy;

/// What both ends have in the end, and nobody else.
pub type Secret = Zeroizing<Vec<u8>>;

/// The client's part.
pub trait ClientExchange: std::fmt::Debug {
    /// What it sends first.
    fn first(&self) -> &[u8];

    /// Takes the target's answer. Gives what the client sends, and the secret; `None` if the target does not know the
    /// password, or it was not the target. Takes some tens of milliseconds.
    fn finish(
        &mut self,
        answer: &[u8],
        context: &[u8],
        entropy: &mut Entropy,
    ) -> Option<(Vec<u8>, Secret)>;
}

/// The target's part, for all its groups.
pub trait TargetExchange: std::fmt::Debug {
    /// What it keeps between its answer and the client's last message.
    type Pending: std::fmt::Debug;

    /// Answers the first message for this name. A name that is not known is answered alike.
    fn answer(
        &self,
        name: &[u8],
        record: Option<&[u8]>,
        first: &[u8],
        context: &[u8],
        entropy: &mut Entropy,
    ) -> Option<(Self::Pending, Vec<u8>)>;

    /// Takes the last message. Gives the secret if the client knows the password.
    fn finish(&self, pending: Self::Pending, last: &[u8], context: &[u8]) -> Option<Secret>;
}

/// One part for several gates.
impl<X: TargetExchange> TargetExchange for std::sync::Arc<X> {
    type Pending = X::Pending;

    fn answer(
        &self,
        name: &[u8],
        record: Option<&[u8]>,
        first: &[u8],
        context: &[u8],
        entropy: &mut Entropy,
    ) -> Option<(X::Pending, Vec<u8>)> {
        X::answer(self, name, record, first, context, entropy)
    }

    fn finish(&self, pending: X::Pending, last: &[u8], context: &[u8]) -> Option<Secret> {
        X::finish(self, pending, last, context)
    }
}

/// The suite.
struct Suite;

impl CipherSuite for Suite {
    type OprfCs = Ristretto255;
    type KeyExchange = TripleDh<Ristretto255, sha2::Sha512>;
    type Ksf = Argon2<'static>;
}

/// Random bytes as the library takes them.
pub(crate) struct Source<'a>(pub(crate) &'a mut Entropy);

impl RngCore for Source<'_> {
    fn next_u32(&mut self) -> u32 {
        u32::from_be_bytes(self.0.bytes())
    }

    fn next_u64(&mut self) -> u64 {
        u64::from_be_bytes(self.0.bytes())
    }

    fn fill_bytes(&mut self, dest: &mut [u8]) {
        self.0.fill(dest);
    }

    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        self.0.fill(dest);
        Ok(())
    }
}

impl CryptoRng for Source<'_> {}

/// Neither end has a name of its own in the exchange: names are in the context.
pub(crate) const NAMELESS: Identifiers<'static> = Identifiers {
    client: None,
    server: None,
};

/// The client's part of OPAQUE.
pub struct OpaqueClient {
    password: Zeroizing<Vec<u8>>,
    state: Option<ClientLogin<Suite>>,
    first: Vec<u8>,
}

impl std::fmt::Debug for OpaqueClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OpaqueClient")
    }
}

impl OpaqueClient {
    /// Begins with a password; `None` where the random bytes are of no use.
    #[must_use]
    pub fn new(password: &[u8], entropy: &mut Entropy) -> Option<Self> {
        let started = ClientLogin::start(&mut Source(entropy), password).ok()?;
        Some(Self {
            password: Zeroizing::new(password.to_vec()),
            state: Some(started.state),
            first: started.message.serialize().to_vec(),
        })
    }
}

impl ClientExchange for OpaqueClient {
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
        // A forged answer must not use the login up: the state stays.
        let state = self.state.clone()?;
        let finished = state
            .finish(&mut Source(entropy), &self.password, answer, parameters)
            .ok()?;
        let secret = Zeroizing::new(finished.session_key.to_vec());
        Some((finished.message.serialize().to_vec(), secret))
    }
}

/// The target's part of OPAQUE: its key, and the seed of its records. Who has both and the records can try passwords.
pub struct OpaqueTarget(ServerSetup<Suite>);

impl std::fmt::Debug for OpaqueTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OpaqueTarget")
    }
}

impl OpaqueTarget {
    /// A new key and seed.
    #[must_use]
    pub fn new(entropy: &mut Entropy) -> Self {
        Self(ServerSetup::new(&mut Source(entropy)))
    }

    /// What is kept of it.
    #[must_use]
    pub fn to_bytes(&self) -> Secret {
        Zeroizing::new(self.0.serialize().to_vec())
    }

    /// Of what was kept.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        ServerSetup::deserialize(bytes).ok().map(Self)
    }

    /// The record of a name with this password. Takes some tens of milliseconds.
    #[must_use]
    pub fn record(&self, name: &[u8], password: &[u8], entropy: &mut Entropy) -> Option<Vec<u8>> {
        let started = ClientRegistration::<Suite>::start(&mut Source(entropy), password).ok()?;
        let request = RegistrationRequest::deserialize(&started.message.serialize()).ok()?;
        let answer = ServerRegistration::start(&self.0, request, name).ok()?;
        let parameters = ClientRegistrationFinishParameters::new(NAMELESS, None);
        let upload = started
            .state
            .finish(&mut Source(entropy), password, answer.message, parameters)
            .ok()?;
        Some(
            ServerRegistration::finish(upload.message)
                .serialize()
                .to_vec(),
        )
    }
}

/// The target's state of a login.
pub struct OpaquePending(ServerLogin<Suite>);

impl std::fmt::Debug for OpaquePending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OpaquePending")
    }
}

impl TargetExchange for OpaqueTarget {
    type Pending = OpaquePending;

    fn answer(
        &self,
        name: &[u8],
        record: Option<&[u8]>,
        first: &[u8],
        context: &[u8],
        entropy: &mut Entropy,
    ) -> Option<(OpaquePending, Vec<u8>)> {
        let request = CredentialRequest::deserialize(first).ok()?;
        let record = record
            .map(ServerRegistration::deserialize)
            .transpose()
            .ok()?;
        let parameters = ServerLoginParameters {
            context: Some(context),
            identifiers: NAMELESS,
        };
        let source = &mut Source(entropy);
        let started =
            ServerLogin::start(source, &self.0, record, request, name, parameters).ok()?;
        Some((
            OpaquePending(started.state),
            started.message.serialize().to_vec(),
        ))
    }

    fn finish(&self, pending: OpaquePending, last: &[u8], context: &[u8]) -> Option<Secret> {
        let last = CredentialFinalization::deserialize(last).ok()?;
        let parameters = ServerLoginParameters {
            context: Some(context),
            identifiers: NAMELESS,
        };
        let finished = pending.0.finish(last, parameters).ok()?;
        Some(Zeroizing::new(finished.session_key.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        target: &OpaqueTarget,
        record: Option<&[u8]>,
        password: &[u8],
        contexts: (&[u8], &[u8]),
    ) -> bool {
        let mut entropy = Entropy::new(&[2; 32]);
        let mut client = OpaqueClient::new(password, &mut entropy).unwrap();
        let (pending, answer) = target
            .answer(b"group", record, client.first(), contexts.1, &mut entropy)
            .unwrap();
        assert_eq!((client.first().len(), answer.len()), (96, 320));
        let Some((last, mine)) = client.finish(&answer, contexts.0, &mut entropy) else {
            return false;
        };
        assert_eq!(last.len(), 64);
        let theirs = target.finish(pending, &last, contexts.1).unwrap();
        assert_eq!(mine, theirs);
        true
    }

    #[test]
    fn both_have_a_secret_with_the_right_password_and_one_context_only() {
        let mut entropy = Entropy::new(&[1; 32]);
        let target = OpaqueTarget::new(&mut entropy);
        let record = target.record(b"group", b"password", &mut entropy).unwrap();
        let target = OpaqueTarget::from_bytes(&target.to_bytes()).unwrap();
        assert!(run(&target, Some(&record), b"password", (b"c", b"c")));
        assert!(!run(&target, Some(&record), b"passwore", (b"c", b"c")));
        assert!(
            !run(&target, Some(&record), b"password", (b"c", b"d")),
            "another transcript"
        );
        assert!(
            !run(&target, None, b"password", (b"c", b"c")),
            "a name that is not known"
        );
        let other = target.record(b"other", b"password", &mut entropy).unwrap();
        assert!(
            !run(&target, Some(&other), b"password", (b"c", b"c")),
            "the record of another name"
        );
    }
}
