//! Flags of `island admin cargos`, `maintenance` and `notices`.

use clap::{
    Args, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use island_protocol::ids::Slug;
use island_protocol_api::publication::PublicationState;

use super::Why;
use crate::args::{
    OnPublication, Paging,
    values::{self, Expiry},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Cargos {
    /// All Cargos, and whether new jobs of each are accepted
    List,
    /// Refuse new jobs of a Cargo; its open jobs go on
    Disable(OnCargo),
    /// Accept new jobs of a disabled Cargo again
    Enable(OnCargo),
    /// Cargos that accounts submitted, newest first
    Published {
        /// Only those in this state
        #[arg(long, value_parser = states())]
        state: Option<PublicationState>,
        #[command(flatten)]
        page: Paging,
    },
    /// Show a submitted Cargo with its manifest
    Show(OnPublication),
    /// Serve a submitted Cargo, in place of its version before
    Approve(Review),
    /// Refuse to serve a submitted Cargo, or to serve it any longer; its open jobs go on
    Reject(Review),
}

fn states() -> impl TypedValueParser<Value = PublicationState> {
    let names = PublicationState::ALL.iter().map(|state| state.as_str());
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}

#[derive(Debug, Args)]
pub(crate) struct Review {
    #[command(flatten)]
    pub(crate) publication: OnPublication,
    /// Why, for the audit log; the publisher is shown it
    #[arg(long)]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct OnCargo {
    /// Its slug
    pub(crate) slug: Slug,
    #[command(flatten)]
    pub(crate) why: Why,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Maintenance {
    /// Refuse new jobs in the whole network; open jobs go on
    Start {
        /// Why, for the audit log; everybody is shown it
        #[arg(long)]
        reason: String,
    },
    /// Accept new jobs again
    End(Why),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Notices {
    /// All notices, newest first, also those that have expired
    List,
    /// Show everybody a notice
    Create {
        /// What to show
        text: String,
        /// When it is no longer shown: after a span such as 12h, or at a moment such as 2027-01-01T00:00:00Z
        #[arg(long, value_name = "WHEN", value_parser = values::expiry)]
        until: Option<Expiry>,
    },
    /// No longer show a notice
    Remove {
        /// Its id, or the beginning of its id
        #[arg(value_name = "ID", value_parser = values::id_beginning)]
        notice: String,
    },
}
