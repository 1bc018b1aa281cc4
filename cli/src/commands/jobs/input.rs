//! The input of a job: from the command line, a file or standard input, with pictures, sounds and other files beside it.

use std::{io::Read, path::Path};

use anyhow::{Context, Result};
use serde_json::{Map, Value};

use crate::{args::FileField, commands::images, failure::Usage};

/// The input. It must be an object; the image goes into its field `image`, each file into its own, all in base64.
pub(super) fn read(text: Option<&str>, image: Option<&Path>, files: &[FileField]) -> Result<Value> {
    let mut fields = match text {
        Some(text) => parse(&load(text)?)?,
        None => Map::new(),
    };
    let image = image.map(|path| ("image", path));
    for (field, path) in image.into_iter().chain(files.iter().map(|file| (&*file.field, &*file.path))) {
        if fields.contains_key(field) {
            return Err(
                Usage(format!("{field} is given twice: by a file, and in --input or by another")).into()
            );
        }
        fields.insert(field.into(), images::read(path)?.into());
    }
    Ok(Value::Object(fields))
}

fn load(text: &str) -> Result<String> {
    if let Some(path) = text.strip_prefix('@') {
        return std::fs::read_to_string(path).with_context(|| format!("read {path}"));
    }
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut json = String::new();
    std::io::stdin().read_to_string(&mut json).context("read the input from standard input")?;
    Ok(json)
}

fn parse(json: &str) -> Result<Map<String, Value>> {
    match serde_json::from_str(json) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(Usage("--input must be a JSON object, such as '{\"prompt\": \"Hello\"}'".into()).into()),
        Err(error) => Err(Usage(format!("--input is not JSON: {error}")).into()),
    }
}
