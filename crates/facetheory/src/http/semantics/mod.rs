//! HTTP caching semantics (RFC 9110, 9111, 9211, 9213, 5861) as pure functions.

pub(crate) mod age;
pub(crate) mod cache_control;
pub(crate) mod cache_status;
pub(crate) mod conditional;
pub(crate) mod date;
pub(crate) mod directives;
pub(crate) mod freshness;
pub(crate) mod range;
pub(crate) mod reuse;
pub(crate) mod revalidation;
pub(crate) mod targeted;
pub(crate) mod unsafe_methods;
pub(crate) mod vary;
