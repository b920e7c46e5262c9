//! One connection that stays, and is asked one command after the other, for who looks at a server and puts no load on it. Measures nothing,
//! and knows no command.

use std::time::{Duration, Instant};

use driver::{Event, Lines};
use pool::Time;

use super::{Link, News};
use crate::target::{TargetError, on_lines::Down};

/// The only connection.
const KEY: u32 = 0;

/// A connection.
pub(in crate::target) struct Standing<L: Link> {
    place: L::Place,
    address: String,
    lines: Lines,
    link: Option<L>,
    out: Vec<u8>,
    /// An answer is due.
    owes: bool,
}

impl<L: Link> Standing<L> {
    /// Connects and logs in, within so long.
    ///
    /// # Errors
    /// Why that was not possible.
    pub(in crate::target) fn connect(place: L::Place, address: String, within: Duration) -> Result<Self, TargetError> {
        let mut lines = Lines::new(Instant::now()).map_err(|error| TargetError::machine(error.to_string()))?;
        let now = lines.now();
        let link = L::open(KEY, &mut lines, &place, now);
        let mut this = Self { place, address, lines, link: Some(link), out: Vec::new(), owes: false };
        match this.wait(now + within)? {
            News::Up => Ok(this),
            News::Down(down) => Err(this.explain(&down)),
            News::Nothing => {
                Err(TargetError::target(format!("{} does not answer within {} s", this.address, within.as_secs_f64())))
            }
            News::Answered => unreachable!("nothing was asked"),
        }
    }

    /// Has `question` append a command, and waits for the answer, which the connection then has. After an error the connection is of no use.
    ///
    /// # Errors
    /// The server is gone or takes longer than `within`.
    pub(in crate::target) fn ask(
        &mut self,
        question: impl FnOnce(&mut L, &mut Vec<u8>),
        within: Duration,
    ) -> Result<&mut L, TargetError> {
        let Some(link) = self.link.as_mut() else {
            return Err(TargetError::target(format!("{} has closed the connection", self.address)));
        };
        if self.owes || !link.is_open() {
            return Err(TargetError::target(format!("{} still owes an answer", self.address)));
        }
        self.out.clear();
        question(link, &mut self.out);
        self.lines.send(KEY, &self.out);
        self.owes = true;
        let until = self.lines.now() + within;
        match self.wait(until)? {
            News::Answered => {}
            News::Down(down) => return Err(self.explain(&down)),
            News::Up | News::Nothing => {
                return Err(TargetError::target(format!("{} takes too long for an answer", self.address)));
            }
        }
        self.owes = false;
        Ok(self.link.as_mut().expect("it has answered"))
    }

    /// What comes of the connection, or nothing by then. What had happened besides when the last wait ended comes first.
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
            self.lines.wait(Some(until)).map_err(|error| TargetError::machine(error.to_string()))?;
        }
    }

    fn explain(&self, down: &Down) -> TargetError {
        let message = &down.message;
        match message.contains(&self.address) {
            true => TargetError::target(message.clone()),
            false => TargetError::target(format!("{}: {message}", self.address)),
        }
    }
}

impl<L: Link> Drop for Standing<L> {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            link.close(&mut self.lines);
        }
    }
}
