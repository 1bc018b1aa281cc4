//! `/admin`, for keys of operators.

use island_protocol::{
    api::{
        Page,
        admin::{
            AdminAccount, AdminHost, AuditEntry, ChangeCredits, CreateAccount, CreatedAccount, Reason,
            RefundedJob,
        },
        key::{KeyView, RevokedKey},
    },
    ids::{AccountId, ApiKeyId, HostId, JobId},
};

use crate::{call::Call, client::Client, request::Request};

impl Client {
    /// `GET /admin/accounts`, oldest first; only the one with this e-mail address, if one is given.
    pub fn accounts(&self, email: Option<&str>, limit: u64, offset: u64) -> Request<Page<AdminAccount>> {
        let call = Call::get("list the accounts", &["admin", "accounts"]).query("email", email);
        Request::plain(self, call.query("limit", Some(limit)).query("offset", Some(offset)))
    }

    /// `POST /admin/accounts`. The answer to a repeated request lacks the secret of the key, which is shown only once.
    pub fn create_account(&self, account: &CreateAccount) -> Request<CreatedAccount> {
        Request::plain(self, Call::post_once("create the account", &["admin", "accounts"], account))
    }

    /// `POST /admin/accounts/:id/grants`.
    pub fn grant_credits(&self, account: AccountId, change: &ChangeCredits) -> Request<AdminAccount> {
        let path = ["admin", "accounts", &account.to_string(), "grants"];
        Request::data(self, Call::post_once("grant credits", &path, change))
    }

    /// `POST /admin/accounts/:id/deductions`.
    pub fn deduct_credits(&self, account: AccountId, change: &ChangeCredits) -> Request<AdminAccount> {
        let path = ["admin", "accounts", &account.to_string(), "deductions"];
        Request::data(self, Call::post_once("deduct credits", &path, change))
    }

    /// `POST /admin/accounts/:id/suspend`.
    pub fn suspend_account(&self, account: AccountId, reason: &Reason) -> Request<AdminAccount> {
        let path = ["admin", "accounts", &account.to_string(), "suspend"];
        Request::data(self, Call::post("suspend the account", &path, reason).harmless())
    }

    /// `POST /admin/accounts/:id/resume`.
    pub fn resume_account(&self, account: AccountId, reason: &Reason) -> Request<AdminAccount> {
        let path = ["admin", "accounts", &account.to_string(), "resume"];
        Request::data(self, Call::post("resume the account", &path, reason).harmless())
    }

    /// `GET /admin/accounts/:id/api-keys`.
    pub fn keys_of_account(&self, account: AccountId) -> Request<Vec<KeyView>> {
        let path = ["admin", "accounts", &account.to_string(), "api-keys"];
        Request::data(self, Call::get("list the keys of the account", &path))
    }

    /// `POST /admin/api-keys/:id/revoke`: it stops working at once.
    pub fn revoke_key_of_account(&self, key: ApiKeyId, reason: &Reason) -> Request<RevokedKey> {
        let path = ["admin", "api-keys", &key.to_string(), "revoke"];
        Request::data(self, Call::post("revoke the API key", &path, reason))
    }

    /// `GET /admin/hosts`, oldest first; only those of this account, if one is given.
    pub fn hosts_of_accounts(
        &self,
        account: Option<AccountId>,
        limit: u64,
        offset: u64,
    ) -> Request<Page<AdminHost>> {
        let call = Call::get("list the Islands", &["admin", "hosts"]).query("account", account);
        Request::plain(self, call.query("limit", Some(limit)).query("offset", Some(offset)))
    }

    /// `POST /admin/hosts/:id/suspend`.
    pub fn suspend_host(&self, host: HostId, reason: &Reason) -> Request<AdminHost> {
        let path = ["admin", "hosts", &host.to_string(), "suspend"];
        Request::data(self, Call::post("suspend the Island", &path, reason).harmless())
    }

    /// `POST /admin/hosts/:id/resume`.
    pub fn resume_host(&self, host: HostId, reason: &Reason) -> Request<AdminHost> {
        let path = ["admin", "hosts", &host.to_string(), "resume"];
        Request::data(self, Call::post("resume the Island", &path, reason).harmless())
    }

    /// `POST /admin/jobs/:id/refund`, which refunds a job once however often it is sent.
    pub fn refund_job(&self, job: JobId, reason: &Reason) -> Request<RefundedJob> {
        let path = ["admin", "jobs", &job.to_string(), "refund"];
        Request::data(self, Call::post("refund the job", &path, reason).harmless())
    }

    /// `GET /admin/audit-log`, newest first; only what was about this account, if one is given.
    pub fn audit_log(
        &self,
        account: Option<AccountId>,
        limit: u64,
        offset: u64,
    ) -> Request<Page<AuditEntry>> {
        let call = Call::get("read the audit log", &["admin", "audit-log"]).query("account", account);
        Request::plain(self, call.query("limit", Some(limit)).query("offset", Some(offset)))
    }
}
