//! What others recorded of drivers' own pools, as lines of a file: scrapes of Prometheus text, one behind the other,
//! and events of MongoDB's drivers as JSON. Their lines and looks are bounded, for they may come from anywhere. Opens
//! no file.

use std::time::Duration;

use admin_api::{Cmap, CmapEvent, Hikari, Look, Observation, Scrape, Taken};
use serde_json::{Map, Value};

use crate::{
    recording::{Damage, MAX_LOOKS, Patient, Reading},
    window::{MAX_STEPS, Window},
};

/// Lines that are neither series nor events. A file with more of them is something else.
const MAX_UNKNOWN_LINES: usize = 1_000_000;
/// What is said of series that are not enough.
pub const NOT_WHOLE: &str = "it has series of HikariCP's, but of no pool those that Micrometer gives: hikaricp_connections_active, _pending and _max";
/// Intervals between looks that are made of events. If one gives too many looks, the next takes its place; each is a
/// multiple of the one before.
const LOOK_INTERVALS: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(300),
    Duration::from_secs(3_600),
];

/// Pools of all looks that are made of events. Each is kept until the end, and takes one or two kilobytes.
const MAX_EVENT_POOLS: usize = 50_000;

/// Reads a file of whatever kind, line by line.
#[derive(Debug)]
pub enum FileReading {
    /// A recording of `doctor --record`.
    Own(Reading),
    /// Scrapes of Prometheus text.
    Scrapes(Box<Scrapes>),
    Events(Box<Events>),
}

/// Scrapes one behind the other.
#[derive(Debug, Default)]
pub struct Scrapes {
    hikari: Hikari,
    at_hand: Scrape,
    window: Window,
    /// When the first one was, and the last, in seconds.
    first_s: Option<f64>,
    last_s: f64,
    /// Where scrapes have no time: when the process ended that ran before, and for how long the present one has run.
    ended_s: f64,
    uptime_s: f64,
    /// Some had something of HikariCP's, and no pool that could be looked at.
    has_parts: bool,
    count: usize,
    steps: usize,
}

#[derive(Debug, Default)]
pub struct Events {
    cmap: Cmap,
    /// How far looks are apart: which of [`LOOK_INTERVALS`].
    step: usize,
    /// Looks, and when each was, in seconds; and how many pools they have together.
    looks: Vec<(f64, Look)>,
    made: usize,
    /// When the next look is, and when the last event was.
    next_s: f64,
    last_s: f64,
    strange: usize,
}

impl FileReading {
    /// What a file is that begins with this line.
    pub fn of(first: &str) -> Self {
        let text = first.trim();
        let looks_scraped = text.starts_with('#')
            || Scrape::is_time(text)
            || (text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && is_sample(text));
        match () {
            // A log may begin with something else than an event.
            () if is_foreign_json(text) => Self::Events(Box::default()),
            () if looks_scraped => Self::Scrapes(Box::default()),
            () => Self::Own(Reading::default()),
        }
    }

    /// Takes the next line, without its end.
    ///
    /// # Errors
    /// It cannot be the next line of such a file.
    pub fn take(&mut self, line: &str) -> Result<(), Damage> {
        match self {
            Self::Own(reading) => reading.take(line),
            Self::Scrapes(scrapes) => scrapes.take(line),
            Self::Events(events) => events.take(line),
        }
    }

    /// All lines were taken.
    ///
    /// # Errors
    /// It is empty, or broke off.
    pub fn finish(self) -> Result<Patient, Damage> {
        match self {
            Self::Own(reading) => reading.finish(),
            Self::Scrapes(scrapes) => scrapes.finish(),
            Self::Events(events) => events.finish(),
        }
    }
}

/// True for a line of another program's log: a JSON object that does not begin a recording.
fn is_foreign_json(text: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(text).is_ok_and(|line| !line.contains_key("recording"))
}

/// A name, perhaps labels, and a number.
fn is_sample(text: &str) -> bool {
    let number = text.rsplit(' ').next().is_some_and(|value| value.parse::<f64>().is_ok());
    let name = text.split(['{', ' ']).next().unwrap_or_default();
    number && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':'))
}

impl Scrapes {
    fn take(&mut self, line: &str) -> Result<(), Damage> {
        if self.at_hand.take(line) == Taken::Next {
            self.end_scrape()?;
            self.at_hand.take(line);
        }
        Ok(())
    }

    fn end_scrape(&mut self) -> Result<(), Damage> {
        let scrape = std::mem::take(&mut self.at_hand);
        if !scrape.has_pools() {
            return Ok(());
        }
        if !scrape.has_whole_pools() {
            self.has_parts = true;
            return Ok(());
        }
        self.count += 1;
        let number = self.count;
        if number > MAX_LOOKS {
            return Err(Damage(format!("there are more than {MAX_LOOKS} scrapes")));
        }
        let at_s = scrape.at_s.or_else(|| self.by_uptime(scrape.uptime_s?)).filter(|at| at.is_finite() && *at >= 0.0);
        let at_s = at_s.ok_or_else(|| {
            Damage(format!(
                "scrape {number} does not say when it was: write `date +%s` in front of each, or keep process_uptime_seconds in it"
            ))
        })?;
        let first = *self.first_s.get_or_insert(at_s);
        if at_s < self.last_s {
            return Err(Damage(format!("scrape {number} is from before the one in front of it")));
        }
        self.last_s = at_s;
        let at = since(first, at_s);
        let look = self.hikari.look(at.as_secs_f64() * 1e3, &scrape);
        self.steps += look.pools.len();
        if self.steps > MAX_STEPS {
            return Err(Damage(format!(
                "there are too many pools at too many scrapes: more than {MAX_STEPS} all together"
            )));
        }
        add(&mut self.window, at, look);
        Ok(())
    }

    /// When that was, as far as the process itself knows: one that was started anew begins where the one before it was
    /// seen last.
    fn by_uptime(&mut self, uptime_s: f64) -> Option<f64> {
        if !uptime_s.is_finite() {
            return None;
        }
        if uptime_s < self.uptime_s {
            self.ended_s = self.last_s;
        }
        self.uptime_s = uptime_s;
        Some(self.ended_s + uptime_s)
    }

    fn finish(mut self) -> Result<Patient, Damage> {
        self.end_scrape()?;
        if self.count == 0 && self.has_parts {
            return Err(Damage(NOT_WHOLE.to_owned()));
        }
        if self.count == 0 {
            return Err(Damage("it has nothing of HikariCP's: no series hikaricp_connections".to_owned()));
        }
        Ok(Patient::Pooler(Box::new(self.window)))
    }
}

impl Events {
    fn take(&mut self, line: &str) -> Result<(), Damage> {
        // A log has other lines, too.
        let Some(mut event) = CmapEvent::read(line) else {
            self.strange += 1;
            return match self.strange {
                MAX_UNKNOWN_LINES => Err(Damage(format!("{MAX_UNKNOWN_LINES} lines are no events"))),
                _ => Ok(()),
            };
        };
        // Threads write their events a moment before or after each other.
        let at_s = event.at_s.max(self.last_s);
        if self.looks.is_empty() {
            self.next_s = at_s;
        }
        while self.next_s <= at_s {
            self.look()?;
        }
        (self.last_s, event.at_s) = (at_s, at_s);
        self.cmap.take(&event);
        Ok(())
    }

    /// Looks, or makes room for that.
    fn look(&mut self) -> Result<(), Damage> {
        // One more comes at the end.
        if self.looks.len() + 1 >= MAX_LOOKS || self.made >= MAX_EVENT_POOLS {
            return self.thin_out();
        }
        self.add(self.next_s);
        self.next_s += LOOK_INTERVALS[self.step].as_secs_f64();
        Ok(())
    }

    fn add(&mut self, at_s: f64) {
        let look = self.cmap.look(at_s);
        self.made += look.pools.len();
        self.looks.push((at_s, look));
    }

    /// Keeps those looks that there would be if they were further apart, as they are from now on.
    fn thin_out(&mut self) -> Result<(), Damage> {
        let (now, wider) =
            (LOOK_INTERVALS[self.step].as_secs_f64(), LOOK_INTERVALS.get(self.step + 1).map(Duration::as_secs_f64));
        let wider = wider.ok_or_else(|| {
            let hours = now / 3_600.0;
            Damage(format!("it lasts too long: looks at its pools that are {hours} h apart are more than are kept"))
        })?;
        let (every, mut n) = ((wider / now).round() as usize, 0);
        self.looks.retain(|_| {
            n += 1;
            (n - 1) % every == 0
        });
        self.made = self.looks.iter().map(|(_, look)| look.pools.len()).sum();
        self.next_s = self.looks.last().map_or(self.next_s, |(at_s, _)| at_s + wider);
        self.step += 1;
        Ok(())
    }

    fn finish(mut self) -> Result<Patient, Damage> {
        let Some((first_s, _)) = self.looks.first() else { return Err(Damage("there is no event in it".to_owned())) };
        let first_s = *first_s;
        self.add(self.last_s);
        let mut window = Window::default();
        for (at_s, look) in self.looks {
            add(&mut window, since(first_s, at_s), look);
        }
        Ok(Patient::Pooler(Box::new(window)))
    }
}

fn since(first_s: f64, at_s: f64) -> Duration {
    Duration::try_from_secs_f64((at_s - first_s).max(0.0)).unwrap_or(Duration::MAX)
}

fn add(window: &mut Window, at: Duration, look: Look) {
    window.add(Observation { at, look, holders: Vec::new() });
}
