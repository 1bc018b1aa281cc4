//! Models that label every frame of audio, as ONNX graphs.

use island_runtimes_graph::{Feeds, Graph};
use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    keys::FEATURE_EXTRACTOR,
    repository::Repository,
    speech::{
        ctc::{AcousticModel, Ctc},
        features,
    },
};
use ndarray::{Array2, Axis, Ix3};
use serde_json::Value;

use crate::{
    settings::{read, sampling_rate},
    task::Loader,
};

/// A graph that labels frames.
#[derive(Debug)]
struct CtcGraph(Graph);

/// Loads a repository.
pub fn load(loader: &Loader<'_>) -> Result<Ctc, EngineError> {
    check(&loader.repository)?;
    let graph = loader.graph(&["model"])?;
    graph.require("logits")?;
    Ctc::of(&loader.repository, Box::new(CtcGraph(graph)))
}

/// Rejects settings of another kind, which would count as absent.
fn check(repository: &Repository) -> Result<(), EngineError> {
    read("config.json", &repository.config, "conv_stride", |strides| {
        strides.as_array()?.iter().all(Value::is_u64).then_some(())
    })?;
    sampling_rate(FEATURE_EXTRACTOR.file, &features(repository)?)?;
    Ok(())
}

impl AcousticModel for CtcGraph {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn longest(&self) -> Option<usize> {
        None
    }

    fn of_features(&self) -> Option<usize> {
        None
    }

    fn logits(&self, samples: &[f32]) -> Result<Array2<f32>, EngineError> {
        let samples = Array2::from_shape_fn((1, samples.len()), |(_, place)| samples[place]);
        let mask = Array2::from_elem(samples.dim(), 1_i64);
        let feeds =
            Feeds::new().floats("input_values", samples.into_dyn()).ints("attention_mask", mask.into_dyn());
        let logits = self.0.run(feeds)?.floats("logits")?.into_dimensionality::<Ix3>();
        let logits = logits.ok().filter(|logits| logits.shape()[0] == 1);
        let logits = logits.ok_or_else(|| invalid_model("the graph's logits are not one row per frame"))?;
        Ok(logits.index_axis_move(Axis(0), 0))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn settings_of_another_kind_are_refused() {
        let checked = |file: &str, settings: Value| {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join(file);
            fs::write(&path, settings.to_string()).expect("written");
            let files = [(file.to_owned(), path)].into_iter().collect();
            check(&Repository::open(files).expect("a repository")).map_err(|error| error.message())
        };
        assert_eq!(checked("config.json", json!({"conv_stride": [5, 2, 2]})), Ok(()));
        assert_eq!(checked("preprocessor_config.json", json!({"sampling_rate": 8000})), Ok(()));
        for (file, key, value) in [
            ("config.json", "conv_stride", json!(320)),
            ("config.json", "conv_stride", json!([5, "2"])),
            ("preprocessor_config.json", "sampling_rate", json!("8000")),
        ] {
            let refused = checked(file, json!({key: value})).expect_err("another kind");
            assert_eq!(refused, format!("{file}: {key} = {value} is not supported"));
        }
    }
}
