//! Limits on slow clients: every timeout that the gateway applies to a client, for HTTP/1 and HTTP/2.
//!
//! A slow client holds a connection, memory, and sometimes a connection to the origin. Slowloris attacks do so on
//! purpose, with many connections at once.
//!
//! | attack | timeout | HTTP/1 | HTTP/2 |
//! |---|---|---|---|
//! | slow headers (slowloris) | [`ClientTimeouts::head`] | 408, by [`RequestReader`](super::request_reader::RequestReader) | the connection counts as idle |
//! | slow request body | [`ClientTimeouts::body`] | 408, by [`RequestReader`](super::request_reader::RequestReader) | 408, by the gateway's `RequestBody` |
//! | slow reader | [`ClientTimeouts::write`] | write timeout, by [`TimedIo`] | write timeout, by [`IdleTracker`] |
//! | idle connection | [`ClientTimeouts::idle`] | closed, by [`RequestReader`](super::request_reader::RequestReader) | closed, by [`IdleTracker`] |
//!
//! HTTP/1 connections have no timers of their own: one [`DeadlineTicker`] wakes those whose deadline has passed. An HTTP/2
//! connection is checked twice per idle timeout, so it may be idle for up to one and a half timeouts.

mod deadline_ticker;
mod idle_tracker;
mod write_timeout;

pub(super) use deadline_ticker::{RegisteredConnection, TimeoutClock};
pub(super) use write_timeout::TimedIo;

pub(crate) use deadline_ticker::{ClientTimeouts, DeadlineTicker};
pub(crate) use idle_tracker::{IdleTracker, TrackedResponse, track_h2_writes};
