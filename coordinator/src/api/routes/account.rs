//! Credits and API keys.

use island_protocol::{
    api::{
        AccountView, Data, Page, WatchCredentials,
        key::{CreateKey, CreatedKey, KeyView, RevokedKey, Scope},
        ledger::LedgerEntry,
    },
    problem::Code,
};
use serde_json::json;

use super::{Routes, uuid};
use crate::{
    api::{account, fabric, keys, ledger},
    openapi::operation::Operation,
};

pub(super) fn add(routes: Routes) -> Routes {
    routes
        .get(
            "/account",
            account::account,
            Operation::keyed("Account", "getAccount", "Your account", Scope::Read)
                .answers::<Data<AccountView>>(200, "The account"),
        )
        .get(
            "/account/ledger",
            ledger::entries,
            Operation::keyed(
                "Account",
                "listLedger",
                "Every movement of your credits, newest first",
                Scope::Read,
            )
            .paged()
            .query(
                "after",
                false,
                "Last entry of the page before: entries newer than it are left out.",
                &uuid(),
            )
            .answers::<Page<LedgerEntry>>(200, "A page of entries"),
        )
        .get(
            "/api-keys",
            keys::list::list,
            Operation::keyed("Account", "listApiKeys", "List your API keys", Scope::Read)
                .answers::<Data<Vec<KeyView>>>(200, "The keys that are not revoked, oldest first"),
        )
        .post(
            "/api-keys",
            keys::create::create,
            Operation::keyed("Account", "createApiKey", "Create an API key", Scope::Write)
                .about("A key cannot grant more than it has. The secret is in this answer only.")
                .idempotent()
                .takes::<CreateKey>(Some(json!({"name": "laptop", "scopes": ["read"]})))
                .answers::<CreatedKey>(201, "The key, with its secret beside `data`"),
        )
        .delete(
            "/api-keys/{id}",
            keys::revoke::revoke,
            Operation::keyed("Account", "revokeApiKey", "Revoke an API key", Scope::Write)
                .segment("id", "The key.", &uuid())
                .fails(&[Code::ApiKeyNotFound])
                .answers::<Data<RevokedKey>>(200, "The key is revoked"),
        )
        .post(
            "/fabric/credentials",
            fabric::credentials,
            Operation::keyed("Fabric", "watchFabric", "Read access to the message fabric", Scope::Write)
                .answers::<Data<WatchCredentials>>(200, "Short-lived credentials"),
        )
}
