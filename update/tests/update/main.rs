//! Updates: which releases are accepted, how they are fetched and installed, and the program itself.

mod attacks;
mod fetching;
mod runs;
mod steps;
