//! The engine: every state of a response, and its cost in reads and renders. Time is paused, and passes while all tasks wait.

mod announcements;
mod background;
mod damage;
mod default_timeouts;
mod evicted;
mod feed;
mod feed_limits;
mod feed_publish;
mod fixture;
mod metrics;
mod operations;
mod outage;
mod pin;
mod publish_behind;
mod read_only;
mod replaced;
mod stampede;
mod state;
mod wait;
