//! What is configured, one thing at a time.

use std::sync::Arc;

use api::control::Control;
use api::problem::Problem;
use api::request::{Rename, Resize};
use api::spec;
use axum::Extension;
use axum::extract::State;
use config::Draft;
use serde::Serialize;

use super::daemon::missing;
use super::edit;
use crate::answer::{self, Answer, Refusal, json_at};
use crate::app::App;
use crate::ask::{IfMatch, Named, Told};
use crate::call::Much;
use crate::guard::Caller;

type Shared = State<Arc<App>>;
type Who = Extension<Caller>;

/// `PUT /luns/{id}`
pub(crate) async fn put_lun(
    State(app): Shared,
    Extension(caller): Who,
    only_at: IfMatch,
    Named(id): Named<String>,
    Told(lun): Told<spec::Lun>,
) -> Answer {
    check_same("id", &id, &lun.id)?;
    edit::make(&app, caller, only_at, move |draft| draft.put_lun(&lun)).await
}

/// `DELETE /luns/{id}`
pub(crate) async fn remove_lun(
    State(app): Shared,
    Extension(caller): Who,
    only_at: IfMatch,
    Named(id): Named<String>,
) -> Answer {
    let edit = move |draft: &mut Draft| draft.remove_lun(&id).map(|()| false);
    edit::make(&app, caller, only_at, edit).await
}

/// `POST /luns/{id}/resize`
pub(crate) async fn resize_lun(
    State(app): Shared,
    Extension(caller): Who,
    only_at: IfMatch,
    Named(id): Named<String>,
    Told(resize): Told<Resize>,
) -> Answer {
    let edit = move |draft: &mut Draft| draft.resize_lun(&id, resize.size_bytes).map(|()| false);
    edit::make(&app, caller, only_at, edit).await
}

/// `POST /luns/{id}/rename`
pub(crate) async fn rename_lun(
    State(app): Shared,
    Extension(caller): Who,
    only_at: IfMatch,
    Named(id): Named<String>,
    Told(rename): Told<Rename>,
) -> Answer {
    let edit = move |draft: &mut Draft| draft.rename_lun(&id, &rename.id).map(|()| false);
    edit::make(&app, caller, only_at, edit).await
}

/// `PUT /targets/{name}`
pub(crate) async fn put_target(
    State(app): Shared,
    Extension(caller): Who,
    only_at: IfMatch,
    Named(name): Named<String>,
    Told(target): Told<spec::Target>,
) -> Answer {
    check_same("name", &name, &target.name)?;
    edit::make(&app, caller, only_at, move |draft| {
        draft.put_target(&target)
    })
    .await
}

/// `DELETE /targets/{name}`
pub(crate) async fn remove_target(
    State(app): Shared,
    Extension(caller): Who,
    only_at: IfMatch,
    Named(name): Named<String>,
) -> Answer {
    let edit = move |draft: &mut Draft| draft.remove_target(&name).map(|()| false);
    edit::make(&app, caller, only_at, edit).await
}

/// `PUT /targets/{name}/luns/{lun}`
pub(crate) async fn put_target_lun(
    State(app): Shared,
    Extension(caller): Who,
    only_at: IfMatch,
    Named((name, lun)): Named<(String, u16)>,
    Told(entry): Told<spec::TargetLun>,
) -> Answer {
    check_same("lun", &lun, &entry.lun)?;
    let edit = move |draft: &mut Draft| draft.put_target_lun(&name, &entry);
    edit::make(&app, caller, only_at, edit).await
}

/// `DELETE /targets/{name}/luns/{lun}`
pub(crate) async fn remove_target_lun(
    State(app): Shared,
    Extension(caller): Who,
    only_at: IfMatch,
    Named((name, lun)): Named<(String, u16)>,
) -> Answer {
    let edit = move |draft: &mut Draft| draft.remove_target_lun(&name, lun).map(|()| false);
    edit::make(&app, caller, only_at, edit).await
}

/// `PUT /targets/{name}/portals/{bind}`
pub(crate) async fn put_portal(
    State(app): Shared,
    Extension(caller): Who,
    only_at: IfMatch,
    Named((name, bind)): Named<(String, String)>,
    Told(portal): Told<spec::Portal>,
) -> Answer {
    check_same("bind", &bind, &portal.bind)?;
    let edit = move |draft: &mut Draft| draft.put_portal(&name, &portal);
    edit::make(&app, caller, only_at, edit).await
}

/// `DELETE /targets/{name}/portals/{bind}`
pub(crate) async fn remove_portal(
    State(app): Shared,
    Extension(caller): Who,
    only_at: IfMatch,
    Named((name, bind)): Named<(String, String)>,
) -> Answer {
    let edit = move |draft: &mut Draft| draft.remove_portal(&name, &bind).map(|()| false);
    edit::make(&app, caller, only_at, edit).await
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
    only_at: IfMatch,
    Named(id): Named<String>,
    Told(group): Told<spec::Group>,
) -> Answer {
    check_same("id", &id, &group.id)?;
    edit::make(&app, caller, only_at, move |draft| draft.put_group(&group)).await
}

/// `DELETE /groups/{id}`
pub(crate) async fn remove_group(
    State(app): Shared,
    Extension(caller): Who,
    only_at: IfMatch,
    Named(id): Named<String>,
) -> Answer {
    let edit = move |draft: &mut Draft| draft.remove_group(&id).map(|()| false);
    edit::make(&app, caller, only_at, edit).await
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

/// `PUT /users/{name}`. Secrets go into files of the daemon first, the document names the files.
pub(crate) async fn put_user(
    State(app): Shared,
    Extension(caller): Who,
    IfMatch(only_at): IfMatch,
    Named(name): Named<String>,
    Told(user): Told<spec::User>,
) -> Answer {
    check_same("name", &name, &user.name)?;
    let change = move |control: &dyn Control| {
        // Nothing is kept for a change that cannot be made.
        edit::check_revision(control.document().revision, only_at)?;
        let mut kept = Kept::new(control);
        let user = kept.keep_secrets(user)?;
        let put = move |draft: &mut Draft| draft.put_user(&user);
        edit::apply(control, only_at, &caller.author, &put)
    };
    let (applied, is_new) = app.calls.change(change).await??;
    let applied = app.calls.settle(applied).await;
    Ok(answer::applied(&applied, is_new))
}

/// `DELETE /users/{name}`
pub(crate) async fn remove_user(
    State(app): Shared,
    Extension(caller): Who,
    only_at: IfMatch,
    Named(name): Named<String>,
) -> Answer {
    let edit = move |draft: &mut Draft| draft.remove_user(&name).map(|()| false);
    edit::make(&app, caller, only_at, edit).await
}

/// Secrets that were kept for one change, and are let go when that is over.
struct Kept<'a> {
    control: &'a dyn Control,
    paths: Vec<String>,
}

impl<'a> Kept<'a> {
    fn new(control: &'a dyn Control) -> Self {
        let paths = Vec::new();
        Self { control, paths }
    }

    fn keep_secrets(&mut self, mut user: spec::User) -> Result<spec::User, Problem> {
        if let Some(secret) = user.secret.take() {
            user.secret_file = Some(self.keep(&user.name, &secret, false)?);
        }
        if let Some(mutual) = &mut user.mutual
            && let Some(secret) = mutual.secret.take()
        {
            mutual.secret_file = Some(self.keep(&user.name, &secret, true)?);
        }
        Ok(user)
    }

    fn keep(&mut self, user: &str, secret: &str, is_mutual: bool) -> Result<String, Problem> {
        let path = self.control.keep_secret(user, secret, is_mutual)?;
        self.paths.push(path.clone());
        Ok(path)
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        for path in &self.paths {
            self.control.release_secret(path);
        }
    }
}

/// What the document says, and its revision.
async fn configured<T, F>(app: &App, read: F) -> Result<Much<(Vec<T>, u64)>, Refusal>
where
    T: Serialize + Send + 'static,
    F: FnOnce(&Draft) -> Vec<T> + Send + 'static,
{
    let ask = app.calls.read_much(0, move |control| {
        let document = control.document();
        let draft = edit::draft(&document.text)?;
        Ok::<_, Problem>((read(&draft), document.revision))
    });
    Ok(ask.await?.good()?)
}

/// The path and the body must name the same thing.
fn check_same<T: PartialEq + std::fmt::Debug>(
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
