//! Pages of the items of a response's request, as in OpenAI's API.

use island_protocol_api::{problem::Code, responses::InputItems};
use serde_json::Value;

use crate::{ApiError, http::query::Query};

/// Maximum items of a page, and items of a page whose size a client leaves open.
const MAX_PAGE: u64 = 100;
const PAGE: u64 = 20;

/// The page that a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Page {
    limit: usize,
    oldest_first: bool,
    /// The id of the last item of the page before.
    after: Option<String>,
}

impl Page {
    pub(super) fn read(query: &Query) -> Result<Self, ApiError> {
        let limit = usize::try_from(query.limit(MAX_PAGE, PAGE)?).unwrap_or(usize::MAX);
        let after = query.get("after").map(str::to_owned);
        Ok(Self { limit, oldest_first: query.is_oldest_first()?, after })
    }

    /// Takes the page from all items, which are in the order of the request.
    pub(super) fn of(self, mut items: Vec<Value>) -> Result<InputItems, ApiError> {
        if !self.oldest_first {
            items.reverse();
        }
        if let Some(after) = &self.after {
            let last = items.iter().position(|item| item["id"] == after.as_str()).ok_or_else(|| {
                let message = "there is no item with this id in the request of the response";
                ApiError::field(Code::ValidationError, "after", message)
            })?;
            items.drain(..=last);
        }
        let has_more = items.len() > self.limit;
        items.truncate(self.limit);
        let id =
            |item: Option<&Value>| item.and_then(|item| item["id"].as_str()).unwrap_or_default().to_owned();
        Ok(InputItems {
            object: "list".to_owned(),
            first_id: id(items.first()),
            last_id: id(items.last()),
            data: items,
            has_more,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn items(count: usize) -> Vec<Value> {
        (0..count).map(|n| json!({"id": format!("in_{n}")})).collect()
    }

    #[test]
    fn an_id_of_no_item_is_refused() {
        for (count, after) in [(3, "in_3"), (3, ""), (0, "in_0")] {
            let page = Page { limit: 1, oldest_first: false, after: Some(after.to_owned()) };
            let refused = page.of(items(count)).expect_err("there is no such item");
            assert_eq!(refused.code(), Code::ValidationError, "{after} of {count}");
        }
    }

    #[test]
    fn a_page_without_items_has_no_ids() {
        let page = Page { limit: 1, oldest_first: true, after: Some("in_1".to_owned()) };
        let end = page.of(items(2)).expect("a page");
        assert_eq!(
            (end.data.len(), end.first_id.as_str(), end.last_id.as_str(), end.has_more),
            (0, "", "", false)
        );
    }

    proptest! {
        #[test]
        fn pages_have_every_item_once_in_order(count in 0_usize..30, limit in 1_usize..12, oldest_first: bool) {
            let (mut read, mut after) = (Vec::new(), None);
            loop {
                let page = Page { limit, oldest_first, after }.of(items(count)).expect("a page");
                prop_assert!(page.data.len() <= limit);
                prop_assert_eq!(page.data.first().map_or(json!(""), |item| item["id"].clone()), page.first_id);
                read.extend(page.data);
                if !page.has_more {
                    break;
                }
                after = Some(page.last_id);
            }
            let mut expected = items(count);
            if !oldest_first {
                expected.reverse();
            }
            prop_assert_eq!(read, expected);
        }
    }
}
