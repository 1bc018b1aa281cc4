//! The remaining signal at each training timestep.

use super::config::{Betas, Config, Kind};

/// The squared share of the signal at each timestep: the cumulative product of `1 - beta`.
pub(super) fn alphas_cumprod(config: &Config) -> Vec<f64> {
    let mut betas = betas(config);
    // PNDM has no such setting.
    let rescales = config.rescale_betas_zero_snr && !matches!(config.kind(), Ok(Kind::Pndm));
    if rescales {
        betas = without_signal_at_the_end(&betas);
    }
    let mut product = 1.0_f64;
    let mut table: Vec<f64> = betas
        .iter()
        .map(|beta| {
            product *= f64::from(1.0 - beta);
            f64::from(product as f32)
        })
        .collect();
    // Zero would make the maximum noise level infinite. Schedulers that use timesteps only have no such level.
    let by_sigma = !matches!(config.kind(), Ok(Kind::Pndm | Kind::Ddim | Kind::Lcm));
    if let (true, true, Some(last)) = (rescales, by_sigma, table.last_mut()) {
        *last = 2_f64.powi(-24);
    }
    table
}

fn betas(config: &Config) -> Vec<f32> {
    if let Some(betas) = &config.trained_betas {
        return betas.clone();
    }
    let is_lcm = matches!(config.kind(), Ok(Kind::Lcm));
    let (usual, start, end) =
        if is_lcm { (Betas::ScaledLinear, 0.00085, 0.012) } else { (Betas::Linear, 0.0001, 0.02) };
    let (start, end) = (config.beta_start.unwrap_or(start), config.beta_end.unwrap_or(end));
    let length = config.num_train_timesteps;
    match config.beta_schedule.unwrap_or(usual) {
        Betas::Linear => even(start, end, length),
        Betas::ScaledLinear => {
            even(start.sqrt(), end.sqrt(), length).into_iter().map(|root| root * root).collect()
        }
        Betas::SquaredcosCapV2 => (0..length).map(|at| cosine(at, length)).collect(),
    }
}

/// Even steps, counted from the nearer end as PyTorch counts them.
fn even(start: f64, end: f64, length: usize) -> Vec<f32> {
    let (start, end) = (start as f32, end as f32);
    let step = (end - start) / (length - 1) as f32;
    let at = |index: usize| {
        if index < length / 2 {
            step.mul_add(index as f32, start)
        } else {
            (-step).mul_add((length - 1 - index) as f32, end)
        }
    };
    (0..length).map(at).collect()
}

fn cosine(at: usize, length: usize) -> f32 {
    let left = |time: f64| ((time + 0.008) / 1.008 * std::f64::consts::FRAC_PI_2).cos().powi(2);
    let (from, to) = (at as f64 / length as f64, (at + 1) as f64 / length as f64);
    (1.0 - left(to) / left(from)).min(0.999) as f32
}

/// Betas of which the last leaves no signal, so that a whole image can be dark or bright.
fn without_signal_at_the_end(betas: &[f32]) -> Vec<f32> {
    let mut product = 1.0_f64;
    let mut roots: Vec<f32> = betas
        .iter()
        .map(|beta| {
            product *= f64::from(1.0 - beta);
            (product as f32).sqrt()
        })
        .collect();
    let (Some(&first), Some(&last)) = (roots.first(), roots.last()) else { return Vec::new() };
    for root in &mut roots {
        *root = (*root - last) * (first / (first - last));
    }
    let squares: Vec<f32> = roots.iter().map(|root| root * root).collect();
    let alpha = |at: usize| if at == 0 { squares[0] } else { squares[at] / squares[at - 1] };
    (0..squares.len()).map(|at| 1.0 - alpha(at)).collect()
}
