//! An attempt as the rest of the agent uses it: its shared handle and its states.

pub mod handle;
pub mod state;
