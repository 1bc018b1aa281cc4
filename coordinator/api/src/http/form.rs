//! Bodies of type `multipart/form-data` with files, read as the fields of a JSON body would be.

use std::{convert::Infallible, sync::Arc};

use axum::{
    extract::{FromRequest, Request},
    http::{HeaderMap, header},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::stream;
use island_protocol_api::problem::Code;
use multer::Multipart;
use serde_json::{Map, Value};

use crate::{
    Api, ApiError, MAX_INPUT,
    http::{
        auth::Caller,
        body::{Fields, PREFERENCES, Received, receive_keyed},
    },
};

/// Names of the parts that are files.
const FILES: [&str; 4] = ["file", "image", "image[]", "mask"];
/// End of the name of a field with several values, as OpenAI's clients write it.
const LIST: &str = "[]";
/// Maximum number of parts.
const MAX_PARTS: usize = 64;
/// Maximum bytes of a file: in base64, with the other fields of an input, it is within [`MAX_INPUT`].
const MAX_FILE: usize = (MAX_INPUT - (16 << 10)) / 4 * 3;

/// The caller, and a form of at most [`crate::MAX_BODY`] bytes, which is read after the key was checked.
#[derive(Debug)]
pub(crate) struct Keyed {
    pub caller: Caller,
    /// Files in base64, lists, and the other fields as text.
    pub fields: Fields,
}

impl FromRequest<Arc<Api>> for Keyed {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, ApiError> {
        let preferences = request.headers().get(PREFERENCES).cloned();
        let Received { caller, media_type: boundary, bytes, memory: _memory } =
            receive_keyed(request, api, boundary).await?;
        let fields = Fields::from(read(bytes, boundary).await?);
        Ok(Self { caller, fields: fields.with_header(preferences) })
    }
}

/// What separates the parts of the form.
pub(crate) fn boundary(headers: &HeaderMap) -> Result<String, ApiError> {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    media_type.and_then(|value| multer::parse_boundary(value).ok()).ok_or_else(|| {
        ApiError::new(
            Code::UnsupportedMediaType,
            "send a body of type multipart/form-data with a boundary parameter",
        )
    })
}

/// The fields of a form.
async fn read(bytes: Bytes, boundary: String) -> Result<Map<String, Value>, ApiError> {
    let unreadable = |error: multer::Error| {
        ApiError::new(Code::ValidationError, format!("the body is not a form of several parts: {error}"))
    };
    let body = stream::once(async move { Ok::<Bytes, Infallible>(bytes) });
    let mut form = Multipart::new(body, boundary);
    let (mut fields, mut parts) = (Map::new(), 0);
    while let Some(part) = form.next_field().await.map_err(unreadable)? {
        parts += 1;
        if parts > MAX_PARTS {
            let message = format!("a form may have {MAX_PARTS} parts");
            return Err(ApiError::new(Code::PayloadTooLarge, message));
        }
        let Some(name) = part.name().map(str::to_owned) else {
            return Err(ApiError::new(Code::ValidationError, "a part of the form has no name"));
        };
        let content = part.bytes().await.map_err(unreadable)?;
        add(&mut fields, name, &content)?;
    }
    Ok(fields)
}

/// Adds a part of the form to its fields.
fn add(fields: &mut Map<String, Value>, name: String, content: &[u8]) -> Result<(), ApiError> {
    let is_file = FILES.contains(&name.as_str());
    let value = if is_file { in_base64(&name, content)? } else { text(&name, content)? };
    if name.ends_with(LIST) {
        if let Value::Array(values) = fields.entry(name).or_insert_with(|| Value::Array(Vec::new())) {
            values.push(value);
        }
        return Ok(());
    }
    if fields.contains_key(&name) {
        let message = format!("the form has the field {name} twice");
        return Err(ApiError::field(Code::ValidationError, name, message));
    }
    fields.insert(name, value);
    Ok(())
}

fn in_base64(name: &str, content: &[u8]) -> Result<Value, ApiError> {
    if content.len() > MAX_FILE {
        let message = format!("the file has {} bytes, at most {MAX_FILE} are accepted", content.len());
        return Err(ApiError::field(Code::PayloadTooLarge, name, message));
    }
    Ok(STANDARD.encode(content).into())
}

fn text(name: &str, content: &[u8]) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(content).map_err(|_| {
        ApiError::field(Code::ValidationError, name, format!("{name}: the value is not UTF-8 text"))
    })?;
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn of(body: &str) -> Result<Value, ApiError> {
        let body = body.replace('\n', "\r\n");
        read(Bytes::from(body.into_bytes()), "b".to_owned()).await.map(Value::Object)
    }

    fn part(name: &str, content: &str) -> String {
        format!("--b\nContent-Disposition: form-data; name=\"{name}\"\n\n{content}\n")
    }

    #[tokio::test]
    async fn parts_become_fields() {
        let lists = part("words[]", "a") + &part("words[]", "b");
        let form = part("file", "hi") + &part("model", "schön") + &lists + "--b--\n";
        let expected = json!({"file": "aGk=", "model": "schön", "words[]": ["a", "b"]});
        assert_eq!(of(&form).await.expect("a form"), expected);
        assert_eq!(of("--b--\n").await.expect("an empty form"), json!({}));
    }

    #[tokio::test]
    async fn broken_forms_are_refused() {
        let nameless = "--b\nContent-Disposition: form-data\n\nx\n--b--\n".to_owned();
        let twice = part("model", "a") + &part("model", "b") + "--b--\n";
        let many = part("words[]", "a").repeat(MAX_PARTS + 1) + "--b--\n";
        for form in [String::new(), part("model", "cut off"), nameless, twice, many] {
            assert!(of(&form).await.is_err(), "{form}");
        }
        let error = text("model", b"\xff").expect_err("not UTF-8").body().error;
        assert_eq!(error.param.as_deref(), Some("model"));
        let error = in_base64("mask", &vec![0; MAX_FILE + 1]).expect_err("too large").body().error;
        assert_eq!((error.code.as_str(), error.param.as_deref()), ("payload_too_large", Some("mask")));
    }

    #[test]
    fn only_a_form_with_a_boundary_is_read() {
        let of = |media_type: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, media_type.parse().expect("a value"));
            boundary(&headers)
        };
        assert_eq!(of("multipart/form-data; boundary=x").expect("a boundary"), "x");
        assert!(of("multipart/form-data").is_err() && of("application/json").is_err());
        assert!(boundary(&HeaderMap::new()).is_err());
    }
}
