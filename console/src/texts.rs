//! Every text of the console that is not data, from one file for each language.

use std::sync::LazyLock;

use island_console_blocks::text_file::{self, Texts};
use island_protocol::credits::MicroCredits;

const ENGLISH: &str = include_str!("../texts/en.toml");

static TEXTS: LazyLock<Texts> = LazyLock::new(|| Texts::read(ENGLISH));

/// Phases of a job that have a text; others are shown as the engine names them.
pub(crate) const PHASES: &[&str] = &[
    "wait",
    "fetch",
    "load",
    "loading",
    "prompt",
    "run",
    "denoise",
    "speak",
    "transcribe",
    "line",
    "rate_limited",
    "ended",
];

/// The text of a key, or the key itself where it has no text.
pub(crate) fn t(key: &str) -> &str {
    find(key).unwrap_or(key)
}

/// The name of what an amount is of.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "templates pass references")]
pub(crate) fn unit(credits: &MicroCredits) -> &'static str {
    t(if *credits == MicroCredits::ONE { "unit.credit" } else { "unit.credits" })
}

/// The text of a key of the console, or of the blocks of all pages.
pub(crate) fn find(key: &str) -> Option<&'static str> {
    TEXTS.find(key).or_else(|| island_console_blocks::find(key))
}

/// The text of a key, with `{name}` replaced by values.
pub(crate) fn fill(key: &str, values: &[(&str, &str)]) -> String {
    text_file::fill(t(key), values)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use island_console_blocks::check;

    use super::*;

    #[test]
    fn every_key_that_is_used_has_a_text() {
        let root = Path::new(".");
        let calls = ["t(\"", "fill(\"", "text(\"", "heading(\"", "done(\""];
        let keys = check::keys(&[&root.join("src"), &root.join("templates")], &calls);
        assert!(keys.len() > 100, "{}", keys.len());
        let missing: Vec<_> = keys.iter().filter(|key| find(key).is_none()).collect();
        assert!(missing.is_empty(), "texts/en.toml lacks {missing:?}");
    }

    #[test]
    fn every_text_is_used() {
        // Keys in these sections are made of names: of states, actions and the like.
        const COMPOSED: [&str; 14] = [
            "accounts",
            "action",
            "book",
            "category",
            "done",
            "entry",
            "island",
            "payout",
            "phase",
            "publication",
            "quota",
            "refusal",
            "sign_in",
            "status",
        ];
        let root = Path::new(".");
        let quoted = check::keys(&[&root.join("src"), &root.join("templates")], &["\""]);
        let is_composed = |key: &str| key.split_once('.').is_some_and(|(of, _)| COMPOSED.contains(&of));
        let all = TEXTS.keys().into_iter();
        let unused: Vec<String> = all.filter(|key| !quoted.contains(key) && !is_composed(key)).collect();
        assert!(unused.is_empty(), "nothing shows {unused:?} of texts/en.toml");
    }

    #[test]
    fn every_state_has_a_text() {
        use island_protocol::{cargo::Category, job::JobStatus};
        let mut keys: Vec<String> = JobStatus::ALL.iter().map(|status| format!("status.{status}")).collect();
        keys.extend(Category::ALL.iter().map(|category| format!("category.{}", category.as_str())));
        let states = [
            ("island", &["online", "draining", "paused", "suspended", "offline"][..]),
            ("publication", &["submitted", "approved", "rejected", "withdrawn", "replaced"]),
            ("payout", &["exported", "confirmed", "cancelled"]),
            ("quota", &["day", "month"]),
            (
                "entry",
                &[
                    "grant",
                    "purchase",
                    "deduct",
                    "refund",
                    "hold",
                    "settle",
                    "release",
                    "spent",
                    "earned",
                    "payout",
                    "payout_return",
                ],
            ),
            ("book", &["balance", "holds"]),
            (
                "sign_in",
                &[
                    "failed_expired",
                    "failed_not_confirmed",
                    "failed_not_verified",
                    "failed_not_allowed",
                    "failed_has_account",
                    "failed_unavailable",
                ],
            ),
            (
                "action",
                &[
                    "create_account",
                    "create_key",
                    "grant",
                    "deduct",
                    "suspend",
                    "resume",
                    "revoke_key",
                    "suspend_island",
                    "resume_island",
                    "refund_job",
                    "cancel_job",
                    "close_account",
                    "set_quotas",
                    "create_invitation",
                    "revoke_invitation",
                    "start_maintenance",
                    "end_maintenance",
                    "disable_cargo",
                    "enable_cargo",
                    "annotate_island",
                    "create_notice",
                    "remove_notice",
                    "create_payout",
                    "confirm_payout",
                    "cancel_payout",
                    "approve_cargo",
                    "reject_cargo",
                    "order_pause",
                    "order_drain",
                    "order_resume",
                ],
            ),
            ("phase", PHASES),
            (
                "accounts",
                &[
                    "day_requests",
                    "day_tokens",
                    "day_credits",
                    "month_requests",
                    "month_tokens",
                    "month_credits",
                ],
            ),
        ];
        keys.extend(states.iter().flat_map(|(of, all)| all.iter().map(move |state| format!("{of}.{state}"))));
        let missing: Vec<_> = keys.iter().filter(|key| find(key).is_none()).collect();
        assert!(missing.is_empty(), "texts/en.toml lacks {missing:?}");
    }

    #[test]
    fn values_take_their_places() {
        assert!(ENGLISH.parse::<toml::Table>().is_ok());
        assert_eq!(fill("no.such.{x}.key", &[("x", "other")]), "no.such.other.key");
    }
}
