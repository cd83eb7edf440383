//! Commands to a logical unit that is not there.

use super::report;
use crate::sam::cdb::Cdb;
use crate::sam::command::{Command, Outcome};
use crate::sam::sense::{Sense, SenseCode};
use crate::table::commands::row_of;
use crate::table::row::{Operation, SpcOperation};

/// Answers a command whose LUN addresses nothing: INQUIRY says so, REPORT LUNS works through
/// every address, REQUEST SENSE returns as data the sense with which all others are refused.
///
/// Spec: SPC-5, INQUIRY (peripheral qualifier), REPORT LUNS, REQUEST SENSE; SAM-6, Incorrect
/// logical unit numbers.
pub fn execute(command: &Command<'_>) -> Outcome {
    let cdb = Cdb::new(command.cdb);
    let refused = report::no_such_unit();
    let Some(row) = row_of(&cdb) else {
        return Outcome::check(refused);
    };
    let data = if row.operation == Operation::Spc(SpcOperation::Inquiry) {
        inquiry(&cdb)
    } else if row.operation == Operation::Spc(SpcOperation::ReportLuns) {
        report::luns(&cdb, command.luns)
    } else if row.operation == Operation::Spc(SpcOperation::RequestSense) {
        Ok(refused.encode(cdb.has(1, 0x01)).to_vec())
    } else {
        Err(refused)
    };
    match data {
        Ok(data) => Outcome::data(data, row.fields.allocation_length(&cdb)),
        Err(sense) => Outcome::check(sense),
    }
}

fn inquiry(cdb: &Cdb) -> Result<Vec<u8>, Sense> {
    /// Qualifier 011b, type 1Fh: this target can have no unit here.
    const NOTHING: u8 = 0x7f;
    const VERSION: u8 = 0x06;
    const FORMAT: u8 = 0x12;
    match (cdb.has(1, 0x01), cdb.u8(2)) {
        (false, 0) => {
            let mut data = vec![NOTHING, 0, VERSION, FORMAT, 31, 0, 0, 0];
            data.resize(36, b' ');
            Ok(data)
        }
        (true, 0) => Ok(vec![NOTHING, 0x00, 0, 1, 0x00]),
        _ => Err(Sense::illegal_request(SenseCode::INVALID_FIELD_IN_CDB)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sam::lun::Lun;
    use crate::sam::status::Status;

    fn run(cdb: &[u8]) -> Outcome {
        let luns = [Lun::new(0).unwrap(), Lun::new(300).unwrap()];
        execute(&Command {
            cdb,
            data_out_length: 0,
            data_in_length: 255,
            luns: &luns,
        })
    }

    #[test]
    fn inquiry_says_that_nothing_can_be_here() {
        let outcome = run(&[0x12, 0, 0, 0, 36, 0]);
        assert_eq!(outcome.status, Status::Good);
        let data = outcome.data.to_vec();
        assert_eq!((data.len(), data[0], data[4]), (36, 0x7f, 31));
    }

    #[test]
    fn report_luns_works_through_every_address() {
        let data = run(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0]).data.to_vec();
        assert_eq!(
            data,
            [
                0, 0, 0, 16, 0, 0, 0, 0, //
                0, 0, 0, 0, 0, 0, 0, 0, //
                0x41, 0x2c, 0, 0, 0, 0, 0, 0
            ]
        );
    }

    #[test]
    fn everything_else_is_refused_with_25_00() {
        let outcome = run(&[0x00, 0, 0, 0, 0, 0]);
        assert_eq!(outcome.own_sense(), Some(report::no_such_unit()));
        let as_data = run(&[0x03, 0, 0, 0, 18, 0]);
        assert_eq!(as_data.status, Status::Good);
        assert_eq!(as_data.data.to_vec()[12..14], [0x25, 0x00]);
    }
}
