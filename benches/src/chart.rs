//! `chart`: one SVG of the headline ratios in some results.
//!
//! Every bar is how many times better Island's figure is than its peer's, so rates are drawn as Island / peer and times as peer / Island.
//! The axis is logarithmic: twice as good and half as good are equally long.

use std::{fmt::Write as _, fs, path::PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

const WIDTH: f64 = 960.0;
/// Where the bars begin and end.
const LEFT: f64 = 460.0;
const RIGHT: f64 = 880.0;
const ROW: f64 = 22.0;
const TOP: f64 = 58.0;

/// One bar: how many times better than the peer.
#[derive(Debug, PartialEq)]
struct Bar {
    label: String,
    factor: f64,
    low: f64,
    high: f64,
}

/// The bars of one results file.
#[derive(Debug)]
struct Group {
    claim: String,
    bars: Vec<Bar>,
}

/// Draws the results files, in this order.
pub(crate) fn run(results: &[PathBuf]) -> Result<String> {
    let groups: Result<Vec<Group>> = results
        .iter()
        .map(|path| {
            let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
            group(&text).with_context(|| format!("invalid results in {}", path.display()))
        })
        .collect();
    let drawn: Vec<Group> = groups?.into_iter().filter(|group| !group.bars.is_empty()).collect();
    draw(&drawn)
}

fn group(text: &str) -> Result<Group> {
    let json: Value = serde_json::from_str(text)?;
    let claim = json["claim"].as_str().context("missing `claim`")?.to_owned();
    let rows = json["rows"].as_array().context("missing `rows`")?;
    let drawn = rows.iter().filter(|row| row["headline"] == true && row["peer"].is_object());
    Ok(Group { claim, bars: drawn.map(bar).collect::<Result<_>>()? })
}

fn bar(row: &Value) -> Result<Bar> {
    let figure = row["figure"].as_str().context("missing `figure`")?;
    let peer = row["peer"]["name"].as_str().context("missing `peer.name`")?;
    let ratio = |name: &str| -> Result<f64> {
        let value = row["peer"]["ratio"][name].as_f64().with_context(|| format!("missing `ratio.{name}`"))?;
        ensure!(value.is_finite() && value > 0.0, "`ratio.{name}` of {figure} is not above 0");
        Ok(value)
    };
    let (median, min, max) = (ratio("median")?, ratio("min")?, ratio("max")?);
    let label = format!("{figure} vs {peer}");
    match row["better"].as_str() {
        Some("higher") => Ok(Bar { label, factor: median, low: min, high: max }),
        Some("lower") => Ok(Bar { label, factor: 1.0 / median, low: 1.0 / max, high: 1.0 / min }),
        _ => bail!("`better` of {figure} is neither `higher` nor `lower`"),
    }
}

fn draw(groups: &[Group]) -> Result<String> {
    let bars = || groups.iter().flat_map(|group| &group.bars);
    ensure!(bars().next().is_some(), "there is no headline row with a peer");
    let low = bars().map(|bar| bar.low).fold(0.5, f64::min).log2().floor();
    let high = bars().map(|bar| bar.high).fold(2.0, f64::max).log2().ceil();
    let at = |factor: f64| LEFT + (factor.log2() - low) / (high - low) * (RIGHT - LEFT);
    let rows = groups.iter().map(|group| group.bars.len() + 1).sum::<usize>();
    let bottom = TOP + ROW * rows as f64;
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" font-size="13">
<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>
<text x="20" y="26" font-size="16" font-weight="600">Island compared with its peers, same machine, same run</text>
<text x="20" y="44" fill="#57606a">times better than the peer (1 = equal); lines span the rounds</text>"##,
        height = bottom + 36.0,
    );
    for power in low as i32..=high as i32 {
        let (x, label) = (at(f64::from(power).exp2()), power_label(power));
        let colour = if power == 0 { "#24292f" } else { "#d8dee4" };
        let _ = writeln!(
            svg,
            r##"<line x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{bottom}" stroke="{colour}"/><text x="{x:.1}" y="{:.1}" text-anchor="middle" fill="#57606a">{label}</text>"##,
            bottom + 18.0,
        );
    }
    let mut y = TOP;
    for group in groups {
        let _ = writeln!(
            svg,
            r#"<text x="20" y="{:.1}" font-weight="600">{}</text>"#,
            y + 15.0,
            escaped(&group.claim)
        );
        y += ROW;
        for bar in &group.bars {
            draw_bar(&mut svg, bar, y, at);
            y += ROW;
        }
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn draw_bar(svg: &mut String, bar: &Bar, y: f64, at: impl Fn(f64) -> f64) {
    let (one, end) = (at(1.0), at(bar.factor));
    let colour = if bar.factor >= 1.0 { "#1a7f5a" } else { "#bf5b17" };
    let _ = writeln!(
        svg,
        r##"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text><rect x="{:.1}" y="{:.1}" width="{:.1}" height="12" fill="{colour}"/><line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" stroke="#24292f"/><text x="{:.1}" y="{:.1}" fill="#24292f">{}</text>"##,
        LEFT - 12.0,
        y + 15.0,
        escaped(&bar.label),
        one.min(end),
        y + 5.0,
        (end - one).abs(),
        at(bar.low),
        y + 11.0,
        at(bar.high),
        y + 11.0,
        RIGHT + 12.0,
        y + 15.0,
        factor(bar.factor),
    );
}

/// `1/4`, `1`, `8`.
fn power_label(power: i32) -> String {
    let size = 1_u64 << power.unsigned_abs().min(63);
    if power < 0 { format!("1/{size}") } else { size.to_string() }
}

fn factor(factor: f64) -> String {
    if factor < 10.0 { format!("{factor:.2}×") } else { format!("{factor:.0}×") }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn row(better: &str) -> Value {
        serde_json::json!({
            "figure": "first token", "better": better, "headline": true,
            "peer": { "name": "a < b", "ratio": { "median": 0.5, "min": 0.25, "max": 2.0 } },
        })
    }

    #[test]
    fn times_are_drawn_as_their_reciprocal() {
        let label = "first token vs a < b".to_owned();
        assert_eq!(
            bar(&row("lower")).expect("a bar"),
            Bar { label: label.clone(), factor: 2.0, low: 0.5, high: 4.0 }
        );
        assert_eq!(bar(&row("higher")).expect("a bar"), Bar { label, factor: 0.5, low: 0.25, high: 2.0 });
        assert!(bar(&row("sideways")).is_err());
    }

    #[test]
    fn rows_without_a_peer_and_those_that_are_no_headline_are_left_out() {
        let rows = [row("lower"), serde_json::json!({ "figure": "x", "headline": true }), {
            let mut other = row("lower");
            other["headline"] = false.into();
            other
        }];
        let text = serde_json::json!({ "claim": "decode", "rows": rows }).to_string();
        let group = group(&text).expect("results");
        assert_eq!(group.bars.len(), 1);
        let svg = draw(&[group]).expect("an image");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(svg.contains("first token vs a &lt; b") && svg.contains("2.00×"), "{svg}");
    }

    #[test]
    fn results_that_cannot_be_drawn_are_errors() {
        let mut nothing = row("lower");
        nothing["peer"]["ratio"]["min"] = 0.into();
        assert!(bar(&nothing).is_err());
        assert!(group("{}").is_err());
        assert!(draw(&[]).is_err());
    }

    /// `UPDATE_CHART=1 cargo test -p island-benches` draws it anew.
    #[test]
    fn the_committed_chart_is_drawn_from_the_committed_results() {
        let docs = Path::new("../docs");
        let mut results: Vec<PathBuf> = fs::read_dir(docs.join("benchmarks"))
            .expect("docs/benchmarks")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        results.sort();
        let drawn = run(&results).expect("draw docs/benchmarks");
        let path = docs.join("benchmarks.svg");
        if std::env::var_os("UPDATE_CHART").is_some() {
            fs::write(&path, &drawn).expect("write docs/benchmarks.svg");
        }
        let committed = fs::read_to_string(&path).expect("read docs/benchmarks.svg");
        assert!(drawn == committed, "docs/benchmarks.svg is out of date: run this with UPDATE_CHART=1");
    }
}
