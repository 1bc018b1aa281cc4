//! Credits and API keys.

use island_protocol_api::{
    AccountView, Data, Page, WatchCredentials,
    key::{CreateKey, CreatedKey, KeyView, RevokedKey, Scope},
    ledger::LedgerEntry,
    problem::Code,
    quota::{OwnQuotas, QuotaView, Quotas},
    signup::{FinishLogin, SignUp, SignedUp},
    statement::Statement,
    usage::AccountUsage,
};
use serde_json::json;

use super::{Routes, format, slug, time, uuid};
use crate::{
    native::{account, fabric, keys, ledger, login, quotas, signup, statement as statements, usage},
    openapi::operation::Operation,
};

fn on_key(id: &'static str, summary: &'static str, scope: Scope) -> Operation {
    Operation::keyed("Account", id, summary, scope)
        .segment("id", "The key.", &uuid())
        .fails(&[Code::ApiKeyNotFound])
}

/// Adds the parameters and answers of a statement.
pub(super) fn statement(operation: Operation) -> Operation {
    let time = time();
    operation
        .about("Sums as JSON, or every entry as CSV, without the holds of open jobs.")
        .query("from", false, "Begin; the begin of this month, UTC, by default.", &time)
        .query("until", false, "End, which is left out; now by default, and at most now.", &time)
        .query("format", false, "`json`, or `csv` with a line for each entry.", &format())
        .fails(&[Code::InvalidRequest])
        .answers_or_csv::<Data<Statement>>("The statement")
}

/// Adds the parameters and answers of an account's usage.
fn used(operation: Operation) -> Operation {
    let time = time();
    operation
        .about("Ended jobs with their tokens and credits, without refunds, as JSON or CSV. Days are whole, in UTC, at most 92.")
        .query("from", false, "A time in the first day; two weeks ago by default.", &time)
        .query("until", false, "End of the last day, or a time in it; now by default.", &time)
        .query("workload", false, "Only this Cargo.", &slug())
        .query("key", false, "Only this key.", &uuid())
        .query("format", false, "`json`, or `csv` with a line for each row.", &format())
        .fails(&[Code::InvalidRequest])
        .answers_or_csv::<Data<AccountUsage>>("The usage")
}

pub(super) fn add(routes: Routes) -> Routes {
    [own, sign_up_and_in, keys_and_fabric].into_iter().fold(routes, |routes, part| part(routes))
}

fn own(routes: Routes) -> Routes {
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
            "/account/quotas",
            quotas::own,
            Operation::keyed(
                "Account",
                "getQuotas",
                "What your account and your key may use in a day and a month",
                Scope::Read,
            )
            .answers::<Data<OwnQuotas>>(200, "The quotas, and what is used of them"),
        )
        .get(
            "/account/statement",
            statements::own,
            statement(Operation::keyed("Account", "getStatement", "What you spent and earned", Scope::Read)),
        )
        .get(
            "/account/usage",
            usage::own,
            used(Operation::keyed(
                "Account",
                "getUsage",
                "What you used, by day, Cargo and key",
                Scope::Read,
            )),
        )
}

fn sign_up_and_in(routes: Routes) -> Routes {
    routes
        .post(
            "/signup",
            signup::sign_up,
            Operation::open("Account", "signUp", "Create an account by invitation")
                .about("The secret of its first key is in this answer only.")
                .fails(&[Code::InvalidInvitation, Code::RateLimited])
                .takes::<SignUp>(Some(json!({"email": "user@example.org", "code": "Zq3vT8kXw2LbN5rD"})))
                .answers::<SignedUp>(201, "The account, with the secret of its key beside `data`"),
        )
        .get(
            "/login",
            login::begin,
            Operation::open("Account", "beginLogin", "Sign in with the network's OpenID Connect provider")
                .about("Opened in a browser. The browser ends at `http://127.0.0.1:PORT/?code=…`.")
                .query(
                    "port",
                    true,
                    "Port at which your program waits.",
                    &json!({"type": "integer", "minimum": 1, "maximum": 65535}),
                )
                .query(
                    "challenge",
                    true,
                    "SHA-256 of a random verifier, in base 64 for URLs.",
                    &json!({"type": "string"}),
                )
                .fails(&[Code::NotFound, Code::InvalidRequest])
                .redirects("To the provider"),
        )
        .get(
            "/login/callback",
            login::callback,
            Operation::open("Account", "confirmLogin", "Where the provider returns people")
                .query("state", true, "As it was sent.", &json!({"type": "string"}))
                .query("code", false, "The provider's code.", &json!({"type": "string"}))
                .query("error", false, "Why the code is absent.", &json!({"type": "string"}))
                .fails(&[Code::NotFound, Code::LoginFailed, Code::RateLimited])
                .redirects("To the program that waits, or to the console with a reason for a failure"),
        )
        .post(
            "/login",
            login::finish,
            Operation::open("Account", "finishLogin", "Exchange the code of a sign-in for a key")
                .about("The secret of the key is in this answer only.")
                .fails(&[Code::LoginFailed, Code::RateLimited])
                .takes::<FinishLogin>(Some(
                    json!({"code": "Zq3vT8kXw2LbN5rD", "verifier": "the text that was hashed"}),
                ))
                .answers::<SignedUp>(201, "The account, with the secret of a new key beside `data`"),
        )
}

fn keys_and_fabric(routes: Routes) -> Routes {
    routes
        .get(
            "/api-keys/{id}/quotas",
            quotas::of_key,
            on_key("getQuotasOfKey", "What a key may use in a day and a month", Scope::Read).answers::<Data<
                Vec<QuotaView>,
            >>(
                200,
                "The quotas, and what is used of them",
            ),
        )
        .post(
            "/api-keys/{id}/quotas",
            quotas::replace_of_key,
            on_key("setQuotasOfKey", "Replace the quotas of a key", Scope::Write)
                .takes::<Quotas>(Some(json!({"day": {"requests": 100}})))
                .answers::<Data<Vec<QuotaView>>>(200, "The quotas after the change"),
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
