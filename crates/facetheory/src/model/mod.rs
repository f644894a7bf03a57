//! The protocol, checked exhaustively: every interleaving of a few writers and operators, within bounds.
//!
//! The transactions are those of production, built by the same pure functions, and a real table evaluates them.
//! Only what lies between two transactions is modelled: who knows what, which requests are under way, which
//! bodies are stored. After each step the [`invariant`]s must hold; with any guard taken out ([`mutant`]) one of
//! them must not, so that the check itself is checked.
//!
//! `FACETHEORY_MODEL_STATES` visits that many states of each scope instead of the few of every day;
//! `FACETHEORY_MODEL_TRACE` prints the shortest way to what each mutant breaks.

mod action;
mod explore;
mod invariant;
mod mutant;
mod network;
mod operator;
mod protocol;
mod scope;
mod state;
mod table;
mod tests;
mod writer;
