//! The limit on open connections, in total and from one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// Hands out a permit for each connection.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    max: usize,
    max_per_address: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// The permit of one connection, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    /// The address that it counts for, if any.
    address: Option<IpAddr>,
}

impl ConnectionLimit {
    pub(crate) fn new(max: usize, max_per_address: usize) -> Arc<Self> {
        Arc::new(ConnectionLimit { max, max_per_address, open: Mutex::default() })
    }

    /// Returns a permit unless a limit is reached. Without an address, only the total limit applies.
    pub(crate) fn acquire(self: &Arc<Self>, address: Option<IpAddr>) -> Option<ConnectionPermit> {
        let address = address.map(network_of);
        let mut open = self.open.lock();
        if open.total >= self.max {
            return None;
        }
        if let Some(address) = address {
            let count = open.by_address.get(&address).copied().unwrap_or(0);
            if count >= self.max_per_address {
                return None;
            }
            open.by_address.insert(address, count + 1);
        }
        open.total += 1;
        Some(ConnectionPermit { limit: self.clone(), address })
    }

    /// The number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.lock().total
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.limit.open.lock();
        open.total = open.total.saturating_sub(1);
        let Some(address) = &self.address else { return };
        if let Some(count) = open.by_address.get_mut(address) {
            *count -= 1;
            if *count == 0 {
                open.by_address.remove(address);
            }
        }
    }
}

/// The address that a connection counts for. A client with one IPv6 address usually has 2^64 of them, so they count as
/// one.
fn network_of(address: IpAddr) -> IpAddr {
    const NETWORK: u128 = !0 << 64;
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & NETWORK).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    #[test]
    fn permits_run_out_for_one_address_and_in_total() {
        let limit = ConnectionLimit::new(3, 2);
        let one = limit.acquire(address("10.0.0.1")).expect("a permit");
        let _two = limit.acquire(address("10.0.0.1")).expect("another");
        assert!(limit.acquire(address("10.0.0.1")).is_none(), "the limit of the address is reached");
        let _three = limit.acquire(address("10.0.0.2")).expect("another address");
        assert!(limit.acquire(address("10.0.0.3")).is_none(), "the total limit is reached");
        drop(one);
        assert!(limit.acquire(address("10.0.0.1")).is_some(), "a permit was returned");
        assert_eq!(limit.open(), 2);
    }

    #[test]
    fn a_connection_without_an_address_counts_for_the_total_only() {
        let limit = ConnectionLimit::new(3, 1);
        let _permits = [(); 3].map(|()| limit.acquire(None).expect("a permit"));
        assert!(limit.acquire(None).is_none(), "the total limit is reached");
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let limit = ConnectionLimit::new(9, 1);
        let _one = limit.acquire(address("2001:db8::1")).expect("a permit");
        assert!(limit.acquire(address("2001:db8::2")).is_none());
        assert!(limit.acquire(address("2001:db8:0:1::1")).is_some());
    }
}
