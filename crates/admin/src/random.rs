//! Names nobody can guess, and how they are kept and compared.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// The SHA-256 of a secret. With 256 random bits in the secret, nothing slower is needed to keep
/// the secret from a reader of the hash.
#[derive(Clone, Copy)]
pub(crate) struct Hash([u8; 32]);

impl Hash {
    /// Of a secret.
    pub(crate) fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }

    /// From 64 hexadecimal digits.
    pub(crate) fn parse(digits: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if digits.len() != 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        for (n, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(digits.get(2 * n..2 * n + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// As 64 hexadecimal digits.
    pub(crate) fn to_hex(self) -> String {
        hex(&self.0)
    }

    /// True when both are of one secret; takes the same time whatever differs.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl PartialEq for Hash {
    fn eq(&self, other: &Self) -> bool {
        self.is(other)
    }
}

impl Eq for Hash {}

impl std::fmt::Debug for Hash {
    /// Without the digits: the secret must not be logged.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hash")
    }
}

/// 256 random bits as 64 hexadecimal digits.
///
/// # Errors
///
/// The system has no random bytes.
pub(crate) fn secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(hex(&bytes))
}

/// Two lower-case hexadecimal digits for each byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String cannot fail.
        write!(digits, "{byte:02x}").ok();
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_survives_its_text_and_differs_from_others() {
        let hash = Hash::of("secret");
        assert!(Hash::parse(&hash.to_hex()).unwrap().is(&hash));
        assert!(!Hash::of("secreT").is(&hash));
        // FIPS 180-4, the digest of "abc".
        assert!(Hash::of("abc").to_hex().starts_with("ba7816bf8f01cfea"));
        assert!(Hash::parse(&hash.to_hex()[1..]).is_none());
        assert!(Hash::parse(&"g".repeat(64)).is_none());
        assert!(Hash::parse(&"+1".repeat(32)).is_none());
    }

    #[test]
    fn secrets_do_not_repeat() {
        let one = secret().unwrap();
        assert_eq!(one.len(), 64);
        assert_ne!(one, secret().unwrap());
    }
}
