//! Why Islands cannot take a job.

use std::collections::BTreeMap;

use strum::VariantNames as _;

/// The reason in `waiting` of a job whose Cargo was removed from the catalogue.
pub const UNKNOWN_CARGO: &str = "unknown_cargo";

/// The reason under which operators find jobs that wait while no Island is online.
pub const NO_ISLAND: &str = "no_island";

/// The names of the reasons that waiting jobs may have.
pub fn reason_names() -> impl Iterator<Item = &'static str> {
    Reason::VARIANTS.iter().copied().chain([UNKNOWN_CARGO, NO_ISLAND])
}

/// Whether waiting jobs may have a reason of this name.
pub fn is_reason(name: &str) -> bool {
    reason_names().any(|reason| reason == name)
}

/// Why an Island cannot take a job.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    strum::EnumString,
    strum::VariantNames,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    Offline,
    Draining,
    NoRuntime,
    NoTier,
    NoEgress,
    Price,
    ModelUnreachable,
    NoRam,
    NoVram,
    NoSlot,
    /// It refused the job moments ago.
    Refused,
    /// The request excludes it.
    Preferences,
}

impl Reason {
    /// The name in the field `waiting` of a job.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether waiting may help without a change to the network: memory and slots are freed when jobs end.
    pub fn is_temporary(self) -> bool {
        matches!(self, Self::NoRam | Self::NoVram | Self::NoSlot)
    }

    /// What is true of one Island, and of several.
    fn predicates(self) -> [&'static str; 2] {
        match self {
            Self::Offline => ["is offline", "are offline"],
            Self::Draining => ["takes no new jobs", "take no new jobs"],
            Self::NoRuntime => ["has no working engine for it", "have no working engine for it"],
            Self::NoTier => ["does not allow containers of its tier", "do not allow containers of its tier"],
            Self::NoEgress => {
                ["does not allow the addresses it needs", "do not allow the addresses it needs"]
            }
            Self::Price => ["requires a higher price", "require a higher price"],
            Self::ModelUnreachable => ["cannot reach the model's hub", "cannot reach the model's hub"],
            Self::NoRam => ["has too little free memory", "have too little free memory"],
            Self::NoVram => ["has too little free GPU memory", "have too little free GPU memory"],
            Self::NoSlot => ["is busy", "are busy"],
            Self::Refused => ["refused it", "refused it"],
            Self::Preferences => ["is excluded by the request", "are excluded by the request"],
        }
    }
}

/// The field `waiting` of a job in words: `1 Island cannot reach the model's hub, 2 Islands are busy`.
pub fn in_words(reasons: &BTreeMap<String, u64>) -> String {
    if reasons.contains_key(UNKNOWN_CARGO) {
        return "the catalogue no longer has this Cargo".to_owned();
    }
    if reasons.is_empty() {
        return "no Island is online".to_owned();
    }
    let phrase = |(name, count): (&String, &u64)| {
        let predicates = name.parse::<Reason>().map(Reason::predicates);
        match (count, predicates) {
            (1, Ok([one, _])) => format!("1 Island {one}"),
            (n, Ok([_, several])) => format!("{n} Islands {several}"),
            (n, Err(_)) => format!("{name}: {n}"),
        }
    };
    reasons.iter().map(phrase).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(reasons: &[(&str, u64)]) -> String {
        in_words(&reasons.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect())
    }

    #[test]
    fn reasons_are_phrased_by_their_number() {
        assert_eq!(
            words(&[("model_unreachable", 1), ("no_slot", 2), ("refused", 1)]),
            "1 Island cannot reach the model's hub, 2 Islands are busy, 1 Island refused it"
        );
        assert_eq!(words(&[]), "no Island is online");
        assert_eq!(words(&[(UNKNOWN_CARGO, 1)]), "the catalogue no longer has this Cargo");
    }
}
