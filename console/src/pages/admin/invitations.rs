//! Invitations, whose codes create accounts.

use axum::{extract::Path, response::Response};
use island_protocol_api::signup::{CreatedInvitation, Invitation};
use serde_json::json;

use super::{Operator, post_reason};
use crate::{
    backend::encoded,
    pages::keys::now,
    posted::Posted,
    texts::{fill, t},
    view::{Block, Cell, Field, Form, Kind, Pager, Table, Tone},
    web::Member,
};

const PAGE: &str = "/console/admin/invitations";

/// `GET /console/admin/invitations`.
pub(super) async fn list(Operator(member): Operator) -> Response {
    show(&member, Vec::new()).await
}

async fn show(member: &Member, mut blocks: Vec<Block>) -> Response {
    let path = format!("/admin/invitations?limit=25&offset={}", member.visit.offset());
    let page = match member.visit.api.page::<Invitation>(&path).await {
        Ok(page) => page,
        // A code is shown once; the rest of the page can be read again.
        Err(_) if !blocks.is_empty() => {
            return member.page(t("invitations.title"), t("invitations.lead"), blocks);
        }
        Err(failure) => return member.failed(failure, PAGE),
    };
    let row = |one: &Invitation| {
        let revoke = Form::post(format!("{PAGE}/{}/revoke", one.id), t("keys.revoke"), vec![Field::reason()]);
        let revoke = Form {
            label: fill("invitations.revoke_one", &[("reason", &one.reason)]),
            ..revoke.inline().bad()
        };
        vec![
            Cell::text(one.reason.clone()),
            Cell::Credits(one.credits),
            Cell::number(format!("{} / {}", one.used, one.uses)),
            Cell::time(one.expires_at),
            match one.revoked_at {
                Some(at) => Cell::Time(at),
                None => Cell::Actions(vec![revoke]),
            },
        ]
    };
    let columns =
        ["form.reason", "account.credits", "invitations.used", "keys.expires", "invitations.revoked"];
    blocks.push(Block::Table(Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: page.data.iter().map(row).collect(),
        empty: t("invitations.none").to_owned(),
        pager: Pager::new(&format!("{PAGE}?"), page.meta),
        ..Table::default()
    }));
    let days = [("", "keys.never"), ("1", "keys.day"), ("30", "keys.month")];
    let days = days.iter().map(|(value, key)| ((*value).to_owned(), t(key).to_owned())).collect();
    let whole = Kind::Number { step: "1".to_owned(), min: "1".to_owned(), max: String::new() };
    let fields = vec![
        Field::reason(),
        Field::amount("credits", t("account.credits")),
        Field::new("uses", t("invitations.uses"), whole).value("1"),
        Field::new("days", t("keys.expires"), Kind::Choice(days)),
    ];
    let form = Form::post(PAGE, t("invitations.create"), fields);
    blocks.push(Block::Panel(t("invitations.new").to_owned(), vec![Block::Form(form)]));
    member.page(t("invitations.title"), t("invitations.lead"), blocks)
}

/// `POST /console/admin/invitations`: the code is in this page only.
pub(super) async fn create(Operator(member): Operator, posted: Posted) -> Response {
    let mut body = json!({"reason": posted.get("reason")});
    for name in ["credits", "uses"] {
        if let Some(value) = posted.number(name) {
            body[name] = value;
        }
    }
    if let Ok(days) = posted.get("days").parse::<i64>() {
        body["expires_at"] = json!(now().plus_ms(days * 24 * 3_600_000));
    }
    match member.visit.api.post::<CreatedInvitation>("/admin/invitations", &body).await {
        Ok(created) => {
            let code = created.code.map(|code| Block::Copy(t("sign_in.code").to_owned(), code));
            let mut blocks: Vec<Block> = code.into_iter().collect();
            blocks.push(Block::Notice(Tone::Warn, t("invitations.once").to_owned()));
            show(&member, blocks).await
        }
        Err(failure) => member.again(failure, posted, PAGE, |member| list(Operator(member))).await,
    }
}

/// `POST /console/admin/invitations/:id/revoke`.
pub(super) async fn revoke(Operator(member): Operator, Path(id): Path<String>, posted: Posted) -> Response {
    let path = format!("/admin/invitations/{}/revoke", encoded(&id));
    match post_reason(&member, &path, &posted, PAGE, "revoked").await {
        Ok(response) => response,
        Err(failure) => member.again(failure, posted, PAGE, |member| list(Operator(member))).await,
    }
}
