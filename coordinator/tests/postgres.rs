//! Every story of the coordinator again, with PostgreSQL under it instead of SQLite.

include!("coordinator/main.rs");
