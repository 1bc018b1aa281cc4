//! How both databases execute every statement that requests cause: none of them reads a table of jobs or of the ledger
//! from its beginning to its end.

include!("coordinator/plans_alone.rs");
