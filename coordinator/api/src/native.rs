//! Operations of Island's own API: one module for each noun, one file for each verb.

pub(crate) mod account;
pub(crate) mod admin;
pub(crate) mod artifacts;
pub(crate) mod availability;
pub(crate) mod cargos;
pub(crate) mod fabric;
pub(crate) mod health;
pub(crate) mod hosts;
pub(crate) mod island;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod ledger;
pub(crate) mod login;
pub(crate) mod market;
pub mod metrics;
pub(crate) mod network;
pub(crate) mod publications;
pub(crate) mod quotas;
pub(crate) mod session;
pub(crate) mod signup;
pub(crate) mod statement;
pub(crate) mod usage;
pub(crate) mod webhooks;
pub(crate) mod workloads;
