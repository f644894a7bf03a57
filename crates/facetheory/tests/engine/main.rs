//! The engine: what visitors get in every state, and what it costs. Time passes only while everyone waits.

mod background;
mod fixture;
mod observe;
mod operation;
mod outage;
mod pin;
mod stampede;
mod state;
mod wait;
