//! Servers of NBD, quotas and groups of HyperSCSI, one at a time.

use std::sync::Arc;

use api::edit::{Edit, GroupDevice, Name, Thing};
use api::problem::Problem;
use api::{spec, view};
use axum::Extension;
use axum::extract::State;
use config::{Draft, EditError, nbd_name};

use super::daemon::missing;
use super::edit;
use super::resources::{check_same, configured};
use crate::answer::{Answer, Refusal, json_at};
use crate::app::App;
use crate::ask::{Named, Terms, Told};
use crate::call::Much;
use crate::caller::Caller;

type Shared = State<Arc<App>>;
type Who = Extension<Caller>;

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
    let answer = configured(&app, named_servers).await?;
    let (servers, revision) = &*answer;
    Ok(json_at(servers, *revision))
}

/// `GET /nbd/{place}`
pub(crate) async fn server(State(app): Shared, Named(place): Named<String>) -> Answer {
    let answer = configured(&app, named_servers).await?;
    let (servers, revision) = &*answer;
    let name = nbd_name(&place);
    let server = servers.iter().find(|server| server.place() == name);
    Ok(json_at(
        server.ok_or_else(|| missing("nbd", &place))?,
        *revision,
    ))
}

/// `PUT /nbd/{place}`
pub(crate) async fn put_server(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named(place): Named<String>,
    Told(server): Told<spec::Nbd>,
) -> Answer {
    let field = match &server.socket {
        Some(_) => "socket",
        None => "bind",
    };
    check_same(field, &nbd_name(&place), &nbd_name(server.place()))?;
    edit::one(&app, caller, terms, Edit::Put(Thing::Nbd(server))).await
}

/// `DELETE /nbd/{place}`
pub(crate) async fn remove_server(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named(place): Named<String>,
) -> Answer {
    edit::one(&app, caller, terms, Edit::Remove(Name::Nbd(place))).await
}

/// `GET /quotas`
pub(crate) async fn quotas(State(app): Shared) -> Answer {
    let ask = app
        .calls
        .read_much(|control| (control.document().revision, control.quotas()));
    let answer = ask.await?;
    let (revision, quotas) = &*answer;
    Ok(json_at(quotas, *revision))
}

/// `GET /quotas/{name}`
pub(crate) async fn quota(State(app): Shared, Named(name): Named<String>) -> Answer {
    let ask = app
        .calls
        .read_much(|control| (control.document().revision, control.quotas()));
    let answer = ask.await?;
    let (revision, quotas) = &*answer;
    let quota = quotas.iter().find(|quota| quota.name == name);
    Ok(json_at(
        quota.ok_or_else(|| missing("quota", &name))?,
        *revision,
    ))
}

/// `PUT /quotas/{name}`
pub(crate) async fn put_quota(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named(name): Named<String>,
    Told(quota): Told<spec::Quota>,
) -> Answer {
    let field = match &quota.pool {
        Some(_) => "pool",
        None => "owner",
    };
    check_same(field, &name, &quota.name())?;
    edit::one(&app, caller, terms, Edit::Put(Thing::Quota(quota))).await
}

/// `DELETE /quotas/{name}`
pub(crate) async fn remove_quota(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named(name): Named<String>,
) -> Answer {
    edit::one(&app, caller, terms, Edit::Remove(Name::Quota(name))).await
}

/// All groups of HyperSCSI, and the revision that has them.
async fn all_hyperscsi(app: &Arc<App>) -> Result<Much<(u64, Vec<view::Hyperscsi>)>, Refusal> {
    let ask = app
        .calls
        .read_much(|control| Ok::<_, Problem>((control.document().revision, control.hyperscsi()?)));
    Ok(ask.await?.good()?)
}

/// `GET /hyperscsi`
pub(crate) async fn hyperscsi_groups(State(app): Shared) -> Answer {
    let answer = all_hyperscsi(&app).await?;
    let (revision, groups) = &*answer;
    Ok(json_at(groups, *revision))
}

/// `GET /hyperscsi/{name}`
pub(crate) async fn hyperscsi_group(State(app): Shared, Named(name): Named<String>) -> Answer {
    let wanted = name.clone();
    let ask = app.calls.read_much(move |control| {
        let (document, groups) = (control.document(), control.hyperscsi()?);
        // As the edits take names.
        let called = match edit::draft(&document.text)?.hyperscsi_called(&wanted) {
            Ok(called) => called,
            Err(EditError::NotFound { .. }) => wanted,
            Err(error) => return Err(edit::problem_of(&error)),
        };
        let mut groups = groups.into_iter();
        Ok((document.revision, groups.find(|group| group.name == called)))
    });
    let answer = ask.await?.good()?;
    let (revision, group) = &*answer;
    let group = group.as_ref();
    Ok(json_at(
        group.ok_or_else(|| missing("hyperscsi", &name))?,
        *revision,
    ))
}

/// `PUT /hyperscsi/{name}`
pub(crate) async fn put_hyperscsi_group(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named(name): Named<String>,
    Told(group): Told<spec::Hyperscsi>,
) -> Answer {
    // What is wrong with its place is said by the edit.
    if let Ok(known_by) = config::hyperscsi_name(&group) {
        check_same("name", &name, &known_by)?;
    }
    edit::one(&app, caller, terms, Edit::Put(Thing::Hyperscsi(group))).await
}

/// `DELETE /hyperscsi/{name}`
pub(crate) async fn remove_hyperscsi_group(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named(name): Named<String>,
) -> Answer {
    edit::one(&app, caller, terms, Edit::Remove(Name::Hyperscsi(name))).await
}

/// `PUT /hyperscsi/{name}/devices/{id}`
pub(crate) async fn put_device(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named((name, id)): Named<(String, String)>,
    Told(device): Told<spec::HyperscsiDevice>,
) -> Answer {
    check_same("id", &id, &device.id)?;
    let device = GroupDevice {
        hyperscsi: name,
        device,
    };
    edit::one(&app, caller, terms, Edit::Put(Thing::Device(device))).await
}

/// `DELETE /hyperscsi/{name}/devices/{id}`
pub(crate) async fn remove_device(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named((hyperscsi, id)): Named<(String, String)>,
) -> Answer {
    let edit = Edit::Remove(Name::Device { hyperscsi, id });
    edit::one(&app, caller, terms, edit).await
}
