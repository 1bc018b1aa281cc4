//! Accounts: credits, quotas, keys, suspension.

use axum::{extract::Path, response::Response};
use island_protocol::api::{
    Data,
    admin::{AdminAccount, CreatedAccount},
    key::{KeyView, RevokedKey},
    quota::QuotaView,
    statement::Statement,
};
use serde::de::IgnoredAny;
use serde_json::json;

use super::{Operator, not_found, post_reason};
use crate::{
    backend::{ApiFailure, add_parameter, encoded},
    form::Posted,
    texts::{fill, t},
    view::{Block, Cell, Field, Form, Kind, Pager, Table, Tile, Tone},
    web::{Member, described, done},
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
        Err(ApiFailure::Refused { problem, .. }) => {
            show(&member, vec![Block::Notice(Tone::Bad, described(&problem).0)]).await
        }
        Err(failure) => member.failed(failure, PAGE),
    }
}

/// `GET /console/admin/accounts/:id`.
pub(super) async fn get(Operator(member): Operator, Path(id): Path<String>) -> Response {
    let api = &member.visit.api;
    let of = |part: &str| format!("/admin/accounts/{}/{part}", encoded(&id));
    let (keys, quotas, statement) = (of("api-keys"), of("quotas"), of("statement"));
    let answers = futures::try_join!(
        api.get::<Vec<KeyView>>(&keys),
        api.get::<Vec<QuotaView>>(&quotas),
        api.get::<Statement>(&statement),
    );
    let (keys, quotas, statement) = match answers {
        Ok(answers) => answers,
        Err(failure) => return member.failed(failure, PAGE),
    };
    let row = |key: &KeyView| {
        let form = Form::post(
            format!("/console/admin/keys/{}/revoke", key.id),
            t("keys.revoke"),
            vec![Field::reason(), Field::hidden("account", id.clone())],
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
    let keys = Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: keys.iter().map(row).collect(),
        empty: t("accounts.no_keys").to_owned(),
        ..Table::default()
    };
    let action = |verb: &str| format!("{PAGE}/{}/{verb}", encoded(&id));
    let change = |verb: &str, text: &str| {
        let fields = vec![Field::amount("amount", t("accounts.amount")).required(), Field::reason()];
        Form::post(action(verb), t(text), fields)
    };
    let reason = |verb: &str, text: &str| Form::post(action(verb), t(text), vec![Field::reason()]);
    let quota = |name: &str| Field::amount(name, t(&format!("accounts.{name}")));
    let set_quotas = Form::post(
        action("quotas"),
        t("accounts.set_quotas"),
        vec![
            quota("day_requests"),
            quota("day_credits"),
            quota("month_requests"),
            quota("month_credits"),
            Field::reason(),
        ],
    );
    let own = island_protocol::api::quota::OwnQuotas { account: quotas, key: Vec::new() };
    let mut blocks = vec![
        Block::Facts(vec![(t("admin.account_id").to_owned(), Cell::Code(id.clone()))]),
        Block::Tiles(vec![
            Tile::new(t("ledger.opening"), Cell::Credits(statement.opening)),
            Tile::new(t("ledger.closing"), Cell::Credits(statement.closing)),
        ]),
        Block::Columns(vec![
            Block::Panel(
                t("accounts.grant").to_owned(),
                vec![Block::Form(change("grants", "accounts.grant"))],
            ),
            Block::Panel(
                t("accounts.deduct").to_owned(),
                vec![Block::Form(change("deductions", "accounts.deduct").bad())],
            ),
        ]),
        Block::Panel(t("keys.title").to_owned(), vec![Block::Table(keys)]),
    ];
    blocks.extend(crate::pages::usage::quotas(&own));
    blocks.push(Block::Fold(t("accounts.set_quotas").to_owned(), vec![Block::Form(set_quotas)]));
    blocks.push(Block::Fold(
        t("accounts.state").to_owned(),
        vec![
            Block::Form(reason("suspend", "admin.suspend").bad()),
            Block::Form(reason("resume", "admin.resume")),
            Block::Form(reason("close", "accounts.close").bad()),
        ],
    ));
    blocks.push(Block::Links(vec![
        (format!("/console/admin/fleet?account={}", encoded(&id)), t("accounts.islands").to_owned()),
        (format!("/console/admin/audit-log?account={}", encoded(&id)), t("accounts.log").to_owned()),
    ]));
    member.page(t("accounts.one"), "", blocks)
}

/// `POST /console/admin/accounts/:id/…`.
pub(super) async fn change(
    Operator(member): Operator,
    Path((id, verb)): Path<(String, String)>,
    posted: Posted,
) -> Response {
    let (path, page) =
        (format!("/admin/accounts/{}/{verb}", encoded(&id)), format!("{PAGE}/{}", encoded(&id)));
    let (body, what) = match verb.as_str() {
        "grants" => (json!({"amount": posted.number("amount"), "reason": posted.get("reason")}), "granted"),
        "deductions" => {
            (json!({"amount": posted.number("amount"), "reason": posted.get("reason")}), "deducted")
        }
        "quotas" => (quotas(&posted), "quotas_set"),
        "suspend" => return post_reason(&member, &path, &posted, &page, "suspended").await,
        "resume" => return post_reason(&member, &path, &posted, &page, "resumed").await,
        "close" => return post_reason(&member, &path, &posted, &page, "closed").await,
        _ => return not_found(),
    };
    match member.visit.api.post::<Data<IgnoredAny>>(&path, &body).await {
        Ok(_) => done(&page, what),
        Err(failure) => member.failed(failure, &page),
    }
}

fn quotas(posted: &Posted) -> serde_json::Value {
    let of = |period: &str| {
        let mut limits = serde_json::Map::new();
        for name in ["requests", "credits"] {
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
        Err(failure) => member.failed(failure, &page),
    }
}
