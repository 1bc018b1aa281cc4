//! The client against a scripted server that disconnects, refuses, is busy or slow, or is another program.

mod endpoints;
mod plaintext;
mod retries;
mod script;
mod streams;
