//! The input of a job: checked to the last number before any work.

mod number;

use island_runtimes_kit::error::{EngineError, invalid_input};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    picture::{self, Source},
    schedule::MAX_STEPS,
};

/// Most pictures of one job.
const MAX_IMAGES: usize = 10;
/// Most previews of a picture.
const MAX_PREVIEWS: usize = 20;
/// Bytes of an event for a pixel of a picture; nothing but noise takes the four that there could be.
const BYTES_A_PIXEL: u64 = 3;
/// Strongest guidance; beyond it nothing is left of a picture.
const MAX_GUIDANCE: f64 = 100.0;
/// Most adapters of one job.
const MAX_ADAPTERS: usize = 8;

/// An input as it is sent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    prompt: String,
    #[serde(default)]
    negative_prompt: Option<String>,
    #[serde(default, deserialize_with = "number::whole")]
    width: Option<i64>,
    #[serde(default, deserialize_with = "number::whole")]
    height: Option<i64>,
    #[serde(default, alias = "steps", alias = "num_steps", deserialize_with = "number::whole")]
    num_inference_steps: Option<i64>,
    #[serde(default)]
    guidance_scale: Option<f64>,
    #[serde(default)]
    guidance_rescale: Option<f64>,
    #[serde(default)]
    eta: Option<f64>,
    #[serde(default, deserialize_with = "number::seed")]
    seed: Option<u64>,
    #[serde(default)]
    scheduler: Option<String>,
    #[serde(default, alias = "num_images_per_prompt", alias = "n", deserialize_with = "number::whole")]
    num_images: Option<i64>,
    #[serde(default)]
    image: Option<String>,
    #[serde(default, alias = "mask")]
    mask_image: Option<String>,
    #[serde(default)]
    strength: Option<f64>,
    #[serde(default, deserialize_with = "number::whole")]
    clip_skip: Option<i64>,
    #[serde(default)]
    loras: Option<Vec<Adapter>>,
    #[serde(default, deserialize_with = "number::whole")]
    previews: Option<i64>,
    #[serde(default)]
    original_size: Option<[f64; 2]>,
    #[serde(default)]
    crops_coords_top_left: Option<[f64; 2]>,
    #[serde(default)]
    target_size: Option<[f64; 2]>,
    #[serde(default)]
    negative_original_size: Option<[f64; 2]>,
    #[serde(default)]
    negative_crops_coords_top_left: Option<[f64; 2]>,
    #[serde(default)]
    negative_target_size: Option<[f64; 2]>,
}

/// An adapter by its name among the Cargo's files, and how much of it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    /// Its name.
    pub name: String,
    /// Its share; 1 is as it was trained.
    #[serde(default = "one", alias = "weight")]
    pub scale: f64,
}

fn one() -> f64 {
    1.0
}

/// What an entry's `[engine]` table and the model say where the input does not.
#[derive(Debug, Clone, PartialEq)]
pub struct Defaults {
    /// Steps.
    pub steps: usize,
    /// Strength of guidance.
    pub guidance: f64,
    /// Height and width, pixels.
    pub size: (usize, usize),
    /// What sides must be multiples of, pixels.
    pub multiple: usize,
    /// Longest side, pixels.
    pub max_side: usize,
    /// Bytes of events that a job may make.
    pub max_output_bytes: u64,
    /// Adapters.
    pub loras: Vec<Adapter>,
}

/// Sizes and places that SDXL is told of, as height and width, or top and left.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Framing {
    /// Size of the picture before it was cut to size.
    pub original: Option<[f64; 2]>,
    /// What was cut off above and left.
    pub crop: Option<[f64; 2]>,
    /// Size that is meant.
    pub target: Option<[f64; 2]>,
}

/// What a picture is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// The prompt alone.
    Text,
    /// A given picture.
    Image(Source),
    /// A given picture, where the mask is bright.
    Paint(Source, Source),
}

/// An input that makes sense.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// What to show.
    pub prompt: String,
    /// What not to show.
    pub negative_prompt: Option<String>,
    /// Pixels down.
    pub height: usize,
    /// Pixels across.
    pub width: usize,
    /// Steps of the whole walk; a given picture shortens it.
    pub steps: usize,
    /// How much more the prompt counts than its absence.
    pub guidance: f64,
    /// How much of the contrast that guidance adds is taken back.
    pub guidance_rescale: f64,
    /// DDIM's share of fresh noise.
    pub eta: f64,
    /// Where noise comes from; absent, it is chosen.
    pub seed: Option<u64>,
    /// The scheduler by name; absent, the repository's.
    pub scheduler: Option<String>,
    /// How many pictures.
    pub images: usize,
    /// What they are made from.
    pub task: Task,
    /// How much of a given picture is lost.
    pub strength: f64,
    /// Layers of the text encoder to leave out.
    pub clip_skip: Option<usize>,
    /// Adapters to add.
    pub adapters: Vec<Adapter>,
    /// Previews of each picture.
    pub previews: usize,
    /// What SDXL is told of the picture.
    pub framing: Framing,
    /// And of the one to stay away from.
    pub negative_framing: Framing,
}

impl Request {
    /// Reads an input.
    pub fn read(input: &Value, defaults: &Defaults) -> Result<Self, EngineError> {
        let sent = Sent::deserialize(input)
            .map_err(|error| invalid_input("the input does not fit").because(error))?;
        let steps = within("num_inference_steps", sent.num_inference_steps, defaults.steps, (1, MAX_STEPS))?;
        let images = within("num_images", sent.num_images, 1, (1, MAX_IMAGES))?;
        let clip_skip =
            sent.clip_skip.map(|skip| within("clip_skip", Some(skip), 0, (0, 256))).transpose()?;
        let limits = [
            ("guidance_scale", sent.guidance_scale, MAX_GUIDANCE),
            ("guidance_rescale", sent.guidance_rescale, 1.0),
            ("eta", sent.eta, 1.0),
            ("strength", sent.strength, 1.0),
        ];
        for (name, value, most) in limits {
            if let Some(value) = value.filter(|value| !(0.0..=most).contains(value)) {
                return Err(invalid_input(format!("{name} is {value}; it may be 0 to {most}")));
            }
        }
        let adapters = sent.loras.clone().unwrap_or_else(|| defaults.loras.clone());
        if adapters.len() > MAX_ADAPTERS {
            return Err(invalid_input(format!(
                "loras has {} entries, more than {MAX_ADAPTERS}",
                adapters.len()
            )));
        }
        if let Some(odd) = adapters.iter().find(|lora| !(lora.scale.abs() <= 10.0)) {
            return Err(invalid_input(format!(
                "the scale of the lora {} is {}; it may be -10 to 10",
                odd.name, odd.scale
            )));
        }
        let task = match (&sent.image, &sent.mask_image) {
            (None, None) => Task::Text,
            (Some(image), None) => Task::Image(picture::read(image, "image")?),
            (Some(image), Some(mask)) => {
                Task::Paint(picture::read(image, "image")?, picture::read(mask, "mask_image")?)
            }
            (None, Some(_)) => return Err(invalid_input("there is a mask_image but no image")),
        };
        if task == Task::Text && sent.strength.is_some() {
            return Err(invalid_input("there is a strength but no image"));
        }
        let (height, width) = size(&sent, &task, defaults)?;
        let most = defaults.max_output_bytes / BYTES_A_PIXEL / (height * width) as u64;
        if images as u64 > most.max(1) {
            return Err(invalid_input(format!(
                "num_images is {images}; of {width} × {height} pixels, {} fit into one job",
                most.max(1)
            )));
        }
        let previews = within("previews", sent.previews, 0, (0, MAX_PREVIEWS))?;
        let framing = Framing {
            original: sent.original_size,
            crop: sent.crops_coords_top_left,
            target: sent.target_size,
        };
        let negative_framing = Framing {
            original: sent.negative_original_size,
            crop: sent.negative_crops_coords_top_left,
            target: sent.negative_target_size,
        };
        let told = [framing, negative_framing];
        let told = told.iter().flat_map(|framing| [framing.original, framing.crop, framing.target]);
        if told.flatten().flatten().any(|side| !(0.0..=100_000.0).contains(&side)) {
            return Err(invalid_input("sizes and places that the model is told of may be 0 to 100000"));
        }
        Ok(Self {
            prompt: sent.prompt,
            negative_prompt: sent.negative_prompt,
            height,
            width,
            steps,
            guidance: sent.guidance_scale.unwrap_or(defaults.guidance),
            guidance_rescale: sent.guidance_rescale.unwrap_or(0.0),
            eta: sent.eta.unwrap_or(0.0),
            seed: sent.seed,
            scheduler: sent.scheduler,
            images,
            // As diffusers has it for pictures; a masked part is made anew.
            strength: sent.strength.unwrap_or(if matches!(task, Task::Paint(..)) { 1.0 } else { 0.8 }),
            task,
            clip_skip,
            adapters,
            previews,
            framing,
            negative_framing,
        })
    }
}

fn within(
    name: &str,
    value: Option<i64>,
    default: usize,
    (least, most): (usize, usize),
) -> Result<usize, EngineError> {
    let Some(value) = value else { return Ok(default) };
    let fits = usize::try_from(value).ok().filter(|value| (least..=most).contains(value));
    fits.ok_or_else(|| invalid_input(format!("{name} is {value}; it may be {least} to {most}")))
}

/// Height and width: as asked for, as the given picture has them, or as the model was trained.
fn size(sent: &Sent, task: &Task, defaults: &Defaults) -> Result<(usize, usize), EngineError> {
    let multiple = defaults.multiple;
    let (height, width) = match task {
        Task::Image(source) => {
            let (height, width) = source.size();
            (height / multiple * multiple, width / multiple * multiple)
        }
        Task::Text | Task::Paint(..) => defaults.size,
    };
    let side = |name: &str, asked: Option<i64>, usual: usize| {
        let side = within(name, asked, usual, (0, usize::MAX >> 1))?;
        let (least, most) = (2 * multiple, defaults.max_side);
        if !(least..=most).contains(&side) || side % multiple != 0 {
            return Err(invalid_input(format!(
                "{name} is {side}; it may be {least} to {most}, in steps of {multiple}"
            )));
        }
        Ok(side)
    };
    Ok((side("height", sent.height, height)?, side("width", sent.width, width)?))
}

#[cfg(test)]
mod tests;
