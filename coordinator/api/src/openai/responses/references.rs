//! References to items of stored responses, which clients send instead of the items.

use std::collections::{BTreeMap, btree_map::Entry};

use island_protocol_api::{
    problem::Code,
    responses::{PREFIX, ResponseRequest},
};
use serde_json::Value;

use super::stored;
use crate::{Api, ApiError, http::auth::Caller};

/// Maximum number of stored responses to whose items a request may refer: each is read from the database.
const MAX_RESPONSES: usize = 64;

/// The request with the items themselves.
pub(super) async fn resolved(
    api: &Api,
    caller: &Caller,
    mut request: ResponseRequest,
) -> Result<ResponseRequest, ApiError> {
    let mut input = std::mem::take(&mut request.input);
    if let Value::Array(items) = &mut input {
        let mut known = BTreeMap::new();
        for (index, item) in items.iter_mut().enumerate() {
            let Some(id) = reference(item).map(str::to_owned) else { continue };
            let invalid =
                |why: &str| ApiError::field(Code::ValidationError, format!("input.{index}.id"), why);
            let unknown = || invalid("there is no such item in a stored response; it may have been deleted");
            let is_full = known.len() == MAX_RESPONSES;
            let of_response: &Vec<Value> = match known.entry(response_of(&id)) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(_) if is_full => {
                    let why = format!("a request may refer to items of {MAX_RESPONSES} stored responses");
                    return Err(invalid(&why));
                }
                Entry::Vacant(entry) => {
                    let read = stored::items(api, caller, entry.key()).await;
                    let read =
                        read.map_err(|error| if error.code() == Code::NotFound { unknown() } else { error })?;
                    entry.insert(read)
                }
            };
            let found = of_response.iter().find(|item| item["id"] == id.as_str());
            *item = found.cloned().ok_or_else(unknown)?;
        }
    }
    Ok(ResponseRequest { input, ..request })
}

/// The id of the item that is meant, if this is a reference.
fn reference(item: &Value) -> Option<&str> {
    let is_reference = match &item["type"] {
        // The type may be left out; a message without its type has a role.
        Value::Null => item.get("role").is_none(),
        kind => kind == "item_reference",
    };
    item["id"].as_str().filter(|_| is_reference)
}

/// The id of the response that has an item: an item's id ends with that of the job.
fn response_of(id: &str) -> String {
    let job = id.rsplit_once('_').map_or(id, |(_, job)| job);
    format!("{PREFIX}{job}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reference_is_known_by_its_type_or_by_having_only_an_id() {
        for (item, expected) in [
            (json!({"type": "item_reference", "id": "msg_0_x"}), Some("msg_0_x")),
            (json!({"type": null, "id": "msg_0_x"}), Some("msg_0_x")),
            (json!({"id": "msg_0_x"}), Some("msg_0_x")),
            (json!({"role": "user", "content": "hi", "id": "msg_0_x"}), None),
            (json!({"type": "message", "role": "user", "content": "hi", "id": "msg_0_x"}), None),
            (json!({"type": "item_reference"}), None),
        ] {
            assert_eq!(reference(&item), expected, "{item}");
        }
        assert_eq!(response_of("fc_12_0199"), format!("{PREFIX}0199"));
    }
}
