//! A model checker for the protocol: it explores the interleavings of a few writers and operators, within bounds.
//!
//! The transactions are those of production, built by the same pure functions, and a real table evaluates them. Only the state
//! between two transactions is modelled: what each actor has read, which requests are under way, which bodies are stored. After
//! each step the [`invariant`]s must hold. Without any one of the guards ([`mutant`]) one of them must be violated, which checks
//! the checker.
//!
//! `FACETHEORY_MODEL_STATES` sets how many states of each scope are explored; `FACETHEORY_MODEL_TRACE` prints the shortest trace
//! to the violation of each mutant.

mod action;
mod budget;
mod damage;
mod explore;
mod feed;
mod invariant;
mod mutant;
mod network;
mod operator;
mod protocol;
mod replaced;
mod scope;
mod state;
mod table;
mod tests;
mod writer;
