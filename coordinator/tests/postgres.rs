//! The tests of the coordinator with PostgreSQL instead of SQLite.

include!("coordinator/stories.rs");

#[path = "coordinator/cluster.rs"]
mod cluster;

#[path = "coordinator/earners.rs"]
mod earners;
