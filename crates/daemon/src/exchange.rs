//! Another medium for a drive that goes on: as if it was ejected, exchanged and loaded by hand.
//!
//! Initiators keep their sessions, reservations and modes, and get a unit attention (28h/00h). Of several drives all
//! get their media or none: what has begun is taken back.

use std::sync::Arc;

use plane::{Exchange, Handle, MediumOrder};
use store::SharedStore;

use super::running::{Running, profile};

/// What stands for the medium of a unit, before or after.
fn medium(running: &Running, position: usize) -> Exchange {
    let unit = &running.units[position];
    let (store, identity) = (&unit.store, &unit.identity);
    Exchange {
        unit: unit.index,
        name: running.unit_name(position),
        profile: Arc::new(profile(
            &running.model,
            position,
            store,
            identity,
            &running.ports,
        )),
        store: Arc::clone(store) as Arc<dyn SharedStore>,
    }
}

/// Exchanges the media of the units at these positions of the new configuration, which keep their indices.
///
/// # Errors
///
/// Why not, in words. All media are as before.
pub(super) fn media(
    positions: &[usize],
    (old, new): (&Running, &Running),
    plane: &Handle,
) -> Result<(), String> {
    let mut done = Vec::new();
    for &position in positions {
        let next = medium(new, position);
        let Some(at) = old.unit_position(next.unit) else {
            continue;
        };
        let (before, was_in) = (medium(old, at), plane.medium(next.unit).is_in);
        let name = next.name.clone();
        let refused = |why: String| format!("lun {name}: its medium is not exchanged: {why}");
        let moved = order(plane, &next, MediumOrder::Eject { force: false });
        let moved = moved.map(|()| done.push((before, was_in)));
        let moved = moved.and_then(|()| put(plane, next));
        if let Err(why) = moved {
            for (before, was_in) in done {
                put_back(plane, before, was_in);
            }
            return Err(refused(why));
        }
    }
    Ok(())
}

/// Puts another medium in the open tray, and closes that.
fn put(plane: &Handle, exchange: Exchange) -> Result<(), String> {
    let exchanged = plane.exchange_store(exchange.clone());
    exchanged.map_err(|error| crate::error::chain(&error))?;
    order(plane, &exchange, MediumOrder::LoadAnother)
}

fn put_back(plane: &Handle, before: Exchange, was_in: bool) {
    let name = before.name.clone();
    let out = order(plane, &before, MediumOrder::Eject { force: true });
    let back = out.and_then(|()| match was_in {
        true => put(plane, before),
        false => plane
            .exchange_store(before)
            .map_err(|error| crate::error::chain(&error)),
    });
    if let Err(error) = back {
        tracing::error!(
            lun = name,
            error,
            "a medium is not back in its drive: load it again (tarn lun load)"
        );
    }
}

fn order(plane: &Handle, exchange: &Exchange, order: MediumOrder) -> Result<(), String> {
    let moved = plane.move_medium(exchange.unit, order);
    let moved = moved.map_err(|no_answer| no_answer.to_string())?;
    moved.map_err(|failure| failure.to_string())
}
