//! What another value of a setting does, for tests that change every setting that an engine reads.

/// What another value of a key does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The results are the same.
    Same,
    /// A result is another one.
    Another,
    /// The model or a job is refused, with this message.
    Refused(String),
}

/// What another value of a key does by the lists of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// A result is another one.
    Another,
    /// It is refused by the name of the key.
    RefusedByName,
    /// The model or its other settings no longer fit: what is refused is what it leads to.
    Misfit,
}

impl Outcome {
    /// Why it is another outcome than the expected one of this key, if it is.
    pub fn differs(&self, key: &str, expected: Expected) -> Option<String> {
        match (self, expected) {
            (Self::Same, _) => Some("the result is the same".to_owned()),
            (Self::Another, Expected::Another) | (Self::Refused(_), Expected::Misfit) => None,
            (Self::Another, _) => Some("it gives a result".to_owned()),
            (Self::Refused(why), Expected::RefusedByName) => {
                (!why.contains(key)).then(|| format!("the refusal does not name it: {why}"))
            }
            (Self::Refused(why), Expected::Another) => Some(format!("it is refused: {why}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_expected_outcome_does_not_differ() {
        let named = || Outcome::Refused("stride = 0 is not supported".to_owned());
        let other = || Outcome::Refused("the shapes do not fit".to_owned());
        for (outcome, expected, fits) in [
            (Outcome::Same, Expected::Another, false),
            (Outcome::Same, Expected::RefusedByName, false),
            (Outcome::Same, Expected::Misfit, false),
            (Outcome::Another, Expected::Another, true),
            (Outcome::Another, Expected::RefusedByName, false),
            (Outcome::Another, Expected::Misfit, false),
            (named(), Expected::Another, false),
            (named(), Expected::RefusedByName, true),
            (named(), Expected::Misfit, true),
            (other(), Expected::RefusedByName, false),
            (other(), Expected::Misfit, true),
        ] {
            assert_eq!(outcome.differs("stride", expected).is_none(), fits, "{outcome:?} {expected:?}");
        }
    }
}
