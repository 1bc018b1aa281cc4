//! `modules.json`: what follows the network of an embedding model, in the form of `sentence-transformers`.
//!
//! A graph either contains all of it or ends with the states of tokens. What it lacks is computed here, from weights in `safetensors` files.

use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    keys::{DENSE, DROPOUT, LAYER_NORM, NORMALIZE, POOLING, Table, unsupported},
    repository::Repository,
};
use ndarray::{Array1, Array2};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::Value;

use crate::text::sentence;

/// `torch.nn.LayerNorm`'s.
const EPSILON: f32 = 1e-5;
const FILE: &str = "modules.json";

/// A step after the pooling.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Module {
    /// A matrix product.
    Dense {
        /// Output x input.
        weight: Array2<f32>,
        /// Is added.
        bias: Option<Array1<f32>>,
        /// Follows.
        activation: Activation,
    },
    /// Mean 0 and variance 1, scaled and shifted.
    LayerNorm {
        /// Factor of each number.
        weight: Array1<f32>,
        /// Is added to each number.
        bias: Array1<f32>,
    },
    /// Length 1, before another step.
    Normalize,
}

/// What follows a matrix product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activation {
    Identity,
    Tanh,
    Relu,
    Sigmoid,
}

/// The modules of a repository.
#[derive(Debug, Default)]
pub(super) struct Modules {
    /// Settings of the pooling.
    pub(super) pooling: Value,
    /// What follows the pooling.
    pub(super) after: Vec<Module>,
    /// Whether vectors have length 1 at the end.
    pub(super) normalises: bool,
}

/// Reads the modules that a graph does not contain; `has_modules`: it contains all of them.
pub(super) fn load(repository: &Repository, has_modules: bool) -> Result<Modules, EngineError> {
    let Some(listed) = sentence::modules(repository)? else {
        let pooling = settings(repository, "1_Pooling", &POOLING)?;
        return Ok(Modules { pooling, ..Modules::default() });
    };
    let mut modules = Modules::default();
    for module in &listed {
        let kind = module.get("type").and_then(Value::as_str).unwrap_or_default();
        let path = module.get("path").and_then(Value::as_str).unwrap_or_default();
        let class = sentence::class(kind);
        if modules.normalises && !matches!(class, "Normalize" | "Dropout") {
            modules.after.push(Module::Normalize);
            modules.normalises = false;
        }
        match class {
            "Transformer" => {}
            "Pooling" => {
                modules.pooling = settings(repository, path, &POOLING)?;
            }
            "Normalize" => {
                settings(repository, path, &NORMALIZE)?;
                modules.normalises = true;
            }
            "Dropout" => drop(settings(repository, path, &DROPOUT)?),
            "Dense" | "LayerNorm" if has_modules => {}
            "Dense" => modules.after.push(dense(repository, path)?),
            "LayerNorm" => modules.after.push(layer_norm(repository, path)?),
            _ => return Err(unsupported(FILE, "type", &kind.into())),
        }
    }
    Ok(modules)
}

fn dense(repository: &Repository, path: &str) -> Result<Module, EngineError> {
    let config = settings(repository, path, &DENSE)?;
    let named = config.get("activation_function").and_then(Value::as_str);
    let class = named.map_or("Tanh", |name| name.rsplit('.').next().unwrap_or_default());
    let activation = match class {
        "Identity" => Activation::Identity,
        "Tanh" => Activation::Tanh,
        "ReLU" => Activation::Relu,
        "Sigmoid" => Activation::Sigmoid,
        _ => return Err(unsupported(DENSE.file, "activation_function", &config["activation_function"])),
    };
    let weights = weights(repository, path)?;
    let tensors = Tensors::of(path, &weights)?;
    let has_bias = config.get("bias").and_then(Value::as_bool).unwrap_or(true);
    let bias = has_bias.then(|| tensors.vector("linear.bias")).transpose()?;
    Ok(Module::Dense { weight: tensors.matrix("linear.weight")?, bias, activation })
}

fn layer_norm(repository: &Repository, path: &str) -> Result<Module, EngineError> {
    settings(repository, path, &LAYER_NORM)?;
    let weights = weights(repository, path)?;
    let tensors = Tensors::of(path, &weights)?;
    Ok(Module::LayerNorm { weight: tensors.vector("norm.weight")?, bias: tensors.vector("norm.bias")? })
}

/// The settings of a module; null if it has none. An error if one of them is not supported.
fn settings(repository: &Repository, path: &str, table: &Table) -> Result<Value, EngineError> {
    let file = format!("{path}/config.json");
    let settings = repository.json(&file)?.unwrap_or_default();
    table.check_at(&file, &settings)?;
    Ok(settings)
}

fn weights(repository: &Repository, path: &str) -> Result<Vec<u8>, EngineError> {
    let file = format!("{path}/model.safetensors");
    let missing = || invalid_model(format!("{FILE} names {path}, and the Cargo lists no {file}"));
    repository.bytes(&file)?.ok_or_else(missing)
}

struct Tensors<'b> {
    path: &'b str,
    tensors: SafeTensors<'b>,
}

impl<'b> Tensors<'b> {
    fn of(path: &'b str, bytes: &'b [u8]) -> Result<Self, EngineError> {
        let tensors = SafeTensors::deserialize(bytes);
        let tensors =
            tensors.map_err(|error| invalid_model(format!("{path}/model.safetensors")).because(error))?;
        Ok(Self { path, tensors })
    }

    fn tensor(&self, name: &str, sides: usize) -> Result<(Vec<usize>, Vec<f32>), EngineError> {
        let found = self.tensors.tensor(name).ok().filter(|tensor| tensor.shape().len() == sides);
        let numbers = found.as_ref().and_then(numbers);
        match (found, numbers) {
            (Some(tensor), Some(numbers)) => Ok((tensor.shape().to_vec(), numbers)),
            _ => Err(invalid_model(format!(
                "{}/model.safetensors has no {name} of {sides} dimensions",
                self.path
            ))),
        }
    }

    fn vector(&self, name: &str) -> Result<Array1<f32>, EngineError> {
        Ok(self.tensor(name, 1)?.1.into())
    }

    fn matrix(&self, name: &str) -> Result<Array2<f32>, EngineError> {
        let (shape, numbers) = self.tensor(name, 2)?;
        Array2::from_shape_vec((shape[0], shape[1]), numbers)
            .map_err(|error| invalid_model(format!("{}/model.safetensors: {name}", self.path)).because(error))
    }
}

/// The numbers of a tensor of 32 or 16 bits.
fn numbers(tensor: &TensorView<'_>) -> Option<Vec<f32>> {
    let bytes = tensor.data();
    let halves =
        |convert: fn([u8; 2]) -> f32| bytes.as_chunks::<2>().0.iter().map(|&half| convert(half)).collect();
    Some(match tensor.dtype() {
        Dtype::F32 => bytes.as_chunks::<4>().0.iter().map(|&number| f32::from_le_bytes(number)).collect(),
        Dtype::F16 => halves(|half| half::f16::from_le_bytes(half).to_f32()),
        Dtype::BF16 => halves(|half| half::bf16::from_le_bytes(half).to_f32()),
        _ => return None,
    })
}

impl Module {
    /// The vector after this step. An error if the vector has another length than the weights.
    pub(super) fn apply(&self, mut vector: Array1<f32>) -> Result<Array1<f32>, EngineError> {
        let fits = |length: usize| {
            let message =
                format!("the pooled vector has {} numbers, and {FILE} continues with {length}", vector.len());
            if vector.len() == length { Ok(()) } else { Err(invalid_model(message)) }
        };
        match self {
            Self::Normalize => {
                let length = vector.dot(&vector).sqrt().max(1e-12);
                vector /= length;
            }
            Self::LayerNorm { weight, bias } => {
                fits(weight.len()).and(fits(bias.len()))?;
                let mean = vector.mean().unwrap_or_default();
                let variance = vector.mapv(|number| (number - mean).powi(2)).mean().unwrap_or_default();
                vector = (vector - mean) / (variance + EPSILON).sqrt() * weight + bias;
            }
            Self::Dense { weight, bias, activation } => {
                fits(weight.ncols())?;
                let mut product = weight.dot(&vector);
                if let Some(bias) = bias {
                    if bias.len() != product.len() {
                        return Err(invalid_model(format!(
                            "{FILE}: weight and bias of a dense layer do not fit"
                        )));
                    }
                    product += bias;
                }
                vector = product.mapv_into(|number| activation.of(number));
            }
        }
        Ok(vector)
    }
}

impl Activation {
    fn of(self, number: f32) -> f32 {
        match self {
            Self::Identity => number,
            Self::Tanh => number.tanh(),
            Self::Relu => number.max(0.0),
            Self::Sigmoid => 1.0 / (1.0 + (-number).exp()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use ndarray::arr1;
    use serde_json::json;

    use super::*;

    fn repository(files: &[(&str, Vec<u8>)]) -> (tempfile::TempDir, Repository) {
        let folder = tempfile::tempdir().expect("temporary folder");
        let stored: BTreeMap<_, _> = files
            .iter()
            .map(|(name, content)| {
                let path = folder.path().join(name.replace('/', "-"));
                fs::write(&path, content).expect("write");
                ((*name).to_owned(), path)
            })
            .collect();
        let repository = Repository::open(stored).expect("files");
        (folder, repository)
    }

    fn tensors(tensors: &[(&str, &[usize], &[f32])]) -> Vec<u8> {
        let bytes: Vec<Vec<u8>> = tensors
            .iter()
            .map(|(_, _, numbers)| numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
            .collect();
        let views = tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
            (*name, TensorView::new(Dtype::F32, shape.to_vec(), bytes).expect("a tensor"))
        });
        safetensors::serialize(views, None).expect("a file")
    }

    fn modules(kinds: &[&str]) -> Vec<u8> {
        let entry = |(place, kind): (usize, &&str)| json!({"idx": place, "path": format!("{place}_{kind}"), "type": format!("sentence_transformers.models.{kind}")});
        serde_json::to_vec(&kinds.iter().enumerate().map(entry).collect::<Vec<_>>()).expect("JSON")
    }

    #[test]
    fn layers_after_the_pooling_are_computed_in_their_order() {
        let files = [
            ("modules.json", modules(&["Transformer", "Pooling", "Dense", "Normalize", "LayerNorm"])),
            ("1_Pooling/config.json", br#"{"pooling_mode": "cls"}"#.to_vec()),
            (
                "2_Dense/config.json",
                br#"{"bias": true, "activation_function": "torch.nn.modules.linear.Identity"}"#.to_vec(),
            ),
            (
                "2_Dense/model.safetensors",
                tensors(&[
                    ("linear.weight", &[2, 3], &[1., 0., 0., 0., 1., 1.]),
                    ("linear.bias", &[2], &[0., 1.]),
                ]),
            ),
            (
                "4_LayerNorm/model.safetensors",
                tensors(&[("norm.weight", &[2], &[2., 2.]), ("norm.bias", &[2], &[0., 1.])]),
            ),
        ];
        let (_folder, repository) = repository(&files);
        let found = load(&repository, false).expect("known");
        assert_eq!(found.pooling["pooling_mode"], "cls");
        assert!(!found.normalises, "vectors are normalized before the last step, not after it");
        let vector = arr1(&[3.0, 1.0, 2.0]);
        let steps: Vec<Array1<f32>> = found
            .after
            .iter()
            .scan(vector, |vector, module| {
                *vector = module.apply(vector.clone()).expect("it fits");
                Some(vector.clone())
            })
            .collect();
        assert_eq!(steps[0], arr1(&[3.0, 4.0]));
        assert_eq!(steps[1], arr1(&[0.6, 0.8]));
        for (number, expected) in steps[2].iter().zip([-1.999, 2.999]) {
            assert!((number - expected).abs() < 1e-4, "{number}");
        }
        assert!(found.after[0].apply(arr1(&[1.0])).is_err(), "a vector of another length");
    }

    #[test]
    fn unknown_modules_and_missing_weights_are_refused_by_name() {
        let refused = |files: &[(&str, Vec<u8>)]| {
            let (_folder, repository) = repository(files);
            load(&repository, false).expect_err("refused").message()
        };
        let unknown = refused(&[("modules.json", modules(&["Transformer", "WeightedLayerPooling"]))]);
        let class = "sentence_transformers.models.WeightedLayerPooling";
        assert_eq!(unknown, format!("modules.json: type = {class:?} is not supported"));
        let own = br#"[{"idx": 0, "name": "0", "path": "", "type": "custom_st.Transformer"}]"#.to_vec();
        let own = refused(&[("modules.json", own)]);
        assert_eq!(own, "modules.json: type = \"custom_st.Transformer\" is not supported");
        let median = br#"{"pooling_mode_median_tokens": true}"#.to_vec();
        let median = refused(&[
            ("modules.json", modules(&["Transformer", "Pooling"])),
            ("1_Pooling/config.json", median),
        ]);
        assert_eq!(median, "1_Pooling/config.json: pooling_mode_median_tokens = true is not supported");
        let missing = refused(&[("modules.json", modules(&["Transformer", "Dense"]))]);
        assert!(missing.contains("1_Dense/model.safetensors"), "{missing}");
        let strange = br#"{"activation_function": "torch.nn.modules.activation.Mish"}"#.to_vec();
        let strange = refused(&[
            ("modules.json", modules(&["Transformer", "Dense"])),
            ("1_Dense/config.json", strange),
        ]);
        assert!(strange.contains("activation_function") && strange.contains("Mish"), "{strange}");
    }

    #[test]
    fn a_graph_with_all_modules_needs_no_weights() {
        let (_folder, repository) =
            repository(&[("modules.json", modules(&["Transformer", "Pooling", "Dense", "Normalize"]))]);
        let found = load(&repository, true).expect("known");
        assert!(found.after.is_empty() && found.normalises);
    }
}
