//! Handling of HTTP that every operation shares: state of the handlers, keys, bodies, queries, limits, errors.
//!
//! Checks have one order everywhere: route, method, size, key, rate limit, scope, media type, JSON, fields, access to
//! the named object, idempotency, limits, credits, commit. [`auth::Caller`] checks size to scope, [`body`] media type
//! to fields, handlers the rest.

pub(crate) mod auth;
pub(crate) mod body;
pub(crate) mod client;
pub(crate) mod cors;
pub(crate) mod csv;
pub(crate) mod demand;
pub(crate) mod error;
pub(crate) mod evaluations;
pub(crate) mod form;
pub(crate) mod idempotency;
pub(crate) mod limits;
pub(crate) mod observe;
pub(crate) mod query;
pub(crate) mod segment;
pub(crate) mod slots;
pub(crate) mod state;
