//! One connection that is asked one thing after the other, and waited for: what is done before any load, or without one. Measures nothing.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use driver::{Event, Lines};
use pool::Time;
use postgres_session::Answer;

use super::{
    cancel::Cancels,
    link::{Link, News},
    place::Place,
};
use crate::target::{TargetError, on_lines::Down};

/// The only connection.
const KEY: u32 = 0;

/// A connection.
pub(super) struct Once<'a> {
    place: Place,
    lines: Lines,
    link: Option<Link>,
    out: Vec<u8>,
    cancels: Cancels,
    /// What is asked is given up when this is set.
    stop: Option<&'a AtomicBool>,
}

/// Whether it is to be given up is looked at so often.
const STOP_EVERY: Duration = Duration::from_millis(100);

impl<'a> Once<'a> {
    /// Connects and logs in, within so long.
    ///
    /// # Errors
    /// Why that was not possible.
    pub(super) fn connect(place: Place, within: Duration) -> Result<Self, TargetError> {
        let mut lines = Lines::new(Instant::now()).map_err(|error| TargetError::machine(error.to_string()))?;
        let now = lines.now();
        let link = Link::open(KEY, &mut lines, &place, now);
        let mut this =
            Self { place, lines, link: Some(link), out: Vec::new(), cancels: Cancels::default(), stop: None };
        match this.wait(now + within)? {
            News::Up => Ok(this),
            News::Down(down) => Err(this.explain(&down)),
            News::Nothing => Err(TargetError::target(format!(
                "{} does not answer within {} s",
                this.address(),
                within.as_secs_f64()
            ))),
            News::Answered => unreachable!("nothing was asked"),
        }
    }

    /// The same, to be given up when `stop` is set.
    pub(super) fn until(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// The server's version, as it says.
    pub(super) fn version(&mut self) -> Option<String> {
        self.link.as_mut()?.requester().version().map(str::to_owned)
    }

    /// The process that answers here, as the server says.
    pub(super) fn process(&mut self) -> Option<u32> {
        self.link.as_mut()?.requester().process()
    }

    /// Whether another process carries out what is asked than the one that answers here: a pooler is between.
    ///
    /// # Errors
    /// The server's error, or that it is gone or takes longer than `within`.
    pub(super) fn is_pooled(&mut self, within: Duration) -> Result<bool, TargetError> {
        let Some(here) = self.process() else { return Ok(false) };
        let answer = self.ask("SELECT pg_catalog.pg_backend_pid() AS pid", within)?;
        let there = answer.row().and_then(|row| row.first()?.1.as_deref()?.parse::<u32>().ok());
        Ok(there.is_some_and(|there| there != here))
    }

    /// Asks something and waits for the answer; keeps the first row.
    ///
    /// # Errors
    /// The server's error, or that it is gone or takes longer than `within`.
    pub(super) fn ask(&mut self, sql: &str, within: Duration) -> Result<Answer, TargetError> {
        self.ask_for_rows(sql, 1, within)
    }

    /// The same, and keeps up to `most` rows.
    pub(super) fn ask_for_rows(&mut self, sql: &str, most: usize, within: Duration) -> Result<Answer, TargetError> {
        let Some(link) = self.link.as_mut() else {
            return Err(TargetError::target(format!("{} has closed the connection", self.address())));
        };
        if link.requester().is_asking() {
            return Err(TargetError::target(format!("{} still owes an answer", self.address())));
        }
        self.out.clear();
        link.requester().query(sql, &mut self.out);
        link.requester().keep_rows(most);
        self.lines.send(KEY, &self.out);
        let until = self.lines.now() + within;
        match self.wait(until)? {
            News::Answered => {}
            News::Down(down) => return Err(self.explain(&down)),
            _ => return Err(TargetError::target(format!("{} takes too long for an answer", self.address()))),
        }
        let answer = self.link.as_mut().expect("it has answered").requester().answer().clone();
        match &answer.error {
            Some(error) => Err(TargetError::target(error.to_string())),
            None => Ok(answer),
        }
    }

    /// What comes of the request, or nothing by then. What had happened besides when the last wait ended comes first.
    fn wait(&mut self, until: Time) -> Result<News, TargetError> {
        loop {
            while let Some(event) = self.lines.next() {
                let Self { lines, link, place, out, .. } = self;
                let link = link.as_mut().expect("the connection is there");
                let news = match event {
                    Event::Received { bytes, .. } => {
                        let news = link.received(&bytes, lines, place, out);
                        lines.done(bytes);
                        news
                    }
                    event => link.happened(event, lines, place, out),
                };
                match news {
                    News::Nothing => {}
                    News::Down(down) => {
                        self.link = None;
                        return Ok(News::Down(down));
                    }
                    news => return Ok(news),
                }
            }
            if self.lines.now() >= until {
                return Ok(News::Nothing);
            }
            let look = self.stop.map_or(until, |_| until.min(self.lines.now() + STOP_EVERY));
            self.lines.wait(Some(look)).map_err(|error| TargetError::machine(error.to_string()))?;
            if self.stop.is_some_and(|stop| stop.load(Relaxed)) {
                return Err(TargetError::target("interrupted"));
            }
        }
    }

    fn explain(&self, down: &Down) -> TargetError {
        let message = &down.message;
        match down.message.contains(&self.address()) {
            true => TargetError::target(message.clone()),
            false => TargetError::target(format!("{}: {message}", self.address())),
        }
    }

    fn address(&self) -> String {
        self.place.hosts[0].0.to_string()
    }
}

impl Drop for Once<'_> {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            link.close(&mut self.lines, &self.place, &self.cancels);
            self.cancels.finish();
        }
    }
}
