//! `/api-keys`.

pub(crate) mod create;
pub(crate) mod list;
mod request;
pub(crate) mod revoke;
