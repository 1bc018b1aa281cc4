//! What operators do.

use island_protocol_api::{
    CancelledJob, Data, Page,
    admin::{
        AdminAccount, AdminHost, AnnotateHost, AuditEntry, CargoState, ChangeCredits, CreateAccount,
        CreateNotice, CreatedAccount, GrantCredits, Queue, Reason, RefundedJob,
    },
    key::{KeyView, RevokedKey, Scope},
    network::{NetworkNotices, Notice},
    payout::{CreatePayout, Payout, PayoutDetails},
    problem::Code,
    quota::{QuotaView, SetQuotas},
    signup::{CreateInvitation, CreatedInvitation, Invitation},
};
use serde_json::{Value, json};

use super::{Routes, account, format, islands, slug, uuid};
use crate::{
    http::body::RequestBody,
    native::admin::{
        accounts, audit_log, cancel, cargos, credits, hosts, invitations, keys, maintenance, notices,
        payouts, queue, quotas, refund,
    },
    openapi::operation::Operation,
};
use island_coordinator_domain::placement::reason_names;

const TAG: &str = "Operators";

fn on_account(id: &'static str, summary: &'static str, scope: Scope) -> Operation {
    Operation::keyed(TAG, id, summary, scope)
        .segment("id", "The account.", &uuid())
        .fails(&[Code::AccountNotFound])
}

fn change<T: RequestBody + schemars::JsonSchema>(
    id: &'static str,
    summary: &'static str,
    example: Value,
) -> Operation {
    on_account(id, summary, Scope::Write)
        .idempotent()
        .fails(&[Code::InsufficientCredits])
        .takes::<T>(Some(example))
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

fn on_cargo(id: &'static str, summary: &'static str) -> Operation {
    Operation::keyed(TAG, id, summary, Scope::Write)
        .segment("slug", "The Cargo.", &slug())
        .fails(&[Code::WorkloadNotFound])
        .takes::<Reason>(Some(json!({"reason": "its model was withdrawn"})))
        .answers::<Data<CargoState>>(200, "The Cargo after the change")
}

fn on_network(id: &'static str, summary: &'static str) -> Operation {
    Operation::keyed(TAG, id, summary, Scope::Write)
        .takes::<Reason>(Some(json!({"reason": "the database moves"})))
        .answers::<Data<NetworkNotices>>(200, "The state of the network after the change")
}

fn on_payout(id: &'static str, summary: &'static str, scope: Scope) -> Operation {
    Operation::keyed(TAG, id, summary, scope)
        .segment("id", "The payout.", &uuid())
        .fails(&[Code::PayoutNotFound])
}

fn finish(id: &'static str, summary: &'static str) -> Operation {
    on_payout(id, summary, Scope::Write)
        .fails(&[Code::PayoutAlreadyFinal])
        .takes::<Reason>(Some(json!({"reason": "transfer of 2026-12-01"})))
        .answers::<Data<Payout>>(200, "The payout after the change")
}

pub(super) fn add(routes: Routes) -> Routes {
    let parts = [accounts_and_credits, quotas_and_keys, islands, state, invitations_and_payouts];
    parts.into_iter().fold(routes, |routes, part| part(routes))
}

fn accounts_and_credits(routes: Routes) -> Routes {
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
        .get(
            "/admin/accounts/{id}",
            accounts::get,
            on_account("getAccountById", "An account", Scope::Read)
                .answers::<Data<AdminAccount>>(200, "The account"),
        )
        .post(
            "/admin/accounts/{id}/grants",
            credits::grant,
            change::<GrantCredits>(
                "grantCredits",
                "Give an account credits",
                json!({"amount": 25, "reason": "invoice 118", "bought": true}),
            ),
        )
        .post(
            "/admin/accounts/{id}/deductions",
            credits::deduct,
            change::<ChangeCredits>(
                "deductCredits",
                "Take credits that an account may spend",
                json!({"amount": 25, "reason": "invoice 118"}),
            ),
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
        .post(
            "/admin/accounts/{id}/close",
            accounts::close,
            suspension("closeAccount", "Close an account for good")
                .about(
                    "It must have no credits, no open jobs of its own or on its Islands, no Islands and no payment that is \
                     not confirmed. Its e-mail address may be used again.",
                )
                .fails(&[Code::AccountInUse]),
        )
}

fn quotas_and_keys(routes: Routes) -> Routes {
    routes
        .get(
            "/admin/accounts/{id}/quotas",
            quotas::get,
            on_account("getQuotasOfAccount", "The quotas of an account", Scope::Read)
                .answers::<Data<Vec<QuotaView>>>(200, "The quotas, and what is used of them"),
        )
        .post(
            "/admin/accounts/{id}/quotas",
            quotas::replace,
            on_account("setQuotasOfAccount", "Replace the quotas of an account", Scope::Write)
                .about("What was used in the current day and month counts.")
                .takes::<SetQuotas>(Some(
                    json!({"quotas": {"day": {"requests": 1000}, "month": {"credits": 25}}, "reason": "trial"}),
                ))
                .answers::<Data<Vec<QuotaView>>>(200, "The quotas after the change"),
        )
        .get(
            "/admin/accounts/{id}/statement",
            accounts::statement,
            account::statement(on_account(
                "getStatementOfAccount",
                "What an account spent and earned",
                Scope::Read,
            )),
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
}

fn islands(routes: Routes) -> Routes {
    routes
        .get(
            "/admin/hosts",
            hosts::list,
            islands::listed(Operation::keyed(
                TAG,
                "listHostsOfAccounts",
                "Islands with their accounts, oldest first",
                Scope::Read,
            ))
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
            "/admin/hosts/{id}/annotate",
            hosts::annotate,
            Operation::keyed(
                TAG,
                "annotateHost",
                "Set the trust level and the note of an Island",
                Scope::Write,
            )
            .segment("id", "The Island.", &uuid())
            .fails(&[Code::HostNotFound])
            .takes::<AnnotateHost>(Some(json!({"trust": "low", "reason": "new owner"})))
            .answers::<Data<AdminHost>>(200, "The Island after the change"),
        )
        .post(
            "/admin/jobs/{id}/cancel",
            cancel::cancel,
            Operation::keyed(TAG, "cancelJobOfAccount", "Cancel a job of any account", Scope::Write)
                .about("It is charged as if its consumer had cancelled it, and its error is `cancelled_by_operator`. Repeating it is not an error.")
                .segment("id", "The job.", &uuid())
                .fails(&[Code::JobNotFound, Code::JobAlreadyFinal])
                .takes::<Reason>(Some(json!({"reason": "it blocks the network"})))
                .answers::<Data<CancelledJob>>(200, "The job is cancelled, now or earlier"),
        )
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
            "/admin/queue",
            queue::list,
            Operation::keyed(TAG, "listWaitingJobs", "Jobs that wait for an Island, and why", Scope::Read)
                .about("In the order in which they are placed. Reasons are those of the coordinator that answers; jobs of others have none.")
                .paged()
                .query("workload", false, "Only jobs of this Cargo.", &slug())
                .query("account", false, "Only jobs of this account.", &uuid())
                .query("reason", false, "Only jobs for which some Island has this reason, such as `no_slot`, or `no_island`.", &json!({"type": "string", "enum": reason_names().collect::<Vec<_>>()}))
                .answers::<Queue>(200, "A page of jobs, with the number of jobs for each reason and Cargo"),
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

fn state(routes: Routes) -> Routes {
    routes
        .get(
            "/admin/cargos",
            cargos::list,
            Operation::keyed(TAG, "listCargoStates", "Whether each Cargo is enabled", Scope::Read)
                .answers::<Data<Vec<CargoState>>>(200, "All Cargos"),
        )
        .post(
            "/admin/cargos/{slug}/disable",
            cargos::disable,
            on_cargo("disableCargo", "Accept no new jobs of a Cargo")
                .about("Those that were accepted go on."),
        )
        .post("/admin/cargos/{slug}/enable", cargos::enable, on_cargo("enableCargo", "Accept its jobs again"))
        .post(
            "/admin/maintenance/start",
            maintenance::start,
            on_network("startMaintenance", "Accept no new jobs in the whole network").about(
                "Those that were accepted go on. New ones are answered with `maintenance` and the reason.",
            ),
        )
        .post("/admin/maintenance/end", maintenance::end, on_network("endMaintenance", "Accept jobs again"))
        .get(
            "/admin/notices",
            notices::list,
            Operation::keyed(TAG, "listNotices", "All notices, newest first", Scope::Read)
                .answers::<Data<Vec<Notice>>>(200, "The notices, also those that have expired"),
        )
        .post(
            "/admin/notices",
            notices::create,
            Operation::keyed(TAG, "createNotice", "Show a notice to consumers and owners", Scope::Write)
                .takes::<CreateNotice>(Some(
                    json!({"text": "On Sunday at 10:00 UTC the network is updated."}),
                ))
                .answers::<Data<Notice>>(201, "The notice"),
        )
        .delete(
            "/admin/notices/{id}",
            notices::remove,
            Operation::keyed(TAG, "removeNotice", "Remove a notice", Scope::Write)
                .segment("id", "The notice.", &uuid())
                .fails(&[Code::NoticeNotFound])
                .answers::<Data<Notice>>(200, "The notice that was removed"),
        )
}

fn invitations_and_payouts(routes: Routes) -> Routes {
    routes
        .get(
            "/admin/invitations",
            invitations::list,
            Operation::keyed(TAG, "listInvitations", "All invitations, newest first", Scope::Read)
                .paged()
                .answers::<Page<Invitation>>(200, "A page of invitations"),
        )
        .post(
            "/admin/invitations",
            invitations::create,
            Operation::keyed(TAG, "createInvitation", "Create an invitation", Scope::Write)
                .idempotent()
                .takes::<CreateInvitation>(Some(
                    json!({"credits": 10, "uses": 30, "reason": "course of 2026"}),
                ))
                .answers::<CreatedInvitation>(201, "The invitation, with its code beside `data`"),
        )
        .post(
            "/admin/invitations/{id}/revoke",
            invitations::revoke,
            Operation::keyed(TAG, "revokeInvitation", "Revoke an invitation", Scope::Write)
                .segment("id", "The invitation.", &uuid())
                .fails(&[Code::InvitationNotFound])
                .takes::<Reason>(Some(json!({"reason": "posted in public"})))
                .answers::<Data<Invitation>>(200, "The invitation after the change"),
        )
        .get(
            "/admin/payouts",
            payouts::list,
            Operation::keyed(TAG, "listPayouts", "All payouts, newest first", Scope::Read)
                .paged()
                .answers::<Page<Payout>>(200, "A page of payouts"),
        )
        .post(
            "/admin/payouts",
            payouts::create,
            Operation::keyed(
                TAG,
                "createPayout",
                "Take earnings out of their accounts, for payment",
                Scope::Write,
            )
            .idempotent()
            .takes::<CreatePayout>(Some(json!({"minimum": 5, "reason": "November"})))
            .answers::<Data<PayoutDetails>>(201, "The payout with its payments"),
        )
        .get(
            "/admin/payouts/{id}",
            payouts::get,
            on_payout("getPayout", "A payout with its payments", Scope::Read)
                .query("format", false, "`json` or `csv`, with a line for each payment.", &format())
                .answers_or_csv::<Data<PayoutDetails>>("The payout"),
        )
        .post(
            "/admin/payouts/{id}/confirm",
            payouts::confirm,
            finish("confirmPayout", "Record that a payout was paid"),
        )
        .post(
            "/admin/payouts/{id}/cancel",
            payouts::cancel,
            finish("cancelPayout", "Return the credits of a payout that was not paid"),
        )
}
