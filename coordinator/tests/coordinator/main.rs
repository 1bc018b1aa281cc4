//! The coordinator with a real database, a real nats-server and scripted Islands.

mod support;

mod accounts;
mod chat;
mod fabric;
mod happy;
mod loss;
mod requests;
mod restart;
