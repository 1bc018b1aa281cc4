//! Every story of the coordinator again, with PostgreSQL under it instead of SQLite.

include!("coordinator/stories.rs");

#[path = "coordinator/cluster.rs"]
mod cluster;
