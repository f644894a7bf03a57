//! Who is on the other end of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use http::uri::Scheme;

use super::place::Place;
use crate::wire::Conduct;

/// The visitor's end of a connection, as the gateway itself sees it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// The address of the peer: the visitor's, or that of a proxy in front of the gateway.
    pub(crate) address: SocketAddr,
    /// Whether the connection is secure.
    pub(crate) scheme: Scheme,
    /// The way to what lies below hyper, where HTTP/1 is spoken.
    pub(crate) conduct: Option<Arc<Conduct>>,
    /// The place that the connection takes, for as long as anybody speaks on it.
    pub(crate) place: Option<Arc<Place>>,
}
