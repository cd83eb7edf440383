//! What is configured, one thing at a time.

use std::sync::Arc;

use api::edit::{Edit, Name, TargetPortal, Thing, View};
use api::problem::Problem;
use api::request::{Rename, Resize};
use api::spec;
use axum::Extension;
use axum::extract::State;
use config::Draft;
use serde::{Deserialize, Serialize};

use super::daemon::missing;
use super::edit;
use crate::answer::{Answer, Refusal, json_at};
use crate::app::App;
use crate::ask::{Asked, Named, Terms, Told};
use crate::call::Much;
use crate::caller::Caller;

type Shared = State<Arc<App>>;
type Who = Extension<Caller>;

/// `PUT /luns/{id}`
pub(crate) async fn put_lun(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named(id): Named<String>,
    Told(lun): Told<spec::Lun>,
) -> Answer {
    check_same("id", &id, &lun.id)?;
    edit::one(&app, caller, terms, Edit::Put(Thing::Lun(lun))).await
}

/// `DELETE /luns/{id}`
pub(crate) async fn remove_lun(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named(id): Named<String>,
) -> Answer {
    let edit = Edit::Remove(Name::Lun(id));
    edit::one(&app, caller, terms, edit).await
}

/// `POST /luns/{id}/resize`
pub(crate) async fn resize_lun(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named(id): Named<String>,
    Told(resize): Told<Resize>,
) -> Answer {
    let edit = Edit::Resize {
        lun: id,
        size_bytes: resize.size_bytes,
    };
    edit::one(&app, caller, terms, edit).await
}

/// `POST /luns/{id}/rename`
pub(crate) async fn rename_lun(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named(id): Named<String>,
    Told(rename): Told<Rename>,
) -> Answer {
    let edit = Edit::Rename {
        lun: id,
        id: rename.id,
    };
    edit::one(&app, caller, terms, edit).await
}

/// `PUT /targets/{name}`
pub(crate) async fn put_target(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named(name): Named<String>,
    Told(target): Told<spec::Target>,
) -> Answer {
    check_same("name", &name, &target.name)?;
    edit::one(&app, caller, terms, Edit::Put(Thing::Target(target))).await
}

/// `DELETE /targets/{name}`
pub(crate) async fn remove_target(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named(name): Named<String>,
) -> Answer {
    let edit = Edit::Remove(Name::Target(name));
    edit::one(&app, caller, terms, edit).await
}

/// `PUT /targets/{name}/luns/{lun}`
pub(crate) async fn put_target_lun(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named((name, lun)): Named<(String, u16)>,
    Told(entry): Told<spec::TargetLun>,
) -> Answer {
    check_same("lun", &lun, &entry.lun)?;
    let view = View {
        target: name,
        lun: Some(entry.lun),
        id: entry.id,
        groups: entry.groups,
        readonly: entry.readonly,
    };
    let edit = Edit::Put(Thing::View(view));
    edit::one(&app, caller, terms, edit).await
}

/// Who sees a number no more. The terms are in the same query.
#[derive(Debug, Deserialize)]
pub(crate) struct Whose {
    group: Option<String>,
}

/// `DELETE /targets/{name}/luns/{lun}`
pub(crate) async fn remove_target_lun(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named((target, lun)): Named<(String, u16)>,
    Asked(whose): Asked<Whose>,
) -> Answer {
    let group = whose.group;
    let edit = Edit::Remove(Name::View { target, lun, group });
    edit::one(&app, caller, terms, edit).await
}

/// `PUT /targets/{name}/portals/{bind}`
pub(crate) async fn put_portal(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named((name, bind)): Named<(String, String)>,
    Told(portal): Told<spec::Portal>,
) -> Answer {
    check_same("bind", &bind, &portal.bind)?;
    let portal = TargetPortal {
        target: name,
        portal,
    };
    let edit = Edit::Put(Thing::Portal(portal));
    edit::one(&app, caller, terms, edit).await
}

/// `DELETE /targets/{name}/portals/{bind}`
pub(crate) async fn remove_portal(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named((name, bind)): Named<(String, String)>,
) -> Answer {
    let edit = Edit::Remove(Name::Portal { target: name, bind });
    edit::one(&app, caller, terms, edit).await
}

/// `GET /stores`
pub(crate) async fn stores(State(app): Shared) -> Answer {
    let answer = configured(&app, Draft::stores).await?;
    let (stores, revision) = &*answer;
    Ok(json_at(stores, *revision))
}

/// `GET /stores/{id}`
pub(crate) async fn store(State(app): Shared, Named(id): Named<String>) -> Answer {
    let answer = configured(&app, Draft::stores).await?;
    let (stores, revision) = &*answer;
    let store = stores.iter().find(|store| store.id == id);
    Ok(json_at(
        store.ok_or_else(|| missing("store", &id))?,
        *revision,
    ))
}

/// `PUT /stores/{id}`
pub(crate) async fn put_store(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named(id): Named<String>,
    Told(store): Told<spec::Store>,
) -> Answer {
    check_same("id", &id, &store.id)?;
    edit::one(&app, caller, terms, Edit::Put(Thing::Store(store))).await
}

/// `DELETE /stores/{id}`
pub(crate) async fn remove_store(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named(id): Named<String>,
) -> Answer {
    edit::one(&app, caller, terms, Edit::Remove(Name::Store(id))).await
}

/// `GET /groups`
pub(crate) async fn groups(State(app): Shared) -> Answer {
    let answer = configured(&app, Draft::groups).await?;
    let (groups, revision) = &*answer;
    Ok(json_at(groups, *revision))
}

/// `GET /groups/{id}`
pub(crate) async fn group(State(app): Shared, Named(id): Named<String>) -> Answer {
    let answer = configured(&app, Draft::groups).await?;
    let (groups, revision) = &*answer;
    let group = groups.iter().find(|group| group.id == id);
    Ok(json_at(
        group.ok_or_else(|| missing("group", &id))?,
        *revision,
    ))
}

/// `PUT /groups/{id}`
pub(crate) async fn put_group(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named(id): Named<String>,
    Told(group): Told<spec::Group>,
) -> Answer {
    check_same("id", &id, &group.id)?;
    edit::one(&app, caller, terms, Edit::Put(Thing::Group(group))).await
}

/// `DELETE /groups/{id}`
pub(crate) async fn remove_group(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named(id): Named<String>,
) -> Answer {
    let edit = Edit::Remove(Name::Group(id));
    edit::one(&app, caller, terms, edit).await
}

/// `GET /users`
pub(crate) async fn users(State(app): Shared) -> Answer {
    let answer = configured(&app, Draft::users).await?;
    let (users, revision) = &*answer;
    Ok(json_at(users, *revision))
}

/// `GET /users/{name}`
pub(crate) async fn user(State(app): Shared, Named(name): Named<String>) -> Answer {
    let answer = configured(&app, Draft::users).await?;
    let (users, revision) = &*answer;
    let user = users.iter().find(|user| user.name == name);
    Ok(json_at(
        user.ok_or_else(|| missing("user", &name))?,
        *revision,
    ))
}

/// `PUT /users/{name}`
pub(crate) async fn put_user(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named(name): Named<String>,
    Told(user): Told<spec::User>,
) -> Answer {
    check_same("name", &name, &user.name)?;
    edit::one(&app, caller, terms, Edit::Put(Thing::User(user))).await
}

/// `DELETE /users/{name}`
pub(crate) async fn remove_user(
    State(app): Shared,
    Extension(caller): Who,
    terms: Terms,
    Named(name): Named<String>,
) -> Answer {
    let edit = Edit::Remove(Name::User(name));
    edit::one(&app, caller, terms, edit).await
}

/// What the document says, and its revision.
pub(super) async fn configured<T, F>(app: &App, read: F) -> Result<Much<(Vec<T>, u64)>, Refusal>
where
    T: Serialize + Send + 'static,
    F: FnOnce(&Draft) -> Vec<T> + Send + 'static,
{
    let ask = app.calls.read_much(move |control| {
        let document = control.document();
        let draft = edit::draft(&document.text)?;
        Ok::<_, Problem>((read(&draft), document.revision))
    });
    Ok(ask.await?.good()?)
}

/// The path and the body must name the same thing.
pub(super) fn check_same<T: PartialEq + std::fmt::Debug>(
    field: &str,
    path: &T,
    body: &T,
) -> Result<(), Refusal> {
    if path == body {
        return Ok(());
    }
    let detail = format!("the path says {path:?}, the body {body:?}; they must be the same");
    Err(Refusal::field(field, detail))
}
