//! The menu: which pages there are for whom.

use crate::{
    session::Who,
    texts::t,
    view::{Entry, Group},
};

type Pages = &'static [(&'static str, &'static str)];

/// The page with the alerts of an owner's Islands.
const ISLANDS: &str = "/console/islands";
/// The page with the problems of the network.
const NETWORK: &str = "/console/admin";

const USE: Pages = &[
    ("/console/chat", "nav.chat"),
    ("/console/cargos", "nav.cargos"),
    ("/console/jobs", "nav.jobs"),
    ("/console/usage", "nav.usage"),
    ("/console/ledger", "nav.ledger"),
    ("/console/keys", "nav.keys"),
    ("/console/publications", "nav.publications"),
];
const SHARE: Pages = &[(ISLANDS, "nav.islands"), ("/console/earnings", "nav.earnings")];
const OPERATE: Pages = &[
    (NETWORK, "nav.admin"),
    ("/console/admin/queue", "nav.queue"),
    ("/console/admin/fleet", "nav.fleet"),
    ("/console/admin/accounts", "nav.accounts"),
    ("/console/admin/invitations", "nav.invitations"),
    ("/console/admin/publications", "nav.review"),
    ("/console/admin/cargos", "nav.switches"),
    ("/console/admin/payouts", "nav.payouts"),
    ("/console/admin/audit-log", "nav.audit"),
];
const EXPLORE: Pages =
    &[("/console/market", "nav.market"), ("/console/network", "nav.network"), ("/docs", "nav.docs")];
const VISIT: Pages = &[("/", "nav.home"), ("/console/cargos", "nav.cargos")];

/// The groups of the menu. An entry is current on its page and on those below it.
pub(crate) fn groups(path: &str, who: Option<&Who>) -> Vec<Group> {
    let attention = who.map(|who| who.attention).unwrap_or_default();
    let count = |href: &str| match href {
        ISLANDS => attention.islands,
        NETWORK => attention.network,
        _ => 0,
    };
    let entry = |&(href, text): &(&'static str, &'static str)| Entry {
        href,
        text: t(text),
        is_current: is_current(path, href),
        count: count(href),
    };
    let group = |name: &'static str, pages: Pages| {
        let entries = pages.iter().map(&entry).collect();
        Group { name: t(name), entries }
    };
    match who {
        None => vec![group("nav.visit", VISIT), group("nav.explore", EXPLORE)],
        Some(who) => {
            let mut groups = vec![group("nav.use", USE), group("nav.share", SHARE)];
            if who.operator {
                groups.push(group("nav.operate", OPERATE));
            }
            groups.push(group("nav.explore", EXPLORE));
            groups
        }
    }
}

fn is_current(path: &str, href: &str) -> bool {
    let is_root = matches!(href, "/" | NETWORK);
    path == href || (!is_root && path.strip_prefix(href).is_some_and(|rest| rest.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use island_protocol::{
        credits::MicroCredits,
        ids::{AccountId, ApiKeyId},
    };
    use uuid::Uuid;

    use super::*;
    use crate::session::Attention;

    fn counts(operator: bool) -> Vec<(&'static str, usize)> {
        let who = Who {
            account: AccountId(Uuid::nil()),
            email: "ada@example.org".to_owned(),
            credits: MicroCredits::ZERO,
            operator,
            key: ApiKeyId(Uuid::nil()),
            scopes: Vec::new(),
            attention: Attention { islands: 2, network: 1 },
        };
        let entries = groups("/console/chat", Some(&who)).into_iter().flat_map(|group| group.entries);
        entries.filter(|entry| entry.count > 0).map(|entry| (entry.href, entry.count)).collect()
    }

    #[test]
    fn the_menu_counts_what_needs_attention() {
        assert_eq!(counts(false), [(ISLANDS, 2)]);
        assert_eq!(counts(true), [(ISLANDS, 2), (NETWORK, 1)]);
    }
}
