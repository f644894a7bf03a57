//! How many connections there may be, in all and from one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The places that connections take.
#[derive(Debug)]
pub(crate) struct Places {
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
pub(crate) struct Place {
    places: Arc<Places>,
    /// Of whose share it is, if of anybody's.
    address: Option<IpAddr>,
}

impl Places {
    /// So many in all, and so many for one address.
    pub(crate) fn new(most: usize, most_of_one: usize) -> Arc<Self> {
        Arc::new(Places { most, most_of_one, taken: Mutex::default() })
    }

    /// A place for a connection, of the share of this address if it has one, and if there is one.
    pub(crate) fn take(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Place> {
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
        Some(Place { places: self.clone(), address })
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).all
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
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
        let places = Places::new(3, 2);
        let one = places.take(address("10.0.0.1")).expect("a place");
        let _two = places.take(address("10.0.0.1")).expect("another");
        assert!(places.take(address("10.0.0.1")).is_none(), "it has had its share");
        let _three = places.take(address("10.0.0.2")).expect("others have not");
        assert!(places.take(address("10.0.0.3")).is_none(), "there are no more");
        drop(one);
        assert!(places.take(address("10.0.0.1")).is_some(), "a place is free again");
        assert_eq!(places.taken(), 2);
    }

    #[test]
    fn who_has_no_share_is_limited_only_with_all_others() {
        let places = Places::new(3, 1);
        let _taken = [(); 3].map(|()| places.take(None).expect("a place"));
        assert!(places.take(None).is_none(), "there are no more");
    }

    #[test]
    fn one_network_of_ipv6_is_one_visitor() {
        let places = Places::new(9, 1);
        let _one = places.take(address("2001:db8::1")).expect("a place");
        assert!(places.take(address("2001:db8::2")).is_none());
        assert!(places.take(address("2001:db8:0:1::1")).is_some());
    }
}
