//! The input of a job, validated before any work.

mod number;

use island_runtimes_kit::error::{EngineError, invalid_input};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    picture::{self, Source},
    schedule::MAX_STEPS,
};

/// Maximum number of images of one job.
const MAX_IMAGES: usize = 10;
/// Maximum number of previews of an image.
const MAX_PREVIEWS: usize = 20;
/// Bytes of an event per pixel of an image; only noise takes the maximum of four.
const BYTES_A_PIXEL: u64 = 3;
/// Maximum guidance scale; beyond it no image is recognizable.
const MAX_GUIDANCE: f64 = 100.0;
/// Maximum number of adapters of one job.
const MAX_ADAPTERS: usize = 8;

/// The input as it is sent.
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
    mask_mode: Option<MaskMode>,
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

/// Which pixels of a mask select what is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MaskMode {
    Bright,
    Transparent,
}

/// An adapter by its name among the Cargo's files, and its scale.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    /// Its name.
    pub name: String,
    /// Its scale; 1 is as trained.
    #[serde(default = "one", alias = "weight")]
    pub scale: f64,
}

fn one() -> f64 {
    1.0
}

/// Defaults of an input, from the `[engine]` table and the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Defaults {
    /// Steps.
    pub steps: usize,
    /// Guidance scale.
    pub guidance: f64,
    /// Height and width in pixels.
    pub size: (usize, usize),
    /// Sides must be multiples of this.
    pub multiple: usize,
    /// Maximum side in pixels.
    pub max_side: usize,
    /// Maximum bytes of events of a job.
    pub max_output_bytes: u64,
    /// Adapters.
    pub loras: Vec<Adapter>,
}

/// Sizes and positions that condition SDXL: height and width, or top and left.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Framing {
    /// Size of the image before cropping.
    pub original: Option<[f64; 2]>,
    /// Crop above and left.
    pub crop: Option<[f64; 2]>,
    /// Target size.
    pub target: Option<[f64; 2]>,
}

/// What an image is generated from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// The prompt alone.
    Text,
    /// An initial image.
    Image(Source),
    /// An initial image, changed where the mask is bright.
    Paint(Source, Source),
}

/// A valid input.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The prompt.
    pub prompt: String,
    /// The negative prompt.
    pub negative_prompt: Option<String>,
    /// Height in pixels.
    pub height: usize,
    /// Width in pixels.
    pub width: usize,
    /// Steps without an initial image; with one there are fewer.
    pub steps: usize,
    /// Guidance scale.
    pub guidance: f64,
    /// Guidance rescale.
    pub guidance_rescale: f64,
    /// DDIM's share of fresh noise.
    pub eta: f64,
    /// The seed; absent, it is random.
    pub seed: Option<u64>,
    /// The scheduler by name; absent, the repository's.
    pub scheduler: Option<String>,
    /// Number of images.
    pub images: usize,
    /// What they are generated from.
    pub task: Task,
    /// Strength of the change of an initial image.
    pub strength: f64,
    /// Layers of the text encoder to skip.
    pub clip_skip: Option<usize>,
    /// Adapters.
    pub adapters: Vec<Adapter>,
    /// Previews per image.
    pub previews: usize,
    /// Size conditioning of SDXL.
    pub framing: Framing,
    /// The same for the negative prompt.
    pub negative_framing: Framing,
}

impl Request {
    /// Reads and validates an input.
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
                return Err(invalid_input(format!("{name} is {value}; it must be 0 to {most}")));
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
                "the scale of the lora {} is {}; it must be -10 to 10",
                odd.name, odd.scale
            )));
        }
        let task = match (&sent.image, &sent.mask_image) {
            (None, None) => Task::Text,
            (Some(image), None) => Task::Image(picture::read(image, "image")?),
            (Some(image), Some(mask)) => {
                let read = match sent.mask_mode {
                    None | Some(MaskMode::Bright) => picture::read,
                    Some(MaskMode::Transparent) => picture::read_transparency,
                };
                Task::Paint(picture::read(image, "image")?, read(mask, "mask_image")?)
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
        let framings = [framing, negative_framing];
        let sides = framings.iter().flat_map(|framing| [framing.original, framing.crop, framing.target]);
        if sides.flatten().flatten().any(|side| !(0.0..=100_000.0).contains(&side)) {
            return Err(invalid_input("sizes and crop positions must be 0 to 100000"));
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
            // As in diffusers for images; a masked part is generated from noise.
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
    fits.ok_or_else(|| invalid_input(format!("{name} is {value}; it must be {least} to {most}")))
}

/// Height and width: from the input, the initial image, or the model's training.
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
                "{name} is {side}; it must be {least} to {most}, a multiple of {multiple}"
            )));
        }
        Ok(side)
    };
    Ok((side("height", sent.height, height)?, side("width", sent.width, width)?))
}

#[cfg(test)]
mod tests;
