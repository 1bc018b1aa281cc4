//! One loaded graph: its inputs and outputs, running it.
//!
//! Repositories differ in the inputs of their graphs. A task provides its tensors by name; those that the graph lacks are dropped, and missing
//! inputs get a default where they can have only one value: no second segment, every position attended to, an empty cache.

mod failure;
mod outputs;
mod written;

use std::{fs, sync::Arc};

use half::f16;
use island_runtimes_kit::{
    error::{EngineError, ErrorKind, invalid_model},
    stop::{self, Stop},
};
use ndarray::{ArrayD, ArrayViewD, IxDyn};
use ort::{
    environment::Environment,
    ep::CPU,
    session::{
        RunOptions, Session, SessionInputValue,
        builder::{GraphOptimizationLevel, SessionBuilder},
    },
    value::{DynValue, Tensor, TensorElementType, ValueType},
};

use crate::{
    default_inputs,
    files::{GraphFiles, Preference},
    gpu::{Gpu, Reserved},
    inspect,
    lanes::{self, Lane, Lanes},
    native,
    tensor_trace::TensorTrace,
    weights::{File, Weights},
};

use self::{failure::failed, outputs::Output};
pub use written::Written;

/// Maximum number of bytes of weights that each lane keeps for itself.
const MAX_UNSHARED: usize = 16 << 20;

/// Resources of a graph.
#[derive(Debug, Clone, Copy)]
pub struct Resources {
    /// CPU threads of one run.
    pub threads: usize,
    /// The GPU that runs graphs which it can compute; `None` runs all on the processor.
    pub gpu: Option<&'static Gpu>,
}

impl Resources {
    /// Threads of the processor.
    pub fn cpu(threads: usize) -> Self {
        Self { threads, gpu: None }
    }

    /// Which files of a graph are preferred.
    pub fn preference(&self) -> Preference {
        match self.gpu {
            None => Preference::Cpu,
            Some(gpu) => Preference::Gpu { half: gpu.has_half() },
        }
    }
}

/// A loaded graph.
#[derive(Debug)]
pub struct Graph {
    name: String,
    lanes: Lanes,
    inputs: Vec<Input>,
    outputs: Vec<String>,
    /// The same with their sizes.
    stated: Vec<Output>,
    scales_by_run: bool,
    gpu: Option<&'static Gpu>,
    /// The GPU's memory that its sessions use, if they may run nodes there; dropped after them.
    reserved: Option<Reserved>,
    watch: TensorTrace,
}

/// An input of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Its name.
    pub name: String,
    /// Element type.
    pub kind: TensorElementType,
    /// Dimensions, -1 where any size is valid.
    pub shape: Vec<i64>,
}

/// A tensor for a graph.
#[derive(Debug)]
pub enum Feed<'v> {
    /// Token ids, masks, positions.
    Ints(ArrayD<i64>),
    /// Pixels, samples, features.
    Floats(ArrayD<f32>),
    /// Flags.
    Bools(ArrayD<bool>),
    /// The output of another run: an encoder's states, a cache.
    Held(&'v DynValue),
}

/// Tensors by name.
#[derive(Debug, Default)]
pub struct Feeds<'v>(pub(crate) Vec<(String, Feed<'v>)>);

impl<'v> Feeds<'v> {
    /// No tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds integers.
    #[must_use]
    pub fn ints(self, name: &str, array: impl Into<ArrayD<i64>>) -> Self {
        self.with(name, Feed::Ints(array.into()))
    }

    /// Adds real numbers.
    #[must_use]
    pub fn floats(self, name: &str, array: impl Into<ArrayD<f32>>) -> Self {
        self.with(name, Feed::Floats(array.into()))
    }

    /// Adds the output of another run.
    #[must_use]
    pub fn held(self, name: &str, value: &'v DynValue) -> Self {
        self.with(name, Feed::Held(value))
    }

    /// Adds any tensor.
    #[must_use]
    pub fn with(mut self, name: &str, feed: Feed<'v>) -> Self {
        self.0.push((name.to_owned(), feed));
        self
    }

    fn take(&mut self, name: &str) -> Option<Feed<'v>> {
        let place = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(place).1)
    }
}

/// The outputs of a run by name.
#[derive(Debug)]
pub struct Results {
    graph: String,
    values: Vec<(String, DynValue)>,
}

impl Results {
    /// A required output as real numbers. An error if it contains NaN.
    pub fn floats(&self, name: &str) -> Result<ArrayD<f32>, EngineError> {
        let value = self.get(name).ok_or_else(|| invalid_model(format!("{} gives no {name}", self.graph)))?;
        let array = floats(value)
            .map_err(|error| invalid_model(format!("{name} of {}", self.graph)).because(error))?;
        if array.iter().any(|number| number.is_nan()) {
            return Err(invalid_model(format!(
                "{name} of {} is not a number: its weights are broken",
                self.graph
            )));
        }
        Ok(array)
    }

    /// The first of these outputs that the graph has, as real numbers.
    pub fn first_floats(&self, names: &[&str]) -> Result<ArrayD<f32>, EngineError> {
        let there = names.iter().find(|name| self.get(name).is_some());
        self.floats(there.copied().unwrap_or(names[0]))
    }

    /// The output with this name.
    pub fn get(&self, name: &str) -> Option<&DynValue> {
        self.values.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// All outputs, to be held for the next run.
    pub fn into_values(self) -> Vec<(String, DynValue)> {
        self.values
    }
}

impl Graph {
    /// Loads a graph from memory, so that no name inside it can make the library open a file. It runs once at a time, with all threads.
    pub fn load(
        environment: &Environment,
        files: &GraphFiles,
        resources: Resources,
    ) -> Result<Self, EngineError> {
        let (bytes, weights) = read(files)?;
        Self::open(environment, &files.name, &bytes, &weights, resources, 0)
    }

    /// The same for a graph with many short runs: several run concurrently if their sessions can share the weights.
    pub fn load_with_lanes(
        environment: &Environment,
        files: &GraphFiles,
        resources: Resources,
    ) -> Result<Self, EngineError> {
        let (bytes, weights) = read(files)?;
        Self::open(environment, &files.name, &bytes, &weights, resources, lanes::count(resources.threads))
    }

    /// Loads a graph from bytes, with its external weights by file name.
    pub fn of_bytes(
        environment: &Environment,
        name: &str,
        bytes: &[u8],
        weights: Vec<(String, Vec<u8>)>,
        resources: Resources,
    ) -> Result<Self, EngineError> {
        let weights: Vec<_> = weights.into_iter().map(|(name, bytes)| (name, bytes.into())).collect();
        Self::open(environment, name, bytes, &weights, resources, 0)
    }

    fn open(
        environment: &Environment,
        name: &str,
        bytes: &[u8],
        files: &[File],
        resources: Resources,
        lanes: usize,
    ) -> Result<Self, EngineError> {
        let gpu = resources.gpu.filter(|gpu| place(name, bytes, gpu.has_half()));
        let size = bytes.len() + files.iter().map(|(_, file)| file.len()).sum::<usize>();
        let reserved = gpu.map(|gpu| gpu.reserve(size as u64)).transpose()?;
        // Lanes divide the processor's threads.
        let lanes = if gpu.is_some() { 0 } else { lanes };
        let shared = if lanes > 0 { Weights::of(bytes, files) } else { None };
        let shared = shared.filter(|weights| weights.left <= MAX_UNSHARED);
        let lanes = if shared.is_some() { lanes } else { 0 };
        let of_threads = |count| {
            let resources = Resources { threads: count, gpu };
            session(environment, bytes, files, resources, shared.as_ref()).map_err(|error| {
                // A damaged graph is not the GPU's fault.
                let loads_without = || session(environment, bytes, files, Resources::cpu(1), None).is_ok();
                does_not_load(name, gpu.filter(|_| loads_without()), error)
            })
        };
        let wide = of_threads(resources.threads)?;
        let each = |lane| resources.threads / lanes + usize::from(lane < resources.threads % lanes);
        let narrow = (0..lanes).map(|lane| of_threads(each(lane))).collect::<Result<_, _>>()?;
        Ok(Self {
            name: name.to_owned(),
            gpu: gpu.filter(|gpu| computes(gpu, name, &wide)),
            reserved,
            inputs: wide.inputs().iter().filter_map(Input::of).collect(),
            outputs: wide.outputs().iter().map(|output| output.name().to_owned()).collect(),
            stated: wide.outputs().iter().map(Output::of).collect(),
            lanes: Lanes::new(wide, narrow),
            scales_by_run: inspect::scales_by_run(bytes),
            watch: TensorTrace::default(),
        })
    }

    /// Records tensors in `watch`.
    #[must_use]
    pub fn watched(mut self, watch: &TensorTrace) -> Self {
        self.watch = watch.clone();
        self
    }

    /// A value of the file's metadata.
    pub fn metadata(&self, name: &str) -> Option<String> {
        self.lanes.enter().session().metadata().ok()?.custom(name)
    }

    /// Its path in the repository.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The GPU that runs it; `None` for the processor.
    pub fn gpu(&self) -> Option<&'static Gpu> {
        self.gpu
    }

    /// Whether its quantization depends on all rows of a run.
    pub fn scales_by_run(&self) -> bool {
        self.scales_by_run
    }

    /// Its inputs.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// Whether it has this input.
    pub fn takes(&self, name: &str) -> bool {
        self.inputs.iter().any(|input| input.name == name)
    }

    /// Rejects a graph that needs another input than those that its task feeds, and those that can have only one value.
    pub fn require_fed(&self, fed: &[&str]) -> Result<(), EngineError> {
        let names = self.inputs.iter().map(|input| input.name.as_str());
        default_inputs::lacking(names, fed).map_or(Ok(()), |name| Err(self.lacks(name)))
    }

    /// Names of its outputs.
    pub fn outputs(&self) -> &[String] {
        &self.outputs
    }

    /// Its sessions.
    pub fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// Runs it once. Ends early if the job that this thread computes is cancelled.
    pub fn run(&self, feeds: Feeds<'_>) -> Result<Results, EngineError> {
        let job = stop::current();
        self.run_in(&mut self.lanes.enter(), feeds, job.as_slice())
    }

    /// Runs it once in the given session, for these jobs. Ends early if all of them are cancelled.
    pub fn run_in(
        &self,
        lane: &mut Lane<'_>,
        mut feeds: Feeds<'_>,
        jobs: &[Stop],
    ) -> Result<Results, EngineError> {
        let known = default_inputs::Known::of(&feeds);
        let mut values = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            let feed = match feeds.take(&input.name) {
                Some(feed) => feed,
                None => default_inputs::feed(input, &known).ok_or_else(|| self.lacks(&input.name))?,
            };
            if self.watch.is_on() {
                self.watch.given(&self.name, &input.name, &feed);
            }
            let value = feed.value(input.kind).map_err(|error| self.broke(error))?;
            values.push((input.name.as_str(), value));
        }
        let _turn = self.reserved.as_ref().map(Reserved::turn);
        let options = Arc::new(RunOptions::new().map_err(|error| self.broke(error))?);
        let are_cancelled = |jobs: &[Stop]| !jobs.is_empty() && jobs.iter().all(Stop::is_cancelled);
        let end = {
            let (options, jobs) = (Arc::clone(&options), jobs.to_vec());
            move || {
                if are_cancelled(&jobs) {
                    // Without an effect the run goes on, and its jobs end after it.
                    let _ = options.terminate();
                }
            }
        };
        let end: Arc<dyn Fn() + Send + Sync> = Arc::new(end);
        let _endings: Vec<_> = jobs.iter().map(|job| job.end_with(Arc::clone(&end))).collect();
        let ran = lane.session().run_with_options(values, &options);
        let ended = |error| {
            if are_cancelled(jobs) {
                return EngineError::interrupted();
            }
            let lost = self.gpu.filter(|gpu| !gpu.works()).map(Gpu::label);
            failed(&self.name, lost.as_deref(), error)
        };
        let mut given = ran.map_err(ended)?;
        let take = |name: &String| given.remove(name).map(|value| (name.clone(), value));
        let values: Vec<_> = self.outputs.iter().filter_map(take).collect();
        if self.watch.is_on() {
            for (name, value) in &values {
                floats(value)
                    .iter()
                    .for_each(|array| self.watch.keep(&self.name, name, array.view(), |&number| number));
            }
        }
        Ok(Results { graph: self.name.clone(), values })
    }

    fn lacks(&self, input: &str) -> EngineError {
        invalid_model(format!("{} needs the input {input}, which this task lacks", self.name))
    }

    fn broke(&self, error: ort::Error) -> EngineError {
        failed(&self.name, None, error)
    }
}

/// Reads a graph and its external weights.
fn read(files: &GraphFiles) -> Result<(Vec<u8>, Vec<File>), EngineError> {
    let read = |path| {
        let unreadable = |error| {
            EngineError::new(ErrorKind::ModelUnavailable, format!("read {}", files.name)).because(error)
        };
        fs::read(path).map_err(unreadable)
    };
    let bytes = read(&files.path)?;
    let listed = files.weights.iter().map(|(name, _)| name.as_str()).collect();
    inspect::check(&bytes, &listed)
        .map_err(|why| invalid_model(format!("{} is refused", files.name)).because(why))?;
    let weights = files.weights.iter().map(|(name, path)| Ok((name.clone(), read(path)?.into())));
    Ok((bytes, weights.collect::<Result<_, EngineError>>()?))
}

/// Whether a GPU is to run a graph. Products of integers and, without support, numbers of half precision remain on the processor, which
/// would otherwise run them in the middle of the graph.
fn place(name: &str, bytes: &[u8], has_half: bool) -> bool {
    let why = match inspect::needs(bytes) {
        Some(needs) if needs.integer_products => "it multiplies integers",
        Some(needs) if needs.half && !has_half => "the GPU does not compute in half precision",
        Some(_) => return true,
        None => "it cannot be read",
    };
    tracing::info!(graph = name, why, "the processor runs a graph");
    false
}

/// Whether the GPU runs at least one node of a session.
fn computes(gpu: &Gpu, name: &str, session: &Session) -> bool {
    let nodes = native::placements(session);
    let own = nodes.get(gpu.provider()).copied().unwrap_or_default();
    tracing::info!(
        graph = name,
        device = gpu.label(),
        own,
        all = nodes.values().sum::<usize>(),
        "nodes placed"
    );
    own > 0
}

fn does_not_load(name: &str, gpu: Option<&Gpu>, error: ort::Error) -> EngineError {
    let Some(gpu) = gpu else { return invalid_model(format!("{name} does not load")).because(error) };
    EngineError::host(format!("{name} does not load on {}", gpu.label())).because(error)
}

/// A session builder with the settings of all graphs, for the GPU if there is one.
pub fn builder(environment: &Environment, resources: Resources) -> ort::Result<SessionBuilder> {
    let builder = Session::builder(environment)?
        .with_optimization_level(GraphOptimizationLevel::All)?
        .with_intra_threads(resources.threads.max(1))?
        .with_inter_threads(1)?
        // Threads spin within a run, which saves a wake-up per node, and sleep between runs.
        .with_intra_op_spinning(resources.gpu.is_none())?
        .with_config_entry("session.force_spinning_stop", "1")?;
    match resources.gpu {
        Some(gpu) => gpu.run_on(builder.with_config_entry(native::RECORD, "1")?),
        // The arena keeps the largest run's memory, and avoids the page faults of every node: a fifth of the time of Whisper's encoder. Runs
        // are bounded (`batch`), and an idle model is unloaded whole.
        None => Ok(builder.with_execution_providers([CPU::default().with_arena_allocator(true).build()])?),
    }
}

fn session(
    environment: &Environment,
    bytes: &[u8],
    files: &[File],
    resources: Resources,
    shared: Option<&Weights>,
) -> ort::Result<Session> {
    let mut builder = builder(environment, resources)?;
    let _turn = resources.gpu.map(Gpu::turn);
    for (name, bytes) in files {
        builder = builder.with_external_initializer_file_in_memory(name, Arc::clone(bytes))?;
    }
    if let Some(shared) = shared {
        builder = shared.lend(builder)?;
    }
    builder.commit_from_memory(bytes)
}

impl Input {
    fn of(outlet: &ort::value::Outlet) -> Option<Self> {
        let ValueType::Tensor { ty, shape, .. } = outlet.dtype() else { return None };
        Some(Self { name: outlet.name().to_owned(), kind: *ty, shape: shape.to_vec() })
    }
}

impl<'v> Feed<'v> {
    /// The tensor with the element type of the input.
    fn value(self, kind: TensorElementType) -> ort::Result<SessionInputValue<'v>> {
        use TensorElementType as Kind;
        Ok(match (self, kind) {
            (Self::Held(value), _) => value.into(),
            (Self::Ints(array), Kind::Int32) => {
                Tensor::from_array(array.mapv(|number| number as i32))?.into()
            }
            (Self::Ints(array), Kind::Bool) => Tensor::from_array(array.mapv(|number| number != 0))?.into(),
            (Self::Ints(array), Kind::Float32) => {
                Tensor::from_array(array.mapv(|number| number as f32))?.into()
            }
            (Self::Ints(array), _) => Tensor::from_array(standard(array))?.into(),
            (Self::Floats(array), Kind::Float16) => Tensor::from_array(array.mapv(f16::from_f32))?.into(),
            (Self::Floats(array), Kind::Float64) => Tensor::from_array(array.mapv(f64::from))?.into(),
            (Self::Floats(array), Kind::Uint8) => {
                Tensor::from_array(array.mapv(|number| number as u8))?.into()
            }
            (Self::Floats(array), _) => Tensor::from_array(standard(array))?.into(),
            (Self::Bools(array), Kind::Int64) => Tensor::from_array(array.mapv(i64::from))?.into(),
            (Self::Bools(array), _) => Tensor::from_array(standard(array))?.into(),
        })
    }
}

/// The same array in row-major order.
fn standard<T: Clone>(array: ArrayD<T>) -> ArrayD<T> {
    if array.is_standard_layout() { array } else { array.as_standard_layout().into_owned() }
}

/// Numbers of any type as `f32`.
pub fn floats(value: &DynValue) -> ort::Result<ArrayD<f32>> {
    use TensorElementType as Kind;
    let ValueType::Tensor { ty, .. } = value.dtype() else {
        return Err(ort::Error::new("not a tensor"));
    };
    Ok(match ty {
        Kind::Float16 => value.try_extract_array::<f16>()?.mapv(f16::to_f32),
        Kind::Float64 => value.try_extract_array::<f64>()?.mapv(|number| number as f32),
        Kind::Int64 => value.try_extract_array::<i64>()?.mapv(|number| number as f32),
        Kind::Int32 => value.try_extract_array::<i32>()?.mapv(|number| number as f32),
        Kind::Uint8 => value.try_extract_array::<u8>()?.mapv(f32::from),
        Kind::Bool => value.try_extract_array::<bool>()?.mapv(|flag| f32::from(u8::from(flag))),
        _ => value.try_extract_array::<f32>()?.into_owned(),
    })
}

/// The `f32` elements without a copy. Returns `None` for other types.
pub fn view(value: &DynValue) -> Option<ArrayViewD<'_, f32>> {
    value.try_extract_array::<f32>().ok()
}

/// A tensor of `shape` with equal elements.
pub fn filled<T: Clone>(shape: &[usize], element: T) -> ArrayD<T> {
    ArrayD::from_elem(IxDyn(shape), element)
}
