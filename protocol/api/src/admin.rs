//! `/admin`: what operators of a network read and do.

use std::collections::BTreeMap;

use island_protocol::{
    credits::MicroCredits,
    ids::{AccountId, ApiKeyId, HostId, JobId, Slug},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::PageMeta;

/// An account, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct AdminAccount {
    /// Id of the account.
    pub id: AccountId,
    /// E-mail address.
    pub email: String,
    /// Whether its keys may do what operators do.
    pub operator: bool,
    /// Credits that it may spend.
    pub credits: MicroCredits,
    /// Credits that its open jobs hold.
    pub held: MicroCredits,
    /// Present while its keys are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<Suspension>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Present once it is closed for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
}

/// Since when and why an account or an Island is suspended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Suspension {
    /// Time of the suspension.
    pub at: Timestamp,
    /// The reason, which a suspended account is shown.
    pub reason: String,
}

/// An Island, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct AdminHost {
    /// Id of the Island.
    pub id: HostId,
    /// Its owner's account.
    pub account: AccountId,
    /// Name its owner gave it.
    pub name: String,
    /// Version of its agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// Version of the fabric's messages that it sends, while it is online at the coordinator of this answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric_version: Option<u32>,
    /// Why the coordinator of this answer refuses it, if they have no version of the messages in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incompatible: Option<String>,
    /// Region that it reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// `online`, `draining`, `paused`, `suspended` or `offline`, as the coordinator of this answer sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Present while it gets no new jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<Suspension>,
    /// How far operators trust it.
    #[serde(default)]
    pub trust: Trust,
    /// What operators noted about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Time of enrollment.
    pub created_at: Timestamp,
    /// Time of its last registration.
    pub last_seen_at: Option<Timestamp>,
}

/// How far operators trust an Island.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[derive(strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Trust {
    /// It gets jobs that no other Island can take now.
    Low,
    /// It gets jobs like all others.
    #[default]
    Normal,
    /// It also gets jobs of requests that want only such Islands.
    High,
}

impl Trust {
    /// Returns the name in JSON; [`str::parse`] is the inverse.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// `POST /admin/hosts/:id/annotate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AnnotateHost {
    /// The trust level from now on; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<Trust>,
    /// What other operators should know; unchanged if absent, removed if empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(length(max = 2000)))]
    pub note: Option<String>,
    /// Why, for the audit log.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1, max = 500)))]
    pub reason: String,
}

/// Whether a Cargo is enabled, in `GET /admin/cargos`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CargoState {
    /// The Cargo.
    pub workload_slug: Slug,
    /// Whether new jobs of it are accepted.
    pub is_enabled: bool,
    /// Present if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Suspension>,
}

/// `POST /admin/notices`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateNotice {
    /// What consumers and owners read.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1, max = 1000)))]
    pub text: String,
    /// A time in the future, after which it is no longer shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// The answer to `POST /admin/jobs/:id/refund`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct RefundedJob {
    /// The job.
    pub id: JobId,
    /// The account that paid for it.
    pub account: AccountId,
    /// What it was charged, and has been returned.
    pub amount: MicroCredits,
}

/// `POST /admin/accounts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateAccount {
    /// E-mail address that no other account has.
    #[cfg_attr(
        feature = "openapi",
        schemars(length(max = 254), regex(pattern = r"^[^@\s\x00-\x1f]+@[^@\s\x00-\x1f]+$"))
    )]
    pub email: String,
    /// Credits that it begins with; those of the setting `accounts.signup_credits` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schemars(extend("minimum" = 0, "maximum" = 1_000_000_000)))]
    pub credits: Option<MicroCredits>,
    /// Whether its keys may do what operators do.
    #[serde(default)]
    pub operator: bool,
}

/// The answer to `POST /admin/accounts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct CreatedAccount {
    /// The account.
    pub data: AdminAccount,
    /// Its first key; absent if the request was answered before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// `POST /admin/accounts/:id/grants` and `/deductions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ChangeCredits {
    /// Credits, more than 0.
    #[cfg_attr(feature = "openapi", schemars(extend("exclusiveMinimum" = 0, "maximum" = 1_000_000_000)))]
    pub amount: MicroCredits,
    /// Why, for the audit log.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1, max = 500)))]
    pub reason: String,
}

/// The body of `POST /admin/accounts/:id/grants`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GrantCredits {
    /// Credits, more than 0.
    #[cfg_attr(feature = "openapi", schemars(extend("exclusiveMinimum" = 0, "maximum" = 1_000_000_000)))]
    pub amount: MicroCredits,
    /// Why, for the audit log.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1, max = 500)))]
    pub reason: String,
    /// Whether the account has paid for them. Owners who earn other credits may spend these and are not paid out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bought: bool,
}

/// The body of other actions of operators.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// Why, for the audit log; an account that is suspended or whose Cargo is rejected is shown it.
    #[cfg_attr(feature = "openapi", schemars(length(min = 1, max = 500)))]
    pub reason: String,
}

/// What an operator can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[derive(strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum AdminAction {
    /// Create an account.
    CreateAccount,
    /// Create an API key for an account.
    CreateKey,
    /// Give credits.
    Grant,
    /// Take credits away.
    Deduct,
    /// Refuse the keys of an account.
    Suspend,
    /// Accept them again.
    Resume,
    /// Revoke an API key.
    RevokeKey,
    /// Give an Island no new jobs.
    SuspendIsland,
    /// Give it jobs again.
    ResumeIsland,
    /// Return what a job was charged.
    RefundJob,
    /// Cancel a job of any account.
    CancelJob,
    /// Close an account for good.
    CloseAccount,
    /// Set the quotas of an account.
    SetQuotas,
    /// Create an invitation.
    CreateInvitation,
    /// Revoke an invitation.
    RevokeInvitation,
    /// Accept no new jobs in the whole network.
    StartMaintenance,
    /// Accept them again.
    EndMaintenance,
    /// Accept no new jobs of a Cargo.
    DisableCargo,
    /// Accept them again.
    EnableCargo,
    /// Set the note and the trust level of an Island.
    AnnotateIsland,
    /// Show a notice to consumers and owners.
    CreateNotice,
    /// Remove a notice.
    RemoveNotice,
    /// Export earnings for payment.
    CreatePayout,
    /// Confirm that they were paid.
    ConfirmPayout,
    /// Return them to their accounts.
    CancelPayout,
    /// Serve a Cargo that an account submitted.
    ApproveCargo,
    /// Refuse to serve it, or to serve it any longer.
    RejectCargo,
    /// Pause an Island, by its owner's account.
    OrderPause,
    /// Give an Island no new jobs, by its owner's account.
    OrderDrain,
    /// End such an order.
    OrderResume,
}

impl AdminAction {
    /// Returns the name in JSON; [`str::parse`] is the inverse.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// An entry of `GET /admin/audit-log`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct AuditEntry {
    /// Id of the entry.
    pub id: String,
    /// Time of the action.
    pub created_at: Timestamp,
    /// The account that did it; absent for a command on the coordinator's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<AccountId>,
    /// The action.
    // A name, because a newer coordinator may have written one that is not an `AdminAction` here.
    #[cfg_attr(feature = "openapi", schemars(with = "AdminAction"))]
    pub action: String,
    /// The account that it was about; the operator's own if it was about the whole network.
    pub account: AccountId,
    /// The API key that it was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<ApiKeyId>,
    /// The Island that it was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostId>,
    /// The job that it was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// What else it was about: a Cargo, or the id of an invitation, a notice or a payout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Credits that were given or taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<MicroCredits>,
    /// Why; empty for commands without a reason.
    pub reason: String,
}

/// Answer to `GET /admin/queue`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Queue {
    /// A page of the jobs that wait, in the order in which they are placed.
    pub data: Vec<WaitingJob>,
    /// Position in the list.
    pub meta: PageMeta,
    /// Number of waiting jobs for each reason, of those that the coordinator of this answer executes. A job may have several; `no_island`: no Island
    /// is online.
    pub reasons: BTreeMap<String, u64>,
    /// Number of waiting jobs of each Cargo, of the requested account or of all.
    pub cargos: BTreeMap<Slug, u64>,
}

/// A job that waits for an Island.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct WaitingJob {
    /// The job.
    pub id: JobId,
    /// The account that submitted it.
    pub account: AccountId,
    /// Its Cargo.
    pub workload_slug: Slug,
    /// 0 to 100; jobs with a higher priority are placed first.
    pub priority: u8,
    /// Time of acceptance.
    pub created_at: Timestamp,
    /// Number of Islands for each reason; absent if another coordinator executes the job, or no Island was tried yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<BTreeMap<String, u64>>,
    /// The same in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_reason: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_log_may_have_an_action_that_is_unknown() {
        let text = r#"{"id": "a", "created_at": "2026-01-01T00:00:00.000Z", "action": "move_island",
            "account": "00000000-0000-7000-8000-000000000001", "reason": "why"}"#;
        let entry: AuditEntry = serde_json::from_str(text).expect("an entry");
        assert_eq!((entry.action.as_str(), entry.actor, entry.amount), ("move_island", None, None));
    }
}
