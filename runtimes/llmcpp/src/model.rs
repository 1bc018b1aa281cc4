//! A loaded model: its vocabulary, its template and its sizes.

use std::path::Path;

use island_protocol::job::{Failure, FailureCode};
use island_runtimes_template::Template;
use llama_cpp_2::{
    context::LlamaContext,
    llama_backend::LlamaBackend,
    model::{LlamaLoraAdapter, LlamaModel},
    token::LlamaToken,
    token_type::LlamaTokenAttr,
};
use parking_lot::Mutex;

use crate::{
    fit::{Fit, Placement},
    gguf::Header,
    reasoning::Format,
    tools::forms::CONTROL,
    vision::Vision,
};

/// Architectures with a state for each sequence whose batches of several sequences are right, as the test `architectures` compares (0166).
const PROVEN_STATES: [&str; 2] = ["granitehybrid", "lfm2"];

/// A loaded model.
#[derive(Debug)]
pub struct Model {
    /// The model in llama.cpp.
    pub llama: LlamaModel,
    /// Its chat template.
    pub template: Template,
    /// Texts that its vocabulary encodes as control tokens.
    pub specials: Vec<String>,
    /// How it writes its reasoning; `None` if it has none.
    pub reasoning: Option<Format>,
    /// Control tokens that mark reasoning: their text is needed, while that of other control tokens is left out.
    pub delimiters: Vec<LlamaToken>,
    /// Control tokens that are parts of calls of functions: their text is needed where functions are offered.
    pub call_marks: Vec<LlamaToken>,
    /// Its projector; `None` if it takes neither pictures nor sounds.
    pub vision: Option<Vision>,
    /// Where its layers are.
    pub placement: Placement,
    /// Whether a batch may have the rows of one sequence only.
    pub takes_turns: bool,
    adapter: Option<Adapter>,
}

/// A LoRA adapter, loaded for the model.
#[derive(Debug)]
struct Adapter {
    weights: Mutex<LlamaLoraAdapter>,
    scale: f32,
}

impl Model {
    /// Loads the file, which must have passed its check, where `fit` places it. `progress` is called with values from 0 to 1.
    pub fn load(
        backend: &LlamaBackend,
        path: &Path,
        fit: Fit,
        progress: impl Fn(f32) + 'static,
    ) -> Result<Self, Failure> {
        let params = fit.params.with_progress_callback(move |share| {
            progress(share);
            true
        });
        let on_gpus = !fit.placement.gpus.is_empty();
        let llama = LlamaModel::load_from_file(backend, path, &params).map_err(|_| not_loaded(on_gpus))?;
        let architecture = llama.meta_val_str("general.architecture").unwrap_or_default();
        let takes_turns = takes_turns(&architecture, keeps_state(&llama));
        let source = template_source(&llama)?;
        let special = |token| token_text(&llama, token);
        let (bos, eos) = (special(llama.vocab().bos()), special(llama.vocab().eos()));
        let reasoning = source.as_deref().and_then(Format::of);
        let template = Template::compile(source, bos, eos)?;
        let specials = specials(&llama);
        let texts = reasoning.map(Format::delimiters).unwrap_or_default();
        let delimiters = texts.into_iter().filter_map(|text| single_token(&llama, text)).collect();
        let call_marks = CONTROL.into_iter().filter_map(|text| single_token(&llama, text)).collect();
        Ok(Self {
            llama,
            template,
            specials,
            reasoning,
            delimiters,
            call_marks,
            vision: None,
            placement: fit.placement,
            takes_turns,
            adapter: None,
        })
    }

    /// Adds the projector in `path`, to run on `threads` threads of the processor.
    pub fn with_projector(self, path: &Path, threads: i32) -> Result<Self, Failure> {
        let vision = Some(Vision::load(path, &self.llama, threads)?);
        Ok(Self { vision, ..self })
    }

    /// Adds the LoRA adapter in `path`, which must have passed its check.
    pub fn with_adapter(mut self, path: &Path, scale: f32) -> Result<Self, Failure> {
        let weights = self.llama.lora_adapter_init(path);
        let weights =
            weights.map_err(|_| rejected("llama.cpp cannot load the adapter for this model; see its log"))?;
        self.adapter = Some(Adapter { weights: Mutex::new(weights), scale });
        Ok(self)
    }

    /// Applies the adapter to everything that the context computes.
    pub fn adapt(&self, context: &mut LlamaContext<'_>) -> Result<(), Failure> {
        let Some(Adapter { weights, scale }) = &self.adapter else { return Ok(()) };
        let applied = context.lora_adapter_set(&mut weights.lock(), *scale);
        applied.map_err(|_| rejected("llama.cpp cannot apply the adapter"))
    }

    /// Number of tokens of context that the model was trained with.
    pub fn trained_context(&self) -> u32 {
        self.llama.n_ctx_train()
    }

    /// Whether tokens can be removed from its memory, so that a prefix can be kept and the rest replaced.
    pub fn can_rewind(&self) -> bool {
        !keeps_state(&self.llama)
    }
}

/// Whether it has layers with a state instead of a cache.
fn keeps_state(llama: &LlamaModel) -> bool {
    llama.is_recurrent() || llama.is_hybrid()
}

/// Whether a batch may have the rows of one sequence only: llama.cpp computes those of others wrongly for some states (0137).
fn takes_turns(architecture: &str, keeps_state: bool) -> bool {
    keeps_state && !PROVEN_STATES.contains(&architecture)
}

/// A number of the model's architecture in the header.
pub(crate) fn number(header: &Header, name: &str) -> Option<u64> {
    use crate::gguf::Value;
    let Some(Value::Text(architecture)) = header.entry("general.architecture") else { return None };
    match header.entry(&format!("{architecture}.{name}")) {
        Some(&Value::Unsigned(number)) => Some(number),
        _ => None,
    }
}

/// Numbers of values of one head's key and value, computed from the header.
pub fn head_sizes(header: &Header) -> [u64; 2] {
    let heads = number(header, "attention.head_count").unwrap_or(1).max(1);
    let width = number(header, "embedding_length").unwrap_or(0) / heads;
    ["attention.key_length", "attention.value_length"].map(|name| number(header, name).unwrap_or(width))
}

/// Bytes of cached keys and values per token and layer in 16 bits each, computed from the header.
pub fn cache_bytes_per_layer(header: &Header) -> u64 {
    let heads = number(header, "attention.head_count").unwrap_or(1).max(1);
    let heads_kv = number(header, "attention.head_count_kv").unwrap_or(heads);
    let [key, value] = head_sizes(header);
    heads_kv.saturating_mul(key.saturating_add(value)).saturating_mul(2)
}

fn template_source(llama: &LlamaModel) -> Result<Option<String>, Failure> {
    match llama.chat_template(None) {
        Ok(template) => {
            template.to_string().map(Some).map_err(|_| rejected("the model's chat template is not text"))
        }
        Err(_) => Ok(None),
    }
}

/// The text of a token in the vocabulary; empty for unknown tokens.
pub(crate) fn token_text(llama: &LlamaModel, token: LlamaToken) -> String {
    if token.0 < 0 {
        return String::new();
    }
    let text = llama.vocab().text(token).map(|text| text.to_string_lossy().into_owned());
    text.unwrap_or_default()
}

/// The token that a text is, if it is one token.
fn single_token(llama: &LlamaModel, text: &str) -> Option<LlamaToken> {
    match llama.vocab().tokenize(text.as_bytes(), false, true).as_slice() {
        &[token] => Some(token),
        _ => None,
    }
}

fn specials(llama: &LlamaModel) -> Vec<String> {
    let vocab = llama.vocab();
    let special = |&token: &LlamaToken| {
        let attributes = vocab.attr(token);
        attributes.contains(LlamaTokenAttr::Control) || attributes.contains(LlamaTokenAttr::UserDefined)
    };
    vocab
        .tokens()
        .filter(special)
        .map(|token| token_text(llama, token))
        .filter(|text| !text.is_empty())
        .collect()
}

pub(crate) fn rejected(message: &str) -> Failure {
    Failure::of_job(FailureCode::ModelRejected, message)
}

/// Why a model that passed its check does not load. On GPUs llama.cpp has measured it before: what is missing is memory that another program
/// has taken meanwhile.
fn not_loaded(on_gpus: bool) -> Failure {
    if on_gpus {
        let message = "llama.cpp cannot load the model onto the GPU; see its log";
        return Failure::of_host(FailureCode::OutOfMemory, message);
    }
    rejected("llama.cpp cannot load the model; see its log")
}

/// Why a loaded model does not run. On GPUs, drivers and their memory are at fault more often than the model.
pub(crate) fn does_not_run(on_gpus: bool, what: &str) -> Failure {
    let message = format!("the model cannot be run: {what}");
    if on_gpus { Failure::of_host(FailureCode::InternalError, message) } else { rejected(&message) }
}

#[cfg(test)]
mod tests {
    use island_protocol::job::Fault;
    use llama_cpp_2::model::params::LlamaModelParams;

    use super::*;

    #[test]
    fn a_model_is_not_blamed_for_a_gpu() {
        let faults = |on_gpus| [not_loaded(on_gpus).fault, does_not_run(on_gpus, "error -3").fault];
        assert_eq!(faults(true), [Fault::Host, Fault::Host], "another Island may run it");
        assert_eq!(faults(false), [Fault::Job, Fault::Job]);
    }

    #[test]
    fn states_share_a_batch_only_where_that_is_proven() {
        let backend = &crate::backend::start().expect("llama.cpp starts").llama;
        let turns = |file: &str| {
            let path = island_testing::workspace().join("runtimes/llmcpp/tests/architectures").join(file);
            let llama =
                LlamaModel::load_from_file(backend, path, &LlamaModelParams::default()).expect("it loads");
            takes_turns(&llama.meta_val_str("general.architecture").expect("a name"), keeps_state(&llama))
        };
        for (file, expected) in [
            ("llama.gguf", false),
            ("gemma4.gguf", false),
            ("granitehybrid.gguf", false),
            ("lfm2.gguf", false),
            ("qwen35.gguf", true),
            ("qwen35moe.gguf", true),
        ] {
            assert_eq!(turns(file), expected, "{file}");
        }
        for unproven in
            ["qwen3next", "qwen4exp", "kimi-linear", "kimi-k3", "glm5-next", "bailingmoe3", "newer"]
        {
            assert!(takes_turns(unproven, true), "{unproven}");
        }
    }
}
