//! The real agent with real workers and a real fabric, against a coordinator that says what each story needs.

mod coordinator;
mod fixture;
mod gpu;
mod stories;
