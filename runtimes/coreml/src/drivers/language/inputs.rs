//! The inputs of a decoder at each step.

use island_runtimes_kit::error::{EngineError, invalid_model};
use ndarray::{ArrayD, IxDyn};

use crate::{
    model::{Model, Tensor, Tensors},
    package::interface::{Feature, Kind, Sizes},
    program::types::Class,
};

/// Maximum number of tokens of a conversation.
const MAX_CONTEXT: usize = 1 << 20;

/// One input of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Token ids, `[1, n]`.
    Ids,
    /// Attention mask, `[1, 1, n, k]`: zero or minus infinity. `k` is the number of tokens so far, or constant.
    Mask(Option<u64>),
    /// Positions of the tokens, `[n]` or `[1, n]`.
    Positions(usize),
    /// Position of the first, `[1]`.
    Begin,
}

/// The inputs of a decoder.
#[derive(Debug, Clone)]
pub(super) struct Inputs {
    all: Vec<(String, Role)>,
    ids: Sizes,
    context: Option<usize>,
}

impl Inputs {
    /// The inputs of a model. An error if one is unknown.
    pub(super) fn of(model: &dyn Model) -> Result<Self, EngineError> {
        let (mut all, mut ids, mut context) = (Vec::new(), None, None);
        for feature in &model.interface().inputs {
            let role = role(feature).ok_or_else(|| {
                invalid_model(format!(
                    "{} needs the input {}, which a conversation does not have",
                    model.name(),
                    feature.name
                ))
            })?;
            if let Kind::Array { sizes, .. } = &feature.kind {
                match role {
                    Role::Ids => ids = Some(sizes.clone()),
                    Role::Mask(_) => context = sizes.most(3).and_then(|most| usize::try_from(most).ok()),
                    _ => {}
                }
            }
            all.push((feature.name.clone(), role));
        }
        let ids = ids.ok_or_else(|| invalid_model(format!("{} takes no token ids [1, n]", model.name())))?;
        if let Some(context) = context.filter(|&context| context > MAX_CONTEXT) {
            return Err(invalid_model(format!(
                "{} attends to {context} tokens at once, more than {MAX_CONTEXT}",
                model.name()
            )));
        }
        Ok(Self { all, ids, context })
    }

    /// The maximum number of tokens of a conversation, if the inputs define it.
    pub(super) fn context(&self) -> Option<usize> {
        self.context
    }

    /// How many of `count` tokens are processed together.
    pub(super) fn chunk(&self, count: usize) -> Result<usize, EngineError> {
        let fits = |count: &usize| self.ids.holding(1, *count as u64) == Some(*count as u64);
        (1..=count)
            .rev()
            .find(fits)
            .ok_or_else(|| invalid_model("the model takes no single token, which generation needs"))
    }

    /// The inputs for some tokens after `past` others.
    pub(super) fn tensors(&self, tokens: &[i64], past: usize, context: usize) -> Tensors {
        let count = tokens.len();
        let places = || (past..past + count).map(|place| place as i64).collect::<Vec<i64>>();
        let ints = |shape: &[usize], values: Vec<i64>| {
            Tensor::Ints(ArrayD::from_shape_vec(IxDyn(shape), values).unwrap_or_default())
        };
        let tensor = |role: Role| match role {
            Role::Ids => ints(&[1, count], tokens.to_vec()),
            Role::Begin => ints(&[1], vec![past as i64]),
            Role::Positions(1) => ints(&[count], places()),
            Role::Positions(_) => ints(&[1, count], places()),
            Role::Mask(width) => {
                let width =
                    width.map_or(past + count, |width| (width as usize).min(context.max(past + count)));
                let mask = ArrayD::from_shape_fn(IxDyn(&[1, 1, count, width]), |place| {
                    if place[3] <= past + place[2] { 0.0 } else { f32::NEG_INFINITY }
                });
                Tensor::Floats(mask)
            }
        };
        self.all.iter().map(|(name, role)| (name.clone(), tensor(*role))).collect()
    }
}

fn role(feature: &Feature) -> Option<Role> {
    let Kind::Array { class, sizes } = &feature.kind else { return None };
    let name = feature.name.to_lowercase();
    match (class, sizes.rank()) {
        (Class::Float, 4) => {
            let fixed = if let Sizes::Fixed(sizes) = sizes {
                sizes.get(3).copied().filter(|&size| size > 0)
            } else {
                None
            };
            Some(Role::Mask(fixed))
        }
        (Class::Int, rank) if name.contains("position") => Some(Role::Positions(rank)),
        (Class::Int, 1) if name.contains("pos") || name.contains("offset") || name.contains("past") => {
            Some(Role::Begin)
        }
        (Class::Int, 2) => Some(Role::Ids),
        _ => None,
    }
}
