//! HyperSCSI: what a configuration needs that is served over it, beside what its model says.

use config::Model;

use crate::{StartError, interface};

/// Whether all interfaces of the model can take frames, as far as can be seen without taking any.
///
/// # Errors
///
/// The first that cannot.
pub(crate) fn check_interfaces(model: &Model) -> Result<(), StartError> {
    for group in model.hyperscsi() {
        let Some(name) = group.at.interface() else {
            continue;
        };
        interface::find(name).map_err(|problem| StartError::Interface {
            place: group.at_place.clone(),
            problem,
        })?;
    }
    // Until the data plane takes groups.
    match model.hyperscsi().first() {
        None => Ok(()),
        Some(group) => Err(StartError::GroupUnserved {
            place: group.place.clone(),
        }),
    }
}
