//! `island admin accounts`.

use anyhow::{Result, bail};
use island_protocol::api::admin::{self, AdminAccount};

use crate::{
    args::{Accounts, ChangeCredits, CreateAccount, OnAccount, Paging},
    commands::select,
    output::{Column, Output, text},
    settings::Settings,
};

const COLUMNS: [Column; 7] = [
    Column::of("id").id(),
    Column::of("e-mail").cut(),
    Column::of("credits"),
    Column::of("held").drop(2),
    Column::of("role").drop(3),
    Column::of("created").drop(4),
    Column::of("suspended").cut().drop(1),
];

pub(super) async fn run(command: Accounts, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        Accounts::List(page) => list(&page, settings, output).await,
        Accounts::Create(wanted) => create(wanted, settings, output).await,
        Accounts::Grant(wanted) => change(wanted, true, settings, output).await,
        Accounts::Deduct(wanted) => change(wanted, false, settings, output).await,
        Accounts::Suspend(wanted) => suspend(wanted, settings, output).await,
        Accounts::Resume(wanted) => resume(wanted, settings, output).await,
    }
}

async fn list(page: &Paging, settings: &Settings, output: &Output) -> Result<()> {
    let answer = settings.client()?.accounts(None, page.limit, page.offset).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let rows = answer.value.data.iter().map(|account| {
        vec![
            account.id.to_string(),
            account.email.clone(),
            text::credits(account.credits),
            text::credits(account.held),
            if account.operator { "operator" } else { "member" }.into(),
            output.moment(account.created_at),
            account.suspended.as_ref().map_or_else(|| "-".into(), |suspended| suspended.reason.clone()),
        ]
    });
    output.table(&COLUMNS, rows.collect(), "No accounts.")
}

async fn create(wanted: CreateAccount, settings: &Settings, output: &Output) -> Result<()> {
    let CreateAccount { email, credits, operator } = wanted;
    let body = admin::CreateAccount { email, credits, operator };
    let answer = settings.client()?.create_account(&body).answer().await?;
    let created = &answer.value;
    let Some(secret) = &created.key else {
        // The first answer was lost in transit, and a secret is returned only once.
        bail!(
            "account {} was created, but the secret of its key was lost on the way: \
             `island-coordinator admin key create` makes another",
            created.data.id
        );
    };
    if output.is_json() {
        output.json(&answer.body)?;
    } else {
        output.line(secret)?;
    }
    let data = &created.data;
    output.note(&format!("created {} ({}) with {}", data.email, data.id, text::amount(data.credits)));
    output.warn("this is the only time the key is shown: pass it on safely");
    Ok(())
}

async fn change(wanted: ChangeCredits, is_grant: bool, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let account = select::account(&client, &wanted.account).await?;
    let body = admin::ChangeCredits { amount: wanted.amount, reason: wanted.reason };
    let request =
        if is_grant { client.grant_credits(account, &body) } else { client.deduct_credits(account, &body) };
    let answer = request.answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    let AdminAccount { email, credits, .. } = &answer.value;
    output.line(&format!("{email} has {} now", text::amount(*credits)))
}

async fn suspend(wanted: OnAccount, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let account = select::account(&client, &wanted.account).await?;
    let reason = admin::Reason { reason: wanted.reason };
    let answer = client.suspend_account(account, &reason).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.line(&format!("{} is suspended", answer.value.email))
}

async fn resume(wanted: OnAccount, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let account = select::account(&client, &wanted.account).await?;
    let reason = admin::Reason { reason: wanted.reason };
    let answer = client.resume_account(account, &reason).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.line(&format!("{} is not suspended", answer.value.email))
}
