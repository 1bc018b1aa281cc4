//! The portable back end: models lowered to ONNX graphs, run by ONNX Runtime.

use island_runtimes_graph::{Feed, Feeds, Graph, Resources};
use island_runtimes_kit::error::{EngineError, invalid_input, invalid_model};
use ndarray::{ArrayD, IxDyn};
use ort::{
    environment::Environment,
    value::{DynValue, Tensor as OrtTensor, TensorElementType, ValueType},
};

use crate::{
    lower::graph::{self, Lowered},
    model::{Model, State, Tensor, Tensors, check, take},
    package::{Package, interface::Interface},
    program::types::Class,
};

/// A model as a graph.
#[derive(Debug)]
pub struct Portable {
    graph: Graph,
    interface: Interface,
    inputs: Vec<String>,
    outputs: Vec<String>,
    states: Vec<(String, Class, Vec<usize>)>,
    labels: Option<(String, Vec<String>)>,
}

impl Portable {
    /// Lowers and loads a function of a package.
    pub fn load(
        package: &Package,
        function: &str,
        environment: &Environment,
        resources: Resources,
    ) -> Result<Self, EngineError> {
        let interface = package.interface(function)?;
        let lowered = graph::lower(&package.program.functions[function], &package.weights)
            .map_err(|error| error.within(&package.name))?;
        let Lowered { model, weights, inputs, outputs, states, labels } = lowered;
        let weights = vec![(graph::WEIGHTS.to_owned(), weights)];
        let graph = Graph::of_bytes(environment, &package.name, &model, weights, resources)?;
        let inputs = inputs.into_iter().map(|named| named.name).collect();
        Ok(Self { graph, interface, inputs, outputs, states, labels })
    }
}

/// The state of a conversation, in the order of the model's states.
#[derive(Debug)]
struct StateTensors(Vec<DynValue>);

impl Model for Portable {
    fn name(&self) -> &str {
        self.graph.name()
    }

    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn labels(&self) -> Option<(&str, &[String])> {
        self.labels.as_ref().map(|(output, labels)| (output.as_str(), labels.as_slice()))
    }

    fn start(&self) -> Result<State, EngineError> {
        let empty = |(_, class, shape): &(String, Class, Vec<usize>)| {
            let shape = IxDyn(shape);
            Ok(match class {
                Class::Float => OrtTensor::from_array(ArrayD::<f32>::zeros(shape))?.into_dyn(),
                Class::Bool => OrtTensor::from_array(ArrayD::from_elem(shape, false))?.into_dyn(),
                _ => OrtTensor::from_array(ArrayD::<i64>::zeros(shape))?.into_dyn(),
            })
        };
        let values = self.states.iter().map(empty).collect::<ort::Result<Vec<DynValue>>>();
        let values = values.map_err(|error| invalid_model("its state cannot be created").because(error))?;
        Ok(State::new(StateTensors(values)))
    }

    fn run(&self, mut inputs: Tensors, state: &mut State) -> Result<Tensors, EngineError> {
        let held = state
            .content::<StateTensors>()
            .ok_or_else(|| invalid_model("the state belongs to another model"))?;
        let mut feeds = Feeds::new();
        for name in &self.inputs {
            let given = take(&mut inputs, name)
                .ok_or_else(|| invalid_input(format!("the model's input {name} is missing")))?;
            check(&self.interface, name, &given)?;
            let feed = match given {
                Tensor::Floats(array) => Feed::Floats(array),
                Tensor::Ints(array) => Feed::Ints(array),
            };
            feeds = feeds.with(&graph::input_name(name), feed);
        }
        for ((name, ..), value) in self.states.iter().zip(&held.0) {
            feeds = feeds.held(&graph::state_in(name), value);
        }
        let mut values = self.graph.run(feeds)?.into_values();
        let mut take = |name: String| {
            let place = values.iter().position(|(known, _)| *known == name);
            let place = place.ok_or_else(|| invalid_model(format!("the graph gives no {name}")))?;
            Ok::<_, EngineError>(values.swap_remove(place).1)
        };
        let outputs = self
            .outputs
            .iter()
            .map(|name| Ok((name.clone(), tensor(&take(graph::output_name(name))?, name)?)));
        let outputs = outputs.collect::<Result<Tensors, EngineError>>()?;
        let next = self.states.iter().map(|(name, ..)| take(graph::state_out(name)));
        held.0 = next.collect::<Result<_, _>>()?;
        Ok(outputs)
    }
}

fn tensor(value: &DynValue, name: &str) -> Result<Tensor, EngineError> {
    let unreadable =
        |error: ort::Error| invalid_model(format!("the output {name} cannot be read")).because(error);
    let ValueType::Tensor { ty, .. } = value.dtype() else {
        return Err(invalid_model(format!("the output {name} is not a tensor")));
    };
    Ok(match ty {
        TensorElementType::Int64 => {
            Tensor::Ints(value.try_extract_array::<i64>().map_err(unreadable)?.into_owned())
        }
        TensorElementType::Bool => {
            Tensor::Ints(value.try_extract_array::<bool>().map_err(unreadable)?.mapv(i64::from))
        }
        _ => Tensor::Floats(value.try_extract_array::<f32>().map_err(unreadable)?.into_owned()),
    })
}
