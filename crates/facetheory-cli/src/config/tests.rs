//! The file as a whole.
