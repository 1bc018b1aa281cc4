//! The engine interface: jobs are checked and encoded here, on other threads than the engine's.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    time::{SystemTime, UNIX_EPOCH},
};

use island_protocol::{
    cargo::{CargoSpec, RuntimeType},
    host::{CONTINUES_FORMS, Device},
    job::{Failure, FailureCode, FinishReason, Outcome, Usage},
};
use island_runtimes_api::{Phase, Probe, RunContext, RunRequest, Runtime, Unavailable};
use island_runtimes_kit::keys::{Form, check_engine, unsupported};
use island_runtimes_template::{Conversation, Offer};
use island_runtimes_worker::launch::GpuGrant;
use llama_cpp_2::{context::params::KvCacheType, sampling::LlamaSampler, token::LlamaToken};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::{
    backend,
    encoder::{self, EncoderHandle, Purpose, Rows},
    engine::{self, DraftCounts, DraftMode, EngineHandle, EngineOptions, Job, Reasoning, Started},
    fit::{Fit, Measured, Weights},
    gguf::{GgufError, Header},
    gpu, grammar,
    model::{Model, cache_bytes_per_layer, head_sizes, number},
    prompt::{self, Prompt},
    reasoning::Splitter,
    request::{Media, Request},
    split,
    tools::calls::{CallFinder, Ending},
    vision::{NO_PICTURES, NO_SOUNDS, Picture},
};

/// Version of the bindings, which determines that of llama.cpp.
const VERSION: &str = "0.1.160";
/// Context of a job whose Cargo sets none, tokens.
const USUAL_CONTEXT: u32 = 4096;
/// Share of the memory limit for cached keys and values.
const CACHE_SHARE: u64 = 4;

/// Keys of `[engine]`, beside `drafts`, which has values of two kinds, and those that coordinators and agents read.
const KEYS: [(&str, Form); 8] = [
    ("defaults", Form::Table),
    ("kv_cache", Form::Text),
    ("lora_scale", Form::Number),
    ("pooling", Form::Text),
    ("normalize", Form::Flag),
    ("prompts", Form::Table),
    ("default_prompt_name", Form::Text),
    // On Islands whose simulated engine runs the Cargo otherwise.
    ("simulated", Form::Flag),
];

/// Settings of the engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The model file, or the first of several.
    pub path: PathBuf,
    /// The projector for pictures, if the model sees.
    pub projector: Option<PathBuf>,
    /// The LoRA adapter of its weights, if it has one.
    pub adapter: Option<PathBuf>,
    /// Its Cargo.
    pub cargo: CargoSpec,
    /// Jobs at once.
    pub slots: u32,
    /// Processor threads; 0 means all.
    pub threads: u32,
    /// Main memory that it may allocate, megabytes; 0 means no limit.
    pub memory_limit_mb: u64,
    /// The GPUs that it may use; empty restricts it to the processor.
    pub gpus: Vec<GpuGrant>,
}

/// A loaded language model.
#[derive(Debug)]
pub struct Llmcpp {
    model: Arc<Model>,
    context_tokens: u64,
    slots: u32,
    vram_mb: u64,
    drafts: Arc<DraftCounts>,
    engine: Mutex<Option<Handle>>,
    purpose: Option<Purpose>,
}

/// The thread that owns the context.
#[derive(Debug)]
enum Handle {
    /// Of a model that generates text.
    Generator(EngineHandle),
    /// Of a model that embeds or ranks texts.
    Encoder(EncoderHandle),
}

impl Llmcpp {
    /// Checks and loads a model. `progress` is called with loaded and total parts, from another thread.
    pub async fn load(
        settings: Settings,
        progress: impl Fn(u64, u64) + Send + 'static,
    ) -> Result<Self, Failure> {
        let unusable =
            |error: &dyn std::fmt::Display| Failure::of_host(FailureCode::InternalError, error.to_string());
        check_settings(&settings.cargo)?;
        let backend = backend::start().map_err(|error| unusable(&error))?;
        let slots = settings.slots.max(1);
        if let Some(purpose) = Purpose::of(&settings.cargo) {
            let (sender, started) = oneshot::channel();
            let load = move || load_encoder(backend, purpose, &settings, progress);
            let encoder = encoder::start(&backend.llama, load, sender).map_err(|error| unusable(&error))?;
            let (model, options) = started.await.map_err(|_| unusable(&"the engine's thread ended"))??;
            return Ok(Self {
                vram_mb: gpu::used(&model.placement.gpus) >> 20,
                model,
                context_tokens: options.tokens.into(),
                slots,
                drafts: Arc::default(),
                engine: Mutex::new(Some(Handle::Encoder(encoder))),
                purpose: Some(purpose),
            });
        }
        let (sender, started) = oneshot::channel();
        let load = move || load(backend, &settings, slots, progress);
        let engine = engine::start(&backend.llama, load, sender).map_err(|error| unusable(&error))?;
        let Started { model, context_tokens, drafts } =
            started.await.map_err(|_| unusable(&"the engine's thread ended"))??;
        let vram_mb = gpu::used(&model.placement.gpus) >> 20;
        Ok(Self {
            model,
            context_tokens: context_tokens.into(),
            slots,
            vram_mb,
            drafts,
            engine: Mutex::new(Some(Handle::Generator(engine))),
            purpose: None,
        })
    }

    /// Memory it allocated on GPUs, megabytes.
    pub fn vram_mb(&self) -> u64 {
        self.vram_mb
    }

    /// Jobs at once.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Numbers of guessed tokens since the model was loaded: those that were checked, and those of them that were right.
    pub fn draft_counts(&self) -> (u64, u64) {
        self.drafts.get()
    }

    /// Tokens of context for each job.
    pub fn context_tokens(&self) -> u64 {
        self.context_tokens
    }

    /// The prompt's tokens, and the grammar of what follows the delivered text if the reply must have a format.
    async fn encode(
        &self,
        request: &Request,
        delivered: &str,
    ) -> Result<(Prompt, Option<LlamaSampler>), Failure> {
        let (model, schema) = (Arc::clone(&self.model), request.schema.clone());
        let (text, delivered) = (request.text.clone(), delivered.to_owned());
        let offer = request.offer.as_ref();
        let offer = offer.map(|offer| Offer { tools: &offer.tools, instructions: offer.instructions() });
        let media = request.media.clone();
        let conversation = Conversation {
            thinking: request.thinking.clone(),
            ..model.template.conversation(&request.messages, offer.as_ref())
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        let encoding = tokio::task::spawn_blocking(move || {
            let mut grammar = schema.map(|schema| grammar::for_schema(&model, &schema)).transpose()?;
            if let Some(grammar) = &mut grammar {
                grammar::advance(grammar, &model, &delivered)?;
            }
            if let Some(text) = text {
                return Ok((prompt::encode_text(&model, &text)?, grammar));
            }
            let pictures = pictures(&model, &media)?;
            Ok((prompt::encode(&model, &conversation, &pictures, now)?, grammar))
        });
        let broke = |_| Failure::of_host(FailureCode::InternalError, "encoding the prompt failed");
        encoding.await.map_err(broke)?
    }

    /// Number of tokens that may be written after `prompt`.
    fn reply_tokens(&self, prompt: usize, requested: Option<u64>) -> Result<u64, Failure> {
        let left = self.context_tokens.saturating_sub(prompt as u64);
        if prompt == 0 {
            return Err(Failure::of_job(FailureCode::InvalidInput, "the prompt is empty"));
        }
        if left == 0 {
            let message = format!("the prompt has {prompt} tokens, the context has {}", self.context_tokens);
            return Err(Failure::of_job(FailureCode::ContextLengthExceeded, message));
        }
        Ok(requested.map_or(left, |requested| requested.min(left)))
    }

    /// Embeds or ranks the texts of a job.
    async fn encode_texts(
        &self,
        purpose: Purpose,
        request: RunRequest,
        context: RunContext,
    ) -> Result<Outcome, Failure> {
        context.work.enter(Phase::Wait);
        let parsed = encoder::Request::of(purpose, &request.cargo, &request.input)?;
        let (model, limit) = (Arc::clone(&self.model), self.context_tokens as usize);
        let encoding = tokio::task::spawn_blocking(move || {
            let rows = Rows::new(&model, limit).of(&parsed);
            rows.map(|rows| (parsed, rows))
        });
        let broke = |_| Failure::of_host(FailureCode::InternalError, "encoding the texts failed");
        let (parsed, rows) = encoding.await.map_err(broke)??;
        let usage = Usage::tokens(rows.iter().map(|row| row.len() as u64).sum(), 0);
        let (done, vectors) = oneshot::channel();
        let gone = || Failure::of_host(FailureCode::RuntimeCrashed, "the engine has ended");
        let jobs = match &*self.engine.lock() {
            Some(Handle::Encoder(encoder)) => Some(encoder.jobs.clone()),
            _ => None,
        };
        let job = encoder::Job { rows, context, done };
        jobs.and_then(|jobs| jobs.send(job).ok()).ok_or_else(gone)?;
        let output = parsed.output(vectors.await.map_err(|_| gone())??)?;
        let outcome =
            Outcome::Completed { usage, output: Some(output), finish_reason: None, stop_text: None };
        Ok(outcome.on(&self.model.placement.to_string()))
    }

    async fn attempt(&self, request: RunRequest, context: RunContext) -> Result<Outcome, Failure> {
        if let Some(purpose) = self.purpose {
            return self.encode_texts(purpose, request, context).await;
        }
        context.work.enter(Phase::Wait);
        let parsed = Request::of(&request, RandomState::new().build_hasher().finish())?;
        let delivered = request.continues.as_deref().unwrap_or_default();
        let (prompt, grammar) = self.encode(&parsed, delivered).await?;
        if parsed.counts_only {
            let usage = Usage::tokens(prompt.tokens.len() as u64, 0);
            return Ok(Outcome::Completed {
                usage,
                output: None,
                finish_reason: Some(FinishReason::Stop),
                stop_text: None,
            });
        }
        let calls = parsed.offer.clone().map(|offer| CallFinder::new(offer, context.key.job_id, delivered));
        let (before, reasoning) = if parsed.text.is_some() {
            (prompt::tokens_of(&self.model, &[(delivered.to_owned(), false)]), None)
        } else {
            let text_len = match &calls {
                // A call that a grammar enforces is plain JSON, without marks of the model's family.
                Some(calls) if grammar.is_none() => calls.text_len(),
                _ => delivered.len(),
            };
            let call = delivered.get(text_len..).unwrap_or_default();
            self.resume(&request, &parsed, prompt.opens_reasoning, call)
        };
        let Prompt { tokens: mut prompt, pictures, .. } = prompt;
        let max_tokens = self.reply_tokens(prompt.len(), parsed.max_tokens)?;
        let max_tokens = max_tokens.saturating_sub(before.len() as u64);
        if max_tokens == 0 {
            // It was written to its end; only the event of its end was lost.
            let usage = Usage::tokens(prompt.len() as u64, before.len() as u64);
            return Ok(ended_by_length(calls, &context, usage));
        }
        let continued = before.len();
        prompt.extend(before);
        let (done, outcome) = oneshot::channel();
        let Request { sampling, stops, .. } = parsed;
        let scope = request.scope;
        let job = Job {
            prompt,
            pictures,
            continued,
            max_tokens,
            sampling,
            stops,
            calls,
            reasoning,
            grammar,
            scope,
            context,
            done,
        };
        let gone = || Failure::of_host(FailureCode::RuntimeCrashed, "the engine has ended");
        self.jobs().and_then(|jobs| jobs.send(job).ok()).ok_or_else(gone)?;
        Ok(outcome.await.map_err(|_| gone())?.on(&self.model.placement.to_string()))
    }

    /// The tokens of what was delivered, and how the rest of the reply is separated. `is_opened` if the prompt ends where reasoning begins;
    /// `call` is the end of the answer that consists of calls.
    fn resume(
        &self,
        request: &RunRequest,
        parsed: &Request,
        is_opened: bool,
        call: &str,
    ) -> (Vec<LlamaToken>, Option<Reasoning>) {
        let answer = request.continues.as_deref().unwrap_or_default();
        let tokens = |pieces: &[(String, bool)]| prompt::tokens_of(&self.model, pieces);
        // The marks of calls are control tokens of some models; text before them that looks like one is not.
        let with_call = |mut pieces: Vec<(String, bool)>| {
            if let (Some((text, _)), false) = (pieces.last_mut(), call.is_empty()) {
                text.truncate(text.len() - call.len());
                pieces.push((call.to_owned(), true));
            }
            pieces
        };
        let Some(format) = self.model.reasoning else {
            return (tokens(&with_call(vec![(answer.to_owned(), false)])), None);
        };
        let reasoning = request.continues_reasoning.as_deref().unwrap_or_default();
        let before = tokens(&with_call(format.resumed(is_opened, reasoning, answer)));
        let used = tokens(&[(reasoning.to_owned(), false)]).len() as u64;
        let reasoning = Reasoning {
            splitter: Splitter::new(format, is_opened, reasoning, answer),
            budget: parsed.max_reasoning_tokens.map(|budget| budget.saturating_sub(used)),
            closing: tokens(&[(format.closing(), true)]),
        };
        (before, Some(reasoning))
    }

    fn jobs(&self) -> Option<mpsc::Sender<Job>> {
        match &*self.engine.lock() {
            Some(Handle::Generator(engine)) => Some(engine.jobs.clone()),
            _ => None,
        }
    }
}

impl Runtime for Llmcpp {
    fn kind(&self) -> RuntimeType {
        RuntimeType::Llmcpp
    }

    async fn probe(&self) -> Result<Probe, Unavailable> {
        probe().map(|probe| Probe { slots: self.slots, ..probe })
    }

    fn admit(&self, request: &RunRequest) -> Result<(), Failure> {
        match self.purpose {
            Some(purpose) => encoder::Request::of(purpose, &request.cargo, &request.input).map(drop),
            None => Request::of(request, 0).map(drop).map_err(Failure::from),
        }
    }

    async fn run(&self, request: RunRequest, context: RunContext) -> Outcome {
        self.attempt(request, context).await.unwrap_or_else(Outcome::failed)
    }

    async fn shutdown(&self) {
        let engine = self.engine.lock().take();
        let thread = engine.map(|engine| match engine {
            Handle::Generator(EngineHandle { jobs, thread }) => {
                drop(jobs);
                thread
            }
            Handle::Encoder(EncoderHandle { jobs, thread }) => {
                drop(jobs);
                thread
            }
        });
        if let Some(thread) = thread {
            // A panic of the thread has been reported.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

/// The outcome of a reply that was delivered up to its limit.
fn ended_by_length(calls: Option<CallFinder>, context: &RunContext, usage: Usage) -> Outcome {
    let (mut output, mut finish_reason) = (None, FinishReason::Length);
    if let Some(Ending::Calls { parts, output: calls, is_complete, .. }) = calls.map(CallFinder::finish) {
        for part in parts {
            context.events.call(part, 0);
        }
        output = Some(calls);
        if is_complete {
            finish_reason = FinishReason::ToolCalls;
        }
    }
    Outcome::Completed { usage, output, finish_reason: Some(finish_reason), stop_text: None }
}

/// What llama.cpp supports on this machine. Starts the drivers of its GPUs.
pub fn probe() -> Result<Probe, Unavailable> {
    let backend = backend::start().map_err(|error| Unavailable { reason: error.to_string() })?;
    let modules = gpu::load(&backend.folder).iter();
    let unusable = modules.filter_map(|module| Some((module.name, module.problem.clone()?)));
    let problems =
        unusable.chain(gpu::problems()).map(|(module, problem)| (format!("module.{module}"), problem));
    let variant = backend::cpu_variant().map(|variant| ("cpu_variant".to_owned(), variant));
    Ok(Probe {
        version: version(),
        devices: gpu::all().into_iter().map(|gpu| gpu.device).chain([Device::cpu()]).collect(),
        backend: None,
        slots: 0,
        details: problems.chain(variant).collect(),
        features: vec![CONTINUES_FORMS.to_owned()],
    })
}

/// The version of llama.cpp.
pub fn version() -> String {
    format!("llama.cpp through llama-cpp-2 {VERSION}")
}

/// Prepares the pictures and sounds of a conversation.
fn pictures(model: &Model, media: &[Media]) -> Result<Vec<Arc<Picture>>, Failure> {
    let Some(vision) = &model.vision else {
        let refusal = match media.first() {
            None => return Ok(Vec::new()),
            Some(Media::Picture(_)) => NO_PICTURES,
            Some(Media::Sound(_)) => NO_SOUNDS,
        };
        return Err(Failure::of_job(FailureCode::InvalidInput, refusal));
    };
    media.iter().map(|file| vision.prepare(file, engine::MAX_BATCH).map(Arc::new)).collect()
}

fn load(
    backend: &backend::Started,
    settings: &Settings,
    slots: u32,
    progress: impl Fn(u64, u64) + Send + 'static,
) -> Result<(Arc<Model>, EngineOptions), Failure> {
    let header = checked(split::check(&settings.path))?;
    let (sizes, cache) = on_processor(settings, &header, slots, kv_cache_types(&settings.cargo)?);
    let options = EngineOptions {
        slots: slots as usize,
        context_tokens: sizes.each,
        total_tokens: sizes.total,
        kv_offload_tokens: sizes.kv_offload,
        cache,
        drafts: drafts(&settings.cargo)?,
        threads: threads(settings),
    };
    let (fit, options) = fit(backend, settings, &header, options, slots)?;
    let report = move |share: f32| progress((share * 100.0) as u64, 100);
    let mut model = Model::load(&backend.llama, &settings.path, fit, report)?;
    if let Some(projector) = &settings.projector {
        check(projector)?;
        model = model.with_projector(projector, options.threads)?;
    }
    if let Some(adapter) = &settings.adapter {
        check(adapter)?;
        model = model.with_adapter(adapter, adapter_scale(&settings.cargo)?)?;
    }
    let tokens = options.total_tokens;
    tracing::info!(device = %model.placement, tokens, cache = ?options.cache, "model loaded");
    Ok((Arc::new(model), options))
}

/// Loads a model that embeds or ranks texts.
fn load_encoder(
    backend: &backend::Started,
    purpose: Purpose,
    settings: &Settings,
    progress: impl Fn(u64, u64) + Send + 'static,
) -> Result<(Arc<Model>, encoder::Options), Failure> {
    let header = checked(split::check(&settings.path))?;
    let threads = threads(settings);
    let options = encoder::Options::of(purpose, &settings.cargo, &header, threads)?;
    let fit = match fit_on_gpus(backend, settings, &header, &[options])? {
        Some((fit, _)) => fit,
        None => Fit::processor(),
    };
    let report = move |share: f32| progress((share * 100.0) as u64, 100);
    let mut model = Model::load(&backend.llama, &settings.path, fit, report)?;
    if let Some(adapter) = &settings.adapter {
        check(adapter)?;
        model = model.with_adapter(adapter, adapter_scale(&settings.cargo)?)?;
    }
    tracing::info!(device = %model.placement, ?purpose, tokens = options.tokens, "model loaded");
    Ok((Arc::new(model), options))
}

/// Processor threads of this worker.
fn threads(settings: &Settings) -> i32 {
    match settings.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from) as i32,
        threads => threads as i32,
    }
}

/// Places the model where this worker may run it.
fn fit(
    backend: &backend::Started,
    settings: &Settings,
    header: &Header,
    options: EngineOptions,
    slots: u32,
) -> Result<(Fit, EngineOptions), Failure> {
    // Idle conversations stay in a context on a GPU.
    let on_gpu = EngineOptions { kv_offload_tokens: 0, cache: KvCacheType::F16, ..options };
    let choices = choices(on_gpu, slots, kv_cache_types(&settings.cargo)?);
    let fitted = fit_on_gpus(backend, settings, header, &choices)?;
    Ok(fitted.unwrap_or_else(|| (Fit::processor(), options)))
}

/// Places the model on the granted GPUs with one of `choices`; `None` if it runs on the processor.
fn fit_on_gpus<C: Measured>(
    backend: &backend::Started,
    settings: &Settings,
    header: &Header,
    choices: &[C],
) -> Result<Option<(Fit, C)>, Failure> {
    if settings.gpus.is_empty() {
        return Ok(None);
    }
    gpu::load(&backend.folder);
    let placed = gpu::place(&settings.gpus, &gpu::all())?;
    // An adapter is loaded beside the weights that it changes.
    let adapter = settings.adapter.as_ref().and_then(|path| std::fs::metadata(path).ok());
    let placed = gpu::set_aside(placed, adapter.map_or(0, |file| file.len()));
    let weights = Weights { path: &settings.path, layers: layers(header) };
    let (fit, chosen) = Fit::on(&placed, weights, choices)?;
    if fit.placement.gpus.is_empty() {
        tracing::warn!("not one layer fits the memory that it may use of the GPU");
        return Ok(None);
    }
    Ok(Some((fit, chosen)))
}

/// Number of layers of a model, without that of its output.
fn layers(header: &Header) -> u64 {
    number(header, "block_count").unwrap_or(header.layer_bytes().len() as u64)
}

/// Contexts to try on a GPU, the best first: half as many tokens for all jobs together are worse than 8 instead of 16 bits for each value.
fn choices(options: EngineOptions, slots: u32, types: &[KvCacheType]) -> Vec<EngineOptions> {
    let wanted = options.context_tokens.saturating_mul(slots);
    let halves = std::iter::successors(Some(wanted), |tokens| Some(tokens / 2));
    let sizes = halves.take_while(|tokens| *tokens > options.context_tokens).chain([options.context_tokens]);
    sizes
        .flat_map(|total_tokens| {
            types.iter().map(move |&cache| EngineOptions { total_tokens, cache, ..options })
        })
        .collect()
}

/// Rejects settings of a Cargo that the engine lacks, or with another value: they would be passed over.
fn check_settings(cargo: &CargoSpec) -> Result<(), Failure> {
    let mut others = cargo.engine.clone();
    if let Some(others) = others.as_object_mut() {
        others.remove("drafts");
    }
    check_engine(&others, &KEYS)?;
    kv_cache_types(cargo)?;
    drafts(cargo)?;
    adapter_scale(cargo)?;
    let prompt = cargo.engine.get("default_prompt_name").filter(|name| !name.is_null());
    let text = |name: &Value| cargo.engine.get("prompts")?.get(name.as_str()?)?.as_str();
    match prompt.filter(|&name| text(name).is_none()) {
        Some(absent) => Err(refused("default_prompt_name", absent, "it must be the name of one of prompts")),
        None => Ok(()),
    }
}

fn refused(key: &str, value: &Value, must: &str) -> Failure {
    unsupported("[engine]", key, value).followed_by(must).into()
}

/// How a Cargo allows cached keys and values to be stored: its setting `kv_cache`, `f16` or `q8_0`.
fn kv_cache_types(cargo: &CargoSpec) -> Result<&'static [KvCacheType], Failure> {
    let Some(setting) = cargo.engine.get("kv_cache") else { return Ok(&[KvCacheType::F16]) };
    match setting.as_str() {
        Some("f16") => Ok(&[KvCacheType::F16]),
        Some("q8_0") => Ok(&[KvCacheType::F16, KvCacheType::Q8_0]),
        _ => Err(refused("kv_cache", setting, "it must be \"f16\" or \"q8_0\"")),
    }
}

/// When guesses of the next tokens are checked: the setting `drafts` of a Cargo, `true` (if that pays) if absent, `false` or `"always"`.
fn drafts(cargo: &CargoSpec) -> Result<DraftMode, Failure> {
    match cargo.engine.get("drafts") {
        None | Some(Value::Bool(true)) => Ok(DraftMode::Measured),
        Some(Value::Bool(false)) => Ok(DraftMode::Never),
        Some(setting) if setting == "always" => Ok(DraftMode::Always),
        Some(setting) => Err(refused("drafts", setting, "it must be true, false or \"always\"")),
    }
}

/// How strongly the adapter of a Cargo changes the weights: its setting `lora_scale`, 1 if absent.
fn adapter_scale(cargo: &CargoSpec) -> Result<f32, Failure> {
    let Some(setting) = cargo.engine.get("lora_scale") else { return Ok(1.0) };
    let scale = setting.as_f64().filter(|scale| (-10.0..=10.0).contains(scale));
    let must = "it must be a number from -10 to 10";
    scale.map(|scale| scale as f32).ok_or_else(|| refused("lora_scale", setting, must))
}

fn check(path: &Path) -> Result<Header, Failure> {
    checked(Header::check(path))
}

fn checked(header: Result<Header, GgufError>) -> Result<Header, Failure> {
    header.map_err(|error| {
        let message = format!("the model file is invalid: {error}");
        match error {
            GgufError::Read(_) => Failure::of_host(FailureCode::ModelUnavailable, message),
            _ => Failure::of_job(FailureCode::ModelRejected, message),
        }
    })
}

/// Numbers of tokens to keep, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    /// Maximum number of tokens of a job.
    each: u32,
    /// Tokens of context for all jobs together.
    total: u32,
    /// Tokens of conversations kept outside the context.
    kv_offload: u32,
}

/// Contexts in main memory: values in 8 bits if the Cargo allows it and not every slot has its full context with 16.
fn on_processor(
    settings: &Settings,
    header: &Header,
    slots: u32,
    types: &[KvCacheType],
) -> (Sizes, KvCacheType) {
    let whole = context_sizes(settings, header, slots, KvCacheType::F16);
    let is_short = u64::from(whole.total) < u64::from(whole.each) * u64::from(slots);
    // Rows of other lengths cannot be divided into blocks of 32 values.
    let is_possible = head_sizes(header).iter().all(|size| size % 32 == 0);
    if is_short && is_possible && types.contains(&KvCacheType::Q8_0) {
        (context_sizes(settings, header, slots, KvCacheType::Q8_0), KvCacheType::Q8_0)
    } else {
        (whole, KvCacheType::F16)
    }
}

/// Every slot gets its full context if the memory allows, and idle conversations as much again; if memory is short, jobs come first.
fn context_sizes(settings: &Settings, header: &Header, slots: u32, cache: KvCacheType) -> Sizes {
    let trained = trained_context(header).unwrap_or(USUAL_CONTEXT);
    let wanted = match settings.cargo.limits.context_tokens {
        0 => USUAL_CONTEXT,
        named => u32::try_from(named).unwrap_or(u32::MAX),
    };
    let each = wanted.min(trained).max(64);
    let per_token = cache_bytes_per_layer(header).saturating_mul(header.layer_bytes().len() as u64);
    let per_token = match cache {
        // 32 values of 8 bits have one scale of 16.
        KvCacheType::Q8_0 => per_token.saturating_mul(17) / 32,
        _ => per_token,
    }
    .max(1);
    let affordable = match settings.memory_limit_mb {
        0 => u64::MAX,
        limit => (limit << 20) / CACHE_SHARE / per_token,
    };
    share(each, slots, affordable)
}

/// Divides the affordable memory between jobs and idle conversations.
fn share(each: u32, slots: u32, affordable: u64) -> Sizes {
    let wanted = u64::from(each) * u64::from(slots);
    let total = wanted.min((affordable / 3 * 2).max(each.into()));
    let kv_offload = affordable.saturating_sub(total).min(wanted);
    let tokens = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    Sizes { each, total: tokens(total), kv_offload: tokens(kv_offload) }
}

fn trained_context(header: &Header) -> Option<u32> {
    use crate::gguf::Value;
    let Some(Value::Text(architecture)) = header.entry("general.architecture") else { return None };
    match header.entry(&format!("{architecture}.context_length")) {
        Some(&Value::Unsigned(tokens)) if tokens > 0 => Some(u32::try_from(tokens).unwrap_or(u32::MAX)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        #[test]
        fn jobs_and_idle_conversations_stay_within_the_memory(
            each in 64_u32..200_000, slots in 1_u32..=32, affordable in 0_u64..10_000_000,
        ) {
            let sizes = share(each, slots, affordable);
            prop_assert!(sizes.total >= each && sizes.total <= each * slots, "one job has its whole context");
            let kept = u64::from(sizes.total) + u64::from(sizes.kv_offload);
            prop_assert!(kept <= affordable || (sizes.total == each && sizes.kv_offload == 0));
            let is_short = u64::from(each) * u64::from(slots) > affordable;
            prop_assert!(!is_short || sizes.kv_offload <= sizes.total / 2 + 2, "where it is short, jobs come first");
        }
    }

    #[test]
    fn smaller_caches_are_tried_before_shorter_contexts_and_one_job_keeps_its_context() {
        let options = EngineOptions {
            slots: 4,
            context_tokens: 4096,
            total_tokens: 4096,
            kv_offload_tokens: 0,
            cache: KvCacheType::F16,
            drafts: DraftMode::Measured,
            threads: 1,
        };
        let cargo = |setting: &str| -> CargoSpec {
            serde_json::from_value(serde_json::json!({
                "slug": "a", "runtime_type": "llmcpp", "engine": { "kv_cache": setting },
            }))
            .expect("a Cargo")
        };
        let tried = |setting| -> Vec<(u32, KvCacheType)> {
            let types = kv_cache_types(&cargo(setting)).expect("a known type");
            choices(options, 4, types).iter().map(|choice| (choice.total_tokens, choice.cache)).collect()
        };
        let (half, byte) = (KvCacheType::F16, KvCacheType::Q8_0);
        assert_eq!(tried("f16"), [(16_384, half), (8192, half), (4096, half)]);
        assert_eq!(
            tried("q8_0"),
            [(16_384, half), (16_384, byte), (8192, half), (8192, byte), (4096, half), (4096, byte)]
        );
        assert!(kv_cache_types(&cargo("q4_0")).is_err());
    }

    #[test]
    fn settings_that_the_engine_lacks_are_refused_with_their_value() {
        let check = |engine: Value| {
            let cargo = json!({"slug": "a", "runtime_type": "llmcpp", "engine": engine});
            check_settings(&serde_json::from_value(cargo).expect("a Cargo"))
        };
        let known = json!({
            "task": "text-generation", "reasoning": true, "continues": true, "kv_cache": "q8_0", "drafts": "always",
            "lora_scale": 0.5, "defaults": {"temperature": 0}, "prompts": {"query": "find: "}, "default_prompt_name": "query",
        });
        check(known).expect("known settings");
        check(Value::Null).expect("no settings");
        for (key, value) in [
            ("kv_caches", json!("q8_0")),
            ("kv_cache", json!("q4_0")),
            ("kv_cache", json!(8)),
            ("drafts", json!("never")),
            ("lora_scale", json!(11)),
            ("lora_scale", json!("1")),
            ("defaults", json!(["temperature"])),
            ("normalize", json!(1)),
            ("default_prompt_name", json!("query")),
        ] {
            let failure = check(json!({key: value})).expect_err("refused");
            assert_eq!(failure.code, FailureCode::ModelRejected);
            let wanted = format!("[engine]: {key} = {value} is not supported");
            assert!(failure.message.starts_with(&wanted), "{}", failure.message);
        }
    }
}
