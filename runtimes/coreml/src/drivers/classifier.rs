//! Image classification.

use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    job::{Answer, Job, parse_input},
    keys::unsupported,
    media::picture,
    pipeline::{Pipeline, example_picture},
    text::scores,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Parts,
    picture::{Fit, ImageInput},
};
use crate::{
    model::take,
    package::interface::{Kind, Sizes},
};

/// Default number of labels of an answer.
const TOP_K: usize = 5;

#[derive(Debug, Deserialize)]
struct Input {
    image: String,
    top_k: Option<usize>,
}

struct Classifier {
    parts: Parts,
    image_input: ImageInput,
    output: String,
    labels: Vec<String>,
    /// Whether the output are logits rather than probabilities.
    is_raw: bool,
}

/// Loads an image classifier.
pub fn load(parts: Parts) -> Result<Box<dyn Pipeline>, EngineError> {
    let image_input = ImageInput::of(&parts, Fit::Crop)?;
    let model = &parts.model;
    let (output, labels, is_raw) = if let Some((output, labels)) = model.labels() {
        (output.to_owned(), labels.to_vec(), false)
    } else {
        let output = model.interface().outputs.first().map(|output| output.name.clone());
        let labels = parts.labels().ok_or_else(|| {
            invalid_model(format!("{} names no classes: [engine]: labels is missing", model.name()))
        })?;
        if let Some(Kind::Array { sizes: Sizes::Fixed(sizes), .. }) =
            model.interface().outputs.first().map(|output| &output.kind)
            && let Some(stated) = sizes.iter().try_fold(1, |product: u64, size| product.checked_mul(*size))
            && stated != 0
            && stated != labels.len() as u64
        {
            let refused = unsupported("[engine]", "labels", &labels.into());
            return Err(refused.followed_by(format!("{} gives {stated} scores", model.name())));
        }
        (output.unwrap_or_default(), labels, true)
    };
    let is_raw = parts.flag("softmax").unwrap_or(is_raw);
    Ok(Box::new(Classifier { parts, image_input, output, labels, is_raw }))
}

impl Pipeline for Classifier {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let Input { image, top_k } = parse_input(input)?;
        let picture = picture::read(&image, "the image")?;
        job.step()?;
        let model = &self.parts.model;
        let mut given = model.run(vec![self.image_input.convert(&picture)], &mut model.start()?)?;
        let probabilities = take(&mut given, &self.output)
            .ok_or_else(|| invalid_model(format!("{} gives no {}", model.name(), self.output)))?;
        let probabilities: Vec<f32> = probabilities.into_floats().iter().copied().collect();
        if probabilities.len() != self.labels.len() {
            let message = format!(
                "{} gives {} scores for {} labels",
                model.name(),
                probabilities.len(),
                self.labels.len()
            );
            return Err(invalid_model(message));
        }
        if probabilities.iter().any(|probability| probability.is_nan()) {
            return Err(invalid_model(format!("{} gives NaN: its weights are broken", model.name())));
        }
        let probabilities = if self.is_raw { scores::softmax(&probabilities) } else { probabilities };
        let ranked =
            scores::top_k_labels(self.labels.iter().cloned(), &probabilities, Some(top_k.unwrap_or(TOP_K)));
        Ok(Answer::of(scores::answer(&ranked), 0))
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "image": example_picture() }))
    }

    fn graphs(&self) -> Vec<String> {
        vec![self.parts.model.name().to_owned()]
    }
}
