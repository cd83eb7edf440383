//! Servers of NBD and quotas, one at a time.

use std::sync::Arc;

use api::edit::{Edit, Name, Thing};
use api::spec;
use axum::Extension;
use axum::extract::State;
use config::Draft;

use super::daemon::missing;
use super::edit;
use super::resources::{check_same, configured};
use crate::answer::{Answer, json_at};
use crate::app::App;
use crate::ask::{Named, Terms, Told};
use crate::guard::Caller;

type Shared = State<Arc<App>>;
type Who = Extension<Caller>;

/// `GET /nbd`
pub(crate) async fn servers(State(app): Shared) -> Answer {
    let answer = configured(&app, Draft::nbd).await?;
    let (servers, revision) = &*answer;
    Ok(json_at(servers, *revision))
}

/// `GET /nbd/{place}`
pub(crate) async fn server(State(app): Shared, Named(place): Named<String>) -> Answer {
    let answer = configured(&app, Draft::nbd).await?;
    let (servers, revision) = &*answer;
    let server = servers.iter().find(|server| server.place() == place);
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
    check_same(field, &place, &server.place().to_owned())?;
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
        .read_much(0, |control| (control.document().revision, control.quotas()));
    let answer = ask.await?;
    let (revision, quotas) = &*answer;
    Ok(json_at(quotas, *revision))
}

/// `GET /quotas/{name}`
pub(crate) async fn quota(State(app): Shared, Named(name): Named<String>) -> Answer {
    let ask = app
        .calls
        .read_much(0, |control| (control.document().revision, control.quotas()));
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
