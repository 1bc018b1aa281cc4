//! Flags of `island api-keys`.

use clap::{Args, Subcommand, builder::PossibleValuesParser, builder::TypedValueParser};
use island_protocol::credits::MicroCredits;
use island_protocol_api::key::Scope;

use super::{
    quotas::{self, ChangeQuotas, QuotaLimit},
    values::{self, Expiry},
};

#[derive(Debug, Subcommand)]
pub(crate) enum ApiKeys {
    /// List your keys, without their secrets
    List,
    /// Create a key and print its secret, once
    Create(CreateKey),
    /// Show the quotas of a key and how much of them is used, or change them
    Quotas {
        /// Its id, the beginning of its id, or its name
        #[arg(value_name = "ID")]
        key: String,
        #[command(flatten)]
        change: ChangeQuotas,
    },
    /// Delete a key; it stops working at once
    Delete {
        /// Its id, the beginning of its id, or its name
        #[arg(value_name = "ID")]
        key: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateKey {
    /// Label to know it by
    pub(crate) name: String,
    /// What it may do: read, write; both unless given
    #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',', value_parser = scopes())]
    pub(crate) scopes: Vec<Scope>,
    /// When it stops working: a span such as 30d or 12h, or a moment such as 2027-01-01T00:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = values::expiry)]
    pub(crate) expires: Option<Expiry>,
    /// Most credits it may ever spend
    #[arg(long, value_name = "CREDITS", allow_negative_numbers = true, value_parser = values::credits)]
    pub(crate) spend_cap: Option<MicroCredits>,
    /// A quota such as day.requests=1000: day or month, and requests, tokens or credits; may be repeated
    #[arg(long = "quota", value_name = "QUOTA", value_parser = quotas::limit)]
    pub(crate) quotas: Vec<QuotaLimit>,
}

fn scopes() -> impl TypedValueParser<Value = Scope> {
    PossibleValuesParser::new(Scope::ALL.iter().map(|scope| scope.as_str())).try_map(|name| name.parse())
}
