//! What operators do.

use island_protocol::{
    api::{
        Data, Page,
        admin::{
            AdminAccount, AdminHost, AuditEntry, ChangeCredits, CreateAccount, CreatedAccount, Reason,
            RefundedJob,
        },
        key::{KeyView, RevokedKey, Scope},
    },
    problem::Code,
};
use serde_json::json;

use super::{Routes, uuid};
use crate::{
    api::admin::{accounts, audit_log, credits, hosts, keys, refund},
    openapi::operation::Operation,
};

const TAG: &str = "Operators";

fn on_account(id: &'static str, summary: &'static str, scope: Scope) -> Operation {
    Operation::keyed(TAG, id, summary, scope)
        .segment("id", "The account.", &uuid())
        .fails(&[Code::AccountNotFound])
}

fn change(id: &'static str, summary: &'static str) -> Operation {
    on_account(id, summary, Scope::Write)
        .idempotent()
        .fails(&[Code::InsufficientCredits])
        .takes::<ChangeCredits>(Some(json!({"amount": 25, "reason": "invoice 118"})))
        .answers::<Data<AdminAccount>>(200, "The account after the change")
}

fn suspension(id: &'static str, summary: &'static str) -> Operation {
    on_account(id, summary, Scope::Write)
        .takes::<Reason>(Some(json!({"reason": "unpaid invoice 118"})))
        .answers::<Data<AdminAccount>>(200, "The account after the change")
}

fn on_host(id: &'static str, summary: &'static str) -> Operation {
    Operation::keyed(TAG, id, summary, Scope::Write)
        .segment("id", "The Island.", &uuid())
        .fails(&[Code::HostNotFound])
        .takes::<Reason>(Some(json!({"reason": "returns wrong results"})))
        .answers::<Data<AdminHost>>(200, "The Island after the change")
}

pub(super) fn add(routes: Routes) -> Routes {
    routes
        .get(
            "/admin/accounts",
            accounts::list,
            Operation::keyed(TAG, "listAccounts", "All accounts, oldest first", Scope::Read)
                .paged()
                .query(
                    "email",
                    false,
                    "Only the account with this e-mail address.",
                    &json!({"type": "string"}),
                )
                .answers::<Page<AdminAccount>>(200, "A page of accounts"),
        )
        .post(
            "/admin/accounts",
            accounts::create,
            Operation::keyed(TAG, "createAccount", "Create an account and its first key", Scope::Write)
                .idempotent()
                .takes::<CreateAccount>(Some(json!({"email": "user@example.org", "credits": 100})))
                .answers::<CreatedAccount>(201, "The account, with the secret of its key beside `data`"),
        )
        .post(
            "/admin/accounts/{id}/grants",
            credits::grant,
            change("grantCredits", "Give an account credits"),
        )
        .post(
            "/admin/accounts/{id}/deductions",
            credits::deduct,
            change("deductCredits", "Take credits that an account may spend"),
        )
        .post(
            "/admin/accounts/{id}/suspend",
            accounts::suspend,
            suspension("suspendAccount", "Refuse all keys of an account")
                .about("Open jobs go on. Requests are answered with `account_suspended` and the reason."),
        )
        .post(
            "/admin/accounts/{id}/resume",
            accounts::resume,
            suspension("resumeAccount", "Accept the keys of a suspended account again"),
        )
        .get(
            "/admin/accounts/{id}/api-keys",
            keys::list,
            on_account("listKeysOfAccount", "The keys of an account", Scope::Read)
                .answers::<Data<Vec<KeyView>>>(200, "The keys that are not revoked, oldest first"),
        )
        .post(
            "/admin/api-keys/{id}/revoke",
            keys::revoke,
            Operation::keyed(TAG, "revokeKeyOfAccount", "Revoke a key of any account", Scope::Write)
                .segment("id", "The key.", &uuid())
                .fails(&[Code::ApiKeyNotFound])
                .takes::<Reason>(Some(json!({"reason": "found in a public repository"})))
                .answers::<Data<RevokedKey>>(200, "The key is revoked"),
        )
        .get(
            "/admin/hosts",
            hosts::list,
            Operation::keyed(
                TAG,
                "listHostsOfAccounts",
                "Islands with their accounts, oldest first",
                Scope::Read,
            )
            .paged()
            .query("account", false, "Only those of this account.", &uuid())
            .answers::<Page<AdminHost>>(200, "A page of Islands"),
        )
        .post(
            "/admin/hosts/{id}/suspend",
            hosts::suspend,
            on_host("suspendHost", "Give an Island no new jobs").about("Those that it runs go on."),
        )
        .post("/admin/hosts/{id}/resume", hosts::resume, on_host("resumeHost", "Give an Island jobs again"))
        .post(
            "/admin/jobs/{id}/refund",
            refund::refund,
            Operation::keyed(TAG, "refundJob", "Return what a job was charged", Scope::Write)
                .about("Once, and from the network's credits: the owners who have earned it keep it.")
                .segment("id", "The job.", &uuid())
                .fails(&[Code::JobNotFound, Code::JobNotFinal])
                .takes::<Reason>(Some(json!({"reason": "a wrong model was served"})))
                .answers::<Data<RefundedJob>>(
                    200,
                    "The job, and what was returned, also if that was earlier",
                ),
        )
        .get(
            "/admin/audit-log",
            audit_log::list,
            Operation::keyed(TAG, "listAuditLog", "What operators did, newest first", Scope::Read)
                .paged()
                .query("account", false, "Only what was about this account.", &uuid())
                .answers::<Page<AuditEntry>>(200, "A page of entries"),
        )
}
