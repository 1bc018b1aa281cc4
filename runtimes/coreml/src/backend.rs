//! The choice of a model's back end: the system's own if it accepts the model, otherwise the portable one.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use island_protocol::host::{Device, NATIVE, PORTABLE};
use island_runtimes_api::{Probe, Unavailable};
use island_runtimes_graph::{Resources, library};
use island_runtimes_kit::error::EngineError;

use crate::{model::Model, package::Package, portable::Portable};

/// A model to load.
#[derive(Debug, Clone, Copy)]
pub struct LoadRequest<'a> {
    /// The Cargo's files.
    pub files: &'a BTreeMap<String, PathBuf>,
    /// The model's path among them, if there are several.
    pub wanted: Option<&'a str>,
    /// The parsed model.
    pub package: &'a Package,
    /// Its function.
    pub function: &'a str,
    /// Threads of the processor.
    pub threads: usize,
    /// Whether the native back end may use the GPU.
    pub uses_gpu: bool,
}

/// A loaded model with its back end.
#[derive(Debug, Clone)]
pub struct LoadedModel {
    /// The model.
    pub model: Arc<dyn Model>,
    /// Name of the back end, with the reason if it is not the native one.
    pub engine: String,
}

/// Loads a model with the first back end that accepts it.
pub fn load(request: &LoadRequest<'_>) -> Result<LoadedModel, EngineError> {
    choose(native(request), || portable(request))
}

type Attempt = Result<(Arc<dyn Model>, String), EngineError>;

fn choose(native: Option<Attempt>, portable: impl FnOnce() -> Attempt) -> Result<LoadedModel, EngineError> {
    let refusal = match native {
        Some(Ok((model, version))) => {
            return Ok(LoadedModel { model, engine: format!("{NATIVE}, {version}") });
        }
        Some(Err(failure)) => Some(failure.message()),
        None => None,
    };
    if let Some(why) = &refusal {
        tracing::warn!(why, "the native back end rejects the model, trying the portable one");
    }
    match (portable(), refusal) {
        (Ok((model, version)), None) => Ok(LoadedModel { model, engine: format!("{PORTABLE}, {version}") }),
        (Ok((model, version)), Some(why)) => Ok(LoadedModel {
            model,
            engine: format!("{PORTABLE}, {version}, since the {NATIVE} one rejected it: {why}"),
        }),
        (Err(failure), None) => Err(failure),
        (Err(failure), Some(why)) => Err(failure.followed_by(format!("the {NATIVE} back end: {why}"))),
    }
}

fn portable(request: &LoadRequest<'_>) -> Attempt {
    let environment = library::open().map_err(|error| EngineError::host(error.reason))?;
    let model =
        Portable::load(request.package, request.function, environment, Resources::cpu(request.threads))?;
    Ok((Arc::new(model), portable_version()))
}

fn portable_version() -> String {
    format!("ONNX Runtime {}", library::version())
}

#[cfg(target_os = "macos")]
#[expect(clippy::unnecessary_wraps, reason = "other systems have none")]
fn native(request: &LoadRequest<'_>) -> Option<Attempt> {
    use crate::{native, package::find};
    let load = || {
        native::system::check().map_err(|error| EngineError::host(error.reason))?;
        let found = find::find(request.files, request.wanted)?;
        let model =
            native::Native::load(request.files, &found, request.package, request.function, request.uses_gpu)?;
        Ok((Arc::new(model) as Arc<dyn Model>, native::system::version()))
    };
    Some(load())
}

/// Other systems have none.
#[cfg(not(target_os = "macos"))]
fn native(_ask: &LoadRequest<'_>) -> Option<Attempt> {
    None
}

/// The back ends of this machine.
pub fn probe() -> Result<Probe, Unavailable> {
    offer(native_offer(), library::open().map(|_| portable_version()))
}

/// The native back end's version and devices.
type Offer = Result<(String, Vec<Device>), Unavailable>;

fn offer(native: Option<Offer>, portable: Result<String, Unavailable>) -> Result<Probe, Unavailable> {
    let mut details = BTreeMap::new();
    let (backend, version, devices) = match (native, portable) {
        (Some(Ok((version, devices))), portable) => {
            details.insert(PORTABLE.to_owned(), portable.unwrap_or_else(|missing| missing.reason));
            (NATIVE, version, devices)
        }
        (native, Ok(version)) => {
            if let Some(Err(missing)) = native {
                details.insert(NATIVE.to_owned(), missing.reason);
            }
            (PORTABLE, version, vec![Device::cpu()])
        }
        (Some(Err(native)), Err(portable)) => {
            let reason = format!("{}; {}", native.reason, portable.reason);
            return Err(Unavailable { reason });
        }
        (None, Err(portable)) => return Err(portable),
    };
    let backend = Some(backend.to_owned());
    Ok(Probe { version, devices, backend, details, ..Probe::default() })
}

#[cfg(target_os = "macos")]
#[expect(clippy::unnecessary_wraps, reason = "other systems have none")]
fn native_offer() -> Option<Offer> {
    use crate::native::system;
    Some(system::check().map(|()| (system::version(), system::devices())))
}

/// Other systems have none.
#[cfg(not(target_os = "macos"))]
fn native_offer() -> Option<Offer> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{State, Tensors},
        package::interface::Interface,
    };
    use island_runtimes_kit::error::invalid_model;

    /// A model identified by its name.
    #[derive(Debug)]
    struct Named(&'static str, Interface);

    impl Model for Named {
        fn name(&self) -> &str {
            self.0
        }

        fn interface(&self) -> &Interface {
            &self.1
        }

        fn labels(&self) -> Option<(&str, &[String])> {
            None
        }

        fn start(&self) -> Result<State, EngineError> {
            Err(invalid_model("never run"))
        }

        fn run(&self, _inputs: Tensors, _state: &mut State) -> Result<Tensors, EngineError> {
            Err(invalid_model("never run"))
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "the signature of a fallible closure")]
    fn takes(name: &'static str) -> Attempt {
        Ok((Arc::new(Named(name, Interface::default())), "v1".to_owned()))
    }

    #[test]
    fn native_back_end_is_first_and_portable_one_has_the_reason() {
        let text = |loaded: Result<LoadedModel, EngineError>| {
            loaded
                .map(|loaded| (loaded.model.name().to_owned(), loaded.engine))
                .map_err(|failure| failure.message())
        };
        let of = |name: &str, engine: &str| Ok((name.to_owned(), engine.to_owned()));
        assert_eq!(text(choose(Some(takes("a")), || panic!("not called"))), of("a", "native, v1"));
        assert_eq!(text(choose(None, || takes("b"))), of("b", "portable, v1"));
        let refused = || Some(Err(invalid_model("too new")));
        assert_eq!(
            text(choose(refused(), || takes("b"))),
            of("b", "portable, v1, since the native one rejected it: too new")
        );
        assert_eq!(text(choose(None, || Err(invalid_model("no")))), Err("no".to_owned()));
        let both = text(choose(refused(), || Err(invalid_model("no"))));
        assert_eq!(both, Err("no; the native back end: too new".to_owned()));
    }

    #[test]
    fn probe_reports_the_back_end() {
        let missing = |reason: &str| Unavailable { reason: reason.to_owned() };
        let native = || Some(Ok(("Core ML of macOS 15.5.0".to_owned(), vec![Device::cpu()])));
        let probe = offer(native(), Err(missing("no library"))).expect("native alone");
        assert_eq!(
            (probe.backend.as_deref(), probe.version.as_str()),
            (Some("native"), "Core ML of macOS 15.5.0")
        );
        assert_eq!(probe.details["portable"], "no library");
        let probe = offer(Some(Err(missing("too old"))), Ok("ONNX Runtime 1".to_owned())).expect("portable");
        assert_eq!(
            (probe.backend.as_deref(), probe.details["native"].as_str()),
            (Some("portable"), "too old")
        );
        let probe = offer(None, Ok("ONNX Runtime 1".to_owned())).expect("portable");
        assert!(probe.backend.as_deref() == Some("portable") && probe.details.is_empty());
        assert_eq!(offer(None, Err(missing("no library"))), Err(missing("no library")));
        let neither = offer(Some(Err(missing("too old"))), Err(missing("no library"))).expect_err("neither");
        assert_eq!(neither.reason, "too old; no library");
    }
}
