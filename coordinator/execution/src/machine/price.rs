//! What a job costs, by what was delivered, and which Islands earn it.
//!
//! A completed job costs its price, or the price of its tokens where these have prices: of its prompt, which was computed, of reasoning
//! and of stop texts, whether or not an answer followed. A job that fails by an Island's fault costs nothing. Any other end costs a share of
//! the price: at least half of it once output was delivered, because a consumer who has read what was wanted could
//! otherwise end every job himself and pay a fraction. Where tokens have prices, such an end costs the tokens that were
//! delivered.

use std::time::Duration;

use island_protocol::{cargo::TokenPrices, credits::MicroCredits, ids::HostId};

use island_coordinator_domain::job::Part;

/// How a job ended, as far as its price depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The result was delivered.
    Completed,
    /// The consumer cancelled.
    Cancelled,
    /// The job reached a limit or failed by its own fault.
    OwnFault,
    /// An Island or the network failed.
    NetworkFault,
}

/// What was delivered and done until the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Delivery {
    /// Whether the consumer may have seen part of the result.
    pub has_output: bool,
    /// Whether the result is an empty text: nothing was delivered, no reasoning, and no stop text ended it.
    pub is_empty: bool,
    /// Whether the prompt was computed, and not only counted.
    pub has_prompt: bool,
    /// Tokens of the prompt, as the Island reports them, within what the input can have.
    pub prompt_tokens: u64,
    /// Model tokens delivered.
    pub tokens: u64,
    /// Requested tokens.
    pub max_tokens: Option<u64>,
    /// How long the current attempt has executed.
    pub executed: Duration,
    /// Time limit of an attempt.
    pub time_limit: Duration,
}

/// What a job may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tariff {
    /// Its maximum cost: what is held.
    pub held: MicroCredits,
    /// What it costs apart from its tokens, if these have prices.
    pub base: MicroCredits,
    pub tokens: TokenPrices,
}

/// The charged part of what is held.
pub(super) fn charge(tariff: &Tariff, ending: Ending, delivery: &Delivery) -> MicroCredits {
    if tariff.tokens.is_zero() {
        charge_job(tariff.held, ending, delivery)
    } else {
        charge_tokens(tariff, ending, delivery)
    }
}

fn charge_tokens(tariff: &Tariff, ending: Ending, delivery: &Delivery) -> MicroCredits {
    let of = |output| {
        MicroCredits(tariff.base.0.saturating_add(tariff.tokens.of(delivery.prompt_tokens, output).0))
    };
    let cost = match ending {
        Ending::Completed if delivery.has_prompt || !delivery.is_empty => of(delivery.tokens),
        Ending::Cancelled | Ending::OwnFault if delivery.has_output => of(delivery.tokens),
        // The prompt may have been computed.
        Ending::Cancelled => charge_job(of(0).min(tariff.held), ending, delivery),
        Ending::Completed | Ending::OwnFault | Ending::NetworkFault => MicroCredits::ZERO,
    };
    cost.min(tariff.held)
}

fn charge_job(price: MicroCredits, ending: Ending, delivery: &Delivery) -> MicroCredits {
    let half = MicroCredits(price.0 / 2);
    match ending {
        Ending::Completed if !delivery.is_empty => price,
        Ending::Cancelled | Ending::OwnFault if delivery.has_output => {
            let tokens = delivery.max_tokens.map(|max| price.share(delivery.tokens, max));
            tokens.unwrap_or(half).max(half)
        }
        // An engine that delivers nothing before its end has worked all the same.
        Ending::Cancelled => {
            let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
            price.share(ms(delivery.executed), ms(delivery.time_limit).max(1)).min(half)
        }
        Ending::Completed | Ending::OwnFault | Ending::NetworkFault => MicroCredits::ZERO,
    }
}

/// Divides `charged` among the Islands by their parts; the last one gets what rounding leaves. Empty without parts.
pub(super) fn divide(charged: MicroCredits, parts: &[Part]) -> Vec<(HostId, MicroCredits)> {
    let Some((last, others)) = parts.split_last() else { return Vec::new() };
    let total = parts.iter().fold(0_u64, |total, part| total.saturating_add(part.units)).max(1);
    let mut rest = charged;
    let mut shares: Vec<(HostId, MicroCredits)> = Vec::with_capacity(parts.len());
    for part in others {
        let share = charged.share(part.units, total).min(rest);
        rest = rest - share;
        shares.push((part.host, share));
    }
    shares.push((last.host, rest));
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn delivery() -> impl Strategy<Value = Delivery> {
        (any::<(bool, bool, bool)>(), any::<[u64; 2]>(), any::<Option<u64>>(), 0_u64..100_000, 1_u64..100_000)
            .prop_map(
                |(
                    (has_output, is_empty, has_prompt),
                    [prompt_tokens, tokens],
                    max_tokens,
                    executed,
                    limit,
                )| {
                    Delivery {
                        has_output,
                        is_empty,
                        has_prompt,
                        prompt_tokens,
                        tokens,
                        max_tokens,
                        executed: Duration::from_millis(executed),
                        time_limit: Duration::from_millis(limit),
                    }
                },
            )
    }

    fn whole(price: i64) -> Tariff {
        Tariff { held: MicroCredits(price), base: MicroCredits::ZERO, tokens: TokenPrices::default() }
    }

    fn by_tokens(held: i64, base: i64, input: i64, output: i64) -> Tariff {
        let tokens = TokenPrices {
            price_per_1k_input: MicroCredits(input),
            price_per_1k_output: MicroCredits(output),
        };
        Tariff { held: MicroCredits(held), base: MicroCredits(base), tokens }
    }

    fn tariff() -> impl Strategy<Value = Tariff> {
        prop_oneof![
            (0_i64..10_000_000).prop_map(whole),
            (0_i64..10_000_000, 0_i64..1_000_000, 0_i64..1_000_000, 0_i64..1_000_000)
                .prop_map(|(held, base, input, output)| by_tokens(held, base, input, output)),
        ]
    }

    proptest! {
        #[test]
        fn no_end_costs_more_than_is_held_and_an_islands_fault_nothing(tariff in tariff(), delivery in delivery()) {
            for ending in [Ending::Completed, Ending::Cancelled, Ending::OwnFault, Ending::NetworkFault] {
                let charged = charge(&tariff, ending, &delivery);
                prop_assert!(charged >= MicroCredits::ZERO && charged <= tariff.held, "{ending:?}: {charged}");
            }
            prop_assert_eq!(charge(&tariff, Ending::NetworkFault, &delivery), MicroCredits::ZERO);
        }

        #[test]
        fn tokens_cost_what_they_cost(prompt in 0_u64..10_000, tokens in 0_u64..10_000, input in 1_i64..100_000, output in 0_i64..100_000) {
            let tariff = by_tokens(i64::MAX, 3, input, output);
            let delivery = Delivery { prompt_tokens: prompt, tokens, ..some_output() };
            let exact = 3.0 + (prompt as f64 * input as f64 + tokens as f64 * output as f64) / 1000.0;
            for ending in [Ending::Completed, Ending::Cancelled, Ending::OwnFault] {
                let charged = charge(&tariff, ending, &delivery).0 as f64;
                prop_assert!((0.0..1.0).contains(&(charged - exact)), "{charged} for {exact}");
            }
        }

        #[test]
        fn delivered_output_costs_at_least_half_unless_an_island_fails(price in 0_i64..10_000_000, delivery in delivery()) {
            let delivery = Delivery { has_output: true, is_empty: false, ..delivery };
            for ending in [Ending::Completed, Ending::Cancelled, Ending::OwnFault] {
                prop_assert!(charge(&whole(price), ending, &delivery).0 >= price / 2);
            }
        }

        /// Reasoning without an answer, and a verdict that a stop text names, are results.
        #[test]
        fn completed_computation_is_never_free(tariff in tariff(), delivery in delivery()) {
            let has_prompt = !tariff.tokens.is_zero();
            let is_empty = delivery.is_empty && has_prompt;
            let delivery = Delivery { is_empty, has_prompt, prompt_tokens: delivery.prompt_tokens.max(1), ..delivery };
            let charged = charge(&tariff, Ending::Completed, &delivery);
            let is_priced = if tariff.tokens.is_zero() { true } else { tariff.tokens.price_per_1k_input.0 > 0 };
            prop_assert!(!is_priced || charged > MicroCredits::ZERO || tariff.held == MicroCredits::ZERO, "{charged}");
        }

        #[test]
        fn the_parts_add_up(charged in 0_i64..10_000_000, units in prop::collection::vec(0_u64..1_000_000, 1..6)) {
            let parts: Vec<Part> = units.iter().enumerate()
                .map(|(n, units)| Part { host: HostId(Uuid::from_u128(n as u128)), units: *units })
                .collect();
            let shares = divide(MicroCredits(charged), &parts);
            prop_assert_eq!(shares.iter().map(|(_, share)| share.0).sum::<i64>(), charged);
            prop_assert!(shares.iter().all(|(_, share)| share.0 >= 0));
            let total: u64 = units.iter().sum();
            for ((_, share), part) in shares.iter().zip(&parts).take(parts.len() - 1) {
                let exact = i128::from(charged) * i128::from(part.units) / i128::from(total.max(1));
                prop_assert!((i128::from(share.0) - exact).abs() <= 1, "{share} for {part:?}");
            }
        }
    }

    fn some_output() -> Delivery {
        Delivery {
            has_output: true,
            is_empty: false,
            has_prompt: true,
            prompt_tokens: 0,
            tokens: 0,
            max_tokens: None,
            executed: Duration::ZERO,
            time_limit: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_job_for_which_nothing_was_computed_is_free() {
        let nothing = Delivery { has_output: false, is_empty: true, has_prompt: false, ..some_output() };
        assert_eq!(charge(&whole(7), Ending::Completed, &nothing), MicroCredits::ZERO);
        assert_eq!(charge(&by_tokens(7, 1, 1, 1), Ending::Completed, &nothing), MicroCredits::ZERO);
    }

    #[test]
    fn a_job_that_was_cancelled_before_any_output_costs_a_part_of_its_prompt() {
        let executed = Duration::from_millis(100);
        let waiting = Delivery { has_output: false, prompt_tokens: 1000, executed, ..some_output() };
        let tariff = by_tokens(1_000_000, 0, 1000, 1000);
        assert_eq!(charge(&tariff, Ending::Cancelled, &waiting), MicroCredits(100));
        let long = Delivery { executed: Duration::from_secs(1), ..waiting };
        assert_eq!(charge(&tariff, Ending::Cancelled, &long), MicroCredits(500), "at most half");
    }
}
