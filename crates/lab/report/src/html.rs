//! The HTML page: one file without external resources. Tables contain all figures; a script draws charts of them. Every
//! text is escaped, because names come from users, and the page's policy allows only its own two scripts and its style.

use askama::Template;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Serialize;
use sha2::{Digest, Sha256};

pub use super::elements::Tile;
use super::{
    charts,
    elements::{Chart, Table},
    figures::{self, DASH},
    page_tables::{TOTAL, by_step, run_tables},
    side_by_side,
    sweep_page::{self, SweepView},
};
use crate::result::{BenchResult, Measured, Percentiles, sweep::SweepResult};

/// uPlot 1.6.32 (MIT; its licence stands beside it and in the page).
const UPLOT: &str = include_str!("../assets/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../assets/uPlot.min.css");
const UPLOT_LICENSE: &str = include_str!("../assets/uPlot.LICENSE");
const SCRIPT: &str = include_str!("../assets/report.js");
const STYLE: &str = include_str!("../assets/report.css");

/// A part of a page.
pub enum Part<'a> {
    /// One run, or several to be compared.
    Runs(&'a [BenchResult]),
    Sweep(&'a SweepResult),
    /// Notes of the planner about the runs of the page.
    Notes(&'a Notes),
}

#[derive(Clone, Debug)]
pub struct Notes {
    pub title: String,
    pub tiles: Vec<Tile>,
    pub warnings: Vec<String>,
    /// Lists of sentences, each with its title.
    pub lists: Vec<(String, Vec<String>)>,
    /// Texts to copy, each with its title.
    pub texts: Vec<(String, String)>,
}

/// A page of one result, or of several variants.
pub fn page(results: &[BenchResult]) -> String {
    report(&[Part::Runs(results)])
}

/// A page of several parts.
pub fn report(parts: &[Part<'_>]) -> String {
    let mut page = Builder::default();
    for part in parts {
        match part {
            Part::Runs(results) => page.runs(results, (results.len() > 1).then(|| overview(results))),
            Part::Sweep(result) => page.sweep(result),
            Part::Notes(notes) => page.notes(notes),
        }
    }
    page.render()
}

/// Builds a page, in which runs, sweeps and groups of runs are numbered.
#[derive(Default)]
struct Builder<'a> {
    parts: Vec<PartView>,
    data: Data<'a>,
}

/// The data of the script.
#[derive(Serialize, Default)]
struct Data<'a> {
    runs: Vec<charts::Run<'a>>,
    /// Ranges of runs that are compared: the first, and the one after the last.
    groups: Vec<(usize, usize)>,
    sweeps: Vec<sweep_page::Lines>,
}

impl<'a> Builder<'a> {
    fn runs(&mut self, results: &'a [BenchResult], mut overview: Option<Overview>) {
        let (first, group) = (self.data.runs.len(), self.data.groups.len());
        for chart in overview.iter_mut().flat_map(|overview| &mut overview.charts) {
            chart.run = group;
        }
        self.parts.push(PartView {
            title: title(results),
            scenarios: figures::scenarios(results),
            overview: overview.map(|overview| (group, overview)),
            runs: results.iter().enumerate().map(|(index, result)| run(first + index, result)).collect(),
            sweep: None,
            notes: None,
        });
        self.data.runs.extend(results.iter().map(charts::chart_data));
        self.data.groups.push((first, first + results.len()));
    }

    fn sweep(&mut self, result: &SweepResult) {
        let index = self.data.sweeps.len();
        self.parts.push(PartView {
            title: sweep_page::TITLE.to_owned(),
            scenarios: figures::scenario(&result.about).into_iter().collect(),
            overview: None,
            runs: Vec::new(),
            sweep: Some((index, sweep_page::view(index, result))),
            notes: None,
        });
        self.data.sweeps.push(sweep_page::chart_data(result));
    }

    fn notes(&mut self, notes: &Notes) {
        self.parts.push(PartView {
            title: notes.title.clone(),
            scenarios: Vec::new(),
            overview: None,
            runs: Vec::new(),
            sweep: None,
            notes: Some(notes.clone()),
        });
    }

    fn render(self) -> String {
        let title = match &self.parts[..] {
            [] => "No result".to_owned(),
            [one] => one.title.clone(),
            [notes, ..] if notes.notes.is_some() => notes.title.clone(),
            [first, rest @ ..] => format!("{} and {} more", first.title, rest.len()),
        };
        let predicted = self.parts.iter().any(|part| part.notes.is_some());
        let what = if predicted { "predicted" } else { "measured" };
        let page = Page { frame: Frame::new(title), what, parts: self.parts, data: charts::json(&self.data) };
        page.render().expect("a template of plain text does not fail")
    }
}

/// The name of one run, or of the scenario of several.
fn title(results: &[BenchResult]) -> String {
    match results {
        [] => "No result".to_owned(),
        [one] => one.name.clone(),
        [first, rest @ ..] => match first.name.split_once(": ") {
            Some((scenario, _)) if rest.iter().all(|result| result.name.split(": ").next() == Some(scenario)) => {
                scenario.to_owned()
            }
            _ => format!("{} and {} more", first.name, rest.len()),
        },
    }
}

struct Frame {
    title: String,
    policy: String,
    style: String,
    uplot: &'static str,
    uplot_license: &'static str,
    script: &'static str,
    version: &'static str,
}

impl Frame {
    fn new(title: String) -> Self {
        let style = format!("{UPLOT_STYLE}\n{STYLE}");
        let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
        let policy = format!(
            "default-src 'none'; script-src {} {}; style-src {}; img-src data:; base-uri 'none'; form-action 'none'",
            hash(UPLOT),
            hash(SCRIPT),
            hash(&style)
        );
        Self {
            title,
            policy,
            style,
            uplot: UPLOT,
            uplot_license: UPLOT_LICENSE,
            script: SCRIPT,
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

#[derive(Template)]
#[template(path = "report.html")]
struct Page {
    frame: Frame,
    /// `measured` or `predicted`.
    what: &'static str,
    parts: Vec<PartView>,
    data: String,
}

struct PartView {
    title: String,
    /// Descriptions of its scenarios.
    scenarios: Vec<String>,
    /// With its number in the page, like the sweep.
    overview: Option<(usize, Overview)>,
    runs: Vec<RunView>,
    sweep: Option<(usize, SweepView)>,
    notes: Option<Notes>,
}

/// Compares several runs.
struct Overview {
    side_by_side: Option<Table>,
    table: Table,
    charts: Vec<Chart>,
}

struct RunView {
    id: String,
    name: String,
    interrupted: bool,
    subtitle: String,
    load: String,
    warnings: Vec<String>,
    tiles: Vec<Tile>,
    charts: Vec<Chart>,
    phases: Vec<Phase>,
    tables: Vec<Table>,
    about: Vec<(&'static str, String)>,
}

/// A phase of connecting. The lengths of its bars are percentages.
struct Phase {
    name: &'static str,
    times: String,
    p50: String,
    p95: String,
    p99: String,
    max: String,
    bar_p50: String,
    bar_p99: String,
}

fn run(index: usize, result: &BenchResult) -> RunView {
    let about = &result.about;
    RunView {
        id: format!("run-{index}"),
        name: result.name.clone(),
        interrupted: result.interrupted,
        subtitle: about.server.iter().map(|server| format!("{server} at ")).chain([about.target.clone()]).collect(),
        load: about.load.clone(),
        warnings: result.warnings.clone(),
        tiles: tiles(result),
        charts: run_charts(index, result),
        phases: phases(&result.total),
        tables: run_tables(result),
        about: settings(result),
    }
}

fn tiles(result: &BenchResult) -> Vec<Tile> {
    let total = &result.total;
    let percentile = |label, of: &Option<Percentiles>, which: fn(&Percentiles) -> f64, note: &str| Tile {
        label,
        value: figures::percentile_ms(of.as_ref(), which),
        unit: "ms",
        note: note.to_owned(),
        bad: false,
    };
    let errors = figures::errors_of(total);
    let note = figures::by_count(&total.errors).first().map(|(kind, _)| format!("most: {kind}")).unwrap_or_default();
    let mut tiles = vec![
        Tile {
            label: "Throughput",
            value: figures::rate(total.rate()),
            unit: "/s",
            note: format!("{} in {}", figures::count(total.requests), figures::seconds(total.duration_s)),
            bad: false,
        },
        percentile("Response, median", &total.response_ms, |all| all.p50, "half were faster"),
        percentile("Response, p99", &total.response_ms, |all| all.p99, "1 in 100 was slower"),
        percentile("Service, p99", &total.service_ms, |all| all.p99, "what the target took"),
        Tile { label: "Errors", value: figures::error_share(total), unit: "", note, bad: errors > 0 },
    ];
    if total.dropped > 0 {
        tiles.push(Tile {
            label: "Dropped",
            value: figures::count(total.dropped),
            unit: "",
            note: "due and never begun".to_owned(),
            bad: true,
        });
    }
    tiles.push(Tile {
        label: "Connections opened",
        value: figures::count(total.connections.created),
        unit: "",
        note: format!("at most {} at a time", figures::count(total.connections.most.into())),
        bad: false,
    });
    tiles
}

fn run_charts(run: usize, result: &BenchResult) -> Vec<Chart> {
    let chart = |kind, title, note: &str| Chart { kind, run, title, note: note.to_owned(), whole: false };
    let mut list = Vec::new();
    let seconds = charts::seconds(result);
    if !seconds.is_empty() {
        let point = match charts::seconds_per_point(result) {
            1 => String::new(),
            many => format!(" Each point stands for {many} seconds: the median's median, the largest of the others."),
        };
        list.push(chart(
            "rate",
            "Throughput",
            "Operations that were due or begun, and those that ended well, per second.",
        ));
        list.push(chart("latency", "Response time", &format!("By the second in which an operation ended.{point}")));
        if seconds.iter().any(|second| second.errors > 0 || second.dropped > 0) {
            list.push(chart("errors", "Errors and drops", "Per second."));
        }
        list.push(chart(
            "connections",
            "Connections",
            "Open and in use at the end of each second; bars: opened in it.",
        ));
        if seconds.iter().any(|second| second.waiting > 0) {
            list.push(chart("waiting", "Waiting for a connection", "Operations at the end of each second."));
        }
    }
    if [&result.total.response_ms, &result.total.service_ms].into_iter().flatten().any(|all| all.count > 0) {
        let closed = if result.about.shape == "closed" {
            " In a closed loop the two hardly differ: a client that waits does not ask."
        } else {
            ""
        };
        list.push(chart(
            "distribution",
            "Latency distribution",
            &format!("Where response is above service, operations waited for a connection or for their turn.{closed}"),
        ));
    }
    // Charts stand in pairs, so the last of an odd number takes the whole width.
    let odd = list.len() % 2 == 1;
    list.last_mut().into_iter().for_each(|last| last.whole = odd);
    list
}

fn phases(total: &Measured) -> Vec<Phase> {
    let all = figures::phases(total);
    let longest = all.iter().map(|(_, times)| times.p99).fold(f64::MIN_POSITIVE, f64::max);
    let bar = |value: f64| format!("{:.2}", (value / longest * 100.0).clamp(0.4, 100.0));
    let phase = |(name, times): (&'static str, &Percentiles)| Phase {
        name,
        times: figures::count(times.count),
        p50: figures::ms(Some(times.p50)),
        p95: figures::ms(Some(times.p95)),
        p99: figures::ms(Some(times.p99)),
        max: figures::ms(Some(times.max)),
        bar_p50: bar(times.p50),
        bar_p99: bar(times.p99),
    };
    all.into_iter().map(phase).collect()
}

fn overview(results: &[BenchResult]) -> Overview {
    let steps = results.iter().any(figures::has_steps);
    let mut rows = Vec::new();
    for result in results {
        if figures::has_steps(result) {
            rows.extend(result.steps.iter().map(|step| (vec![result.name.clone(), step.name.clone()], &step.measured)));
        }
        rows.push((
            if steps { vec![result.name.clone(), TOTAL.to_owned()] } else { vec![result.name.clone()] },
            &result.total,
        ));
    }
    let chart = |kind, title, note: &str| Chart { kind, run: 0, title, note: note.to_owned(), whole: false };
    Overview {
        side_by_side: side_by_side::table(results),
        table: by_step("All runs", if steps { &["run", "step"] } else { &["run"] }, rows),
        charts: vec![
            chart("all-distribution", "Response time by percentile", "Each run's whole distribution."),
            chart("all-p99", "99th percentile of the response time", "By the second in which an operation ended."),
            chart("all-rate", "Throughput", "Operations that ended well, per second."),
            chart("all-connections", "Open connections", "At the end of each second."),
        ],
    }
}

fn settings(result: &BenchResult) -> Vec<(&'static str, String)> {
    let total = &result.total;
    let cpu = total
        .generator_cpu_s
        .map_or(DASH.to_owned(), |cpu| format!("{cpu:.2} s of {}", figures::seconds(total.duration_s)));
    let about = &result.about;
    let known = |name, text: &Option<String>| text.clone().map(|text| (name, text));
    let load = [
        Some(("Load", about.load.clone())),
        known("What is asked", &about.asks),
        known("Way to the target", &about.way),
        Some(("Pool under test", about.pool.clone())),
    ];
    [load.into_iter().flatten().collect(), vec![("Load generator's CPU", cpu)], figures::environment(about)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{result::Second, sample};

    #[test]
    fn every_text_is_escaped() {
        let evil = "</script><img src=x onerror=alert(1)>\"'&";
        let mut result = sample::full(evil);
        result.about.target = evil.to_owned();
        result.about.server = Some(evil.to_owned());
        result.about.command = Some(evil.to_owned());
        result.about.scenario = Some(evil.to_owned());
        result.about.asks = Some(evil.to_owned());
        result.about.way = Some(evil.to_owned());
        result.warnings = vec![evil.to_owned()];
        result.steps.iter_mut().for_each(|step| step.name = evil.to_owned());
        result.total.errors.insert(evil.to_owned(), 3);
        for page in [page(std::slice::from_ref(&result)), page(&[result.clone(), result])] {
            assert!(!page.contains("<img") && !page.contains("</script><") && page.contains("&#60;img"), "{page}");
            assert_eq!(page.matches("<script").count(), 3, "the data, the library, ours");
            assert_eq!(page.matches("</script>").count(), 3);
        }
    }

    #[test]
    fn the_policy_names_exactly_what_is_in_the_page() {
        let page = page(&[sample::full("a sample")]);
        let policy = page
            .split("Content-Security-Policy\" content=\"")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap()
            .replace("&#39;", "'");
        let scripts: Vec<_> =
            page.split("<script>").skip(1).map(|rest| rest.split("</script>").next().unwrap()).collect();
        let style = page.split("<style>").nth(1).unwrap().split("</style>").next().unwrap();
        assert_eq!(scripts.len(), 2);
        for text in scripts.into_iter().chain([style]) {
            let hash = format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
            assert!(policy.contains(&hash), "{hash} is not in {policy}");
        }
        assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
    }

    #[test]
    fn nothing_is_fetched_from_elsewhere() {
        let page = page(&[sample::full("a sample")]);
        let elements = page.split("<script>").next().unwrap();
        assert!(!elements.contains("src=") && !elements.contains("url(") && !elements.contains("@import"));
        let links: Vec<_> = elements.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        assert!(links.iter().all(|link| link.starts_with('#') || *link == "data:,"), "{links:?}");
    }

    #[test]
    fn a_page_is_small_and_a_long_run_does_not_make_it_large() {
        let empty = page(&[BenchResult::default()]);
        assert!(empty.len() < 120_000, "{}", empty.len());
        let mut long = sample::full("a day");
        let second =
            |at: u32| Second { at_s: at.into(), requests: 12_345, p99_ms: Some(1.234_567), ..Second::default() };
        long.series = (0..86_400).map(second).collect();
        let day = page(&[long]);
        assert!(day.len() < empty.len() + 150_000, "{}", day.len());
        assert!(day.contains("Each point stands for 72 seconds"));
    }

    #[test]
    fn unknown_figures_are_left_out() {
        let nothing = page(&[BenchResult { name: "nothing".to_owned(), ..BenchResult::default() }]);
        let shown = nothing.split("<script").next().unwrap();
        assert!(!shown.contains("<figure") && !shown.contains("Making a connection"));
        let full = page(&[sample::full("a sample")]);
        let shown = full.split("<script").next().unwrap();
        for title in [
            "Throughput",
            "Response time",
            "Errors and drops",
            "Connections",
            "Waiting for a connection",
            "Latency distribution",
            "Making a connection",
        ] {
            assert!(shown.contains(title), "{title}");
        }
        assert!(!shown.contains(">DNS<") && shown.contains(">TLS<"), "a phase that did not occur");
    }

    #[test]
    fn the_description_of_the_scenario_stands_once_above_the_figures() {
        let page = page(&[sample::full("one"), sample::full("two")]);
        let shows = "What the sample shows, and what to look at.";
        assert_eq!(page.matches(shows).count(), 1);
        assert!(page.find(shows) < page.find("<dl class=\"tiles\">"));
        assert_eq!(page.matches("<dt>What is asked</dt><dd>order.sql, simple protocol</dd>").count(), 2);
        assert_eq!(page.matches("<dt>Way to the target</dt><dd>answers 200ms late").count(), 2);
        assert_eq!(page.matches("opened per hour of the published time, for: burst</th><td>16.0</td>").count(), 2);
        assert_eq!(page.matches("steady size</th><td>20</td>").count(), 2);
    }

    #[test]
    fn variants_are_compared_with_a_row_for_each_step() {
        let page = page(&[sample::full("one"), sample::full("two"), sample::full("three")]);
        let table = page.split("<h3>All runs</h3>").nth(1).unwrap().split("</table>").next().unwrap();
        assert_eq!(table.matches("<tr").count(), 2 + 3 * 3, "headings, and two steps and a total of each");
        assert_eq!(page.matches("<section").count(), 4);
        let id = |id: &str| page.matches(&format!("id=\"{id}\"")).count();
        assert_eq!([id("run-0"), id("run-2"), id("chart-rate-1"), id("main")], [1; 4]);
    }
}
