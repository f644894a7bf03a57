//! What lies between a client's connection and hyper: HTTP/1 requests are checked before hyper sees them.
//!
//! hyper lets through, or repairs, much that other servers read differently: that is what request smuggling is made
//! of. By the time a request reaches a service the traces are gone, so the bytes themselves are checked, in the buffer
//! into which hyper reads them. What is wrong is never passed on: in its place hyper reads a request with a method
//! that only the wire can send, and the service answers that with the refusal, in its turn.
//!
//! And what is asked for most is answered here: a page that is [at hand](Shelf) is written to the connection at once.

mod chunk;
mod conduct;
mod glimpse;
mod head;
mod limit;
mod line;
mod linger;
mod patience;
mod prelude;
mod refusal;
mod request_line;
mod scan;
mod shelf;
mod sniff;
mod stream;
#[cfg(test)]
mod tests;
mod watch;

pub(crate) use conduct::{Answering, Conduct};
pub(crate) use glimpse::Glimpse;
pub(crate) use limit::Limits;
pub(crate) use patience::Patience;
pub(crate) use prelude::{Herald, Prelude};
pub(crate) use refusal::Refusal;
pub(crate) use shelf::{Parcel, Shelf};
pub(crate) use sniff::{Protocol, sniff};
pub(crate) use stream::Course;
pub(crate) use watch::Watch;
