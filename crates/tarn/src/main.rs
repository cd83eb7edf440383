//! The program `tarn`. What it does is in the library of the same name.

use std::process::ExitCode;

fn main() -> ExitCode {
    let code = tarn::run(std::env::args_os());
    // All is said.
    reactor::process::release();
    code
}
