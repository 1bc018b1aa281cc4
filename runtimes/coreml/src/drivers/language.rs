//! Text generation: a stateful decoder with a tokenizer and a chat template.
//!
//! The interface is that of the stateful models that Apple published: token ids `[1, n]`, optionally a causal mask `[1, 1, n, k]` of
//! zeros and minus infinities, positions or the first position, and logits `[1, n, vocabulary]` out; caches are states.

mod inputs;
mod request;
mod stops;
mod template;

use island_protocol::job::{FinishReason, Usage};
use island_runtimes_kit::{
    error::{EngineError, ErrorKind, invalid_model},
    generate::{
        Decoder,
        options::Settings,
        search::{self, Task},
    },
    job::{Answer, Job},
    pipeline::{Pipeline, TEXT},
    text::tokens::Tokens,
};
use ndarray::{Array2, ArrayView2, Axis, Ix2};
use serde_json::{Value, json};

use super::Parts;
use crate::model::{State, Tensor, take};
use inputs::Inputs;
use request::Request;
use stops::Stops;
use template::ChatTemplate;

/// Tokens of a prompt that are processed together.
const CHUNK: usize = 256;
/// Default context of a model.
const USUAL_CONTEXT: usize = 2048;

struct Writer {
    parts: Parts,
    tokens: Tokens,
    template: ChatTemplate,
    settings: Settings,
    inputs: Inputs,
    logits: String,
    context: usize,
}

/// Loads a language model.
pub fn load(parts: Parts) -> Result<Box<dyn Pipeline>, EngineError> {
    let inputs = Inputs::of(parts.model.as_ref())?;
    let interface = parts.model.interface();
    let outputs = &interface.outputs;
    let named = outputs.iter().find(|output| output.name.to_lowercase().contains("logits"));
    let logits = named.or_else(|| outputs.first().filter(|_| outputs.len() == 1));
    let logits =
        logits.ok_or_else(|| invalid_model(format!("{} gives no logits", parts.model.name())))?.name.clone();
    let configured = parts.number("context").map(|context| context as usize);
    let context = configured.or(inputs.context()).unwrap_or(USUAL_CONTEXT).max(1);
    let tokens = Tokens::load(&parts.repository)?;
    Ok(Box::new(Writer {
        template: ChatTemplate::load(&parts.repository, &tokens)?,
        tokens,
        settings: Settings::load(&parts.repository)?,
        inputs,
        logits,
        context,
        parts,
    }))
}

/// A conversation in progress.
struct Conversation<'w> {
    writer: &'w Writer,
    state: State,
    past: usize,
    /// Whether the prompt is processed.
    is_generating: bool,
    job: &'w Job,
}

impl Conversation<'_> {
    /// The logits after the last of these tokens.
    fn logits_after(&mut self, tokens: &[i64]) -> Result<Vec<f32>, EngineError> {
        let writer = self.writer;
        let model = &writer.parts.model;
        let mut last = Vec::new();
        let mut rest = tokens;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(writer.inputs.chunk(rest.len().min(CHUNK))?);
            rest = later;
            let inputs = writer.inputs.tensors(now, self.past, writer.context);
            let mut given = model.run(inputs, &mut self.state)?;
            if !self.is_generating {
                self.job.read(now.len() as u64);
            }
            self.past += now.len();
            let logits = take(&mut given, &writer.logits)
                .ok_or_else(|| invalid_model(format!("{} gives no {}", model.name(), writer.logits)))?;
            last = row(logits, model.name())?;
            if !rest.is_empty() {
                self.job.step()?;
            }
        }
        self.is_generating = true;
        Ok(last)
    }
}

/// The last row of `[1, n, vocabulary]` or `[1, vocabulary]`.
fn row(logits: Tensor, name: &str) -> Result<Vec<f32>, EngineError> {
    let mut logits = logits.into_floats();
    while logits.ndim() > 2 && logits.shape()[0] == 1 {
        logits.index_axis_inplace(Axis(0), 0);
    }
    let shape = logits.shape().to_vec();
    let rows = logits.into_dimensionality::<Ix2>().ok().filter(|rows| !rows.is_empty());
    let rows = rows.ok_or_else(|| invalid_model(format!("the logits of {name} are {shape:?}")))?;
    let last = rows.row(rows.nrows() - 1).to_vec();
    if last.iter().any(|logit| logit.is_nan()) {
        return Err(invalid_model(format!("the logits of {name} are not numbers: its weights are broken")));
    }
    Ok(last)
}

impl Decoder for Conversation<'_> {
    fn step(&mut self, tokens: ArrayView2<'_, i64>) -> Result<Array2<f32>, EngineError> {
        let tokens: Vec<i64> = tokens.row(0).to_vec();
        let logits = self.logits_after(&tokens)?;
        let count = logits.len();
        Array2::from_shape_vec((1, count), logits).map_err(|error| invalid_model(error.to_string()))
    }

    fn reorder(&mut self, order: &[usize]) -> Result<(), EngineError> {
        if order == [0] {
            Ok(())
        } else {
            Err(invalid_model("a model with a state generates one text at a time"))
        }
    }
}

impl Writer {
    fn prompt(&self, request: &Request) -> Result<Vec<u32>, EngineError> {
        let rendered = self.template.render(&request.messages)?;
        let prompt = self.tokens.encode_framed(&rendered)?;
        if prompt.is_empty() || prompt.len() >= self.context {
            let message =
                format!("the prompt has {} tokens, the model takes {}", prompt.len(), self.context - 1);
            return Err(EngineError::new(ErrorKind::ContextLength, message));
        }
        Ok(prompt)
    }
}

impl Pipeline for Writer {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let request = Request::of(input)?;
        let prompt = self.prompt(&request)?;
        let options = self.settings.with(&request.wishes)?;
        // A job may name any number.
        let wanted = request.max_tokens.unwrap_or(self.context);
        let longest = prompt.len().saturating_add(wanted).min(self.context);
        let mut conversation = Conversation {
            writer: self,
            state: self.parts.model.start()?,
            past: 0,
            is_generating: false,
            job,
        };
        let task = Task { begin: &prompt, source: &[], longest, rule: None };
        let mut reply = Stops::new(&self.tokens, job, &request.stops, options.ends());
        let stopped = reply.flag();
        let decoder: &mut dyn Decoder = &mut UntilStop { conversation: &mut conversation, stopped: &stopped };
        let written = search::write(decoder, &options, task, job, &mut |token| reply.push(token));
        let written = match written {
            Err(_) if stopped.get() => None,
            written => Some(written?),
        };
        let (count, has_stopped) = (reply.count(), stopped.get());
        let stop_text = reply.found().map(str::to_owned);
        let text = reply.end()?;
        let has_ended = has_stopped || written.is_some_and(|written| written.has_ended);
        let reason = if has_ended { FinishReason::Stop } else { FinishReason::Length };
        let usage = Usage::tokens(prompt.len() as u64, count);
        Ok(Answer { output: text.into(), usage, finish_reason: Some(reason), stop_text })
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "messages": [{ "role": "user", "content": TEXT }], "max_tokens": 1 }))
    }

    fn graphs(&self) -> Vec<String> {
        vec![self.parts.model.name().to_owned()]
    }
}

/// A decoder that ends at a stop sequence.
struct UntilStop<'t, 'w> {
    conversation: &'t mut Conversation<'w>,
    stopped: &'t std::cell::Cell<bool>,
}

impl Decoder for UntilStop<'_, '_> {
    fn step(&mut self, tokens: ArrayView2<'_, i64>) -> Result<Array2<f32>, EngineError> {
        if self.stopped.get() {
            return Err(EngineError::interrupted());
        }
        self.conversation.step(tokens)
    }

    fn reorder(&mut self, order: &[usize]) -> Result<(), EngineError> {
        self.conversation.reorder(order)
    }
}
