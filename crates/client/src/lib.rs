//! The client of `/api/v1`: asks the daemon over its unix socket, or over TLS with a token.
//!
//! Calls block; inside there is a runtime of one thread that lives only as long as a call does.
//! Whatever the other side sends, or does not, a call ends: answers have a size they may not
//! exceed, and every wait has a deadline ([`Limits`]).
//!
//! Knows no command line and prints nothing. Messages of errors name the flags of the program
//! `tarn`, because they are what a person can change.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod answer;
mod connect;
mod endpoint;
mod error;
mod live;
mod path;
mod sse;

use std::time::Duration;

use api::problem::Problem;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, IF_MATCH};
use hyper::{Method, Request, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;
use tokio::time::timeout;

pub use answer::Answer;
pub use endpoint::{Endpoint, Remote, Token};
pub use error::ClientError;
pub use live::{Live, Message};
pub use path::{Path, path};

/// How much the other side may send, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until there is a connection, TLS included.
    pub connect: Duration,
    /// From the request to the whole answer, for a question.
    pub question: Duration,
    /// The same for a change, which the daemon answers when it has taken effect.
    pub change: Duration,
    /// Between two messages of a stream, which come once a second.
    pub silence: Duration,
    /// Bytes of an answer, or of one message of a stream.
    pub answer_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            question: Duration::from_secs(30),
            change: Duration::from_secs(600),
            silence: Duration::from_secs(15),
            answer_bytes_max: 64 << 20,
        }
    }
}

/// Asks one daemon.
#[derive(Debug)]
pub struct Client {
    endpoint: Endpoint,
    limits: Limits,
    runtime: Runtime,
}

impl Client {
    /// For the daemon at this place. Connects to nothing yet.
    ///
    /// # Errors
    ///
    /// The system gives no event queue.
    pub fn new(endpoint: Endpoint, limits: Limits) -> Result<Self, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ClientError::Runtime)?;
        Ok(Self {
            endpoint,
            limits,
            runtime,
        })
    }

    /// Where the daemon is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Asks.
    ///
    /// # Errors
    ///
    /// There is no answer, or it is a problem.
    pub fn get<T: DeserializeOwned>(&self, path: &Path) -> Result<Answer<T>, ClientError> {
        self.call(Method::GET, path, Bytes::new(), None)
    }

    /// Asks for a file.
    ///
    /// # Errors
    ///
    /// There is no answer, or it is a problem.
    pub fn download(&self, path: &Path) -> Result<Vec<u8>, ClientError> {
        Ok(self.ask(Method::GET, path, Bytes::new(), None)?.body.into())
    }

    /// Makes a thing, or makes it so; only when `only_at` is the revision that runs, if there is one.
    ///
    /// # Errors
    ///
    /// There is no answer, or it is a problem.
    pub fn put<T: DeserializeOwned>(
        &self,
        path: &Path,
        body: &impl Serialize,
        only_at: Option<u64>,
    ) -> Result<Answer<T>, ClientError> {
        self.call(Method::PUT, path, written(body)?, only_at)
    }

    /// Has something done; only when `only_at` is the revision that runs, if there is one.
    ///
    /// # Errors
    ///
    /// There is no answer, or it is a problem.
    pub fn post<T: DeserializeOwned>(
        &self,
        path: &Path,
        body: &impl Serialize,
        only_at: Option<u64>,
    ) -> Result<Answer<T>, ClientError> {
        self.call(Method::POST, path, written(body)?, only_at)
    }

    /// Has something done that takes no body.
    ///
    /// # Errors
    ///
    /// There is no answer, or it is a problem.
    pub fn order<T: DeserializeOwned>(&self, path: &Path) -> Result<Answer<T>, ClientError> {
        self.call(Method::POST, path, Bytes::new(), None)
    }

    /// Removes a thing; only when `only_at` is the revision that runs, if there is one. Where there
    /// is nothing to return, `T` is `()`.
    ///
    /// # Errors
    ///
    /// There is no answer, or it is a problem.
    pub fn delete<T: DeserializeOwned>(
        &self,
        path: &Path,
        only_at: Option<u64>,
    ) -> Result<Answer<T>, ClientError> {
        self.call(Method::DELETE, path, Bytes::new(), only_at)
    }

    /// Listens to a stream of messages.
    ///
    /// # Errors
    ///
    /// There is no answer, or it is a problem.
    pub fn live(&self, path: &Path) -> Result<Live<'_>, ClientError> {
        let request = self.request(Method::GET, path, Bytes::new(), None)?;
        let opening = async {
            let response = self.send(request).await?;
            if response.status().is_success() {
                return Ok(response);
            }
            let raw = self.collect(response).await?;
            Err(self.not_a_success(&raw))
        };
        let response = self.within(self.limits.question, opening)?;
        Ok(Live::new(self, response.into_body()))
    }

    fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &Path,
        body: Bytes,
        only_at: Option<u64>,
    ) -> Result<Answer<T>, ClientError> {
        let raw = self.ask(method, path, body, only_at)?;
        Answer::read(&raw).ok_or_else(|| self.foreign(&raw))
    }

    /// Asks, and waits for the whole answer, which must be a success.
    fn ask(
        &self,
        method: Method,
        path: &Path,
        body: Bytes,
        only_at: Option<u64>,
    ) -> Result<Raw, ClientError> {
        let patience = match method {
            Method::GET => self.limits.question,
            _ => self.limits.change,
        };
        let request = self.request(method, path, body, only_at)?;
        let asking = async { self.collect(self.send(request).await?).await };
        let raw = self.within(patience, asking)?;
        if !(200..300).contains(&raw.status) {
            return Err(self.not_a_success(&raw));
        }
        Ok(raw)
    }

    fn request(
        &self,
        method: Method,
        path: &Path,
        body: Bytes,
        only_at: Option<u64>,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path.as_str())
            .header(HOST, self.endpoint.host())
            .header(ACCEPT, "application/json");
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(revision) = only_at {
            request = request.header(IF_MATCH, format!("\"{revision}\""));
        }
        if let Some(token) = self.endpoint.token() {
            request = request.header(AUTHORIZATION, token.header()?);
        }
        request
            .body(Full::new(body))
            .map_err(|source| ClientError::Request { source })
    }

    /// Does this until the deadline.
    fn within<T>(
        &self,
        patience: Duration,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let done = self
            .runtime
            .block_on(async { timeout(patience, work).await });
        done.map_err(|_| self.late(patience))?
    }

    /// Connects, asks, and waits for the head of the answer.
    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError> {
        let connecting = connect::connect(&self.endpoint);
        let mut sender = timeout(self.limits.connect, connecting)
            .await
            .map_err(|_| self.late(self.limits.connect))??;
        let sending = sender.send_request(request);
        sending.await.map_err(|source| self.broken(source))
    }

    /// Waits for the rest of an answer.
    async fn collect(&self, response: Response<Incoming>) -> Result<Raw, ClientError> {
        let status = response.status().as_u16();
        let etag = response
            .headers()
            .get(ETAG)
            .and_then(|tag| tag.to_str().ok());
        let revision = etag.and_then(|tag| tag.trim_matches('"').parse().ok());
        let limit = self.limits.answer_bytes_max;
        let body = match Limited::new(response.into_body(), limit).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                let peer = self.endpoint.to_string();
                return Err(ClientError::TooLarge { peer, limit });
            }
            Err(source) => return Err(self.broken(source)),
        };
        Ok(Raw {
            status,
            revision,
            body,
        })
    }

    /// What an answer that is no success says: a problem, if a Tarn gave it.
    fn not_a_success(&self, raw: &Raw) -> ClientError {
        serde_json::from_slice::<Problem>(&raw.body).map_or_else(
            |_| self.foreign(raw),
            |problem| ClientError::Problem(Box::new(problem)),
        )
    }

    fn foreign(&self, raw: &Raw) -> ClientError {
        let (peer, status) = (self.endpoint.to_string(), raw.status);
        ClientError::Foreign { peer, status }
    }

    fn late(&self, patience: Duration) -> ClientError {
        ClientError::Late {
            peer: self.endpoint.to_string(),
            seconds: patience.as_secs_f64(),
        }
    }

    fn broken(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
        ClientError::Broken {
            peer: self.endpoint.to_string(),
            source: source.into(),
        }
    }
}

/// An answer as it came.
#[derive(Debug)]
struct Raw {
    status: u16,
    revision: Option<u64>,
    body: Bytes,
}

fn written(body: &impl Serialize) -> Result<Bytes, ClientError> {
    let text = serde_json::to_vec(body).map_err(|source| ClientError::Unwritable { source })?;
    Ok(text.into())
}
