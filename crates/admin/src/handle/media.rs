//! Removable media, those that other clients have, logs that are lost, and reservations.

use std::sync::Arc;

use api::control::Control;
use api::problem::Problem;
use api::request::Eject;
use axum::extract::State;

use super::daemon::missing;
use crate::answer::{Answer, json};
use crate::app::App;
use crate::ask::{Named, Told};

/// `POST /luns/{id}/eject`
pub(crate) async fn eject(
    State(app): State<Arc<App>>,
    Named(id): Named<String>,
    Told(eject): Told<Eject>,
) -> Answer {
    let lun = id.clone();
    moved(&app, id, move |control| control.eject(&lun, eject.force)).await
}

/// `POST /luns/{id}/load`
pub(crate) async fn load(State(app): State<Arc<App>>, Named(id): Named<String>) -> Answer {
    let lun = id.clone();
    moved(&app, id, move |control| control.load(&lun)).await
}

/// `POST /luns/{id}/takeover`
pub(crate) async fn take_over(State(app): State<Arc<App>>, Named(id): Named<String>) -> Answer {
    let lun = id.clone();
    moved(&app, id, move |control| control.take_over(&lun)).await
}

/// `POST /luns/{id}/log/discard`
pub(crate) async fn discard_log(State(app): State<Arc<App>>, Named(id): Named<String>) -> Answer {
    let lun = id.clone();
    moved(&app, id, move |control| control.discard_log(&lun)).await
}

/// `POST /luns/{id}/adopt`
pub(crate) async fn adopt(State(app): State<Arc<App>>, Named(id): Named<String>) -> Answer {
    let lun = id.clone();
    moved(&app, id, move |control| control.adopt(&lun)).await
}

/// `GET /luns/{id}/reservations`
pub(crate) async fn reservations(State(app): State<Arc<App>>, Named(id): Named<String>) -> Answer {
    let ask = move |control: &dyn Control| control.reservations(&id);
    Ok(json(&app.calls.read(ask).await??))
}

/// `POST /luns/{id}/reservations/clear`
pub(crate) async fn clear_reservations(
    State(app): State<Arc<App>>,
    Named(id): Named<String>,
) -> Answer {
    let lun = id.clone();
    moved(&app, id, move |control| control.clear_reservations(&lun)).await
}

/// `POST /luns/{id}/log/replay`
pub(crate) async fn replay_log(State(app): State<Arc<App>>, Named(id): Named<String>) -> Answer {
    let lun = id.clone();
    moved(&app, id, move |control| control.replay_log(&lun)).await
}

/// Moves a medium, and answers with its unit.
async fn moved<F>(app: &App, id: String, order: F) -> Answer
where
    F: FnOnce(&dyn Control) -> Result<(), Problem> + Send + 'static,
{
    app.calls.act(order).await??;
    let luns = app.calls.read_much(|control| control.luns()).await?;
    let lun = luns.iter().find(|lun| lun.spec.id == id);
    Ok(json(lun.ok_or_else(|| missing("lun", &id))?))
}
