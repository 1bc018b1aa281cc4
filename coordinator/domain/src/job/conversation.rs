//! Identifies conversations, so that the next job of one can go to the Island that holds its beginning.
//!
//! Each beginning of a conversation has an identity: a hash of the account, the Cargo and the messages up to there. A job stores
//! that of all its messages. The next job of the conversation has those messages at its beginning, followed by the reply, which need
//! not be known. No other account can have the same identity.

use island_protocol::ids::{AccountId, Slug};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Maximum number of beginnings that are looked for: a client that continues a conversation adds a few messages, an agent one for each call of a function.
const MAX_BEGINNINGS: usize = 64;

/// The identities of a conversation's last beginnings, the whole one first. Empty without messages.
pub fn beginnings(account: AccountId, cargo: &Slug, messages: &[Value]) -> Vec<String> {
    let mut hash = Sha256::new_with_prefix(account.to_string());
    hash.update(cargo.as_str());
    let all = messages.iter().map(|message| {
        let text = message.to_string();
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
        island_protocol::digest::Digest::from_bytes(hash.clone().finalize().into()).hex()
    });
    let mut all: Vec<String> = all.collect();
    all.reverse();
    all.truncate(MAX_BEGINNINGS);
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn of(account: u128, cargo: &str, texts: &[&str]) -> Vec<String> {
        let messages: Vec<Value> =
            texts.iter().map(|text| json!({"role": "user", "content": text})).collect();
        beginnings(AccountId(Uuid::from_u128(account)), &cargo.parse().expect("a slug"), &messages)
    }

    #[test]
    fn the_next_turn_has_the_last_one_as_a_beginning() {
        let first = of(1, "a", &["x"]);
        let second = of(1, "a", &["x", "reply", "y"]);
        assert_eq!((first.len(), second.len()), (1, 3));
        assert!(second.contains(&first[0]) && second[0] != first[0]);
        let third = of(1, "a", &["x", "reply", "y", "reply", "z"]);
        assert!(third.contains(&second[0]));
    }

    #[test]
    fn a_turn_may_add_the_results_of_many_calls() {
        let first = of(1, "a", &["x"]);
        let mut texts = vec!["x"];
        texts.extend(["result"; 40]);
        let second = of(1, "a", &texts);
        assert!(second.contains(&first[0]));
        texts.extend(["result"; 40]);
        assert_eq!(of(1, "a", &texts).len(), MAX_BEGINNINGS);
    }

    #[test]
    fn other_accounts_cargos_and_texts_have_other_identities() {
        let one = of(1, "a", &["x", "y"]);
        for other in
            [of(2, "a", &["x", "y"]), of(1, "b", &["x", "y"]), of(1, "a", &["xy"]), of(1, "a", &["y", "x"])]
        {
            assert!(other.iter().all(|identity| !one.contains(identity)));
        }
        assert_eq!(of(1, "a", &[]), Vec::<String>::new());
        assert_eq!(of(1, "a", &["m"; 100]).len(), MAX_BEGINNINGS);
    }
}
