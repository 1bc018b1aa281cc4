//! Reading one catalogue file. Every problem is found and placed, not just the first.

use std::{fs, io, ops::Range, path::Path, sync::Arc};

use island_protocol::{
    MAX_OUTPUT_BYTES,
    artifact::Artifact,
    cargo::{CargoEntry, CargoSpec, Category, Limits, RuntimeType, SandboxTier},
    credits::MicroCredits,
    digest::Digest,
    ids::Slug,
};
use jsonschema::Validator;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use toml::Spanned;

use super::{Fault, cargo, cargo::Cargo, lines::line_of};

/// Beginning of the address of a file that `make cargos` makes.
const BUILT: &str = "file://built/";

/// A catalogue file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CargoFile {
    slug: Spanned<String>,
    name: Spanned<String>,
    description: Spanned<String>,
    category: Spanned<Category>,
    runtime_type: Spanned<RuntimeType>,
    onnx_task_type: Option<Spanned<String>>,
    price_per_job: Spanned<MicroCredits>,
    required_vram_mb: u64,
    required_ram_mb: u64,
    model_url: Option<Spanned<String>>,
    model_hash: Option<Spanned<String>>,
    model_size_bytes: Option<Spanned<u64>>,
    /// For people who read the file.
    #[serde(rename = "licence")]
    _licence: Option<String>,
    #[serde(default)]
    aliases: Vec<Spanned<String>>,
    #[serde(default)]
    artifacts: Vec<ArtifactFile>,
    #[serde(default)]
    limits: Limits,
    sandbox_tier: Option<SandboxTier>,
    #[serde(default)]
    engine: Value,
    input_schema: Spanned<Value>,
    output_schema: Spanned<Value>,
    example: Spanned<Example>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArtifactFile {
    name: Spanned<String>,
    url: Spanned<String>,
    sha256: Option<Spanned<String>>,
    size_bytes: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    input: Value,
    #[serde(default)]
    output: Option<Value>,
}

/// Lines that checks across files speak of.
#[derive(Debug)]
pub(super) struct Places {
    pub slug: usize,
    pub aliases: Vec<(String, usize)>,
}

/// Collects faults by byte range.
struct Checker<'a> {
    path: &'a Path,
    text: &'a str,
    faults: Vec<Fault>,
    /// A file that `make cargos` would have made is not there.
    unbuilt: bool,
}

impl Checker<'_> {
    fn fault(&mut self, span: Range<usize>, message: impl Into<String>) {
        let line = line_of(self.text, span.start);
        self.faults.push(Fault { file: self.path.to_owned(), line, message: message.into() });
    }
}

/// Parses and checks one file; relative `file://` addresses are resolved against `dir`. `None`: it is right, but what it runs is
/// not built.
pub(super) fn parse(path: &Path, dir: &Path, text: &str) -> Result<Option<(Cargo, Places)>, Vec<Fault>> {
    let mut check = Checker { path, text, faults: Vec::new(), unbuilt: false };
    let file: CargoFile = match toml::from_str(text) {
        Ok(file) => file,
        Err(error) => {
            check.fault(error.span().unwrap_or(0..0), error.message());
            return Err(check.faults);
        }
    };
    let slug = check_slug(&mut check, &file.slug);
    check_plain_fields(&mut check, &file);
    let artifacts = artifacts(&mut check, dir, &file);
    let input = schema(&mut check, &file.input_schema, "input_schema");
    let output = schema(&mut check, &file.output_schema, "output_schema");
    check_example(&mut check, &file, input.as_ref(), output.as_ref());
    let places = Places {
        slug: line_of(text, file.slug.span().start),
        aliases: file.aliases.iter().map(|a| (a.get_ref().clone(), line_of(text, a.span().start))).collect(),
    };
    match (slug, input, output) {
        (Some(slug), Some(input), Some(output)) if check.faults.is_empty() => {
            let cargo = build(file, slug, artifacts, input, output);
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
    if file.price_per_job.get_ref().0 < 0 {
        check.fault(file.price_per_job.span(), "price_per_job is below zero");
    }
    if file.limits.max_output_bytes > MAX_OUTPUT_BYTES {
        check.fault(file.name.span(), format!("limits.max_output_bytes is above {MAX_OUTPUT_BYTES}"));
    }
    let kind = file.runtime_type.get_ref();
    if matches!(kind, RuntimeType::Unknown(_)) {
        check.fault(file.runtime_type.span(), format!("runtime_type {kind} is none of the six"));
    }
    match (&file.onnx_task_type, kind == &RuntimeType::Onnx) {
        (None, true) => check.fault(file.runtime_type.span(), "an onnx Cargo needs onnx_task_type"),
        (Some(task), false) => check.fault(task.span(), "onnx_task_type belongs to onnx Cargos only"),
        _ => {}
    }
}

fn artifacts(check: &mut Checker<'_>, dir: &Path, file: &CargoFile) -> Vec<Artifact> {
    let mut artifacts = Vec::new();
    let details =
        [file.model_hash.as_ref().map(Spanned::span), file.model_size_bytes.as_ref().map(Spanned::span)];
    if let Some(url) = &file.model_url {
        artifacts.push(Artifact {
            name: "model".to_owned(),
            url: address(check, dir, url),
            sha256: file.model_hash.as_ref().and_then(|hash| digest(check, hash)),
            size_bytes: file.model_size_bytes.as_ref().map(|size| *size.get_ref()),
        });
    } else {
        for span in details.into_iter().flatten() {
            check.fault(span, "there is no model_url that this belongs to");
        }
    }
    if file.model_url.as_ref().is_some_and(|url| url.get_ref().starts_with(BUILT)) {
        measure(&mut artifacts[0]);
    }
    for extra in &file.artifacts {
        if artifacts.iter().any(|known| known.name == *extra.name.get_ref()) {
            check.fault(extra.name.span(), format!("artifact {:?} is there twice", extra.name.get_ref()));
        }
        artifacts.push(Artifact {
            name: extra.name.get_ref().clone(),
            url: address(check, dir, &extra.url),
            sha256: extra.sha256.as_ref().and_then(|hash| digest(check, hash)),
            size_bytes: extra.size_bytes,
        });
    }
    artifacts
}

/// Fills in what cannot be known before the file is built. It is made on this machine, so its own hash is the one to hold it to.
fn measure(artifact: &mut Artifact) {
    let Some(path) = artifact.url.strip_prefix("file:///").map(|path| Path::new("/").join(path)) else {
        return;
    };
    let Ok(about) = fs::metadata(&path) else { return };
    artifact.size_bytes.get_or_insert(about.len());
    if artifact.sha256.is_none() {
        artifact.sha256 = noted_hash(&path, &about).or_else(|| hash(&path).ok());
    }
}

/// The hash that the build noted beside the file, unless the file is younger: images are large, and starting must be quick. A wrong
/// one does no harm: Islands hash what they get.
fn noted_hash(path: &Path, about: &fs::Metadata) -> Option<Digest> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".sha256");
    let noted = fs::metadata(&beside).ok()?.modified().ok()?;
    if noted < about.modified().ok()? {
        return None;
    }
    format!("sha256:{}", fs::read_to_string(&beside).ok()?.trim()).parse().ok()
}

fn hash(path: &Path) -> io::Result<Digest> {
    let mut hasher = Sha256::new();
    io::copy(&mut fs::File::open(path)?, &mut hasher)?;
    Ok(Digest::from_bytes(hasher.finalize().into()))
}

/// The address of a file, made absolute; a local file must be there.
fn address(check: &mut Checker<'_>, dir: &Path, url: &Spanned<String>) -> String {
    let text = url.get_ref();
    let Some(path) = text.strip_prefix("file://") else {
        let hub = text
            .strip_prefix("hf://")
            .is_some_and(|rest| rest.split('/').filter(|p| !p.is_empty()).count() >= 2);
        let image = text.strip_prefix("docker://").is_some_and(|rest| rest.contains("@sha256:"));
        if !hub && !image && !text.starts_with("https://") {
            let forms =
                "an address is hf://owner/repo[:file][@revision], https://…, file://… or docker://…@sha256:…";
            check.fault(url.span(), forms);
        }
        return text.clone();
    };
    let path = dir.join(path);
    let Ok(found) = path.canonicalize() else {
        if text.starts_with(BUILT) {
            check.unbuilt = true;
        } else {
            check.fault(url.span(), format!("{} does not exist", path.display()));
        }
        return text.clone();
    };
    format!("file://{}", found.display())
}

/// A digest, with or without the prefix.
fn digest(check: &mut Checker<'_>, text: &Spanned<String>) -> Option<Digest> {
    let hex = text.get_ref().strip_prefix("sha256:").unwrap_or(text.get_ref());
    format!("sha256:{hex}").parse().map_err(|error| check.fault(text.span(), format!("{error}"))).ok()
}

fn schema(check: &mut Checker<'_>, schema: &Spanned<Value>, name: &str) -> Option<Validator> {
    let compiled = jsonschema::validator_for(schema.get_ref());
    compiled.map_err(|error| check.fault(schema.span(), format!("{name} is no JSON Schema: {error}"))).ok()
}

fn check_example(
    check: &mut Checker<'_>,
    file: &CargoFile,
    input: Option<&Validator>,
    output: Option<&Validator>,
) {
    let example = file.example.get_ref();
    let pairs = [("input", input, Some(&example.input)), ("output", output, example.output.as_ref())];
    for (name, schema, value) in pairs {
        let (Some(schema), Some(value)) = (schema, value) else { continue };
        if let Err(misfit) = cargo::check(schema, value) {
            let message =
                format!("example {name} does not fit its schema: {}: {}", misfit.field, misfit.message);
            check.fault(file.example.span(), message);
        }
    }
}

fn build(
    file: CargoFile,
    slug: Slug,
    artifacts: Vec<Artifact>,
    input: Validator,
    output: Validator,
) -> Cargo {
    let onnx_task_type = file.onnx_task_type.map(Spanned::into_inner);
    let runtime_type = file.runtime_type.into_inner();
    let example = file.example.into_inner();
    let mut shown = serde_json::json!({ "input": example.input });
    if let Some(output) = example.output {
        shown["output"] = output;
    }
    Cargo {
        number: 0,
        entry: CargoEntry {
            slug: slug.clone(),
            name: file.name.into_inner(),
            description: file.description.into_inner(),
            runtime_type: runtime_type.clone(),
            onnx_task_type: onnx_task_type.clone(),
            price_per_job: file.price_per_job.into_inner(),
            required_vram_mb: file.required_vram_mb,
            required_ram_mb: file.required_ram_mb,
            category: Some(file.category.into_inner()),
        },
        spec: Arc::new(CargoSpec {
            slug,
            runtime_type,
            onnx_task_type,
            artifacts,
            required_vram_mb: file.required_vram_mb,
            required_ram_mb: file.required_ram_mb,
            limits: file.limits,
            sandbox_tier: file.sandbox_tier,
            engine: file.engine,
        }),
        input_schema: file.input_schema.into_inner(),
        output_schema: file.output_schema.into_inner(),
        input: Arc::new(input),
        output: Arc::new(output),
        example: shown,
    }
}
