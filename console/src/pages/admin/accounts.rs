//! Accounts: credits, quotas, keys, refunds, suspension.

use axum::{extract::Path, response::Response};
use island_protocol_api::{
    Data,
    admin::{AdminAccount, CreatedAccount},
    key::{KeyView, RevokedKey},
    quota::{OwnQuotas, QuotaPeriod, QuotaView},
    statement::Statement,
};
use serde::de::IgnoredAny;
use serde_json::json;

use super::{Operator, not_found, post_reason};
use crate::{
    backend::{ApiFailure, add_parameter, encoded},
    posted::{Posted, idempotency_key},
    texts::{fill, t},
    view::{Block, Cell, Field, Form, Kind, Pager, Table, Tile, Tone},
    web::{Member, done},
};

const PAGE: &str = "/console/admin/accounts";

fn state(account: &AdminAccount) -> Cell {
    match (&account.closed_at, &account.suspended) {
        (Some(_), _) => Cell::Badge(Tone::Plain, t("accounts.closed").to_owned()),
        (None, Some(_)) => Cell::Badge(Tone::Bad, t("island.suspended").to_owned()),
        _ if account.operator => Cell::Badge(Tone::Warn, t("accounts.operator").to_owned()),
        _ => Cell::Badge(Tone::Good, t("accounts.open").to_owned()),
    }
}

/// `GET /console/admin/accounts`.
pub(super) async fn list(Operator(member): Operator) -> Response {
    show(&member, Vec::new()).await
}

async fn show(member: &Member, mut blocks: Vec<Block>) -> Response {
    let email = member.visit.param("email").unwrap_or_default().to_owned();
    let mut path = format!("/admin/accounts?limit=25&offset={}", member.visit.offset());
    if !email.is_empty() {
        add_parameter(&mut path, "email", &email);
    }
    let page = match member.visit.api.page::<AdminAccount>(&path).await {
        Ok(page) => page,
        // A key is shown once; the rest of the page can be read again.
        Err(_) if !blocks.is_empty() => return member.page(t("accounts.title"), t("accounts.lead"), blocks),
        Err(failure) => return member.failed(failure, PAGE),
    };
    let row = |account: &AdminAccount| {
        vec![
            Cell::link(format!("{PAGE}/{}", account.id), account.email.clone()),
            state(account),
            Cell::Credits(account.credits),
            Cell::Credits(account.held),
            Cell::Time(account.created_at),
        ]
    };
    let columns = ["account.email", "jobs.status", "account.credits", "accounts.held", "jobs.created"];
    let query = if email.is_empty() { String::new() } else { format!("email={}&", encoded(&email)) };
    let table = Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: page.data.iter().map(row).collect(),
        empty: t("accounts.none").to_owned(),
        pager: Pager::new(&format!("{PAGE}?{query}"), page.meta),
        ..Table::default()
    };
    blocks.push(Block::Form(Form::filter(PAGE, vec![Field::line("email", t("account.email")).value(email)])));
    blocks.push(Block::Table(table));
    let create = Form::post(
        PAGE,
        t("accounts.create"),
        vec![
            Field::new("email", t("account.email"), Kind::Email).required(),
            Field::amount("credits", t("account.credits")),
            Field::new("operator", t("accounts.make_operator"), Kind::Check),
        ],
    );
    blocks.push(Block::Panel(t("accounts.new").to_owned(), vec![Block::Form(create)]));
    member.page(t("accounts.title"), t("accounts.lead"), blocks)
}

/// `POST /console/admin/accounts`: the key of the account is in this page only.
pub(super) async fn create(Operator(member): Operator, posted: Posted) -> Response {
    let mut body = json!({"email": posted.get("email"), "operator": posted.get("operator") == "true"});
    if let Some(credits) = posted.number("credits") {
        body["credits"] = credits;
    }
    match member.visit.api.post::<CreatedAccount>("/admin/accounts", &body).await {
        Ok(created) => {
            let mut blocks =
                vec![Block::Notice(Tone::Good, fill("accounts.created", &[("email", &created.data.email)]))];
            blocks.extend(created.key.map(|key| Block::Copy(t("keys.secret").to_owned(), key)));
            blocks.push(Block::Notice(Tone::Warn, t("keys.once").to_owned()));
            show(&member, blocks).await
        }
        Err(failure) => member.again(failure, posted, PAGE, |member| list(Operator(member))).await,
    }
}

/// `GET /console/admin/accounts/:id`.
pub(super) async fn get(Operator(member): Operator, Path(id): Path<String>) -> Response {
    let api = &member.visit.api;
    let of = |part: &str| format!("/admin/accounts/{}/{part}", encoded(&id));
    let (keys, quotas, statement) = (of("api-keys"), of("quotas"), of("statement"));
    let path = format!("/admin/accounts/{}", encoded(&id));
    let answers = futures::try_join!(
        api.get::<AdminAccount>(&path),
        api.get::<Vec<KeyView>>(&keys),
        api.get::<Vec<QuotaView>>(&quotas),
        api.get::<Statement>(&statement),
    );
    let (account, keys, quotas, statement) = match answers {
        Ok(answers) => answers,
        Err(failure) => return member.failed(failure, PAGE),
    };
    let quota_form = set_quotas(&id, &quotas);
    let own = OwnQuotas { account: quotas, key: Vec::new() };
    let action = |verb: &str| format!("{PAGE}/{}/{verb}", encoded(&id));
    let bought = Field::new("bought", t("accounts.bought"), Kind::Check);
    let grant = change_credits(action("grants"), t("accounts.grant"), Some(bought));
    let deduct = change_credits(action("deductions"), t("accounts.deduct"), None).bad();
    let refund = Form::post(
        action("refund"),
        t("accounts.refund"),
        vec![Field::line("job", t("jobs.id")).required(), Field::reason()],
    );
    let panel = |title: &str, form: Form| Block::Panel(t(title).to_owned(), vec![Block::Form(form)]);
    let mut blocks = vec![
        Block::Facts(facts(&account)),
        Block::Tiles(vec![
            Tile::new(t("account.credits"), Cell::Credits(account.credits)),
            Tile::new(t("accounts.held"), Cell::Credits(account.held)),
            Tile::new(t("ledger.opening"), Cell::Credits(statement.opening)),
        ]),
        Block::Columns(vec![
            panel("accounts.grant", grant),
            panel("accounts.deduct", deduct),
            panel("accounts.refund", refund),
        ]),
        Block::Panel(t("keys.title").to_owned(), vec![Block::Table(key_table(&id, &keys))]),
    ];
    blocks.extend(crate::pages::usage::quotas(&own));
    blocks.push(Block::Fold(t("accounts.set_quotas").to_owned(), vec![Block::Form(quota_form)]));
    let states = state_forms(&account);
    if !states.is_empty() {
        blocks.push(Block::Fold(t("accounts.state").to_owned(), states));
    }
    blocks.push(Block::Links(vec![
        (format!("/console/admin/fleet?account={}", encoded(&id)), t("accounts.islands").to_owned()),
        (format!("/console/admin/audit-log?account={}", encoded(&id)), t("accounts.log").to_owned()),
    ]));
    member.page(account.email.clone(), "", blocks)
}

/// Grants or deducts credits.
fn change_credits(action: String, text: &str, origin: Option<Field>) -> Form {
    let mut fields =
        vec![Field::amount("amount", t("accounts.amount")).required(), Field::reason(), idempotency_key()];
    fields.extend(origin);
    Form::post(action, text, fields)
}

fn facts(account: &AdminAccount) -> Vec<(String, Cell)> {
    let mut facts = vec![
        (t("jobs.status").to_owned(), state(account)),
        (t("admin.account_id").to_owned(), Cell::Code(account.id.to_string())),
        (t("jobs.created").to_owned(), Cell::Time(account.created_at)),
    ];
    if let Some(suspension) = &account.suspended {
        facts.push((t("admin.since").to_owned(), Cell::Time(suspension.at)));
        facts.push((t("form.reason").to_owned(), Cell::text(suspension.reason.clone())));
    }
    facts.extend(account.closed_at.map(|at| (t("accounts.closed").to_owned(), Cell::Time(at))));
    facts
}

/// What can be done about the state that the account has.
fn state_forms(account: &AdminAccount) -> Vec<Block> {
    if account.closed_at.is_some() {
        return Vec::new();
    }
    let form = |verb: &str, text: &str| {
        Form::post(format!("{PAGE}/{}/{verb}", account.id), t(text), vec![Field::reason()])
    };
    let change = if account.suspended.is_some() {
        form("resume", "admin.resume")
    } else {
        form("suspend", "admin.suspend").bad()
    };
    let close = form("close", "accounts.close").bad().confirm(t("accounts.close_confirm"));
    vec![Block::Form(change), Block::Form(close)]
}

/// The limits of a quota, by their names in the form.
const LIMITS: [&str; 3] = ["requests", "tokens", "credits"];

/// The form replaces all quotas, so it has those that are set.
fn set_quotas(id: &str, quotas: &[QuotaView]) -> Form {
    let field = |period: QuotaPeriod, limit: &str| {
        let name = format!("{}_{limit}", period.as_str());
        let label = t(&format!("accounts.{name}")).to_owned();
        Field::amount(&name, &label).value(limit_of(quotas, period, limit))
    };
    let mut fields: Vec<Field> = [QuotaPeriod::Day, QuotaPeriod::Month]
        .into_iter()
        .flat_map(|period| LIMITS.map(|limit| field(period, limit)))
        .collect();
    fields.push(Field::reason().help(t("accounts.quotas_help")));
    Form::post(format!("{PAGE}/{}/quotas", encoded(id)), t("accounts.set_quotas"), fields)
}

/// A limit as it is entered, or empty.
fn limit_of(quotas: &[QuotaView], period: QuotaPeriod, limit: &str) -> String {
    let Some(quota) = quotas.iter().find(|quota| quota.period == period) else { return String::new() };
    let max = match limit {
        "requests" => quota.requests.map(|used| used.max.to_string()),
        "tokens" => quota.tokens.map(|used| used.max.to_string()),
        _ => quota.credits.map(|used| used.max.to_string()),
    };
    max.unwrap_or_default()
}

fn key_table(id: &str, keys: &[KeyView]) -> Table {
    let row = |key: &KeyView| {
        let form = Form::post(
            format!("/console/admin/keys/{}/revoke", key.id),
            t("keys.revoke"),
            vec![Field::reason(), Field::hidden("account", id)],
        );
        let form = Form { label: fill("keys.revoke_one", &[("name", &key.name)]), ..form.inline().bad() };
        vec![
            Cell::text(key.name.clone()),
            Cell::Code(format!("{}…", key.prefix)),
            Cell::time(key.last_used_at),
            Cell::Credits(key.spent),
            Cell::Actions(vec![form]),
        ]
    };
    let columns = ["keys.name", "keys.prefix", "keys.used", "keys.spent", "keys.change"];
    Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: keys.iter().map(row).collect(),
        empty: t("accounts.no_keys").to_owned(),
        ..Table::default()
    }
}

/// `POST /console/admin/accounts/:id/…`.
pub(super) async fn change(
    Operator(member): Operator,
    Path((id, verb)): Path<(String, String)>,
    posted: Posted,
) -> Response {
    let (path, page) =
        (format!("/admin/accounts/{}/{verb}", encoded(&id)), format!("{PAGE}/{}", encoded(&id)));
    let changed = match verb.as_str() {
        "grants" => post_idempotent(&member, &path, &posted, &page, "granted").await,
        "deductions" => post_idempotent(&member, &path, &posted, &page, "deducted").await,
        "quotas" => post(&member, &path, &quotas(&posted), &page, "quotas_set").await,
        "refund" => {
            let path = format!("/admin/jobs/{}/refund", encoded(posted.get("job")));
            post_reason(&member, &path, &posted, &page, "refunded").await
        }
        "suspend" => post_reason(&member, &path, &posted, &page, "suspended").await,
        "resume" => post_reason(&member, &path, &posted, &page, "resumed").await,
        "close" => post_reason(&member, &path, &posted, &page, "closed").await,
        _ => return not_found(),
    };
    match changed {
        Ok(response) => response,
        Err(failure) => member.again(failure, posted, &page, |member| get(Operator(member), Path(id))).await,
    }
}

/// Posts to a route of the API, and leads back.
async fn post(
    member: &Member,
    path: &str,
    body: &serde_json::Value,
    back: &str,
    what: &str,
) -> Result<Response, ApiFailure> {
    member.visit.api.post::<Data<IgnoredAny>>(path, body).await?;
    Ok(done(back, what))
}

/// Posts a change of credits, which has no further effect if its form is sent again.
async fn post_idempotent(
    member: &Member,
    path: &str,
    posted: &Posted,
    back: &str,
    what: &str,
) -> Result<Response, ApiFailure> {
    let mut body = json!({"amount": posted.number("amount"), "reason": posted.get("reason")});
    if posted.get("bought") == "true" {
        body["bought"] = true.into();
    }
    member.visit.api.post_with::<Data<IgnoredAny>>(path, &body, posted.idempotency()).await?;
    Ok(done(back, what))
}

fn quotas(posted: &Posted) -> serde_json::Value {
    let of = |period: &str| {
        let mut limits = serde_json::Map::new();
        for name in LIMITS {
            let value = posted.number(&format!("{period}_{name}"));
            limits.extend(value.map(|value| (name.to_owned(), value)));
        }
        limits
    };
    json!({"quotas": {"day": of("day"), "month": of("month")}, "reason": posted.get("reason")})
}

/// `POST /console/admin/keys/:id/revoke`.
pub(super) async fn revoke_key(
    Operator(member): Operator,
    Path(id): Path<String>,
    posted: Posted,
) -> Response {
    let page = format!("{PAGE}/{}", encoded(posted.get("account")));
    let body = json!({"reason": posted.get("reason")});
    let path = format!("/admin/api-keys/{}/revoke", encoded(&id));
    match member.visit.api.post::<Data<RevokedKey>>(&path, &body).await {
        Ok(_) => done(&page, "revoked"),
        Err(failure) => {
            let account = posted.get("account").to_owned();
            member.again(failure, posted, &page, |member| get(Operator(member), Path(account))).await
        }
    }
}

#[cfg(test)]
mod tests {
    use island_protocol::{credits::MicroCredits, time::Timestamp};
    use island_protocol_api::quota::Used;

    use super::*;

    #[test]
    fn the_form_has_the_quotas_that_it_replaces() {
        let quota = QuotaView {
            period: QuotaPeriod::Month,
            resets_at: Timestamp::from_unix_ms(0),
            requests: None,
            tokens: Some(Used { used: 1, max: 5000 }),
            credits: Some(Used { used: MicroCredits(0), max: MicroCredits(12_500_000) }),
        };
        let form = set_quotas("id", &[quota]);
        let entered: Vec<(&str, &str)> =
            form.fields.iter().map(|field| (field.name.as_str(), field.value.as_str())).collect();
        let expected = [
            ("day_requests", ""),
            ("day_tokens", ""),
            ("day_credits", ""),
            ("month_requests", ""),
            ("month_tokens", "5000"),
            ("month_credits", "12.5"),
            ("reason", ""),
        ];
        assert_eq!(entered, expected);
        let sent = quotas(&Posted::of(&expected));
        assert_eq!(sent["quotas"], json!({"day": {}, "month": {"tokens": 5000, "credits": 12.5}}));
    }
}
