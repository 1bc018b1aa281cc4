// The coordinator with a real database, a real nats-server and scripted Islands. This target runs the stories on SQLite,
// the target `postgres` runs the same ones on PostgreSQL.

mod support;

mod accounts;
mod chat;
mod errors;
mod fabric;
mod happy;
mod keys;
mod limits;
mod loss;
mod market;
mod once;
mod requests;
mod restart;
