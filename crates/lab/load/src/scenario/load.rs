//! `[load]`: how operations arrive.

use std::time::Duration;

use arrivals::{Shape, Spacing, Stage};
use settings::Section;

use crate::plan::{
    DEFAULT_IN_FLIGHT, DEFAULT_ROUNDS, DEFAULT_TIMEOUT, MAX_CLIENTS, MAX_IN_FLIGHT, MAX_RATE, MAX_STAGES,
};

pub(super) const KEYS: &[&str] = &[
    "clients",
    "think",
    "operations",
    "duration",
    "rate",
    "stages",
    "spacing",
    "max_in_flight",
    "burst",
    "at_once",
    "idle",
    "rounds",
    "warmup",
    "timeout",
];
const STAGE_KEYS: &[&str] = &["duration", "from", "to"];

/// The keys of one table, each as it is or absent.
#[derive(Clone, Default)]
pub(super) struct LoadKeys {
    clients: Option<u32>,
    think: Option<Option<Duration>>,
    operations: Option<u32>,
    duration: Option<Duration>,
    rate: Option<f64>,
    stages: Option<Vec<Stage>>,
    spacing: Option<Spacing>,
    max_in_flight: Option<u32>,
    burst: Option<u32>,
    at_once: Option<u32>,
    idle: Option<Duration>,
    rounds: Option<u32>,
    warmup: Option<Option<Duration>>,
    timeout: Option<Duration>,
}

impl LoadKeys {
    pub(super) fn read(section: &Section<'_>) -> Self {
        Self {
            clients: section.number("clients", 1..=MAX_CLIENTS),
            think: section.duration("think"),
            operations: section.number("operations", 1..=u32::MAX),
            duration: section.duration_on("duration"),
            rate: section.decimal("rate", 0.001..=MAX_RATE),
            stages: section.has("stages").then(|| stages(section)),
            spacing: section.choice("spacing", &[("even", Spacing::Even), ("poisson", Spacing::Poisson)]),
            max_in_flight: section.number("max_in_flight", 1..=MAX_IN_FLIGHT),
            burst: section.number("burst", 1..=MAX_CLIENTS),
            at_once: section.number("at_once", 1..=MAX_CLIENTS),
            idle: section.duration_on("idle"),
            rounds: section.number("rounds", 1..=MAX_STAGES as u32),
            warmup: section.duration("warmup"),
            timeout: section.duration_on("timeout"),
        }
    }

    pub(super) fn over(self, below: &Self) -> Self {
        Self {
            clients: self.clients.or(below.clients),
            think: self.think.or(below.think),
            operations: self.operations.or(below.operations),
            duration: self.duration.or(below.duration),
            rate: self.rate.or(below.rate),
            stages: self.stages.or_else(|| below.stages.clone()),
            spacing: self.spacing.or(below.spacing),
            max_in_flight: self.max_in_flight.or(below.max_in_flight),
            burst: self.burst.or(below.burst),
            at_once: self.at_once.or(below.at_once),
            idle: self.idle.or(below.idle),
            rounds: self.rounds.or(below.rounds),
            warmup: self.warmup.or(below.warmup),
            timeout: self.timeout.or(below.timeout),
        }
    }

    /// The shape that the keys describe.
    ///
    /// # Errors
    /// They describe none, or several.
    pub(super) fn shape(&self) -> Result<Shape, String> {
        let given = [
            ("clients", self.clients.is_some()),
            ("rate", self.rate.is_some()),
            ("stages", self.stages.is_some()),
            ("burst", self.burst.is_some()),
        ];
        let given: Vec<&str> = given.iter().filter(|(_, there)| *there).map(|(name, _)| *name).collect();
        let kind = match given[..] {
            [one] => one,
            [] => return Err("the load has no shape: give `clients`, `rate`, `stages` or `burst` in [load]".to_owned()),
            _ => return Err(format!("the load has several shapes: give one of `{}`", given.join("`, `"))),
        };
        self.refuse_foreign(kind)?;
        match kind {
            "clients" => Ok(Shape::Closed {
                clients: self.clients.unwrap_or(1),
                think: self.think.flatten().unwrap_or_default(),
                duration: self.needed_duration("clients")?,
                operations: self.operations.map(u64::from),
            }),
            "burst" => Ok(Shape::Burst {
                size: self.burst.unwrap_or(1),
                at_once: self.at_once.or(self.burst).unwrap_or(1),
                idle: self.idle.ok_or("a burst needs `idle`: the time before it")?,
                rounds: self.rounds.unwrap_or(DEFAULT_ROUNDS),
            }),
            _ => {
                let stages = match (&self.stages, self.rate) {
                    (Some(stages), _) => stages.clone(),
                    (None, rate) => {
                        let rate = rate.unwrap_or(1.0);
                        vec![Stage { duration: self.needed_duration("rate")?, from: rate, to: rate }]
                    }
                };
                Ok(Shape::Open {
                    stages,
                    spacing: self.spacing.unwrap_or_default(),
                    max_in_flight: self.max_in_flight.unwrap_or(DEFAULT_IN_FLIGHT),
                })
            }
        }
    }

    pub(super) fn warmup(&self) -> Duration {
        self.warmup.flatten().unwrap_or_default()
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(DEFAULT_TIMEOUT)
    }

    fn needed_duration(&self, kind: &str) -> Result<Duration, String> {
        self.duration.ok_or_else(|| format!("a load with `{kind}` needs a `duration`"))
    }

    /// A key that says nothing to this shape was meant for another.
    fn refuse_foreign(&self, kind: &str) -> Result<(), String> {
        let keys: [(&str, bool, &[&str]); 9] = [
            ("think", self.think.is_some(), &["clients"]),
            ("operations", self.operations.is_some(), &["clients"]),
            ("duration", self.duration.is_some(), &["clients", "rate"]),
            ("spacing", self.spacing.is_some(), &["rate", "stages"]),
            ("max_in_flight", self.max_in_flight.is_some(), &["rate", "stages"]),
            ("at_once", self.at_once.is_some(), &["burst"]),
            ("idle", self.idle.is_some(), &["burst"]),
            ("rounds", self.rounds.is_some(), &["burst"]),
            ("warmup", self.warmup.is_some(), &["clients", "rate", "stages"]),
        ];
        match keys.iter().find(|(_, there, kinds)| *there && !kinds.contains(&kind)) {
            Some((key, _, kinds)) => {
                Err(format!("`{key}` says nothing to a load with `{kind}`; it goes with `{}`", kinds.join("`, `")))
            }
            None => Ok(()),
        }
    }
}

/// Stages: each begins at the rate that the one before ends with, the first at its own.
fn stages(section: &Section<'_>) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    for table in section.tables("stages", &[STAGE_KEYS]) {
        let duration = table.duration_on("duration");
        let to = table.decimal("to", 0.0..=MAX_RATE);
        let from = table.decimal("from", 0.0..=MAX_RATE).or(stages.last().map(|last| last.to)).or(to);
        for key in ["duration", "to"] {
            if !table.has(key) {
                table.error("", format!("a stage needs `{key}`"));
            }
        }
        if let (Some(duration), Some(from), Some(to)) = (duration, from, to) {
            stages.push(Stage { duration, from, to });
        }
    }
    stages
}
