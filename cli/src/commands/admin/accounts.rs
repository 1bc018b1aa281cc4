//! `island admin accounts`.

use anyhow::{Result, bail};
use island_protocol_api::{
    admin::{self, AdminAccount, Reason},
    quota::SetQuotas,
};

use crate::{
    args::{AccountQuotas, Accounts, ChangeCredits, CreateAccount, GrantCredits, OnAccount, Paging, Why},
    commands::{quotas, select, statement},
    failure::Usage,
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
    Column::of("state").cut().drop(1),
];

pub(super) async fn run(command: Accounts, settings: &Settings, output: &Output) -> Result<()> {
    match command {
        Accounts::List(page) => list(&page, settings, output).await,
        Accounts::Create(wanted) => create(wanted, settings, output).await,
        Accounts::Grant(GrantCredits { change: wanted, bought }) => {
            change(wanted, Some(bought), settings, output).await
        }
        Accounts::Deduct(wanted) => change(wanted, None, settings, output).await,
        Accounts::Suspend(wanted) => suspend(wanted, settings, output).await,
        Accounts::Resume(wanted) => resume(wanted, settings, output).await,
        Accounts::Quotas(wanted) => change_quotas(wanted, settings, output).await,
        Accounts::Statement { account, options } => {
            let client = settings.client()?;
            let account = select::account(&client, &account).await?;
            statement::show(&client, Some(account), &options, output).await
        }
        Accounts::Close { account, why } => close(&account, why, settings, output).await,
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
            state(account),
        ]
    });
    output.table(&COLUMNS, rows.collect(), "No accounts.")
}

fn state(account: &AdminAccount) -> String {
    match (&account.closed_at, &account.suspended) {
        (Some(_), _) => "closed".into(),
        (None, Some(suspended)) => format!("suspended: {}", suspended.reason),
        (None, None) => "open".into(),
    }
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

/// Grants credits, bought or not, or deducts them.
async fn change(
    wanted: ChangeCredits,
    grant: Option<bool>,
    settings: &Settings,
    output: &Output,
) -> Result<()> {
    let client = settings.client()?;
    let account = select::account(&client, &wanted.account).await?;
    let ChangeCredits { amount, reason, .. } = wanted;
    let request = match grant {
        Some(bought) => client.grant_credits(account, &admin::GrantCredits { amount, reason, bought }),
        None => client.deduct_credits(account, &admin::ChangeCredits { amount, reason }),
    };
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

async fn change_quotas(wanted: AccountQuotas, settings: &Settings, output: &Output) -> Result<()> {
    let change = match (wanted.change.wanted()?, wanted.reason) {
        (Some(quotas), Some(reason)) => Some(SetQuotas { quotas, reason }),
        (None, None) => None,
        (Some(_), None) => return Err(Usage("--quota and --none require --reason".into()).into()),
        (None, Some(_)) => return Err(Usage("--reason requires --quota or --none".into()).into()),
    };
    let client = settings.client()?;
    let account = select::account(&client, &wanted.account).await?;
    let request = match change {
        Some(change) => client.set_quotas_of_account(account, &change),
        None => client.quotas_of_account(account),
    };
    let answer = request.answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    quotas::table(&answer.value, output)
}

async fn close(account: &str, why: Why, settings: &Settings, output: &Output) -> Result<()> {
    let client = settings.client()?;
    let account = select::account(&client, account).await?;
    let answer = client.close_account(account, &Reason::from(why)).answer().await?;
    if output.is_json() {
        return output.json(&answer.body);
    }
    output.line(&format!("{} is closed for good", answer.value.email))
}
