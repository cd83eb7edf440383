//! Keys of a session: hashes of PDUs, seals of frames, random bytes.

use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{ChaCha20Poly1305, Key, Nonce, Tag};
use zeroize::Zeroizing;

use crate::limits::FRAME_MIN_BYTES;

/// A hash behind a PDU, in bytes.
pub(crate) const MAC_BYTES: usize = 16;
/// A seal's tag, in bytes.
pub(crate) const TAG_BYTES: usize = 16;
/// Before the encrypted part of a sealed frame: fragment header, version, opcode, number.
pub(crate) const CLEAR_BYTES: usize = 9;
/// What sealing adds to a fragment: the clear part, the sequence number, the tag.
pub(crate) const SEAL_BYTES: usize = CLEAR_BYTES + 4 + TAG_BYTES;
/// Frames under one key: 2^24, as the bounds of RFC 9001 allow for every cipher there.
const EPOCH_BITS: u32 = 24;
/// Frames that may come late, in numbers behind the newest.
const REPLAY_WINDOW: u64 = 1024;
/// Frames whose seal is wrong, until a session ends. RFC 9001 allows 2^36.
pub(crate) const FORGERIES_MAX: u64 = 1 << 36;

/// Random bytes without end, made of 32 that the caller has from its random source.
pub struct Entropy(blake3::OutputReader);

impl std::fmt::Debug for Entropy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entropy")
    }
}

impl Entropy {
    /// Of these bytes, which must be used once only.
    #[must_use]
    pub fn new(seed: &[u8; 32]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("tarn hyperscsi random bytes");
        hasher.update(seed);
        Self(hasher.finalize_xof())
    }

    /// The next bytes.
    pub fn fill(&mut self, to: &mut [u8]) {
        self.0.fill(to);
    }

    /// The next bytes.
    #[must_use]
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }
}

/// A key of the hash level, for one direction.
pub(crate) struct MacKey(Zeroizing<[u8; 32]>);

impl std::fmt::Debug for MacKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MacKey")
    }
}

impl MacKey {
    pub(crate) fn new(key: [u8; 32]) -> Self {
        Self(Zeroizing::new(key))
    }

    fn hash(&self, tag: u16, sequence: u64, pieces: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&tag.to_be_bytes());
        hasher.update(&sequence.to_be_bytes());
        for piece in pieces {
            hasher.update(piece);
        }
        hasher.finalize()
    }

    /// The first 16 bytes of the keyed hash.
    pub(crate) fn mac(&self, tag: u16, sequence: u64, pieces: &[&[u8]]) -> [u8; MAC_BYTES] {
        let hash = self.hash(tag, sequence, pieces);
        let (mac, _) = hash.as_bytes().split_at(MAC_BYTES);
        mac.try_into().unwrap_or_default()
    }

    /// In constant time.
    pub(crate) fn verifies(&self, tag: u16, sequence: u64, covered: &[u8], found: &[u8]) -> bool {
        let Ok(found) = <[u8; MAC_BYTES]>::try_from(found) else {
            return false;
        };
        let mut whole = [0; 32];
        let mut expected = [0; 32];
        let (head, _) = whole.split_at_mut(MAC_BYTES);
        head.copy_from_slice(&found);
        let (head, _) = expected.split_at_mut(MAC_BYTES);
        head.copy_from_slice(&self.mac(tag, sequence, &[covered]));
        blake3::Hash::from_bytes(whole) == blake3::Hash::from_bytes(expected)
    }
}

/// The key of an epoch. The next one is made of it, and it cannot be made of the next one.
struct EpochKey {
    epoch: u64,
    key: Zeroizing<[u8; 32]>,
}

impl EpochKey {
    fn new(key: [u8; 32]) -> Self {
        Self {
            epoch: 0,
            key: Zeroizing::new(key),
        }
    }

    fn next(&self) -> Self {
        Self {
            epoch: self.epoch + 1,
            key: Zeroizing::new(blake3::derive_key("tarn hyperscsi next epoch", &*self.key)),
        }
    }

    fn cipher(&self) -> ChaCha20Poly1305 {
        ChaCha20Poly1305::new(&Key::from(*self.key))
    }
}

/// The number of a frame as a nonce.
fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    let (_, low) = bytes.split_at_mut(4);
    low.copy_from_slice(&number.to_be_bytes());
    Nonce::from(bytes)
}

/// What is not encrypted, but covered by the tag.
fn associated(clear: &[u8], session: u32) -> [u8; CLEAR_BYTES] {
    let mut bytes = [0; CLEAR_BYTES];
    for (to, from) in bytes.iter_mut().zip(clear.iter().take(5)) {
        *to = *from;
    }
    let (_, end) = bytes.split_at_mut(5);
    end.copy_from_slice(&session.to_be_bytes());
    bytes
}

/// Seals frames of one direction.
pub(crate) struct Sealer {
    key: EpochKey,
    next: u64,
    session: u32,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl Sealer {
    pub(crate) fn new(key: [u8; 32], session: u32) -> Self {
        Self {
            key: EpochKey::new(key),
            next: 0,
            session,
        }
    }

    /// Writes a sealed frame. The pieces are what is encrypted. Gives its length; `None` if `to` is too short.
    pub(crate) fn seal(
        &mut self,
        clear: [u8; 5],
        sequence: u32,
        pieces: &[&[u8]],
        to: &mut [u8],
    ) -> Option<usize> {
        let (_, rest) = to.split_at_mut_checked(CLEAR_BYTES)?;
        let sequence = sequence.to_be_bytes();
        let mut length = 0;
        for piece in [&sequence[..]].iter().chain(pieces) {
            let (_, free) = rest.split_at_mut_checked(length)?;
            free.get_mut(..piece.len())?.copy_from_slice(piece);
            length += piece.len();
        }
        self.seal_text(clear, length, to)
    }

    /// Seals the text of this length that stands in `to`, behind the room for the clear part. Gives the length of the
    /// frame; `None` if `to` is too short.
    pub(crate) fn seal_text(
        &mut self,
        clear: [u8; 5],
        bare: usize,
        to: &mut [u8],
    ) -> Option<usize> {
        let number = self.next;
        self.next += 1;
        if number >> EPOCH_BITS != self.key.epoch {
            self.key = self.key.next();
        }
        let (head, rest) = to.split_at_mut_checked(CLEAR_BYTES)?;
        head[..5].copy_from_slice(&clear);
        let low = u32::try_from(number & 0xffff_ffff).unwrap_or_default();
        head[5..].copy_from_slice(&low.to_be_bytes());
        // Ethernet would pad it, and nobody could find its end.
        let length = bare.max(FRAME_MIN_BYTES - CLEAR_BYTES - TAG_BYTES);
        rest.get_mut(bare..length)?.fill(0);
        let (text, end) = rest.split_at_mut_checked(length)?;
        let tag = self
            .key
            .cipher()
            .encrypt_inout_detached(
                &nonce(number),
                &associated(&clear, self.session),
                text.into(),
            )
            .ok()?;
        end.get_mut(..TAG_BYTES)?.copy_from_slice(&tag);
        Some(CLEAR_BYTES + length + TAG_BYTES)
    }

    /// Goes on at this number, as after so many frames.
    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, number: u64) {
        self.next = number;
        while self.key.epoch < number >> EPOCH_BITS {
            self.key = self.key.next();
        }
    }
}

/// Which numbers have come.
#[derive(Debug)]
struct ReplayWindow {
    /// One more than the newest.
    next: u64,
    /// One bit for each of the last numbers, by number modulo the length.
    seen: [u64; 16],
}

impl ReplayWindow {
    const fn new() -> Self {
        Self {
            next: 0,
            seen: [0; 16],
        }
    }

    fn place(number: u64) -> (usize, u64) {
        let at = number % REPLAY_WINDOW;
        (usize::try_from(at / 64).unwrap_or_default(), 1 << (at % 64))
    }

    fn is_new(&self, number: u64) -> bool {
        let (word, bit) = Self::place(number);
        number >= self.next || (number + REPLAY_WINDOW >= self.next && self.seen[word] & bit == 0)
    }

    fn take(&mut self, number: u64) {
        if number >= self.next {
            let first = self.next.max(number.saturating_sub(REPLAY_WINDOW - 1));
            for skipped in first..number {
                let (word, bit) = Self::place(skipped);
                self.seen[word] &= !bit;
            }
            self.next = number + 1;
        }
        let (word, bit) = Self::place(number);
        self.seen[word] |= bit;
    }

    /// The whole of a number of which the lower half is this: the one nearest to the newest.
    fn whole(&self, low: u32) -> u64 {
        let base = self.next & !0xffff_ffff;
        let near = base | u64::from(low);
        if near + (1 << 31) < self.next {
            near + (1 << 32)
        } else if near > self.next + (1 << 31) && base > 0 {
            near - (1 << 32)
        } else {
            near
        }
    }
}

/// Why a sealed frame was dropped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SealError {
    /// It has come before, or is too old to know.
    Replayed,
    /// It is not of the peer.
    Forged,
    /// It is too short.
    Short,
}

/// A frame that was opened.
#[derive(Debug)]
pub(crate) struct Opened<'a> {
    pub(crate) sequence: u32,
    pub(crate) number: u64,
    pub(crate) text: &'a [u8],
}

/// Opens frames of one direction.
pub(crate) struct Opener {
    /// Of the newest epoch, and of the one before, whose frames may still come.
    keys: (EpochKey, Option<EpochKey>),
    window: ReplayWindow,
    session: u32,
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opener")
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

impl Opener {
    pub(crate) fn new(key: [u8; 32], session: u32) -> Self {
        Self {
            keys: (EpochKey::new(key), None),
            window: ReplayWindow::new(),
            session,
        }
    }

    /// Opens a whole frame. `room` gets the text.
    pub(crate) fn open<'a>(
        &mut self,
        frame: &[u8],
        room: &'a mut Vec<u8>,
    ) -> Result<Opened<'a>, SealError> {
        let (clear, sealed) = frame
            .split_at_checked(CLEAR_BYTES)
            .ok_or(SealError::Short)?;
        let end = sealed
            .len()
            .checked_sub(TAG_BYTES)
            .ok_or(SealError::Short)?;
        let (text, tag) = sealed.split_at_checked(end).ok_or(SealError::Short)?;
        let (head, low) = clear.split_at(5);
        let low = u32::from_be_bytes(low.try_into().map_err(|_| SealError::Short)?);
        let number = self.window.whole(low);
        if !self.window.is_new(number) {
            return Err(SealError::Replayed);
        }
        let epoch = number >> EPOCH_BITS;
        let mut next = None;
        let key = match (&self.keys.0, &self.keys.1) {
            (now, _) if now.epoch == epoch => now,
            (now, _) if now.epoch + 1 == epoch => next.insert(now.next()),
            (_, Some(before)) if before.epoch == epoch => before,
            _ => return Err(SealError::Replayed),
        };
        room.clear();
        room.extend_from_slice(text);
        let tag = Tag::try_from(tag).map_err(|_| SealError::Short)?;
        let known = associated(head, self.session);
        key.cipher()
            .decrypt_inout_detached(&nonce(number), &known, room.as_mut_slice().into(), &tag)
            .map_err(|_| SealError::Forged)?;
        if let Some(next) = next {
            self.keys.1 = Some(std::mem::replace(&mut self.keys.0, next));
        }
        self.window.take(number);
        let (sequence, text) = room.split_first_chunk().ok_or(SealError::Short)?;
        Ok(Opened {
            sequence: u32::from_be_bytes(*sequence),
            number,
            text,
        })
    }

    /// Goes on at this number, as after so many frames.
    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, number: u64) {
        self.window.next = number;
        while self.keys.0.epoch < number >> EPOCH_BITS {
            self.keys.0 = self.keys.0.next();
        }
    }
}

/// The keys of a session, both directions.
pub(crate) struct Keys {
    client_seal: [u8; 32],
    target_seal: [u8; 32],
    client_mac: [u8; 32],
    target_mac: [u8; 32],
    /// Seals the last step of a login, which is one frame.
    pub(crate) target_login: [u8; 32],
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

/// Which end of a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Side {
    Client,
    Target,
}

impl Keys {
    /// Of what the key exchange gave, which is bound to the whole of the login.
    pub(crate) fn new(secret: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("tarn hyperscsi session keys");
        hasher.update(secret);
        let mut keys = hasher.finalize_xof();
        let mut next = || {
            let mut key = [0; 32];
            keys.fill(&mut key);
            key
        };
        Self {
            client_seal: next(),
            target_seal: next(),
            client_mac: next(),
            target_mac: next(),
            target_login: next(),
        }
    }

    /// What one side sends with.
    pub(crate) fn sending(&self, side: Side, session: u32) -> (Sealer, MacKey) {
        let (seal, mac) = match side {
            Side::Client => (self.client_seal, self.client_mac),
            Side::Target => (self.target_seal, self.target_mac),
        };
        (Sealer::new(seal, session), MacKey::new(mac))
    }

    /// What one side receives with.
    pub(crate) fn receiving(&self, side: Side, session: u32) -> (Opener, MacKey) {
        let (seal, mac) = match side {
            Side::Client => (self.target_seal, self.target_mac),
            Side::Target => (self.client_seal, self.client_mac),
        };
        (Opener::new(seal, session), MacKey::new(mac))
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        use zeroize::Zeroize as _;
        for key in [
            &mut self.client_seal,
            &mut self.target_seal,
            &mut self.client_mac,
            &mut self.target_mac,
            &mut self.target_login,
        ] {
            key.zeroize();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Sealer, Opener) {
        let keys = Keys::new(b"secret");
        let (sealer, _) = keys.sending(Side::Client, 7);
        let (opener, _) = keys.receiving(Side::Target, 7);
        (sealer, opener)
    }

    fn frame(sealer: &mut Sealer, text: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 100];
        let length = sealer
            .seal([0x80, 8, 0, 0x20, 0], 3, &[text], &mut frame)
            .unwrap();
        frame.truncate(length);
        frame
    }

    #[test]
    fn a_frame_opens_once_and_only_as_it_was_sealed() {
        let (mut sealer, mut opener) = pair();
        let mut room = Vec::new();
        let sealed = frame(&mut sealer, b"text");
        assert_eq!(sealed.len(), FRAME_MIN_BYTES);
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(opener.open(&changed, &mut room).is_err(), "bit {bit}");
        }
        let opened = opener.open(&sealed, &mut room).unwrap();
        assert_eq!(opened.sequence, 3);
        assert_eq!(opened.text, [&b"text"[..], &[0; 13]].concat());
        assert_eq!(
            opener.open(&sealed, &mut room).unwrap_err(),
            SealError::Replayed
        );
    }

    #[test]
    fn late_frames_open_inside_the_window_and_no_later() {
        let (mut sealer, mut opener) = pair();
        let mut room = Vec::new();
        let frames: Vec<_> = (0..1026).map(|_| frame(&mut sealer, b"x")).collect();
        opener.open(&frames[1025], &mut room).unwrap();
        assert_eq!(
            opener.open(&frames[1], &mut room).unwrap_err(),
            SealError::Replayed
        );
        opener.open(&frames[2], &mut room).unwrap();
        assert_eq!(
            opener.open(&frames[2], &mut room).unwrap_err(),
            SealError::Replayed
        );
    }

    #[test]
    fn the_key_changes_with_the_epoch_in_any_order_of_frames() {
        let (mut sealer, mut opener) = pair();
        let mut room = Vec::new();
        let edge = 1 << EPOCH_BITS;
        sealer.skip_to(edge - 2);
        opener.skip_to(edge - 2);
        let frames: Vec<_> = (0..4).map(|_| frame(&mut sealer, b"x")).collect();
        for at in [0, 2, 1, 3] {
            opener.open(&frames[at], &mut room).unwrap();
        }
        let mut kept = EpochKey::new([1; 32]);
        kept.epoch = 5;
        assert_ne!(*kept.next().key, *kept.key);
    }

    #[test]
    fn numbers_beyond_32_bits_are_found() {
        let (mut sealer, mut opener) = pair();
        let mut room = Vec::new();
        let edge = 1 << 32;
        sealer.skip_to(edge - 1);
        opener.skip_to(edge - 1);
        let frames: Vec<_> = (0..2).map(|_| frame(&mut sealer, b"x")).collect();
        assert_eq!(opener.open(&frames[1], &mut room).unwrap().number, edge);
        assert_eq!(opener.open(&frames[0], &mut room).unwrap().number, edge - 1);
    }
}
