//! Snapshots of units.

use std::sync::Arc;

use api::control::Control;
use api::edit::{Edit, Edits, Thing};
use api::request::{NewClone, TakeSnapshots};
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;

use super::edit;
use crate::answer::{self, Answer, json, made};
use crate::app::App;
use crate::ask::{Named, Told};
use crate::caller::Caller;

/// `GET /snapshots`
pub(crate) async fn list(State(app): State<Arc<App>>) -> Answer {
    let list = app.calls.read(|control| control.snapshots(None));
    Ok(json(&list.await??))
}

/// `POST /snapshots`
pub(crate) async fn take(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Told(wanted): Told<TakeSnapshots>,
) -> Answer {
    let take = app
        .calls
        .act(move |control| control.take_snapshots(wanted, &caller.author));
    Ok(made(json(&take.await??), true))
}

/// `GET /luns/{id}/snapshots`
pub(crate) async fn list_of(State(app): State<Arc<App>>, Named(id): Named<String>) -> Answer {
    let list = app.calls.read(move |control| control.snapshots(Some(&id)));
    Ok(json(&list.await??))
}

/// `DELETE /luns/{id}/snapshots/{name}`
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    Named((id, name)): Named<(String, String)>,
) -> Answer {
    let remove = app
        .calls
        .act(move |control| control.remove_snapshot(&id, &name));
    remove.await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST /luns/{id}/snapshots/{name}/clone`
pub(crate) async fn clone(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Named((id, name)): Named<(String, String)>,
    Told(NewClone { lun, view }): Told<NewClone>,
) -> Answer {
    let change = move |control: &dyn Control| {
        let store = lun.store.clone();
        control.clone_snapshot((&id, &name), &store)?;
        let comment = Some(format!("lun {} from {id}@{name}", lun.id));
        let view = view.map(|view| Edit::Add(Thing::View(view)));
        let edits = [Edit::Add(Thing::Lun(lun))]
            .into_iter()
            .chain(view)
            .collect();
        let applied = edit::apply(control, None, &caller, Edits { edits, comment });
        applied.inspect_err(|_| control.discard_clone(&id, &store))
    };
    let (applied, _) = app.calls.change(change).await??;
    let applied = app.calls.settle(applied).await;
    Ok(answer::applied(&applied, true))
}

/// `POST /luns/{id}/flatten`
pub(crate) async fn flatten(State(app): State<Arc<App>>, Named(id): Named<String>) -> Answer {
    let flatten = app.calls.act(move |control| control.flatten(&id));
    Ok(json(&flatten.await??))
}

/// `POST /luns/{id}/snapshots/{name}/rollback`
pub(crate) async fn roll_back(
    State(app): State<Arc<App>>,
    Named((id, name)): Named<(String, String)>,
) -> Answer {
    let roll_back = app
        .calls
        .change(move |control| control.restore_snapshot(&id, &name));
    Ok(json(&roll_back.await??))
}
