//! A CD or DVD drive: the commands of MMC for a medium that is read, and what a drive says of itself where SPC asks.
//! Names [`crate::sam`], [`crate::table`], [`crate::spc`] and [`crate::disk`], which reads the blocks.
//!
//! The medium is one session with one data track of blocks of 2048 bytes. There is no audio and no writing.

mod configuration;
mod disc;
mod event;
mod pages;

use crate::disk::{self, Disk};
use crate::sam::cdb::Cdb;
use crate::sam::command::{Command, Outcome, Step};
use crate::sam::profile::Profile;
use crate::sam::sense::{Sense, SenseCode};
use crate::spc::gate::MediaEvent;
use crate::spc::shared::Shared;
use crate::table::row::{CommandSpec, OpticalOperation};
use disc::Msf;

pub(crate) use event::tells_of_medium;

/// The length of a block of user data.
pub(crate) const BLOCK_BYTES: u32 = 2048;

/// A larger medium is a DVD.
const CD_BYTES_MAX: u64 = 900_000_000;

/// A drive as one core sees it.
#[derive(Debug)]
pub(crate) struct Optical {
    /// Reads its blocks.
    pub(crate) disk: Disk,
}

/// What is in the drive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Disc {
    Cd { blocks: u32 },
    Dvd { blocks: u32 },
}

impl Disc {
    const fn blocks(self) -> u32 {
        match self {
            Self::Cd { blocks } | Self::Dvd { blocks } => blocks,
        }
    }
}

/// What a command needs of the unit beside the drive.
pub(crate) struct OfUnit<'a> {
    pub(crate) shared: &'a Shared,
    /// What the nexus has not yet heard of.
    pub(crate) event: MediaEvent,
}

impl Optical {
    /// Before the first [`Disk::install`] there are no blocks.
    pub(crate) fn new(profile: &Profile) -> Self {
        Self {
            disk: Disk::new(profile),
        }
    }

    /// The disc, if one is in.
    fn disc(&self, shared: &Shared) -> Option<Disc> {
        if shared.is_ejected {
            return None;
        }
        let blocks = u32::try_from(shared.blocks).unwrap_or(u32::MAX);
        let bytes = shared.blocks.saturating_mul(u64::from(BLOCK_BYTES));
        Some(if bytes > CD_BYTES_MAX {
            Disc::Dvd { blocks }
        } else {
            Disc::Cd { blocks }
        })
    }

    /// Begins a command.
    pub(crate) fn start(
        &self,
        job: &mut disk::Job,
        operation: OpticalOperation,
        (row, cdb): (&'static CommandSpec, &Cdb),
        command: &Command<'_>,
        of: &OfUnit<'_>,
    ) -> Result<Step, Sense> {
        let disc = || self.disc(of.shared).ok_or_else(|| of.shared.no_medium());
        let data = match operation {
            OpticalOperation::GetConfiguration => {
                configuration::configuration(cdb, self.disc(of.shared))?
            }
            OpticalOperation::GetEventStatus => event::status(cdb, of)?,
            OpticalOperation::MechanismStatus => disc::mechanism_status(of.shared),
            OpticalOperation::SetSpeed => return Ok(Step::Done(Outcome::good())),
            OpticalOperation::ReadToc => disc::table_of_contents(cdb, disc()?)?,
            OpticalOperation::ReadDiscInformation => disc::disc_information(cdb)?,
            OpticalOperation::ReadTrackInformation => disc::track_information(cdb, disc()?)?,
            OpticalOperation::ReadDiscStructure => disc::disc_structure(cdb, disc()?)?,
            OpticalOperation::ReportKey => disc::report_key(cdb)?,
            OpticalOperation::ReadCd => {
                let wanted = (row.fields.lba(cdb), row.fields.blocks(cdb));
                return self.read_user_data(job, cdb, wanted, command);
            }
            OpticalOperation::ReadCdMsf => {
                let (from, to) = (Msf::of(cdb, 3)?, Msf::of(cdb, 6)?);
                let blocks = to
                    .checked_sub(from)
                    .ok_or_else(|| Sense::invalid_byte_in_cdb(3))?;
                return self.read_user_data(job, cdb, (u64::from(from), blocks), command);
            }
        };
        let allocation_length = row.fields.allocation_length(cdb);
        Ok(Step::Done(Outcome::data(data, allocation_length)))
    }

    /// READ CD, of which the user data is all that there is.
    ///
    /// Spec: MMC-6, READ CD.
    fn read_user_data(
        &self,
        job: &mut disk::Job,
        cdb: &Cdb,
        (lba, blocks): (u64, u32),
        command: &Command<'_>,
    ) -> Result<Step, Sense> {
        const ANY: u8 = 0;
        const MODE_1: u8 = 0b010;
        const USER_DATA: u8 = 0x10;
        if !matches!(cdb.u8(1) >> 2 & 0x07, ANY | MODE_1) {
            let code = SenseCode::ILLEGAL_MODE_FOR_THIS_TRACK;
            return Err(Sense::illegal_request(code));
        }
        let blocks = if cdb.has(9, USER_DATA) { blocks } else { 0 };
        Ok(self
            .disk
            .start_read_at(job, (lba, blocks), command.data_in_length))
    }
}
