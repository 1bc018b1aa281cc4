// The test of query plans records the statements of its process, so it has a process of its own.

#[expect(dead_code, reason = "other tests use the rest")]
mod support;

mod plans;
