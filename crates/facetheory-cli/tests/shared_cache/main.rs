//! The gateway without a configuration but for patient time-outs, as the shared cache that the HTTP RFCs describe: one
//! story for each MUST and SHOULD that concerns one, told over the wire, with the section in its name.
//!
//! Time is told by the origin: `Age` and `Date` make an answer as old as a story needs it, so that none has to wait.

/// Each of these stories is a test of a gateway on SQLite and files, and one of a gateway on DynamoDB and S3.
macro_rules! stories {
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
