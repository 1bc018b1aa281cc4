//! Distributes a model between GPUs and the processor. llama.cpp computes what each part needs, with its buffers, without allocating it.

use std::{ffi::CString, fmt, num::NonZeroU32, path::Path, pin::Pin};

use island_protocol::{
    host::CPU,
    job::{Failure, FailureCode},
};
use llama_cpp_2::{
    context::params::LlamaContextParams,
    max_devices,
    model::params::{FitError, LlamaModelParams},
};

use crate::{
    gpu::{self, Placed},
    model::rejected,
};

/// Reason of a failure.
const TOO_SMALL: &str = "the memory that it may use of the GPU is too small for the model";
/// Reason of a failure.
const CHANGING: &str = "the free memory of the GPU changes too fast to place a model within its limit";
/// Attempts to place a model while the free memory of its GPUs grows.
const ATTEMPTS: usize = 4;
/// Free memory may grow by this fraction of the limit while a model is placed: one sixteenth.
const GROWTH_DIVISOR: u64 = 16;

/// What is computed with a model: the sizes of its batches and caches decide how much memory it needs beside its weights.
pub trait Measured: Copy {
    /// Parameters of the largest context that is made.
    fn largest_context(&self) -> LlamaContextParams;
}

/// A model file to place.
#[derive(Debug, Clone, Copy)]
pub struct Weights<'p> {
    /// The file, or the first of several.
    pub path: &'p Path,
    /// Number of its layers, without that of its output.
    pub layers: u64,
}

/// Where a model is placed, and how to load it there.
#[derive(Debug)]
pub struct Fit {
    /// Parameters for loading it.
    pub params: LlamaModelParams,
    /// Where it is then.
    pub placement: Placement,
}

/// Where a model is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// The GPUs that it uses; empty on the processor.
    pub gpus: Vec<Placed>,
    /// Whether all of it is on them.
    pub is_whole: bool,
}

impl Fit {
    /// A model on the processor alone.
    pub fn processor() -> Self {
        let params = LlamaModelParams::default().with_n_gpu_layers(0);
        Self { params, placement: Placement::default() }
    }

    /// Places a model on GPUs with the first of `choices` with which all of it fits; otherwise, as much of it as fits beside the last that
    /// the GPUs support. Returns the chosen options, too.
    pub fn on<C: Measured>(
        gpus: &[Placed],
        weights: Weights<'_>,
        choices: &[C],
    ) -> Result<(Self, C), Failure> {
        best(choices, |choice| fit(gpus, weights, &choice), |fit| fit.placement.is_whole)
    }
}

/// The first of `choices` with which `fit` places the whole model; otherwise, the last with which it places a part; otherwise, the last error.
fn best<C: Copy, F>(
    choices: &[C],
    mut fit: impl FnMut(C) -> Result<F, Failure>,
    is_whole: impl Fn(&F) -> bool,
) -> Result<(F, C), Failure> {
    let mut last = Err(failed(TOO_SMALL));
    for &choice in choices {
        match fit(choice) {
            Ok(fitted) if is_whole(&fitted) => return Ok((fitted, choice)),
            // A GPU may not support 8-bit caches: what fits without them stands.
            Err(_) if last.is_ok() => {}
            other => last = other.map(|fitted| (fitted, choice)),
        }
    }
    last
}

/// The name of the place in the usage of jobs: each GPU as its interface and name, and the processor if it runs a part.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gpus = self.gpus.iter().map(|placed| {
            let device = &placed.gpu.device;
            format!("{}: {}", device.api, device.name)
        });
        let processor = (!self.is_whole).then(|| CPU.to_owned());
        f.write_str(&gpus.chain(processor).collect::<Vec<_>>().join(" + "))
    }
}

fn fit(gpus: &[Placed], weights: Weights<'_>, choice: &impl Measured) -> Result<Fit, Failure> {
    let fit = |margins| fit_with_margins(gpus, weights, choice.largest_context(), margins);
    within_limits(gpus, || gpu::free(gpus), fit)
}

/// Calls `fit` with the memory of each GPU that must stay free, bytes. llama.cpp reads the free memory itself: if another program has released
/// some meanwhile, the model would take that beyond its limit, and is placed again.
fn within_limits<F>(
    gpus: &[Placed],
    mut read_free: impl FnMut() -> Vec<u64>,
    mut fit: impl FnMut(Vec<usize>) -> Result<F, Failure>,
) -> Result<F, Failure> {
    let mut before = read_free();
    for _ in 0..ATTEMPTS {
        let margin = |(placed, &free): (&Placed, &u64)| free.saturating_sub(placed.limit) as usize;
        let fitted = fit(gpus.iter().zip(&before).map(margin).collect())?;
        let after = read_free();
        let grew = |((placed, &before), &after): ((&Placed, &u64), &u64)| {
            after.saturating_sub(before) > placed.limit / GROWTH_DIVISOR
        };
        if !gpus.iter().zip(&before).zip(&after).any(grew) {
            return Ok(fitted);
        }
        before = after;
    }
    Err(failed(CHANGING))
}

fn fit_with_margins(
    gpus: &[Placed],
    weights: Weights<'_>,
    mut context: LlamaContextParams,
    mut margins: Vec<usize>,
) -> Result<Fit, Failure> {
    margins.resize(max_devices().max(margins.len()), 0);
    let mut params = with_devices(gpus)?;
    let tokens = context.n_ctx().map_or(0, NonZeroU32::get);
    // What llama.cpp writes about it is for people who tune it by hand.
    let quiet = llama_cpp_sys_2::GGML_LOG_LEVEL_ERROR;
    let fitted =
        Pin::new(&mut params).fit_params(&c_path(weights.path)?, &mut context, &mut margins, tokens, quiet);
    match fitted {
        Ok(_) => {}
        Err(FitError::Failure) => {
            return Err(failed(TOO_SMALL));
        }
        Err(FitError::Error) => {
            return Err(rejected("llama.cpp cannot measure the model on this GPU; see its log"));
        }
    }
    let has_exceptions = !params.tensor_buft_override_patterns().is_empty();
    let is_whole = is_whole(params.n_gpu_layers(), has_exceptions, weights.layers);
    let gpus = if params.n_gpu_layers() == 0 { Vec::new() } else { gpus.to_vec() };
    Ok(Fit { params, placement: Placement { gpus, is_whole } })
}

/// Whether all of a model with this number of layers is on GPUs. One that fits where llama.cpp places it without limits keeps the default, a negative
/// number; where llama.cpp had to divide it among several GPUs otherwise, the number includes the output layer. `has_exceptions` is whether
/// single tensors stay in main memory.
fn is_whole(gpu_layers: i32, has_exceptions: bool, layers: u64) -> bool {
    let has_all = gpu_layers < 0 || u64::from(gpu_layers.unsigned_abs()) > layers;
    has_all && !has_exceptions
}

fn with_devices(gpus: &[Placed]) -> Result<LlamaModelParams, Failure> {
    let indices: Vec<usize> = gpus.iter().map(|placed| placed.gpu.index).collect();
    LlamaModelParams::default()
        .with_devices(&indices)
        .map_err(|error| failed(&format!("select the GPUs in llama.cpp: {error}")))
}

fn c_path(path: &Path) -> Result<CString, Failure> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| failed("the path of the model contains a zero byte"))
}

fn failed(message: &str) -> Failure {
    Failure::of_host(FailureCode::OutOfMemory, message)
}

#[cfg(test)]
mod tests {
    use island_protocol::host::Device;

    use super::*;
    use crate::gpu::Gpu;

    /// What is chosen where each choice places the whole model, a part of it, or fails.
    fn chosen(fits: &[Result<bool, &str>]) -> Result<(bool, usize), String> {
        let choices: Vec<usize> = (0..fits.len()).collect();
        best(&choices, |choice| fits[choice].map_err(failed), |is_whole| *is_whole)
            .map_err(|failure| failure.message)
    }

    #[test]
    fn a_choice_that_the_gpu_does_not_support_replaces_no_partial_fit() {
        let unsupported = Err("8-bit caches are not supported");
        assert_eq!(chosen(&[Ok(false), unsupported]), Ok((false, 0)));
        assert_eq!(chosen(&[unsupported, Ok(false)]), Ok((false, 1)));
    }

    #[test]
    fn the_first_whole_fit_wins_and_otherwise_the_last_partial_one() {
        assert_eq!(chosen(&[Ok(false), Ok(true), Ok(true)]), Ok((true, 1)));
        assert_eq!(chosen(&[Ok(false), Ok(false)]), Ok((false, 1)));
    }

    #[test]
    fn a_model_is_whole_with_every_layer_on_some_gpu() {
        assert!(is_whole(-1, false, 32), "where llama.cpp places it without limits");
        assert!(is_whole(33, false, 32), "divided among several GPUs");
        assert!(!is_whole(32, false, 32), "one layer is not on a GPU");
        assert!(!is_whole(33, true, 32), "experts are in main memory");
        assert!(!is_whole(-1, true, 32), "experts are in main memory");
        assert!(!is_whole(0, false, 32), "nothing is on a GPU");
    }

    /// The margins with which a model was placed on a GPU of which it may use 160 bytes, whose free memory is read as these values in turn.
    fn margins(readings: &[u64]) -> (Vec<usize>, Result<(), String>) {
        let gpu = Gpu { index: 0, device: Device::default(), free: readings[0] };
        let placed = [Placed { gpu, limit: 160 }];
        let mut readings = readings.iter().copied();
        let mut margins = Vec::new();
        let fitted = within_limits(
            &placed,
            || vec![readings.next().expect("a reading")],
            |of_attempt| {
                margins.extend(of_attempt);
                Ok(())
            },
        );
        (margins, fitted.map_err(|failure| failure.message))
    }

    #[test]
    fn a_model_is_placed_again_if_memory_was_released_meanwhile() {
        assert_eq!(margins(&[1000, 1010]), (vec![840], Ok(())));
        assert_eq!(margins(&[1000, 1011, 1011]), (vec![840, 851], Ok(())));
        // What other programs take meanwhile leaves it within its limit.
        assert_eq!(margins(&[1000, 500]), (vec![840], Ok(())));
        assert_eq!(margins(&[100, 100]), (vec![0], Ok(())));
    }

    #[test]
    fn a_model_is_not_placed_while_the_free_memory_keeps_growing() {
        let (margins, fitted) = margins(&[1000, 2000, 3000, 4000, 5000]);
        assert_eq!((margins.len(), fitted), (ATTEMPTS, Err(CHANGING.to_owned())));
    }

    #[test]
    fn the_last_error_is_returned_where_nothing_fits() {
        assert_eq!(chosen(&[Err("first"), Err("second")]), Err("second".to_owned()));
        assert_eq!(chosen(&[]), Err(TOO_SMALL.to_owned()));
    }
}
