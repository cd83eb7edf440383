//! What administrators and cores read and write of the texts of an image.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, sync_channel};
use std::time::Duration;

use rbd::{CallError, words};
use store::{Note, Notes};

use super::errno::{DENIED, NOT_PERMITTED, READ_ONLY};
use super::shared::{Common, Standing, Work};
use super::texts::{Question, Texts};

/// How long a text that is to be written waits for the first attempt to open the image, and how long for its answer.
/// The caller saves for other units, too. Until the cluster has answered, the next ones fail at once.
const PATIENCE: Duration = Duration::from_secs(3);

/// The texts of an image that is being served, or will be.
#[derive(Debug)]
pub(super) struct ImageNotes {
    pub(super) common: Arc<Common>,
    pub(super) texts: Arc<Texts>,
    pub(super) work: Sender<Work>,
}

impl ImageNotes {
    /// Asks the attendant, whose image is open.
    fn ask(&self, note: Note, text: Option<&str>) -> io::Result<Option<String>> {
        if self.common.outage().is_some() || self.texts.is_asked.swap(true, Ordering::SeqCst) {
            return Err(self.unreached());
        }
        let (to, answer) = sync_channel(1);
        let text = text.map(str::to_owned);
        // Where it has ended the answer shows it.
        drop(self.work.send(Work::Text(Question { note, text, to })));
        match answer.recv_timeout(PATIENCE) {
            Ok(answer) => answer.map_err(error),
            Err(RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
            Err(RecvTimeoutError::Disconnected) => Err(self.unreached()),
        }
    }

    fn unreached(&self) -> io::Error {
        let why = self.common.outage();
        let why = why.unwrap_or_else(|| format!("image {}: no answer yet", self.common.options));
        io::Error::new(io::ErrorKind::NotConnected, why)
    }
}

impl Notes for ImageNotes {
    fn read(&self, note: Note) -> io::Result<Option<String>> {
        match self.common.standing() {
            Standing::Up(_) => self.ask(note, None),
            Standing::Opening | Standing::Gone => Ok(self.texts.known().text(note).clone()),
        }
    }

    fn write(&self, note: Note, text: &str) -> io::Result<()> {
        if let (Standing::Opening, Note::Identity) = (self.common.standing(), note) {
            self.texts.known().wanted = Some(text.to_owned());
            return Ok(());
        }
        // The first commands may come while it is being opened.
        match self.common.standing_when_tried(PATIENCE) {
            Standing::Up(_) => self.ask(note, Some(text)).map(drop),
            Standing::Opening | Standing::Gone => Err(self.unreached()),
        }
    }
}

fn error(error: CallError) -> io::Error {
    let kind = match error.errno {
        NOT_PERMITTED | DENIED | READ_ONLY => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("{}: {}", error.call, words(error.errno)))
}
