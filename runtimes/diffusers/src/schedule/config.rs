//! `scheduler_config.json`, with each scheduler's defaults for absent settings.

use island_runtimes_kit::{
    error::{EngineError, invalid_input},
    keys::{SCHEDULER, unsupported},
};
use serde::Deserialize;
use serde_json::Value;

/// The supported schedulers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// PNDM: linear multistep over up to four earlier outputs.
    Pndm,
    /// Denoising diffusion implicit models.
    Ddim,
    /// Euler's method on noise levels.
    Euler,
    /// Euler's method with fresh noise at every step.
    EulerAncestral,
    /// DPM-Solver++ of second order.
    Dpm,
    /// Latent consistency models.
    Lcm,
    /// UniPC, predictor and corrector.
    UniPc,
}

/// The meaning of a model's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prediction {
    /// The noise.
    Epsilon,
    /// The clean sample.
    Sample,
    /// The velocity between both.
    VPrediction,
}

/// How timesteps are spread over those of training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spacing {
    /// Even steps between both ends.
    Linspace,
    /// Even steps from the first.
    Leading,
    /// Even steps back from the last.
    Trailing,
}

/// How betas grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Betas {
    /// Linearly.
    Linear,
    /// Their square roots grow linearly.
    ScaledLinear,
    /// As a squared cosine.
    SquaredcosCapV2,
}

/// The last noise level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LastSigma {
    /// Zero.
    Zero,
    /// The minimum of training.
    SigmaMin,
}

/// The settings of a scheduler. Settings of other schedulers are kept, since a consumer can choose one.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct Config {
    #[serde(rename = "_class_name")]
    pub(super) class_name: String,
    pub(super) num_train_timesteps: usize,
    pub(super) beta_start: Option<f64>,
    pub(super) beta_end: Option<f64>,
    pub(super) beta_schedule: Option<Betas>,
    pub(super) trained_betas: Option<Vec<f32>>,
    pub(super) prediction_type: Prediction,
    pub(super) timestep_spacing: Option<Spacing>,
    pub(super) steps_offset: i64,
    pub(super) skip_prk_steps: bool,
    pub(super) set_alpha_to_one: Option<bool>,
    pub(super) clip_sample: Option<bool>,
    pub(super) clip_sample_range: f64,
    pub(super) rescale_betas_zero_snr: bool,
    pub(super) use_karras_sigmas: Option<bool>,
    pub(super) use_exponential_sigmas: Option<bool>,
    pub(super) final_sigmas_type: Option<LastSigma>,
    pub(super) sigma_min: Option<f64>,
    pub(super) sigma_max: Option<f64>,
    pub(super) solver_order: usize,
    pub(super) solver_type: Option<String>,
    pub(super) algorithm_type: Option<String>,
    pub(super) lower_order_final: bool,
    pub(super) euler_at_final: bool,
    pub(super) disable_corrector: Vec<usize>,
    pub(super) original_inference_steps: usize,
    pub(super) timestep_scaling: f64,
    /// Keys that the pipeline set because the repository lacks them.
    #[serde(skip)]
    pub of_pipeline: Vec<&'static str>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            class_name: String::new(),
            num_train_timesteps: 1000,
            beta_start: None,
            beta_end: None,
            beta_schedule: None,
            trained_betas: None,
            prediction_type: Prediction::Epsilon,
            timestep_spacing: None,
            steps_offset: 0,
            skip_prk_steps: false,
            set_alpha_to_one: None,
            clip_sample: None,
            clip_sample_range: 1.0,
            rescale_betas_zero_snr: false,
            use_karras_sigmas: None,
            use_exponential_sigmas: None,
            final_sigmas_type: None,
            sigma_min: None,
            sigma_max: None,
            solver_order: 2,
            solver_type: None,
            algorithm_type: None,
            lower_order_final: true,
            euler_at_final: false,
            disable_corrector: Vec::new(),
            original_inference_steps: 50,
            timestep_scaling: 10.0,
            of_pipeline: Vec::new(),
        }
    }
}

impl Config {
    /// The scheduler.
    pub fn kind(&self) -> Result<Kind, EngineError> {
        Ok(match self.class_name.as_str() {
            "PNDMScheduler" => Kind::Pndm,
            "DDIMScheduler" => Kind::Ddim,
            "EulerDiscreteScheduler" => Kind::Euler,
            "EulerAncestralDiscreteScheduler" => Kind::EulerAncestral,
            "DPMSolverMultistepScheduler" => Kind::Dpm,
            "LCMScheduler" => Kind::Lcm,
            "UniPCMultistepScheduler" => Kind::UniPc,
            other => return Err(unsupported(SCHEDULER.file, "_class_name", &other.into())),
        })
    }

    /// The same settings for the scheduler of a consumer's choice: by its class, or by the name in user interfaces.
    pub fn chosen(&self, name: &str) -> Result<Self, EngineError> {
        let plain: String =
            name.to_lowercase().replace("++", "pp").chars().filter(char::is_ascii_alphanumeric).collect();
        let karras = plain.strip_suffix("karras");
        let (class_name, may_be_karras) = match karras.unwrap_or(&plain) {
            "pndm" | "plms" | "pndmscheduler" => ("PNDMScheduler", false),
            "ddim" | "ddimscheduler" => ("DDIMScheduler", false),
            "euler" | "eulerdiscrete" | "eulerdiscretescheduler" => ("EulerDiscreteScheduler", true),
            "eulera" | "eulerancestral" | "eulerancestraldiscrete" | "eulerancestraldiscretescheduler" => {
                ("EulerAncestralDiscreteScheduler", false)
            }
            "dpm"
            | "dpmpp"
            | "dpmpp2m"
            | "dpmsolver"
            | "dpmsolverpp"
            | "dpmsolvermultistep"
            | "dpmsolvermultistepscheduler" => ("DPMSolverMultistepScheduler", true),
            "lcm" | "lcmscheduler" => ("LCMScheduler", false),
            "unipc" | "unipcmultistep" | "unipcmultistepscheduler" => ("UniPCMultistepScheduler", true),
            _ => ("", false),
        };
        if class_name.is_empty() || (karras.is_some() && !may_be_karras) {
            let known = "pndm, ddim, euler, euler_karras, euler_a, dpm++_2m, dpm++_2m_karras, lcm, unipc, unipc_karras";
            return Err(invalid_input(format!("unknown scheduler {name:?}; known are {known}")));
        }
        let karras = karras.map_or(self.use_karras_sigmas, |_| Some(true));
        let usual = Self::default();
        let is_set = |key: &str| !self.of_pipeline.contains(&key);
        Ok(Self {
            class_name: class_name.to_owned(),
            use_karras_sigmas: karras,
            steps_offset: if is_set("steps_offset") { self.steps_offset } else { usual.steps_offset },
            clip_sample: self.clip_sample.filter(|_| is_set("clip_sample")),
            skip_prk_steps: self.skip_prk_steps && is_set("skip_prk_steps"),
            of_pipeline: Vec::new(),
            ..self.clone()
        })
    }

    /// Rejects numbers out of range. Settings that no scheduler here supports are refused by [`island_runtimes_kit::keys::SCHEDULER`].
    pub(super) fn check(&self) -> Result<(), EngineError> {
        let length = self.num_train_timesteps;
        let largest_offset = i64::try_from(length / 2).unwrap_or(0);
        let fits_betas = self
            .trained_betas
            .as_ref()
            .is_none_or(|betas| betas.len() == length && betas.iter().all(|beta| (0.0..1.0).contains(beta)));
        let fits_beta = |beta: Option<f64>| beta.is_none_or(|beta| 0.0 < beta && beta < 1.0);
        // Samples are clamped to plus and minus this number, which panics if those are the wrong way round.
        let fits_range = self.clip_sample_range.is_finite() && self.clip_sample_range >= 0.0;
        let checks: [(&str, bool, Value); 7] = [
            ("num_train_timesteps", (2..=100_000).contains(&length), length.into()),
            ("steps_offset", (0..=largest_offset).contains(&self.steps_offset), self.steps_offset.into()),
            ("trained_betas", fits_betas, self.trained_betas.clone().into()),
            ("beta_start", fits_beta(self.beta_start), self.beta_start.into()),
            ("beta_end", fits_beta(self.beta_end), self.beta_end.into()),
            ("clip_sample_range", fits_range, self.clip_sample_range.into()),
            (
                "original_inference_steps",
                self.original_inference_steps > 0,
                self.original_inference_steps.into(),
            ),
        ];
        match checks.into_iter().find(|(_, fits, _)| !fits) {
            Some((key, _, value)) => Err(unsupported(SCHEDULER.file, key, &value)),
            None => Ok(()),
        }
    }

    pub(super) fn spacing(&self, default: Spacing) -> Spacing {
        self.timestep_spacing.unwrap_or(default)
    }

    pub(super) fn karras(&self) -> bool {
        self.use_karras_sigmas.unwrap_or(false)
    }

    pub(super) fn exponential(&self) -> bool {
        self.use_exponential_sigmas.unwrap_or(false)
    }

    /// The order of a multistep solver.
    pub(super) fn order(&self, most: usize) -> Result<usize, EngineError> {
        match self.solver_order {
            order if (1..=most).contains(&order) => Ok(order),
            order => Err(unsupported(SCHEDULER.file, "solver_order", &order.into())
                .followed_by(format!("it must be 1 to {most}"))),
        }
    }
}
