//! Files about drivers' own pools that other programs wrote: scrapes of Prometheus text, one behind the other, and
//! events of MongoDB's drivers as JSON. Their lines and looks are bounded, for they may come from anywhere. Opens no
//! file.

use std::time::Duration;

use admin_api::{Cmap, CmapEvent, Hikari, Look, Observation, Scrape, ScrapeLine};
use serde_json::{Map, Value};

use crate::{
    pooler::{MAX_STEPS, PoolerWindow},
    recording::{MAX_LOOKS, ReadError, RecordingReader, Subject},
};

/// Lines that are neither series nor events. A file with more of them is something else.
const MAX_UNKNOWN_LINES: usize = 1_000_000;
/// The error for series that do not suffice.
pub const INCOMPLETE_SERIES: &str = "it has series of HikariCP's, but of no pool those that Micrometer gives: \
    hikaricp_connections_active, _pending and _max";
/// Intervals between looks that are made of events. If one gives too many looks, the next takes its place; each is a
/// multiple of the one before.
const LOOK_INTERVALS: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(300),
    Duration::from_secs(3_600),
];

/// Pools of all looks that are made of events, together. Each is kept until the end, and takes one or two kilobytes.
const MAX_EVENT_POOLS: usize = 50_000;

/// Reads a file of any kind, line by line.
#[derive(Debug)]
pub enum FileReader {
    /// A recording of `doctor --record`.
    Recording(RecordingReader),
    Scrapes(Box<ScrapeReader>),
    Events(Box<EventReader>),
}

/// Reads scrapes of Prometheus text.
#[derive(Debug, Default)]
pub struct ScrapeReader {
    hikari: Hikari,
    current: Scrape,
    window: PoolerWindow,
    /// The time of the first scrape.
    first_s: Option<f64>,
    /// The time of the last scrape.
    last_s: f64,
    /// Where scrapes have no time: the end of the process that ran before.
    ended_s: f64,
    /// Where scrapes have no time: how long the present process has run.
    uptime_s: f64,
    /// A scrape had series of HikariCP's, and no pool that could be looked at.
    has_incomplete_series: bool,
    scrapes: usize,
    /// Pools of all scrapes together.
    pools: usize,
}

/// Reads events of MongoDB's drivers.
#[derive(Debug, Default)]
pub struct EventReader {
    cmap: Cmap,
    /// The index in [`LOOK_INTERVALS`] of the time between two looks.
    interval: usize,
    /// Looks and their times, in seconds.
    looks: Vec<(f64, Look)>,
    /// Pools of all looks together.
    pools: usize,
    /// The time of the next look.
    next_s: f64,
    /// The time of the last event.
    last_s: f64,
    unknown_lines: usize,
}

impl FileReader {
    /// The reader of a file that begins with this line.
    pub fn of(first: &str) -> Self {
        let text = first.trim();
        let is_scrape = text.starts_with('#')
            || Scrape::is_time(text)
            || (text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && is_sample(text));
        // A log may begin with something else than an event.
        if is_foreign_json(text) {
            Self::Events(Box::default())
        } else if is_scrape {
            Self::Scrapes(Box::default())
        } else {
            Self::Recording(RecordingReader::default())
        }
    }

    /// Reads the next line, without its line feed.
    ///
    /// # Errors
    /// It cannot be the next line of such a file.
    pub fn read(&mut self, line: &str) -> Result<(), ReadError> {
        match self {
            Self::Recording(recording) => recording.read(line),
            Self::Scrapes(scrapes) => scrapes.read(line),
            Self::Events(events) => events.read(line),
        }
    }

    /// Ends the reading after the last line.
    ///
    /// # Errors
    /// The file is empty, or breaks off.
    pub fn finish(self) -> Result<Subject, ReadError> {
        match self {
            Self::Recording(recording) => recording.finish(),
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

impl ScrapeReader {
    fn read(&mut self, line: &str) -> Result<(), ReadError> {
        if self.current.add(line) == ScrapeLine::OfNext {
            self.end_scrape()?;
            self.current.add(line);
        }
        Ok(())
    }

    fn end_scrape(&mut self) -> Result<(), ReadError> {
        let scrape = std::mem::take(&mut self.current);
        if !scrape.has_pools() {
            return Ok(());
        }
        if !scrape.has_whole_pools() {
            self.has_incomplete_series = true;
            return Ok(());
        }
        self.scrapes += 1;
        let number = self.scrapes;
        if number > MAX_LOOKS {
            return Err(ReadError(format!("there are more than {MAX_LOOKS} scrapes")));
        }
        let at_s =
            scrape.at_s.or_else(|| self.time_by_uptime(scrape.uptime_s?)).filter(|at| at.is_finite() && *at >= 0.0);
        let at_s = at_s.ok_or_else(|| {
            ReadError(format!(
                "scrape {number} does not say when it was: write `date +%s` in front of each, or keep \
                 process_uptime_seconds in it"
            ))
        })?;
        let first = *self.first_s.get_or_insert(at_s);
        if at_s < self.last_s {
            return Err(ReadError(format!("scrape {number} is from before the one in front of it")));
        }
        self.last_s = at_s;
        let at = duration_since(first, at_s);
        let look = self.hikari.make_look(at.as_secs_f64() * 1e3, &scrape);
        self.pools += look.pools.len();
        if self.pools > MAX_STEPS {
            return Err(ReadError(format!(
                "there are too many pools at too many scrapes: more than {MAX_STEPS} all together"
            )));
        }
        add(&mut self.window, at, look);
        Ok(())
    }

    /// The time of a scrape by the process's own clock: a process that was started anew begins where the one before it
    /// was seen last.
    fn time_by_uptime(&mut self, uptime_s: f64) -> Option<f64> {
        if !uptime_s.is_finite() {
            return None;
        }
        if uptime_s < self.uptime_s {
            self.ended_s = self.last_s;
        }
        self.uptime_s = uptime_s;
        Some(self.ended_s + uptime_s)
    }

    fn finish(mut self) -> Result<Subject, ReadError> {
        self.end_scrape()?;
        if self.scrapes == 0 && self.has_incomplete_series {
            return Err(ReadError(INCOMPLETE_SERIES.to_owned()));
        }
        if self.scrapes == 0 {
            return Err(ReadError("it has nothing of HikariCP's: no series hikaricp_connections".to_owned()));
        }
        Ok(Subject::Pooler(Box::new(self.window)))
    }
}

impl EventReader {
    fn read(&mut self, line: &str) -> Result<(), ReadError> {
        // A log has other lines, too.
        let Some(mut event) = CmapEvent::read(line) else {
            self.unknown_lines += 1;
            return match self.unknown_lines {
                MAX_UNKNOWN_LINES => Err(ReadError(format!("{MAX_UNKNOWN_LINES} lines are no events"))),
                _ => Ok(()),
            };
        };
        // Threads write their events a moment before or after each other.
        let at_s = event.at_s.max(self.last_s);
        if self.looks.is_empty() {
            self.next_s = at_s;
        }
        while self.next_s <= at_s {
            self.look_or_thin_out()?;
        }
        (self.last_s, event.at_s) = (at_s, at_s);
        self.cmap.add(&event);
        Ok(())
    }

    /// Adds a look at the time of the next one; without room for it, thins out the looks instead.
    fn look_or_thin_out(&mut self) -> Result<(), ReadError> {
        // One more comes at the end.
        if self.looks.len() + 1 >= MAX_LOOKS || self.pools >= MAX_EVENT_POOLS {
            return self.thin_out();
        }
        self.add(self.next_s);
        self.next_s += LOOK_INTERVALS[self.interval].as_secs_f64();
        Ok(())
    }

    fn add(&mut self, at_s: f64) {
        let look = self.cmap.make_look(at_s);
        self.pools += look.pools.len();
        self.looks.push((at_s, look));
    }

    /// Widens the interval between looks, and forgets the looks in between. Fails if there is no wider interval.
    fn thin_out(&mut self) -> Result<(), ReadError> {
        let (now, wider) = (
            LOOK_INTERVALS[self.interval].as_secs_f64(),
            LOOK_INTERVALS.get(self.interval + 1).map(Duration::as_secs_f64),
        );
        let wider = wider.ok_or_else(|| {
            let hours = now / 3_600.0;
            ReadError(format!("it lasts too long: looks at its pools that are {hours} h apart are more than are kept"))
        })?;
        let (every, mut n) = ((wider / now).round() as usize, 0);
        self.looks.retain(|_| {
            n += 1;
            (n - 1) % every == 0
        });
        self.pools = self.looks.iter().map(|(_, look)| look.pools.len()).sum();
        self.next_s = self.looks.last().map_or(self.next_s, |(at_s, _)| at_s + wider);
        self.interval += 1;
        Ok(())
    }

    fn finish(mut self) -> Result<Subject, ReadError> {
        let Some((first_s, _)) = self.looks.first() else {
            return Err(ReadError("there is no event in it".to_owned()));
        };
        let first_s = *first_s;
        self.add(self.last_s);
        let mut window = PoolerWindow::default();
        for (at_s, look) in self.looks {
            add(&mut window, duration_since(first_s, at_s), look);
        }
        Ok(Subject::Pooler(Box::new(window)))
    }
}

fn duration_since(first_s: f64, at_s: f64) -> Duration {
    Duration::try_from_secs_f64((at_s - first_s).max(0.0)).unwrap_or(Duration::MAX)
}

fn add(window: &mut PoolerWindow, at: Duration, look: Look) {
    window.add(Observation { at, look, holders: Vec::new() });
}
