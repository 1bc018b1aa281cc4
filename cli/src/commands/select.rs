//! Which job, key, Island or other thing a person means: by its id, the beginning of its id, or its name.

use anyhow::Result;
use island_coordinator_client::{Client, JobFilter};
use island_protocol::ids::{
    AccountId, ApiKeyId, BatchId, HostId, InvitationId, JobId, NoticeId, PayoutId, PublicationId,
};
use island_protocol_api::{batch::PREFIX as BATCH, publication::Publication};

use crate::failure::{NoMatch, Usage};

/// Entries that the beginning of an id is compared with: one page.
const PAGE: u64 = 100;

/// The one of `all`, each with its id and name, that `text` selects. `what` names them in errors.
fn one<T>(what: &str, text: &str, all: impl IntoIterator<Item = (T, String, String)>) -> Result<T> {
    let beginning = text.to_ascii_lowercase();
    let is_meant = |(_, id, name): &(T, String, String)| {
        name == text || (beginning.len() >= 4 && id.starts_with(&beginning))
    };
    let mut found = all.into_iter().filter(is_meant);
    match (found.next(), found.count()) {
        (Some((one, ..)), 0) => Ok(one),
        (Some(_), others) => {
            let (count, all) = (others + 1, plural(what));
            Err(Usage(format!("'{text}' selects {count} {all}: give the id of one")).into())
        }
        (None, _) => {
            Err(NoMatch(format!("'{text}' is neither the name nor the beginning of an id of any {what}"))
                .into())
        }
    }
}

fn plural(noun: &str) -> String {
    let ending = if noun.ends_with("ch") { "es" } else { "s" };
    format!("{noun}{ending}")
}

/// The job with this id, or the one of the last hundred whose id begins so.
pub(super) async fn job(client: &Client, text: &str) -> Result<JobId> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let jobs = client.jobs(&JobFilter::default(), PAGE, 0).await?;
    one_of_last("job", text, jobs.data.iter().map(|job| job.id))
}

/// The batch with this id, or the one of the last hundred whose id begins so, with or without `batch_`.
pub(super) async fn batch(client: &Client, text: &str) -> Result<BatchId> {
    let text = text.strip_prefix(BATCH).unwrap_or(text);
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let batches = client.batches(PAGE, None).await?;
    let ids = batches.data.iter().filter_map(|batch| batch.id.strip_prefix(BATCH)?.parse().ok());
    one_of_last("batch", text, ids)
}

/// The notice with this id, or the one whose id begins so.
pub(super) async fn notice(client: &Client, text: &str) -> Result<NoticeId> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let notices = client.notices().await?;
    one_of_last("notice", text, notices.iter().map(|notice| notice.id))
}

/// The invitation with this id, or the one of the last hundred whose id begins so.
pub(super) async fn invitation(client: &Client, text: &str) -> Result<InvitationId> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let invitations = client.invitations(PAGE, 0).await?;
    one_of_last("invitation", text, invitations.data.iter().map(|invitation| invitation.id))
}

/// The payout with this id, or the one of the last hundred whose id begins so.
pub(super) async fn payout(client: &Client, text: &str) -> Result<PayoutId> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let payouts = client.payouts(PAGE, 0).await?;
    one_of_last("payout", text, payouts.data.iter().map(|payout| payout.id))
}

/// The publication of this account with this id, or the one of the last hundred whose id begins so.
pub(super) async fn publication(client: &Client, text: &str) -> Result<PublicationId> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    of_publications(text, &client.publications(PAGE, 0).await?.data)
}

/// The publication of any account with this id, or the one of the last hundred whose id begins so.
pub(super) async fn any_publication(client: &Client, text: &str) -> Result<PublicationId> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    of_publications(text, &client.all_publications(None, PAGE, 0).await?.data)
}

fn of_publications(text: &str, all: &[Publication]) -> Result<PublicationId> {
    one_of_last("publication", text, all.iter().map(|publication| publication.id))
}

/// The one of these entries without names whose id begins so.
fn one_of_last<T: ToString>(what: &str, text: &str, ids: impl Iterator<Item = T>) -> Result<T> {
    let all: Vec<_> =
        ids.map(|id| (id.to_string(), id)).map(|(text, id)| (id, text, String::new())).collect();
    let count = all.len();
    one(what, text, all).map_err(|error| match error.downcast::<NoMatch>() {
        Ok(_) => NoMatch(format!("no id of the last {count} {} begins with '{text}'", plural(what))).into(),
        Err(error) => error,
    })
}

/// The API key with this id, or the one whose id begins so or that has this name.
pub(super) async fn key(client: &Client, text: &str) -> Result<ApiKeyId> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let keys = client.api_keys().await?;
    one("key", text, keys.into_iter().map(|key| (key.id, key.id.to_string(), key.name)))
}

/// The Island with this id, or the one whose id begins so or that has this name.
pub(super) async fn host(client: &Client, text: &str) -> Result<HostId> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let hosts = client.hosts().await?;
    one("Island", text, hosts.into_iter().map(|host| (host.id, host.id.to_string(), host.name)))
}

/// The account with this id or e-mail address.
pub(super) async fn account(client: &Client, text: &str) -> Result<AccountId> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let accounts = client.accounts(Some(text), 1, 0).await?;
    let found = accounts.data.first().map(|account| account.id);
    found.ok_or_else(|| {
        NoMatch(format!("'{text}' is neither the id nor the e-mail address of an account")).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_selected_or_none() {
        let all = [(1, "0190aaaa", "ci"), (2, "0190bbbb", "ci"), (3, "0291aaaa", "attic")];
        let select = |text: &str| {
            one("key", text, all.iter().map(|(n, id, name)| (*n, (*id).to_owned(), (*name).to_owned())))
        };
        assert_eq!(select("attic").ok(), Some(3));
        assert_eq!(select("0190B").ok(), Some(2));
        assert!(select("ci").expect_err("two").is::<Usage>());
        assert!(select("0190").expect_err("two").is::<Usage>());
        assert!(select("029").expect_err("too short").is::<NoMatch>());
        assert!(select("").expect_err("nothing").is::<NoMatch>());
    }
}
