//! Graphs that this program wrote.

use island_runtimes_kit::error::EngineError;
use ort::{environment::Environment, session::Session, value::DynValue};

use super::{Graph, Input, Resources, builder, computes, does_not_load, outputs::Output};
use crate::{gpu::Gpu, lanes::Lanes, onnx::Model, tensor_trace::TensorTrace};

/// Session option: the folder to which locations of weights are relative.
const FOLDER: &str = "session.model_external_initializers_file_folder_path";

/// A graph that this program wrote, with its weights.
#[derive(Debug)]
pub struct Written {
    /// The graph. Weights lie in files that it names relative to the root folder. The library maps them while it loads the graph, so that
    /// a GPU's weights are never in allocated memory.
    pub model: Model,
    /// Weights in memory by their names, instead of those that the graph names.
    pub tensors: Vec<(String, DynValue)>,
    /// Bytes of all weights.
    pub bytes: u64,
}

impl Graph {
    /// Loads a graph that this program wrote, on the GPU if there is one: never on the processor instead.
    pub fn written(
        environment: &Environment,
        name: &str,
        written: Written,
        resources: Resources,
    ) -> Result<Self, EngineError> {
        let Resources { gpu, .. } = resources;
        let reserved = gpu.map(|gpu| gpu.reserve(written.bytes)).transpose()?;
        let session =
            session(environment, written, resources).map_err(|error| does_not_load(name, gpu, error))?;
        if let Some(gpu) = gpu
            && !computes(gpu, name, &session)
        {
            return Err(EngineError::host(format!("{} runs no part of {name}", gpu.label())));
        }
        Ok(Self {
            name: name.to_owned(),
            gpu,
            reserved,
            inputs: session.inputs().iter().filter_map(Input::of).collect(),
            stated: session.outputs().iter().map(Output::of).collect(),
            outputs: session.outputs().iter().map(|output| output.name().to_owned()).collect(),
            lanes: Lanes::new(session, Vec::new()),
            scales_by_run: false,
            watch: TensorTrace::default(),
        })
    }
}

fn session(environment: &Environment, written: Written, resources: Resources) -> ort::Result<Session> {
    let mut builder = builder(environment, resources)?.with_config_entry(FOLDER, "/")?;
    for (name, tensor) in written.tensors {
        builder = builder.with_external_initializer(name, tensor)?;
    }
    let _turn = resources.gpu.map(Gpu::turn);
    builder.commit_from_memory(&written.model.to_bytes())
}
