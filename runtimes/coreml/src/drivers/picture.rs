//! Images to the inputs of models.

use image::{RgbImage, imageops};
use island_runtimes_kit::{
    error::{EngineError, invalid_model},
    keys::unsupported,
    media::resize::{Filter, resize},
};
use ndarray::{ArrayD, IxDyn};
use serde_json::Value;

use super::{Parts, check_unread};
use crate::{
    model::{Model, Tensor},
    package::interface::{Color, Kind, Sizes},
    program::types::Class,
};

/// Settings of the library that published the network. They are not read: a model defines its input, and `[engine]` the rest.
const UNREAD: &[&str] = &["preprocessor_config.json", "config.json"];

/// How an image of another aspect ratio is fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// Crops the sides, as Apple's pipelines do.
    Crop,
    /// Stretches it.
    Fill,
}

/// The image input of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageInput {
    name: String,
    width: u32,
    height: u32,
    color: Color,
    fit: Fit,
    /// Scale and bias of each channel, for models that take arrays and have neither.
    scale: [f32; 3],
    shift: [f32; 3],
}

impl ImageInput {
    /// The image input of a model; `usual` is the default fit.
    pub fn of(parts: &Parts, usual: Fit) -> Result<Self, EngineError> {
        check_unread(parts.repository.names(), UNREAD, "fit, color, image_mean, image_std and labels")?;
        let fit = match parts.text("fit") {
            None => usual,
            Some("crop") => Fit::Crop,
            Some("fill") => Fit::Fill,
            Some(other) => {
                return Err(unsupported("[engine]", "fit", &other.into()));
            }
        };
        let interface = parts.model.interface();
        if let Some((feature, width, height, color)) = interface.image() {
            let image_input = Self {
                name: feature.name.clone(),
                width,
                height,
                color,
                fit,
                scale: [1.0; 3],
                shift: [0.0; 3],
            };
            return image_input.checked(parts.model.as_ref());
        }
        let plane = interface.inputs.iter().find_map(|feature| match &feature.kind {
            Kind::Array { class: Class::Float, sizes } if sizes.rank() == 4 => Some((feature, sizes)),
            _ => None,
        });
        let none = || invalid_model(format!("{} takes no image", parts.model.name()));
        let (feature, sizes) = plane.ok_or_else(none)?;
        let side = |axis: usize| -> Option<u32> {
            let side = match sizes {
                Sizes::OneOf(shapes) => shapes.first().and_then(|shape| shape.get(axis)).copied(),
                _ => sizes.most(axis),
            };
            u32::try_from(side?).ok()
        };
        let (Some(channels), Some(height), Some(width)) = (side(1), side(2), side(3)) else {
            return Err(none());
        };
        let color = match (channels, parts.text("color")) {
            (1, _) => Color::Gray,
            (3, Some("bgr")) => Color::Bgr,
            (3, _) => Color::Rgb,
            _ => return Err(none()),
        };
        let mean = three(parts.settings.get("image_mean"), 0.0);
        let spread = three(parts.settings.get("image_std"), 1.0);
        let factor = parts.number("rescale_factor").unwrap_or(1.0 / 255.0);
        let image_input = Self {
            name: feature.name.clone(),
            width,
            height,
            color,
            fit,
            scale: spread.map(|spread| factor / spread),
            shift: [0, 1, 2].map(|channel| -mean[channel] / spread[channel]),
        };
        image_input.checked(parts.model.as_ref())
    }

    fn checked(self, model: &dyn Model) -> Result<Self, EngineError> {
        if self.width == 0 || self.height == 0 || self.width > 8192 || self.height > 8192 {
            return Err(invalid_model(format!(
                "{} takes images of {} × {} pixels",
                model.name(),
                self.width,
                self.height
            )));
        }
        Ok(self)
    }

    /// Converts an image to the model's input, with the input's name.
    pub fn convert(&self, picture: &RgbImage) -> (String, Tensor) {
        let (width, height) = (self.width as usize, self.height as usize);
        let fitted = self.fitted(picture);
        let pixels = fitted.as_raw();
        let plane = |channel: usize| {
            let (scale, shift) = (self.scale[channel], self.shift[channel]);
            pixels.iter().skip(channel).step_by(3).map(move |&level| f32::from(level) * scale + shift)
        };
        let (channels, values): (usize, Vec<f32>) = match self.color {
            Color::Rgb => (3, plane(0).chain(plane(1)).chain(plane(2)).collect()),
            Color::Bgr => (3, plane(2).chain(plane(1)).chain(plane(0)).collect()),
            Color::Gray => {
                let (scale, shift) = (self.scale[0], self.shift[0]);
                (1, fitted.pixels().map(|pixel| f32::from(luma(pixel.0)) * scale + shift).collect())
            }
        };
        let shape = IxDyn(&[1, channels, height, width]);
        let array = ArrayD::from_shape_vec(shape.clone(), values).unwrap_or_else(|_| ArrayD::zeros(shape));
        (self.name.clone(), Tensor::Floats(array))
    }

    fn fitted(&self, picture: &RgbImage) -> RgbImage {
        if picture.dimensions() == (self.width, self.height) {
            return picture.clone();
        }
        if self.fit == Fit::Fill {
            return resize(picture, self.width, self.height, Filter::Bilinear);
        }
        let (wide, high) = (u64::from(picture.width()), u64::from(picture.height()));
        let (width, height) = (u64::from(self.width), u64::from(self.height));
        let (crop_width, crop_height) = if wide * height > high * width {
            ((high * width / height).max(1), high)
        } else {
            (wide, (wide * height / width).max(1))
        };
        let (left, top) = ((wide - crop_width) / 2, (high - crop_height) / 2);
        let middle =
            imageops::crop_imm(picture, left as u32, top as u32, crop_width as u32, crop_height as u32)
                .to_image();
        resize(&middle, self.width, self.height, Filter::Bilinear)
    }
}

fn three(value: Option<&Value>, usual: f32) -> [f32; 3] {
    let of = |channel: usize| match value {
        Some(Value::Array(all)) => all.get(channel).and_then(Value::as_f64),
        Some(number) => number.as_f64(),
        None => None,
    };
    [0, 1, 2].map(|channel| of(channel).map_or(usual, |number| number as f32))
}

/// The brightness of a pixel as Pillow computes it, by the weights of Rec. 601; the image library's own are those of Rec. 709.
fn luma([red, green, blue]: [u8; 3]) -> u8 {
    let sum = u32::from(red) * 19_595 + u32::from(green) * 38_470 + u32::from(blue) * 7_471;
    ((sum + 0x8000) >> 16) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brightness_is_that_of_pillow() {
        // `Image.new("RGB", (1, 1), color).convert("L")`
        for (color, expected) in
            [([255, 0, 0], 76), ([0, 255, 0], 150), ([0, 0, 255], 29), ([10, 200, 90], 131), ([255; 3], 255)]
        {
            assert_eq!(luma(color), expected, "{color:?}");
        }
    }
}
