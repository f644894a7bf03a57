//! Who is on the other end of a connection, and who asks.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use facetheory::RequestOrigin;
use http::request::Parts;
use http::uri::Scheme;

use super::connection_limit::ConnectionPermit;
use crate::wire::{ConnectionState, InformationalSender};

/// The visitor's end of a connection, as the gateway itself sees it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// The address of the peer: the visitor's, or that of a proxy in front of the gateway.
    pub(crate) address: SocketAddr,
    /// Whether the connection is secure.
    pub(crate) scheme: Scheme,
    /// The way to what lies below hyper, where HTTP/1 is spoken.
    pub(crate) http1_state: Option<Arc<ConnectionState>>,
    /// The place that the connection takes, for as long as anybody speaks on it: not for as long as somebody works because of it.
    pub(crate) place: Weak<ConnectionPermit>,
}

/// Who asks, in the extensions of a request that is passed on: a visitor's own, and all that is asked because of it.
#[derive(Clone, Debug)]
pub(crate) struct ClientContext {
    /// The visitor's end of the connection.
    pub(crate) client: Arc<Client>,
    /// Who tells the visitor of interim answers, until its own has begun. None where hyper cannot send them, as over HTTP/2, and
    /// for an answer that the visitor does not wait for.
    pub(crate) informational: Option<InformationalSender>,
}

impl ClientContext {
    /// Who asks with this request. Nobody does with a render, of which everybody sees the result.
    pub(crate) fn of(request: &mut Parts) -> Option<Self> {
        let client_context = request.extensions.remove::<ClientContext>();
        match request.extensions.remove()? {
            RequestOrigin::Client => client_context,
            RequestOrigin::Background => {
                client_context.map(|client_context| ClientContext { informational: None, ..client_context })
            }
        }
    }
}
