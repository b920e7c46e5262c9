//! A sweep in a page: the measured curve with its intervals, the fitted law, the recommendation and its confidence.

use serde::Serialize;

use super::{
    charts::round_to_four_digits,
    elements::{Chart, Table, Tile},
    figures::{self, DASH, environment},
};
use crate::result::sweep::{Curve, CurvePoint, Estimate, Fit, SweepResult, Verdict};

pub(super) const TITLE: &str = "How many connections";

pub(super) struct SweepView {
    pub(super) subtitle: String,
    pub(super) load: String,
    pub(super) interrupted: bool,
    pub(super) notice: Option<String>,
    pub(super) warnings: Vec<String>,
    pub(super) tiles: Vec<Tile>,
    pub(super) because: Vec<String>,
    pub(super) settings: Vec<String>,
    pub(super) charts: Vec<Chart>,
    pub(super) tables: Vec<Table>,
    pub(super) about: Vec<(&'static str, String)>,
}

/// `index`: the number of the sweep in the page.
pub(super) fn view(index: usize, result: &SweepResult) -> SweepView {
    let about = &result.about;
    let verdict = result.verdict.as_ref();
    SweepView {
        subtitle: about.server.iter().map(|server| format!("{server} at ")).chain([about.target.clone()]).collect(),
        load: about.load.clone(),
        interrupted: result.interrupted,
        notice: bracket_warning(result),
        warnings: result.warnings.clone(),
        tiles: tiles(result),
        because: verdict.map(reasons).unwrap_or_default(),
        settings: result.settings.as_ref().map(|settings| settings.because.clone()).unwrap_or_default(),
        charts: sweep_charts(index, result),
        tables: tables(result),
        about: self::about(result),
    }
}

/// The reasons of the verdict, and what would make it more certain.
fn reasons(verdict: &Verdict) -> Vec<String> {
    let more = verdict.to_know.iter().map(|line| format!("To know more: {line}"));
    verdict.because.iter().cloned().chain(more).collect()
}

#[derive(Serialize)]
pub(super) struct Lines {
    direct: Line,
    through: Option<Line>,
    fit: Vec<[f64; 2]>,
    marks: Vec<Mark>,
}

#[derive(Serialize)]
struct Line {
    name: String,
    points: Vec<LinePoint>,
}

#[derive(Serialize)]
struct LinePoint {
    clients: u32,
    throughput: f64,
    low: f64,
    high: f64,
    p50: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
}

/// A vertical line with a label.
#[derive(Serialize)]
struct Mark {
    x: u32,
    text: String,
    stroke: &'static str,
    dash: bool,
}

fn bracket_warning(result: &SweepResult) -> Option<String> {
    let verdict = result.verdict.as_ref()?;
    (!verdict.bracketed).then(|| {
        let rises = if verdict.shape == "open" { "may still rise" } else { "still rises" };
        format!(
            "The best number is not bracketed: throughput {rises} at {}, the most that was tested. More may be \
             better; nothing is concluded beyond it.",
            figures::count(tested(result).1.into())
        )
    })
}

/// The fewest and the most clients that were tested; 0 if none. An interruption or a refusal makes them fewer than
/// requested.
fn tested(result: &SweepResult) -> (u32, u32) {
    let points = &result.direct.points;
    (points.first().map_or(0, |p| p.clients), points.last().map_or(0, |p| p.clients))
}

fn tiles(result: &SweepResult) -> Vec<Tile> {
    let tile = |label, value: String, unit, note: String| Tile { label, value, unit, note, bad: false };
    let Some(verdict) = &result.verdict else {
        return vec![tile("Recommended", DASH.to_owned(), "", "too little was measured".to_owned())];
    };
    let count = |clients: u32| figures::count(clients.into());
    let recommended = match verdict.safe.filter(|_| verdict.is_range()) {
        Some(safe) => {
            tile("Safe", from_to((safe.from, safe.to)), "clients", "no single number is recommended yet".to_owned())
        }
        None => tile(
            "Recommended",
            count(verdict.recommended_clients),
            "clients",
            "the fewest within 5% of the best".to_owned(),
        ),
    };
    let mut tiles = vec![
        recommended,
        tile("Throughput there", figures::rate(Some(verdict.recommended_throughput)), "/s", loss(&verdict.loss)),
        tile("Best measured", count(verdict.best_clients), "clients", best(verdict)),
    ];
    if let Some(settings) = &result.settings {
        tiles.push(tile("max_size", count(settings.max_size), "", "of the pool".to_owned()));
        if let Some((all, reserve)) = settings.max_connections.zip(settings.reserve) {
            let note = format!("of the server, {} in reserve", count(reserve));
            tiles.push(tile("max_connections", count(all), "", note));
        }
    }
    let limit = match verdict.limited_by.as_deref() {
        Some(limit) => format!("limited by the {limit}"),
        None if verdict.shape == "rising" => "no limit was reached".to_owned(),
        None => "limit not known".to_owned(),
    };
    let weak = verdict.confidence == "low";
    tiles.push(Tile { label: "Confidence", value: verdict.confidence.clone(), unit: "", note: limit, bad: weak });
    tiles
}

fn loss(loss: &Estimate) -> String {
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    format!("{} below the best ({} to {})", percent(loss.value), percent(loss.low), percent(loss.high))
}

fn best(verdict: &Verdict) -> String {
    let rate = figures::rate(Some(verdict.best_throughput));
    match (verdict.best_from, verdict.best_to) {
        (from, to) if from == to => format!("{rate}/s"),
        (from, to) => format!("{rate}/s; may be {from} to {to}"),
    }
}

fn sweep_charts(run: usize, result: &SweepResult) -> Vec<Chart> {
    let chart = |kind, title, note: &str, whole| Chart { kind, run, title, note: note.to_owned(), whole };
    let mut list = vec![chart(
        "sweep-throughput",
        "Throughput against clients",
        "Dots: medians of what was measured, with their 95% intervals. The fitted law is drawn only where there are \
         measurements.",
        true,
    )];
    let second = if result.through.is_some() { "directly" } else { "by clients" };
    list.push(chart(
        "sweep-latency",
        "Response time",
        &format!("Closed loop, {second}: each client asks again when it has its answer."),
        result.through.is_none(),
    ));
    if result.through.is_some() {
        list.push(chart(
            "sweep-through-latency",
            "Response time through the pooler",
            "The same load, through the pooler.",
            false,
        ));
    }
    list
}

fn tables(result: &SweepResult) -> Vec<Table> {
    let chosen = result.verdict.as_ref().map(|verdict| verdict.recommended_clients);
    let mut tables = vec![curve("Measured directly", &result.direct, chosen)];
    tables.extend(result.through.as_ref().map(|through| curve("Measured through the pooler", through, None)));
    tables.push(fit(&result.direct));
    tables.push(steadiness(&result.direct));
    tables
}

fn curve(title: &str, curve: &Curve, chosen: Option<u32>) -> Table {
    let headings = [
        "clients",
        "per s",
        "from",
        "to",
        "smoothed",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "errors",
        "visits",
        "generator cores",
        "machine idle",
    ];
    let row = |point: &CurvePoint| {
        vec![
            figures::count(point.clients.into()),
            figures::rate(Some(point.throughput)),
            figures::rate(Some(point.low)),
            figures::rate(Some(point.high)),
            figures::rate(point.believed),
            figures::ms(point.p50_ms),
            figures::ms(point.p95_ms),
            figures::ms(point.p99_ms),
            figures::count(point.errors),
            figures::count(point.visits.into()),
            point.generator_cores.map_or(DASH.to_owned(), |cores| format!("{cores:.2}")),
            point.machine_idle.map_or(DASH.to_owned(), |share| format!("{:.0}%", share * 100.0)),
        ]
    };
    let mut table = Table::plain(title, &headings, curve.points.iter().map(row).collect());
    for (row, _) in table.rows.iter_mut().zip(&curve.points).filter(|(_, point)| Some(point.clients) == chosen) {
        row.class = "chosen";
    }
    table
}

fn fit(curve: &Curve) -> Table {
    let title = "Universal Scalability Law";
    let Some(Fit { gamma, alpha, beta, peak_clients, peak_tested, r_squared, residual, .. }) = &curve.fit else {
        let why = curve.no_fit.clone().unwrap_or_else(|| DASH.to_owned());
        return Table::plain(title, &["", "value"], vec![vec!["not fitted".to_owned(), why]]);
    };
    let row = |name: &str, of: &Estimate, shown: fn(f64) -> String| {
        vec![name.to_owned(), shown(of.value), format!("{} to {}", shown(of.low), shown(of.high))]
    };
    let share = |value: f64| format!("{value:.3e}");
    let peak = peak_clients.map_or("none".to_owned(), |clients| figures::ms(Some(clients)));
    let beyond =
        if *peak_tested || peak_clients.is_none() { "" } else { "outside what was tested: not to be relied on" };
    let rows = vec![
        row("one client, per s", gamma, |value| figures::rate(Some(value))),
        row("contention", alpha, share),
        row("coherency", beta, share),
        vec!["its peak, clients".to_owned(), peak, beyond.to_owned()],
        vec!["variance explained".to_owned(), format!("{:.1}%", r_squared * 100.0), String::new()],
        vec!["residual".to_owned(), format!("{:.1}%", residual * 100.0), String::new()],
    ];
    Table::plain(title, &["", "value", "95% interval"], rows)
}

fn steadiness(curve: &Curve) -> Table {
    let percent = |share: Option<f64>| share.map_or(DASH.to_owned(), |share| format!("{:.1}%", share * 100.0));
    let (steady, effort) = (&curve.steadiness, &curve.effort);
    let drift = if steady.drifted { "more than noise" } else { "within noise" };
    let rows = vec![
        vec!["noise of one visit".to_owned(), percent(steady.noise), String::new()],
        vec![
            "drift".to_owned(),
            percent(steady.drift),
            if steady.drift.is_some() { drift.to_owned() } else { String::new() },
        ],
        vec![
            "visits".to_owned(),
            figures::count(effort.visits.into()),
            format!("an exhaustive sweep: {}", figures::count(effort.exhaustive_visits.into())),
        ],
        vec!["took".to_owned(), figures::seconds(effort.seconds), String::new()],
    ];
    Table::plain("Effort and steadiness", &["", "value", ""], rows)
}

fn from_to((from, to): (u32, u32)) -> String {
    match to {
        0 => DASH.to_owned(),
        _ if from == to => figures::count(to.into()),
        _ => format!("{} to {}", figures::count(from.into()), figures::count(to.into())),
    }
}

fn about(result: &SweepResult) -> Vec<(&'static str, String)> {
    let asked = &result.asked;
    let each = format!(
        "{} each after {} of warm-up, {} rounds",
        figures::seconds(asked.point_s),
        figures::seconds(asked.warmup_s),
        asked.rounds
    );
    let load = vec![
        ("Load", result.about.load.clone()),
        ("Clients tested", from_to(tested(result))),
        ("Clients asked for", from_to((asked.clients_from, asked.clients_to))),
        ("Measurements", each),
    ];
    let load =
        load.into_iter().filter(|(label, text)| *label != "Clients asked for" || *text != from_to(tested(result)));
    let through = result.through.iter().map(|through| ("Through", through.target.clone())).collect();
    [load.collect(), through, environment(&result.about)].concat()
}

/// The data of the script.
pub(super) fn chart_data(result: &SweepResult) -> Lines {
    let mut marks = Vec::new();
    if let Some(verdict) = &result.verdict {
        let (use_this, best) = (verdict.recommended_clients, verdict.best_clients);
        marks.push(Mark {
            x: use_this,
            text: format!(
                "{}: {}",
                if verdict.is_range() { "safe" } else { "recommended" },
                figures::count(use_this.into())
            ),
            stroke: "--c2",
            dash: false,
        });
        if best != use_this {
            marks.push(Mark {
                x: best,
                text: format!("best: {}", figures::count(best.into())),
                stroke: "--soft",
                dash: true,
            });
        }
    }
    Lines {
        direct: line(&result.direct),
        through: result.through.as_ref().map(line),
        fit: result
            .direct
            .fit
            .iter()
            .flat_map(|fit| &fit.line)
            .map(|point| [round_to_four_digits(point.clients), round_to_four_digits(point.throughput)])
            .collect(),
        marks,
    }
}

fn line(curve: &Curve) -> Line {
    let point = |point: &CurvePoint| LinePoint {
        clients: point.clients,
        throughput: round_to_four_digits(point.throughput),
        low: round_to_four_digits(point.low),
        high: round_to_four_digits(point.high),
        p50: point.p50_ms.map(round_to_four_digits),
        p95: point.p95_ms.map(round_to_four_digits),
        p99: point.p99_ms.map(round_to_four_digits),
    };
    Line { name: curve.name.clone(), points: curve.points.iter().map(point).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::sweep::Asked;

    #[test]
    fn the_requested_range_is_not_called_tested() {
        let point = |clients| CurvePoint { clients, ..CurvePoint::default() };
        let mut result = SweepResult {
            asked: Asked { clients_from: 1, clients_to: 256, ..Asked::default() },
            direct: Curve { points: vec![point(1), point(2), point(64)], ..Curve::default() },
            verdict: Some(Verdict { shape: "rising".to_owned(), ..Verdict::default() }),
            ..SweepResult::default()
        };
        let said = |result: &SweepResult, label: &str| {
            about(result).into_iter().find(|(l, _)| *l == label).map(|(_, text)| text)
        };
        assert_eq!(said(&result, "Clients tested").as_deref(), Some("1 to 64"));
        assert_eq!(said(&result, "Clients asked for").as_deref(), Some("1 to 256"));
        assert!(
            bracket_warning(&result).is_some_and(|text| text.contains("still rises at 64")),
            "{:?}",
            bracket_warning(&result)
        );
        result.direct.points.push(point(256));
        assert_eq!(said(&result, "Clients asked for"), None);
        assert_eq!(said(&SweepResult::default(), "Clients tested").as_deref(), Some(DASH));
    }
}
