//! A model loaded by the system's library.
#![expect(unsafe_code, reason = "calls of Objective-C")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use island_runtimes_kit::error::{EngineError, invalid_input, invalid_model};
use objc2::{
    AnyThread as _,
    rc::{Retained, autoreleasepool},
    runtime::{AnyObject, ProtocolObject},
};
use objc2_core_ml::{
    MLComputeUnits, MLDictionaryFeatureProvider, MLFeatureProvider, MLModel, MLModelConfiguration, MLState,
};
use objc2_foundation::{NSDictionary, NSString};
use parking_lot::Mutex;

use super::{
    compile,
    feature::{self, Wanted},
    files::{self, Laid},
    system::{self, words},
};
use crate::{
    model::{Model, State, Tensors, check, take},
    package::{Package, find::Found, interface::Interface},
};

/// A model loaded by the system's library.
#[derive(Debug)]
pub struct Native {
    name: String,
    interface: Interface,
    inputs: Vec<Wanted>,
    labels: Option<(String, Vec<String>)>,
    engine: Mutex<Engine>,
    /// Its files, which the library may still read: dropped after it.
    _files: Laid,
}

/// The library's own object.
#[derive(Debug)]
struct Engine(Retained<MLModel>);

impl Engine {
    /// Address of the object, which identifies it.
    fn place(&self) -> usize {
        Retained::as_ptr(&self.0).addr()
    }
}

// SAFETY: a model is bound to no thread; calls must not be concurrent, which its mutex guarantees, and its reference count is
// atomic.
unsafe impl Send for Engine {}

/// The state of a conversation.
#[derive(Debug)]
struct ConversationState {
    /// The address of its model.
    of: usize,
    /// `None` for models without states.
    state: Option<Retained<MLState>>,
}

impl Native {
    /// Compiles and loads a function of a package, for CPU and Neural Engine, and for GPUs if the owner lends one.
    pub fn load(
        files: &BTreeMap<String, PathBuf>,
        found: &Found,
        package: &Package,
        function: &str,
        uses_gpu: bool,
    ) -> Result<Self, EngineError> {
        let interface = package.interface(function)?;
        let is_newer = package.program.functions.len() > 1 || !interface.states.is_empty();
        if is_newer && !system::knows_states_and_functions() {
            return Err(invalid_model(format!(
                "{} of {} functions and {} states needs macOS 15",
                package.name,
                package.program.functions.len(),
                interface.states.len()
            )));
        }
        let mut laid = files::lay_out(files, found)?;
        let named = (package.program.functions.len() > 1).then_some(function);
        autoreleasepool(|_| {
            let said = |why: String| invalid_model(format!("{}: {why}", package.name));
            let engine = open(&compile::compiled(&mut laid).map_err(said)?, named, uses_gpu).map_err(said)?;
            // SAFETY: it only reads a property of the model.
            let described = unsafe { engine.modelDescription() };
            // SAFETY: it only reads a property of the description.
            let known = unsafe { described.inputDescriptionsByName() };
            let wanted = |input: &crate::package::interface::Feature| {
                let described = known.objectForKey(&NSString::from_str(&input.name));
                let described = described.ok_or_else(|| format!("Core ML has no input {}", input.name))?;
                feature::wanted(input, &described)
            };
            let inputs = interface.inputs.iter().map(wanted).collect::<Result<_, _>>().map_err(said)?;
            let labels = feature::labels(&described).map_err(said)?;
            let engine = Mutex::new(Engine(engine));
            Ok(Self { name: package.name.clone(), interface, inputs, labels, engine, _files: laid })
        })
    }

    /// All inputs in the library's form.
    fn provided(&self, mut given: Tensors) -> Result<Retained<MLDictionaryFeatureProvider>, EngineError> {
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for (input, wanted) in self.interface.inputs.iter().zip(&self.inputs) {
            let Some(tensor) = take(&mut given, &input.name) else {
                if input.is_optional {
                    continue;
                }
                return Err(invalid_input(format!("the model's input {} is missing", input.name)));
            };
            check(&self.interface, &input.name, &tensor)?;
            let value = feature::value(&tensor, *wanted)
                .map_err(|why| invalid_input(format!("the model's input {}: {why}", input.name)))?;
            names.push(NSString::from_str(&input.name));
            values.push(value);
        }
        let names: Vec<&NSString> = names.iter().map(|name| &**name).collect();
        let values: Vec<&AnyObject> = values.iter().map(AsRef::as_ref).collect();
        let dictionary = NSDictionary::from_slices(&names, &values);
        // SAFETY: the dictionary contains only feature values, which a provider returns unchanged.
        let provider = unsafe {
            MLDictionaryFeatureProvider::initWithDictionary_error(
                MLDictionaryFeatureProvider::alloc(),
                &dictionary,
            )
        };
        provider.map_err(|error| {
            invalid_model(format!("Core ML rejects the inputs of {}: {}", self.name, words(&error)))
        })
    }

    /// All outputs by name.
    fn read(&self, given: &ProtocolObject<dyn MLFeatureProvider>) -> Result<Tensors, EngineError> {
        let labels = self.labels.as_ref().map(|(_, labels)| labels.as_slice());
        let mut outputs = Tensors::new();
        for output in &self.interface.outputs {
            // SAFETY: it only reads a value.
            let value = unsafe { given.featureValueForName(&NSString::from_str(&output.name)) };
            let value =
                value.ok_or_else(|| invalid_model(format!("{} gives no {}", self.name, output.name)))?;
            let tensor = feature::tensor(&value, output, labels);
            let unreadable = |why| {
                invalid_model(format!("the output {} of {} cannot be read: {why}", output.name, self.name))
            };
            outputs.extend(tensor.map_err(unreadable)?.map(|tensor| (output.name.clone(), tensor)));
        }
        Ok(outputs)
    }
}

/// Loads a compiled model.
fn open(compiled: &Path, function: Option<&str>, uses_gpu: bool) -> Result<Retained<MLModel>, String> {
    let url = compile::url(compiled)?;
    let units = if uses_gpu { MLComputeUnits::All } else { MLComputeUnits::CPUAndNeuralEngine };
    // SAFETY: a configuration contains settings; a function is set only if the system supports functions.
    let configuration = unsafe {
        let configuration = MLModelConfiguration::new();
        configuration.setComputeUnits(units);
        if let Some(function) = function {
            configuration.setFunctionName(Some(&NSString::from_str(function)));
        }
        configuration
    };
    // SAFETY: the library compiled this model, or rejects it.
    let model = unsafe { MLModel::modelWithContentsOfURL_configuration_error(&url, &configuration) };
    model.map_err(|error| format!("Core ML cannot load it: {}", words(&error)))
}

impl Model for Native {
    fn name(&self) -> &str {
        &self.name
    }

    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn labels(&self) -> Option<(&str, &[String])> {
        self.labels.as_ref().map(|(output, labels)| (output.as_str(), labels.as_slice()))
    }

    fn start(&self) -> Result<State, EngineError> {
        let engine = self.engine.lock();
        let has_states = !self.interface.states.is_empty();
        // SAFETY: models with states are loaded only if the system supports them.
        let state = has_states.then(|| unsafe { engine.0.newState() });
        Ok(State::new(ConversationState { of: engine.place(), state }))
    }

    fn run(&self, inputs: Tensors, state: &mut State) -> Result<Tensors, EngineError> {
        // Releases the library's temporary objects at once: threads of the runtime have no pool of their own.
        autoreleasepool(|_| {
            let provider = self.provided(inputs)?;
            let provider = ProtocolObject::from_ref(&*provider);
            let engine = self.engine.lock();
            let held = state.content::<ConversationState>().filter(|held| held.of == engine.place());
            let held = held.ok_or_else(|| invalid_model("the state is of another model"))?;
            // SAFETY: the inputs match the model's description; the state is of this model, and borrowed by this call only.
            let given = unsafe {
                match &held.state {
                    Some(state) => engine.0.predictionFromFeatures_usingState_error(provider, state),
                    None => engine.0.predictionFromFeatures_error(provider),
                }
            };
            drop(engine);
            let given = given.map_err(|error| {
                invalid_model(format!("Core ML failed to run {}: {}", self.name, words(&error)))
            })?;
            self.read(&given)
        })
    }
}
