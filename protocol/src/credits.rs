//! Money: integer micro-credits internally, a JSON number of credits on the wire.

use std::{
    fmt,
    iter::Sum,
    ops::{Add, AddAssign, Neg, Sub},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An amount in millionths of a credit. Integers, so that sums are exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroCredits(pub i64);

impl MicroCredits {
    /// One credit.
    pub const ONE: Self = Self(1_000_000);
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// Returns whether it is nothing.
    pub fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// Converts whole credits.
    pub fn from_credits(credits: i64) -> Self {
        Self(credits * 1_000_000)
    }

    /// Returns `self * numerator / denominator`, rounded up, so that a share is never free, and at most `self`.
    #[must_use]
    pub fn share(self, numerator: u64, denominator: u64) -> Self {
        if denominator == 0 || numerator >= denominator {
            return self;
        }
        let product = i128::from(self.0) * i128::from(numerator);
        Self(((product + i128::from(denominator) - 1) / i128::from(denominator)) as i64)
    }
}

impl Add for MicroCredits {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for MicroCredits {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for MicroCredits {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Neg for MicroCredits {
    type Output = Self;
    fn neg(self) -> Self {
        Self(-self.0)
    }
}

impl Sum for MicroCredits {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for MicroCredits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let whole = self.0.unsigned_abs() / 1_000_000;
        let rest = format!("{:06}", self.0.unsigned_abs() % 1_000_000);
        let rest = rest.trim_end_matches('0');
        let dot = if rest.is_empty() { "" } else { "." };
        write!(f, "{sign}{whole}{dot}{rest}")
    }
}

impl Serialize for MicroCredits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 % 1_000_000 == 0 {
            serializer.serialize_i64(self.0 / 1_000_000)
        } else {
            // A conversion to a float and back is exact below 2^51 micro-credits: two billion credits.
            serializer.serialize_f64(self.0 as f64 / 1e6)
        }
    }
}

impl<'de> Deserialize<'de> for MicroCredits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let credits = f64::deserialize(deserializer)?;
        let micro = (credits * 1e6).round();
        if !micro.is_finite() || micro.abs() > 2.0e15 {
            return Err(de::Error::custom("amount of credits out of range"));
        }
        Ok(Self(micro as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn json_round_trip(micro in -2_000_000_000_000_000_i64..2_000_000_000_000_000) {
            let text = serde_json::to_string(&MicroCredits(micro)).expect("serialize");
            prop_assert_eq!(serde_json::from_str::<MicroCredits>(&text).expect("parse"), MicroCredits(micro));
        }

        #[test]
        fn a_share_is_never_more_than_the_whole(
            total in 0_i64..1_000_000_000_000, part in any::<u64>(), whole in any::<u64>()
        ) {
            let share = MicroCredits(total).share(part, whole);
            prop_assert!(share.0 >= 0 && share.0 <= total);
        }
    }

    #[test]
    fn reads_as_a_number() {
        assert_eq!(serde_json::to_string(&MicroCredits(1_300)).expect("json"), "0.0013");
        assert_eq!(serde_json::to_string(&MicroCredits::from_credits(2)).expect("json"), "2");
        assert_eq!(MicroCredits(-1_500_000).to_string(), "-1.5");
    }
}
