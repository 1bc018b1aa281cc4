//! Why a graph could not be run: whose fault it is.

use island_runtimes_kit::error::{EngineError, ErrorKind};

/// The error of a run. `lost` names the GPU if it no longer runs any graph, because its driver has reset it, for instance: then the model is
/// not at fault, and another process may be able to use the GPU again.
pub(super) fn failed(name: &str, lost: Option<&str>, error: ort::Error) -> EngineError {
    if let Some(gpu) = lost {
        let context = format!("{name} could not be run, because {gpu} no longer computes");
        return EngineError::new(ErrorKind::Crashed, context).because(error);
    }
    let is_memory = error.message().contains("llocat");
    let kind = if is_memory { ErrorKind::OutOfMemory } else { ErrorKind::InvalidModel };
    EngineError::new(kind, format!("{name} could not be run")).because(error)
}

#[cfg(test)]
mod tests {
    use island_protocol::job::{Failure, Fault};

    use super::*;

    #[test]
    fn a_model_is_not_blamed_for_a_gpu_that_was_lost() {
        // It makes the errors.
        crate::library::open().expect("the library");
        let fault = |lost, text: &str| Failure::from(failed("model.onnx", lost, ort::Error::new(text))).fault;
        assert_eq!(fault(Some("webgpu: A GPU"), "the device is lost"), Fault::Host);
        assert_eq!(fault(Some("webgpu: A GPU"), "failed to allocate"), Fault::Host);
        assert_eq!(fault(None, "failed to allocate memory for requested buffer"), Fault::Host);
        assert_eq!(fault(None, "the inputs of Add have different shapes"), Fault::Job);
    }
}
