//! Names of places.

use engine::table::Key;

/// What a [`PlaceKey`] names.
#[derive(Debug)]
pub enum OfPlace {}

/// Names a place on one core, for as long as it has the same socket.
pub type PlaceKey = Key<OfPlace>;
