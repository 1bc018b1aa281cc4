//! `/account` and `/api-keys`.

use island_protocol::{
    api::{
        AccountView, Page,
        key::{CreateKey, CreatedKey, KeyView, RevokedKey},
        ledger::LedgerEntry,
    },
    ids::ApiKeyId,
};

use crate::{call::Call, client::Client, request::Request};

impl Client {
    /// `GET /account`.
    pub fn account(&self) -> Request<AccountView> {
        Request::data(self, Call::get("read the account", &["account"]))
    }

    /// `GET /account/ledger`: every movement of credits, newest first.
    pub fn ledger(&self, limit: u64, offset: u64) -> Request<Page<LedgerEntry>> {
        let call = Call::get("read the ledger", &["account", "ledger"]).query("limit", Some(limit));
        Request::plain(self, call.query("offset", Some(offset)))
    }

    /// `GET /api-keys`.
    pub fn api_keys(&self) -> Request<Vec<KeyView>> {
        Request::data(self, Call::get("list the API keys", &["api-keys"]))
    }

    /// `POST /api-keys`. The answer to a repeated request lacks the secret, which is shown only once.
    pub fn create_api_key(&self, key: &CreateKey) -> Request<CreatedKey> {
        Request::plain(self, Call::post_once("create the API key", &["api-keys"], key))
    }

    /// `DELETE /api-keys/:id`: it stops working at once.
    pub fn revoke_api_key(&self, id: ApiKeyId) -> Request<RevokedKey> {
        Request::data(self, Call::delete("revoke the API key", &["api-keys", &id.to_string()]))
    }
}
