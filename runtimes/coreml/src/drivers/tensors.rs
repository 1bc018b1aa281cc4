//! Any inputs and outputs as JSON, for models without another driver.

use island_runtimes_kit::{
    error::{EngineError, invalid_input, invalid_model},
    job::{Answer, Job},
    media::picture,
    pipeline::Pipeline,
};
use ndarray::{ArrayD, ArrayViewD, IxDyn};
use serde_json::{Map, Value, json};

use super::{
    Parts,
    picture::{Fit, ImageInput},
};
use crate::{
    model::{Tensor, Tensors},
    package::interface::{Feature, Kind},
    program::types::Class,
};

/// Maximum number of elements of an input or an answer.
const MAX_NUMBERS: usize = 4 << 20;
/// Maximum number of steps of one job.
const MAX_STEPS: usize = 100_000;
/// Maximum nesting of an array.
const MAX_RANK: usize = 16;

struct Generic {
    parts: Parts,
    /// The image input, if the model has one.
    image_input: Option<ImageInput>,
}

/// Loads the driver.
pub fn load(parts: Parts) -> Result<Box<dyn Pipeline>, EngineError> {
    let has_picture = parts.model.interface().image().is_some();
    let image_input = if has_picture { Some(ImageInput::of(&parts, Fit::Fill)?) } else { None };
    Ok(Box::new(Generic { parts, image_input }))
}

impl Pipeline for Generic {
    /// `inputs` are arrays by name, or a list of them: the steps of one job, which share the model's states.
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let model = &self.parts.model;
        let inputs = input.get("inputs").ok_or_else(|| invalid_input("inputs are missing"))?;
        let (steps, is_list): (Vec<&Value>, bool) = match inputs {
            Value::Array(steps) => (steps.iter().collect(), true),
            one => (vec![one], false),
        };
        if steps.is_empty() || steps.len() > MAX_STEPS {
            return Err(invalid_input(format!("inputs must be 1 to {MAX_STEPS} steps")));
        }
        let (mut state, mut outputs, mut left) = (model.start()?, Vec::new(), MAX_NUMBERS);
        for step in steps {
            job.step()?;
            let given = model.run(self.read(step)?, &mut state)?;
            outputs.push(written(&given, &mut left)?);
        }
        let outputs = if is_list { Value::Array(outputs) } else { outputs.swap_remove(0) };
        Ok(Answer::of(json!({ "outputs": outputs }), 0))
    }

    fn example(&self) -> Option<Value> {
        None
    }

    fn graphs(&self) -> Vec<String> {
        vec![self.parts.model.name().to_owned()]
    }
}

impl Generic {
    fn read(&self, step: &Value) -> Result<Tensors, EngineError> {
        let given = step.as_object().ok_or_else(|| invalid_input("inputs must be arrays by name"))?;
        let interface = self.parts.model.interface();
        if let Some(name) = given.keys().find(|name| interface.input(name).is_none()) {
            let known: Vec<&str> = interface.inputs.iter().map(|feature| feature.name.as_str()).collect();
            return Err(invalid_input(format!(
                "the model has no input {name:?}; it has: {}",
                known.join(", ")
            )));
        }
        let one = |feature: &Feature| {
            let value = given.get(&feature.name);
            let value = value
                .ok_or_else(|| invalid_input(format!("the model's input {} is missing", feature.name)))?;
            if let (Some(image_input), Some(text)) = (&self.image_input, value.as_str()) {
                return Ok(image_input.convert(&picture::read(text, "the image")?));
            }
            let class = match &feature.kind {
                Kind::Array { class, .. } => *class,
                _ => Class::Float,
            };
            Ok((feature.name.clone(), array(value, class, &feature.name)?))
        };
        interface.inputs.iter().map(one).collect()
    }
}

fn array(value: &Value, class: Class, name: &str) -> Result<Tensor, EngineError> {
    let (mut shape, mut inner) = (Vec::new(), value);
    while let Value::Array(items) = inner {
        shape.push(items.len());
        match items.first() {
            Some(first) if shape.len() < MAX_RANK => inner = first,
            _ => break,
        }
    }
    let mut numbers = Vec::new();
    flatten(value, &shape, &mut numbers)
        .map_err(|why| invalid_input(format!("the model's input {name} {why}")))?;
    let array = ArrayD::from_shape_vec(IxDyn(&shape), numbers);
    let array =
        array.map_err(|_| invalid_input(format!("the model's input {name} is not a rectangular array")))?;
    Ok(match class {
        Class::Float => Tensor::Floats(array.mapv(|number| number as f32)),
        _ => Tensor::Ints(array.mapv(|number| number as i64)),
    })
}

fn flatten(value: &Value, shape: &[usize], numbers: &mut Vec<f64>) -> Result<(), String> {
    match (value, shape) {
        (Value::Array(items), [length, rest @ ..]) if items.len() == *length => {
            items.iter().try_for_each(|item| flatten(item, rest, numbers))
        }
        (Value::Number(number), []) if numbers.len() < MAX_NUMBERS => {
            numbers.push(number.as_f64().unwrap_or(f64::NAN));
            Ok(())
        }
        (Value::Bool(flag), []) if numbers.len() < MAX_NUMBERS => {
            numbers.push(f64::from(u8::from(*flag)));
            Ok(())
        }
        (Value::Number(_) | Value::Bool(_), []) => Err(format!("has more than {MAX_NUMBERS} numbers")),
        _ => Err("is not a rectangular array of numbers".to_owned()),
    }
}

fn written(tensors: &Tensors, left: &mut usize) -> Result<Value, EngineError> {
    let mut outputs = Map::new();
    for (name, tensor) in tensors {
        let count = tensor.shape().iter().product();
        *left = left
            .checked_sub(count)
            .ok_or_else(|| invalid_model(format!("the model gives more than {MAX_NUMBERS} numbers")))?;
        let value = match tensor {
            Tensor::Floats(array) => nested(&array.view(), &|&number| json!(number)),
            Tensor::Ints(array) => nested(&array.view(), &|&number| json!(number)),
        };
        outputs.insert(name.clone(), value);
    }
    Ok(Value::Object(outputs))
}

fn nested<T>(array: &ArrayViewD<'_, T>, number: &dyn Fn(&T) -> Value) -> Value {
    if array.ndim() == 0 {
        return array.first().map_or(Value::Null, number);
    }
    Value::Array(array.outer_iter().map(|inner| nested(&inner, number)).collect())
}
