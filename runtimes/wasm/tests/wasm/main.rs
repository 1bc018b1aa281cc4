//! The engine with programs in text form.

mod conformance;
mod hostile;
mod limits;
mod programs;
mod sharing;
