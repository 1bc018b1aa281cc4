//! Every stage against Python's diffusers, on small models of each family. Prints the difference of each.

use std::fmt::Write as _;

use island_runtimes_diffusers::{
    lora::Adapters,
    model::On,
    schedule,
    unet::{Conditioning, Inputs},
    vae::Tiles,
    weights::Element,
};
use island_testing::vulkan;
use serde_json::Value;

use crate::support::{
    Apart, Fixture, Numbers, all, fixtures, graphs, named,
    pipelines::{pipeline, text, without_nulls, worse, worst},
};

/// Differences above their tolerance, and a line for everything.
struct Table {
    rows: usize,
    lines: String,
    wrong: Vec<String>,
    tolerances: Tolerances,
}

impl Table {
    fn new(tolerances: Tolerances) -> Self {
        Self { rows: 0, lines: String::new(), wrong: Vec::new(), tolerances }
    }

    fn row(&mut self, at: &str, apart: Apart, tolerance: f32) {
        self.rows += 1;
        let Apart { most, share, cosine } = apart;
        let _ = writeln!(self.lines, "{at:<58} {most:>10.2e} {share:>10.2e} {cosine:>12.9}");
        // Written so that no comparison with NaN passes.
        if !(share <= tolerance && cosine > self.tolerances.cosine) {
            self.wrong.push(format!("{at}: apart by {most:e}, of the greatest {share:e}, cosine {cosine}"));
        }
    }

    #[expect(clippy::print_stdout, reason = "the table is the purpose of the test")]
    fn finish(self, title: &str, least_rows: usize) {
        println!("\n{:<58} {:>10} {:>10} {:>12}\n{}", title, "most", "of max", "cosine", self.lines);
        // One fixture may be selected while working on it.
        assert!(
            self.rows >= least_rows || std::env::var_os("SD_FIXTURE").is_some(),
            "{} rows of {title}, not {least_rows}",
            self.rows
        );
        assert!(self.wrong.is_empty(), "{} differ:\n{}", self.wrong.len(), self.wrong.join("\n"));
    }
}

fn ids(case: &Value) -> Vec<u32> {
    case["ids"].as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

fn folder_index(name: &str) -> usize {
    usize::from(name.ends_with("_2"))
}

/// The differences that a kind of numbers may have, as shares of the maximum.
#[derive(Debug, Clone, Copy)]
struct Tolerances {
    text: f32,
    /// A factor for [`rounding`].
    network: f32,
    autoencoder: f32,
    pipeline: f32,
    cosine: f64,
}

/// Single precision.
const SINGLE: Tolerances =
    Tolerances { text: 2e-5, network: 1.0, autoencoder: 5e-5, pipeline: 1e-2, cosine: 0.9999 };

/// Half precision, whose unit in the last place is 2¹³ that of single precision. The processor rounds each result to it, GPUs also each sum.
/// The text encoders do not amplify that; the random networks amplify it as they do single precision's, so that 2¹³ times [`rounding`] is a
/// bound. Errors of independent roundings are smaller: a sixth of it holds, and the direction of the prediction remains.
const HALF: Tolerances =
    Tolerances { text: 5e-3, network: 8192.0 / 6.0, autoencoder: 5e-5, pipeline: 2e-2, cosine: 0.98 };

/// A GPU that the processor emulates, whose exponential function is less exact.
const ON_GPU: Tolerances = Tolerances { network: 8.0, ..SINGLE };

/// There in half precision, where sums of some hundred products are rounded a hundred times, too.
const HALF_ON_GPU: Tolerances = Tolerances { network: 8192.0, ..HALF };

#[test]
fn graphs_equal_diffusers() {
    let on = graphs(Element::F32);
    encoders(&on, SINGLE, &[]);
    network(&on, SINGLE, &[]);
    autoencoder(&on, SINGLE, &[]);
    pipelines(&on, SINGLE, &[], 140);
}

#[test]
fn graphs_in_half_precision_equal_diffusers() {
    let on = graphs(Element::F16);
    encoders(&on, HALF, &[]);
    network(&on, HALF, &[]);
    autoencoder(&on, HALF, &[]);
    // The others repeat the amplified error in each step.
    pipelines(&on, HALF, &["lcm", "sd15-inpaint", "sdxl"], 50);
}

/// The same on a GPU that the processor emulates, where sums are rounded to half precision, too: in a process of its own, because the driver is
/// chosen by the environment.
#[test]
fn graphs_on_a_gpu_equal_diffusers() {
    if std::env::var_os("SD_GPU").is_none() {
        let Some(environment) = vulkan::software("graphs of Stable Diffusion on a GPU") else { return };
        let program = std::env::current_exe().expect("this program");
        let mut test = std::process::Command::new(program);
        test.args(["--exact", "goldens::graphs_on_a_gpu_equal_diffusers", "--nocapture"]).envs(environment);
        let output = test.env("SD_GPU", "1").output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    // One with two encoders, and one whose first convolution has nine channels.
    let names = ["sdxl", "sd15-inpaint"];
    let on = graphs(Element::F32);
    encoders(&on, SINGLE, &names);
    network(&on, ON_GPU, &names);
    autoencoder(&on, SINGLE, &names);
    let on = graphs(Element::F16);
    encoders(&on, HALF, &names);
    network(&on, HALF_ON_GPU, &names);
}

#[test]
fn tokens_equal_transformers() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for fixture in all() {
        let model = fixture.model(&On::Processor).expect("a model");
        for case in fixture.list("tokens") {
            let encoder = &model.prompts.encoders()[folder_index(text(&case, "tokenizer"))];
            let (got, _) = encoder.tokens.of(text(&case, "prompt")).expect("tokens");
            count += 1;
            if got != ids(&case) {
                wrong.push(format!(
                    "{}/{}: {got:?}, not {:?}",
                    fixture.name,
                    text(&case, "name"),
                    ids(&case)
                ));
            }
        }
    }
    assert!(count > 0 && wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn encoders_equal_transformers() {
    encoders(&On::Processor, SINGLE, &[]);
}

fn encoders(on: &On, tolerances: Tolerances, names: &[&str]) {
    let mut table = Table::new(tolerances);
    for fixture in named(names) {
        let model = fixture.model(on).expect("a model");
        for case in fixture.list("hidden") {
            let index = folder_index(text(&case, "encoder"));
            let depth = model.prompts.encoders()[index].depth;
            let encode = |layer| {
                let encoded = model.networks.encode(index, &ids(&case), layer, &Adapters::default());
                encoded.expect("encoded")
            };
            let (last, penultimate) = (encode(depth), encode(depth - 1));
            for (name, tensor) in
                [("last", &last.normed), ("penultimate", &penultimate.state), ("pooled", &last.pooled)]
            {
                let path = format!("hidden/{}/{name}", text(&case, "name"));
                table.row(&format!("{}/{path}", fixture.name), of(tensor, &fixture, &path), tolerances.text);
            }
        }
        for case in fixture.list("text") {
            let skip = case["clip_skip"].as_u64().map(|skip| skip as usize);
            let encode = |prompt: &str, skip| {
                let networks = model.networks.as_ref();
                model.prompts.encode(networks, prompt, skip, &Adapters::default()).expect("encoded")
            };
            let positive = encode(text(&case, "prompt"), skip);
            let negative = match case["negative_prompt"].as_str() {
                None if model.zeros_for_absent_negative => positive.zeros().expect("silence"),
                negative => (*encode(negative.unwrap_or_default(), None)).clone(),
            };
            let mut rows = vec![("prompt", positive.states.clone()), ("negative", negative.states)];
            rows.extend(positive.pooled.clone().map(|pooled| ("pooled", pooled)));
            rows.extend(negative.pooled.map(|pooled| ("negative_pooled", pooled)));
            for (name, tensor) in rows {
                let path = format!("text/{}/{name}", text(&case, "name"));
                let apart = of(&tensor, &fixture, &path);
                table.row(&format!("{}/{path}", fixture.name), apart, tolerances.text);
            }
        }
    }
    table.finish("text encoders", if names.is_empty() { 60 } else { 1 });
}

fn of(tensor: &candle_core::Tensor, fixture: &Fixture, path: &str) -> Apart {
    let got: Vec<f32> = tensor.flatten_all().and_then(|flat| flat.to_vec1()).expect("numbers");
    Apart::of(&got, &fixture.numbers(path).values)
}

#[test]
fn network_equals_diffusers() {
    network(&On::Processor, SINGLE, &[]);
}

fn network(on: &On, tolerances: Tolerances, names: &[&str]) {
    let mut table = Table::new(tolerances);
    for fixture in named(names) {
        let model = fixture.model(on).expect("a model");
        for case in fixture.list("unet") {
            let path = |tensor: &str| format!("unet/{}/{tensor}", text(&case, "name"));
            let sample = fixture.numbers(&path("sample")).pixels_last().tensor();
            let numbers = |tensor: &str| fixture.has(&path(tensor)).then(|| fixture.numbers(&path(tensor)));
            let conditioning = Conditioning {
                states: numbers("states").map(Numbers::tensor),
                pooled: numbers("text_embeds").map(Numbers::tensor),
                sizes: numbers("time_ids").map(|ids| ids.values.clone()).unwrap_or_default(),
                guidance: case.get("guidance").and_then(Value::as_f64).map(|guidance| guidance as f32),
            };
            let time = case["timestep"].as_f64().expect("a timestep");
            assert_eq!(
                fixture.has(&path("timestep_cond")),
                conditioning.guidance.is_some(),
                "{}",
                path("guidance")
            );
            let inputs = Inputs::new(&model.unet, &sample, time, &conditioning).expect("inputs");
            let got = model.networks.predict(&inputs, &Adapters::default()).expect("predicted");
            let got: Vec<f32> = got.flatten_all().and_then(|flat| flat.to_vec1()).expect("numbers");
            let wanted = fixture.numbers(&path("output")).pixels_last().values;
            table.row(
                &format!("{}/{}", fixture.name, path("output")),
                Apart::of(&got, &wanted),
                rounding(&fixture.name) * tolerances.network,
            );
        }
    }
    table.finish("network", if names.is_empty() { 15 } else { 1 });
}

#[test]
fn autoencoder_equals_diffusers() {
    autoencoder(&On::Processor, SINGLE, &[]);
}

fn autoencoder(on: &On, tolerances: Tolerances, names: &[&str]) {
    let mut table = Table::new(tolerances);
    for fixture in named(names) {
        let model = fixture.model(on).expect("a model");
        for case in fixture.list("vae") {
            let path = |tensor: &str| format!("vae/{}/{tensor}", text(&case, "name"));
            let tiles = (case["tiling"] == true).then(|| Tiles::of(&model.vae));
            let pixels = |tensor: &str| fixture.numbers(&path(tensor)).pixels_last();
            let mut compare = |name: &str, got: &candle_core::Tensor| {
                let got: Vec<f32> = got.flatten_all().and_then(|flat| flat.to_vec1()).expect("numbers");
                table.row(
                    &format!("{}/{}", fixture.name, path(name)),
                    Apart::of(&got, &pixels(name).values),
                    tolerances.autoencoder,
                );
            };
            if text(&case, "direction") == "encode" {
                let (mean, variance) = model.latents(&pixels("image").tensor(), tiles).expect("encoded");
                compare("mean", &mean);
                compare("logvar", &variance);
            } else {
                compare("image", &model.picture(&pixels("latents").tensor(), tiles).expect("decoded"));
            }
        }
    }
    table.finish("autoencoder", if names.is_empty() { 16 } else { 1 });
}

#[test]
fn initial_images_are_read_as_in_diffusers() {
    let mut wrong = Vec::new();
    for fixture in all() {
        let multiple = fixture.model(&On::Processor).expect("a model").defaults().multiple;
        for case in fixture.list("preprocess") {
            let source = island_runtimes_diffusers::picture::read(&fixture.base64(text(&case, "file")), "it");
            let source = source.expect("a picture");
            let (height, width) = source.size();
            let side = |name: &str, own: usize| {
                case[name].as_u64().map_or(own / multiple * multiple, |side| side as usize)
            };
            let (height, width) = (side("height", height), side("width", width));
            let wanted = fixture.numbers(&format!("preprocess/{}/pixels", text(&case, "name"))).pixels_last();
            let got = match text(&case, "kind") {
                "mask" => source.mask(height, width),
                _ => source.pixels(height, width),
            };
            let apart = Apart::of(&got, &wanted.values);
            // Two steps of eight bits.
            if !(apart.most <= 2.0 * 2.0 / 255.0 + 1e-6) {
                wrong.push(format!("{}/{}: {apart:?}", fixture.name, text(&case, "name")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pipelines_equal_diffusers() {
    pipelines(&On::Processor, SINGLE, &[], 140);
}

fn pipelines(on: &On, tolerances: Tolerances, names: &[&str], least: usize) {
    let mut table = Table::new(tolerances);
    for fixture in named(names) {
        let model = fixture.model(on).expect("a model");
        for case in fixture.list("pipelines") {
            let at = format!("{}/pipelines/{}", fixture.name, text(&case, "name"));
            let [worst, pixels] = pipeline(&fixture, &model, &case)
                .unwrap_or_else(|failure| panic!("{at}: {}", failure.message()));
            // Guidance and many steps amplify the rounding of the first.
            table.row(&format!("{at} steps"), worst, tolerances.pipeline);
            table.row(&format!("{at} image"), pixels, tolerances.pipeline);
        }
    }
    table.finish("pipelines", least);
}

/// The effect of rounding alone on a network of random weights, relative to the maximum: PyTorch's own results in f32 and in f64 differ as
/// much.
fn rounding(fixture: &str) -> f32 {
    match fixture {
        "sd15" | "sd21" => 5e-4,
        "lcm" => 2e-4,
        _ => 5e-5,
    }
}

#[test]
fn schedulers_equal_diffusers() {
    let folder = fixtures().join("schedulers/golden");
    assert!(folder.join("cases.json").is_file(), "there are goldens of the schedulers");
    let fixture = Fixture::read(&folder, &folder);
    let mut table = Table::new(SINGLE);
    let (start, outputs, noises) =
        (fixture.numbers("start"), fixture.numbers("outputs"), fixture.numbers("noises"));
    for case in fixture.list("schedulers") {
        let name = text(&case, "name").to_owned();
        let config: schedule::Config =
            serde_json::from_value(without_nulls(&case["config"])).expect("settings");
        let steps = case["steps"].as_u64().expect("steps") as usize;
        let mut scheduler = match schedule::make(&config, steps, case["eta"].as_f64().unwrap_or(0.0)) {
            Ok(scheduler) => scheduler,
            // No repository requests it; LCM's settings make diffusers do it if a user chooses PNDM instead.
            Err(failure) if failure.message().contains("skip_prk_steps") => {
                assert_eq!(
                    (text(&case["config"], "_class_name"), &case["config"]["skip_prk_steps"]),
                    ("PNDMScheduler", &Value::Bool(false))
                );
                continue;
            }
            Err(failure) => {
                table.wrong.push(format!("{name}: {}", failure.message()));
                continue;
            }
        };
        let numbers = |key: &str| -> Vec<f32> {
            let list = case[key].as_array().into_iter().flatten();
            list.map(|value| value.as_f64().unwrap_or(f64::NAN) as f32).collect()
        };
        let flat = |values: &[f64]| values.iter().map(|value| *value as f32).collect::<Vec<_>>();
        let times = flat(scheduler.timesteps());
        if times.len() != numbers("timesteps").len() {
            table.wrong.push(format!("{name}: timesteps {times:?}, not {:?}", numbers("timesteps")));
            continue;
        }
        table.row(&format!("{name} timesteps"), Apart::of(&times, &numbers("timesteps")), 1e-6);
        if !numbers("sigmas").is_empty() && !scheduler.sigmas().is_empty() {
            table.row(
                &format!("{name} sigmas"),
                Apart::of(&flat(scheduler.sigmas()), &numbers("sigmas")),
                1e-6,
            );
        }
        let begin = case["begin"].as_u64().unwrap_or(0) as usize;
        let mut sample = if begin == 0 {
            let scale = scheduler.start_scale();
            let wanted = case["init_noise_sigma"].as_f64().expect("a scale");
            table.row(&format!("{name} start"), Apart::of(&[scale as f32], &[wanted as f32]), 1e-6);
            start.values.iter().map(|value| (f64::from(*value) * scale) as f32).collect()
        } else {
            scheduler.add_noise(begin, &start.values, &noises.at(39).values)
        };
        let wanted = fixture.numbers(&format!("schedulers/{name}/samples"));
        let (mut drawn, mut worst) = (0, worst());
        for index in begin..times.len() {
            let shown = scheduler.scale_input(index, &sample);
            let given = outputs.at((index - begin) % 8).values;
            let output: Vec<f32> =
                shown.iter().zip(&given).map(|(shown, given)| 0.3 * shown + given).collect();
            let mut draw = || {
                drawn += 1;
                noises.at(drawn - 1).values
            };
            sample = scheduler.step(index, &output, &sample, &mut draw);
            worst = worse(worst, Apart::of(&sample, &wanted.at(index - begin).values));
        }
        table.row(&format!("{name} samples"), worst, 1e-4);
    }
    table.finish("schedulers", 700);
}
