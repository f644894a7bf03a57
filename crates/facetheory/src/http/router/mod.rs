//! From a request to a resolved request: route, tenant and cache key.

pub(crate) mod cookie;
pub(crate) mod host;
pub(crate) mod key_form;
pub(crate) mod origin_request;
mod page_key;
pub(crate) mod path;
pub(crate) mod pattern;
pub(crate) mod preview;
pub(crate) mod query;
pub(crate) mod rejection;
pub(crate) mod resolve;
pub(crate) mod route;
pub(crate) mod routes;
pub(crate) mod tenant;
