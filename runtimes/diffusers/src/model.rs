//! All parts of a repository, loaded.

mod memory;
mod pipeline_settings;

use std::{collections::BTreeMap, fmt::Write as _};

use candle_core::Tensor;
use island_runtimes_kit::{
    error::{EngineError, invalid_input, invalid_model},
    keys::{AUTOENCODER, PIPELINE, SCHEDULER, UNET, unsupported},
    values::typed,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    compute::Computed,
    error::compute_error,
    lora::Adapters,
    networks::{
        Networks, Parts, Processor,
        graphs::{self, Graphs},
    },
    repository::Repository,
    request::{Adapter, Defaults, Request},
    schedule,
    text::prompt::{Encoder, Prompts},
    unet,
    vae::{self, Tiles},
    weights::{Element, Weights},
};

pub use memory::Need;

/// Supported pipelines by their class in a repository.
const PIPELINES: [(&str, Family); 8] = [
    ("StableDiffusionPipeline", Family::Plain),
    ("StableDiffusionImg2ImgPipeline", Family::Plain),
    ("StableDiffusionInpaintPipeline", Family::Plain),
    ("LatentConsistencyModelPipeline", Family::Plain),
    ("LatentConsistencyModelImg2ImgPipeline", Family::Plain),
    ("StableDiffusionXLPipeline", Family::Xl),
    ("StableDiffusionXLImg2ImgPipeline", Family::Xl),
    ("StableDiffusionXLInpaintPipeline", Family::Xl),
];

/// Families of models with different inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Stable Diffusion 1 and 2.
    Plain,
    /// Stable Diffusion XL, with two encoders.
    Xl,
}

/// The `[engine]` table of an entry.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Default number of steps.
    pub num_inference_steps: Option<usize>,
    /// Default guidance scale.
    pub guidance_scale: Option<f64>,
    /// Default height in pixels.
    pub height: Option<usize>,
    /// Default width in pixels.
    pub width: Option<usize>,
    /// Maximum side in pixels.
    pub max_side: Option<usize>,
    /// Overrides settings of the repository's `scheduler_config.json`.
    pub scheduler: Map<String, Value>,
    /// Default adapters.
    pub loras: Vec<Adapter>,
    /// Used by the catalogue, which has an input schema for each task.
    #[serde(rename = "task")]
    _task: Option<String>,
}

/// What computes the networks.
#[derive(Debug, Clone)]
pub enum On {
    /// The processor, in `f32`.
    Processor,
    /// Graphs, on a GPU.
    Graphs(graphs::Engine),
}

impl On {
    /// Elements of the computation.
    pub fn element(&self) -> Element {
        match self {
            Self::Processor => Element::F32,
            Self::Graphs(engine) => engine.element,
        }
    }
}

/// A loaded repository.
#[derive(Debug)]
pub struct Model {
    /// Its family.
    pub family: Family,
    /// The networks on their device.
    pub networks: Box<dyn Networks>,
    /// The tokenizers of the text encoders, and encoded prompts.
    pub prompts: Prompts,
    /// Settings of the denoising network.
    pub unet: unet::Config,
    /// Settings of the autoencoder.
    pub vae: vae::Config,
    /// Settings of the scheduler.
    pub schedule: schedule::Config,
    /// Whether an absent negative prompt is zeros instead of an empty prompt: SDXL.
    pub zeros_for_absent_negative: bool,
    /// Layers that adapters can change, with the shapes of their weights.
    layers: BTreeMap<String, Vec<usize>>,
    repository: Repository,
    settings: Settings,
    weights_bytes: u64,
    class_name: String,
}

impl Model {
    /// Loads a repository onto a device. Rejects one whose weights alone exceed the memory `limit` in bytes.
    pub fn load(
        repository: Repository,
        engine: &Value,
        on: &On,
        limit: Option<u64>,
    ) -> Result<Self, EngineError> {
        let settings = if engine.is_null() { Ok(Settings::default()) } else { Settings::deserialize(engine) };
        let settings = settings.map_err(|error| invalid_model("the Cargo's engine table").because(error))?;
        let index: Map<String, Value> = repository.settings(PIPELINE.file, &PIPELINE)?;
        let class_name = index.get("_class_name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let family = family(&class_name)?;
        let mut text = vec![("text_encoder", "tokenizer")];
        text.extend((family == Family::Xl).then_some(("text_encoder_2", "tokenizer_2")));
        let folders: Vec<&str> = text.iter().map(|(part, _)| *part).collect();
        // All headers are checked before the first tensor is read.
        let parts = Parts::open(&repository, &folders, on.element())?;
        let weights_bytes = parts.bytes(on.element());
        memory::check_load(weights_bytes, limit)?;
        let encoders = text
            .iter()
            .zip(&parts.texts)
            .map(|((_, tokenizer), (config, _))| Encoder::load(&repository, tokenizer, config));
        let schedule = schedule_of(&repository, &class_name, index.get("scheduler"), &settings)?;
        schedule::make(&schedule, 2, 0.0)?;
        let layers = adaptable_layers(&parts);
        let (unet, vae) = (parts.unet.0.clone(), parts.vae.0.clone());
        let prompts = Prompts::new(encoders.collect::<Result<_, _>>()?);
        let networks: Box<dyn Networks> = match on {
            On::Processor => Box::new(Processor::load(parts)?),
            On::Graphs(engine) => {
                let adapters = read_adapters(&repository, &layers, &settings.loras)?;
                Box::new(Graphs::load(parts, engine, &adapters)?)
            }
        };
        let model = Self {
            family,
            networks,
            prompts,
            unet,
            vae,
            schedule,
            zeros_for_absent_negative: zeros_for_absent_negative(&repository, family)?,
            layers,
            settings,
            weights_bytes,
            class_name,
            repository,
        };
        model.check()?;
        Ok(model)
    }

    /// Rejects parts that would fail in the middle of a job.
    fn check(&self) -> Result<(), EngineError> {
        let (unet, channels) = (&self.unet, self.vae.latent_channels);
        let is_xl = unet.addition_embed_type.is_some();
        let refused = |key: &str, value: usize| {
            let why = format!("{}: latent_channels = {channels}", AUTOENCODER.file);
            Err(unsupported(UNET.file, key, &value.into()).followed_by(why))
        };
        if unet.out_channels != channels {
            return refused("out_channels", unet.out_channels);
        }
        if ![channels, 2 * channels + 1].contains(&unet.in_channels) {
            return refused("in_channels", unet.in_channels);
        }
        if is_xl != (self.family == Family::Xl) {
            let why = format!("{}: addition_embed_type is of another pipeline", UNET.file);
            let class = Value::from(self.class_name.as_str());
            return Err(unsupported(PIPELINE.file, "_class_name", &class).followed_by(why));
        }
        let defaults = self.defaults();
        Request::read(&serde_json::json!({ "prompt": "" }), &defaults)
            .map(drop)
            .map_err(|failure| invalid_model(format!("the Cargo's engine table: {}", failure.message())))
    }

    /// Defaults of a request.
    pub fn defaults(&self) -> Defaults {
        let scale = self.vae.scale();
        let trained = pipeline_settings::latent_sides(&self.class_name, &self.unet);
        let is_lcm = matches!(self.schedule.kind(), Ok(schedule::Kind::Lcm));
        let usual = pipeline_settings::guidance(&self.class_name);
        let settings = &self.settings;
        Defaults {
            steps: settings.num_inference_steps.unwrap_or(if is_lcm { 4 } else { 20 }),
            guidance: settings.guidance_scale.unwrap_or(usual),
            size: (settings.height.unwrap_or(trained.0 * scale), settings.width.unwrap_or(trained.1 * scale)),
            multiple: scale,
            max_side: settings.max_side.unwrap_or(2048),
            max_output_bytes: u64::MAX,
            loras: settings.loras.clone(),
        }
    }

    /// The adapters of a request.
    pub fn adapters(&self, wanted: &[Adapter]) -> Result<Adapters, EngineError> {
        read_adapters(&self.repository, &self.layers, wanted)
    }

    /// Images of latents `[batch, height, width, channels]`, which are scaled already.
    pub fn picture(&self, latents: &Tensor, tiles: Option<Tiles>) -> Computed<Tensor> {
        match tiles {
            Some(tiles) => tiles.decode(latents, |part| self.networks.picture(part)),
            None => self.networks.picture(latents),
        }
    }

    /// Mean and log variance of the latents of images `[batch, height, width, 3]` in -1..1.
    pub fn latents(&self, pictures: &Tensor, tiles: Option<Tiles>) -> Computed<(Tensor, Tensor)> {
        let moments = match tiles {
            Some(tiles) => tiles.encode(pictures, |part| self.networks.moments(part))?,
            None => self.networks.moments(pictures)?,
        };
        vae::split(&moments, self.vae.latent_channels).map_err(compute_error("split the latents"))
    }

    /// Memory of a request.
    pub fn need(&self, request: &Request) -> Need {
        memory::of_run(self, request)
    }

    /// Bytes of its weights and of a request's adapters, as far as they lie in the memory that is limited: on a GPU, adapters do not.
    pub fn bytes_with(&self, wanted: &[Adapter]) -> Result<u64, EngineError> {
        let mut bytes = self.weights_bytes;
        if self.networks.device().is_some() {
            return Ok(bytes);
        }
        for (file, _) in adapter_files(&self.repository, wanted)? {
            let Some(path) = self.repository.path(file) else { continue };
            let stored = Weights::open(file, &[(file.to_owned(), path.to_owned())])?;
            bytes += stored.numbers() * Element::F32.bytes();
        }
        Ok(bytes)
    }

    /// Bytes of its weights.
    pub fn weights_bytes(&self) -> u64 {
        self.weights_bytes
    }

    /// The pipeline's class.
    pub fn class_name(&self) -> &str {
        &self.class_name
    }
}

/// Whether an absent negative prompt is zeros: a flag that is null is off.
fn zeros_for_absent_negative(repository: &Repository, family: Family) -> Result<bool, EngineError> {
    let index = repository.json(PIPELINE.file)?.unwrap_or_default();
    let flag = index.get("force_zeros_for_empty_prompt");
    Ok(flag.map_or(family == Family::Xl, |flag| flag.as_bool().unwrap_or(false)))
}

/// Layers that adapters can change, with the shapes of their weights.
fn adaptable_layers(parts: &Parts) -> BTreeMap<String, Vec<usize>> {
    let mut layers = BTreeMap::new();
    for weights in parts.adaptable() {
        for name in weights.names().filter_map(|name| name.strip_suffix(".weight")) {
            let shape = weights.shape(&format!("{name}.weight")).unwrap_or_default();
            if shape.len() >= 2 {
                layers.insert(format!("{}.{name}", weights.part()), shape.to_vec());
            }
        }
    }
    layers
}

fn read_adapters(
    repository: &Repository,
    layers: &BTreeMap<String, Vec<usize>>,
    wanted: &[Adapter],
) -> Result<Adapters, EngineError> {
    let mut adapters = Adapters::default();
    for (file, scale) in adapter_files(repository, wanted)? {
        let Some(path) = repository.path(file) else { continue };
        crate::lora::read((file, path.to_owned()), scale, layers, &mut adapters)?;
        let _ = write!(adapters.key, "{file}={scale};");
    }
    Ok(adapters)
}

/// The files of adapters with their scales. One that is named several times is read once, with the sum of its scales.
fn adapter_files<'r>(
    repository: &'r Repository,
    wanted: &[Adapter],
) -> Result<Vec<(&'r str, f64)>, EngineError> {
    let mut files: Vec<(&str, f64)> = Vec::new();
    for Adapter { name, scale } in wanted {
        let file = adapter(repository, name)?;
        match files.iter_mut().find(|(known, _)| *known == file) {
            Some((_, sum)) => *sum += scale,
            None => files.push((file, *scale)),
        }
    }
    Ok(files)
}

/// The file of an adapter: by its path, or by its name with or without the suffix.
fn adapter<'r>(repository: &'r Repository, name: &str) -> Result<&'r str, EngineError> {
    let files = || {
        let parts = ["unet/", "vae/", "text_encoder/", "text_encoder_2/"];
        repository.names().filter(move |file| {
            file.ends_with(".safetensors") && !parts.iter().any(|part| file.starts_with(part))
        })
    };
    let base = |file: &str| file.rsplit('/').next().unwrap_or(file).to_owned();
    let found = files().find(|file| {
        *file == name || base(file) == name || base(file).strip_suffix(".safetensors") == Some(name)
    });
    found.ok_or_else(|| {
        let known: Vec<String> = files().map(base).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        invalid_input(format!("unknown lora {name:?}; this Cargo has {known}"))
    })
}

/// The repository's scheduler settings with those of the Cargo. The pipeline names the class, whatever class wrote the settings.
fn schedule_of(
    repository: &Repository,
    pipeline: &str,
    part: Option<&Value>,
    settings: &Settings,
) -> Result<schedule::Config, EngineError> {
    /// Flags that are on where a file lacks them, and off where they are null.
    const OFF_IF_NULL: [&str; 3] = ["clip_sample", "set_alpha_to_one", "lower_order_final"];
    let mut config: Map<String, Value> = repository.list(SCHEDULER.file)?;
    let written = repository.json(SCHEDULER.file)?.unwrap_or_default();
    for key in OFF_IF_NULL.into_iter().filter(|key| written.get(key).is_some_and(Value::is_null)) {
        config.insert(key.to_owned(), false.into());
    }
    if let Some(part) = part {
        let class = part.get(1).filter(|class| class.is_string());
        let class = class.ok_or_else(|| unsupported(PIPELINE.file, "scheduler", part))?;
        config.insert("_class_name".to_owned(), class.clone());
    }
    let mut of_pipeline = pipeline_settings::apply(&mut config, pipeline);
    of_pipeline.retain(|key| !settings.scheduler.contains_key(*key));
    config.extend(settings.scheduler.clone());
    let config = Value::Object(config);
    SCHEDULER.check(&config)?;
    let mut config: schedule::Config = typed(SCHEDULER.file, &config)?;
    config.of_pipeline = of_pipeline;
    Ok(config)
}

fn family(class_name: &str) -> Result<Family, EngineError> {
    let found = PIPELINES.iter().find(|(name, _)| *name == class_name);
    found.map(|(_, family)| *family).ok_or_else(|| {
        let ours: Vec<&str> = PIPELINES.iter().map(|(name, _)| *name).collect();
        let refused = unsupported(PIPELINE.file, "_class_name", &class_name.into());
        refused.followed_by(format!("supported are {}", ours.join(", ")))
    })
}
