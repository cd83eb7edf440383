//! Live data: counters once a second, events as they come, as server-sent events.
//!
//! One task asks the daemon, and only while somebody listens. A listener that is slow misses
//! counters, not events; it holds one message at a time.
//!
//! Spec: HTML Living Standard, section Server-sent events.

use std::sync::Arc;
use std::time::Duration;

use api::control::Control;
use api::request::EventQuestion;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse as _;
use hyper::body::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::answer::Answer;
use crate::app::{App, stopped};
use crate::ask::Asked;
use crate::call::{Request, on_behalf_of};
use crate::caller::Caller;
use crate::feed::Feed;
use crate::limits;
use crate::live::{News, Place};

/// How often the daemon is asked for events.
const EVENTS_EVERY: Duration = Duration::from_millis(250);

/// How many of these make a turn of the counters.
const STATS_EVERY: u32 = 4;

/// Asks the daemon for news, for ever.
pub(crate) async fn watch_daemon(app: Arc<App>) {
    let mut ticks = tokio::time::interval(EVENTS_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut tick = 0_u32;
    loop {
        app.live.listener().await;
        ticks.tick().await;
        let with_stats = tick.is_multiple_of(STATS_EVERY);
        tick = tick.wrapping_add(1);
        let known = app.live.news.borrow().newest;
        let ask = move |control: &dyn Control| {
            let stats = with_stats.then(|| control.stats());
            (stats, newest(control, known))
        };
        // A daemon that does not answer has no news; the next tick asks again.
        let Ok((stats, newest)) = app.calls.read(ask).await else {
            continue;
        };
        app.live.news.send_modify(|news| {
            news.newest = newest;
            if let Some(stats) = stats {
                news.stats = message("stats", None, &stats);
                news.turn += 1;
            }
        });
    }
}

/// The number of the newest event, if `known` was it a moment ago.
fn newest(control: &dyn Control, known: u64) -> u64 {
    let mut newest = known;
    while let Some(last) = control
        .events(EventQuestion::after(newest, limits::EVENTS_MAX))
        .last()
    {
        newest = last.number;
    }
    newest
}

/// Where a stream begins.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Start {
    after: Option<u64>,
}

/// `GET /live`
pub(crate) async fn live(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(request): Extension<Arc<Request>>,
    Asked(start): Asked<Start>,
    headers: HeaderMap,
) -> Answer {
    let place = app.live.place(&caller.author);
    // A browser that reconnects sends the number of the last event it has seen.
    let seen = headers.get("last-event-id");
    let seen = seen.and_then(|id| id.to_str().ok()?.parse().ok());
    let after = match seen.or(start.after) {
        Some(after) => after,
        None => app.calls.read(|control| newest(control, 0)).await?,
    };
    let (sender, receiver) = mpsc::channel(1);
    let stream = Stream {
        app,
        caller,
        after,
        sender,
    };
    tokio::spawn(on_behalf_of(request, stream.run(place)));
    let content = [(header::CONTENT_TYPE, "text/event-stream")];
    Ok((content, Body::new(Feed(receiver))).into_response())
}

/// One listener.
struct Stream {
    app: Arc<App>,
    caller: Caller,
    after: u64,
    sender: mpsc::Sender<Bytes>,
}

/// The listener is.
struct Gone;

impl Stream {
    /// Until the listener goes, may not listen any more, loses the place, or all has to end.
    async fn run(mut self, mut place: Place) {
        let mut news = self.app.live.news.subscribe();
        let mut stopping = self.app.stopping.clone();
        let gone = self.sender.clone();
        let mut turn = 0;
        loop {
            tokio::select! {
                () = gone.closed() => return,
                () = stopped(&mut stopping) => return,
                _ = &mut place.lost => return,
                changed = news.changed() => if changed.is_err() { return },
            }
            let latest = news.borrow_and_update().clone();
            if !self.caller.is_valid(&self.app) {
                return;
            }
            // A listener that reads nothing must not hold on to what it has lost.
            tokio::select! {
                sent = self.send(&latest, &mut turn) => if sent.is_err() { return },
                _ = &mut place.lost => return,
            }
        }
    }

    async fn send(&mut self, news: &News, turn: &mut u64) -> Result<(), Gone> {
        while news.newest > self.after && self.send_events().await? {}
        if news.turn > *turn {
            *turn = news.turn;
            self.pass(news.stats.clone()).await?;
        }
        Ok(())
    }

    /// True when there was one.
    async fn send_events(&mut self) -> Result<bool, Gone> {
        let question = EventQuestion::after(self.after, limits::EVENTS_DEFAULT);
        let ask = move |control: &dyn Control| control.events(question);
        // Where too much is under way, they are asked for with the next news.
        let Ok(events) = self.app.calls.read(ask).await else {
            return Ok(false);
        };
        for event in &events {
            self.after = event.number;
            self.pass(message("event", Some(event.number), event))
                .await?;
        }
        Ok(!events.is_empty())
    }

    async fn pass(&self, message: Bytes) -> Result<(), Gone> {
        self.sender.send(message).await.map_err(|_| Gone)
    }
}

/// A message. JSON has no line breaks, so one `data` line holds it.
fn message<T: Serialize>(kind: &str, id: Option<u64>, value: &T) -> Bytes {
    let id = id.map_or_else(String::new, |id| format!("id: {id}\n"));
    match serde_json::to_string(value) {
        Ok(json) => format!("{id}event: {kind}\ndata: {json}\n\n").into(),
        Err(error) => {
            tracing::error!(%error, kind, "a message cannot be written as JSON");
            Bytes::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use api::access::Role;
    use durable::scratch::Scratch;
    use http_body_util::BodyExt as _;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;

    use super::*;
    use crate::guard;
    use crate::peer::Peer;
    use crate::testing::{Double, app_that_stops, event, local, token};

    /// A stream of this caller. `seen`: the number of the last event that its browser has.
    async fn stream(app: &Arc<App>, uri: &str, token: Option<&str>, seen: Option<&str>) -> Body {
        let mut request = axum::extract::Request::get(uri).header(header::HOST, "127.0.0.1:3262");
        if let Some(seen) = seen {
            request = request.header("last-event-id", seen);
        }
        request = match token {
            None => request.extension(Peer::Unix { uid: 0 }),
            Some(token) => request
                .header(header::AUTHORIZATION, format!("Bearer {token}"))
                .extension(local(false)),
        };
        let request = request.body(Body::empty()).unwrap();
        let router = TowerToHyperService::new(guard::router(app));
        let response = router.call(request).await.unwrap();
        assert_eq!(
            response.headers()[header::CONTENT_TYPE],
            "text/event-stream"
        );
        response.into_body()
    }

    /// The next message; none where the stream is over.
    async fn next(body: &mut Body) -> Option<Bytes> {
        Some(body.frame().await?.unwrap().into_data().unwrap())
    }

    async fn end(mut body: Body) {
        while next(&mut body).await.is_some() {}
    }

    #[tokio::test]
    async fn a_listener_gets_each_event_after_the_last_it_has_and_the_counters() {
        let (scratch, daemon) = (Scratch::new(), Arc::new(Double::that_answers()));
        let (app, _stop) = app_that_stops(&daemon, &scratch);
        let watching = tokio::spawn(watch_daemon(Arc::clone(&app)));
        for kind in ["a", "b", "c"] {
            daemon.note(event(kind));
        }
        for (uri, seen, first) in [
            ("/api/v1/live?after=1", None, 2_u64),
            ("/api/v1/live?after=1", Some("2"), 3),
            ("/api/v1/live?after=2", Some("what"), 3),
            ("/api/v1/live", Some("0"), 1),
            ("/api/v1/live", None, 4),
        ] {
            let mut body = stream(&app, uri, None, seen).await;
            if first == 4 {
                daemon.note(event("d"));
            }
            let events = daemon
                .noted()
                .into_iter()
                .filter(|event| event.number >= first);
            let events = events.map(|event| message("event", Some(event.number), &event));
            let mut expected: Vec<_> = events.collect();
            expected.push(message("stats", None, &daemon.stats()));
            let mut got = Vec::new();
            for _ in &expected {
                got.push(next(&mut body).await.unwrap());
            }
            // The counters may have been asked for before the last event was there.
            expected.sort();
            got.sort();
            assert_eq!(got, expected, "{uri} {seen:?}");
        }
        watching.abort();
    }

    #[tokio::test]
    async fn a_stream_ends_with_the_right_to_it_with_its_place_and_with_all() {
        let (scratch, daemon) = (Scratch::new(), Arc::new(Double::that_answers()));
        let (app, stop) = app_that_stops(&daemon, &scratch);
        let watching = tokio::spawn(watch_daemon(Arc::clone(&app)));
        let token = token(&app, "v", Role::Viewer);
        let uri = "/api/v1/live";
        let mut revoked = stream(&app, uri, Some(&token), None).await;
        assert!(next(&mut revoked).await.is_some());
        app.tokens.revoke("v").unwrap();
        end(revoked).await;
        let lost = stream(&app, uri, None, None).await;
        let mut others = Vec::new();
        for _ in 0..limits::STREAMS_MAX {
            others.push(stream(&app, uri, None, None).await);
        }
        end(lost).await;
        for other in &mut others {
            assert!(next(other).await.is_some());
        }
        stop.send(true).unwrap();
        for other in others {
            end(other).await;
        }
        watching.abort();
        assert!(watching.await.is_err());
        // With nobody who listens, nobody is asked.
        let mut listener = std::pin::pin!(app.live.listener());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(listener.as_mut().poll(&mut context).is_pending());
        let _place = app.live.place("uid 0");
        listener.await;
    }

    #[test]
    fn a_message_is_one_line_of_data_and_an_event_has_its_number() {
        let text = message("event", Some(7), &"a\nb");
        assert_eq!(&text[..], b"id: 7\nevent: event\ndata: \"a\\nb\"\n\n");
        let text = message("stats", None, &1);
        assert_eq!(&text[..], b"event: stats\ndata: 1\n\n");
    }
}
