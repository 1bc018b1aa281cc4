//! A small model with random weights of each architecture of the catalogue (`tools/synthetic-gguf/architectures.py`), against llama.cpp's own
//! calls on the same file.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use island_protocol::{cargo::CargoSpec, event::AttemptEvent, reply::TokenLogprob};
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
/// Median of the differences of logarithms that other shapes of the same products give: the engine reads prompts and writes replies together, and
/// weights in 8 bits are multiplied by numbers that are rounded for each shape. What is computed with wrong positions, windows or states differs by
/// more than 1.
const MEDIAN: f64 = 0.04;
/// The same on average: near a tie another expert of a mixture is chosen, and that token differs by more.
const MEAN: f64 = 0.2;
/// How much less probable than another one a token of a greedy reply may be for the reference.
const TIE: f64 = 1.0;

fn root() -> PathBuf {
    island_testing::workspace().join("runtimes/llmcpp")
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

/// A reply, token by token: its bytes and the logarithm of its probability.
type Written = Vec<(Vec<u8>, f64)>;

/// Logarithms of the probabilities that llama.cpp alone gives to the tokens of a reply: one sequence, one decode of the prompt, one of each token.
struct Reference {
    /// Of each token, and of the most probable one in its place.
    tokens: Vec<(f64, f64)>,
    /// Of the most probable token that ends a reply, and of the most probable one, after the reply.
    end: (f64, f64),
}

impl Reference {
    fn of(path: &Path, conversation: &str, reply: &Written) -> Self {
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
        let mut tokens = Vec::new();
        for (position, (bytes, _)) in (prompt.len()..).zip(reply) {
            context.decode(&mut batch).expect("decode");
            let logprobs = logprobs(context.get_logits_ith(batch.n_tokens() - 1));
            let is_it =
                |&token: &usize| vocab.token_to_piece(LlamaToken::new(token as i32), true, None) == *bytes;
            let token = (0..logprobs.len()).find(is_it).expect("a token of the vocabulary");
            tokens.push((logprobs[token], highest(logprobs.iter().copied())));
            batch.clear();
            batch.add(LlamaToken::new(token as i32), position as i32, &[0], true).expect("it fits");
        }
        context.decode(&mut batch).expect("decode");
        let logprobs = logprobs(context.get_logits_ith(batch.n_tokens() - 1));
        let ends = (0..logprobs.len()).filter(|&token| vocab.is_eog(LlamaToken::new(token as i32)));
        let end = highest(ends.map(|token| logprobs[token]));
        Self { tokens, end: (end, highest(logprobs.iter().copied())) }
    }
}

fn highest(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.fold(f64::NEG_INFINITY, f64::max)
}

fn logprobs(logits: &[f32]) -> Vec<f64> {
    let highest = highest(logits.iter().copied().map(f64::from));
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - highest).exp()).sum();
    logits.iter().map(|&logit| f64::from(logit) - highest - sum.ln()).collect()
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

/// Checks that a greedy reply has the probabilities of the reference, and that no other token is more probable there.
fn assert_equal(name: &str, reply: &Written, reference: &Reference) {
    let pairs = reply.iter().zip(&reference.tokens);
    let mut differences: Vec<f64> =
        pairs.map(|((_, logprob), (expected, _))| (logprob - expected).abs()).collect();
    differences.sort_by(f64::total_cmp);
    let median = differences.get(differences.len() / 2).copied().unwrap_or_default();
    let mean = differences.iter().sum::<f64>() / reply.len().max(1) as f64;
    assert!(median < MEDIAN && mean < MEAN, "{name} differs by {median}, on average by {mean}");
    let exchanged = reference.tokens.iter().filter(|(expected, highest)| highest - expected > TIE).count();
    assert!(
        10 * exchanged <= reply.len(),
        "{name}: {exchanged} of {} tokens are not the most probable ones",
        reply.len()
    );
    let (end, highest) = reference.end;
    assert!(reply.len() == REPLY || highest - end < TIE, "{name} ends after {} tokens", reply.len());
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
            let reply = written(played);
            let reference = Reference::of(&path, &rendered(messages), &reply);
            assert_equal(&format!("{name}, {title}"), &reply, &reference);
            tokens += reply.len();
        }
    }
    assert!(tokens > 1000, "{tokens} tokens were compared");
}
