//! What a graph states about its outputs. A model that cannot answer is rejected when it is loaded, not in its first job.

use std::fmt;

use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    keys::unsupported,
};
use ort::value::{Outlet, TensorElementType, ValueType};

use super::Graph;

/// An output of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Output {
    pub(super) name: String,
    /// Element type; `None` if it is not a tensor.
    kind: Option<TensorElementType>,
    /// Dimensions, -1 where they depend on the inputs.
    shape: Vec<i64>,
}

impl Output {
    pub(super) fn of(outlet: &Outlet) -> Self {
        let (kind, shape) = match outlet.dtype() {
            ValueType::Tensor { ty, shape, .. } => (Some(*ty), shape.to_vec()),
            _ => (None, Vec::new()),
        };
        Self { name: outlet.name().to_owned(), kind, shape }
    }

    /// Whether it has real numbers, as everything has that a network computes. Token ids and masks, which some graphs pass on, are integers.
    fn is_real(&self) -> bool {
        use TensorElementType as Kind;
        matches!(self.kind, Some(Kind::Float16 | Kind::Float32 | Kind::Float64))
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

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(kind) = self.kind else { return write!(f, "{} (not a tensor)", self.name) };
        let size = |&size: &i64| known(size).map_or_else(|| "?".to_owned(), |size| size.to_string());
        let shape: Vec<String> = self.shape.iter().map(size).collect();
        let kind = format!("{kind:?}").to_lowercase();
        write!(f, "{} ({kind}, [{}])", self.name, shape.join(", "))
    }
}

impl Graph {
    /// Rejects a graph without this output, or whose output of this name has no real numbers.
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

    /// The first output, for tasks whose graphs call it by any name. An error if it has no real numbers.
    pub fn first_output(&self) -> Result<&str, EngineError> {
        let first = self.stated.first().filter(|output| output.is_real());
        first
            .map(|output| output.name.as_str())
            .ok_or_else(|| self.misses("its first output has no real numbers"))
    }

    /// The first output with real numbers whose stated dimensions `fits` accepts, -1 where they depend on the inputs.
    pub fn output_where(&self, fits: impl Fn(&str, &[i64]) -> bool) -> Option<&str> {
        let fitting = |output: &&Output| output.is_real() && fits(&output.name, &output.shape);
        self.stated.iter().find(fitting).map(|output| output.name.as_str())
    }

    /// The error of a graph without an output that its task needs.
    pub fn misses(&self, why: impl fmt::Display) -> EngineError {
        let all: Vec<String> = self.stated.iter().map(Output::to_string).collect();
        invalid_model(format!("{}: {why}; it gives {}", self.name(), all.join(", ")))
    }

    fn output(&self, name: &str) -> Result<&Output, EngineError> {
        let output = self.stated.iter().find(|output| output.name == name);
        let output = output.ok_or_else(|| self.misses(format!("no output is called {name}")))?;
        if !output.is_real() {
            return Err(self.misses(format!("{name} has no real numbers")));
        }
        Ok(output)
    }
}
