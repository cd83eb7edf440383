//! The sockets of the running configuration that may be in the way of those of a new one.
//!
//! Those that go make room for the new ones, which are bound while the old ones are open ([`reactor::Occupant`]). So
//! 127.0.0.1:3260 becomes 0.0.0.0:3260 in one change, between portals, servers of NBD and the administration as well,
//! and a change that is refused has ended no listener. Those that stay keep the port; an address that cannot be had for
//! one of them is refused with its name.

use std::net::SocketAddr;

use config::Place;
use confine::inherited::Inherited;
use reactor::Occupant;
use reactor::net::{BindError, Bound, Families};

use super::attempts::retry_while_in_use;
use crate::StartError;

/// Those of one protocol.
#[derive(Debug, Default)]
pub(crate) struct OwnSockets {
    going: Vec<Occupant>,
    staying: Vec<Occupant>,
}

impl OwnSockets {
    pub(super) fn note(&mut self, socket: Occupant, stays: bool) {
        if stays {
            self.staying.push(socket);
        } else {
            self.going.push(socket);
        }
    }

    /// Those that make room.
    pub(crate) fn going(&self) -> &[Occupant] {
        &self.going
    }

    /// Takes an address that is given at `place`. Nobody can connect yet, unless the service manager has passed it on.
    pub(crate) fn bind(
        &self,
        (address, place): (SocketAddr, &Place),
        families: Families,
        inherited: &Inherited,
    ) -> Result<Bound, StartError> {
        if let Some(passed) = inherited.at(address).map_err(StartError::Inherited)? {
            return Ok(Bound::passed(passed, address));
        }
        let is_in_use = |error: &BindError| matches!(error, BindError::InUse { .. });
        let bind = || Bound::new(address, families, self.going());
        let bound = retry_while_in_use(bind, is_in_use);
        bound.map_err(|source| self.refused(place.clone(), source))
    }

    /// Why an address cannot be had that is given at `place`: for one of these, if that is so.
    pub(crate) fn refused(&self, place: Place, source: BindError) -> StartError {
        let BindError::InUse { address } = source else {
            return StartError::Bind { place, source };
        };
        let stuck = self.going.iter().filter(|one| !one.can_make_room());
        let mut holders = self.staying.iter().chain(stuck);
        match holders.find(|one| one.takes(address)) {
            Some(holder) => StartError::AddressHeld {
                place,
                addresses: Box::new([address, holder.address()]),
            },
            None => StartError::Bind { place, source },
        }
    }
}
