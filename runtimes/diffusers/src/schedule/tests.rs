//! Properties of every scheduler.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const CLASSES: [&str; 7] = [
    "PNDMScheduler",
    "DDIMScheduler",
    "EulerDiscreteScheduler",
    "EulerAncestralDiscreteScheduler",
    "DPMSolverMultistepScheduler",
    "LCMScheduler",
    "UniPCMultistepScheduler",
];

fn config(class: &str, spacing: &str, prediction: &str, karras: bool) -> Config {
    let settings = json!({
        "_class_name": class, "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear",
        "skip_prk_steps": true, "steps_offset": 1, "clip_sample": false, "timestep_spacing": spacing,
        "prediction_type": prediction, "use_karras_sigmas": karras,
    });
    serde_json::from_value(settings).expect("settings")
}

proptest! {
    #[test]
    fn walks_go_down_and_stay_finite(
        class in prop::sample::select(CLASSES.to_vec()),
        spacing in prop::sample::select(vec!["leading", "trailing", "linspace"]),
        prediction in prop::sample::select(vec!["epsilon", "v_prediction"]),
        karras: bool,
        steps in 1_usize..60,
        share in 0.0..1.0_f64,
    ) {
        let steps = if class == "LCMScheduler" { steps.min(50) } else { steps };
        let config = config(class, spacing, prediction, karras);
        let mut scheduler = make(&config, steps, 0.0).expect("a walk");
        let times = scheduler.timesteps().to_vec();
        prop_assert!(times.windows(2).all(|pair| pair[0] >= pair[1]), "{times:?}");
        prop_assert!(times.iter().all(|time| (0.0..1000.0).contains(time)), "{times:?}");
        let sigmas = scheduler.sigmas().to_vec();
        prop_assert!(sigmas.is_empty() || sigmas.len() == times.len() + 1);
        prop_assert!(sigmas.windows(2).all(|pair| pair[0] >= pair[1]), "{sigmas:?}");
        let begin = (share * times.len() as f64) as usize;
        let mut sample = scheduler.add_noise(begin, &[0.3, -1.2, 0.0], &[1.0, -0.5, 2.0]);
        for index in begin..times.len() {
            let input = scheduler.scale_input(index, &sample);
            let output: Vec<f32> = input.iter().map(|value| 0.5 * value).collect();
            sample = scheduler.step(index, &output, &sample, &mut || vec![0.1, -0.1, 0.7]);
            prop_assert!(sample.iter().all(|value| value.is_finite()), "{index}: {sample:?}");
        }
    }

    /// A model that always predicts the clean image leads to it, from any start in any number of steps.
    #[test]
    fn perfect_model_leads_to_its_image(
        class in prop::sample::select(CLASSES.to_vec()),
        karras: bool,
        steps in 2_usize..40,
        picture in prop::collection::vec(-2.0_f32..2.0, 4),
        noise in prop::collection::vec(-2.0_f32..2.0, 4),
    ) {
        let config = config(class, "leading", "epsilon", karras);
        let mut scheduler = make(&config, steps, 0.0).expect("a walk");
        let mut sample = scheduler.add_noise(0, &picture, &noise);
        let zeros = [0.0; 4];
        for index in 0..scheduler.timesteps().len() {
            // The noise in a sample is the remainder without the image.
            let signal = scheduler.add_noise(index, &[1.0; 4], &zeros)[0];
            let level = scheduler.add_noise(index, &zeros, &[1.0; 4])[0];
            let output: Vec<f32> = sample.iter().zip(&picture).map(|(sample, clean)| (sample - signal * clean) / level).collect();
            sample = scheduler.step(index, &output, &sample, &mut || noise.clone());
        }
        // Schedulers that end with the minimum noise of training keep that much of it.
        let apart = sample.iter().zip(&picture).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max);
        prop_assert!(apart < 0.2, "{class}: {sample:?}, not {picture:?}");
    }
}

#[test]
fn schedulers_have_aliases() {
    let config = config("PNDMScheduler", "leading", "epsilon", false);
    for (name, kind) in [
        ("DDIM", Kind::Ddim),
        ("euler_a", Kind::EulerAncestral),
        ("Euler a", Kind::EulerAncestral),
        ("EulerDiscreteScheduler", Kind::Euler),
        ("DPM++ 2M", Kind::Dpm),
        ("dpmpp_2m_karras", Kind::Dpm),
        ("UniPC", Kind::UniPc),
        ("lcm", Kind::Lcm),
        ("plms", Kind::Pndm),
    ] {
        assert_eq!(config.chosen(name).expect(name).kind().expect(name), kind);
    }
    assert!(config.chosen("ddim_karras").is_err());
    assert!(config.chosen("heun").expect_err("none").message().contains("dpm++_2m_karras"));
}

#[test]
fn unsupported_settings_are_rejected() {
    for (name, value) in [
        ("num_train_timesteps", json!(1)),
        ("beta_end", json!(7.0)),
        ("steps_offset", json!(-3)),
        ("clip_sample_range", json!(-1.0)),
        ("trained_betas", json!([0.5])),
        ("algorithm_type", json!("dpmsolver")),
        ("solver_order", json!(3)),
    ] {
        let mut settings = json!({ "_class_name": "DPMSolverMultistepScheduler" });
        settings[name] = value;
        let config: Config = serde_json::from_value(settings).expect(name);
        assert!(make(&config, 5, 0.0).is_err(), "{name}");
    }
    let config = config("PNDMScheduler", "leading", "epsilon", false);
    for steps in [0, 501, 1001] {
        assert!(make(&config, steps, 0.0).is_err(), "{steps}");
    }
}

#[test]
fn a_chosen_scheduler_has_none_of_what_the_pipeline_set() {
    let own = Config {
        clip_sample: Some(false),
        steps_offset: 1,
        skip_prk_steps: true,
        of_pipeline: vec!["steps_offset", "clip_sample", "skip_prk_steps"],
        ..config("DDIMScheduler", "leading", "epsilon", false)
    };
    let chosen = own.chosen("ddim").expect("known");
    assert_eq!((chosen.clip_sample, chosen.steps_offset, chosen.skip_prk_steps), (None, 0, false));
    let written = Config { of_pipeline: Vec::new(), ..own };
    let chosen = written.chosen("ddim").expect("known");
    assert_eq!((chosen.clip_sample, chosen.steps_offset, chosen.skip_prk_steps), (Some(false), 1, true));
}

#[test]
fn pndm_has_no_setting_for_betas_without_a_signal() {
    let table = |class: &str, rescales: bool| {
        let plain = config(class, "leading", "v_prediction", false);
        super::table::alphas_cumprod(&Config { rescale_betas_zero_snr: rescales, ..plain })
    };
    assert_eq!(table("PNDMScheduler", true), table("PNDMScheduler", false));
    assert_ne!(table("DDIMScheduler", true), table("DDIMScheduler", false));
}

#[test]
fn steps_of_a_consistency_model_are_chosen_in_floating_point() {
    let class_name = "LCMScheduler".to_owned();
    let config = Config { class_name, original_inference_steps: 30, ..Config::default() };
    let times = make(&config, 22, 0.0).expect("a scheduler").timesteps().to_vec();
    // `LCMScheduler.set_timesteps(22, original_inference_steps=30)` of diffusers 0.42.
    assert_eq!(times[9..13], [593.0, 560.0, 527.0, 461.0]);
}

#[test]
fn fractions_of_timesteps_are_cut_off_in_the_precision_of_the_reference() {
    // `set_timesteps` of diffusers 0.42 with `use_exponential_sigmas`.
    for class in ["DPMSolverMultistepScheduler", "UniPCMultistepScheduler"] {
        let settings =
            Config { use_exponential_sigmas: Some(true), ..config(class, "linspace", "epsilon", false) };
        for (steps, expected) in [(4, vec![998.0, 538.0, 52.0, 0.0]), (1, vec![998.0])] {
            let made = make(&settings, steps, 0.0).expect("a scheduler");
            assert_eq!(made.timesteps(), expected, "{class}");
        }
    }
}
