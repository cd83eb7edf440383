//! Configurations of other targets, read into that of Tarn: texts in, a `tarn.toml` and a list out.
//!
//! The point is identity: initiators are not to notice the move. So each reader knows what its
//! program presents for a configuration (iSCSI names, LUN numbers, target portal group tags, serial
//! numbers, NAA designators), also where the file leaves it to the program. What Tarn cannot
//! present, and what is not certain, is in the list of [`Note`]s with its consequence; nothing is
//! guessed in silence.
//!
//! ```text
//! texts -> reader of the format -> Found -> settle: what Tarn allows -> write: TOML
//!                                     \______________\___________________\_-> notes
//! ```
//!
//! This crate is pure. It opens no file: the caller provides the files that a file includes
//! ([`includes`]) and the SCSI devices there are ([`Device`]), and puts the secrets ([`SecretFile`]) where the result
//! says.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod acl;
mod address;
mod crc32c;
mod ctl;
mod format;
mod found;
mod iet;
mod ini;
mod istgt;
mod lines;
mod lio;
mod note;
mod passed;
mod rbd;
mod scst;
mod settle;
mod source;
mod tags;
mod tgt;
mod tgt_show;
mod tree;
mod write;

use zeroize::Zeroizing;

pub use format::Format;
pub use note::{Note, Place, Severity};
pub use passed::Device;
pub use source::{FILE_BYTES_MAX, Include, ReadError, Source, TOTAL_BYTES_MAX};

use found::Found;

/// What the caller wants of the result.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Addresses to listen on, `ADDRESS:PORT`, instead of those of the files.
    pub listen: Vec<String>,
    /// Put before the name of every secret file, as `tarn.`.
    pub secret_prefix: String,
    /// The SCSI devices of the machine that the files are of, for files that name one by its address.
    pub devices: Vec<Device>,
}

/// What came of the files.
#[expect(
    missing_debug_implementations,
    reason = "it holds secrets, which are not to reach a log"
)]
pub struct Imported {
    /// Which program the files belong to.
    pub format: Format,
    /// The configuration of Tarn, with comments that say where each thing comes from.
    pub toml: String,
    /// Where its sections are.
    sections: write::Sections,
    /// What was imported, changed, and left out.
    pub notes: Vec<Note>,
    /// The secrets that the configuration refers to.
    pub secrets: Vec<SecretFile>,
}

impl Imported {
    /// The configuration in parts, each of which is a configuration of its own: so it can be checked without a
    /// tree of all of it. Each has at least one target or disk and otherwise at most `bytes`, or what all parts need;
    /// all sections are in some part. What only the whole could break, such as a name that is there twice, cannot come
    /// from [`import`].
    pub fn parts(&self, bytes: usize) -> impl Iterator<Item = String> {
        self.sections.parts(&self.toml, bytes)
    }
}

/// A file that the configuration refers to as a `secret_file`.
#[expect(
    missing_debug_implementations,
    reason = "it holds a secret, which is not to reach a log"
)]
pub struct SecretFile {
    /// Its name, without directory.
    pub name: String,
    /// What it is for, as `user "alice"`.
    pub purpose: String,
    /// What belongs into it; `None` if the files do not have it, or Tarn would not take it.
    pub secret: Option<Zeroizing<String>>,
}

/// Reads the files of one configuration, which are in the order in which the program reads them.
///
/// # Errors
///
/// A text that is not of that format, one that goes beyond a limit, or one without any disk for Tarn.
pub fn import(
    format: Format,
    sources: &[Source<'_>],
    options: &Options,
) -> Result<Imported, ReadError> {
    source::check_sizes(sources)?;
    let mut found = Found::of(options.devices.clone());
    match format {
        Format::Tgt => tgt::read(sources, &mut found)?,
        Format::TgtShow => tgt_show::read(sources, &mut found)?,
        Format::Lio => lio::read(sources, &mut found)?,
        Format::Scst => scst::read(sources, &mut found)?,
        Format::Iet => iet::read(sources, &mut found)?,
        Format::Istgt => istgt::read(sources, &mut found)?,
        Format::Ctl => ctl::read(sources, &mut found)?,
    }
    found.check_room()?;
    settle::settle(&mut found, options);
    if found.targets.is_empty() && found.units.is_empty() {
        let name = source::first_name(sources);
        return Err(ReadError::Nothing {
            name,
            notes: sorted(found.notes),
        });
    }
    let secrets = settle::secret_files(&mut found, options);
    let (toml, sections) = write::write(format, &found, &secrets);
    // A file of many targets is large in this form.
    found.targets = Vec::new();
    found.units = Vec::new();
    Ok(Imported {
        format,
        toml,
        sections,
        notes: sorted(found.notes),
        secrets: secrets.into_files(),
    })
}

/// The worst first.
fn sorted(mut notes: Vec<Note>) -> Vec<Note> {
    notes.sort_by_key(|note| note.severity);
    notes
}

/// Whether a file that another one includes is a configuration of that program, too.
///
/// # Errors
///
/// [`ReadError::Included`], which shows nothing of the file but a key that is ours, and what goes beyond a limit.
pub fn check_included(format: Format, source: Source<'_>) -> Result<(), ReadError> {
    match format {
        Format::Tgt => tgt::check_included(source),
        Format::Scst
        | Format::TgtShow
        | Format::Lio
        | Format::Iet
        | Format::Istgt
        | Format::Ctl => Ok(()),
    }
}

/// The files that this one includes, as it names them: the caller reads them and gives them to
/// [`import`] after it. Patterns of the shell may be among them.
pub fn includes(format: Format, source: Source<'_>) -> Vec<Include> {
    match format {
        Format::Tgt => tgt::includes(source),
        Format::Scst
        | Format::TgtShow
        | Format::Lio
        | Format::Iet
        | Format::Istgt
        | Format::Ctl => Vec::new(),
    }
}
