//! Texts in the metadata of an image: what the disk is known by, and its state, for the next Tarn that serves it.
//!
//! Each is bound to the identity of the image, as a clone has a copy of the metadata and is another disk. They are read
//! by the first look, and again when this Tarn has the exclusive lock: where another one has changed them in between,
//! the image is not served with what the look found.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rbd::{CallError, Image};
use store::Note;

const ALL: [Note; 2] = [Note::Identity, Note::State];

const fn key(note: Note) -> &'static str {
    match note {
        Note::Identity => "tarn.identity",
        Note::State => "tarn.state",
    }
}

/// A rollback that was begun: the identity of the image, its size before, the snapshot. Empty when it has ended.
pub(super) const ROLLBACK: &str = "tarn.rollback";

/// Who has taken the image over last: the identity of the image, the address of the client.
pub(super) const GATEWAY: &str = "tarn.gateway";

/// What is known of the texts of an image.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    identity: Option<String>,
    state: Option<String>,
    /// An identity that is to be written when the image is open.
    pub(super) wanted: Option<String>,
}

impl Known {
    pub(super) fn text(&mut self, note: Note) -> &mut Option<String> {
        match note {
            Note::Identity => &mut self.identity,
            Note::State => &mut self.state,
        }
    }
}

/// The texts of one image.
#[derive(Debug)]
pub(super) struct Texts {
    /// The identity of the image in its pool.
    id: String,
    known: Mutex<Known>,
    /// The attendant has a question of which nobody knows the answer yet.
    pub(super) is_asked: AtomicBool,
}

/// What the attendant is asked: for a text, or to write this one.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) note: Note,
    pub(super) text: Option<String>,
    pub(super) to: SyncSender<Result<Option<String>, CallError>>,
}

impl Texts {
    /// Those that the first look finds.
    pub(super) fn find(image: &Image, id: String) -> Result<Self, CallError> {
        let texts = Self {
            id,
            known: Mutex::default(),
            is_asked: AtomicBool::new(false),
        };
        for note in ALL {
            texts.read(image, note)?;
        }
        Ok(texts)
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, image: &Image, note: Note) -> Result<Option<String>, CallError> {
        let value = image.metadata(key(note))?;
        let value = value.as_deref().and_then(|value| value.split_once(' '));
        // That of another image came with a copy.
        let own = value.filter(|(id, _)| *id == self.id);
        Ok(own.map(|(_, text)| text.to_owned()))
    }

    fn read(&self, image: &Image, note: Note) -> Result<Option<String>, CallError> {
        let text = self.look(image, note)?;
        self.known().text(note).clone_from(&text);
        Ok(text)
    }

    fn write(&self, image: &Image, note: Note, text: &str) -> Result<(), CallError> {
        image.set_metadata(key(note), &format!("{} {text}", self.id))?;
        *self.known().text(note) = Some(text.to_owned());
        Ok(())
    }

    /// The rollback that was begun and has not ended: the snapshot, and the size that the image is to have.
    pub(super) fn unfinished_rollback(
        &self,
        image: &Image,
    ) -> Result<Option<(String, u64)>, CallError> {
        let value = image.metadata(ROLLBACK)?;
        let mut words = value.as_deref().unwrap_or_default().split(' ');
        // That of another image came with a copy.
        if words.next() != Some(&self.id) {
            return Ok(None);
        }
        let size_bytes = words.next().and_then(|word| word.parse().ok());
        let name = words.next().map(str::to_owned);
        Ok(name.zip(size_bytes))
    }

    /// Notes a rollback that begins, or with `None` that it has ended.
    pub(super) fn note_rollback(
        &self,
        image: &Image,
        rollback: Option<(&str, u64)>,
    ) -> Result<(), CallError> {
        let text = rollback.map(|(name, size_bytes)| format!("{} {size_bytes} {name}", self.id));
        image.set_metadata(ROLLBACK, &text.unwrap_or_default())
    }

    /// Answers a question, on the thread of the attendant.
    pub(super) fn answer(&self, image: &Image, question: Question) {
        let Question { note, text, to } = question;
        let answer = match text {
            Some(text) => self.write(image, note, &text).map(|()| None),
            None => self.read(image, note),
        };
        self.is_asked.store(false, Ordering::SeqCst);
        // Who has asked may have given up.
        drop(to.send(answer));
    }

    /// The image is open: whether its texts are those that the look found. Writes the identity that it is to have.
    pub(super) fn settle(&self, image: &Image) -> Result<bool, CallError> {
        for note in ALL {
            let text = self.look(image, note)?;
            if text != *self.known().text(note) {
                return Ok(false);
            }
        }
        let wanted = self.known().wanted.take();
        if let Some(wanted) = wanted
            && let Err(error) = self.write(image, Note::Identity, &wanted)
        {
            tracing::warn!(
                %error,
                "serial number and NAA cannot be kept in the metadata of an RBD image: another Tarn would show another \
                 disk"
            );
        }
        Ok(true)
    }
}
