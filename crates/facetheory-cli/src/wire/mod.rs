//! What lies between a client's connection and hyper: HTTP/1 requests are checked before hyper sees them.
//!
//! hyper lets through, or repairs, much that other servers read differently: that is what request smuggling is made
//! of. By the time a request reaches a service the traces are gone, so the bytes themselves are checked, in the buffer
//! into which hyper reads them. What is wrong is never passed on: in its place hyper reads a request with a method
//! that only the wire can send, and the service answers that with the rejection, in its turn.
//!
//! And what is asked for most is answered here: a page that is [at hand](FastPath) is written to the connection at once.

mod chunk;
mod connection_state;
mod deadline_ticker;
mod fast_path;
mod head;
mod informational;
mod limits;
mod line;
mod lingering_close;
mod protocol_detection;
mod rejected_request;
mod rejection;
mod request_line;
mod scanner;
mod stream;
#[cfg(test)]
mod tests;
mod timeouts;

pub(crate) use connection_state::{ActiveRequest, ConnectionState};
pub(crate) use deadline_ticker::DeadlineTicker;
pub(crate) use fast_path::{FastPath, RawResponse};
pub(crate) use informational::{InformationalSender, InformationalWindow};
pub(crate) use limits::RequestLimits;
pub(crate) use protocol_detection::{Protocol, detect_protocol};
pub(crate) use rejected_request::RejectedRequest;
pub(crate) use rejection::Rejection;
pub(crate) use stream::FastPathEnd;
pub(crate) use timeouts::ClientTimeouts;
