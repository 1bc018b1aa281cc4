//! Parameters of the query: each name may appear once; unknown names are ignored.

use std::{collections::HashMap, str::FromStr};

use axum::{
    extract::{FromRequestParts, Query as AxumQuery},
    http::request::Parts,
};
use island_protocol_api::{PageMeta, problem::Code};

use crate::ApiError;

/// The parameters of a request.
#[derive(Debug)]
pub(crate) struct Query(HashMap<String, String>);

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let unreadable = || ApiError::new(Code::InvalidRequest, "malformed query");
        let AxumQuery(pairs) = AxumQuery::<Vec<(String, String)>>::from_request_parts(parts, state)
            .await
            .map_err(|_| unreadable())?;
        let mut query = HashMap::new();
        for (name, value) in pairs {
            let shown: String = name.chars().take(64).collect();
            if query.insert(name, value).is_some() {
                let message = format!("{shown:?} appears twice in the query");
                return Err(ApiError::field(Code::InvalidRequest, shown, message));
            }
        }
        Ok(Self(query))
    }
}

impl Query {
    /// One parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// One parameter, read as a `T`: `what` completes "must be" in the error.
    pub(crate) fn parsed<T: FromStr>(&self, name: &str, what: &str) -> Result<Option<T>, ApiError> {
        let bad = |_| ApiError::field(Code::InvalidRequest, name, format!("{name} must be {what}"));
        self.get(name).map(|text| text.parse().map_err(bad)).transpose()
    }

    /// Reads `limit` (1 to 100, default 20) and `offset` (default 0). The total is 0 until the caller sets it.
    pub(crate) fn page(&self) -> Result<PageMeta, ApiError> {
        let limit = self.integer("limit")?.unwrap_or(20);
        if !(1..=100).contains(&limit) {
            return Err(ApiError::field(Code::ValidationError, "limit", "limit must be from 1 to 100"));
        }
        let offset = u64::try_from(self.integer("offset")?.unwrap_or(0))
            .map_err(|_| ApiError::field(Code::InvalidRequest, "offset", "offset must not be negative"))?;
        Ok(PageMeta { total: 0, limit: limit.unsigned_abs(), offset })
    }

    /// Reads `limit`, from 1 to `most`.
    pub(crate) fn limit(&self, most: u64, default: u64) -> Result<u64, ApiError> {
        let Some(limit) = self.integer("limit")? else { return Ok(default) };
        u64::try_from(limit).ok().filter(|limit| (1..=most).contains(limit)).ok_or_else(|| {
            ApiError::field(Code::ValidationError, "limit", format!("limit must be from 1 to {most}"))
        })
    }

    /// Reads `order`, `asc` or `desc`, which is the default.
    pub(crate) fn is_oldest_first(&self) -> Result<bool, ApiError> {
        match self.get("order") {
            None | Some("desc") => Ok(false),
            Some("asc") => Ok(true),
            Some(_) => Err(ApiError::field(Code::ValidationError, "order", "order must be asc or desc")),
        }
    }

    /// Reads an integer and saturates it to 64 bits.
    fn integer(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ApiError::field(Code::InvalidRequest, name, format!("{name} must be an integer")));
        }
        let saturated = if text.starts_with('-') { i64::MIN } else { i64::MAX };
        Ok(Some(text.parse().unwrap_or(saturated)))
    }
}
