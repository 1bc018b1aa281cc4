//! Which Islands may run the job of a request, and which of them comes first.

use island_protocol::ids::{AccountId, HostId};
use island_protocol_api::{
    admin::Trust,
    preferences::{Own, Preferences, Sort},
};

use super::{Candidate, Nearness};

/// How much faster an Island counts, in powers of two, because it holds the beginning of a conversation. A prompt whose beginning is known took
/// 0.1 of the time (`benches`), but only the prompt is faster: an Island that is eight times as fast is better all the same.
const HOLDER_BONUS: i32 = 2;

/// The selection of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selection {
    /// Account of the consumer; `None` in tests of placement.
    pub account: Option<AccountId>,
    pub preferences: Preferences,
    /// The Island that ran the last job of the same conversation: it may have its beginning in memory.
    pub holder: Option<HostId>,
    /// Whether it continues a reply whose form a grammar enforces, which engines of older Islands cannot.
    pub continues_form: bool,
}

impl Selection {
    /// Whether the Island may run the job.
    pub fn allows(&self, island: &Candidate<'_>) -> bool {
        let Preferences { only, ignore, regions, own, trusted, .. } = &self.preferences;
        let is_own = self.is_own(island);
        let region = island.region.unwrap_or_default();
        (only.is_empty() || only.contains(&island.id))
            && !ignore.contains(&island.id)
            && (regions.is_empty() || regions.iter().any(|wanted| wanted.eq_ignore_ascii_case(region)))
            && (*own != Some(Own::Only) || is_own)
            && (!*trusted || is_own || island.trust == Trust::High)
    }

    /// Whether the Island belongs to the account and such Islands come first: then `false`, which is smaller.
    pub(super) fn is_not_first(&self, island: &Candidate<'_>) -> bool {
        self.preferences.own != Some(Own::First) || !self.is_own(island)
    }

    /// How near the files are, as far as that decides before the speed.
    pub(super) fn nearness(&self, nearness: Nearness) -> Nearness {
        match (self.preferences.sort, nearness) {
            // Loading a model takes seconds; downloading one takes minutes.
            (Some(Sort::Throughput), Nearness::OnDisk) => Nearness::Warm,
            _ => nearness,
        }
    }

    /// What is added to the speed of the Island, in powers of two.
    pub(super) fn bonus(&self, island: &Candidate<'_>, nearness: Nearness) -> i32 {
        if self.holder == Some(island.id) && nearness != Nearness::Remote { HOLDER_BONUS } else { 0 }
    }

    fn is_own(&self, island: &Candidate<'_>) -> bool {
        self.account.is_some() && self.account == Some(island.account)
    }
}
