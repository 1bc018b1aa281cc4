//! A model's inputs, outputs and states.

use std::collections::BTreeMap;

use island_runtimes_kit::keys::COMPILED;
use serde_json::Value;

use crate::{
    program::{Function, Named, types::Class},
    proto::model::{ArrayType, Description, Feature as Described, FeatureKind as DescribedKind},
};

/// The interface of a function.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interface {
    /// Inputs.
    pub inputs: Vec<Feature>,
    /// Outputs.
    pub outputs: Vec<Feature>,
    /// States.
    pub states: Vec<Feature>,
    /// The output with a classifier's probabilities.
    pub probabilities: Option<String>,
}

/// An input, output or state.
#[derive(Debug, Clone, PartialEq)]
pub struct Feature {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// Whether it may be omitted.
    pub is_optional: bool,
}

/// The type of a feature.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// An image; the program gets it as `[1, channels, height, width]`, 0 to 255.
    Image {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// Its color layout.
        color: Color,
    },
    /// An array.
    Array {
        /// The class of its elements.
        class: Class,
        /// Its valid dimensions.
        sizes: Sizes,
    },
    /// Another type: a label, a dictionary of probabilities.
    Other,
}

/// Color layout of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the field's own")]
pub enum Color {
    Gray,
    Rgb,
    Bgr,
}

/// Valid dimensions of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    /// Fixed; 0 for any.
    Fixed(Vec<u64>),
    /// Any of these.
    OneOf(Vec<Vec<u64>>),
    /// A range for each, or without a maximum.
    Ranges(Vec<(u64, Option<u64>)>),
}

impl Sizes {
    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        match self {
            Self::Fixed(sizes) => sizes.len(),
            Self::OneOf(shapes) => shapes.first().map_or(0, Vec::len),
            Self::Ranges(ranges) => ranges.len(),
        }
    }

    /// The minimum valid size of a dimension that is at least `count`.
    pub fn holding(&self, axis: usize, count: u64) -> Option<u64> {
        match self {
            Self::Fixed(sizes) => match *sizes.get(axis)? {
                0 => Some(count),
                size => (size >= count).then_some(size),
            },
            Self::OneOf(shapes) => {
                shapes.iter().filter_map(|shape| shape.get(axis)).copied().filter(|&size| size >= count).min()
            }
            Self::Ranges(ranges) => {
                let &(least, most) = ranges.get(axis)?;
                most.is_none_or(|most| count <= most).then_some(count.max(least))
            }
        }
    }

    /// The maximum size of a dimension, if there is one.
    pub fn most(&self, axis: usize) -> Option<u64> {
        match self {
            Self::Fixed(sizes) => sizes.get(axis).copied().filter(|&size| size > 0),
            Self::OneOf(shapes) => shapes.iter().filter_map(|shape| shape.get(axis)).copied().max(),
            Self::Ranges(ranges) => ranges.get(axis)?.1,
        }
    }

    /// Whether these dimensions are valid.
    pub fn allow(&self, shape: &[usize]) -> bool {
        let fits = |sizes: &[u64]| {
            let same = |(&size, &given): (&u64, &usize)| size == 0 || size == given as u64;
            sizes.len() == shape.len() && sizes.iter().zip(shape).all(same)
        };
        match self {
            Self::Fixed(sizes) => fits(sizes),
            Self::OneOf(shapes) => shapes.iter().any(|sizes| fits(sizes)),
            Self::Ranges(ranges) => {
                let inside = |(&(least, most), &given): (&(u64, Option<u64>), &usize)| {
                    let given = given as u64;
                    given >= least && most.is_none_or(|most| given <= most)
                };
                ranges.len() == shape.len() && ranges.iter().zip(shape).all(inside)
            }
        }
    }
}

impl Interface {
    /// The input with this name.
    pub fn input(&self, name: &str) -> Option<&Feature> {
        self.inputs.iter().find(|feature| feature.name == name)
    }

    /// The only image input, with its width, height and channels.
    pub fn image(&self) -> Option<(&Feature, u32, u32, Color)> {
        self.inputs.iter().find_map(|feature| match feature.kind {
            Kind::Image { width, height, color } => Some((feature, width, height, color)),
            _ => None,
        })
    }
}

/// From the declarations of the program.
pub fn of_function(function: &Function) -> Interface {
    let feature = |named: &Named| {
        let tensor = named.ty.tensor()?;
        let sizes = tensor.shape.iter().map(|size| size.unwrap_or(0)).collect();
        let kind = Kind::Array { class: tensor.element.class(), sizes: Sizes::Fixed(sizes) };
        Some(Feature { name: named.name.clone(), kind, is_optional: false })
    };
    let is_state = |named: &&Named| matches!(named.ty, crate::program::types::ValueType::State(_));
    let given = |name: &String| {
        let sizes = Sizes::Fixed(Vec::new());
        Feature { name: name.clone(), kind: Kind::Array { class: Class::Float, sizes }, is_optional: false }
    };
    let operations = function.block.operations.iter().flat_map(|operation| &operation.outputs);
    let declared: BTreeMap<&str, &Named> = operations.map(|named| (named.name.as_str(), named)).collect();
    let output = |name: &String| {
        declared.get(name.as_str()).and_then(|named| feature(named)).unwrap_or_else(|| given(name))
    };
    Interface {
        inputs: function.inputs.iter().filter(|named| !is_state(named)).filter_map(feature).collect(),
        outputs: function.block.outputs.iter().map(output).collect(),
        states: function.inputs.iter().filter(is_state).filter_map(feature).collect(),
        probabilities: None,
    }
}

/// From a package's description, by function.
pub fn of_description(description: &Description, default_function: &str) -> BTreeMap<String, Interface> {
    let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    let all = |features: &[Described]| features.iter().map(described).collect();
    let of_functions = description.functions.iter().map(|function| {
        let interface = Interface {
            inputs: all(&function.input),
            outputs: all(&function.output),
            states: all(&function.state),
            probabilities: named(&function.predicted_probabilities_name),
        };
        (function.name.clone(), interface)
    });
    let mut interfaces: BTreeMap<String, Interface> = of_functions.collect();
    interfaces.entry(default_function.to_owned()).or_insert_with(|| Interface {
        inputs: all(&description.input),
        outputs: all(&description.output),
        states: all(&description.state),
        probabilities: named(&description.predicted_probabilities_name),
    });
    interfaces
}

fn described(feature: &Described) -> Feature {
    let ty = feature.r#type.as_ref();
    let kind = match ty.and_then(|ty| ty.kind.as_ref()) {
        Some(DescribedKind::Image(image)) => Kind::Image {
            width: u32::try_from(image.width).unwrap_or(0),
            height: u32::try_from(image.height).unwrap_or(0),
            color: match image.color_space {
                10 | 40 => Color::Gray,
                30 => Color::Bgr,
                _ => Color::Rgb,
            },
        },
        Some(DescribedKind::Array(array)) => of_array(array),
        Some(DescribedKind::State(state)) => state.array.as_ref().map_or(Kind::Other, of_array),
        _ => Kind::Other,
    };
    Feature { name: feature.name.clone(), kind, is_optional: ty.is_some_and(|ty| ty.is_optional) }
}

fn of_array(array: &ArrayType) -> Kind {
    let whole =
        |sizes: &[i64]| sizes.iter().map(|&size| u64::try_from(size).unwrap_or(0)).collect::<Vec<_>>();
    let class = if array.data_type & 0x2_0000 != 0 { Class::Int } else { Class::Float };
    let sizes = match (&array.enumerated_shapes, &array.shape_range) {
        (Some(shapes), _) => Sizes::OneOf(shapes.shapes.iter().map(|shape| whole(&shape.shape)).collect()),
        (_, Some(range)) => {
            let ranges = range.size_ranges.iter();
            Sizes::Ranges(ranges.map(|range| (range.lower, u64::try_from(range.upper).ok())).collect())
        }
        _ => Sizes::Fixed(whole(&array.shape)),
    };
    Kind::Array { class, sizes }
}

/// From `metadata.json` of a compiled model, by function.
pub fn of_metadata(bytes: &[u8], default_function: &str) -> Result<BTreeMap<String, Interface>, String> {
    let metadata: Value = serde_json::from_slice(bytes).map_err(|error| format!("not JSON: {error}"))?;
    let model = metadata.get(0).unwrap_or(&metadata);
    COMPILED.check(model).map_err(|error| error.message())?;
    let mut interfaces = BTreeMap::new();
    for function in model.get("functions").and_then(Value::as_array).into_iter().flatten() {
        if let Some(name) = function.get("name").and_then(Value::as_str) {
            interfaces.insert(name.to_owned(), of_schemas(function));
        }
    }
    if model.get("inputSchema").is_some() {
        interfaces.entry(default_function.to_owned()).or_insert_with(|| of_schemas(model));
    }
    Ok(interfaces)
}

fn of_schemas(function: &Value) -> Interface {
    let all = |field: &str| {
        let features = function.get(field).and_then(Value::as_array);
        features.into_iter().flatten().filter_map(of_schema).collect()
    };
    Interface {
        inputs: all("inputSchema"),
        outputs: all("outputSchema"),
        states: all("stateSchema"),
        probabilities: None,
    }
}

fn of_schema(schema: &Value) -> Option<Feature> {
    let text = |field: &str| schema.get(field).and_then(Value::as_str);
    // Numbers are strings there: "[1, 3, 224, 224]".
    let parsed = |field: &str| text(field).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let side = |field: &str| text(field).and_then(|text| text.parse().ok()).unwrap_or(0);
    let kind = match text("type")? {
        "Image" => Kind::Image {
            width: side("width"),
            height: side("height"),
            color: match text("colorspace").unwrap_or_default() {
                "Grayscale" | "Grayscale16Half" => Color::Gray,
                "BGR" => Color::Bgr,
                _ => Color::Rgb,
            },
        },
        "MultiArray" | "State" => {
            let class = if text("dataType").is_some_and(|kind| kind.starts_with("Int")) {
                Class::Int
            } else {
                Class::Float
            };
            let fixed = || Sizes::Fixed(parsed("shape").map(|shape| whole(&shape)).unwrap_or_default());
            let one_of = parsed("enumeratedShapes")
                .and_then(|shapes| Some(Sizes::OneOf(shapes.as_array()?.iter().map(whole).collect())));
            let ranges = parsed("shapeRange").and_then(|ranges| {
                let range = |range: &Value| Some((range.get(0)?.as_u64()?, range.get(1)?.as_u64()));
                Some(Sizes::Ranges(ranges.as_array()?.iter().map(range).collect::<Option<_>>()?))
            });
            Kind::Array { class, sizes: one_of.or(ranges).unwrap_or_else(fixed) }
        }
        _ => Kind::Other,
    };
    Some(Feature { name: text("name")?.to_owned(), kind, is_optional: text("isOptional") == Some("1") })
}

fn whole(shape: &Value) -> Vec<u64> {
    shape.as_array().into_iter().flatten().map(|size| size.as_u64().unwrap_or(0)).collect()
}
