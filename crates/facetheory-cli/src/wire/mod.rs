//! The client side of a connection, below hyper: request checks, the fast path for cached pages, and timeouts.
//!
//! hyper accepts, or silently repairs, malformed HTTP/1 requests that other servers read differently. Such differences
//! make request smuggling possible. Once a request reaches a service its original bytes are gone, so they are checked
//! here, in the buffer that hyper reads into. A malformed request never reaches hyper: hyper reads a substitute request
//! with a method that no client can send, and the service responds to the substitute with the [`Rejection`], in order.
//!
//! A request whose page is fresh in memory skips hyper altogether: see [`FastPath`].
//!
//! Limits on slow clients (slowloris, slow readers), for HTTP/1 and HTTP/2, are in [`slow_client`].

mod batched_writes;
mod chunk;
mod connection_state;
mod fast_path;
mod head;
mod informational;
mod line;
mod lingering_close;
mod protocol_detection;
pub(crate) mod rejection;
mod request_line;
mod request_reader;
mod scanner;
pub(crate) mod slow_client;
mod stream;
#[cfg(test)]
mod tests;
mod write_queue;

pub(crate) use batched_writes::batch_writes;
pub(crate) use connection_state::{ActiveRequest, ConnectionState};
pub(crate) use fast_path::{FastPath, RawResponse};
pub(crate) use informational::{InformationalSender, InformationalWindow};
pub(crate) use protocol_detection::{Protocol, detect_protocol};
pub(crate) use rejection::{RejectedRequest, Rejection, RequestLimits};
pub(crate) use slow_client::{ClientTimeouts, DeadlineTicker, MinRate};
pub(crate) use stream::FastPathEnd;
