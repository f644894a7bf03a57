//! The purge protocols of CMS plugins, through the binary: each request byte for byte as the product sends it.

mod access;
mod admin;
mod products;
mod replay;
#[path = "../support/mod.rs"]
mod support;
mod tenants;
