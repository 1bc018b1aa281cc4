//! `/account`, `/api-keys` and `/signup`.

use island_protocol::{ids::ApiKeyId, time::Timestamp};
use island_protocol_api::{
    AccountView, Page,
    key::{CreateKey, CreatedKey, KeyView, RevokedKey},
    ledger::LedgerEntry,
    quota::{OwnQuotas, QuotaView, Quotas},
    signup::{FinishLogin, SignUp, SignedUp},
    statement::Statement,
    usage::AccountUsage,
};

use serde::{Deserialize, Serialize};

use crate::{call::Call, client::Client, request::Request};

/// A code that signs a browser in to the console, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignInLink {
    /// The code.
    pub code: String,
    /// Time at which it expires.
    pub expires_at: Timestamp,
}

impl Client {
    /// `GET /account`.
    pub fn account(&self) -> Request<AccountView> {
        Request::data(self, Call::get("read the account", &["account"]))
    }

    /// `POST /console/links`, which is beside the API: a code for [`Client::console_address`].
    pub fn sign_in_link(&self) -> Request<SignInLink> {
        Request::plain(self, Call::post("get a link to the console", &["console", "links"], &()).beside_api())
    }

    /// Where a code signs a browser in.
    pub fn console_address(&self, link: &SignInLink) -> String {
        format!("{}/console/sign-in/link?code={}", self.base_url(), link.code)
    }

    /// `GET /account/ledger`: every movement of credits, newest first.
    pub fn ledger(&self, limit: u64, offset: u64) -> Request<Page<LedgerEntry>> {
        let call = Call::get("read the ledger", &["account", "ledger"]).query("limit", Some(limit));
        Request::plain(self, call.query("offset", Some(offset)))
    }

    /// `GET /account/quotas`: those of the account and of the key, and how much of them is used.
    pub fn quotas(&self) -> Request<OwnQuotas> {
        Request::data(self, Call::get("read the quotas", &["account", "quotas"]))
    }

    /// `GET /account/statement`: what was spent and earned from `from` until before `until`; this month (UTC) by default.
    pub fn statement(&self, from: Option<Timestamp>, until: Option<Timestamp>) -> Request<Statement> {
        let call = Call::get("read the statement", &["account", "statement"]);
        Request::data(self, call.query("from", from).query("until", until))
    }

    /// `GET /account/statement` as CSV, one line per entry.
    pub fn statement_csv(&self, from: Option<Timestamp>, until: Option<Timestamp>) -> Request<String> {
        let call = Call::get("read the statement", &["account", "statement"]);
        Request::text(self, call.query("from", from).query("until", until).query("format", Some("csv")))
    }

    /// `GET /account/usage`: ended jobs by day, Cargo and key, from the day of `from` to that of `until`; the last two weeks by default.
    pub fn usage(&self, from: Option<Timestamp>, until: Option<Timestamp>) -> Request<AccountUsage> {
        let call = Call::get("read the usage", &["account", "usage"]);
        Request::data(self, call.query("from", from).query("until", until))
    }

    /// `GET /account/usage` as CSV, one line per row.
    pub fn usage_csv(&self, from: Option<Timestamp>, until: Option<Timestamp>) -> Request<String> {
        let call = Call::get("read the usage", &["account", "usage"]);
        Request::text(self, call.query("from", from).query("until", until).query("format", Some("csv")))
    }

    /// `POST /signup`: creates an account with the code of an invitation; needs no key. If it is sent again with an
    /// invitation for one account, the answer has another key, until one was used.
    pub fn sign_up(&self, body: &SignUp) -> Request<SignedUp> {
        Request::plain(self, Call::post("sign up", &["signup"], body).harmless())
    }

    /// `POST /login`: exchanges the code of a sign-in for a key, once; needs no key.
    pub fn finish_login(&self, body: &FinishLogin) -> Request<SignedUp> {
        Request::plain(self, Call::post("finish the sign-in", &["login"], body))
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

    /// `GET /api-keys/:id/quotas`; empty without quotas.
    pub fn quotas_of_key(&self, id: ApiKeyId) -> Request<Vec<QuotaView>> {
        let path = ["api-keys", &id.to_string(), "quotas"];
        Request::data(self, Call::get("read the quotas of the API key", &path))
    }

    /// `POST /api-keys/:id/quotas`, which replaces those before.
    pub fn set_quotas_of_key(&self, id: ApiKeyId, quotas: &Quotas) -> Request<Vec<QuotaView>> {
        let path = ["api-keys", &id.to_string(), "quotas"];
        Request::data(self, Call::post("set the quotas of the API key", &path, quotas).harmless())
    }
}
