//! Which Island serves a request, as a header of the answer.

use axum::{
    http::{HeaderName, HeaderValue},
    response::{IntoResponseParts, ResponseParts},
};
use island_protocol::ids::AccountId;

use super::reply::Reply;
use crate::{api::Api, fleet::Class};

const HEADER: HeaderName = HeaderName::from_static("island-served");

/// The class of an Island, and why it was chosen: `class=own, reason=conversation, region="eu"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::api) struct Served {
    class: Class,
    /// Whether it ran the last job of the same conversation.
    is_holder: bool,
    region: Option<String>,
}

impl Served {
    /// The Island that runs a reply; `None` if none has accepted it yet, or it is gone.
    pub(in crate::api) fn of(api: &Api, account: AccountId, reply: &Reply) -> Option<Self> {
        let (host, is_holder) = reply.island()?;
        let (class, region) = api.execution.context().fleet.class(host, account)?;
        Some(Self { class, is_holder, region })
    }

    fn header(&self) -> String {
        let class: &'static str = self.class.into();
        let reason = if self.is_holder { "conversation" } else { "ranking" };
        // Owners name regions.
        let plain = |name: &&String| {
            name.bytes().all(|byte| (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\')
        };
        let region = self.region.as_ref().filter(plain).map(|region| format!(", region=\"{region}\""));
        format!("class={class}, reason={reason}{}", region.unwrap_or_default())
    }
}

impl IntoResponseParts for Served {
    type Error = std::convert::Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Self::Error> {
        if let Ok(value) = HeaderValue::from_str(&self.header()) {
            parts.headers_mut().insert(HEADER, value);
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_that_is_no_header_is_left_out() {
        let served =
            |region: &str| Served { class: Class::Own, is_holder: true, region: Some(region.to_owned()) };
        assert_eq!(served("eu").header(), "class=own, reason=conversation, region=\"eu\"");
        for bad in ["a\"b", "a\r\nb", "é"] {
            assert_eq!(served(bad).header(), "class=own, reason=conversation");
        }
        let other = Served { class: Class::Open, is_holder: false, region: None };
        assert_eq!(other.header(), "class=open, reason=ranking");
    }
}
