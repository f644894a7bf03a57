//! The function: handles one invocation after the other, and leaves nothing behind when it waits for the next one.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use bytes::Bytes;
use facetheory::{Isr, IsrBuilder, Outcome, RegenerationQueue};
use http::{Response, StatusCode};
use http_body_util::Either;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tabletheory::SystemRandom;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::task::TaskTracker;

use super::event::Event;
use super::http_event::{ClientRequest, HttpEvent, Source};
use super::regenerate;
use super::response::{ClientBody, StreamedResponse, buffered, text_response};
use super::runtime_api::{Failure, Invocation, RuntimeApi};
use crate::config::InvokeMode;
use crate::gateway::{ConnectionLimit, Endpoint, Gateway, ServingConfig, Tunnels, describe};
use crate::log::Log;
use crate::serve::{GcTask, Settings, is_embedded};
use crate::signals::{Signal, Signals};
use crate::wire::{DeadlineTicker, Rejection};

/// Connections of clients at the same time. Lambda sends one request after the other.
const MAX_CONNECTIONS: usize = 16;
/// The number of headers of a response: those of the origin and of the gateway.
const MAX_HEADERS: usize = 512;
/// The time before the end of an invocation in which unfinished work is cancelled and its leases are released; at most a
/// quarter of the invocation.
const RESERVE: Duration = Duration::from_secs(3);
/// How long the lease of gc may take to be released after the deadline of the work.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a response may take to end after its deadline, and the connection within the process after that.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

const GC_TOO_SLOW: &str =
    "gc was not done before its deadline, and starts over at the next run; give it more time";
const TIMEOUT: Rejection =
    Rejection::new(StatusCode::GATEWAY_TIMEOUT, "there was no response before the timeout of the function");
const NO_RESPONSE: Rejection = Rejection::new(StatusCode::BAD_GATEWAY, "the gateway has no valid response");

/// The gateway behind the runtime API.
pub(super) struct Function {
    api: RuntimeApi,
    endpoint: Endpoint,
    isr: Isr,
    gc: GcTask,
    invoke_mode: InvokeMode,
    shutdown_timeout: Duration,
    log: Log,
}

impl Function {
    pub(super) fn new(
        api: RuntimeApi,
        settings: &Settings,
        builder: IsrBuilder,
        queue: Option<Arc<dyn RegenerationQueue>>,
        log: Log,
    ) -> Result<Self> {
        let (pages, isr) = (builder.pages().clone(), builder.build());
        let (config, origin, access) =
            (&settings.config, &settings.origin, log.access(settings.config.log.sample));
        let (tunnels, is_logged) = (Tunnels::default(), access.is_some());
        let serving = ServingConfig::new(config, origin, isr.clone(), tunnels, queue, is_logged)?;
        let endpoint = Endpoint {
            gateway: Gateway::new(serving, access),
            tls: None,
            connections: ConnectionLimit::new(MAX_CONNECTIONS, MAX_CONNECTIONS),
            deadline_ticker: DeadlineTicker::new(),
        };
        let is_embedded = is_embedded(&config.store)?;
        let (interval, grace) = (config.gc.interval.resolve(is_embedded), config.gc_grace(is_embedded));
        let gc = GcTask { pages, interval, grace, random: Arc::new(SystemRandom) };
        let (invoke_mode, shutdown_timeout) = (config.lambda.invoke_mode, config.timeouts.shutdown);
        Ok(Function { api, endpoint, isr, gc, invoke_mode, shutdown_timeout, log })
    }

    /// Handles invocations until the process is terminated, or the runtime API fails.
    pub(super) async fn run(self) -> Result<()> {
        let mut signals = Signals::install()?;
        let ticker = self.endpoint.deadline_ticker.clone();
        let ticker = tokio::spawn(async move { ticker.run().await });
        tracing::info!("waiting for invocations");
        loop {
            self.log.flush();
            let next = tokio::select! {
                next = self.api.next() => next.context("no more invocations can be received")?,
                () = terminated(&mut signals) => break,
            };
            self.invoke(next).await;
        }
        ticker.abort();
        self.isr.shut_down(self.shutdown_timeout).await;
        Ok(())
    }

    /// Handles an invocation, and finishes or cancels all the work that it started.
    async fn invoke(&self, Invocation { id, deadline, event }: Invocation) {
        let left = deadline.saturating_duration_since(Instant::now());
        let work_deadline = deadline - RESERVE.min(left / 4);
        let sent = match Event::parse(&event) {
            Ok(Event::Http(event)) => self.respond(&id, *event, work_deadline).await,
            Ok(Event::Messages(messages)) => {
                let result =
                    regenerate::all(&self.endpoint.gateway, &self.isr, messages, work_deadline).await;
                self.api.respond(&id, result).await
            }
            Ok(Event::Gc) => match self.collect_garbage(work_deadline).await {
                Ok(result) => self.api.respond(&id, result).await,
                Err(error) => self.fail(&id, "FaceTheory.GcFailed", &error).await,
            },
            Err(error) => self.fail(&id, "FaceTheory.UnsupportedEvent", &error).await,
        };
        if let Err(error) = sent {
            tracing::error!(error = format!("{error:#}"), request_id = id, "a response was not sent");
        }
        let limit = work_deadline.saturating_duration_since(Instant::now());
        if !self.isr.settle(limit).await {
            tracing::warn!(
                request_id = id,
                "work in the background was cancelled, because it was not done before the timeout of the function; \
                 give the function more time, or set `queue_url` in [lambda]"
            );
        }
    }

    async fn fail(&self, id: &str, error_type: &str, error: &str) -> Result<()> {
        tracing::error!(error_type, error, "an event could not be handled");
        self.api.fail(id, &Failure { error_type, error_message: error }).await
    }

    /// Deletes expired rows and unused bodies, if that is due. Returns the response to the schedule.
    async fn collect_garbage(&self, deadline: Instant) -> Result<Bytes, String> {
        let interval = self.gc.interval.ok_or("gc is disabled: set `interval` in [gc] of facetheory.toml")?;
        let interrupted = async {
            sleep_until(deadline).await;
            GC_TOO_SLOW
        };
        let run = self.gc.run_if_due(interval, interrupted);
        let stalled = |_| "the table did not respond before the timeout of the function".to_owned();
        let outcome = timeout_at(deadline + RELEASE_TIMEOUT, run).await.map_err(stalled)?;
        match outcome.map_err(|error| describe(&error))? {
            Outcome::Published(_) | Outcome::Unchanged(_) => Ok(r#"{"gc":"finished"}"#.into()),
            Outcome::AlreadyFresh(_) => Ok(r#"{"gc":"not-due"}"#.into()),
            Outcome::Held { .. } => Ok(r#"{"gc":"running-elsewhere"}"#.into()),
            other => Err(format!("gc was interrupted: {other:?}")),
        }
    }

    /// Responds to an HTTP request.
    async fn respond(&self, id: &str, event: HttpEvent, deadline: Instant) -> Result<()> {
        let source = event.source.clone();
        let (response, connection) = match event.into_request() {
            Ok(client) => self.exchange(client, deadline).await,
            Err(rejection) => (text_response(rejection), None),
        };
        let is_streamed =
            matches!(source, Source::FunctionUrl { .. }) && self.invoke_mode == InvokeMode::ResponseStream;
        let sent = if is_streamed {
            let sending = self.api.stream(id, StreamedResponse::new(response, deadline));
            // The stream ends at its deadline, unless Lambda does not read it because the client does not.
            let stalled =
                |_| Err(anyhow!("the client did not read the response before the timeout of the function"));
            timeout_at(deadline + CLOSE_TIMEOUT, sending).await.unwrap_or_else(stalled)
        } else {
            let json = match timeout_at(deadline, buffered(response, &source)).await {
                Ok(json) => json,
                Err(_) => buffered(text_response(TIMEOUT), &source).await,
            };
            self.api.respond(id, json).await
        };
        // Work that continues without its client begins when the connection ends.
        if let Some(connection) = connection
            && timeout(CLOSE_TIMEOUT, connection.wait()).await.is_err()
        {
            tracing::warn!(request_id = id, "a connection did not close after its response");
        }
        sent
    }

    /// Sends a request to the gateway, over a connection of its own. Also returns the tracker of that connection.
    async fn exchange(
        &self,
        client: ClientRequest,
        deadline: Instant,
    ) -> (Response<ClientBody>, Option<TaskTracker>) {
        let ClientRequest { address, scheme, request } = client;
        let Some((io, connection)) = self.endpoint.connect(address, scheme) else {
            return (text_response(NO_RESPONSE), None);
        };
        let sending = async {
            let (mut sender, connection) =
                http1::Builder::new().max_headers(MAX_HEADERS).handshake(TokioIo::new(io)).await?;
            // It ends with the response, or when that is dropped.
            tokio::spawn(connection);
            sender.send_request(request).await
        };
        let response = match timeout_at(deadline, sending).await {
            Ok(Ok(response)) => response.map(Either::Left),
            Ok(Err(error)) => {
                tracing::warn!(error = describe(&error), "the gateway did not respond");
                text_response(NO_RESPONSE)
            }
            Err(_) => text_response(TIMEOUT),
        };
        (response, Some(connection))
    }
}

/// Waits for a signal that terminates the process.
async fn terminated(signals: &mut Signals) {
    while signals.next().await != Signal::Shutdown {}
}
