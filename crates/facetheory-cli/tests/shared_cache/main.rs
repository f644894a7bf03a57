//! The gateway with default settings and long timeouts, as the shared cache that the HTTP RFCs describe: one test for
//! each MUST and SHOULD that concerns a cache, over the wire, with the section in its name.
//!
//! The origin sets the age of responses by `Age` and `Date`, so that no test has to wait.

/// Runs each function as two tests: of a gateway on SQLite and files, and of one on DynamoDB and S3.
macro_rules! on_each_store {
    ($($story:ident),* $(,)?) => {
        mod embedded {
            $(
                #[test]
                fn $story() {
                    super::$story(&crate::stores::embedded(""));
                }
            )*
        }

        mod servers {
            $(
                #[test]
                fn $story() {
                    super::$story(&crate::stores::on_servers(""));
                }
            )*
        }
    };
}

mod age;
mod authorization;
mod cache_status;
mod collapse;
mod condition;
mod date;
mod directive;
mod document;
mod freshness;
mod head;
mod header;
mod helpers;
mod invalidation;
mod pair;
mod parsing;
mod range;
mod request;
mod rule;
mod stale;
mod status;
mod stores;
#[path = "../support/mod.rs"]
mod support;
mod targeted;
mod validation;
mod vary;
