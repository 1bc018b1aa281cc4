//! What follows from the class of a pipeline: its usual guidance, and what the pipelines of Stable Diffusion change in the settings of their
//! scheduler and of their network, since those of the first repositories lacked it.

use serde_json::{Map, Value};

use crate::unet;

const PLAIN: [&str; 2] = ["StableDiffusionPipeline", "StableDiffusionImg2ImgPipeline"];
const INPAINT: &str = "StableDiffusionInpaintPipeline";

/// The guidance scale of jobs that name none, whatever the scheduler is.
pub(super) fn guidance(pipeline: &str) -> f64 {
    match pipeline {
        "LatentConsistencyModelPipeline" | "LatentConsistencyModelImg2ImgPipeline" => 8.5,
        "StableDiffusionXLPipeline" | "StableDiffusionXLImg2ImgPipeline" => 5.0,
        // The pipeline that inpaints with SDXL among them.
        _ => 7.5,
    }
}

/// Height and width of the latents of jobs that name no size. Where diffusers before 0.9 wrote the settings, a smaller side is raised to that of
/// the published models.
pub(super) fn latent_sides(pipeline: &str, network: &unet::Config) -> (usize, usize) {
    const PUBLISHED: usize = 64;
    let sides = network.sides().unwrap_or((PUBLISHED, PUBLISHED));
    let raises = PLAIN.contains(&pipeline) || pipeline == INPAINT;
    if raises && network.sample_size.is_number() && network.version.as_deref().is_some_and(is_before_0_9) {
        return (sides.0.max(PUBLISHED), sides.1.max(PUBLISHED));
    }
    sides
}

fn is_before_0_9(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u64>().ok());
    matches!((parts.next(), parts.next()), (Some(Some(0)), Some(Some(minor))) if minor < 9)
}

/// Changes settings as a pipeline of this class does, and returns the keys that they lacked: a scheduler that a job chooses does not get those.
pub(super) fn apply(settings: &mut Map<String, Value>, pipeline: &str) -> Vec<&'static str> {
    let is_plain = PLAIN.contains(&pipeline);
    if !is_plain && pipeline != INPAINT {
        return Vec::new();
    }
    let is_of = |class: &str| settings.get("_class_name").is_some_and(|name| name == class);
    let flag = |key: &str, usual: bool| settings.get(key).and_then(Value::as_bool).unwrap_or(usual);
    let clips = is_plain && flag("clip_sample", is_of("DDIMScheduler"));
    let starts_slowly = !is_plain && !flag("skip_prk_steps", !is_of("PNDMScheduler"));
    let changes = [
        Some(("steps_offset", Value::from(1))),
        clips.then_some(("clip_sample", false.into())),
        starts_slowly.then_some(("skip_prk_steps", true.into())),
    ];
    let mut lacked = Vec::new();
    for (key, value) in changes.into_iter().flatten() {
        if settings.insert(key.to_owned(), value).is_none() {
            lacked.push(key);
        }
    }
    lacked
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The settings after, without the class, and the keys that they lacked.
    fn applied(pipeline: &str, class: &str, settings: Value) -> (Value, Vec<&'static str>) {
        let mut settings = settings.as_object().cloned().unwrap_or_default();
        settings.insert("_class_name".to_owned(), class.into());
        let lacked = apply(&mut settings, pipeline);
        settings.remove("_class_name");
        (settings.into(), lacked)
    }

    #[test]
    fn the_usual_guidance_is_that_of_the_class() {
        // The defaults of `__call__` in diffusers 0.42.
        for (pipeline, expected) in [
            ("StableDiffusionPipeline", 7.5),
            ("StableDiffusionInpaintPipeline", 7.5),
            ("LatentConsistencyModelPipeline", 8.5),
            ("LatentConsistencyModelImg2ImgPipeline", 8.5),
            ("StableDiffusionXLPipeline", 5.0),
            ("StableDiffusionXLImg2ImgPipeline", 5.0),
            ("StableDiffusionXLInpaintPipeline", 7.5),
        ] {
            assert_eq!(guidance(pipeline), expected, "{pipeline}");
        }
    }

    #[test]
    fn images_of_the_first_repositories_have_the_size_of_the_published_models() {
        let sides = |pipeline: &str, settings: Value| {
            latent_sides(pipeline, &serde_json::from_value(settings).expect("settings"))
        };
        // The sizes that `__call__` of diffusers 0.42 chooses, in latents.
        for pipeline in [PLAIN[0], PLAIN[1], INPAINT] {
            for version in ["0.6.0", "0.8.1.dev0"] {
                let settings = json!({"sample_size": 32, "_diffusers_version": version});
                assert_eq!(sides(pipeline, settings), (64, 64), "{pipeline} {version}");
            }
            let larger = json!({"sample_size": 96, "_diffusers_version": "0.6.0"});
            assert_eq!(sides(pipeline, larger), (96, 96), "{pipeline}");
            for version in ["0.9.0.dev0", "0.10.2", "1.0.0"] {
                let settings = json!({"sample_size": 32, "_diffusers_version": version});
                assert_eq!(sides(pipeline, settings), (32, 32), "{pipeline} {version}");
            }
            assert_eq!(sides(pipeline, json!({"sample_size": 32})), (32, 32), "{pipeline}");
        }
        let wide = json!({"sample_size": [6, 10], "_diffusers_version": "0.6.0"});
        assert_eq!(sides(PLAIN[0], wide), (6, 10));
        for pipeline in ["StableDiffusionXLPipeline", "LatentConsistencyModelPipeline"] {
            let settings = json!({"sample_size": 32, "_diffusers_version": "0.6.0"});
            assert_eq!(sides(pipeline, settings), (32, 32), "{pipeline}");
        }
    }

    #[test]
    fn pipelines_change_what_their_first_repositories_lacked() {
        // `pipe.scheduler.config` of diffusers 0.42.
        for pipeline in PLAIN {
            let of = |class: &str, settings: Value| applied(pipeline, class, settings);
            assert_eq!(
                of("DDIMScheduler", json!({})),
                (json!({"steps_offset": 1, "clip_sample": false}), vec!["steps_offset", "clip_sample"])
            );
            assert_eq!(
                of("DDIMScheduler", json!({"clip_sample": true, "steps_offset": 7})),
                (json!({"clip_sample": false, "steps_offset": 1}), vec![])
            );
            assert_eq!(
                of("PNDMScheduler", json!({"skip_prk_steps": false})),
                (json!({"skip_prk_steps": false, "steps_offset": 1}), vec!["steps_offset"])
            );
            assert_eq!(
                of("LCMScheduler", json!({"clip_sample": true})).0,
                json!({"clip_sample": false, "steps_offset": 1})
            );
        }
        let inpaint = |class: &str, settings: Value| applied(INPAINT, class, settings);
        assert_eq!(
            inpaint("PNDMScheduler", json!({})),
            (json!({"steps_offset": 1, "skip_prk_steps": true}), vec!["steps_offset", "skip_prk_steps"])
        );
        assert_eq!(
            inpaint("DDIMScheduler", json!({"clip_sample": true})),
            (json!({"clip_sample": true, "steps_offset": 1}), vec!["steps_offset"])
        );
        for pipeline in ["StableDiffusionXLPipeline", "LatentConsistencyModelPipeline"] {
            assert_eq!(applied(pipeline, "DDIMScheduler", json!({})), (json!({}), vec![]));
        }
    }
}
