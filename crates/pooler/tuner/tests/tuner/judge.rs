//! Lets a tuner run beside a virtual database for hours, and counts what it gave away. Knows no course by name.

use std::time::Duration;

use pool::Time;
use tuner::{Limits, Reason, Sample, Tuner, TunerState};

use crate::{
    closed::Clients,
    database::{Course, Database, Events, Seconds},
};

const LIMITS: Limits = Limits { min: 1, max: 60, window: Duration::from_secs(4) };
const START: u32 = 20;
const HOURS: u64 = 4;
/// How long a database that has moved gives a tuner to find that out.
const GRACE_S: u64 = 60 * 60;
const SECOND: u64 = 1_000_000_000;

/// What came of all courses on one database.
pub struct Judged {
    name: &'static str,
    /// Of each course: what was given away of the best throughput after a size was found, trials included; what a fixed
    /// size of 20 gives away; the size at the end; how many minutes until a size was found; changes an hour after that.
    courses: Vec<(f64, f64, u32, f64, f64)>,
    /// Courses in which a size was found.
    pub found: u64,
}

impl Judged {
    pub const HEAD: &str = "| database | found, median | after, minutes | regret, mean | 95 of 100 | worst | \
        fixed 20 | changes an hour, most |\n|-|-|-|-|-|-|-|-|";

    pub fn regret(&self, share: f64) -> f64 {
        quantile(self.courses.iter().map(|course| course.0), share)
    }

    pub fn mean_regret(&self) -> f64 {
        self.courses.iter().map(|course| course.0).sum::<f64>() / self.courses.len() as f64
    }

    pub fn changes_an_hour(&self, share: f64) -> f64 {
        quantile(self.courses.iter().map(|course| course.4), share)
    }

    pub fn line(&self) -> String {
        let of = |value: fn(&(f64, f64, u32, f64, f64)) -> f64| quantile(self.courses.iter().map(value), 0.5);
        format!(
            "| {} | {:.0} | {:.0} | {:.1}% | {:.1}% | {:.1}% | {:.1}% | {:.0} |",
            self.name,
            of(|course| f64::from(course.2)),
            of(|course| course.3),
            100.0 * self.mean_regret(),
            100.0 * self.regret(0.95),
            100.0 * self.regret(1.0),
            100.0 * of(|course| course.1),
            self.changes_an_hour(1.0),
        )
    }
}

pub fn judged(database: &Database, seeds: u64) -> Judged {
    let courses: Vec<_> = (1..=seeds).filter_map(|seed| course(database, seed)).collect();
    Judged { name: database.name, found: courses.len() as u64, courses }
}

/// One course: what it came to, if a size was found.
fn course(database: &Database, seed: u64) -> Option<(f64, f64, u32, f64, f64)> {
    let clients = database.clients;
    let mut seconds = Seconds::new(database.noise, seed);
    let mut tuner = Tuner::new(LIMITS, START);
    let mut sample = Sample { is_working: true, ..Sample::default() };
    let (mut had, mut fixed, mut best) = (0.0, 0.0, 0.0);
    let (mut found_at, mut changes, mut counted_s) = (None, 0, 0_u64);
    let mut done = 0.0;
    let end = HOURS * 3600;
    for second in 1..=end {
        let moved = database.moves.filter(|_| second > end / 2);
        let course = moved.unwrap_or(database.course);
        let size = tuner.size().min(clients);
        done += seconds.next(course.throughput(size));
        sample.completed = done as u64;
        sample.held += Duration::from_secs(size.into());
        (sample.in_use, sample.waiters) = (size, clients - size);
        let before = tuner.changes();
        let step = tuner.observe(&sample, Time(second * SECOND));
        if found_at.is_none() && tuner.state() == TunerState::Found {
            found_at = Some(second);
        }
        let grace = moved.is_some() && second < end / 2 + GRACE_S;
        if found_at.is_some_and(|found| found < second) && !grace {
            had += course.throughput(size);
            fixed += course.throughput(START.min(clients));
            best += course.best(LIMITS.min..=LIMITS.max.min(clients));
            changes += tuner.changes() - before;
            counted_s += 1;
        }
        assert!(step.is_none_or(|step| step.reason != Reason::Bounds && step.reason != Reason::Unfit));
    }
    let minutes = found_at? as f64 / 60.0;
    let an_hour = changes as f64 / (counted_s as f64 / 3600.0);
    Some((1.0 - had / best, 1.0 - fixed / best, tuner.size(), minutes, an_hour))
}

/// What came of a load with a rate.
#[derive(Debug)]
pub struct Open {
    pub size: u32,
    pub changes: u64,
    /// The share of the last ten minutes' samples that saw a client wait.
    pub waiting: f64,
}

/// One hour of clients that come at a rate, from a pool of this size.
pub fn open(course: Course, rate: f64, size: u32, seed: u64) -> Open {
    let mut events = Events::new(course, rate, seed);
    let mut tuner = Tuner::new(LIMITS, size);
    let mut waiting = 0;
    for second in 1..=3600_u64 {
        events.until(second as f64, tuner.size());
        let (in_use, waiters) = events.present();
        waiting += u32::from(waiters > 0 && second > 3000);
        let held = Duration::from_secs_f64(events.held_s);
        let Events { completed, granted, waited, .. } = events;
        let sample =
            Sample { completed, held, granted, waited, in_use, waiters, is_working: true, ..Sample::default() };
        tuner.observe(&sample, Time(second * SECOND));
    }
    Open { size: tuner.size(), changes: tuner.changes(), waiting: f64::from(waiting) / 600.0 }
}

/// What came of clients that come back.
#[derive(Debug)]
pub struct Closed {
    pub size: u32,
    /// Transactions per second after the first quarter of the time.
    pub throughput: f64,
}

/// Hours of clients that come back, with four samples a second, and a tuned or a fixed size.
pub fn closed(mut clients: Clients, hours: u64, fixed: Option<u32>) -> Closed {
    let mut tuner = Tuner::new(LIMITS, START);
    let samples = hours * 4 * 3600;
    let mut before = 0;
    for at in 1..=samples {
        clients.until(at as f64 / 4.0, fixed.unwrap_or(tuner.size()));
        let (in_use, waiters) = clients.present();
        let (completed, held) = (clients.completed, Duration::from_secs_f64(clients.held_s));
        let sample = Sample { completed, held, in_use, waiters, is_working: true, ..Sample::default() };
        tuner.observe(&sample, Time(at * SECOND / 4));
        if at == samples / 4 {
            before = completed;
        }
    }
    let counted_s = (samples - samples / 4) as f64 / 4.0;
    Closed { size: tuner.size(), throughput: (clients.completed - before) as f64 / counted_s }
}

/// The value below which this share of the numbers lies.
fn quantile(numbers: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers[((numbers.len() - 1) as f64 * share).round() as usize]
}
