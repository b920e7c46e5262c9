//! A MongoDB as something to look at: what it is asked over one connection that stays, and how often. What the answers
//! mean is known elsewhere.

use std::{
    thread,
    time::{Duration, Instant},
};

use admin_api::{Client, Command, MAX_SESSIONS, Mongo, Session};
use anyhow::bail;
use clients::mongodb::{Querier, Reply};
use doctor::Line;
use serde_json::Value;
use settings::Secret;

use super::sources::{ANSWER_TIMEOUT, Source};

/// Where the server answers of itself.
const ADMIN: &str = "admin";
/// Two lists of connections are at least this far apart.
const LIST_EVERY: Duration = Duration::from_secs(1);
/// From this many pausing transactions on, it matters whether their pauses are long. A single one may be chance.
const MIN_PAUSING: usize = 2;
/// Then they are listed, and so much later once more: MongoDB tells only the sum of a transaction's pauses. The
/// doctor's texts name this.
const ONCE_MORE: Duration = Duration::from_millis(100);
/// That begins up to so much later than the look, each time at another moment: clients that beat time with the looks
/// would always be seen at the end of their pauses.
const OUT_OF_STEP: Duration = Duration::from_millis(300);
/// The fractions of multiples of the golden section are spread evenly, however many there are.
const GOLDEN: f64 = 0.618_033_988_749_895;
/// The name that MongoDB has for who may not ask something.
const UNAUTHORIZED: i32 = 13;

/// A MongoDB.
pub struct MongoDb {
    url: Secret,
    /// As its user says; otherwise what the server says.
    processors: Option<u64>,
    known: Option<Known>,
}

/// One that is connected to.
struct Known {
    querier: Querier,
    /// The number of this connection.
    own: Option<u64>,
    processors: Option<u64>,
    /// When it ends transactions.
    lifetime_s: Option<u64>,
    /// When its connections were listed last.
    listed: Option<Instant>,
    /// Times that they were listed once more.
    again: u32,
    /// Why they are not to be listed.
    hides: Option<String>,
}

impl MongoDb {
    /// Asks nothing yet.
    pub fn new(url: Secret, processors: Option<u32>) -> Self {
        Self { url, processors: processors.map(u64::from), known: None }
    }

    /// What it shows, and when that was.
    fn look(&mut self) -> anyhow::Result<(Instant, Mongo)> {
        if self.known.is_none() {
            let mut known = Known::connect(&self.url)?;
            known.processors = match self.processors {
                None => known.done(&Mongo::machine())?.as_ref().and_then(Mongo::processors),
                given => given,
            };
            known.lifetime_s = known.done(&Mongo::lifetime())?.as_ref().and_then(Mongo::lifetime_s);
            self.known = Some(known);
        }
        self.known.as_mut().expect("it was just connected to").look()
    }
}

impl Source for MongoDb {
    fn look(&mut self, began: Instant) -> anyhow::Result<Line> {
        let looked = self.look();
        if looked.is_err() {
            // It may have been restarted: the next look connects anew.
            self.known = None;
        }
        let (at, look) = looked?;
        let at_us = at.saturating_duration_since(began).as_micros() as u64;
        Ok(Line::MongoDb { at_us, look: Box::new(look) })
    }

    fn clients(&mut self) -> anyhow::Result<Vec<Client>> {
        Ok(Vec::new())
    }
}

impl Known {
    fn connect(url: &Secret) -> anyhow::Result<Self> {
        let mut this = Self {
            querier: Querier::connect(url, ANSWER_TIMEOUT)?,
            own: None,
            processors: None,
            lifetime_s: None,
            listed: None,
            again: 0,
            hides: None,
        };
        for hello in Mongo::hello() {
            if let Some(answer) = this.done(&hello)? {
                this.own = Mongo::connection(&answer);
                break;
            }
        }
        if this.done(&Mongo::pooler())?.as_ref().is_some_and(Mongo::is_of_pooler) {
            let why = "a Poolhouse answers at this address: name the server's own, or look at the Poolhouse (`poolhouse doctor http://ADMIN`)";
            this.hides = Some(why.to_owned());
        }
        Ok(this)
    }

    /// The answer; `None` if the server refuses the command.
    fn done(&mut self, command: &Command) -> anyhow::Result<Option<Value>> {
        Ok(match self.querier.query(ADMIN, command, ANSWER_TIMEOUT)? {
            Reply::Done(answer) => Some(answer),
            Reply::Refused { .. } => None,
        })
    }

    fn look(&mut self) -> anyhow::Result<(Instant, Mongo)> {
        let answer = match self.querier.query(ADMIN, &Mongo::status(), ANSWER_TIMEOUT)? {
            Reply::Done(answer) => answer,
            Reply::Refused { code: UNAUTHORIZED, message } => {
                bail!("{message}: the user that looks needs the role clusterMonitor on admin")
            }
            Reply::Refused { message, .. } => bail!("serverStatus is refused: {message}"),
        };
        // What is counted is as of now. Lists take a while, and each another one.
        let at = Instant::now();
        let mut look = Mongo::read(&answer).map_err(anyhow::Error::msg)?;
        (look.processors, look.transaction_lifetime_s) = (self.processors, self.lifetime_s);
        self.list(&mut look)?;
        Ok((at, look))
    }

    /// Its connections, if they may be seen, are not too many, and were not listed a moment ago.
    fn list(&mut self, look: &mut Mongo) -> anyhow::Result<()> {
        if look.current > MAX_SESSIONS {
            look.hides_sessions = Some(format!("they are not listed where there are more than {MAX_SESSIONS}"));
            return Ok(());
        }
        if self.hides.is_none() && self.listed.is_none_or(|listed| listed.elapsed() >= LIST_EVERY) {
            let command = Mongo::connections(self.own, look.process.starts_with("mongos"));
            match self.querier.query(ADMIN, &command, ANSWER_TIMEOUT)? {
                Reply::Done(answer) => {
                    let seen = Mongo::sessions(&answer);
                    let again = self.once_more(&seen, &command)?;
                    look.seen_again = again.is_some();
                    look.sessions = Some(again.unwrap_or(seen));
                }
                Reply::Refused { code: UNAUTHORIZED, .. } => {
                    self.hides =
                        Some("$currentOp is refused; the role clusterMonitor on admin would show it".to_owned());
                }
                Reply::Refused { message, .. } => self.hides = Some(format!("$currentOp is refused: {message}")),
            }
            self.listed = Some(Instant::now());
        }
        look.hides_sessions = self.hides.clone();
        Ok(())
    }

    /// The connections a moment later, with how long transactions pause. `None` if too few of the `seen` transactions
    /// pause, or the server refuses.
    fn once_more(&mut self, seen: &[Session], command: &Command) -> anyhow::Result<Option<Vec<Session>>> {
        if seen.iter().filter(|session| session.paused_ms.is_some()).count() < MIN_PAUSING {
            return Ok(None);
        }
        self.again = self.again.wrapping_add(1);
        thread::sleep(OUT_OF_STEP.mul_f64((f64::from(self.again) * GOLDEN).fract()));
        let began = Instant::now();
        let Some(before) = self.done(command)? else { return Ok(None) };
        let answered = Instant::now();
        thread::sleep(ONCE_MORE);
        let least = answered.elapsed();
        let Some(now) = self.done(command)? else { return Ok(None) };
        let apart = least..=began.elapsed();
        Ok(Some(Mongo::seen_again(&Mongo::sessions(&before), Mongo::sessions(&now), &apart)))
    }
}
