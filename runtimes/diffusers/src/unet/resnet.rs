//! Residual blocks of two convolutions.

use island_runtimes_kit::error::EngineError;

use crate::{
    compute::{Compute, Computed, Weight},
    ops::{Conv, GroupNorm, Linear, Shape},
    weights::Scope,
};

/// The block, with or without a time embedding.
#[derive(Debug)]
pub(crate) struct Resnet<W> {
    norms: [GroupNorm<W>; 2],
    convs: [Conv<W>; 2],
    time: Option<Linear<W>>,
    shortcut: Option<Linear<W>>,
}

/// Parameters that the blocks of a network share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Norms {
    pub(crate) groups: usize,
    pub(crate) epsilon: f64,
    /// Width of the time embedding, if there is one.
    pub(crate) time: Option<usize>,
}

impl<W: Weight> Resnet<W> {
    pub(crate) fn load(
        scope: &Scope<'_>,
        inputs: usize,
        outputs: usize,
        norms: Norms,
    ) -> Result<Self, EngineError> {
        let norm =
            |name: &str, width: usize| GroupNorm::load(&scope.at(name), width, norms.groups, norms.epsilon);
        let time = norms.time.map(|width| Linear::load(&scope.at("time_emb_proj"), width, outputs));
        let shortcut = (inputs != outputs).then(|| Linear::load(&scope.at("conv_shortcut"), inputs, outputs));
        Ok(Self {
            norms: [norm("norm1", inputs)?, norm("norm2", outputs)?],
            convs: [
                Conv::load(&scope.at("conv1"), inputs, outputs, Shape::SAME)?,
                Conv::load(&scope.at("conv2"), outputs, outputs, Shape::SAME)?,
            ],
            time: time.transpose()?,
            shortcut: shortcut.transpose()?,
        })
    }

    /// Applies the block; `time` is the time embedding after its SiLU.
    pub(crate) fn forward<C: Compute<Weight = W>>(
        &self,
        compute: &mut C,
        x: &C::Value,
        time: Option<&C::Value>,
    ) -> Computed<C::Value> {
        let shift = match (&self.time, time) {
            (Some(layer), Some(time)) => Some(compute.linear(layer, time, None)?),
            _ => None,
        };
        let inner = compute.group_norm(&self.norms[0], x, true)?;
        let inner = compute.conv(&self.convs[0], &inner, shift.as_ref())?;
        let inner = compute.group_norm(&self.norms[1], &inner, true)?;
        let residual = match &self.shortcut {
            Some(shortcut) => compute.pointwise(shortcut, x)?,
            None => x.clone(),
        };
        compute.conv_onto(&self.convs[1], &inner, &residual)
    }
}
