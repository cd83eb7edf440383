//! Drives a fixed script of commands through session, device server and store, so that the
//! instructions of an I/O can be counted.
//!
//! `budget ROW PREPARED RUN` prepares the bytes of PREPARED commands and runs the first RUN of
//! them. What is prepared does not depend on RUN, so the difference between two runs is what the
//! further commands cost and nothing else. `budget --list` names the rows.
//!
//! Nothing here is random and nothing asks a clock. `tests/budget` holds the counts against a
//! table.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the output is what it is for")]

mod arrival;
mod row;
mod tap;
mod target;

use anyhow::{Context, Result, ensure};

use row::{ROWS, Row};
use target::Target;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--list"] => {
            for row in &ROWS {
                println!("{:16} {}", row.name, row.about);
            }
            Ok(())
        }
        [name, prepared, run] => {
            let row = ROWS.iter().find(|row| row.name == name);
            let row = row.with_context(|| format!("no row {name}; --list names them"))?;
            play(row, prepared.parse()?, run.parse()?)
        }
        _ => anyhow::bail!("usage: budget --list | budget ROW PREPARED RUN"),
    }
}

/// Prepares `prepared` commands of a row and runs the first `run`, both whole batches.
fn play(row: &Row, prepared: u32, run: u32) -> Result<()> {
    ensure!(
        run <= prepared && prepared.is_multiple_of(row.batch) && run.is_multiple_of(row.batch),
        "{run} of {prepared} commands are not whole batches of {}",
        row.batch
    );
    let turns = row.turns(prepared)?;
    let mut target = Target::new(row)?;
    for turn in turns.iter().take(row.turn_count(run)) {
        target.turn(turn)?;
    }
    let good = target.good_commands();
    ensure!(good == run, "{good} of {run} commands ended GOOD");
    println!("{run} commands ended GOOD");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_every_row_ends_good() {
        for row in &ROWS {
            play(row, row.batch * 4, row.batch * 3).unwrap_or_else(|e| panic!("{}: {e}", row.name));
        }
    }

    #[test]
    fn a_part_of_a_batch_is_refused() {
        for row in ROWS.iter().filter(|row| row.batch > 1) {
            assert!(play(row, row.batch * 2, row.batch + 1).is_err());
        }
    }
}
