//! `island admin payouts`.

use anyhow::Result;
use island_protocol_api::{
    admin::Reason,
    payout::{self, Payout, PayoutDetails},
};

use crate::{
    args::{CreatePayout, OnPayout, Paging, Payouts},
    commands::select,
    output::{Column, Output, text},
    settings::Settings,
};

const COLUMNS: [Column; 7] = [
    Column::of("id").id(),
    Column::of("state"),
    Column::of("accounts").drop(3),
    Column::of("credits"),
    Column::of("until").drop(2),
    Column::of("created").drop(4),
    Column::of("reason").cut().drop(1),
];
const PAYMENTS: [Column; 3] =
    [Column::of("account").id().drop(1), Column::of("e-mail").cut(), Column::of("credits")];

pub(super) async fn run(command: Payouts, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        Payouts::List(page) => list(&page, settings, output).await,
        Payouts::Create(wanted) => create(wanted, settings, output).await,
        Payouts::Show { payout, csv } => show(&payout, csv, settings, output).await,
        Payouts::Confirm(wanted) => confirm(wanted, settings, output).await,
        Payouts::Cancel(wanted) => cancel(wanted, settings, output).await,
    }
}

async fn list(page: &Paging, settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.payouts(page.limit, page.offset).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.data.iter().map(|payout| {
        vec![
            payout.id.to_string(),
            payout.state.as_str().to_owned(),
            payout.accounts.to_string(),
            payout.amount.to_string(),
            output.moment(payout.until),
            output.moment(payout.created_at),
            payout.reason.clone(),
        ]
    });
    output.table(&COLUMNS, rows.collect(), "No payouts.")
}

async fn create(wanted: CreatePayout, settings: &Settings, output: &Output) -> Result<()> {
    let Reason { reason } = wanted.why.into();
    let body = payout::CreatePayout { until: wanted.until, minimum: wanted.minimum, reason };
    let answer = settings.client()?.create_payout(&body).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    print(&answer.value, output)?;
    let id = answer.value.payout.id;
    output.note(&format!("`island admin payouts confirm {id}` once it is paid, or `cancel` it"));
    Ok(())
}

async fn show(payout: &str, csv: bool, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let payout = select::payout(&client, payout).await?;
    if csv {
        return output.piece(&client.payout_csv(payout).await?);
    }
    let answer = client.payout(payout).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    print(&answer.value, output)
}

/// Amounts are exact, as people are paid by them.
fn print(details: &PayoutDetails, output: &Output) -> Result<()> {
    let payout = &details.payout;
    let mut fields = vec![
        ("Id", payout.id.to_string()),
        ("State", payout.state.as_str().to_owned()),
        ("Credits", payout.amount.to_string()),
        ("Until", payout.until.to_string()),
        ("Reason", payout.reason.clone()),
        ("Created", payout.created_at.to_string()),
    ];
    fields.extend(payout.ended_at.map(|ended| ("Ended", ended.to_string())));
    output.fields(&fields)?;
    output.line("")?;
    let rows = details
        .payments
        .iter()
        .map(|payment| vec![payment.account.to_string(), payment.email.clone(), payment.amount.to_string()]);
    output.table(&PAYMENTS, rows.collect(), "No payments.")
}

async fn confirm(wanted: OnPayout, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let payout = select::payout(&client, &wanted.payout).await?;
    let answer = client.confirm_payout(payout, &wanted.why.into()).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let Payout { id, amount, .. } = &answer.value;
    output.line(&format!("payout {id} of {} is confirmed", text::amount(*amount)))
}

async fn cancel(wanted: OnPayout, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let payout = select::payout(&client, &wanted.payout).await?;
    let answer = client.cancel_payout(payout, &wanted.why.into()).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let Payout { id, amount, .. } = &answer.value;
    output.line(&format!("payout {id} is cancelled: {} returned", text::amount(*amount)))
}
