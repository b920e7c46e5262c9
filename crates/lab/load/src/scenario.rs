//! Scenario files: what is to be run, in TOML. A file may hold several runs that differ in some keys (`[[variant]]`),
//! and two sets of durations: short ones, and those that were published (`[full]`, taken with `FULL=1`). Reads and
//! checks; runs nothing.
//!
//! ```toml
//! [scenario]
//! name = "stalls"
//! [target]
//! start = "postgres"
//! script = "select-only"
//! [load]
//! stages = [{ duration = "10s", to = 100 }, { duration = "10s", to = 300 }]
//! [pool]
//! max_size = 100
//! [[fault]]
//! kind = "stall"
//! delay = "200ms"
//! length = "1s"
//! every = "5s"
//! [[variant]]
//! name = "larger pool"
//! pool = { max_size = 200 }
//! full = { pool = { max_size = 300 } }
//! ```

mod faults;
mod freeze;
mod load;
mod pool;
mod poolhouse;
mod sweep;
mod target;

use std::path::Path;

use arrivals::{Fault, Window};
use settings::{Document, Problems, Secret, Section, Variables, environment, load_text, read_text};
pub use upstream::Kind;

use crate::plan::{MongoWork, Plan, PoolUnderTest, PoolWishes, PoolhouseWishes, Script, Target};
use load::LoadKeys;
use report::side_by_side;
use sweep::SweepKeys;
pub use sweep::SweepPlan;

/// Variants that a file may have.
const MAX_VARIANTS: usize = 64;
/// Conditions that a file may have.
const MAX_CONDITIONS: usize = 64;

/// What a scenario file says.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: String,
    /// What it shows, for the report.
    pub about: String,
    /// The scenario brings its own database: it is to be started, and the plans are to be pointed at it.
    pub start: Option<Start>,
    /// The runs, in the order of the file; none if there is a sweep.
    pub plans: Vec<Plan>,
    /// It asks for a sweep instead.
    pub sweep: Option<SweepPlan>,
    /// The published durations are used.
    pub full: bool,
    /// How many seconds of the published experiment one of the load stands for, if the file says so.
    pub compression: Option<f64>,
    /// The figures in which its runs stand beside one another.
    pub columns: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start {
    pub kind: Kind,
    pub max_connections: u32,
}

impl Scenario {
    /// Makes all runs ask this target, which is of the same kind as the file's.
    pub fn point_at(&mut self, url: &Secret) {
        if let Some(sweep) = &mut self.sweep {
            sweep.target.point_at(url);
        }
        for plan in &mut self.plans {
            plan.target.point_at(url);
        }
    }

    /// Gives it another name, and its runs with it.
    pub fn rename(&mut self, name: &str) {
        for plan in &mut self.plans {
            let own = plan.name.strip_prefix(&self.name).unwrap_or_default();
            plan.name = format!("{name}{own}");
        }
        self.name = name.to_owned();
    }

    /// The largest scale of the built-in scripts' tables that a run needs; `None`: no run needs them.
    pub fn largest_table_scale(&self) -> Option<u32> {
        let scale = |target: &Target| match target {
            Target::Postgres(target) => {
                target.scripts.iter().any(|(script, _)| !matches!(script, Script::File(..))).then_some(target.scale)
            }
            Target::Redis(_) | Target::MongoDb(_) | Target::Http(_) => None,
        };
        self.targets().filter_map(scale).max()
    }

    /// Whether a run needs what can be made before: tables of the built-in scripts, or documents of the built-in
    /// operations.
    pub fn needs_making(&self) -> bool {
        let needs_documents = |target: &Target| match target {
            Target::MongoDb(target) => matches!(target.work, MongoWork::BuiltIn { .. }),
            Target::Postgres(_) | Target::Redis(_) | Target::Http(_) => false,
        };
        self.largest_table_scale().is_some() || self.targets().any(needs_documents)
    }

    /// What is asked, of the runs and of the sweep.
    fn targets(&self) -> impl Iterator<Item = &Target> {
        let of_sweep = self.sweep.iter().map(|sweep| &sweep.target);
        self.plans.iter().map(|plan| &plan.target).chain(of_sweep)
    }
}

/// Reads a scenario file. The environment variable `FULL`, if it is `1`, chooses the published durations.
///
/// # Errors
/// All that is wrong with it, each at its place.
pub fn load(path: &Path) -> Result<Scenario, Problems> {
    let text = load_text(path)?;
    from_text(path, &text, &environment, is_full())
}

/// Reads the text of a scenario file, with these environment variables; `full`: with the published durations.
///
/// # Errors
/// All that is wrong with it, each at its place.
pub fn from_text(path: &Path, text: &str, variables: Variables<'_>, full: bool) -> Result<Scenario, Problems> {
    from_text_with(path, text, variables, full, |_, _| ()).map(|(scenario, ())| scenario)
}

/// Like [`from_text`], and returns what `other` reads of the file, such as the planner of `[plan]`.
///
/// # Errors
/// All that is wrong with it, each at its place.
pub fn from_text_with<T>(
    path: &Path,
    text: &str,
    variables: Variables<'_>,
    full: bool,
    other: impl FnOnce(&Document<'_>, &Section<'_>) -> T,
) -> Result<(Scenario, T), Problems> {
    let (scenario, other) = read_text(path, text, variables, &[FILE_KEYS], |document, root| {
        (read(document, root, full), other(document, root))
    })?;
    Ok((scenario.expect("without problems it is complete"), other))
}

/// Whether the environment asks for the published durations: `FULL=1`.
#[must_use]
pub fn is_full() -> bool {
    environment("FULL").is_some_and(|value| value == "1")
}

const FILE_KEYS: &[&str] =
    &["scenario", "target", "load", "pool", "fault", "freeze", "poolhouse", "variant", "sweep", "full", "plan"];
const SCENARIO_KEYS: &[&str] = &["name", "about", "seed", "fail_if", "compression", "columns"];
/// A second does not stand for more than this many.
const MAX_COMPRESSION: f64 = 1e6;
const LAYER_KEYS: &[&str] = &["load", "pool", "fault", "freeze", "poolhouse"];
const FULL_KEYS: &[&str] = &["load", "pool", "fault", "freeze", "poolhouse", "sweep"];
const VARIANT_KEYS: &[&str] = &["name", "load", "pool", "fault", "freeze", "poolhouse", "full"];

/// What variants and the published durations may change. Absent keys leave the layer below as it is.
#[derive(Clone, Default)]
struct Layer {
    load: LoadKeys,
    pool: PoolWishes,
    faults: Option<Vec<Fault>>,
    freeze: Option<Window>,
    poolhouse: Option<PoolhouseWishes>,
}

impl Layer {
    fn read(section: &Section<'_>) -> Self {
        let load = section.table("load", &[load::KEYS]);
        let pool = section.table("pool", &[pool::KEYS]);
        Self {
            load: load.map(|section| LoadKeys::read(&section)).unwrap_or_default(),
            pool: pool.map(|section| pool::read(&section)).unwrap_or_default(),
            faults: section.has("fault").then(|| faults::read(section)),
            freeze: section.table("freeze", &[freeze::KEYS]).and_then(|section| freeze::read(&section)),
            poolhouse: section.table("poolhouse", &[poolhouse::KEYS]).map(|section| poolhouse::read(&section)),
        }
    }

    /// This layer, and where it says nothing the one below.
    fn over(self, below: &Self) -> Self {
        Self {
            load: self.load.over(&below.load),
            pool: self.pool.over(&below.pool),
            faults: self.faults.or_else(|| below.faults.clone()),
            freeze: self.freeze.or(below.freeze),
            poolhouse: match (self.poolhouse, below.poolhouse) {
                (Some(own), Some(below)) => Some(own.over(&below)),
                (own, below) => own.or(below),
            },
        }
    }
}

fn read(document: &Document<'_>, root: &Section<'_>, full: bool) -> Option<Scenario> {
    let Some(section) = root.table("scenario", &[SCENARIO_KEYS]) else {
        root.error("scenario", "there is no [scenario]: write one with a `name`");
        return None;
    };
    let head = Head::read(section, full);
    let target = match root.table("target", &[target::KEYS]) {
        Some(section) => target::read(document, &section),
        None => {
            root.error(
                "target",
                "there is no [target]: write one with a `url`, or with start = \"postgres\" or \"redis\"",
            );
            None
        }
    };
    let published = root.table("full", &[FULL_KEYS]);
    let (plans, sweep) = match root.table("sweep", &[sweep::KEYS]) {
        Some(section) => {
            let published = published.as_ref().filter(|_| full);
            (Vec::new(), Some(read_sweep(root, &section, published, &head, target.as_ref().map(|(target, _)| target))?))
        }
        None => (read_plans(root, published.as_ref(), &head, target.as_ref().map(|(target, _)| target))?, None),
    };
    if target.as_ref().is_some_and(|(_, start)| start.is_none()) && plans.iter().any(|plan| plan.poolhouse.is_some()) {
        root.error(
            "poolhouse",
            "a Poolhouse is started in front of a database that is started, too: give [target] a `start`",
        );
    }
    let Head { name, about, compression, columns, .. } = head;
    target.map(|(_, start)| Scenario { name, about, start, plans, sweep, full, compression, columns })
}

/// What `[scenario]` says.
struct Head<'s> {
    section: Section<'s>,
    name: String,
    about: String,
    seed: u64,
    conditions: Vec<String>,
    compression: Option<f64>,
    columns: Vec<String>,
    full: bool,
}

impl<'s> Head<'s> {
    fn read(section: Section<'s>, full: bool) -> Self {
        let conditions = section.texts("fail_if").unwrap_or_default();
        if conditions.len() > MAX_CONDITIONS {
            section.error("fail_if", format!("more than {MAX_CONDITIONS} conditions"));
        }
        let columns = section.texts("columns").unwrap_or_default();
        if let Some(unknown) = columns.iter().find(|name| !side_by_side::NAMES.contains(&name.as_str())) {
            let there = side_by_side::NAMES.join(", ");
            section.error("columns", format!("there is no column `{}`; there are {there}", unknown.escape_debug()));
        }
        let compression = section.decimal("compression", 1.0..=MAX_COMPRESSION);
        Self {
            name: name_of(&section, "[scenario]"),
            about: section.string("about").unwrap_or_default(),
            seed: section.number("seed", 0..=u32::MAX).map_or(1, u64::from),
            conditions,
            // The published durations stand for themselves.
            columns,
            compression: compression.map(|times| if full { 1.0 } else { times }),
            full,
            section,
        }
    }
}

/// `[sweep]`, and what of `[full]` lies over it.
fn read_sweep(
    root: &Section<'_>,
    section: &Section<'_>,
    published: Option<&Section<'_>>,
    head: &Head<'_>,
    target: Option<&Target>,
) -> Option<SweepPlan> {
    for key in LAYER_KEYS.iter().chain(&["variant"]).filter(|key| root.has(key)) {
        root.error(key, format!("with [sweep] there is no `{key}`: the sweep makes its own load"));
    }
    if head.section.has("fail_if") {
        head.section.error("fail_if", "a sweep has no conditions to miss");
    }
    if head.section.has("columns") {
        head.section.error("columns", "a sweep has a table of its own");
    }
    if head.section.has("compression") {
        head.section.error("compression", "a sweep has no rates per hour that `compression` could be for");
    }
    let mut keys = SweepKeys::read(section);
    if let Some(published) = published.and_then(|section| section.table("sweep", &[sweep::KEYS])) {
        keys = SweepKeys::read(&published).over(&keys);
    }
    match target? {
        Target::Http(_) => {
            root.error("sweep", "a sweep asks a database: PostgreSQL, MongoDB or Redis");
            None
        }
        target => keys.plan(target.clone(), head.seed).map_err(|message| section.error("to", message)).ok(),
    }
}

/// The runs: one, or one for each variant.
fn read_plans(
    root: &Section<'_>,
    published: Option<&Section<'_>>,
    head: &Head<'_>,
    target: Option<&Target>,
) -> Option<Vec<Plan>> {
    if let Some(section) = published.filter(|section| section.has("sweep")) {
        section.error("sweep", "there is no [sweep] whose durations these could be");
    }
    let mut base = Layer::read(root);
    if let Some(published) = published.map(Layer::read).filter(|_| head.full) {
        base = published.over(&base);
    }
    let variants = root.tables("variant", &[VARIANT_KEYS]);
    if variants.len() > MAX_VARIANTS {
        root.error("variant", format!("more than {MAX_VARIANTS} variants"));
        return None;
    }
    let mut plans = Vec::new();
    if variants.is_empty() {
        plans.extend(plan(head.name.clone(), &base, head, target).map_err(|message| root.error("load", message)).ok());
    }
    for variant in &variants {
        let own = name_of(variant, "[[variant]]");
        let mut layer = Layer::read(variant).over(&base);
        let published = variant.table("full", &[LAYER_KEYS]).map(|section| Layer::read(&section));
        if let Some(published) = published.filter(|_| head.full) {
            layer = published.over(&layer);
        }
        let name = format!("{}: {own}", head.name);
        plans.extend(plan(name, &layer, head, target).map_err(|message| variant.error("", message)).ok());
    }
    Some(plans.into_iter().flatten().collect())
}

/// The run that a layer describes; `None`: what is wrong has been said of the target.
fn plan(name: String, layer: &Layer, head: &Head<'_>, target: Option<&Target>) -> Result<Option<Plan>, String> {
    let shape = layer.load.shape()?;
    let pool: PoolUnderTest = layer.pool.pool(&shape);
    let Some(target) = target.cloned() else { return Ok(None) };
    let plan = Plan {
        name,
        target,
        pool,
        faults: layer.faults.clone().unwrap_or_default(),
        warmup: layer.load.warmup(),
        timeout: layer.load.timeout(),
        seed: head.seed,
        fail_if: head.conditions.clone(),
        freeze: layer.freeze,
        poolhouse: layer.poolhouse,
        shape,
    };
    plan.check().map(|()| Some(plan))
}

fn name_of(section: &Section<'_>, title: &str) -> String {
    if !section.has("name") {
        section.error("name", format!("{title} needs a `name`"));
    }
    section.string("name").unwrap_or_default()
}

#[cfg(test)]
mod tests;
