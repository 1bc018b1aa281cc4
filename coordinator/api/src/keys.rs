//! `/api-keys`.

pub(super) mod create;
pub(super) mod list;
mod request;
pub(super) mod revoke;
