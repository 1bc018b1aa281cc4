//! The menu: which pages there are for whom.

use crate::{
    session::Who,
    texts::t,
    view::{Entry, Group},
};

type Pages = &'static [(&'static str, &'static str)];

const USE: Pages = &[
    ("/console/chat", "nav.chat"),
    ("/console/cargos", "nav.cargos"),
    ("/console/jobs", "nav.jobs"),
    ("/console/usage", "nav.usage"),
    ("/console/ledger", "nav.ledger"),
    ("/console/keys", "nav.keys"),
    ("/console/publications", "nav.publications"),
];
const SHARE: Pages = &[("/console/islands", "nav.islands"), ("/console/earnings", "nav.earnings")];
const OPERATE: Pages = &[
    ("/console/admin", "nav.admin"),
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
    let group = |name: &'static str, pages: Pages| Group {
        name: t(name),
        entries: pages
            .iter()
            .map(|(href, text)| Entry { href, text: t(text), is_current: is_current(path, href) })
            .collect(),
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
    let is_root = matches!(href, "/" | "/console/admin");
    path == href || (!is_root && path.strip_prefix(href).is_some_and(|rest| rest.starts_with('/')))
}
