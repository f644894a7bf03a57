//! `#[derive(Model)]` for `tabletheory`.
