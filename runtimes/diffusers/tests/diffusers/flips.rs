//! Every key of the settings tables that is used decides on an image: with another value, the image of a job is another one. Keys of which the
//! value here is refused are listed apart: that shows less.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use island_protocol::job::Failure;
use island_runtimes_diffusers::runtime::{Diffusers, Settings};
use island_runtimes_kit::keys::{self, Effect, Table};
use island_testing::flips::{Expected, Outcome};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Fixture, run_job};

const INDEX: &str = "model_index.json";
const SCHEDULE: &str = "scheduler/scheduler_config.json";
/// Difference of a channel of a pixel that rounding does not explain.
const TOLERANCE: u8 = 1;

/// Settings beside a key: file, key and value of each.
type Beside = &'static [(&'static str, &'static str, &'static str)];

/// Another value of a key.
#[derive(Debug, Clone, Copy)]
struct Flip {
    table: &'static Table,
    key: &'static str,
    fixture: &'static str,
    value: &'static str,
    /// The file, if not the table's.
    at: Option<&'static str>,
    /// Settings without which it has no effect.
    beside: &'static [Beside],
    /// Fields of the job.
    input: &'static str,
}

const fn flip(table: &'static Table, key: &'static str, fixture: &'static str, value: &'static str) -> Flip {
    Flip { table, key, fixture, value, at: None, beside: &[], input: r#"{"width": 32, "height": 32}"# }
}

impl Flip {
    const fn at(self, at: &'static str) -> Self {
        Self { at: Some(at), ..self }
    }

    const fn beside(self, beside: &'static [Beside]) -> Self {
        Self { beside, ..self }
    }

    const fn input(self, input: &'static str) -> Self {
        Self { input, ..self }
    }
}

const DDIM: Beside = &[(INDEX, "scheduler", r#"["diffusers", "DDIMScheduler"]"#)];
const EULER: Beside = &[(INDEX, "scheduler", r#"["diffusers", "EulerDiscreteScheduler"]"#)];
const DPM: Beside = &[(INDEX, "scheduler", r#"["diffusers", "DPMSolverMultistepScheduler"]"#)];
const UNIPC: Beside = &[(INDEX, "scheduler", r#"["diffusers", "UniPCMultistepScheduler"]"#)];
/// Spaced so that the offset, which the pipeline sets, does not count.
const FOUR_STEPS: Beside =
    &[(SCHEDULE, "num_train_timesteps", "4"), (SCHEDULE, "timestep_spacing", "\"linspace\"")];
/// Betas with which the first level of noise is visible.
const LARGE_BETAS: Beside = &[(SCHEDULE, "beta_start", "0.2"), (SCHEDULE, "beta_end", "0.3")];
const LAST_SIGMA: Beside = &[(SCHEDULE, "final_sigmas_type", "\"sigma_min\"")];
const HIGH_ORDER: Beside = &[(SCHEDULE, "lower_order_final", "false")];
const CLIPPED: Beside = &[(SCHEDULE, "clip_sample", "true")];
const KARRAS: Beside = &[(SCHEDULE, "use_karras_sigmas", "true")];
const NO_PART: Beside = &[(INDEX, "scheduler", "null")];

fn pipeline() -> Vec<Flip> {
    let set = |key, fixture, value| flip(&keys::PIPELINE, key, fixture, value);
    vec![
        set("_class_name", "sd15", "\"FluxPipeline\""),
        set("scheduler", "sd15", r#"["diffusers", "EulerDiscreteScheduler"]"#),
        set("unet", "sd15", r#"["diffusers", "UNetSpatioTemporalConditionModel"]"#),
        set("vae", "sd15", r#"["diffusers", "AutoencoderTiny"]"#),
        set("text_encoder", "sd15", r#"["transformers", "T5EncoderModel"]"#),
        set("text_encoder_2", "sdxl", r#"["transformers", "T5EncoderModel"]"#),
        set("tokenizer", "sd15", r#"["transformers", "T5Tokenizer"]"#),
        set("tokenizer_2", "sdxl", r#"["transformers", "T5Tokenizer"]"#),
        set("force_zeros_for_empty_prompt", "sdxl", "false"),
    ]
}

fn scheduler() -> Vec<Flip> {
    let set = |key, value| flip(&keys::SCHEDULER, key, "sd15", value);
    vec![
        set("_class_name", "\"EulerDiscreteScheduler\"").beside(&[NO_PART]),
        set("num_train_timesteps", "500"),
        set("beta_start", "0.01"),
        set("beta_end", "0.3"),
        set("beta_schedule", "\"linear\""),
        set("trained_betas", "[0.1, 0.2, 0.3, 0.4]").beside(&[DDIM, FOUR_STEPS]),
        set("prediction_type", "\"v_prediction\""),
        set("timestep_spacing", "\"trailing\""),
        // The pipelines of earlier models set these two themselves.
        flip(&keys::SCHEDULER, "steps_offset", "sdxl", "100"),
        flip(&keys::SCHEDULER, "clip_sample", "lcm", "true"),
        flip(&keys::SCHEDULER, "clip_sample_range", "lcm", "0.1").beside(&[CLIPPED]),
        set("skip_prk_steps", "false"),
        set("set_alpha_to_one", "true").beside(&[DDIM, LARGE_BETAS, FOUR_STEPS]),
        set("rescale_betas_zero_snr", "true").beside(&[DDIM]),
        set("use_karras_sigmas", "true").beside(&[EULER]),
        set("use_exponential_sigmas", "true").beside(&[EULER]),
        set("final_sigmas_type", "\"sigma_min\"").beside(&[EULER, LARGE_BETAS, FOUR_STEPS]),
        set("sigma_min", "1.5").beside(&[EULER, KARRAS]),
        set("sigma_max", "5.0").beside(&[EULER, KARRAS]),
        set("solver_order", "1").beside(&[DPM]),
        set("solver_type", "\"heun\"").beside(&[DPM]),
        set("algorithm_type", "\"sde-dpmsolver++\"").beside(&[DPM]),
        set("lower_order_final", "false").beside(&[DPM, LARGE_BETAS, FOUR_STEPS, LAST_SIGMA]),
        set("euler_at_final", "true").beside(&[DPM, LARGE_BETAS, FOUR_STEPS, LAST_SIGMA, HIGH_ORDER]),
        set("disable_corrector", "[0, 1]").beside(&[UNIPC]),
        flip(&keys::SCHEDULER, "original_inference_steps", "lcm", "20"),
        flip(&keys::SCHEDULER, "timestep_scaling", "lcm", "0.001"),
    ]
}

fn networks() -> Vec<Flip> {
    let unet = |key, value| flip(&keys::UNET, key, "sd15", value);
    let xl = |key, value| flip(&keys::UNET, key, "sdxl", value);
    let vae = |key, value| flip(&keys::AUTOENCODER, key, "sd15", value);
    let text = |key, value| flip(&keys::TEXT_ENCODER, key, "sd15", value);
    let second = |key, value| flip(&keys::TEXT_ENCODER, key, "sdxl", value).at("text_encoder_2/config.json");
    vec![
        unet("_class_name", "\"UNet3DConditionModel\""),
        unet("sample_size", "4").input("{}"),
        unet("in_channels", "5"),
        unet("out_channels", "5"),
        unet("down_block_types", r#"["DownBlock2D", "DownBlock2D", "DownBlock2D"]"#),
        unet("mid_block_type", "\"UNetMidBlock2D\""),
        unet("up_block_types", r#"["UpBlock2D", "UpBlock2D", "UpBlock2D"]"#),
        unet("block_out_channels", "[32, 64, 64]"),
        unet("layers_per_block", "3"),
        unet("transformer_layers_per_block", "2"),
        unet("attention_head_dim", "4"),
        unet("cross_attention_dim", "16"),
        unet("norm_num_groups", "4"),
        unet("norm_eps", "0.3"),
        unet("flip_sin_to_cos", "false"),
        unet("freq_shift", "5"),
        unet("time_cond_proj_dim", "16"),
        unet("addition_embed_type", "\"text_time\""),
        xl("addition_time_embed_dim", "8"),
        xl("projection_class_embeddings_input_dim", "100"),
        vae("_class_name", "\"AutoencoderTiny\""),
        vae("in_channels", "4"),
        vae("out_channels", "4"),
        vae("down_block_types", r#"["AttnDownEncoderBlock2D"]"#),
        vae("up_block_types", r#"["AttnUpDecoderBlock2D"]"#),
        vae("block_out_channels", "[32, 32, 64, 64]"),
        vae("layers_per_block", "3"),
        vae("latent_channels", "8"),
        vae("norm_num_groups", "8"),
        vae("scaling_factor", "0.7"),
        vae("use_quant_conv", "false").input(r#"{"width": 32, "height": 32, "image": "", "strength": 0.5}"#),
        vae("use_post_quant_conv", "false"),
        text("architectures", r#"["T5EncoderModel"]"#),
        text("model_type", "\"t5\""),
        text("vocab_size", "3"),
        text("hidden_size", "16"),
        text("intermediate_size", "16"),
        text("num_hidden_layers", "1"),
        text("num_attention_heads", "2"),
        text("max_position_embeddings", "20"),
        text("hidden_act", "\"gelu\""),
        text("layer_norm_eps", "0.5"),
        second("projection_dim", "8"),
        second("eos_token_id", "9"),
    ]
}

/// Keys that no small image shows, and what shows them.
const ELSEWHERE: [(&str, &str, &str); 3] = [
    (
        "unet/config.json",
        "_diffusers_version",
        "the size of an image for which a job names none, 512 pixels: a unit test of `model/pipeline_settings.rs`",
    ),
    ("vae/config.json", "sample_size", "the size of tiles, in which large images are computed: `goldens.rs`"),
    (
        "vae/config.json",
        "mid_block_add_attention",
        "its share in an image of these random weights is less than a level of a channel: `goldens.rs` compares numbers",
    ),
];

/// Keys with classes and names, of which another value is refused by the name of the key.
const REFUSED: &[(&str, &str)] = &[
    (INDEX, "_class_name"),
    (INDEX, "unet"),
    (INDEX, "vae"),
    (INDEX, "text_encoder"),
    (INDEX, "text_encoder_2"),
    (INDEX, "tokenizer"),
    (INDEX, "tokenizer_2"),
    (SCHEDULE, "skip_prk_steps"),
    ("unet/config.json", "_class_name"),
    ("unet/config.json", "mid_block_type"),
    ("vae/config.json", "_class_name"),
    ("vae/config.json", "in_channels"),
    ("vae/config.json", "out_channels"),
    ("vae/config.json", "down_block_types"),
    ("vae/config.json", "up_block_types"),
    ("text_encoder/config.json", "architectures"),
    ("text_encoder/config.json", "model_type"),
];

/// Keys of sizes, by fixture, with which its weights no longer fit: what is refused is the first tensor of another shape.
const MISFITS: &[(&str, &str)] = &[
    ("sd15", "in_channels"),
    ("sd15", "out_channels"),
    ("sd15", "block_out_channels"),
    ("sd15", "layers_per_block"),
    ("sd15", "transformer_layers_per_block"),
    ("sd15", "cross_attention_dim"),
    ("sd15", "time_cond_proj_dim"),
    ("sd15", "addition_embed_type"),
    ("sdxl", "addition_time_embed_dim"),
    ("sdxl", "projection_class_embeddings_input_dim"),
    ("sd15", "latent_channels"),
    ("sd15", "vocab_size"),
    ("sd15", "hidden_size"),
    ("sd15", "intermediate_size"),
    ("sd15", "max_position_embeddings"),
    ("sdxl", "projection_dim"),
];

/// What another value of a key does by the lists.
fn expected(flip: &Flip) -> Expected {
    if REFUSED.contains(&(flip.table.file, flip.key)) {
        Expected::RefusedByName
    } else if MISFITS.contains(&(flip.fixture, flip.key)) {
        Expected::Misfit
    } else {
        Expected::Another
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_value_of_a_used_key_is_another_image() {
    let flips = [pipeline(), scheduler(), networks()].concat();
    every_used_key_is_flipped(&flips);
    let only = island_testing::selection("FLIP").unwrap_or_default();
    let mut without = Vec::new();
    let mut known = BTreeMap::new();
    for flip in flips.iter().filter(|flip| flip.key.contains(&only)) {
        let at = format!("{} {} = {} ({})", flip.table.file, flip.key, flip.value, flip.fixture);
        let why = match outcome(flip, &mut known).await {
            Ok(outcome) => outcome.differs(flip.key, expected(flip)),
            Err(why) => Some(why),
        };
        without.extend(why.map(|why| format!("{at}: {why}")));
    }
    assert!(without.is_empty(), "{} of {}:\n{}", without.len(), flips.len(), without.join("\n"));
}

fn every_used_key_is_flipped(flips: &[Flip]) {
    let flipped: BTreeSet<(&str, &str)> = flips.iter().map(|flip| (flip.table.file, flip.key)).collect();
    let mut missing = Vec::new();
    for table in [&keys::PIPELINE, &keys::SCHEDULER, &keys::UNET, &keys::AUTOENCODER, &keys::TEXT_ENCODER] {
        let used = table.keys.iter().filter(|(_, effect)| matches!(effect, Effect::Used | Effect::OneOf(_)));
        for (key, _) in used {
            let elsewhere = ELSEWHERE.iter().any(|(file, other, _)| *file == table.file && other == key);
            if elsewhere == flipped.contains(&(table.file, *key)) {
                missing.push(format!("{}: {key}", table.file));
            }
        }
    }
    assert!(missing.is_empty(), "flipped neither here nor elsewhere, or both:\n{}", missing.join("\n"));
}

/// What the other value of a key does. `known` are images without a flip.
async fn outcome(flip: &Flip, known: &mut BTreeMap<String, Vec<u8>>) -> Result<Outcome, String> {
    let fixture = Fixture::named(flip.fixture);
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut files = fixture.files();
    for (file, key, value) in flip.beside.iter().copied().flatten() {
        set(&folder, &mut files, file, key, value)?;
    }
    let surroundings = format!("{} {:?} {}", flip.fixture, flip.beside, flip.input);
    if !known.contains_key(&surroundings) {
        let before = pixels(&fixture, &files, flip.input).await;
        let before = before.map_err(|failure| format!("without it: {}", failure.message))?;
        known.insert(surroundings.clone(), before);
    }
    set(&folder, &mut files, flip.at.unwrap_or(flip.table.file), flip.key, flip.value)?;
    let after = match pixels(&fixture, &files, flip.input).await {
        Ok(after) => after,
        Err(failure) => return Ok(Outcome::Refused(failure.message)),
    };
    let before = &known[&surroundings];
    let differs = |(one, other): (&u8, &u8)| one.abs_diff(*other) > TOLERANCE;
    let is_another = after.len() != before.len() || after.iter().zip(before).any(differs);
    Ok(if is_another { Outcome::Another } else { Outcome::Same })
}

async fn pixels(
    fixture: &Fixture,
    files: &BTreeMap<String, PathBuf>,
    fields: &str,
) -> Result<Vec<u8>, Failure> {
    let settings = Settings { files: files.clone(), ..fixture.settings() };
    let engine = Diffusers::load(settings).await.map_err(Failure::from)?;
    let mut input = json!({ "prompt": "a boat", "num_inference_steps": 3, "seed": 5 });
    let fields: Value = serde_json::from_str(fields).expect("JSON");
    for (name, value) in fields.as_object().into_iter().flatten() {
        input[name] = if name == "image" { gradient().into() } else { value.clone() };
    }
    let (output, _) = run_job(&engine, fixture.cargo(), input).await;
    let data = output?["images"][0]["data"].as_str().map(|data| STANDARD.decode(data).expect("base64"));
    let image = image::load_from_memory(&data.expect("an image")).expect("an image");
    Ok(image.into_rgb8().into_raw())
}

/// An image to begin with.
fn gradient() -> String {
    let image = image::RgbImage::from_fn(32, 32, |x, y| image::Rgb([x as u8 * 8, y as u8 * 8, 128]));
    let mut bytes = std::io::Cursor::new(Vec::new());
    image.write_to(&mut bytes, image::ImageFormat::Png).expect("written");
    STANDARD.encode(bytes.into_inner())
}

/// Sets a key of a file, in a copy of it: null removes it.
fn set(
    folder: &TempDir,
    files: &mut BTreeMap<String, PathBuf>,
    file: &str,
    key: &str,
    value: &str,
) -> Result<(), String> {
    let path = files.get(file).ok_or_else(|| format!("{file} is not there"))?;
    let mut content: Value = serde_json::from_slice(&fs::read(path).expect("readable")).expect("JSON");
    let value: Value = serde_json::from_str(value).expect("JSON");
    if value.is_null() {
        content.as_object_mut().expect("an object").remove(key);
    } else if content.get(key) == Some(&value) {
        return Err(format!("{file} has {key} = {value} already"));
    } else {
        content[key] = value;
    }
    let path = folder.path().join(fs::read_dir(folder).expect("readable").count().to_string());
    fs::write(&path, content.to_string()).expect("written");
    files.insert(file.to_owned(), path);
    Ok(())
}
