//! The HTTP cache: a tower layer that resolves requests, serves pages from the engine, fetches them from the origin, and
//! decides what is cached. `router` and `semantics` are pure: no I/O and no clock.

mod body;
mod cacheability;
mod compression;
mod credentials;
mod fetch;
mod forced_regenerations;
mod headers;
mod hint;
mod ignore_directives;
mod limits;
mod parsed_page;
mod regeneration_queue;
mod renderer;
mod representation;
mod request_origin;
mod respond;
mod response_cache;
mod router;
mod semantics;
mod service;
#[cfg(test)]
mod test_support;
mod variant_limit;
mod variants;

pub use body::IsrBody;
pub use forced_regenerations::ClientAddress;
pub use headers::remove_hop_by_hop_headers;
pub use hint::CacheHint;
pub use ignore_directives::IgnoreDirectives;
pub use regeneration_queue::{QueuedRegeneration, RegenerationQueue};
pub use request_origin::RequestOrigin;
pub use response_cache::Hit;
pub use router::host::is_valid_host;
pub use router::preview::Preview;
pub use router::query::Query;
pub use router::rejection::Rejected;
pub use router::resolve::ResolvedRequest;
pub use router::route::Route;
pub use router::routes::{Params, Routes};
pub use router::tenant::TenantFrom;
pub use service::{IsrLayer, IsrService};
