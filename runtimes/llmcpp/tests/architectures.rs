//! A small model with random weights of each architecture of the catalogue (`tools/synthetic-gguf/architectures.py`), against llama.cpp's own
//! calls on the same file.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use island_protocol::{cargo::CargoSpec, chat::TokenLogprob, event::AttemptEvent};
use island_runtimes_api::conformance::{Fixture, Played};
use island_runtimes_llmcpp::{
    Llmcpp, Settings, backend,
    gguf::{Header, Value as Entry},
};
use llama_cpp_2::{
    context::params::LlamaContextParams,
    llama_batch::LlamaBatch,
    model::{LlamaModel, params::LlamaModelParams},
    token::LlamaToken,
};
use serde_json::{Value, json};

/// Tokens of each reply. With a prompt they are more than a window of attention has.
const REPLY: usize = 40;
/// Difference of logarithms that other shapes of the same sums give: the engine reads prompts and writes replies together.
const TOLERANCE: f64 = 2e-3;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The models, by the name of their file.
fn models() -> BTreeMap<String, PathBuf> {
    let folder = root().join("tests/architectures");
    let files = std::fs::read_dir(folder).expect("the folder of models");
    let paths = files.map(|entry| entry.expect("an entry").path());
    paths.map(|path| (path.file_stem().expect("a name").to_string_lossy().into_owned(), path)).collect()
}

#[test]
fn every_architecture_of_the_catalogue_has_a_model() {
    let catalogue =
        std::fs::read_to_string(root().join("../../cargos/README.md")).expect("the catalogue's page");
    // Rows of the tables of sources: the slug, then the architecture.
    let row = |line: &str| {
        let mut cells =
            line.strip_prefix("| `")?.split('|').map(|cell| cell.trim().trim_end_matches('`').to_owned());
        let (slug, architecture) = (cells.next()?, cells.next()?);
        root().join(format!("../../cargos/llmcpp/{slug}.toml")).is_file().then_some(architecture)
    };
    let named: BTreeSet<String> = catalogue.lines().filter_map(row).collect();
    let architecture =
        |path: &PathBuf| match Header::check(path).expect("a valid file").entry("general.architecture") {
            Some(Entry::Text(architecture)) => architecture.clone(),
            other => panic!("{other:?}"),
        };
    let present: BTreeSet<String> = models().values().map(architecture).collect();
    assert!(named.len() > 10, "{named:?}");
    assert_eq!(named.difference(&present).collect::<Vec<_>>(), Vec::<&String>::new());
}

/// A greedy reply, token by token: its bytes and the logarithm of its probability.
type Written = Vec<(Vec<u8>, f64)>;

/// The reply of llama.cpp alone: one sequence, one decode of the prompt, one of each token.
fn bare_loop(path: &Path, conversation: &str) -> Written {
    let backend = &backend::start().expect("llama.cpp starts").llama;
    let model =
        LlamaModel::load_from_file(backend, path, &LlamaModelParams::default()).expect("the model loads");
    let params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(256))
        .with_n_threads(1)
        .with_n_threads_batch(1);
    let mut context = model.new_context(backend, params).expect("a context");
    let vocab = model.vocab();
    let prompt = vocab.tokenize(conversation.as_bytes(), false, true);
    let mut batch = LlamaBatch::new(256, 1);
    batch.add_sequence(&prompt, 0, false).expect("it fits");
    let mut written = Written::new();
    for position in (prompt.len()..).take(REPLY) {
        context.decode(&mut batch).expect("decode");
        let logits = context.get_logits_ith(batch.n_tokens() - 1);
        let (best, logit) =
            logits.iter().enumerate().max_by(|one, other| one.1.total_cmp(other.1)).expect("logits");
        let sum: f64 = logits.iter().map(|other| f64::from(other - logit).exp()).sum();
        let token = LlamaToken::new(best as i32);
        if vocab.is_eog(token) {
            break;
        }
        written.push((vocab.token_to_piece(token, true, None), -sum.ln()));
        batch.clear();
        batch.add(token, position as i32, &[0], true).expect("it fits");
    }
    written
}

fn cargo() -> CargoSpec {
    let defaults = json!({"temperature": 0, "max_tokens": REPLY, "logprobs": true, "top_logprobs": 1});
    serde_json::from_value(
        json!({"slug": "tiny", "runtime_type": "llmcpp", "engine": {"defaults": defaults}}),
    )
    .expect("a Cargo")
}

async fn engine(path: &Path) -> Llmcpp {
    let settings = Settings {
        path: path.to_owned(),
        projector: None,
        adapter: None,
        cargo: cargo(),
        slots: 2,
        threads: 1,
        memory_limit_mb: 0,
        gpus: Vec::new(),
    };
    Llmcpp::load(settings, |_, _| {}).await.expect("the model loads")
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// A conversation as the template of these models writes it.
fn rendered(messages: &[Value]) -> String {
    let line = |message: &Value| {
        let text = |field: &str| message[field].as_str().expect("a text").to_owned();
        format!("<|im_start|>{}\n{}<|im_end|>\n", text("role"), text("content"))
    };
    messages.iter().map(line).chain(["<|im_start|>assistant\n".to_owned()]).collect()
}

fn written(played: &Played) -> Written {
    let of = |event: &AttemptEvent| match event {
        AttemptEvent::Token { logprobs, .. } => logprobs.clone(),
        _ => Vec::new(),
    };
    let tokens = played.events.iter().flat_map(of);
    tokens.map(|TokenLogprob { token, .. }| (token.bytes, token.logprob)).collect()
}

fn assert_equal(name: &str, reply: &Written, reference: &Written) {
    let tokens = |written: &Written| written.iter().map(|(bytes, _)| bytes.clone()).collect::<Vec<_>>();
    assert_eq!(tokens(reply), tokens(reference), "{name}");
    for (place, ((_, logprob), (_, expected))) in reply.iter().zip(reference).enumerate() {
        assert!((logprob - expected).abs() < TOLERANCE, "{name}, token {place}: {logprob}, not {expected}");
    }
}

#[tokio::test]
async fn replies_and_probabilities_equal_llama_cpps() {
    let mut tokens = 0;
    for (name, path) in models() {
        let engine = engine(&path).await;
        let fixture = Fixture {
            cargo: cargo(),
            artifacts: BTreeMap::from([("model".to_owned(), path.clone())]),
            good: Vec::new(),
            long: Value::Null,
            bad: Vec::new(),
            reads_tokens: true,
        };
        let one = vec![message("system", "Be brief."), message("user", "How far is it to the next village?")];
        let other = vec![message("user", "Count the ships in the harbour, please.")];
        let (first, second) = (json!({"messages": one}), json!({"messages": other}));
        // Both at once, so that the rows of a step belong to two sequences.
        let (first, second) =
            futures::future::join(fixture.play(&engine, &first), fixture.play(&engine, &second)).await;
        // Its beginning is in the cache, or in a copy of it.
        let next = [one.clone(), vec![message("assistant", "Far."), message("user", "And back?")]].concat();
        let third = fixture.play(&engine, &json!({"messages": next})).await;
        for (title, messages, played) in
            [("first", &one, &first), ("second", &other, &second), ("continued", &next, &third)]
        {
            let reference = bare_loop(&path, &rendered(messages));
            assert_equal(&format!("{name}, {title}"), &written(played), &reference);
            tokens += reference.len();
        }
    }
    assert!(tokens > 1000, "{tokens} tokens were compared");
}
