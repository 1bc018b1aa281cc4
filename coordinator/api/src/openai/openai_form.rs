//! Errors of extractors in the form of OpenAI's API.

use std::sync::Arc;

use axum::{extract::FromRequestParts, http::request::Parts};

use crate::{Api, ApiError};

/// What an extractor reads. If it refuses the request, its error has the `type` that clients of OpenAI's API expect.
#[derive(Debug)]
pub(crate) struct OpenAiForm<T>(pub T);

impl<T> FromRequestParts<Arc<Api>> for OpenAiForm<T>
where
    T: FromRequestParts<Arc<Api>, Rejection = ApiError> + Send,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        T::from_request_parts(parts, api).await.map(Self).map_err(ApiError::in_openai_form)
    }
}
