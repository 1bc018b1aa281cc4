//! Quotas as flags.

use clap::Args;
use island_protocol::credits::MicroCredits;
use island_protocol_api::quota::{QuotaPeriod, Quotas};

use super::values;
use crate::failure::Usage;

/// One limit of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuotaLimit {
    period: QuotaPeriod,
    most: Most,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Most {
    Requests(u64),
    Tokens(u64),
    Credits(MicroCredits),
}

/// Which quotas to set. Without any flag they are shown.
#[derive(Debug, Args)]
pub(crate) struct ChangeQuotas {
    /// Set these quotas instead of those before, such as day.requests=1000: day or month, and requests, tokens or credits;
    /// may be repeated
    #[arg(long = "quota", value_name = "QUOTA", value_parser = limit)]
    limits: Vec<QuotaLimit>,
    /// Remove all quotas
    #[arg(long, conflicts_with = "limits")]
    none: bool,
}

impl ChangeQuotas {
    /// The quotas to set; `None` if they are to be shown.
    pub(crate) fn wanted(&self) -> Result<Option<Quotas>, Usage> {
        if self.limits.is_empty() && !self.none {
            return Ok(None);
        }
        quotas(&self.limits).map(Some)
    }
}

/// The quotas of these limits, none of which may be repeated.
pub(crate) fn quotas(limits: &[QuotaLimit]) -> Result<Quotas, Usage> {
    let mut quotas = Quotas::default();
    for QuotaLimit { period, most } in limits {
        let limits = match period {
            QuotaPeriod::Day => &mut quotas.day,
            QuotaPeriod::Month => &mut quotas.month,
        };
        let (kind, is_repeated) = match *most {
            Most::Requests(most) => ("requests", limits.requests.replace(most).is_some()),
            Most::Tokens(most) => ("tokens", limits.tokens.replace(most).is_some()),
            Most::Credits(most) => ("credits", limits.credits.replace(most).is_some()),
        };
        if is_repeated {
            return Err(Usage(format!("--quota {}.{kind} is given more than once", period.as_str())));
        }
    }
    Ok(quotas)
}

pub(super) fn limit(text: &str) -> Result<QuotaLimit, String> {
    let parsed = text.split_once('=').and_then(|(name, number)| {
        let (period, kind) = name.split_once('.')?;
        let most = match kind {
            "requests" => Most::Requests(number.parse().ok()?),
            "tokens" => Most::Tokens(number.parse().ok()?),
            "credits" => Most::Credits(values::credits_or_none(number).ok()?),
            _ => return None,
        };
        Some(QuotaLimit { period: period.parse().ok()?, most })
    });
    parsed.ok_or_else(|| {
        "must be a period, what is limited and a number, such as day.requests=1000 or month.credits=2.5"
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_add_up_to_quotas() {
        let parse = |all: &[&str]| {
            let limits: Vec<_> = all.iter().map(|text| limit(text).expect("a limit")).collect();
            quotas(&limits)
        };
        let set = parse(&["day.requests=0", "month.tokens=7", "month.credits=2.5"]).expect("quotas");
        assert_eq!((set.day.requests, set.day.tokens, set.month.requests), (Some(0), None, None));
        assert_eq!((set.month.tokens, set.month.credits), (Some(7), Some(MicroCredits(2_500_000))));
        assert_eq!(parse(&[]).expect("none"), Quotas::default());
        assert!(parse(&["day.tokens=1", "month.tokens=1"]).is_ok());
        let error = parse(&["day.tokens=1", "day.tokens=1"]).expect_err("repeated");
        assert_eq!(error.to_string(), "--quota day.tokens is given more than once");
    }

    #[test]
    fn limits_have_a_period_a_kind_and_a_number() {
        for wrong in ["", "day", "day.requests", "requests=1", "year.requests=1", "day.jobs=1"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
        for wrong in
            ["day.requests=", "day.requests=1.5", "day.tokens=-1", "day.credits=-1", "day.credits=NaN"]
        {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
