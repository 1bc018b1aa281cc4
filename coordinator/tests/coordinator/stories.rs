// All tests, for the targets `coordinator` on SQLite and `postgres` on PostgreSQL.

mod support;

mod accounts;
mod admission;
mod artifacts;
mod backup;
mod chat;
mod check;
mod claims;
mod disconnect;
mod document;
mod earnings;
mod errors;
mod event_stream;
mod fabric;
mod failures;
mod floods;
mod happy;
mod idempotency;
mod keys;
mod limits;
mod loss;
mod market;
mod metrics;
mod money;
mod network_state;
mod operators;
mod publications;
mod quotas;
mod reads;
mod requests;
mod restart;
mod retention;
mod sign_in;
mod signup;
