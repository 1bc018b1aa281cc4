//! The networks as graphs in ONNX Runtime, on a GPU.

mod check;

use candle_core::{Device, Tensor};
use island_runtimes_graph::{Feeds, Graph, Resources, Results, Written};
use island_runtimes_kit::error::EngineError;
use ndarray::{Array1, ArrayD, IxDyn};
use ort::{environment::Environment, value::Tensor as OrtTensor};
use parking_lot::Mutex;

use super::{Networks, Parts};
use crate::{
    compute::Computed,
    error::compute_error,
    lora::Adapters,
    lower::{Converted, Finished, Lowering, Options},
    text::clip::{self, ClipText, Encoded},
    unet::{self, Unet},
    vae::Vae,
    weights::{Element, Weights},
};

/// Maximum bytes of attention scores in the autoencoder: GPUs limit the size of a buffer.
pub const MAX_SCORES: u64 = 256 << 20;

/// What runs graphs.
#[derive(Debug, Clone, Copy)]
pub struct Engine {
    /// ONNX Runtime.
    pub environment: &'static Environment,
    /// The GPU; without one the processor runs the graphs, for tests.
    pub resources: Resources,
    /// Elements of the networks, but for the autoencoder, which computes in `f32`.
    pub element: Element,
}

impl Engine {
    /// The engine of a GPU, in half precision if it computes so.
    pub fn new(environment: &'static Environment, resources: Resources) -> Self {
        let has_half = resources.gpu.is_some_and(island_runtimes_graph::gpu::Gpu::has_half);
        Self { environment, resources, element: if has_half { Element::F16 } else { Element::F32 } }
    }

    fn load(&self, name: &str, finished: Finished, bytes: u64) -> Result<Graph, EngineError> {
        let failed =
            |error: ort::Error| EngineError::host(format!("place a weight of {name}")).because(error);
        let tensor = |shape: Vec<i64>, converted| match converted {
            Converted::F16(numbers) => OrtTensor::from_array((shape, numbers)).map(OrtTensor::into_dyn),
            Converted::F32(numbers) => OrtTensor::from_array((shape, numbers)).map(OrtTensor::into_dyn),
        };
        let Finished { model, converted } = finished;
        let tensors = converted
            .into_iter()
            .map(|(name, shape, converted)| Ok((name, tensor(shape, converted)?)))
            .collect::<ort::Result<_>>()
            .map_err(failed)?;
        Graph::written(self.environment, name, Written { model, tensors, bytes }, self.resources)
    }
}

/// A loaded graph with the changes that its weights contain.
#[derive(Debug)]
struct Loaded {
    key: String,
    graph: Graph,
}

/// The networks as graphs. Each is written and loaded when it is first needed, and again if the adapters or the size of attention change.
#[derive(Debug)]
pub struct Graphs {
    engine: Engine,
    parts: Parts,
    is_fused: bool,
    no_adapters: Adapters,
    texts: Vec<Mutex<Option<Loaded>>>,
    unet: Mutex<Option<Loaded>>,
    encoder: Mutex<Option<Loaded>>,
    decoder: Mutex<Option<Loaded>>,
}

impl Graphs {
    /// Checks all settings and weights, and loads the denoising network with these adapters.
    pub fn load(parts: Parts, engine: &Engine, adapters: &Adapters) -> Result<Self, EngineError> {
        let is_fused = check::fused_attention(engine, &parts)?;
        tracing::info!(element = ?engine.element, is_fused, "the networks run as graphs");
        let graphs = Self {
            engine: *engine,
            is_fused,
            no_adapters: Adapters::default(),
            texts: parts.texts.iter().map(|_| Mutex::default()).collect(),
            unet: Mutex::default(),
            encoder: Mutex::default(),
            decoder: Mutex::default(),
            parts,
        };
        graphs.check()?;
        graphs.with_unet(adapters, |_| Ok(()))?;
        Ok(graphs)
    }

    /// Rejects settings and weights that do not fit each other, also of networks that are loaded later.
    fn check(&self) -> Result<(), EngineError> {
        for (config, weights) in &self.parts.texts {
            ClipText::<crate::lower::Stored>::load(config, weights)?;
        }
        Vae::<crate::lower::Stored>::load(&self.parts.vae.0, &self.parts.vae.1).map(drop)
    }

    /// Runs a network, which is loaded first unless it is there with this key.
    fn with<T>(
        &self,
        slot: &Mutex<Option<Loaded>>,
        key: String,
        write: impl FnOnce() -> Computed<(Finished, u64)>,
        run: impl FnOnce(&Graph) -> Computed<T>,
    ) -> Computed<T> {
        let mut slot = slot.lock();
        if slot.as_ref().is_none_or(|loaded| loaded.key != key) {
            // Its memory is free before the next one is loaded.
            *slot = None;
            let (finished, bytes) = write()?;
            let name = finished.name();
            let graph = self.engine.load(&name, finished, bytes)?;
            *slot = Some(Loaded { key, graph });
        }
        let loaded = slot.as_ref().ok_or_else(|| EngineError::host("a network was not kept"))?;
        run(&loaded.graph)
    }

    fn lowering<'l>(&'l self, weights: &'l Weights, adapters: &'l Adapters) -> Lowering<'l> {
        let options = Options { element: self.engine.element, fused_attention: self.is_fused, pieces: 1 };
        Lowering::new(weights, adapters, options)
    }

    fn bytes(&self, weights: &Weights) -> u64 {
        weights.numbers() * self.engine.element.bytes()
    }

    fn with_unet<T>(&self, adapters: &Adapters, run: impl FnOnce(&Graph) -> Computed<T>) -> Computed<T> {
        let (config, weights) = &self.parts.unet;
        let write = || {
            let network = Unet::load(config, weights)?;
            let mut graph = self.lowering(weights, adapters);
            let inputs = unet::Inputs {
                sample: graph.image_input("sample", config.in_channels),
                states: Some(graph.rows_input("states")),
                time: graph.vector_input("time"),
                guidance: config.time_cond_proj_dim.map(|_| graph.vector_input("guidance")),
                pooled: config.addition_embed_type.as_ref().map(|_| graph.vector_input("pooled")),
                sizes: config.addition_embed_type.as_ref().map(|_| graph.vector_input("sizes")),
            };
            let predicted = network.forward(&mut graph, &inputs)?;
            graph.image_output("predicted", &predicted);
            Ok((graph.finish(), self.bytes(weights)))
        };
        self.with(&self.unet, adapters.key_of(weights.part()), write, run)
    }

    /// Runs a direction of the autoencoder, whose attention has this many rows.
    fn with_vae(
        &self,
        slot: &Mutex<Option<Loaded>>,
        (x, channels): (&Tensor, usize),
        rows: usize,
        forward: impl FnOnce(
            &Vae<crate::lower::Stored>,
            &mut Lowering<'_>,
            &crate::lower::Value,
        ) -> Computed<crate::lower::Value>,
    ) -> Computed<Tensor> {
        let (config, weights) = &self.parts.vae;
        let pieces = pieces(rows);
        let write = || {
            let network = Vae::load(config, weights)?;
            let options = Options { element: Element::F32, fused_attention: false, pieces };
            let mut graph = Lowering::new(weights, &self.no_adapters, options);
            let x = graph.image_input("x", channels);
            let y = forward(&network, &mut graph, &x)?;
            graph.image_output("y", &y);
            // Each direction has about half of the weights.
            Ok((graph.finish(), weights.numbers() * Element::F32.bytes() / 2))
        };
        self.with(slot, pieces.to_string(), write, |graph| {
            tensor(&graph.run(Feeds::new().floats("x", array(x)?))?, "y")
        })
    }
}

impl Networks for Graphs {
    fn encode(
        &self,
        encoder: usize,
        ids: &[u32],
        layer: usize,
        adapters: &Adapters,
    ) -> Computed<Encoded<Tensor>> {
        let (config, weights) = &self.parts.texts[encoder];
        let write = || {
            let network = ClipText::load(config, weights)?;
            let mut graph = self.lowering(weights, adapters);
            let inputs = clip::Inputs {
                ids: graph.integers_input("ids", ids.len()),
                end: graph.integers_input("end", 1),
                layer: graph.integers_input("layer", 1),
            };
            let encoded = network.forward(&mut graph, &inputs, ids.len())?;
            graph.rows_output("state", &encoded.state);
            graph.rows_output("normed", &encoded.normed);
            graph.rows_output("pooled", &encoded.pooled);
            Ok((graph.finish(), self.bytes(weights)))
        };
        let key = format!("{} tokens {}", ids.len(), adapters.key_of(weights.part()));
        self.with(&self.texts[encoder], key, write, |graph| {
            let numbers = |numbers: Vec<i64>| Array1::from_vec(numbers).into_dyn();
            let feeds = Feeds::new()
                .ints("ids", numbers(ids.iter().copied().map(i64::from).collect()))
                .ints("end", numbers(vec![config.end(ids) as i64]))
                .ints("layer", numbers(vec![layer as i64]));
            let results = graph.run(feeds)?;
            let rows =
                |name| tensor(&results, name)?.unsqueeze(0).map_err(compute_error("read an encoded prompt"));
            Ok(Encoded {
                state: rows("state")?,
                normed: rows("normed")?,
                pooled: tensor(&results, "pooled")?,
            })
        })
    }

    fn predict(&self, inputs: &unet::Inputs<Tensor>, adapters: &Adapters) -> Computed<Tensor> {
        let named = [
            ("sample", Some(&inputs.sample)),
            ("states", inputs.states.as_ref()),
            ("time", Some(&inputs.time)),
            ("guidance", inputs.guidance.as_ref()),
            ("pooled", inputs.pooled.as_ref()),
            ("sizes", inputs.sizes.as_ref()),
        ];
        let mut feeds = Feeds::new();
        for (name, given) in named {
            if let Some(given) = given {
                feeds = feeds.floats(name, array(given)?);
            }
        }
        self.with_unet(adapters, |graph| tensor(&graph.run(feeds)?, "predicted"))
    }

    fn moments(&self, pictures: &Tensor) -> Computed<Tensor> {
        let scale = self.parts.vae.0.scale();
        let rows = pixels(pictures)? / (scale * scale);
        self.with_vae(&self.encoder, (pictures, 3), rows, |vae, graph, x| vae.encode(graph, x))
    }

    fn picture(&self, latents: &Tensor) -> Computed<Tensor> {
        let channels = self.parts.vae.0.latent_channels;
        let rows = pixels(latents)?;
        self.with_vae(&self.decoder, (latents, channels), rows, |vae, graph, x| vae.decode(graph, x))
    }

    fn describe(&self) -> String {
        let on = self.device().unwrap_or_else(|| "the CPU".to_owned());
        let element = match self.engine.element {
            Element::F16 => "f16",
            Element::F32 => "f32",
        };
        format!("ONNX Runtime on {on} in {element}")
    }

    fn device(&self) -> Option<String> {
        self.engine.resources.gpu.map(island_runtimes_graph::gpu::Gpu::label)
    }

    fn gpu_bytes(&self) -> u64 {
        let is_on_gpu = self.engine.resources.gpu.is_some();
        if is_on_gpu { self.parts.bytes(self.engine.element) } else { 0 }
    }

    fn costs(&self) -> super::Costs {
        super::Costs { element: self.engine.element, keeps_scores: !self.is_fused, keeps_vae_scores: true }
    }
}

/// Pieces of an attention that bound the memory of its scores in `f32`.
pub fn pieces(rows: usize) -> usize {
    let bytes = (rows as u64).pow(2) * Element::F32.bytes();
    (bytes.div_ceil(MAX_SCORES).max(1) as usize).next_power_of_two()
}

fn pixels(image: &Tensor) -> Computed<usize> {
    let (_, height, width, _) = image.dims4().map_err(compute_error("measure an image"))?;
    Ok(height * width)
}

fn array(tensor: &Tensor) -> Computed<ArrayD<f32>> {
    let values = tensor.flatten_all().and_then(|flat| flat.to_vec1::<f32>());
    let values = values.map_err(compute_error("pass a tensor to a graph"))?;
    ArrayD::from_shape_vec(IxDyn(tensor.dims()), values)
        .map_err(|error| EngineError::host("pass a tensor to a graph").because(error))
}

fn tensor(results: &Results, name: &str) -> Computed<Tensor> {
    let array = results.floats(name)?;
    let shape = array.shape().to_vec();
    let (values, _) = array.into_raw_vec_and_offset();
    Tensor::from_vec(values, shape, &Device::Cpu).map_err(compute_error("take a tensor from a graph"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_bound_the_scores_and_are_fewer_than_rows(rows in 1_usize..1 << 18) {
            let pieces = pieces(rows);
            let bytes = rows.div_ceil(pieces) as u64 * rows as u64 * Element::F32.bytes();
            prop_assert!(bytes <= MAX_SCORES + rows as u64 * Element::F32.bytes());
            prop_assert!(pieces == 1 || rows / pieces >= 1);
        }
    }
}
