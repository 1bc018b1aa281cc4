//! Decisions about the memory of this machine: which job fits, which GPU its worker gets, and which worker stops. All are pure: measured values in,
//! a choice out; the supervisor and the pool perform it.
//!
//! | module | what it decides |
//! | --- | --- |
//! | [`admission`] | whether a job fits now |
//! | [`worker_placement`] | which GPUs a new worker gets, and which idle workers stop for it |
//! | [`eviction`] | which idle workers stop so that memory is freed |
//! | [`model_demand`] | how much each model is used |
//! | [`vram_enforcement`] | which workers stop because they exceed the memory of a GPU |
//! | [`warm_containers`] | how much memory is reserved for containers that are started in advance |

pub mod admission;
pub mod eviction;
pub mod model_demand;
pub mod vram_enforcement;
pub mod warm_containers;
pub mod worker_placement;
