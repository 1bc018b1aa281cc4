//! Which Island serves a request, and which model in place of the one that was named, as headers of the answer.

use axum::{
    http::{HeaderName, HeaderValue},
    response::{IntoResponseParts, ResponseParts},
};
use island_protocol::ids::{AccountId, Slug};

use super::{reply::Reply, request::Chat};
use crate::Api;
use island_coordinator_domain::{
    catalogue::{Cargo, choice},
    fleet::Class,
};

const ISLAND: HeaderName = HeaderName::from_static("island-served");
const SUBSTITUTE: HeaderName = HeaderName::from_static("island-substitute");

/// Cargo that serves a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Served {
    /// `None` if no Island has accepted the job yet, or it is gone.
    island: Option<Island>,
    /// The Cargo, if the request does not name it.
    substitute: Option<Slug>,
}

/// The class of an Island, and why it was chosen: `class=own, reason=conversation, region="eu"`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Island {
    class: Class,
    /// Whether it ran the last job of the same conversation.
    is_holder: bool,
    region: Option<String>,
}

impl Served {
    /// Cargo that serves a reply.
    pub(crate) fn of(api: &Api, account: AccountId, chat: &Chat, cargo: &Cargo, reply: &Reply) -> Self {
        let island = reply.island().and_then(|(host, is_holder)| {
            let (class, region) = api.fleet.class(host, account)?;
            Some(Island { class, is_holder, region })
        });
        let is_named = choice::is_named(&api.catalogue(), &chat.models, cargo);
        Self { island, substitute: (!is_named).then(|| cargo.entry.slug.clone()) }
    }
}

impl Island {
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
        let Self { island, substitute } = self;
        let values = [
            (ISLAND, island.map(|island| island.header())),
            (SUBSTITUTE, substitute.map(|slug| slug.to_string())),
        ];
        for (name, value) in values {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
                parts.headers_mut().insert(name, value);
            }
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
            |region: &str| Island { class: Class::Own, is_holder: true, region: Some(region.to_owned()) };
        assert_eq!(served("eu").header(), "class=own, reason=conversation, region=\"eu\"");
        for bad in ["a\"b", "a\r\nb", "é"] {
            assert_eq!(served(bad).header(), "class=own, reason=conversation");
        }
        let other = Island { class: Class::Open, is_holder: false, region: None };
        assert_eq!(other.header(), "class=open, reason=ranking");
    }
}
