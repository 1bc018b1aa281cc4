//! The memory that inputs of open jobs take. A job keeps its input until it ends, because another Island may need it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use island_coordinator_domain::job::input::JobInput;

/// Memory of a job without its input: its task, its channels, its log.
const JOB_BYTES: usize = 16 << 10;
const KIB: usize = 1 << 10;

/// The memory for inputs, in permits of a KiB.
#[derive(Debug)]
pub(super) struct InputMemory(Arc<Semaphore>);

/// What the input of one job takes, until it is dropped.
#[derive(Debug)]
pub(crate) struct ReservedInput {
    _permit: Option<OwnedSemaphorePermit>,
}

impl InputMemory {
    /// Memory of `mb` MiB.
    pub(super) fn new(mb: u32) -> Self {
        Self(Arc::new(Semaphore::new(mb as usize * KIB)))
    }

    /// Reserves what a new job takes. Returns `None` if it is not available.
    pub(super) fn reserve(&self, input: &JobInput) -> Option<ReservedInput> {
        let permit = self.0.clone().try_acquire_many_owned(permits(input)).ok()?;
        Some(ReservedInput { _permit: Some(permit) })
    }

    /// Reserves what a stored job takes, which is resumed even if it is more than is available.
    pub(super) fn reserve_stored(&self, input: &JobInput) -> ReservedInput {
        self.reserve(input).unwrap_or(ReservedInput { _permit: None })
    }
}

fn permits(input: &JobInput) -> u32 {
    let bytes = JOB_BYTES + input.as_str().len();
    u32::try_from(bytes.div_ceil(KIB)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;

    fn input(value: Value) -> JobInput {
        JobInput::new(&Map::from_iter([("data".to_owned(), value)]))
    }

    #[test]
    fn an_input_takes_its_text_whatever_its_values() {
        assert_eq!(permits(&input(json!(vec![0; 10_000]))), 36);
        assert_eq!(permits(&input(json!("x".repeat(100 * KIB)))), 117);
    }

    #[test]
    fn memory_is_limited_for_new_jobs_and_given_back() {
        let memory = InputMemory::new(1);
        let input = input(json!("x".repeat(300 * KIB)));
        let mut held: Vec<_> = std::iter::from_fn(|| memory.reserve(&input)).collect();
        assert_eq!(held.len(), 3);
        held.push(memory.reserve_stored(&input));
        held.remove(0);
        assert!(memory.reserve(&input).is_some());
    }
}
