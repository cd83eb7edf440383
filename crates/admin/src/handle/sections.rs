//! Servers of NBD, quotas and groups of HyperSCSI, one at a time.

use std::sync::Arc;

use api::control::Control;
use api::edit::{Edit, GroupDevice, Name, Thing};
use api::plan::Document;
use api::spec;
use axum::extract::State;
use config::{Draft, EditError, nbd_name};

use super::daemon::{all, the_one};
use super::edit::{self, Editor};
use super::resources::{check_same, configured};
use crate::answer::Answer;
use crate::app::App;
use crate::ask::{Named, Told};

type Shared = State<Arc<App>>;

/// The servers of NBD by the names that plans give them, however their places are written.
fn named_servers(draft: &Draft) -> Vec<spec::Nbd> {
    let mut servers = draft.nbd();
    for bind in servers.iter_mut().filter_map(|server| server.bind.as_mut()) {
        *bind = nbd_name(bind);
    }
    servers
}

/// `GET /nbd`
pub(crate) async fn servers(State(app): Shared) -> Answer {
    all(&app, configured(named_servers)).await
}

/// `GET /nbd/{place}`
pub(crate) async fn server(State(app): Shared, Named(place): Named<String>) -> Answer {
    let name = nbd_name(&place);
    let is_it = |server: &spec::Nbd| server.place() == name;
    the_one(&app, ("nbd", &place), configured(named_servers), is_it).await
}

/// `PUT /nbd/{place}`
pub(crate) async fn put_server(
    editor: Editor,
    Named(place): Named<String>,
    Told(server): Told<spec::Nbd>,
) -> Answer {
    let field = match &server.socket {
        Some(_) => "socket",
        None => "bind",
    };
    check_same(field, &nbd_name(&place), &nbd_name(server.place()))?;
    editor.one(Edit::Put(Thing::Nbd(server))).await
}

/// `DELETE /nbd/{place}`
pub(crate) async fn remove_server(editor: Editor, Named(place): Named<String>) -> Answer {
    editor.one(Edit::Remove(Name::Nbd(place))).await
}

/// `GET /quotas`
pub(crate) async fn quotas(State(app): Shared) -> Answer {
    all(&app, |control, _| Ok(control.quotas())).await
}

/// `GET /quotas/{name}`
pub(crate) async fn quota(State(app): Shared, Named(name): Named<String>) -> Answer {
    let quotas = |control: &dyn Control, _: &Document| Ok(control.quotas());
    the_one(&app, ("quota", &name), quotas, |quota| quota.name == name).await
}

/// `PUT /quotas/{name}`
pub(crate) async fn put_quota(
    editor: Editor,
    Named(name): Named<String>,
    Told(quota): Told<spec::Quota>,
) -> Answer {
    let field = match &quota.pool {
        Some(_) => "pool",
        None => "owner",
    };
    check_same(field, &name, &quota.name())?;
    editor.one(Edit::Put(Thing::Quota(quota))).await
}

/// `DELETE /quotas/{name}`
pub(crate) async fn remove_quota(editor: Editor, Named(name): Named<String>) -> Answer {
    editor.one(Edit::Remove(Name::Quota(name))).await
}

/// `GET /hyperscsi`
pub(crate) async fn hyperscsi_groups(State(app): Shared) -> Answer {
    all(&app, |control, _| control.hyperscsi()).await
}

/// `GET /hyperscsi/{name}`
pub(crate) async fn hyperscsi_group(State(app): Shared, Named(name): Named<String>) -> Answer {
    let wanted = name.clone();
    let group = move |control: &dyn Control, document: &Document| {
        let mut groups = control.hyperscsi()?;
        // As the edits take names.
        let called = match edit::draft(&document.text)?.hyperscsi_called(&wanted) {
            Ok(called) => called,
            Err(EditError::NotFound { .. }) => wanted,
            Err(error) => return Err(edit::problem_of(&error)),
        };
        groups.retain(|group| group.name == called);
        Ok(groups)
    };
    the_one(&app, ("hyperscsi", &name), group, |_| true).await
}

/// `PUT /hyperscsi/{name}`
pub(crate) async fn put_hyperscsi_group(
    editor: Editor,
    Named(name): Named<String>,
    Told(group): Told<spec::Hyperscsi>,
) -> Answer {
    // What is wrong with its place is said by the edit.
    if let Ok(known_by) = config::hyperscsi_name(&group) {
        check_same("name", &name, &known_by)?;
    }
    editor.one(Edit::Put(Thing::Hyperscsi(group))).await
}

/// `DELETE /hyperscsi/{name}`
pub(crate) async fn remove_hyperscsi_group(editor: Editor, Named(name): Named<String>) -> Answer {
    editor.one(Edit::Remove(Name::Hyperscsi(name))).await
}

/// `PUT /hyperscsi/{name}/devices/{id}`
pub(crate) async fn put_device(
    editor: Editor,
    Named((name, id)): Named<(String, String)>,
    Told(device): Told<spec::HyperscsiDevice>,
) -> Answer {
    check_same("id", &id, &device.id)?;
    let device = GroupDevice {
        hyperscsi: name,
        device,
    };
    editor.one(Edit::Put(Thing::Device(device))).await
}

/// `DELETE /hyperscsi/{name}/devices/{id}`
pub(crate) async fn remove_device(
    editor: Editor,
    Named((hyperscsi, id)): Named<(String, String)>,
) -> Answer {
    let edit = Edit::Remove(Name::Device { hyperscsi, id });
    editor.one(edit).await
}
