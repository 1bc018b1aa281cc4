// All stories, for the targets `coordinator` on SQLite and `postgres` on PostgreSQL.

mod support;

mod accounts;
mod chat;
mod document;
mod fabric;
mod happy;
mod loss;
mod requests;
mod restart;
