//! Payouts of earnings.

use axum::{extract::Path, response::Response};
use island_protocol_api::{
    Data,
    payout::{Payment, Payout, PayoutDetails, PayoutState},
};
use serde_json::json;

use super::{Operator, not_found, post_reason};
use crate::{
    backend::encoded,
    posted::{Posted, idempotency_key},
    texts::t,
    view::{Block, Cell, Field, Form, Pager, Table, Tone},
    web::done,
};

const PAGE: &str = "/console/admin/payouts";

fn badge(state: PayoutState) -> Cell {
    let tone = match state {
        PayoutState::Confirmed => Tone::Good,
        PayoutState::Exported => Tone::Warn,
        PayoutState::Cancelled => Tone::Plain,
    };
    Cell::Badge(tone, t(&format!("payout.{}", state.as_str())).to_owned())
}

/// `GET /console/admin/payouts`.
pub(super) async fn list(Operator(member): Operator) -> Response {
    let path = format!("/admin/payouts?limit=25&offset={}", member.visit.offset());
    let page = match member.visit.api.page::<Payout>(&path).await {
        Ok(page) => page,
        Err(failure) => return member.failed(failure, "/console/admin"),
    };
    let row = |one: &Payout| {
        vec![
            Cell::link(format!("{PAGE}/{}", one.id), one.reason.clone()),
            badge(one.state),
            Cell::number(one.accounts),
            Cell::Credits(one.amount),
            Cell::Time(one.until),
        ]
    };
    let columns = ["form.reason", "jobs.status", "payouts.accounts", "usage.credits", "admin.until"];
    let table = Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: page.data.iter().map(row).collect(),
        empty: t("payouts.none").to_owned(),
        pager: Pager::new(&format!("{PAGE}?"), page.meta),
        ..Table::default()
    };
    let fields = vec![Field::reason(), Field::amount("minimum", t("payouts.minimum")), idempotency_key()];
    let form = Form::post(PAGE, t("payouts.create"), fields);
    let blocks =
        vec![Block::Table(table), Block::Panel(t("payouts.new").to_owned(), vec![Block::Form(form)])];
    member.page(t("payouts.title"), t("payouts.lead"), blocks)
}

/// `POST /console/admin/payouts`.
pub(super) async fn create(Operator(member): Operator, posted: Posted) -> Response {
    let mut body = json!({"reason": posted.get("reason")});
    if let Some(minimum) = posted.number("minimum") {
        body["minimum"] = minimum;
    }
    let created =
        member.visit.api.post_with::<Data<PayoutDetails>>("/admin/payouts", &body, posted.idempotency());
    match created.await {
        Ok(Data { data }) => done(&format!("{PAGE}/{}", data.payout.id), "exported"),
        Err(failure) => member.again(failure, posted, PAGE, |member| list(Operator(member))).await,
    }
}

/// `GET /console/admin/payouts/:id`.
pub(super) async fn get(Operator(member): Operator, Path(id): Path<String>) -> Response {
    let path = format!("/admin/payouts/{}", encoded(&id));
    let PayoutDetails { payout, payments } = match member.visit.api.get(&path).await {
        Ok(details) => details,
        Err(failure) => return member.failed(failure, PAGE),
    };
    let row = |payment: &Payment| {
        vec![
            Cell::link(format!("/console/admin/accounts/{}", payment.account), payment.email.clone()),
            Cell::Credits(payment.amount),
        ]
    };
    let table = Table {
        columns: ["account.email", "usage.credits"].iter().map(|key| t(key).to_owned()).collect(),
        rows: payments.iter().map(row).collect(),
        ..Table::default()
    };
    let mut blocks = vec![
        Block::Facts(vec![
            (t("jobs.status").to_owned(), badge(payout.state)),
            (t("usage.credits").to_owned(), Cell::Credits(payout.amount)),
            (t("admin.until").to_owned(), Cell::Time(payout.until)),
        ]),
        Block::Table(table),
    ];
    if payout.state == PayoutState::Exported {
        let form = |verb: &str, text: &str| {
            Form::post(format!("{PAGE}/{}/{verb}", payout.id), t(text), vec![Field::reason()])
        };
        blocks.push(Block::Columns(vec![
            Block::Panel(
                t("payouts.confirm").to_owned(),
                vec![Block::Form(form("confirm", "payouts.confirm"))],
            ),
            Block::Panel(
                t("payouts.cancel").to_owned(),
                vec![Block::Form(form("cancel", "payouts.cancel").bad())],
            ),
        ]));
    }
    member.page(payout.reason.clone(), "", blocks)
}

/// `POST /console/admin/payouts/:id/confirm` and `/cancel`.
pub(super) async fn end(
    Operator(member): Operator,
    Path((id, verb)): Path<(String, String)>,
    posted: Posted,
) -> Response {
    let what = match verb.as_str() {
        "confirm" => "confirmed",
        "cancel" => "cancelled",
        _ => return not_found(),
    };
    let (path, page) =
        (format!("/admin/payouts/{}/{verb}", encoded(&id)), format!("{PAGE}/{}", encoded(&id)));
    match post_reason(&member, &path, &posted, &page, what).await {
        Ok(response) => response,
        Err(failure) => member.again(failure, posted, &page, |member| get(Operator(member), Path(id))).await,
    }
}
