//! Header names and query keys whose hashes collide.

use std::hash::{Hash, Hasher};

use http::HeaderName;

use crate::assertions::PAGES;
use crate::support::gateway::Gateway;
use crate::support::site::{HOST, IN_MEMORY, Site, get};

/// The most that crafted input may cost compared with other input; a degenerated hash table costs far more.
const MAX_FACTOR: u64 = 3;
/// The shortest meaningful measurement, in clock ticks.
const MIN_TICKS: u64 = 10;

/// The number of measurements of each input; the cheapest counts, since other processes cost ticks, too.
const MEASUREMENTS: usize = 3;

/// The clock ticks that a gateway needs for these requests, each sent this many times over one connection.
fn cost(gateway: &Gateway, requests: &[String], times: usize) -> u64 {
    let before = gateway.ticks();
    let mut connection = gateway.connect();
    for request in std::iter::repeat_n(requests, times).flatten() {
        connection.send(request);
        assert_eq!(connection.response().status, 200);
    }
    (gateway.ticks() - before).max(MIN_TICKS)
}

/// Fails if crafted requests cost much more than others of the same shape, after both were sent once.
fn assert_flat(limits: &str, crafted: &[String], others: &[String], times: usize) {
    let site = Site::start_with(&format!("{PAGES}\n[limits]\n{limits}\n"), &IN_MEMORY);
    for requests in [crafted, others] {
        cost(&site.gateway, requests, 1);
    }
    let mut least = (u64::MAX, u64::MAX);
    let is_flat = (0..MEASUREMENTS).any(|_| {
        let costs = (cost(&site.gateway, crafted, times), cost(&site.gateway, others, times));
        least = (least.0.min(costs.0), least.1.min(costs.1));
        least.0 < MAX_FACTOR * least.1
    });
    assert!(is_flat, "{} ticks instead of {}", least.0, least.1);
}

/// Texts whose hashes agree in their last bits, and as many with arbitrary hashes.
fn colliding(count: usize, bits: u32, hash: impl Fn(&str) -> u64) -> [Vec<String>; 2] {
    let mask = (1 << bits) - 1;
    let texts = || (0_u64..).map(|number| format!("x-{number:08}"));
    let wanted = hash("x-00000000") & mask;
    [
        texts().filter(|text| hash(text) & mask == wanted).take(count).collect(),
        texts().step_by(7).take(count).collect(),
    ]
}

/// FNV-1a, the hash of header maps until they suspect an attack.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The FNV-1a hash of a value.
fn fnv(text: impl Hash) -> u64 {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    text.hash(&mut hasher);
    hasher.finish()
}

/// The hash of a value by the standard library, without a random seed.
fn sip(text: impl Hash) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn row_44_colliding_header_names_cost_no_more_than_others() {
    /// About as many headers as a request may have.
    const HEADERS: usize = 95;
    const TIMES: usize = 400;
    /// More buckets than a map of that many headers has.
    const BITS: u32 = 12;
    let name = |text: &str| HeaderName::from_bytes(text.as_bytes()).expect("a name");
    let [crafted, others] = colliding(HEADERS, BITS, |text| fnv(name(text))).map(|names| {
        let lines: String = names.iter().map(|name| format!("{name}: 1\r\n")).collect();
        [get("/row-44", &lines)]
    });
    assert_flat("", &crafted, &others, TIMES);
}

#[test]
fn row_44_colliding_query_keys_cost_no_more_than_others() {
    const KEYS: usize = 600;
    const TIMES: usize = 3;
    const BITS: u32 = 10;
    // As the memory tier hashes them: tenant and key.
    let key = |text: &str| (None::<&str>, format!("default::{HOST}/{{*rest}}?rest=row-44&{text}"));
    let by_fnv = colliding(KEYS, BITS, |text| fnv(key(text)));
    let by_sip = colliding(KEYS, BITS, |text| sip(key(text)));
    for sets in [by_fnv, by_sip] {
        let [crafted, others] = sets.map(|names| {
            names.iter().map(|name| get(&format!("/row-44?{name}"), "")).collect::<Vec<String>>()
        });
        assert_flat("new_pages_per_second = 1000000", &crafted, &others, TIMES);
    }
}
