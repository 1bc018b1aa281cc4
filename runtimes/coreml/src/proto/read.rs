//! Messages to a program. The content of messages is bounded by the size of their file, and their nesting by the decoder.

use island_runtimes_kit::error::{EngineError, invalid_model};
use prost::Message as _;

use super::{
    mil::{self, Bound, Content, Elements, Extent, Here, Type},
    model::Model,
};
use crate::{
    package::elements,
    program::{
        Argument, Block, Function, Named, Operation, Program,
        types::{Class, Element, MAX_ELEMENTS, TensorType, ValueType},
        value::{Data, Value},
    },
};

/// Maximum number of dimensions of a tensor.
const MAX_RANK: usize = 16;

/// The model of a file.
pub fn model(bytes: &[u8]) -> Result<Model, EngineError> {
    Model::decode(bytes).map_err(|error| invalid_model("not a Core ML model").because(error))
}

/// The program of a model.
pub fn program(program: mil::Program) -> Result<Program, EngineError> {
    let read = |(name, function): (String, mil::Function)| {
        let function =
            self::function(function).map_err(|why| invalid_model(format!("function {name:?}: {why}")))?;
        Ok((name, function))
    };
    Ok(Program { functions: program.functions.into_iter().map(read).collect::<Result<_, EngineError>>()? })
}

fn function(mut function: mil::Function) -> Result<Function, String> {
    let body = function.block_specializations.remove(&function.opset);
    let body = body.or_else(|| function.block_specializations.into_values().next());
    Ok(Function {
        block: block(body.ok_or("it has no body")?)?,
        inputs: function.inputs.into_iter().map(named).collect::<Result<_, _>>()?,
        opset: function.opset,
    })
}

fn block(block: mil::Block) -> Result<Block, String> {
    Ok(Block {
        inputs: block.inputs.into_iter().map(named).collect::<Result<_, _>>()?,
        operations: block.operations.into_iter().map(operation).collect::<Result<_, _>>()?,
        outputs: block.outputs,
    })
}

fn operation(operation: mil::Operation) -> Result<Operation, String> {
    let kind = operation.r#type;
    let at = |why: String| format!("{kind}: {why}");
    let arguments = |(name, argument): (String, mil::Argument)| {
        let all = argument.arguments.into_iter().map(self::argument).collect::<Result<_, _>>();
        all.map(|all| (name, all))
    };
    let attributes = operation.attributes.into_iter().map(|(name, given)| Ok((name, value(given)?)));
    Ok(Operation {
        inputs: operation.inputs.into_iter().map(arguments).collect::<Result<_, _>>().map_err(at)?,
        outputs: operation.outputs.into_iter().map(named).collect::<Result<_, _>>().map_err(at)?,
        attributes: attributes.collect::<Result<_, String>>().map_err(at)?,
        blocks: operation.blocks.into_iter().map(block).collect::<Result<_, _>>().map_err(at)?,
        kind,
    })
}

fn argument(binding: mil::Binding) -> Result<Argument, String> {
    match binding.binding {
        Some(Bound::Name(name)) => Ok(Argument::Name(name)),
        Some(Bound::Value(given)) => value(given).map(Argument::Value),
        None => Err("an argument has no binding".to_owned()),
    }
}

fn named(named: mil::NamedValueType) -> Result<Named, String> {
    let ty = named.r#type.ok_or_else(|| format!("{:?} has no type", named.name))?;
    Ok(Named { ty: value_type(ty)?, name: named.name })
}

fn value_type(ty: mil::ValueType) -> Result<ValueType, String> {
    let inner = |ty: Option<Box<mil::ValueType>>| value_type(*ty.ok_or("a type lacks its element type")?);
    Ok(match ty.r#type.ok_or("a type is empty")? {
        Type::Tensor(tensor) => ValueType::Tensor(tensor_type(&tensor)?),
        Type::List(list) => ValueType::List(Box::new(inner(list.r#type)?)),
        Type::Tuple(tuple) => {
            ValueType::Tuple(tuple.types.into_iter().map(value_type).collect::<Result<_, _>>()?)
        }
        Type::Dictionary(pair) => ValueType::Dictionary(Box::new((inner(pair.key)?, inner(pair.value)?))),
        Type::State(state) => match inner(state.wrapped)? {
            ValueType::Tensor(tensor) => ValueType::State(tensor),
            _ => return Err("a state is not a tensor".to_owned()),
        },
    })
}

fn tensor_type(tensor: &mil::TensorType) -> Result<TensorType, String> {
    let element = Element::of_proto(tensor.data_type)
        .ok_or_else(|| format!("unknown element type {}", tensor.data_type))?;
    if tensor.dimensions.len() > MAX_RANK {
        return Err(format!("a tensor has {} dimensions, more than {MAX_RANK}", tensor.dimensions.len()));
    }
    let size = |dimension: &mil::Dimension| match dimension.extent {
        Some(Extent::Constant(constant)) if constant.size > MAX_ELEMENTS => {
            Err(format!("a dimension of {} is more than {MAX_ELEMENTS}", constant.size))
        }
        Some(Extent::Constant(constant)) => Ok(Some(constant.size)),
        _ => Ok(None),
    };
    Ok(TensorType { element, shape: tensor.dimensions.iter().map(size).collect::<Result<_, _>>()? })
}

fn value(given: mil::Value) -> Result<Value, String> {
    let ty = value_type(given.r#type.ok_or("a value has no type")?)?;
    let data = match given.content.ok_or("a value has no content")? {
        Content::Blob(blob) => Data::Blob { file: blob.file_name, offset: blob.offset },
        Content::Immediate(immediate) => match immediate.value.ok_or("a value has no content")? {
            Here::Tensor(tensor) => tensor_data(&ty, tensor)?,
            Here::Tuple(many) | Here::List(many) => {
                Data::Many(many.values.into_iter().map(value).collect::<Result<_, _>>()?)
            }
            Here::Dictionary(pairs) => {
                let pair = |pair: mil::Pair| {
                    Ok((
                        value(pair.key.ok_or("a key is missing")?)?,
                        value(pair.value.ok_or("a value is missing")?)?,
                    ))
                };
                Data::Pairs(pairs.values.into_iter().map(pair).collect::<Result<_, String>>()?)
            }
        },
    };
    Ok(Value { ty, data })
}

fn tensor_data(ty: &ValueType, tensor: mil::TensorValue) -> Result<Data, String> {
    let tensor_type = ty.tensor().ok_or("a value with elements is not a tensor")?;
    let shape = tensor_type.fixed().ok_or("a value has an unknown dimension")?;
    let count = shape.iter().try_fold(1_u64, |count, &size| count.checked_mul(size));
    let count = count.ok_or("a value has more elements than can be counted")?;
    let data = match tensor.value {
        Some(Elements::Floats(floats)) => Data::Floats(floats.values),
        Some(Elements::Doubles(doubles)) => {
            Data::Floats(doubles.values.into_iter().map(|number| number as f32).collect())
        }
        Some(Elements::Ints(ints)) => Data::Ints(ints.values.into_iter().map(i64::from).collect()),
        Some(Elements::LongInts(ints)) => Data::Ints(ints.values),
        Some(Elements::Bools(bools)) => Data::Bools(bools.values),
        Some(Elements::Texts(texts)) => Data::Texts(texts.values),
        Some(Elements::Bytes(bytes)) => {
            elements::decode(&bytes.values, tensor_type.element, count).map_err(|why| why.to_string())?
        }
        None if count == 0 => none(tensor_type.element),
        None => return Err("a value has no elements".to_owned()),
    };
    let fits = matches!(
        (&data, tensor_type.element.class()),
        (Data::Floats(_), Class::Float)
            | (Data::Ints(_), Class::Int)
            | (Data::Bools(_), Class::Bool)
            | (Data::Texts(_), Class::Text)
    );
    if !fits {
        return Err(format!("elements are not {:?}, as its type declares", tensor_type.element));
    }
    if data.len().map(|length| length as u64) != Some(count) {
        return Err(format!("a value has {:?} elements, its type declares {count}", data.len().unwrap_or(0)));
    }
    Ok(data)
}

/// No elements of a class.
fn none(element: Element) -> Data {
    match element.class() {
        Class::Float => Data::Floats(Vec::new()),
        Class::Int => Data::Ints(Vec::new()),
        Class::Bool => Data::Bools(Vec::new()),
        Class::Text => Data::Texts(Vec::new()),
    }
}
