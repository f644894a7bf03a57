//! Limits on regenerations that requests force: a page is fresh, but the request demands a newer response.

use std::hash::{BuildHasher as _, Hash, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use metrics::counter;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tabletheory::Timestamp;

use crate::protocol::key::PageKey;

/// How many seconds a forced regeneration counts.
const WINDOW: i64 = 60;
/// The most pages, and the most addresses, whose forced regenerations are counted.
const MAX_COUNTED: usize = 10_000;

/// The address of the client that sent a request, for limits per client. A server puts it into the extensions of the request:
/// that of the connection, or the one that a trusted proxy names. All addresses of an IPv6 /64 network count as one.
///
/// ```
/// use facetheory::ClientAddress;
/// use std::net::{IpAddr, Ipv4Addr};
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(ClientAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// The limit that a request has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReachedLimit {
    Page,
    Client,
}

impl ReachedLimit {
    /// The limit in `Cache-Status` and in logs.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ReachedLimit::Page => "page-regeneration-limit",
            ReachedLimit::Client => "client-regeneration-limit",
        }
    }

    /// The label in metrics.
    fn label(self) -> &'static str {
        match self {
            ReachedLimit::Page => "page",
            ReachedLimit::Client => "client",
        }
    }
}

/// Counts forced regenerations per page and per client address. Both are counted by keyed hashes, since clients choose keys.
#[derive(Debug)]
pub(crate) struct ForcedRegenerations {
    per_page: u32,
    per_client: u32,
    hasher: RandomState,
    pages: Cache<u64, Arc<Mutex<Count>>>,
    clients: Cache<u64, Arc<Mutex<Count>>>,
}

#[derive(Debug, Default)]
struct Count {
    since: i64,
    count: u32,
}

impl Count {
    /// Whether there is room for one more within the window.
    fn has_room(&mut self, limit: u32, now: i64) -> bool {
        // A negative age, of a clock that was set back, also starts a new window.
        if !(0..WINDOW).contains(&now.saturating_sub(self.since)) {
            *self = Count { since: now, count: 0 };
        }
        self.count < limit
    }
}

impl ForcedRegenerations {
    /// Limits per page and per client, in a minute.
    pub(crate) fn new(per_page: u32, per_client: u32) -> Self {
        let (pages, clients) = (Cache::new(MAX_COUNTED), Cache::new(MAX_COUNTED));
        ForcedRegenerations { per_page, per_client, hasher: RandomState::new(), pages, clients }
    }

    /// Counts a forced regeneration, unless a limit is reached. Then nothing is counted.
    fn count(&self, page: &PageKey, client: Option<IpAddr>, now: Timestamp) -> Result<(), ReachedLimit> {
        let page = self.counter(&self.pages, page.address());
        let client = client.map(|address| self.counter(&self.clients, network_of(address)));
        let (mut page, mut client) = (page.lock(), client.as_ref().map(|client| client.lock()));
        if let Some(client) = &mut client
            && !client.has_room(self.per_client, now.seconds())
        {
            return Err(ReachedLimit::Client);
        }
        if !page.has_room(self.per_page, now.seconds()) {
            return Err(ReachedLimit::Page);
        }
        page.count += 1;
        if let Some(client) = &mut client {
            client.count += 1;
        }
        Ok(())
    }

    fn counter(&self, counters: &Cache<u64, Arc<Mutex<Count>>>, key: impl Hash) -> Arc<Mutex<Count>> {
        let new = || Ok::<_, std::convert::Infallible>(Arc::default());
        let Ok(counter) = counters.get_or_insert_with(&self.hasher.hash_one(key), new);
        counter
    }
}

/// A client with one IPv6 address usually has 2^64 of them, so they count as one.
fn network_of(address: IpAddr) -> IpAddr {
    const NETWORK: u128 = !0 << 64;
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & NETWORK).into()),
        address => address,
    }
}

/// Whether one request may force a regeneration. It is counted once, however often its directives are applied.
#[derive(Clone, Debug)]
pub(crate) struct ForcePermit<'a> {
    limits: &'a ForcedRegenerations,
    page: &'a PageKey,
    client: Option<IpAddr>,
    decided: Arc<OnceLock<Result<(), ReachedLimit>>>,
}

impl<'a> ForcePermit<'a> {
    pub(crate) fn new(limits: &'a ForcedRegenerations, page: &'a PageKey, client: Option<IpAddr>) -> Self {
        ForcePermit { limits, page, client, decided: Arc::default() }
    }

    /// Whether the request may force a regeneration.
    pub(crate) fn is_granted(&self, now: Timestamp) -> bool {
        let decide = || {
            self.limits.count(self.page, self.client, now).inspect_err(|limit| {
                counter!("facetheory_regenerations_limited_total", "limit" => limit.label()).increment(1);
                let (page, limit) = (self.page.redacted(), limit.as_str());
                tracing::debug!(%page, limit, "a directive of a request was ignored");
            })
        };
        self.decided.get_or_init(decide).is_ok()
    }

    /// The limit because of which the directives of the request were ignored.
    pub(crate) fn reached(&self) -> Option<ReachedLimit> {
        self.decided.get().and_then(|decided| decided.err())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    fn page(path: &str) -> PageKey {
        PageKey::new(path).expect("a page")
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_seconds(1_700_000_000 + second)
    }

    #[test]
    fn regenerations_are_limited_per_page_whoever_forces_them() {
        let limits = ForcedRegenerations::new(2, 100);
        let count = |path, client, second| limits.count(&page(path), client, at(second));
        assert_eq!(count("/a", address("192.0.2.1"), 0), Ok(()));
        assert_eq!(count("/a", address("192.0.2.2"), 59), Ok(()));
        assert_eq!(count("/a", address("192.0.2.3"), 59), Err(ReachedLimit::Page));
        assert_eq!(count("/a", None, 59), Err(ReachedLimit::Page));
        assert_eq!(count("/b", address("192.0.2.1"), 59), Ok(()), "each page has its own limit");
        assert_eq!(count("/a", address("192.0.2.1"), 60), Ok(()), "a minute later");
        assert_eq!(count("/a", address("192.0.2.1"), -1000), Ok(()), "the clock was set back");
    }

    #[test]
    fn regenerations_are_limited_per_client_on_all_pages() {
        let limits = ForcedRegenerations::new(100, 2);
        let count = |path, client| limits.count(&page(path), client, at(0));
        assert_eq!(count("/a", address("2001:db8::1")), Ok(()));
        assert_eq!(count("/b", address("2001:db8::2")), Ok(()));
        assert_eq!(count("/c", address("2001:db8::ffff:3")), Err(ReachedLimit::Client), "one /64 network");
        assert_eq!(count("/c", address("2001:db8:0:1::1")), Ok(()));
        assert_eq!(count("/c", address("192.0.2.1")), Ok(()));
        assert_eq!(count("/c", address("::ffff:192.0.2.1")), Ok(()), "the same IPv4 address");
        assert_eq!(count("/c", address("192.0.2.1")), Err(ReachedLimit::Client));
        assert_eq!(count("/c", None), Ok(()), "a proxy that names no client");
    }

    #[test]
    fn a_request_counts_once_and_a_limit_that_is_reached_counts_nothing() {
        let limits = ForcedRegenerations::new(2, 100);
        let (page, client) = (page("/a"), address("192.0.2.1"));
        for granted in [true, true, false, false] {
            let permit = ForcePermit::new(&limits, &page, client);
            assert_eq!(permit.reached(), None);
            let variant = permit.clone();
            assert_eq!([permit.is_granted(at(0)), variant.is_granted(at(0))], [granted; 2]);
            assert_eq!(variant.reached(), (!granted).then_some(ReachedLimit::Page));
        }
        let of_client = limits.counter(&limits.clients, network_of(client.expect("an address")));
        assert_eq!(of_client.lock().count, 2);
    }

    #[test]
    fn the_number_of_counted_pages_and_clients_is_limited() {
        let limits = ForcedRegenerations::new(10, 10);
        for number in 0..3 * u32::try_from(MAX_COUNTED).expect("small") {
            let client = IpAddr::from(number.to_be_bytes());
            assert_eq!(limits.count(&page(&format!("/{number}")), Some(client), at(0)), Ok(()));
        }
        assert!(limits.pages.len() <= MAX_COUNTED && limits.clients.len() <= MAX_COUNTED);
    }
}
