//! The client of a connection, and its part in a request to the origin.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use facetheory::RequestOrigin;
use http::request::Parts;
use http::uri::Scheme;

use super::connection_limit::ConnectionPermit;
use crate::wire::{ConnectionState, InformationalSender};

/// The peer of a client connection.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// The address of the peer: the client, or a proxy in front of the gateway.
    pub(crate) address: SocketAddr,
    /// Whether the connection uses TLS.
    pub(crate) scheme: Scheme,
    /// The state of the connection below hyper; `None` over HTTP/2.
    pub(crate) http1_state: Option<Arc<ConnectionState>>,
    /// The permit of the connection. Weak, so that background work for a client does not hold it.
    pub(crate) permit: Weak<ConnectionPermit>,
}

/// The client for which the origin is called, in the extensions of a request.
#[derive(Clone, Debug)]
pub(crate) struct ClientContext {
    pub(crate) client: Arc<Client>,
    /// Sends informational responses to the client until its response begins. `None` before HTTP/1.1,
    /// over HTTP/2, where hyper cannot send them, and for background requests.
    pub(crate) informational: Option<InformationalSender>,
}

impl ClientContext {
    /// Takes the context of a request to the origin. A render has none, because its result is for all clients.
    pub(crate) fn take(request: &mut Parts) -> Option<Self> {
        let context = request.extensions.remove::<ClientContext>();
        match request.extensions.remove()? {
            RequestOrigin::Client => context,
            RequestOrigin::Background => {
                context.map(|context| ClientContext { informational: None, ..context })
            }
        }
    }
}
