//! `island` as people and scripts meet it: help, output, errors, settings, terminals.

mod demo;
mod errors;
mod help;
mod outputs;
mod program;
mod server;
mod settings;
mod streams;
mod terminal;
