//! Who is on the other end of a connection, and who asks.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use facetheory::RequestOrigin;
use http::request::Parts;
use http::uri::Scheme;

use super::place::Place;
use crate::wire::{Conduct, Herald};

/// The visitor's end of a connection, as the gateway itself sees it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// The address of the peer: the visitor's, or that of a proxy in front of the gateway.
    pub(crate) address: SocketAddr,
    /// Whether the connection is secure.
    pub(crate) scheme: Scheme,
    /// The way to what lies below hyper, where HTTP/1 is spoken.
    pub(crate) conduct: Option<Arc<Conduct>>,
    /// The place that the connection takes, for as long as anybody speaks on it: not for as long as somebody works because of it.
    pub(crate) place: Weak<Place>,
}

/// Who asks, in the extensions of a request that is passed on: a visitor's own, and all that is asked because of it.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    /// The visitor's end of the connection.
    pub(crate) client: Arc<Client>,
    /// Who tells the visitor of interim answers, until its own has begun. None where hyper cannot send them, as over HTTP/2, and
    /// for an answer that the visitor does not wait for.
    pub(crate) herald: Option<Herald>,
}

impl Asker {
    /// Who asks with this request. Nobody does with a render, of which everybody sees the result.
    pub(crate) fn of(request: &mut Parts) -> Option<Self> {
        let asker = request.extensions.remove::<Asker>();
        match request.extensions.remove()? {
            RequestOrigin::Client => asker,
            RequestOrigin::Background => asker.map(|asker| Asker { herald: None, ..asker }),
        }
    }
}
