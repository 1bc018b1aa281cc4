//! `admin`: accounts and keys, directly in the database.

use std::{fmt::Write as _, process::ExitCode};

use anyhow::Context as _;
use clap::Subcommand;
use island_protocol::{credits::MicroCredits, ids::AccountId};

use super::print;
use island_coordinator_domain::{clock::Clock, config::Config};
use island_coordinator_storage::{
    Store, account, commit, ledger, progress,
    setup::{create_account, create_key},
};

/// Commands of `admin`.
#[derive(Debug, Subcommand)]
pub enum AdminCommand {
    /// Accounts.
    #[command(subcommand)]
    Account(AccountCommand),
    /// API keys.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Check the ledger: all entries sum to zero, every balance is the sum of its entries, and what is held are the prices of open jobs.
    Audit,
    /// State that this machine's clock is right, so that data of ended jobs is deleted and summed again after a long stop.
    ConfirmClock,
}

/// Commands for accounts.
#[derive(Debug, Subcommand)]
pub enum AccountCommand {
    /// Create an account and print its id.
    Create {
        /// E-mail address, unique.
        #[arg(long)]
        email: String,
        /// Operator: may read all messages of the fabric.
        #[arg(long)]
        operator: bool,
        /// Initial credits.
        #[arg(long)]
        credits: Option<u32>,
    },
    /// Print all accounts: id, e-mail address, role, credits.
    List,
}

/// Commands for keys.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Create a key and print it; it cannot be shown again.
    Create {
        /// Id or e-mail address of the account.
        #[arg(long)]
        account: String,
        /// Label.
        #[arg(long)]
        name: String,
    },
}

pub(super) async fn run(config: &Config, command: &AdminCommand) -> anyhow::Result<ExitCode> {
    let is_first = matches!(command, AdminCommand::Account(AccountCommand::Create { .. }));
    let database = &config.database;
    let store = if is_first { Store::open(database).await } else { Store::open_existing(database).await }?;
    let now = Clock::System.now();
    match command {
        AdminCommand::Account(AccountCommand::Create { email, operator, credits }) => {
            let credits = credits.unwrap_or(config.accounts.signup_credits);
            let id =
                create_account(&store, email, *operator, MicroCredits::from_credits(credits.into()), now)
                    .await?;
            print(&format!("{id}\n"));
        }
        AdminCommand::Account(AccountCommand::List) => print(&list_accounts(&store).await?),
        AdminCommand::Key(KeyCommand::Create { account, name }) => {
            let account = find(&store, account).await?;
            print(&format!("{}\n", create_key(&store, account, name, now).await?));
        }
        AdminCommand::Audit => return check_books(store).await,
        AdminCommand::ConfirmClock => {
            let mut tx = store.begin().await?;
            progress::see(&mut tx, now.unix_ms()).await?;
            commit(tx).await?;
            print(&format!("deletions and sums go by this machine's clock: {now}\n"));
        }
    }
    store.close().await;
    Ok(ExitCode::SUCCESS)
}

async fn check_books(store: Store) -> anyhow::Result<ExitCode> {
    let audit = ledger::audit(store.reader()).await?;
    store.close().await;
    print(&format!("{audit}\n"));
    Ok(if audit == ledger::Audit::SOUND { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The account with this id or e-mail address.
async fn find(store: &Store, name: &str) -> anyhow::Result<AccountId> {
    if !name.contains('@') {
        return name
            .parse()
            .with_context(|| format!("{name:?} is neither the id nor the e-mail address of an account"));
    }
    let accounts = account::list(store.reader()).await?;
    let found = accounts.iter().find(|account| account.email == name);
    found.map(|account| account.id).with_context(|| format!("there is no account of {name}"))
}

async fn list_accounts(store: &Store) -> anyhow::Result<String> {
    let mut rows = vec![["id", "e-mail", "role", "credits"].map(str::to_owned)];
    for account in account::list(store.reader()).await? {
        let credits = ledger::balance(store.reader(), account.id).await?;
        let role = if account.operator { "operator" } else { "member" };
        rows.push([account.id.to_string(), account.email, role.to_owned(), credits.to_string()]);
    }
    Ok(table(&rows))
}

/// Rows with columns of the same width.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut lines = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{:width$}", printable(cell)));
        let _ = writeln!(lines, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    lines
}

/// Replaces each control character, so that a text of an account cannot control the operator's terminal.
fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_does_not_control_the_terminal() {
        let rows =
            [["e\u{9b}2J@example.org".to_owned(), "1".to_owned()], ["short".to_owned(), "2".to_owned()]];
        assert_eq!(table(&rows), "e\u{fffd}2J@example.org  1\nshort             2\n");
    }
}
