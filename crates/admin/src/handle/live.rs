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
    use super::*;

    #[test]
    fn a_message_is_one_line_of_data_and_an_event_has_its_number() {
        let text = message("event", Some(7), &"a\nb");
        assert_eq!(&text[..], b"id: 7\nevent: event\ndata: \"a\\nb\"\n\n");
        let text = message("stats", None, &1);
        assert_eq!(&text[..], b"event: stats\ndata: 1\n\n");
    }
}
