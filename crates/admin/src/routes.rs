//! The table of routes: the one place that says what there is, and who may.

use std::sync::LazyLock;

use api::access::Role::{Admin, Metrics, Operator, Viewer};
use api::access::{NewToken, Token};
use api::edit::Edits;
use api::event::{Event, Finding};
use api::figures::Figures;
use api::plan::{Applied, Change, Document, Plan, Revision};
use api::request::{
    Eject, Login, NewClone, Rename, Resize, Rollback, TakeSnapshots, Tracing, WhoAmI,
};
use api::spec;
use api::stats::{Space, Stats};
use api::view::{
    Access, Check, Flattened, Hyperscsi, Lun, Places, Quota, Reservations, RolledBack, Session,
    Snapshot, SnapshotsTaken, Status, Target, Trace,
};
use axum::http::Method;
use axum::routing::{delete, get, post, put};

use crate::answer::{Answer, json_text};
use crate::handle::{
    configuration, daemon, edit, live, login, media, resources, sections, snapshots, tokens, traces,
};
use crate::route::{Field, Gives, Route, Value, of};
use crate::{limits, metrics, openapi};

/// Every method of every path outside the console.
#[rustfmt::skip]
pub(crate) static ROUTES: &[Route] = &[
    Route::get("/api/v1/status", Viewer, "The daemon in one look",
        Gives::One(of::<Status>()), || get(daemon::status)),
    Route::get("/api/v1/config", Viewer, "The configuration that runs",
        Gives::One(of::<Document>()), || get(configuration::document)).tagged(),
    Route::put("/api/v1/config", Admin, "Applies a document, as a whole or not at all",
        Gives::One(of::<Applied>()), || put(configuration::apply))
        .takes_document(of::<Change>()).conditional(),
    Route::post("/api/v1/plan", Operator, "What applying a document would do",
        Gives::One(of::<Plan>()), || post(configuration::plan))
        .takes_document(of::<Change>()).tagged().only_asks(),
    Route::get("/api/v1/config/effective", Viewer, "The configuration with every default written out",
        Gives::One(of::<Document>()), || get(configuration::effective)).tagged(),
    Route::get("/api/v1/config/history", Viewer, "The revisions that are kept, the last first",
        Gives::Many(of::<Revision>()), || get(configuration::history)),
    Route::get("/api/v1/config/history/{revision}", Viewer, "The document of a revision",
        Gives::One(of::<Document>()), || get(configuration::past)),
    Route::post("/api/v1/config/rollback", Admin, "Applies the document of a revision again, as a new one",
        Gives::One(of::<Applied>()), || post(configuration::rollback))
        .takes(of::<Rollback>()).conditional(),
    Route::post("/api/v1/config/edits", Operator, "Makes several edits, all of them or none; most need the role admin",
        Gives::One(of::<Applied>()), || post(edit::edits))
        .takes_document(of::<Edits>()).conditional(),
    Route::get("/api/v1/luns", Viewer, "All units",
        Gives::Many(of::<Lun>()), || get(daemon::luns)).tagged(),
    Route::get("/api/v1/luns/{id}", Viewer, "A unit",
        Gives::One(of::<Lun>()), || get(daemon::lun)).tagged(),
    Route::put("/api/v1/luns/{id}", Admin, "Makes a unit, or makes it so",
        Gives::One(of::<Applied>()), || put(resources::put_lun))
        .takes(of::<spec::Lun>()).makes().conditional(),
    Route::delete("/api/v1/luns/{id}", Admin, "Removes a unit; its data stays where it is",
        Gives::One(of::<Applied>()), || delete(resources::remove_lun)).conditional(),
    Route::post("/api/v1/luns/{id}/resize", Operator, "Gives a unit another size",
        Gives::One(of::<Applied>()), || post(resources::resize_lun))
        .takes(of::<Resize>()).conditional(),
    Route::post("/api/v1/luns/{id}/rename", Operator, "Gives a unit another id, and keeps its identity",
        Gives::One(of::<Applied>()), || post(resources::rename_lun))
        .takes(of::<Rename>()).conditional(),
    Route::post("/api/v1/luns/{id}/eject", Operator, "Ejects the medium of a unit, when it is flushed",
        Gives::One(of::<Lun>()), || post(media::eject)).takes(of::<Eject>()),
    Route::post("/api/v1/luns/{id}/load", Operator, "Loads the medium of a unit",
        Gives::One(of::<Lun>()), || post(media::load)),
    Route::get("/api/v1/luns/{id}/reservations", Viewer, "Who has reserved a unit, and who is registered with it",
        Gives::One(of::<Reservations>()), || get(media::reservations)),
    Route::post("/api/v1/luns/{id}/reservations/clear", Admin,
        "Ends all reservations of a unit and all registrations; initiators that lose one get a unit attention",
        Gives::One(of::<Lun>()), || post(media::clear_reservations)),
    Route::post("/api/v1/luns/{id}/takeover", Admin, "Takes the image of a unit from another client of its cluster",
        Gives::One(of::<Lun>()), || post(media::take_over)),
    Route::post("/api/v1/luns/{id}/log/discard", Admin, "Serves a unit without what its lost log may have",
        Gives::One(of::<Lun>()), || post(media::discard_log)),
    Route::post("/api/v1/luns/{id}/log/replay", Admin,
        "Writes to the store of a unit what its log has and the state directory does not know of",
        Gives::One(of::<Lun>()), || post(media::replay_log)),
    Route::post("/api/v1/luns/{id}/adopt", Admin,
        "Serves a unit with what is at the place of its store, although that is not what was served",
        Gives::One(of::<Lun>()), || post(media::adopt)),
    Route::get("/api/v1/luns/{id}/snapshots", Viewer, "The snapshots of a unit, the oldest first",
        Gives::Many(of::<Snapshot>()), || get(snapshots::list_of)),
    Route::delete("/api/v1/luns/{id}/snapshots/{name}", Admin, "Removes a snapshot that nobody uses",
        Gives::Nothing, || delete(snapshots::remove)),
    Route::post("/api/v1/luns/{id}/snapshots/{name}/rollback", Admin,
        "Gives a unit the data of its snapshot back; sessions that see it end first",
        Gives::One(of::<RolledBack>()), || post(snapshots::roll_back)),
    Route::post("/api/v1/luns/{id}/snapshots/{name}/clone", Admin, "Makes a unit with the data of a snapshot",
        Gives::One(of::<Applied>()), || post(snapshots::clone)).takes(of::<NewClone>()).makes(),
    Route::post("/api/v1/luns/{id}/flatten", Operator,
        "Gives a unit that is a clone all data of its snapshot; answers after some seconds, and may be asked again",
        Gives::One(of::<Flattened>()), || post(snapshots::flatten)),
    Route::get("/api/v1/snapshots", Viewer, "The snapshots of all units",
        Gives::Many(of::<Snapshot>()), || get(snapshots::list)),
    Route::post("/api/v1/snapshots", Operator, "Takes snapshots of units, all at one moment",
        Gives::One(of::<SnapshotsTaken>()), || post(snapshots::take)).takes(of::<TakeSnapshots>()).makes(),
    Route::get("/api/v1/targets", Viewer, "All targets",
        Gives::Many(of::<Target>()), || get(daemon::targets)).tagged(),
    Route::get("/api/v1/targets/{name}", Viewer, "A target",
        Gives::One(of::<Target>()), || get(daemon::target)).tagged(),
    Route::put("/api/v1/targets/{name}", Admin, "Makes a target, or makes it so",
        Gives::One(of::<Applied>()), || put(resources::put_target))
        .takes(of::<spec::Target>()).makes().conditional(),
    Route::delete("/api/v1/targets/{name}", Admin, "Removes a target and ends its sessions",
        Gives::One(of::<Applied>()), || delete(resources::remove_target)).conditional(),
    Route::put("/api/v1/targets/{name}/luns/{lun}", Admin, "Shows a unit under a number",
        Gives::One(of::<Applied>()), || put(resources::put_target_lun))
        .takes(of::<spec::TargetLun>()).makes().conditional(),
    Route::delete("/api/v1/targets/{name}/luns/{lun}", Admin, "Shows nothing under a number any more",
        Gives::One(of::<Applied>()), || delete(resources::remove_target_lun))
        .asks(&[Field::optional("group", Value::Text, "The group that sees it no more, or `*` for those who are in no \
            group; needed where several units have the number")]).conditional(),
    Route::put("/api/v1/targets/{name}/portals/{bind}", Admin, "Has a target reached by an address",
        Gives::One(of::<Applied>()), || put(resources::put_portal))
        .takes(of::<spec::Portal>()).makes().conditional(),
    Route::delete("/api/v1/targets/{name}/portals/{bind}", Admin, "Takes an address from a target",
        Gives::One(of::<Applied>()), || delete(resources::remove_portal)).conditional(),
    Route::get("/api/v1/stores", Viewer, "All named stores",
        Gives::Many(of::<spec::Store>()), || get(resources::stores)).tagged(),
    Route::get("/api/v1/stores/{id}", Viewer, "A named store",
        Gives::One(of::<spec::Store>()), || get(resources::store)).tagged(),
    Route::put("/api/v1/stores/{id}", Admin, "Makes a named store, or makes it so",
        Gives::One(of::<Applied>()), || put(resources::put_store))
        .takes(of::<spec::Store>()).makes().conditional(),
    Route::delete("/api/v1/stores/{id}", Admin, "Removes a named store",
        Gives::One(of::<Applied>()), || delete(resources::remove_store)).conditional(),
    Route::get("/api/v1/nbd", Viewer, "All servers of NBD",
        Gives::Many(of::<spec::Nbd>()), || get(sections::servers)).tagged(),
    Route::get("/api/v1/nbd/{place}", Viewer, "A server of NBD, by its socket or address",
        Gives::One(of::<spec::Nbd>()), || get(sections::server)).tagged(),
    Route::put("/api/v1/nbd/{place}", Admin, "Makes a server of NBD, or makes it so",
        Gives::One(of::<Applied>()), || put(sections::put_server))
        .takes(of::<spec::Nbd>()).makes().conditional(),
    Route::delete("/api/v1/nbd/{place}", Admin, "Removes a server of NBD; its sessions end",
        Gives::One(of::<Applied>()), || delete(sections::remove_server)).conditional(),
    Route::get("/api/v1/quotas", Viewer, "All quotas, and what the disks hold that they count",
        Gives::Many(of::<Quota>()), || get(sections::quotas)).tagged(),
    Route::get("/api/v1/quotas/{name}", Viewer, "A quota, by `owner:NAME` or `pool:PLACE`",
        Gives::One(of::<Quota>()), || get(sections::quota)).tagged(),
    Route::put("/api/v1/quotas/{name}", Admin, "Makes a quota, or makes it so",
        Gives::One(of::<Applied>()), || put(sections::put_quota))
        .takes(of::<spec::Quota>()).makes().conditional(),
    Route::delete("/api/v1/quotas/{name}", Admin, "Removes a quota",
        Gives::One(of::<Applied>()), || delete(sections::remove_quota)).conditional(),
    Route::get("/api/v1/hyperscsi", Viewer, "All groups of HyperSCSI, and their sessions",
        Gives::Many(of::<Hyperscsi>()), || get(sections::hyperscsi_groups)).tagged(),
    Route::get("/api/v1/hyperscsi/{name}", Viewer, "A group of HyperSCSI, by `NAME at PLACE`, or by its name where no other \
        group has that",
        Gives::One(of::<Hyperscsi>()), || get(sections::hyperscsi_group)).tagged(),
    Route::put("/api/v1/hyperscsi/{name}", Admin, "Makes a group of HyperSCSI, or makes it so",
        Gives::One(of::<Applied>()), || put(sections::put_hyperscsi_group))
        .takes(of::<spec::Hyperscsi>()).makes().conditional(),
    Route::delete("/api/v1/hyperscsi/{name}", Admin, "Removes a group of HyperSCSI; its sessions end",
        Gives::One(of::<Applied>()), || delete(sections::remove_hyperscsi_group)).conditional(),
    Route::put("/api/v1/hyperscsi/{name}/devices/{id}", Admin, "Gives a unit to a group of HyperSCSI",
        Gives::One(of::<Applied>()), || put(sections::put_device))
        .takes(of::<spec::HyperscsiDevice>()).makes().conditional(),
    Route::delete("/api/v1/hyperscsi/{name}/devices/{id}", Admin, "Takes a unit from a group of HyperSCSI",
        Gives::One(of::<Applied>()), || delete(sections::remove_device)).conditional(),
    Route::get("/api/v1/groups", Viewer, "All groups of initiators",
        Gives::Many(of::<spec::Group>()), || get(resources::groups)).tagged(),
    Route::get("/api/v1/groups/{id}", Viewer, "A group",
        Gives::One(of::<spec::Group>()), || get(resources::group)).tagged(),
    Route::put("/api/v1/groups/{id}", Admin, "Makes a group, or makes it so",
        Gives::One(of::<Applied>()), || put(resources::put_group))
        .takes(of::<spec::Group>()).makes().conditional(),
    Route::delete("/api/v1/groups/{id}", Admin, "Removes a group",
        Gives::One(of::<Applied>()), || delete(resources::remove_group)).conditional(),
    Route::get("/api/v1/users", Viewer, "All CHAP users, without their secrets",
        Gives::Many(of::<spec::User>()), || get(resources::users)).tagged(),
    Route::get("/api/v1/users/{name}", Viewer, "A CHAP user, without the secret",
        Gives::One(of::<spec::User>()), || get(resources::user)).tagged(),
    Route::put("/api/v1/users/{name}", Admin, "Makes a CHAP user, or makes it so",
        Gives::One(of::<Applied>()), || put(resources::put_user))
        .takes(of::<spec::User>()).makes().conditional(),
    Route::delete("/api/v1/users/{name}", Admin, "Removes a CHAP user",
        Gives::One(of::<Applied>()), || delete(resources::remove_user)).conditional(),
    Route::get("/api/v1/sessions", Viewer, "All sessions",
        Gives::Many(of::<Session>()), || get(daemon::sessions)),
    Route::get("/api/v1/sessions/{session}", Viewer, "A session",
        Gives::One(of::<Session>()), || get(daemon::session)),
    Route::delete("/api/v1/sessions/{session}", Operator, "Ends a session; the initiator may log in again",
        Gives::Nothing, || delete(daemon::end_session)),
    Route::get("/api/v1/traces", Viewer, "All traces, without what they have",
        Gives::Many(of::<Trace>()), || get(traces::list)),
    Route::put("/api/v1/traces/{subject}", Operator, "Keeps the last PDUs of a session (its id) or an initiator (its name)",
        Gives::One(of::<Trace>()), || put(traces::start)).takes(of::<Tracing>()).makes(),
    Route::get("/api/v1/traces/{subject}", Operator, "What a trace has, as a file that protocol analysers read",
        Gives::File(traces::FILE), || get(traces::read)),
    Route::delete("/api/v1/traces/{subject}", Operator, "Ends a trace and drops what it has kept",
        Gives::Nothing, || delete(traces::stop)),
    Route::get("/api/v1/access", Viewer, "What an initiator would meet: the dry run of the rules",
        Gives::Many(of::<Access>()), || get(daemon::access))
        .asks(&[
            Field { name: "initiator", about: "InitiatorName", required: true, value: Value::Text },
            Field::optional("address", Value::Text, "Where it would come from"),
            Field::optional("user", Value::Text, "The CHAP user it would prove to be"),
            Field::optional("certificate", Value::Text, "The name that its certificate would prove to servers of NBD"),
        ]),
    Route::get("/api/v1/stats", Viewer, "Counters, now",
        Gives::One(of::<Stats>()), || get(daemon::stats)),
    Route::get("/api/v1/space", Viewer, "The space of units, and of the file systems they are on",
        Gives::One(of::<Space>()), || get(daemon::space)),
    Route::get("/api/v1/figures", Viewer, "What the main figures were, also before the last restart",
        Gives::One(of::<Figures>()), || get(daemon::figures))
        .asks(&[
            Field::optional("range", Value::Text, "How far back: 1h, 24h or 30d; 1h if it is absent"),
            Field::optional("lun", Value::Text, "Only the figures of this unit; absent: of all together"),
        ]),
    Route::get("/api/v1/events", Viewer, "Events, the oldest first",
        Gives::Many(of::<Event>()), || get(daemon::events))
        .asks(&[
            Field::optional("after", Value::Number(u64::MAX), "Only events with a number above this; absent: the newest"),
            Field::optional("most", Value::Number(limits::EVENTS_MAX as u64), "How many; 100 if it is absent"),
            Field::optional("limit", Value::Number(limits::EVENTS_MAX as u64), "The same as `most`, which counts if both are there"),
            Field::optional("severity", Value::Text, "Only events as bad as this or worse: info, warning or error"),
            Field::optional("kind", Value::Text, "Only events of this kind; several with commas between them"),
            Field::optional("lun", Value::Text, "Only events about this unit"),
            Field::optional("target", Value::Text, "Only events about this target"),
            Field::optional("initiator", Value::Text, "Only events about this initiator"),
            Field::optional("user", Value::Text, "Only events about this user, or by this administrator"),
            Field::optional("since", Value::Number(u64::MAX), "Only events from this moment on, in milliseconds since 1970"),
        ]),
    Route::get("/api/v1/live", Viewer, "Counters once a second (`stats`) and events as they come (`event`), as server-sent events",
        Gives::Texts(&["text/event-stream"]), || get(live::live))
        .asks(&[Field::optional("after", Value::Number(u64::MAX), "Begin with the event after this number; absent: with the next")]),
    Route::get("/api/v1/findings", Viewer, "What limits or endangers the service",
        Gives::Many(of::<Finding>()), || get(daemon::findings)),
    Route::get("/api/v1/checks", Viewer, "What is looked for, found or not",
        Gives::Many(of::<Check>()), || get(daemon::checks)),
    Route::get("/api/v1/places", Admin, "Directories and block devices where the data of units may be",
        Gives::One(of::<Places>()), || get(daemon::places)),
    Route::get("/api/v1/tokens", Admin, "All tokens, without their secret part",
        Gives::Many(of::<Token>()), || get(tokens::list)),
    Route::post("/api/v1/tokens", Admin, "Creates a token and returns it, this once",
        Gives::One(of::<Token>()), || post(tokens::make)).takes(of::<NewToken>()).makes(),
    Route::delete("/api/v1/tokens/{name}", Admin, "Revokes a token",
        Gives::Nothing, || delete(tokens::revoke)),
    Route::post("/api/v1/login", Viewer, "Gives the console a cookie for a token",
        Gives::One(of::<WhoAmI>()), || post(login::login)).open().takes(of::<Login>()),
    Route::post("/api/v1/logout", Viewer, "Ends the console's login",
        Gives::Nothing, || post(login::logout)),
    Route::get("/api/v1/whoami", Viewer, "Who asks, and what they may",
        Gives::One(of::<WhoAmI>()), || get(login::whoami)),
    Route::get("/api/v1/openapi.json", Viewer, "This document",
        Gives::Json, || get(own_document)),
    Route::get("/metrics", Metrics, "Metrics, as OpenMetrics or in the text format of Prometheus",
        Gives::Texts(&["application/openmetrics-text", "text/plain"]), || get(metrics::serve)),
    Route::get("/healthz", Viewer, "200 while the administration answers",
        Gives::Texts(&["text/plain"]), || get(daemon::healthz)).open(),
    Route::get("/readyz", Viewer, "200 while the daemon answers, 503 otherwise",
        Gives::Texts(&["text/plain"]), || get(daemon::readyz)).open(),
];

/// The row for a method of a path. HEAD is what GET says of itself.
pub(crate) fn find(method: &Method, path: &str) -> Option<&'static Route> {
    let method = if *method == Method::HEAD {
        &Method::GET
    } else {
        method
    };
    ROUTES
        .iter()
        .find(|route| route.method == *method && route.path == path)
}

/// The methods of a path, for Allow.
pub(crate) fn methods(path: &str) -> impl Iterator<Item = &'static str> + Clone + use<'_> {
    let own = ROUTES.iter().filter(move |route| route.path == path);
    let heads = own
        .clone()
        .filter(|route| route.method == Method::GET)
        .map(|_| "HEAD");
    own.map(|route| route.method.as_str())
        .chain(heads)
        .chain(["OPTIONS"])
}

/// The OpenAPI document.
pub fn document() -> serde_json::Value {
    openapi::document(ROUTES)
}

/// `GET /openapi.json`
async fn own_document() -> Answer {
    static WRITTEN: LazyLock<String> = LazyLock::new(|| document().to_string());
    Ok(json_text(&WRITTEN))
}
