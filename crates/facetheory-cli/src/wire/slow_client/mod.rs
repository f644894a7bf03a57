//! Limits on slow clients: the timeouts of connections, for HTTP/1 and HTTP/2.
//!
//! A slow client holds a connection, memory, and sometimes a connection to the origin. Slowloris attacks do so on
//! purpose, with many connections at once.
//!
//! | attack | timeout | HTTP/1 | HTTP/2 |
//! |---|---|---|---|
//! | slow headers (slowloris) | [`ClientTimeouts::head`] (`client_headers`) | 408, by [`RequestReader`](super::request_reader::RequestReader) | the connection counts as idle |
//! | slow request body | [`ClientTimeouts::body`] (`client_body`) | 408, by [`RequestReader`](super::request_reader::RequestReader) | 408, by the gateway's `RequestBody` |
//! | slow reader | [`ClientTimeouts::write`] (`client_idle`) | write timeout, by [`TimedIo`] | write timeout, by [`IdleTracker`] |
//! | idle connection | [`ClientTimeouts::idle`] (`client_idle`) | closed, by [`RequestReader`](super::request_reader::RequestReader) | closed, by [`IdleTracker`] |
//!
//! Slow request bodies and slow readers have a minimum rate besides: [`MinRate`] (`client_bytes_per_second`) says how bytes
//! prolong the timeout. It applies to request bodies of both protocols in `gateway/body.rs`, and to responses where the timeouts
//! above do. An HTTP/2 connection has one rate for all its responses.
//!
//! HTTP/1 connections have no timers of their own: one [`DeadlineTicker`] wakes those whose deadline has passed. An HTTP/2
//! connection is checked twice per idle timeout, so it may be idle for up to one and a half timeouts.
//!
//! These timeouts of clients are elsewhere:
//!
//! | phase | timeout | place |
//! |---|---|---|
//! | TLS handshake | 10 s | `gateway/listener.rs` |
//! | detection of HTTP/1 or HTTP/2 | `client_headers` | `gateway/listener.rs`, with `wire/protocol_detection.rs` |
//! | request body over HTTP/2 | `client_body` | `gateway/body.rs` |
//! | tunnel (WebSocket) | `tunnel_idle` | `gateway/tunnel.rs`, with [`IdleTracker`] |
//! | lingering close, after a rejected request | 5 s | `wire/lingering_close.rs` |

mod deadline_ticker;
mod idle_tracker;
mod min_rate;
mod write_timeout;

pub(super) use deadline_ticker::{RegisteredConnection, TimeoutClock, time_between};
pub(super) use write_timeout::TimedIo;

pub(crate) use deadline_ticker::{ClientTimeouts, DeadlineTicker};
pub(crate) use idle_tracker::{IdleTracker, TrackedResponse, track_h2_writes};
pub(crate) use min_rate::MinRate;
