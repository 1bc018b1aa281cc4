//! The library's description of inputs and outputs, and its values.
#![expect(unsafe_code, reason = "calls of Objective-C")]

use std::collections::HashMap;

use ndarray::{ArrayD, IxDyn};
use objc2::{rc::Retained, runtime::AnyObject};
use objc2_core_ml::{MLFeatureDescription, MLFeatureType, MLFeatureValue, MLModelDescription};
use objc2_foundation::{NSNumber, NSString};

use super::{array, numbers::Element, picture, pixels::Format};
use crate::{
    model::Tensor,
    package::interface::{Color, Feature, Kind},
};

/// The form of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// An array of this element type.
    Array(Element),
    /// An image; its planes are in the order of the color layout.
    Picture(Format, Color),
}

/// The library's form of an input that the model's files describe.
pub(super) fn wanted(feature: &Feature, described: &MLFeatureDescription) -> Result<Wanted, String> {
    // SAFETY: these only read properties of the description.
    let (array, picture) = unsafe { (described.multiArrayConstraint(), described.imageConstraint()) };
    let unknown = |what: &str, code: String| {
        format!("the {what} of its input {} have the unknown type {code}", feature.name)
    };
    match (&feature.kind, array, picture) {
        (Kind::Array { .. }, Some(array), _) => {
            // SAFETY: it only reads a property of the constraint.
            let code = unsafe { array.dataType() }.0;
            Element::of_code(code).map(Wanted::Array).ok_or_else(|| unknown("numbers", format!("{code:#x}")))
        }
        (&Kind::Image { color, .. }, _, Some(picture)) => {
            // SAFETY: it only reads a property of the constraint.
            let code = unsafe { picture.pixelFormatType() };
            let format = Format::of_code(code).ok_or_else(|| unknown("pixels", format!("{code:#x}")))?;
            Ok(Wanted::Picture(format, color))
        }
        // Such as an image without `metadata.json`: drivers would not know that it is one.
        _ => Err(format!("its input {} has another type in Core ML than in its files", feature.name)),
    }
}

/// A tensor as the value of an input.
pub(super) fn value(tensor: &Tensor, wanted: Wanted) -> Result<Retained<MLFeatureValue>, String> {
    match wanted {
        Wanted::Array(element) => {
            let array = array::of_tensor(tensor, element)?;
            // SAFETY: the value retains the array.
            Ok(unsafe { MLFeatureValue::featureValueWithMultiArray(&array) })
        }
        Wanted::Picture(format, color) => {
            let planes: ArrayD<f32> = tensor.clone().into_floats();
            let buffer = picture::of_planes(&planes, color, format)?;
            // SAFETY: the value retains the buffer.
            Ok(unsafe { MLFeatureValue::featureValueWithPixelBuffer(&buffer) })
        }
    }
}

/// The tensor of an output's value; `None` for the label of a classifier, which follows from its probabilities.
pub(super) fn tensor(
    value: &MLFeatureValue,
    feature: &Feature,
    labels: Option<&[String]>,
) -> Result<Option<Tensor>, String> {
    let nothing = || "Core ML returned no value".to_owned();
    // SAFETY: it only reads the type of the value.
    match unsafe { value.r#type() } {
        MLFeatureType::MultiArray => {
            // SAFETY: the value is an array, as checked above.
            let array = unsafe { value.multiArrayValue() }.ok_or_else(nothing)?;
            array::to_tensor(&array).map(Some)
        }
        MLFeatureType::Image => {
            let color = if let Kind::Image { color, .. } = feature.kind { color } else { Color::Rgb };
            // SAFETY: the value is an image, as checked above.
            let buffer = unsafe { value.imageBufferValue() }.ok_or_else(nothing)?;
            picture::to_planes(&buffer, color).map(|planes| Some(Tensor::Floats(planes)))
        }
        MLFeatureType::Dictionary => shares(value, labels).map(Some),
        MLFeatureType::String | MLFeatureType::Int64 => Ok(None),
        other => Err(format!("its type {} is unknown", other.0)),
    }
}

/// A classifier's probabilities in the order of its labels. Of equal labels, the first has the probability of all.
fn shares(value: &MLFeatureValue, labels: Option<&[String]>) -> Result<Tensor, String> {
    let labels = labels.ok_or("it has probabilities without labels")?;
    // SAFETY: the value is a dictionary, as the caller checked.
    let (keys, numbers) = unsafe { value.dictionaryValue() }.to_vecs();
    let mut shares = HashMap::with_capacity(keys.len());
    for (key, number) in keys.iter().zip(&numbers) {
        shares.insert(label(key)?, number.as_f32());
    }
    let shares = labels.iter().map(|label| shares.remove(label).unwrap_or(0.0)).collect();
    let array =
        ArrayD::from_shape_vec(IxDyn(&[1, labels.len()]), shares).map_err(|error| error.to_string())?;
    Ok(Tensor::Floats(array))
}

/// A classifier's output of probabilities and its labels.
pub(super) fn labels(described: &MLModelDescription) -> Result<Option<(String, Vec<String>)>, String> {
    // SAFETY: these only read properties of the description.
    let (output, labels) = unsafe { (described.predictedProbabilitiesName(), described.classLabels()) };
    let (Some(output), Some(labels)) = (output, labels) else { return Ok(None) };
    let labels = labels.iter().map(|object| label(&object)).collect::<Result<Vec<String>, _>>()?;
    Ok(Some((output.to_string(), labels)))
}

/// A label as text: models have strings or integers.
fn label(object: &AnyObject) -> Result<String, String> {
    if let Some(text) = object.downcast_ref::<NSString>() {
        return Ok(text.to_string());
    }
    let number = object.downcast_ref::<NSNumber>().map(|number| number.stringValue().to_string());
    number.ok_or_else(|| "a label is neither a text nor a number".to_owned())
}
