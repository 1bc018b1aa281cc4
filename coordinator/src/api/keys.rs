//! `/api-keys`.

pub(super) mod create;
pub(super) mod list;
pub(super) mod revoke;
mod wish;
