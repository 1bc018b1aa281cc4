//! Prices, for everybody.

use axum::{extract::Path, response::Response};
use island_protocol_api::{PageMeta, market::MarketRate};

use super::amount;
use crate::{
    backend::encoded,
    texts::t,
    view::{Block, Cell, Field, Form, Pager, Plot, Table},
    web::{Visit, blocks_page, failed},
};

/// Cargos in one page.
const PAGE: usize = 50;

/// `GET /console/market`.
pub(super) async fn list(visit: Visit) -> Response {
    // Everybody may read the rates, so this request is for nobody in particular.
    let public = visit.api.with_token(None);
    let answers = futures::try_join!(public.get::<Vec<MarketRate>>("/market/rates"), visit.who());
    let (rates, who) = match answers {
        Ok(answers) => answers,
        Err(failure) => return failed(&visit, None, failure, "/"),
    };
    let search = visit.param("q").unwrap_or_default().to_lowercase();
    let mut rates: Vec<&MarketRate> =
        rates.iter().filter(|rate| rate.workload_slug.to_string().contains(&search)).collect();
    rates.sort_by(|one, other| {
        let key = |rate: &MarketRate| (rate.num_jobs, rate.num_hosts);
        key(other).cmp(&key(one)).then(one.workload_slug.cmp(&other.workload_slug))
    });
    let offset = visit.offset();
    let meta = PageMeta { total: rates.len() as u64, limit: PAGE as u64, offset };
    let row = |rate: &&MarketRate| {
        let slug = rate.workload_slug.to_string();
        vec![
            Cell::link(format!("/console/market/{}", encoded(&slug)), slug),
            Cell::Credits(rate.avg_price),
            Cell::number(format!("{} – {}", rate.min_price, rate.max_price)),
            Cell::number(rate.num_hosts),
            Cell::number(rate.num_jobs),
        ]
    };
    let columns = ["jobs.cargo", "market.average", "market.range", "market.islands", "market.jobs"];
    let table = Table {
        columns: columns.iter().map(|key| t(key).to_owned()).collect(),
        rows: rates.iter().skip(offset as usize).take(PAGE).map(row).collect(),
        empty: t("cargos.none").to_owned(),
        pager: Pager::new(&format!("/console/market?q={}&", encoded(&search)), meta),
        id: "rates",
        ..Table::default()
    };
    let filter = Form::filter(
        "/console/market",
        vec![Field::line("q", t("cargos.search")).value(visit.param("q").unwrap_or_default())],
    );
    blocks_page(
        visit.frame(t("market.title"), who.as_ref()),
        t("market.lead").to_owned(),
        vec![Block::Form(filter), Block::Table(table)],
    )
}

/// `GET /console/market/:slug`.
pub(super) async fn history(visit: Visit, Path(slug): Path<String>) -> Response {
    let public = visit.api.with_token(None);
    let (now, before) =
        (format!("/market/rates/{}", encoded(&slug)), format!("/market/history/{}", encoded(&slug)));
    let answers = futures::try_join!(
        public.get::<Vec<MarketRate>>(&now),
        public.get::<Vec<MarketRate>>(&before),
        visit.who(),
    );
    let (now, before, who) = match answers {
        Ok(answers) => answers,
        Err(failure) => return failed(&visit, None, failure, "/console/market"),
    };
    let mut blocks = Vec::new();
    if let Some(rate) = now.first() {
        blocks.push(Block::Facts(vec![
            (t("market.average").to_owned(), Cell::Credits(rate.avg_price)),
            (t("market.range").to_owned(), Cell::number(format!("{} – {}", rate.min_price, rate.max_price))),
            (t("market.islands").to_owned(), Cell::number(rate.num_hosts)),
            (t("market.jobs").to_owned(), Cell::number(rate.num_jobs)),
        ]));
    }
    if before.is_empty() {
        blocks.push(Block::Text(t("market.quiet").to_owned()));
    } else {
        let plot = |title: &str, columns: &[&str], values: &dyn Fn(&MarketRate) -> Vec<f64>, is_bars| {
            Block::Plot(Plot {
                title: t(title).to_owned(),
                columns: columns.iter().map(|key| t(key).to_owned()).collect(),
                points: before.iter().map(|rate| (rate.timestamp, values(rate))).collect(),
                is_bars,
            })
        };
        blocks.push(plot(
            "market.prices",
            &["market.average", "market.lowest", "market.highest"],
            &|rate| vec![amount(rate.avg_price), amount(rate.min_price), amount(rate.max_price)],
            false,
        ));
        blocks.push(plot("market.volume", &["market.jobs"], &|rate| vec![rate.num_jobs as f64], true));
    }
    let cargo = format!("/console/cargos/{}", encoded(&slug));
    blocks.push(Block::Links(vec![(cargo, t("market.cargo").to_owned())]));
    blocks_page(visit.frame(slug, who.as_ref()), t("market.history").to_owned(), blocks)
}
