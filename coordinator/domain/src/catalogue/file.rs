//! Reads one catalogue file. All problems are found, each with its line.

use std::{
    fs,
    ops::Range,
    path::Path,
    sync::{Arc, OnceLock},
};

use island_protocol::{
    MAX_OUTPUT_BYTES,
    artifact::Artifact,
    cargo::{CargoEntry, CargoSpec, Category, Limits, PriceUnit, RuntimeType, SandboxTier, TokenPrices},
    credits::MicroCredits,
    egress,
    ids::Slug,
};
use jsonschema::Validator;
use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use super::{
    Fault,
    artifacts::{self, ArtifactFile, Hashes, RepositoryFile},
    cargo,
    cargo::Cargo,
    evaluation,
    lines::line_of,
    manifest,
};

/// Names of graphs that engines run on the processor, whatever the machine has, end with these.
const ON_CPU: [&str; 3] = ["_quantized", "_int8", "_uint8"];

/// A catalogue file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CargoFile {
    pub(super) slug: Spanned<String>,
    name: Spanned<String>,
    description: Spanned<String>,
    category: Spanned<Category>,
    runtime_type: Spanned<RuntimeType>,
    onnx_task_type: Option<Spanned<String>>,
    price_per_job: Spanned<MicroCredits>,
    price_unit: Option<Spanned<PriceUnit>>,
    price_per_1k_input: Option<Spanned<MicroCredits>>,
    price_per_1k_output: Option<Spanned<MicroCredits>>,
    required_vram_mb: Spanned<u64>,
    required_ram_mb: u64,
    pub(super) model_url: Option<Spanned<String>>,
    pub(super) model_hash: Option<Spanned<String>>,
    pub(super) model_size_bytes: Option<Spanned<u64>>,
    /// Documentation only.
    #[serde(rename = "licence")]
    _licence: Option<String>,
    #[serde(default)]
    pub(super) aliases: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) artifacts: Vec<ArtifactFile>,
    pub(super) repository: Option<RepositoryFile>,
    #[serde(default)]
    limits: Limits,
    sandbox_tier: Option<SandboxTier>,
    #[serde(default)]
    engine: Option<Spanned<Value>>,
    /// Absent if the task has a schema.
    pub(super) input_schema: Option<Spanned<Value>>,
    pub(super) output_schema: Option<Spanned<Value>>,
    example: Spanned<Example>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    input: Value,
    #[serde(default)]
    output: Option<Value>,
}

/// Lines for messages of checks across files.
#[derive(Debug)]
pub(super) struct Places {
    pub slug: usize,
    pub aliases: Vec<(String, usize)>,
}

/// Who wrote a catalogue file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// An operator: a file on this machine, which may name others.
    Operator,
    /// An account: the text of a request.
    Publisher,
}

/// Collects faults by byte range.
pub(super) struct Checker<'a> {
    path: &'a Path,
    text: &'a str,
    pub(super) origin: Origin,
    faults: Vec<Fault>,
    /// Whether a file that `make cargos` builds is missing.
    pub(super) unbuilt: bool,
    /// Of the files that were read so far.
    pub(super) hashes: &'a mut Hashes,
}

impl Checker<'_> {
    pub(super) fn fault(&mut self, span: Range<usize>, message: impl Into<String>) {
        let line = line_of(self.text, span.start);
        self.faults.push(Fault { file: self.path.to_owned(), line, message: message.into() });
    }
}

/// Parses and checks one file; relative `file://` addresses are resolved against `dir`, and local files that are not in
/// `hashes` are hashed. Returns `None` if the file is valid but a file that it needs is not built.
pub(super) fn parse(
    path: &Path,
    dir: &Path,
    text: &str,
    origin: Origin,
    hashes: &mut Hashes,
) -> Result<Option<(Cargo, Places)>, Vec<Fault>> {
    let mut check = Checker { path, text, origin, faults: Vec::new(), unbuilt: false, hashes };
    let file: CargoFile = match toml::from_str(text) {
        Ok(file) => file,
        Err(error) => {
            check.fault(error.span().unwrap_or(0..0), error.message());
            return Err(check.faults);
        }
    };
    let slug = check_slug(&mut check, &file.slug);
    check_plain_fields(&mut check, &file);
    let artifacts = artifacts::read(&mut check, dir, &file);
    check_gpu(&mut check, &file, &artifacts);
    if origin == Origin::Publisher {
        manifest::check(&mut check, &file);
    }
    let (schemas, input, output) = schemas(&mut check, dir, &file);
    // Whether a value matches a schema is not asked before the schema is known to be harmless.
    if check.faults.is_empty() || origin == Origin::Operator {
        let pairs = [(&schemas[0], input.as_ref()), (&schemas[1], output.as_ref())];
        check_example(&mut check, &file, pairs);
    }
    let places = Places {
        slug: line_of(text, file.slug.span().start),
        aliases: file.aliases.iter().map(|a| (a.get_ref().clone(), line_of(text, a.span().start))).collect(),
    };
    match (slug, input, output) {
        (Some(slug), Some(input), Some(output)) if check.faults.is_empty() => {
            let is_bounded = origin == Origin::Publisher;
            let cargo = build(file, slug, artifacts, schemas, (input, output), is_bounded);
            Ok((!check.unbuilt).then_some((cargo, places)))
        }
        _ => Err(check.faults),
    }
}

fn check_slug(check: &mut Checker<'_>, slug: &Spanned<String>) -> Option<Slug> {
    slug.get_ref().parse().map_err(|error| check.fault(slug.span(), format!("{error}"))).ok()
}

fn check_plain_fields(check: &mut Checker<'_>, file: &CargoFile) {
    for (text, name) in [(&file.name, "name"), (&file.description, "description")] {
        if text.get_ref().trim().is_empty() {
            check.fault(text.span(), format!("{name} is empty"));
        }
    }
    let prices = [
        (Some(&file.price_per_job), "price_per_job"),
        (file.price_per_1k_input.as_ref(), "price_per_1k_input"),
        (file.price_per_1k_output.as_ref(), "price_per_1k_output"),
    ];
    for (price, name) in prices {
        if let Some(price) = price.filter(|price| price.get_ref().0 < 0) {
            check.fault(price.span(), format!("{name} is below zero"));
        }
    }
    let of_tokens = file.price_per_1k_input.as_ref().or(file.price_per_1k_output.as_ref());
    if let Some(price) = of_tokens.filter(|_| *file.runtime_type.get_ref() != RuntimeType::Llmcpp) {
        check
            .fault(price.span(), "only llmcpp Cargos have prices of tokens: other engines do not count them");
    }
    if let Some(unit) = &file.price_unit {
        let task =
            file.engine.as_ref().and_then(|engine| engine.get_ref().get("task")).and_then(Value::as_str);
        let task = file.onnx_task_type.as_ref().map(|task| task.get_ref().as_str()).or(task);
        let fits = match unit.get_ref() {
            PriceUnit::Job => true,
            PriceUnit::Image => *file.runtime_type.get_ref() == RuntimeType::Diffusers,
            PriceUnit::Minute => task == Some("automatic-speech-recognition"),
        };
        if !fits {
            check.fault(
                unit.span(),
                "images are the unit of diffusers Cargos, minutes that of Cargos which transcribe speech",
            );
        }
    }
    if file.limits.max_output_bytes > MAX_OUTPUT_BYTES {
        check.fault(file.name.span(), format!("limits.max_output_bytes is above {MAX_OUTPUT_BYTES}"));
    }
    let kind = file.runtime_type.get_ref();
    if matches!(kind, RuntimeType::Unknown(_)) {
        check.fault(file.runtime_type.span(), format!("unknown runtime_type {kind}"));
    }
    if *kind == RuntimeType::Container {
        check_egress(check, file);
    }
    match (&file.onnx_task_type, kind == &RuntimeType::Onnx) {
        (None, true) => check.fault(file.runtime_type.span(), "an onnx Cargo needs onnx_task_type"),
        (Some(task), false) => check.fault(task.span(), "onnx_task_type belongs to onnx Cargos only"),
        _ => {}
    }
}

/// Checks that a GPU is requested only by Cargos that use one: graphs that multiply integers of 8 bits run on the processor. With memory of a GPU,
/// the Cargo would be placed on Islands with GPUs, and their memory would be reserved for nothing.
fn check_gpu(check: &mut Checker<'_>, file: &CargoFile, artifacts: &[Artifact]) {
    if *file.runtime_type.get_ref() != RuntimeType::Onnx || *file.required_vram_mb.get_ref() == 0 {
        return;
    }
    let mut graphs = artifacts.iter().filter_map(|artifact| artifact.name.strip_suffix(".onnx")).peekable();
    let is_on_cpu = |graph: &str| ON_CPU.iter().any(|suffix| graph.ends_with(suffix));
    if graphs.peek().is_some() && graphs.all(is_on_cpu) {
        let message = "required_vram_mb must be 0: all graphs multiply integers of 8 bits, which no GPU does";
        check.fault(file.required_vram_mb.span(), message);
    }
}

/// Checks the addresses that a container's program connects to.
fn check_egress(check: &mut Checker<'_>, file: &CargoFile) {
    let Some(engine) = &file.engine else { return };
    match egress::declared(engine.get_ref()) {
        Err(error) => check.fault(engine.span(), format!("egress: {error}")),
        Ok(places) if places.len() > egress::MAX_PLACES => {
            check.fault(engine.span(), format!("egress names more than {} places", egress::MAX_PLACES));
        }
        Ok(places) if !places.is_empty() && file.sandbox_tier < Some(SandboxTier::Elevated) => {
            check.fault(engine.span(), "egress needs sandbox_tier = \"elevated\"");
        }
        Ok(_) => {}
    }
}

/// The schemas of input and output: those of the file, or else those of its task.
fn schemas(
    check: &mut Checker<'_>,
    dir: &Path,
    file: &CargoFile,
) -> ([Value; 2], Option<Validator>, Option<Validator>) {
    let needs_task = file.input_schema.is_none() || file.output_schema.is_none();
    let task = file.task().filter(|_| needs_task);
    let shared = task.as_ref().and_then(|(task, span)| {
        let found = TaskSchemas::read(check.origin, dir, file.runtime_type.get_ref(), task);
        found.map_err(|why| check.fault(span.clone(), why)).ok()
    });
    let shared = shared.unwrap_or_default();
    let mut take = |own: &Option<Spanned<Value>>, shared: Option<Value>, name: &str| {
        let (schema, span) = match (own, shared) {
            (Some(own), _) => (own.get_ref().clone(), own.span()),
            (None, Some(shared)) => (shared, file.slug.span()),
            (None, None) => {
                if task.is_none() {
                    check.fault(file.slug.span(), format!("{name} is missing"));
                }
                return (Value::Null, None);
            }
        };
        let compiled = match check.origin {
            Origin::Operator => evaluation::compiled(&schema),
            Origin::Publisher => evaluation::compiled_bounded(&schema),
        };
        let compiled =
            compiled.map_err(|error| check.fault(span, format!("{name} is not a JSON Schema: {error}")));
        (schema, compiled.ok())
    };
    let (input_schema, input) = take(&file.input_schema, shared.input_schema, "input_schema");
    let (output_schema, output) = take(&file.output_schema, shared.output_schema, "output_schema");
    ([input_schema, output_schema], input, output)
}

impl CargoFile {
    /// The task whose schemas are used, and where the file names it: an ONNX Cargo's task type, or `task` in the table
    /// of its engine.
    fn task(&self) -> Option<(&str, Range<usize>)> {
        if let Some(task) = &self.onnx_task_type {
            return Some((task.get_ref(), task.span()));
        }
        let engine = self.engine.as_ref()?;
        Some((engine.get_ref().get("task")?.as_str()?, engine.span()))
    }
}

/// Schemas of all Cargos of a task: `<engine>/tasks/<task>.toml` in the catalogue's folder.
#[derive(Debug, Default, Deserialize)]
struct TaskSchemas {
    input_schema: Option<Value>,
    output_schema: Option<Value>,
}

impl TaskSchemas {
    fn read(origin: Origin, dir: &Path, engine: &RuntimeType, task: &str) -> Result<Self, String> {
        if matches!(engine, RuntimeType::Unknown(_)) {
            return Err("the file has no schemas, and its engine is unknown".to_owned());
        }
        let file = format!("{}.toml", task.replace(['/', '.'], ""));
        let path = dir.join(engine.as_str()).join("tasks").join(file);
        let text = fs::read_to_string(&path).map_err(|error| match origin {
            Origin::Operator => format!(
                "the file has no schemas, and those of its task cannot be read: {}: {error}",
                path.display()
            ),
            // Paths of this machine are not for accounts.
            Origin::Publisher => {
                format!("the manifest has no schemas, and the network has none of task {task:?}")
            }
        })?;
        toml::from_str(&text).map_err(|error| format!("{}: {}", path.display(), error.message()))
    }
}

fn check_example(
    check: &mut Checker<'_>,
    file: &CargoFile,
    [input, output]: [(&Value, Option<&Validator>); 2],
) {
    let example = file.example.get_ref();
    let checks = [
        ("input", input, Some(&example.input), evaluation::INPUT_STEPS),
        ("output", output, example.output.as_ref(), evaluation::OUTPUT_STEPS),
    ];
    for (name, (schema, validator), value, limit) in checks {
        let (Some(validator), Some(value)) = (validator, value) else { continue };
        let checked = match check.origin {
            Origin::Operator => cargo::check(validator, value),
            Origin::Publisher => cargo::check_bounded(schema, validator, value, limit),
        };
        if let Err(violation) = checked {
            let message =
                format!("example {name} violates its schema: {}: {}", violation.field, violation.message);
            check.fault(file.example.span(), message);
        }
    }
}

fn build(
    file: CargoFile,
    slug: Slug,
    artifacts: Vec<Artifact>,
    schemas: [Value; 2],
    (input, output): (Validator, Validator),
    is_bounded: bool,
) -> Cargo {
    let [input_schema, output_schema] = schemas;
    let onnx_task_type = file.onnx_task_type.map(Spanned::into_inner);
    let runtime_type = file.runtime_type.into_inner();
    let price = |price: Option<Spanned<MicroCredits>>| price.map(Spanned::into_inner).unwrap_or_default();
    let token_prices = TokenPrices {
        price_per_1k_input: price(file.price_per_1k_input),
        price_per_1k_output: price(file.price_per_1k_output),
    };
    let example = file.example.into_inner();
    let mut shown = serde_json::json!({ "input": example.input });
    if let Some(output) = example.output {
        shown["output"] = output;
    }
    Cargo {
        number: 0,
        version: OnceLock::new(),
        entry: CargoEntry {
            slug: slug.clone(),
            name: file.name.into_inner(),
            description: file.description.into_inner(),
            runtime_type: runtime_type.clone(),
            onnx_task_type: onnx_task_type.clone(),
            price_per_job: *file.price_per_job.get_ref(),
            price_unit: file.price_unit.map(Spanned::into_inner).unwrap_or_default(),
            token_prices,
            required_vram_mb: *file.required_vram_mb.get_ref(),
            required_ram_mb: file.required_ram_mb,
            category: Some(file.category.into_inner()),
            published: None,
        },
        spec: Arc::new(CargoSpec {
            slug,
            runtime_type,
            onnx_task_type,
            price_per_job: file.price_per_job.into_inner(),
            token_prices,
            artifacts,
            required_vram_mb: file.required_vram_mb.into_inner(),
            required_ram_mb: file.required_ram_mb,
            limits: file.limits,
            sandbox_tier: file.sandbox_tier,
            engine: file.engine.map(Spanned::into_inner).unwrap_or_default(),
        }),
        input_schema,
        output_schema,
        input: Arc::new(input),
        output: Arc::new(output),
        is_bounded,
        example: shown,
    }
}
