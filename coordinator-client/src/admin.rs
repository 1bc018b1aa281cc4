//! `/admin`, for keys of operators.

use island_protocol::{
    ids::{AccountId, ApiKeyId, HostId, InvitationId, JobId, NoticeId, PayoutId},
    time::Timestamp,
};
use island_protocol_api::{
    CancelledJob, Page,
    admin::{
        AdminAccount, AdminHost, AnnotateHost, AuditEntry, CargoState, ChangeCredits, CreateAccount,
        CreateNotice, CreatedAccount, GrantCredits, Queue, Reason, RefundedJob,
    },
    key::{KeyView, RevokedKey},
    network::{NetworkNotices, Notice},
    payout::{CreatePayout, Payout, PayoutDetails},
    quota::{QuotaView, SetQuotas},
    signup::{CreateInvitation, CreatedInvitation, Invitation},
    statement::Statement,
};

use crate::{call::Call, client::Client, request::Request};

/// Restricts the waiting jobs of [`Client::queue`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueFilter {
    /// Only jobs of this account.
    pub account: Option<AccountId>,
    /// Only jobs of this Cargo.
    pub cargo: Option<String>,
    /// Only jobs that wait for this reason, such as `no_slot`.
    pub reason: Option<String>,
}

impl Client {
    /// `GET /admin/queue`: jobs that wait for an Island, in the order in which they are placed.
    pub fn queue(&self, filter: &QueueFilter, limit: u64, offset: u64) -> Request<Queue> {
        let call = Call::get("list the waiting jobs", &["admin", "queue"])
            .query("account", filter.account)
            .query("workload", filter.cargo.as_deref())
            .query("reason", filter.reason.as_deref());
        Request::plain(self, call.query("limit", Some(limit)).query("offset", Some(offset)))
    }

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
    pub fn grant_credits(&self, account: AccountId, grant: &GrantCredits) -> Request<AdminAccount> {
        let path = ["admin", "accounts", &account.to_string(), "grants"];
        Request::data(self, Call::post_once("grant credits", &path, grant))
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

    /// `POST /admin/accounts/:id/close`, which cannot be undone.
    pub fn close_account(&self, account: AccountId, reason: &Reason) -> Request<AdminAccount> {
        let path = ["admin", "accounts", &account.to_string(), "close"];
        Request::data(self, Call::post("close the account", &path, reason).harmless())
    }

    /// `GET /admin/accounts/:id/quotas`; empty without quotas.
    pub fn quotas_of_account(&self, account: AccountId) -> Request<Vec<QuotaView>> {
        let path = ["admin", "accounts", &account.to_string(), "quotas"];
        Request::data(self, Call::get("read the quotas of the account", &path))
    }

    /// `POST /admin/accounts/:id/quotas`, which replaces those before.
    pub fn set_quotas_of_account(&self, account: AccountId, quotas: &SetQuotas) -> Request<Vec<QuotaView>> {
        let path = ["admin", "accounts", &account.to_string(), "quotas"];
        Request::data(self, Call::post("set the quotas of the account", &path, quotas).harmless())
    }

    /// `GET /admin/accounts/:id/statement`, with the span of [`Client::statement`].
    pub fn statement_of_account(
        &self,
        account: AccountId,
        from: Option<Timestamp>,
        until: Option<Timestamp>,
    ) -> Request<Statement> {
        let path = ["admin", "accounts", &account.to_string(), "statement"];
        let call = Call::get("read the statement of the account", &path);
        Request::data(self, call.query("from", from).query("until", until))
    }

    /// `GET /admin/accounts/:id/statement` as CSV, one line per entry.
    pub fn statement_csv_of_account(
        &self,
        account: AccountId,
        from: Option<Timestamp>,
        until: Option<Timestamp>,
    ) -> Request<String> {
        let path = ["admin", "accounts", &account.to_string(), "statement"];
        let call = Call::get("read the statement of the account", &path);
        Request::text(self, call.query("from", from).query("until", until).query("format", Some("csv")))
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

    /// `POST /admin/hosts/:id/annotate`: sets its trust level and note, each unchanged if absent.
    pub fn annotate_host(&self, host: HostId, body: &AnnotateHost) -> Request<AdminHost> {
        let path = ["admin", "hosts", &host.to_string(), "annotate"];
        Request::data(self, Call::post("annotate the Island", &path, body).harmless())
    }

    /// `GET /admin/cargos`: whether new jobs of each Cargo are accepted.
    pub fn cargo_states(&self) -> Request<Vec<CargoState>> {
        Request::data(self, Call::get("list the Cargos", &["admin", "cargos"]))
    }

    /// `POST /admin/cargos/:slug/disable`.
    pub fn disable_cargo(&self, slug: &str, reason: &Reason) -> Request<CargoState> {
        let path = ["admin", "cargos", slug, "disable"];
        Request::data(self, Call::post("disable the Cargo", &path, reason).harmless())
    }

    /// `POST /admin/cargos/:slug/enable`.
    pub fn enable_cargo(&self, slug: &str, reason: &Reason) -> Request<CargoState> {
        let path = ["admin", "cargos", slug, "enable"];
        Request::data(self, Call::post("enable the Cargo", &path, reason).harmless())
    }

    /// `POST /admin/maintenance/start`: the network accepts no new jobs.
    pub fn start_maintenance(&self, reason: &Reason) -> Request<NetworkNotices> {
        let path = ["admin", "maintenance", "start"];
        Request::data(self, Call::post("start maintenance", &path, reason).harmless())
    }

    /// `POST /admin/maintenance/end`.
    pub fn end_maintenance(&self, reason: &Reason) -> Request<NetworkNotices> {
        let path = ["admin", "maintenance", "end"];
        Request::data(self, Call::post("end maintenance", &path, reason).harmless())
    }

    /// `GET /admin/notices`, newest first, also those that have expired.
    pub fn notices(&self) -> Request<Vec<Notice>> {
        Request::data(self, Call::get("list the notices", &["admin", "notices"]))
    }

    /// `POST /admin/notices`: each request shows another notice, so it is not sent again.
    pub fn create_notice(&self, notice: &CreateNotice) -> Request<Notice> {
        Request::data(self, Call::post("create the notice", &["admin", "notices"], notice))
    }

    /// `DELETE /admin/notices/:id`.
    pub fn remove_notice(&self, notice: NoticeId) -> Request<Notice> {
        Request::data(self, Call::delete("remove the notice", &["admin", "notices", &notice.to_string()]))
    }

    /// `GET /admin/invitations`, newest first.
    pub fn invitations(&self, limit: u64, offset: u64) -> Request<Page<Invitation>> {
        let call = Call::get("list the invitations", &["admin", "invitations"]);
        Request::plain(self, call.query("limit", Some(limit)).query("offset", Some(offset)))
    }

    /// `POST /admin/invitations`. The answer to a repeated request lacks the code, which is shown only once.
    pub fn create_invitation(&self, invitation: &CreateInvitation) -> Request<CreatedInvitation> {
        let path = ["admin", "invitations"];
        Request::plain(self, Call::post_once("create the invitation", &path, invitation))
    }

    /// `POST /admin/invitations/:id/revoke`: no further account can be created with it.
    pub fn revoke_invitation(&self, invitation: InvitationId, reason: &Reason) -> Request<Invitation> {
        let path = ["admin", "invitations", &invitation.to_string(), "revoke"];
        Request::data(self, Call::post("revoke the invitation", &path, reason).harmless())
    }

    /// `GET /admin/payouts`, newest first.
    pub fn payouts(&self, limit: u64, offset: u64) -> Request<Page<Payout>> {
        let call = Call::get("list the payouts", &["admin", "payouts"]);
        Request::plain(self, call.query("limit", Some(limit)).query("offset", Some(offset)))
    }

    /// `POST /admin/payouts`: takes earnings from their accounts, to be paid outside the network.
    pub fn create_payout(&self, payout: &CreatePayout) -> Request<PayoutDetails> {
        Request::data(self, Call::post_once("create the payout", &["admin", "payouts"], payout))
    }

    /// `GET /admin/payouts/:id`: the payout with its payments.
    pub fn payout(&self, payout: PayoutId) -> Request<PayoutDetails> {
        let path = ["admin", "payouts", &payout.to_string()];
        Request::data(self, Call::get("read the payout", &path))
    }

    /// `GET /admin/payouts/:id` as CSV, one line per payment.
    pub fn payout_csv(&self, payout: PayoutId) -> Request<String> {
        let path = ["admin", "payouts", &payout.to_string()];
        Request::text(self, Call::get("read the payout", &path).query("format", Some("csv")))
    }

    /// `POST /admin/payouts/:id/confirm`: its payments were made. Is refused from the second time on, so it is not sent
    /// again.
    pub fn confirm_payout(&self, payout: PayoutId, reason: &Reason) -> Request<Payout> {
        let path = ["admin", "payouts", &payout.to_string(), "confirm"];
        Request::data(self, Call::post("confirm the payout", &path, reason))
    }

    /// `POST /admin/payouts/:id/cancel`: returns the earnings to their accounts. Is refused from the second time on, so it
    /// is not sent again.
    pub fn cancel_payout(&self, payout: PayoutId, reason: &Reason) -> Request<Payout> {
        let path = ["admin", "payouts", &payout.to_string(), "cancel"];
        Request::data(self, Call::post("cancel the payout", &path, reason))
    }

    /// `POST /admin/jobs/:id/cancel`: a job of any account. Repeating it changes nothing.
    pub fn cancel_job_of_account(&self, job: JobId, reason: &Reason) -> Request<CancelledJob> {
        let path = ["admin", "jobs", &job.to_string(), "cancel"];
        Request::data(self, Call::post("cancel the job", &path, reason).harmless())
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
