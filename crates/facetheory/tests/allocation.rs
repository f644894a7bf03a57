//! Counts the allocations of a hit and a miss, and the memory that the memory tier holds.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "http")]
use facetheory::Route;
use facetheory::{
    Bodies, GetResult, Isr, KeyScheme, PageKey, PageStore, Pages, Policy, Rendered, State, Tenant,
};

/// The most allocations of a hit, including its key.
const MOST: u64 = 4;

fn key(tenant: &Tenant) -> PageKey {
    let key = KeyScheme::Hashed.page(Some(tenant), "acme::/posts/{slug}?slug=hello").expect("a key");
    key.at_path("/posts/hello")
}

async fn hit(isr: &Isr, tenant: &Tenant, policy: &Policy) -> State {
    let result = isr.get(&key(tenant), policy, |_| async { Ok(Rendered::html("hello")) }).await;
    match result.expect("no error") {
        GetResult::Page(served) => served.state,
        GetResult::Bypass(_) => State::Bypass,
    }
}

#[test]
fn a_hit_allocates_little_more_than_its_key() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    let isr = Isr::builder(pages).metadata_max_age(Duration::from_secs(3600)).build();
    let policy = Policy::every(Duration::from_secs(3600));
    let tenant = Tenant::new("acme").expect("a tenant");
    runtime.block_on(async {
        assert_eq!(hit(&isr, &tenant, &policy).await, State::Miss);
        assert_eq!(hit(&isr, &tenant, &policy).await, State::Hit);
    });
    let (mut state, runtime, isr) = (State::Miss, &runtime, &isr);
    let counted = allocation_counter::measure(|| {
        state = runtime.block_on(hit(isr, &tenant, &policy));
    });
    assert_eq!(state, State::Hit);
    println!("{} allocations of {} bytes in all", counted.count_total, counted.bytes_total);
    assert!(counted.count_total <= MOST, "{counted:?}");
}

/// Names and values.
#[cfg(feature = "http")]
type Headers = &'static [(&'static str, &'static str)];

/// Requests for a page in memory, and the most allocations of each: the cache key, the path, the partition key, the request id,
/// and the head; on a route that follows its origin also the address that all variants have in common. Conditions, ranges,
/// codings and `HEAD` add none.
#[cfg(feature = "http")]
const REQUESTS: [(&str, &str, Headers, u16, u64); 9] = [
    ("GET", "/rule/a", &[], 200, 5),
    ("GET", "/rule/a", &[("accept-encoding", "gzip;q=0.5, zstd;q=0.75")], 200, 5),
    ("GET", "/rule/a", &[("if-none-match", "\"v0\", W/\"v1\"")], 304, 5),
    ("GET", "/rule/a", &[("if-modified-since", "Tue, 14 Nov 2023 22:00:00 GMT")], 304, 5),
    ("GET", "/rule/a", &[("range", "bytes=1-2")], 206, 5),
    ("HEAD", "/rule/a", &[], 200, 5),
    ("GET", "/origin/a", &[], 200, 6),
    ("GET", "/origin/a", &[("if-none-match", "\"v1\"")], 304, 6),
    ("HEAD", "/origin/a", &[], 200, 6),
];

#[test]
#[cfg(feature = "http")]
fn a_hit_over_http_allocates_little_more_than_its_key_and_its_head() {
    use facetheory::{IsrLayer, Routes};
    use http::{Request, Response};
    use tower::{Layer as _, ServiceExt as _};

    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let pages = Pages::new(PageStore::new(Arc::new(tabletheory::MemoryTable::new())), Bodies::memory());
    let isr = Isr::builder(pages).metadata_max_age(Duration::from_secs(3600)).build();
    let rule = Route::new("/rule/{slug}", Policy::every(Duration::from_secs(3600)));
    let routes = Routes::new([rule]).expect("valid routes").otherwise_follow_origin();
    let origin = tower::service_fn(|_: Request<String>| async {
        let response = Response::builder().header("cache-control", "max-age=3600").header("etag", "\"v1\"");
        let response = response.header("last-modified", "Tue, 14 Nov 2023 22:00:00 GMT");
        response.header("content-type", "text/html").body("page ".repeat(1000))
    });
    let service = IsrLayer::new(isr.clone(), routes).layer(origin);
    for path in ["/rule/a", "/origin/a"] {
        let request = Request::get(path).header("host", "example.com").header("accept-encoding", "br");
        let request = request.body(String::new()).expect("valid");
        runtime.block_on(service.clone().oneshot(request)).expect("a response");
    }
    assert!(runtime.block_on(isr.settle(Duration::from_secs(60))), "the pages are compressed");
    for (method, path, headers, status, most) in REQUESTS {
        let request = Request::builder().method(method).uri(path).header("host", "example.com");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let (parts, ()) = request.body(()).expect("valid").into_parts();
        let hit = || {
            let resolved = service.resolve(&parts);
            let hit = service.get_fresh(&parts, &resolved).expect("a hit");
            assert_eq!(hit.status(), status, "{method} {path} {headers:?}");
            (hit.http1_head(), hit.body())
        };
        // The head is built once a second, so the best of several hits counts.
        let allocations = || allocation_counter::measure(|| drop(hit())).count_total;
        let least = (0..5).map(|_| allocations()).min().expect("five hits");
        println!("{method} {path} {headers:?}: {least} allocations");
        assert!(least <= most, "{method} {path} {headers:?}: {least} allocations");
    }
}

/// Returns how many bytes a memory tier holds after `pages` pages with `headers` headers went through it, and how many it counts.
/// Each body is a slice of a larger buffer, as HTTP servers and clients read it.
#[cfg(feature = "http")]
fn held(memory: u64, pages: usize, headers: usize, route: &Route) -> (i64, u64) {
    use bytes::Bytes;
    use facetheory::{IsrLayer, Routes};
    use futures_util::{StreamExt as _, TryStreamExt as _};
    use http::{Request, Response};
    use http_body_util::Full;
    use object_store::ObjectStore as _;
    use object_store::memory::InMemory;
    use tower::{Layer as _, Service as _};

    const READ_AT_ONCE: usize = 8 * 1024;
    const LENGTH: usize = 200;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    let _entered = runtime.enter();
    // Embedded stores free memory in threads of their own, which is not counted.
    let objects = Arc::new(InMemory::new());
    // Keys are hashed with a random secret. How they spread decides which tables of the cache double their size.
    let random = Arc::new(tabletheory::SeededRandom::new(1));
    let clock = Arc::new(tabletheory::ManualClock::at(tabletheory::Timestamp::from_seconds(1_700_000_000)));
    let table = Arc::new(tabletheory::MemoryTable::with_clock(clock));
    let stores = Pages::new(PageStore::new(table), Bodies::over(objects.clone()));
    let isr = Isr::builder(stores).random(random).memory(memory).build();
    let routes = Routes::new([route.clone()]);
    let renderer = tower::service_fn(move |request: Request<Full<Bytes>>| async move {
        let read = Bytes::from(format!("{:>READ_AT_ONCE$}", request.uri().path()));
        let response = Response::builder().header("content-type", "text/html");
        let response = response.header("cache-control", "max-age=3600");
        let response = (0..headers).fold(response, |response, number| {
            response.header(format!("x-header-{number}"), "a value of some length")
        });
        response.body(Full::new(read.slice(READ_AT_ONCE - LENGTH..)))
    });
    let mut service = IsrLayer::new(isr.clone(), routes.expect("routes")).layer(renderer);
    let counted = allocation_counter::measure(|| {
        for page in 0..pages {
            let request = Request::get(format!("http://example.com/{page}")).body(Full::default());
            let response = runtime.block_on(service.call(request.expect("a request")));
            assert_eq!(response.expect("no error").headers()["x-facetheory-isr"], "miss");
        }
        // Otherwise the tier could share the bodies with the store.
        let stored = objects.list(None).map_ok(|object| object.location).boxed();
        let deleted = runtime.block_on(objects.delete_stream(stored).try_collect::<Vec<_>>());
        assert_eq!(deleted.expect("no error").len(), pages);
    });
    (counted.bytes_current, isr.in_memory().1)
}

#[test]
#[cfg(feature = "http")]
fn the_memory_tier_holds_no_more_than_it_counts() {
    const PAGES: usize = 50;
    let routes =
        [Route::new("/{page}", Policy::every(Duration::from_secs(3600))), Route::follow_origin("/{page}")];
    // A header map has the most spare capacity right after it had to grow: with 13, 25 and 49 headers.
    for (route, headers) in
        routes.iter().flat_map(|route| [0, 1, 7, 11, 13, 25, 49].map(|more| (route, more)))
    {
        // The stores hold the same with and without a tier.
        let (stores, nothing) = held(0, PAGES, headers, route);
        let (both, counted) = held(1024 * 1024 * 1024, PAGES, headers, route);
        let held = u64::try_from(both - stores).expect("a tier takes memory");
        let each = |bytes: u64| bytes / PAGES as u64;
        println!("{headers} more headers: {} bytes a page are held, {} counted", each(held), each(counted));
        assert_eq!(nothing, 0, "a tier without capacity holds nothing");
        assert!(held <= counted, "{headers} headers: {held} bytes are held, and {counted} counted");
    }
}

/// The most allocations of a hit on a page that is not in memory. 135 were measured: for its rows, which are JSON, its body, the
/// key, the tasks that requests share, the entry in memory, and the response.
#[cfg(all(feature = "http", feature = "sqlite"))]
const MOST_OF_A_READ: u64 = 142;
/// The most allocations of a miss. 290 were measured: it looks for the page, takes the lease, reads the counts of its tags,
/// renders, stores the body, publishes, and responds.
#[cfg(all(feature = "http", feature = "sqlite"))]
const MOST_OF_A_MISS: u64 = 305;

/// Counts what the thread of the requests allocates. The threads that write to SQLite are not counted.
#[test]
#[cfg(all(feature = "http", feature = "sqlite"))]
fn a_read_and_a_miss_of_the_embedded_store_allocate_a_bounded_number_of_times() {
    use facetheory::{IsrLayer, Routes};
    use http::{Request, Response};
    use tower::{Layer as _, Service as _};

    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _entered = runtime.enter();
    let directory = tempfile::tempdir().expect("a directory");
    let table = tabletheory::SqliteTable::open(directory.path().join("table.db")).expect("a table");
    let bodies = Bodies::files(directory.path().join("bodies")).expect("bodies");
    let pages = Pages::new(PageStore::new(Arc::new(table)), bodies);
    let start = || {
        let route = Route::new("/{page}", Policy::every(Duration::from_secs(3600)));
        let isr = Isr::builder(pages.clone()).metadata_max_age(Duration::from_secs(3600)).build();
        let origin = tower::service_fn(|_: Request<String>| async {
            Response::builder().header("content-type", "text/html").body("page ".repeat(1000))
        });
        IsrLayer::new(isr, Routes::new([route]).expect("valid routes")).layer(origin)
    };
    let request = |page: usize| {
        let request = Request::get(format!("/{page}")).header("host", "example.com");
        request.body(String::new()).expect("valid")
    };
    // Something may be done once a second, or the first time, so the best of several counts.
    let least = |of_page: &mut dyn FnMut(usize) -> u64| (0..8).map(of_page).min().expect("several pages");
    let mut service = start();
    let miss = least(&mut |page| {
        let request = request(page);
        let miss = || {
            let response = runtime.block_on(service.call(request)).expect("a response");
            assert_eq!(response.headers()["x-facetheory-isr"], "miss");
        };
        allocation_counter::measure(miss).count_total
    });
    // Another process, which has no page in memory.
    let service = start();
    let read = least(&mut |page| {
        let (parts, _) = request(page).into_parts();
        let read = || {
            let resolved = service.resolve(&parts);
            assert!(service.get_fresh(&parts, &resolved).is_none(), "the page is not in memory");
            let hit = service.get_fresh_or_read(&parts, &resolved).expect("a page that was read");
            drop((hit.http1_head(), hit.body()));
        };
        allocation_counter::measure(read).count_total
    });
    println!("a page that was read: {read} allocations; a miss: {miss}");
    assert!(read <= MOST_OF_A_READ, "{read} allocations of a page that was read");
    assert!(miss <= MOST_OF_A_MISS, "{miss} allocations of a miss");
}

#[test]
#[cfg(feature = "http")]
fn the_metadata_of_evicted_pages_takes_no_more_than_it_counts() {
    const PAGES: usize = 2000;
    const MEMORY: u64 = 512 * 1024;
    const TRIES: usize = 3;
    let route = Route::new("/{page}", Policy::every(Duration::from_secs(3600)));
    for headers in [0, 13] {
        // Hash tables double their size by chance, in the stores too, which is a tenth of the memory here.
        let takes_no_more = (0..TRIES).any(|_| {
            let (stores, _) = held(0, PAGES, headers, &route);
            let (both, counted) = held(MEMORY, PAGES, headers, &route);
            let held = u64::try_from(both - stores).expect("a tier takes memory");
            println!("{headers} more headers: {held} bytes are held, {counted} counted");
            assert!(counted <= MEMORY && counted > MEMORY / 4 * 3, "{counted} of {MEMORY} bytes");
            held <= counted
        });
        assert!(takes_no_more, "{headers} headers: more bytes are held than counted");
    }
}
