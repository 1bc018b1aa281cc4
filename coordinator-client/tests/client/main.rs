//! The client against a scripted server that breaks off, refuses, is busy, slow, or somebody else entirely.

mod endpoints;
mod retries;
mod script;
mod streams;
