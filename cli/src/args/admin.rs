//! Flags of `island admin`.

mod invitations;
mod network;
mod payouts;

use clap::{
    Args, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use island_protocol::{credits::MicroCredits, ids::JobId};
use island_protocol_api::admin::{Reason, Trust};

pub(crate) use self::{
    invitations::{CreateInvitation, Invitations},
    network::{Cargos, Maintenance, Notices, OnCargo, Review},
    payouts::{CreatePayout, OnPayout, Payouts},
};
use super::{Paging, StatementOptions, quotas::ChangeQuotas, values};

#[derive(Debug, Subcommand)]
pub(crate) enum Admin {
    /// List, create, suspend, resume and close accounts, change their credits and quotas
    #[command(subcommand)]
    Accounts(Accounts),
    /// List and revoke the keys of any account
    #[command(subcommand)]
    Keys(AccountKeys),
    /// List Islands with their accounts, suspend, resume and annotate them
    #[command(subcommand)]
    Islands(Islands),
    /// Show the jobs that wait for an Island, and why
    Queue(QueueOptions),
    /// List Cargos, disable and enable them, and review those that accounts submit
    #[command(subcommand)]
    Cargos(Cargos),
    /// Start and end the maintenance of the network
    #[command(subcommand)]
    Maintenance(Maintenance),
    /// List, create and remove notices to everybody
    #[command(subcommand)]
    Notices(Notices),
    /// List, create and revoke invitations, with which accounts are created
    #[command(subcommand)]
    Invitations(Invitations),
    /// List, create, show, confirm and cancel payouts of earnings
    #[command(subcommand)]
    Payouts(Payouts),
    /// Cancel a job of any account; its consumer reads that an operator did it
    Cancel(OnJob),
    /// Return what a job was charged, once; the owners who have earned it keep it
    Refund(OnJob),
    /// Show what operators did, newest first
    Log(AuditLog),
}

/// A reason that only operators see.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Why, for the audit log
    #[arg(long)]
    reason: String,
}

impl From<Why> for Reason {
    fn from(why: Why) -> Self {
        Self { reason: why.reason }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Islands {
    /// Islands that have not left, oldest first
    List(ListIslands),
    /// Give an Island no new jobs; those that it runs go on
    Suspend(OnIsland),
    /// Give a suspended Island jobs again
    Resume(OnIsland),
    /// Set the trust level of an Island, or a note about it
    Annotate(AnnotateIsland),
}

#[derive(Debug, Args)]
pub(crate) struct AnnotateIsland {
    /// Its id, the beginning of its id, or its name
    #[arg(value_name = "ID")]
    pub(crate) island: String,
    /// Low: it gets only jobs that no other Island can take now
    #[arg(long, value_parser = trusts(), required_unless_present = "note")]
    pub(crate) trust: Option<Trust>,
    /// What other operators should know; empty removes it
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    #[command(flatten)]
    pub(crate) why: Why,
}

fn trusts() -> impl TypedValueParser<Value = Trust> {
    let known = [Trust::Low, Trust::Normal, Trust::High].map(Trust::as_str);
    PossibleValuesParser::new(known).try_map(|name| name.parse())
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
pub(crate) struct OnJob {
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
    Grant(GrantCredits),
    /// Take credits that an account may spend
    Deduct(ChangeCredits),
    /// Refuse all keys of an account; its open jobs go on
    Suspend(OnAccount),
    /// Accept the keys of a suspended account again
    Resume(OnAccount),
    /// Show the quotas of an account and how much of them is used, or change them
    Quotas(AccountQuotas),
    /// What an account spent and earned in a month
    Statement {
        /// Id or e-mail address
        account: String,
        #[command(flatten)]
        options: StatementOptions,
    },
    /// Close an account without credits, open jobs and Islands, for good
    Close {
        /// Id or e-mail address
        account: String,
        #[command(flatten)]
        why: Why,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AccountQuotas {
    /// Id or e-mail address
    pub(crate) account: String,
    #[command(flatten)]
    pub(crate) change: ChangeQuotas,
    /// Why they are changed, for the audit log
    #[arg(long)]
    pub(crate) reason: Option<String>,
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
pub(crate) struct GrantCredits {
    #[command(flatten)]
    pub(crate) change: ChangeCredits,
    /// The account has paid for them: owners who earn them may be paid out
    #[arg(long)]
    pub(crate) bought: bool,
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
pub(crate) struct QueueOptions {
    /// Only jobs of this account: its id or e-mail address
    #[arg(long)]
    pub(crate) account: Option<String>,
    /// Only jobs of this Cargo
    #[arg(long, value_name = "SLUG")]
    pub(crate) cargo: Option<String>,
    /// Only jobs that wait for this reason, such as no_slot
    #[arg(long)]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) page: Paging,
}

#[derive(Debug, Args)]
pub(crate) struct AuditLog {
    /// Only what was about this account: its id or e-mail address
    #[arg(long)]
    pub(crate) account: Option<String>,
    #[command(flatten)]
    pub(crate) page: Paging,
}
