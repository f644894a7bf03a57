//! How many connections there may be, in all and from one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The connections that connections take.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    most: usize,
    most_of_one: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// The place of one connection, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    connections: Arc<ConnectionLimit>,
    /// Of whose share it is, if of anybody's.
    address: Option<IpAddr>,
}

impl ConnectionLimit {
    /// So many in all, and so many for one address.
    pub(crate) fn new(most: usize, most_of_one: usize) -> Arc<Self> {
        Arc::new(ConnectionLimit { most, most_of_one, taken: Mutex::default() })
    }

    /// A place for a connection, of the share of this address if it has one, and if there is one.
    pub(crate) fn take(self: &Arc<Self>, address: Option<IpAddr>) -> Option<ConnectionPermit> {
        let address = address.map(network_of);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.all >= self.most {
            return None;
        }
        if let Some(address) = address {
            let own = taken.by_address.get(&address).copied().unwrap_or(0);
            if own >= self.most_of_one {
                return None;
            }
            taken.by_address.insert(address, own + 1);
        }
        taken.all += 1;
        Some(ConnectionPermit { connections: self.clone(), address })
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).all
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut taken = self.connections.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all = taken.all.saturating_sub(1);
        let Some(address) = &self.address else { return };
        if let Some(own) = taken.by_address.get_mut(address) {
            *own -= 1;
            if *own == 0 {
                taken.by_address.remove(address);
            }
        }
    }
}

/// Whoever has one IPv6 address has 2^64 of them, so all of these count as one.
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
    fn places_run_out_for_one_address_and_for_all() {
        let connections = ConnectionLimit::new(3, 2);
        let one = connections.take(address("10.0.0.1")).expect("a place");
        let _two = connections.take(address("10.0.0.1")).expect("another");
        assert!(connections.take(address("10.0.0.1")).is_none(), "it has had its share");
        let _three = connections.take(address("10.0.0.2")).expect("others have not");
        assert!(connections.take(address("10.0.0.3")).is_none(), "there are no more");
        drop(one);
        assert!(connections.take(address("10.0.0.1")).is_some(), "a place is free again");
        assert_eq!(connections.taken(), 2);
    }

    #[test]
    fn who_has_no_share_is_limited_only_with_all_others() {
        let connections = ConnectionLimit::new(3, 1);
        let _taken = [(); 3].map(|()| connections.take(None).expect("a place"));
        assert!(connections.take(None).is_none(), "there are no more");
    }

    #[test]
    fn one_network_of_ipv6_is_one_visitor() {
        let connections = ConnectionLimit::new(9, 1);
        let _one = connections.take(address("2001:db8::1")).expect("a place");
        assert!(connections.take(address("2001:db8::2")).is_none());
        assert!(connections.take(address("2001:db8:0:1::1")).is_some());
    }
}
