//! API keys: made with scopes, an end and caps, and revoked.

use axum::{extract::Path, response::Response};
use island_protocol::time::Timestamp;
use island_protocol_api::{
    Data,
    key::{CreatedKey, KeyView, RevokedKey, Scope},
    quota::OwnQuotas,
};
use serde_json::json;

use crate::{
    backend::{ApiFailure, encoded},
    posted::Posted,
    texts::{fill, t},
    view::{Block, Cell, Field, Form, Kind, Table, Tone},
    web::{Member, described, done},
};

/// `GET /console/keys`.
pub(super) async fn page(member: Member) -> Response {
    show(&member, Vec::new(), None).await
}

async fn show(member: &Member, mut blocks: Vec<Block>, entered: Option<&Posted>) -> Response {
    let api = &member.visit.api;
    let answers =
        futures::try_join!(api.get::<Vec<KeyView>>("/api-keys"), api.get::<OwnQuotas>("/account/quotas"),);
    let (keys, quotas) = match answers {
        Ok(answers) => answers,
        // A secret is shown once; the rest of the page can be read again.
        Err(_) if !blocks.is_empty() => return member.page(t("keys.title"), t("keys.lead"), blocks),
        Err(failure) => return member.failed(failure, "/console/chat"),
    };
    let row = |key: &KeyView| {
        let scopes: Vec<&str> = key.scopes.iter().map(|scope| t(scope_key(*scope))).collect();
        let is_own = key.id == member.who.key;
        let name = if is_own { format!("{} ({})", key.name, t("keys.this")) } else { key.name.clone() };
        let label = fill("keys.revoke_one", &[("name", &key.name)]);
        let revoke = Form::button(format!("/console/keys/{}/revoke", key.id), t("keys.revoke"), label);
        let what = if is_own { "keys.revoke_own" } else { "keys.revoke_confirm" };
        let revoke = revoke.bad().confirm(t(what));
        vec![
            Cell::text(name),
            Cell::Code(format!("{}…", key.prefix)),
            Cell::text(scopes.join(", ")),
            Cell::time(key.last_used_at),
            Cell::time(key.expires_at),
            match key.spend_cap {
                Some(cap) => Cell::number(format!("{} / {cap}", key.spent)),
                None => Cell::Credits(key.spent),
            },
            Cell::Actions(vec![revoke]),
        ]
    };
    let columns =
        ["keys.name", "keys.prefix", "keys.scopes", "keys.used", "keys.expires", "keys.spent", "keys.change"];
    let table = Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: keys.iter().map(row).collect(),
        id: "keys",
        ..Table::default()
    };
    blocks.push(Block::Table(table));
    blocks.extend(super::usage::quotas(&quotas));
    blocks.push(Block::Panel(t("keys.new").to_owned(), vec![Block::Form(form(entered))]));
    member.page(t("keys.title"), t("keys.lead"), blocks)
}

fn scope_key(scope: Scope) -> &'static str {
    match scope {
        Scope::Read => "keys.scope_read",
        Scope::Write => "keys.scope_write",
    }
}

fn form(entered: Option<&Posted>) -> Form {
    let value = |name: &str| entered.map(|posted| posted.get(name)).unwrap_or_default().to_owned();
    let scopes =
        [("read,write", "keys.scope_all"), ("read", "keys.scope_read"), ("write", "keys.scope_write")];
    let scopes = scopes.iter().map(|(value, key)| ((*value).to_owned(), t(key).to_owned())).collect();
    let days = [("", "keys.never"), ("1", "keys.day"), ("30", "keys.month"), ("365", "keys.year")];
    let days = days.iter().map(|(value, key)| ((*value).to_owned(), t(key).to_owned())).collect();
    let fields = vec![
        Field::line("name", t("keys.name")).required().value(value("name")),
        Field::new("scopes", t("keys.scopes"), Kind::Choice(scopes)).value(value("scopes")),
        Field::new("days", t("keys.expires"), Kind::Choice(days)).value(value("days")),
        Field::amount("spend_cap", t("keys.cap")).help(t("keys.cap_help")).value(value("spend_cap")),
        Field::amount("day_requests", t("keys.day_requests")).value(value("day_requests")),
    ];
    Form::post("/console/keys", t("keys.create"), fields)
}

/// `POST /console/keys`: the secret is in this page only.
pub(super) async fn create(member: Member, posted: Posted) -> Response {
    let mut body = json!({"name": posted.get("name"), "scopes": posted.get("scopes")});
    let days = posted.get("days").parse::<i64>().ok();
    if let Some(days) = days {
        body["expires_at"] = json!(now().plus_ms(days * 24 * 3_600_000));
    }
    if let Some(cap) = posted.number("spend_cap") {
        body["spend_cap"] = cap;
    }
    if let Some(requests) = posted.number("day_requests") {
        body["quotas"] = json!({"day": {"requests": requests}});
    }
    match member.visit.api.post::<CreatedKey>("/api-keys", &body).await {
        Ok(created) => {
            let secret = created.key.unwrap_or_default();
            let blocks = vec![
                Block::Notice(Tone::Good, fill("keys.created", &[("name", &created.data.name)])),
                Block::Copy(t("keys.secret").to_owned(), secret),
                Block::Notice(Tone::Warn, t("keys.once").to_owned()),
            ];
            show(&member, blocks, None).await
        }
        Err(ApiFailure::Refused { problem, .. }) => {
            show(&member, vec![Block::Notice(Tone::Bad, described(&problem).0)], Some(&posted)).await
        }
        Err(failure) => member.failed(failure, "/console/keys"),
    }
}

/// `POST /console/keys/:id/revoke`. Sessions of the key end with it.
pub(super) async fn revoke(member: Member, Path(id): Path<String>) -> Response {
    let revoked = member.visit.api.delete::<Data<RevokedKey>>(&format!("/api-keys/{}", encoded(&id))).await;
    match revoked {
        Ok(_) => done("/console/keys", "revoked"),
        Err(failure) => member.failed(failure, "/console/keys"),
    }
}

/// The time now. Choices such as "in 30 days" and spans such as "two weeks" are relative to it; what they mean is decided
/// by the API, which gets them as moments.
pub(super) fn now() -> Timestamp {
    let now = time::OffsetDateTime::now_utc();
    Timestamp::from_unix_ms((now.unix_timestamp_nanos() / 1_000_000) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_keeps_what_was_entered() {
        let form = form(Some(&Posted::of(&[("name", "a dashboard"), ("scopes", "read")])));
        let value = |name: &str| {
            form.fields.iter().find(|field| field.name == name).map(|field| field.value.as_str())
        };
        assert_eq!((value("name"), value("scopes")), (Some("a dashboard"), Some("read")));
    }
}
