//! A decoder that takes one token at a time, with its cache in host memory: the model returns the slice of each token, and the
//! host writes it to the token's position.

use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    generate::Decoder,
};
use ndarray::{Array2, ArrayD, ArrayView2, IxDyn, s};

use super::{are_numbers, fixed, given_as, tensor};
use crate::{model::Model, package::interface::Feature, program::types::Class};

/// Maximum number of elements of a cache.
const MAX_CACHE: usize = 1 << 27;
/// Masks a position of the cache.
const HIDDEN: f32 = -1.0e4;

const TOKEN: &str = "input_ids";
const POSITION: &str = "cache_length";
const KEYS: &str = "key_cache";
const VALUES: &str = "value_cache";
const UPDATED: &str = "kv_cache_update_mask";
const STATES: &str = "encoder_output_embeds";
const PADDING: &str = "decoder_key_padding_mask";
const LOGITS: &str = "logits";
const NEW_KEYS: &str = "key_cache_updates";
const NEW_VALUES: &str = "value_cache_updates";

/// Interface of a decoder.
#[derive(Debug)]
pub(super) struct Shape {
    /// Inputs with their element class.
    inputs: Vec<(String, Class)>,
    /// Elements of a token in either cache.
    width: usize,
    /// Capacity of a cache in tokens.
    pub(super) length: usize,
    /// Dimensions of the encoder's states.
    states: Vec<usize>,
}

impl Shape {
    /// The interface of a model. An error if it differs.
    pub(super) fn of(model: &dyn Model) -> Result<Self, EngineError> {
        let interface = model.interface();
        let declared = |name: &str| {
            let input = interface.input(name);
            let input = input.ok_or_else(|| invalid_model(format!("{} takes no {name}", model.name())))?;
            fixed(input).ok_or_else(|| invalid_model(format!("{} has no fixed size of {name}", model.name())))
        };
        let (_, keys) = declared(KEYS)?;
        let &[1, width, 1, length] = keys.as_slice() else {
            let message =
                format!("{} takes {KEYS} {keys:?}, where [1, width, 1, tokens] is supported", model.name());
            return Err(invalid_model(message));
        };
        if width.checked_mul(length).is_none_or(|numbers| numbers > MAX_CACHE) {
            return Err(invalid_model(format!(
                "{} needs caches {keys:?}, of more than {MAX_CACHE} numbers",
                model.name()
            )));
        }
        let states = declared(STATES)?.1;
        let known = [
            (TOKEN, vec![1]),
            (POSITION, vec![1]),
            (KEYS, keys.clone()),
            (VALUES, keys.clone()),
            (UPDATED, vec![1, length]),
            (STATES, states.clone()),
            (PADDING, vec![1, length]),
        ];
        let mut inputs = Vec::new();
        for (name, wanted) in known {
            let (class, sizes) = declared(name)?;
            if sizes != wanted {
                let message =
                    format!("{} takes {name} {sizes:?}, where {wanted:?} fits the others", model.name());
                return Err(invalid_model(message));
            }
            inputs.push((name.to_owned(), class));
        }
        let strange =
            |feature: &&Feature| !feature.is_optional && inputs.iter().all(|(name, _)| *name != feature.name);
        if let Some(other) = interface.inputs.iter().find(strange) {
            return Err(invalid_model(format!("{} needs the unknown input {}", model.name(), other.name)));
        }
        for name in [LOGITS, NEW_KEYS, NEW_VALUES] {
            if interface.outputs.iter().all(|output| output.name != name) {
                return Err(invalid_model(format!("{} gives no {name}", model.name())));
            }
        }
        Ok(Self { inputs, width, length, states })
    }

    /// Starts decoding from the encoder's states.
    pub(super) fn begin<'m>(&'m self, model: &'m dyn Model, states: ArrayD<f32>) -> Decoding<'m> {
        let empty = || ArrayD::zeros(IxDyn(&[1, self.width, 1, self.length]));
        let row = Row { keys: empty(), values: empty(), length: 0 };
        Decoding { model, shape: self, states, rows: vec![row] }
    }
}

/// Texts during decoding.
#[derive(Debug)]
pub(super) struct Decoding<'m> {
    model: &'m dyn Model,
    shape: &'m Shape,
    states: ArrayD<f32>,
    rows: Vec<Row>,
}

/// One text: the cache of its tokens.
#[derive(Debug, Clone)]
struct Row {
    keys: ArrayD<f32>,
    values: ArrayD<f32>,
    length: usize,
}

impl Decoding<'_> {
    /// The logits after one more token of a row.
    fn logits_after(&mut self, row: usize, token: i64) -> Result<Vec<f32>, EngineError> {
        let (model, shape) = (self.model, self.shape);
        let row = &mut self.rows[row];
        let place = row.length;
        if place >= shape.length {
            return Err(invalid_model(format!(
                "the cache of {} holds {} tokens and is full",
                model.name(),
                shape.length
            )));
        }
        let one = |number: f32| ArrayD::from_elem(IxDyn(&[1]), number);
        let places = |number: &dyn Fn(usize) -> f32| {
            ArrayD::from_shape_fn(IxDyn(&[1, shape.length]), |at| number(at[1]))
        };
        let numbers = |name: &str| match name {
            TOKEN => one(token as f32),
            POSITION => one(place as f32),
            KEYS => row.keys.clone(),
            VALUES => row.values.clone(),
            UPDATED => places(&|at| f32::from(u8::from(at == place))),
            PADDING => places(&|at| if at <= place { 0.0 } else { HIDDEN }),
            _ => self.states.clone(),
        };
        let inputs =
            shape.inputs.iter().map(|(name, class)| (name.clone(), tensor(*class, numbers(name)))).collect();
        let mut outputs = model.run(inputs, &mut model.start()?)?;
        for (name, cache) in [(NEW_KEYS, &mut row.keys), (NEW_VALUES, &mut row.values)] {
            let slice = given_as(model, &mut outputs, name)?;
            if slice.len() != shape.width {
                return Err(invalid_model(format!(
                    "{} gives {name} {:?}, where a token has {} numbers",
                    model.name(),
                    slice.shape(),
                    shape.width
                )));
            }
            cache.slice_mut(s![0, .., 0, place]).iter_mut().zip(&slice).for_each(|(to, &from)| *to = from);
        }
        row.length += 1;
        let logits = given_as(model, &mut outputs, LOGITS)?;
        are_numbers(model, logits.iter())?;
        Ok(logits.iter().copied().collect())
    }
}

impl Decoder for Decoding<'_> {
    fn step(&mut self, tokens: ArrayView2<'_, i64>) -> Result<Array2<f32>, EngineError> {
        let expected = self.shape.states.as_slice();
        if self.states.shape() != expected {
            return Err(invalid_model(format!(
                "{} takes {STATES} {expected:?}, the encoder gives {:?}",
                self.model.name(),
                self.states.shape()
            )));
        }
        let (mut all, mut words) = (Vec::new(), 0);
        for (row, tokens) in tokens.rows().into_iter().enumerate() {
            let mut last = Vec::new();
            for &token in tokens {
                last = self.logits_after(row, token)?;
            }
            words = last.len();
            all.extend(last);
        }
        let rows = tokens.nrows();
        let logits = Array2::from_shape_vec((rows, words), all).ok().filter(|logits| !logits.is_empty());
        logits.ok_or_else(|| invalid_model(format!("{} gives no logits for some tokens", self.model.name())))
    }

    fn reorder(&mut self, order: &[usize]) -> Result<(), EngineError> {
        let is_same =
            order.len() == self.rows.len() && order.iter().enumerate().all(|(row, &from)| row == from);
        if !is_same {
            self.rows = order.iter().map(|&from| self.rows[from].clone()).collect();
        }
        Ok(())
    }
}
