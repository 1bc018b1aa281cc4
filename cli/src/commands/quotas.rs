//! Quotas as a table.

use anyhow::Result;
use island_protocol_api::quota::{OwnQuotas, QuotaView};

use crate::output::{Column, Output};

const COLUMNS: [Column; 5] = [
    Column::of("of"),
    Column::of("quota"),
    Column::of("used"),
    Column::of("limit"),
    Column::of("resets").drop(1),
];

/// Prints the quotas of one account or key.
pub(super) fn table(quotas: &[QuotaView], output: &Output) -> Result<()> {
    output.table(&COLUMNS[1..], rows(quotas, output), "No quotas.")
}

/// Prints the quotas that apply to a request.
pub(super) fn table_of_both(quotas: &OwnQuotas, output: &Output) -> Result<()> {
    let of = |name: &str, quotas| {
        let rows = rows(quotas, output).into_iter();
        rows.map(|row| [vec![name.to_owned()], row].concat()).collect::<Vec<_>>()
    };
    let rows = [of("account", &quotas.account), of("key", &quotas.key)].concat();
    output.table(&COLUMNS, rows, "No quotas.")
}

fn rows(quotas: &[QuotaView], output: &Output) -> Vec<Vec<String>> {
    let of = |view: &QuotaView| {
        let numbers = [
            ("requests", view.requests.map(|number| [number.used.to_string(), number.max.to_string()])),
            ("tokens", view.tokens.map(|number| [number.used.to_string(), number.max.to_string()])),
            ("credits", view.credits.map(|number| [number.used.to_string(), number.max.to_string()])),
        ];
        let (period, resets) = (view.period.as_str(), output.moment(view.resets_at));
        numbers.into_iter().filter_map(move |(kind, numbers)| {
            let [used, max] = numbers?;
            Some(vec![format!("{period}.{kind}"), used, max, resets.clone()])
        })
    };
    quotas.iter().flat_map(of).collect()
}
