//! Recording the inputs and outputs of graphs, for tests that compare them with a reference.

use std::sync::Arc;

use ndarray::ArrayViewD;
use parking_lot::Mutex;

use crate::Feed;

/// Maximum number of recorded elements of a tensor.
const MAX_KEPT: usize = 1 << 22;

/// Records tensors; does nothing unless it is enabled.
#[derive(Debug, Clone, Default)]
pub struct TensorTrace(Option<Arc<Mutex<Vec<TracedTensor>>>>);

/// An input or output of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct TracedTensor {
    /// The graph's path in the repository.
    pub graph: String,
    /// The tensor's name.
    pub name: String,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Its elements in row-major order.
    pub values: Vec<f32>,
}

impl TensorTrace {
    /// One that records.
    pub fn on() -> Self {
        Self(Some(Arc::default()))
    }

    /// Takes the tensors recorded so far, in order.
    pub fn take(&self) -> Vec<TracedTensor> {
        let seen = self.0.as_ref().map(|seen| seen.lock().split_off(0));
        seen.unwrap_or_default()
    }

    /// Whether it records.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn given(&self, graph: &str, name: &str, feed: &Feed<'_>) {
        match feed {
            Feed::Ints(array) => self.keep(graph, name, array.view(), |&number| number as f32),
            Feed::Floats(array) => self.keep(graph, name, array.view(), |&number| number),
            Feed::Bools(array) => self.keep(graph, name, array.view(), |&flag| f32::from(u8::from(flag))),
            // It is the output of another graph.
            Feed::Held(_) => {}
        }
    }

    pub(crate) fn keep<T>(
        &self,
        graph: &str,
        name: &str,
        array: ArrayViewD<'_, T>,
        number: impl Fn(&T) -> f32,
    ) {
        let Some(seen) = self.0.as_ref().filter(|_| array.len() <= MAX_KEPT) else { return };
        let (shape, values) = (array.shape().to_vec(), array.iter().map(number).collect());
        let (graph, name) = (graph.to_owned(), name.to_owned());
        seen.lock().push(TracedTensor { graph, name, shape, values });
    }
}
