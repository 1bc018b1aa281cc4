//! What a graph states about its outputs. A model that cannot answer is rejected when it is loaded, not in its first job.

use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    keys::unsupported,
};
use ort::value::{Outlet, ValueType};

use super::Graph;

/// An output of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Output {
    pub(super) name: String,
    /// Dimensions, -1 where they depend on the inputs.
    shape: Vec<i64>,
}

impl Output {
    pub(super) fn of(outlet: &Outlet) -> Self {
        let shape = match outlet.dtype() {
            ValueType::Tensor { shape, .. } => shape.to_vec(),
            _ => Vec::new(),
        };
        Self { name: outlet.name().to_owned(), shape }
    }

    /// A dimension, counted from the last one, which is number 1.
    fn size(&self, from_end: usize) -> Option<usize> {
        let at = self.shape.len().checked_sub(from_end)?;
        self.shape.get(at).copied().and_then(known)
    }

    /// How many numbers there are for each element of the first dimension.
    fn numbers(&self) -> Option<usize> {
        let mut others = self.shape.get(1..)?.iter().copied().map(known);
        others.try_fold(1_usize, |product, size| product.checked_mul(size?))
    }

    fn misfit(&self, graph: &str, stated: usize, required: usize, setting: &str) -> EngineError {
        let refused = unsupported(graph, &self.name, &self.shape.clone().into());
        refused.followed_by(format!("{required}, not {stated}: {setting}"))
    }
}

/// A dimension that does not depend on the inputs.
fn known(size: i64) -> Option<usize> {
    usize::try_from(size).ok().filter(|&size| size > 0)
}

impl Graph {
    /// Rejects a graph without this output.
    pub fn require(&self, name: &str) -> Result<(), EngineError> {
        self.output(name).map(drop)
    }

    /// Rejects a graph without this output, or one that states another number of numbers for each input than `setting` requires.
    pub fn require_numbers(&self, name: &str, count: usize, setting: &str) -> Result<(), EngineError> {
        let output = self.output(name)?;
        match output.numbers() {
            Some(stated) if stated != count => Err(output.misfit(self.name(), stated, count, setting)),
            _ => Ok(()),
        }
    }

    /// Rejects a graph without this output, or one that states another size of it than `setting` requires. Dimensions are counted from the
    /// last one, which is number 1. A size that depends on the inputs is not known before a run.
    pub fn require_size(
        &self,
        name: &str,
        from_end: usize,
        size: usize,
        setting: &str,
    ) -> Result<(), EngineError> {
        let output = self.output(name)?;
        match output.size(from_end) {
            Some(stated) if stated != size => Err(output.misfit(self.name(), stated, size, setting)),
            _ => Ok(()),
        }
    }

    /// The size of an output that the graph states, counted from the last dimension, which is number 1.
    pub fn stated_size(&self, name: &str, from_end: usize) -> Option<usize> {
        self.output(name).ok()?.size(from_end)
    }

    /// The number of dimensions of an output that the graph states.
    pub fn stated_rank(&self, name: &str) -> Option<usize> {
        self.output(name).ok().map(|output| output.shape.len())
    }

    fn output(&self, name: &str) -> Result<&Output, EngineError> {
        self.stated.iter().find(|output| output.name == name).ok_or_else(|| {
            invalid_model(format!(
                "{}: no output is called {name}: {}",
                self.name(),
                self.outputs().join(", ")
            ))
        })
    }
}
