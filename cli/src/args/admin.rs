//! Flags of `island admin`.

use clap::{Args, Subcommand};
use island_protocol::{credits::MicroCredits, ids::JobId};

use super::{Paging, values};

#[derive(Debug, Subcommand)]
pub(crate) enum Admin {
    /// List, create, suspend and resume accounts, and change their credits
    #[command(subcommand)]
    Accounts(Accounts),
    /// List and revoke the keys of any account
    #[command(subcommand)]
    Keys(AccountKeys),
    /// List Islands with their accounts, suspend and resume them
    #[command(subcommand)]
    Islands(Islands),
    /// Return what a job was charged, once; the owners who have earned it keep it
    Refund(Refund),
    /// Show what operators did, newest first
    Log(AuditLog),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Islands {
    /// Islands that have not left, oldest first
    List(ListIslands),
    /// Give an Island no new jobs; those that it runs go on
    Suspend(OnIsland),
    /// Give a suspended Island jobs again
    Resume(OnIsland),
}

#[derive(Debug, Args)]
pub(crate) struct ListIslands {
    /// Only those of this account: its id or e-mail address
    #[arg(long)]
    pub(crate) account: Option<String>,
    #[command(flatten)]
    pub(crate) page: Paging,
}

#[derive(Debug, Args)]
pub(crate) struct OnIsland {
    /// Its id, the beginning of its id, or its name
    #[arg(value_name = "ID")]
    pub(crate) island: String,
    /// Why, for the audit log
    #[arg(long)]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct Refund {
    /// Id of the job
    pub(crate) job: JobId,
    /// Why, for the audit log
    #[arg(long)]
    pub(crate) reason: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Accounts {
    /// All accounts, oldest first
    List(Paging),
    /// Create an account and print its first key
    Create(CreateAccount),
    /// Give an account credits
    Grant(ChangeCredits),
    /// Take credits that an account may spend
    Deduct(ChangeCredits),
    /// Refuse all keys of an account; its open jobs go on
    Suspend(OnAccount),
    /// Accept the keys of a suspended account again
    Resume(OnAccount),
}

#[derive(Debug, Args)]
pub(crate) struct CreateAccount {
    /// E-mail address that no other account has
    pub(crate) email: String,
    /// Credits that it begins with [default: those that the coordinator gives]
    #[arg(long, value_name = "CREDITS", allow_negative_numbers = true, value_parser = values::credits)]
    pub(crate) credits: Option<MicroCredits>,
    /// Its keys may do what operators do
    #[arg(long)]
    pub(crate) operator: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ChangeCredits {
    /// Id or e-mail address
    pub(crate) account: String,
    /// Credits, more than 0
    #[arg(value_name = "CREDITS", allow_negative_numbers = true, value_parser = values::credits)]
    pub(crate) amount: MicroCredits,
    /// Why, for the audit log
    #[arg(long)]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct OnAccount {
    /// Id or e-mail address
    pub(crate) account: String,
    /// Why, for the audit log; the account is shown it
    #[arg(long)]
    pub(crate) reason: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AccountKeys {
    /// The keys of an account that are not revoked
    List {
        /// Id or e-mail address
        account: String,
    },
    /// Revoke a key: it stops working at once
    Revoke {
        /// Id of the key
        key: String,
        /// Why, for the audit log
        #[arg(long)]
        reason: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AuditLog {
    /// Only what was about this account: its id or e-mail address
    #[arg(long)]
    pub(crate) account: Option<String>,
    #[command(flatten)]
    pub(crate) page: Paging,
}
