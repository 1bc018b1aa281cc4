//! Residual blocks of two convolutions.

use candle_core::{Result as Computed, Tensor};
use island_runtimes_kit::error::EngineError;

use crate::{
    lora::Adapters,
    ops::{Conv, GroupNorm, Linear, Shape},
    weights::Scope,
};

/// The block, with or without a time embedding.
#[derive(Debug)]
pub(crate) struct Resnet {
    norms: [GroupNorm; 2],
    convs: [Conv; 2],
    time: Option<Linear>,
    shortcut: Option<Linear>,
}

/// Parameters that the blocks of a network share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Norms {
    pub(crate) groups: usize,
    pub(crate) epsilon: f64,
    /// Width of the time embedding, if there is one.
    pub(crate) time: Option<usize>,
}

impl Resnet {
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
    pub(crate) fn forward(&self, x: &Tensor, time: Option<&Tensor>, adapters: &Adapters) -> Computed<Tensor> {
        let shift = match (&self.time, time) {
            (Some(layer), Some(time)) => Some(layer.forward(time, None, adapters)?),
            _ => None,
        };
        let inner = self.convs[0].shifted(&self.norms[0].silu(x)?, shift.as_ref(), adapters)?;
        let inner = self.norms[1].silu(&inner)?;
        match &self.shortcut {
            Some(shortcut) => self.convs[1].onto(&inner, &shortcut.forward(x, None, adapters)?, adapters),
            None => self.convs[1].onto(&inner, x, adapters),
        }
    }
}
