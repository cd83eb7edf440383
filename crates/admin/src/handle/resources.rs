//! What is configured, one thing at a time.

use std::sync::Arc;

use api::control::Control;
use api::edit::{Edit, Name, TargetPortal, Thing, View};
use api::plan::Document;
use api::problem::Problem;
use api::request::{Rename, Resize};
use api::spec;
use axum::extract::State;
use config::Draft;
use serde::Deserialize;

use super::daemon::{all, the_one};
use super::edit::{self, Editor};
use crate::answer::{Answer, Refusal};
use crate::app::App;
use crate::ask::{Asked, Named, Told};

type Shared = State<Arc<App>>;

/// `PUT /luns/{id}`
pub(crate) async fn put_lun(
    editor: Editor,
    Named(id): Named<String>,
    Told(lun): Told<spec::Lun>,
) -> Answer {
    check_same("id", &id, &lun.id)?;
    editor.one(Edit::Put(Thing::Lun(lun))).await
}

/// `DELETE /luns/{id}`
pub(crate) async fn remove_lun(editor: Editor, Named(id): Named<String>) -> Answer {
    editor.one(Edit::Remove(Name::Lun(id))).await
}

/// `POST /luns/{id}/resize`
pub(crate) async fn resize_lun(
    editor: Editor,
    Named(id): Named<String>,
    Told(resize): Told<Resize>,
) -> Answer {
    let edit = Edit::Resize {
        lun: id,
        size_bytes: resize.size_bytes,
    };
    editor.one(edit).await
}

/// `POST /luns/{id}/rename`
pub(crate) async fn rename_lun(
    editor: Editor,
    Named(id): Named<String>,
    Told(rename): Told<Rename>,
) -> Answer {
    let edit = Edit::Rename {
        lun: id,
        id: rename.id,
    };
    editor.one(edit).await
}

/// `PUT /targets/{name}`
pub(crate) async fn put_target(
    editor: Editor,
    Named(name): Named<String>,
    Told(target): Told<spec::Target>,
) -> Answer {
    check_same("name", &name, &target.name)?;
    editor.one(Edit::Put(Thing::Target(target))).await
}

/// `DELETE /targets/{name}`
pub(crate) async fn remove_target(editor: Editor, Named(name): Named<String>) -> Answer {
    editor.one(Edit::Remove(Name::Target(name))).await
}

/// `PUT /targets/{name}/luns/{lun}`
pub(crate) async fn put_target_lun(
    editor: Editor,
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
    editor.one(Edit::Put(Thing::View(view))).await
}

/// Who sees a number no more. The terms are in the same query.
#[derive(Debug, Deserialize)]
pub(crate) struct Whose {
    group: Option<String>,
}

/// `DELETE /targets/{name}/luns/{lun}`
pub(crate) async fn remove_target_lun(
    editor: Editor,
    Named((target, lun)): Named<(String, u16)>,
    Asked(whose): Asked<Whose>,
) -> Answer {
    let group = whose.group;
    let edit = Edit::Remove(Name::View { target, lun, group });
    editor.one(edit).await
}

/// `PUT /targets/{name}/portals/{bind}`
pub(crate) async fn put_portal(
    editor: Editor,
    Named((name, bind)): Named<(String, String)>,
    Told(portal): Told<spec::Portal>,
) -> Answer {
    check_same("bind", &bind, &portal.bind)?;
    let portal = TargetPortal {
        target: name,
        portal,
    };
    editor.one(Edit::Put(Thing::Portal(portal))).await
}

/// `DELETE /targets/{name}/portals/{bind}`
pub(crate) async fn remove_portal(
    editor: Editor,
    Named((name, bind)): Named<(String, String)>,
) -> Answer {
    let edit = Edit::Remove(Name::Portal { target: name, bind });
    editor.one(edit).await
}

/// `GET /stores`
pub(crate) async fn stores(State(app): Shared) -> Answer {
    all(&app, configured(Draft::stores)).await
}

/// `GET /stores/{id}`
pub(crate) async fn store(State(app): Shared, Named(id): Named<String>) -> Answer {
    let is_it = |store: &spec::Store| store.id == id;
    the_one(&app, ("store", &id), configured(Draft::stores), is_it).await
}

/// `PUT /stores/{id}`
pub(crate) async fn put_store(
    editor: Editor,
    Named(id): Named<String>,
    Told(store): Told<spec::Store>,
) -> Answer {
    check_same("id", &id, &store.id)?;
    editor.one(Edit::Put(Thing::Store(store))).await
}

/// `DELETE /stores/{id}`
pub(crate) async fn remove_store(editor: Editor, Named(id): Named<String>) -> Answer {
    editor.one(Edit::Remove(Name::Store(id))).await
}

/// `GET /groups`
pub(crate) async fn groups(State(app): Shared) -> Answer {
    all(&app, configured(Draft::groups)).await
}

/// `GET /groups/{id}`
pub(crate) async fn group(State(app): Shared, Named(id): Named<String>) -> Answer {
    let is_it = |group: &spec::Group| group.id == id;
    the_one(&app, ("group", &id), configured(Draft::groups), is_it).await
}

/// `PUT /groups/{id}`
pub(crate) async fn put_group(
    editor: Editor,
    Named(id): Named<String>,
    Told(group): Told<spec::Group>,
) -> Answer {
    check_same("id", &id, &group.id)?;
    editor.one(Edit::Put(Thing::Group(group))).await
}

/// `DELETE /groups/{id}`
pub(crate) async fn remove_group(editor: Editor, Named(id): Named<String>) -> Answer {
    editor.one(Edit::Remove(Name::Group(id))).await
}

/// `GET /users`
pub(crate) async fn users(State(app): Shared) -> Answer {
    all(&app, configured(Draft::users)).await
}

/// `GET /users/{name}`
pub(crate) async fn user(State(app): Shared, Named(name): Named<String>) -> Answer {
    let is_it = |user: &spec::User| user.name == name;
    the_one(&app, ("user", &name), configured(Draft::users), is_it).await
}

/// `PUT /users/{name}`
pub(crate) async fn put_user(
    editor: Editor,
    Named(name): Named<String>,
    Told(user): Told<spec::User>,
) -> Answer {
    check_same("name", &name, &user.name)?;
    editor.one(Edit::Put(Thing::User(user))).await
}

/// `DELETE /users/{name}`
pub(crate) async fn remove_user(editor: Editor, Named(name): Named<String>) -> Answer {
    editor.one(Edit::Remove(Name::User(name))).await
}

/// What the document has of a kind, for those who answer with it.
pub(super) fn configured<T>(
    read: fn(&Draft) -> Vec<T>,
) -> impl FnOnce(&dyn Control, &Document) -> Result<Vec<T>, Problem> {
    move |_, document| Ok(read(&edit::draft(&document.text)?))
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
