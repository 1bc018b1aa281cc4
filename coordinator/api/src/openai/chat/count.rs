//! Counts the tokens of a conversation: an Island applies the chat template and the vocabulary of the model, and writes nothing.

use std::sync::Arc;

use island_protocol_api::problem::Code;

use super::{choose, request::Chat};
use crate::{Api, ApiError, http::auth::Caller, native::availability::Allowed, openai::one_job};

/// Input by which a Cargo only counts.
const COUNTS: &str = "count_tokens";

/// The number of tokens of the conversation for the first of its models that an Island can serve.
pub(crate) async fn count(api: &Arc<Api>, caller: Caller, chat: &Chat) -> Result<u64, ApiError> {
    let mut refusal = None;
    let allowed = Allowed::by_preferences(api, caller.account, &chat.preferences);
    let cargos = choose::candidates(api, &allowed, chat)?;
    for cargo in cargos {
        let counted = async {
            if !cargo.takes(COUNTS) {
                let message = format!("the model {} does not count tokens", cargo.entry.slug);
                return Err(ApiError::field(Code::ValidationError, "model", message));
            }
            chat.check(&cargo)?;
            let mut input = chat.input_for(&cargo, 0);
            input.insert(COUNTS.to_owned(), true.into());
            // Agents of earlier versions write a reply: one token is the shortest.
            input.insert("max_tokens".to_owned(), 1.into());
            one_job::run(api, caller, &cargo, input, None, chat.preferences.clone()).await
        };
        match counted.await {
            Ok(answered) => return Ok(answered.usage.prompt_tokens),
            Err(error) if matches!(error.code(), Code::NoIslandAvailable | Code::ValidationError) => {
                refusal.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(refusal.unwrap_or_else(choose::absent))
}
