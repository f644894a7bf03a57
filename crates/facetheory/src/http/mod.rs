//! HTTP as decisions: from header values to what is served, kept and told, without I/O and without a clock.

mod cache_control;
mod conditional;
mod cookie;
mod draft;
mod encoding;
mod header;
mod hint;
mod host;
mod path;
mod pattern;
mod range;
mod refusal;
mod status;
mod storable;
mod vary;

pub use draft::Drafts;
pub use hint::Hint;
