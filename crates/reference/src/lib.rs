//! One logical unit as the standards describe it, to judge what initiators saw of a real one.
//!
//! The caller says what was sent, what was answered and what else happened, in that order; the unit says which answer
//! no order of the commands under way allows. It is written from SPC-4, SPC-2, SBC-3, SAM-5 and Tarn's documents, not
//! from Tarn's code, on which it does not depend: what both get wrong they get wrong independently.
//!
//! **Method.** A command takes effect once between its sending and its answer. The unit keeps every state in which the
//! real one may be, with the commands under way that have taken effect in it. An answer is looked for in the states
//! that are possible, then in those that other commands under way lead to; states that do not allow it are dropped.
//! None left is a [`Breach`]. What only looks at the state never makes more states. Data is judged block by block, as
//! are crashes.
//!
//! **Crowds.** [`Unit::crowded`] follows many commands of many nexuses, on several cores. What a command or an event
//! changes is known to each nexus when it is over, and to some before; a nexus with several commands under way may have
//! reported a unit attention by any of them. So it needs few states, and lets more pass than [`Unit::new`].
//!
//! **Not judged**: fairness, order of task attributes, whether READ (10) of several blocks sees a WRITE as a whole,
//! parameter data of commands that change nothing but for capacities, mode parameters and reservations, SPEC_I_PT,
//! ALL_TG_PT and REGISTER AND MOVE. BUSY, TASK SET FULL, TASK ABORTED and ABORTED COMMAND are allowed always.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod answer;
mod command;
mod medium;
mod mode;
mod persistent;
mod state;
mod turn;
mod types;
mod unit;

#[cfg(test)]
mod tests;

pub use types::{Breach, Event, Nexus, Outcome, Plan, Port, Tag, View};
pub use unit::{Unit, knows};
