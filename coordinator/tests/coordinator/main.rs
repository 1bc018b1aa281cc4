//! Tests of the coordinator with a real nats-server, scripted Islands, and SQLite.

include!("stories.rs");

mod commands;
mod full_disk;
mod pins;
