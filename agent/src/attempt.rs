//! A running attempt as the rest of the agent sees it: what is shared of it, and the states that it goes through.

pub mod handle;
pub mod state;
