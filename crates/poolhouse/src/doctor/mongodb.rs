//! A MongoDB as a source of looks: the commands that one lasting connection carries, and how often.

use std::{
    thread,
    time::{Duration, Instant},
};

use admin_api::{Client, Command, MAX_SESSIONS, Mongo, SessionRow};
use anyhow::bail;
use clients::mongodb::{Querier, Reply};
use doctor::Line;
use serde_json::Value;
use settings::Secret;

use super::sources::{ANSWER_TIMEOUT, Source};

/// Where the server answers of itself.
const ADMIN: &str = "admin";
/// Bounds the time between two lists of connections.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
/// From this number of pausing transactions on, it matters whether their pauses are long. One may be chance.
const MIN_PAUSING: usize = 2;
/// The time between two lists of pausing transactions: MongoDB reports only the sum of a transaction's pauses. The
/// doctor's texts name this time.
const REPEAT_PAUSE: Duration = Duration::from_millis(100);
/// Bounds the delay of these lists after a look, which is different each time: clients in step with the looks would
/// always be seen at the end of their pauses.
const MAX_REPEAT_DELAY: Duration = Duration::from_millis(300);
/// The fractions of multiples of the golden section are spread evenly, however many there are.
const GOLDEN: f64 = 0.618_033_988_749_895;
/// MongoDB's error for a command that the user may not run.
const UNAUTHORIZED: i32 = 13;

/// A MongoDB.
pub struct MongoDb {
    url: Secret,
    /// As the command line says; otherwise the server says it.
    processors: Option<u64>,
    session: Option<Connection>,
}

/// A connection to the server, with what the server has told.
struct Connection {
    querier: Querier,
    /// The id of this connection.
    own_id: Option<u64>,
    processors: Option<u64>,
    /// The age at which the server ends transactions.
    lifetime_s: Option<u64>,
    /// When connections were listed last.
    last_listed: Option<Instant>,
    /// How often pausing transactions were listed again.
    repeats: u32,
    /// Why client connections are not listed; once set, it stays.
    hidden_because: Option<String>,
}

impl MongoDb {
    /// Sends nothing yet.
    pub fn new(url: Secret, processors: Option<u32>) -> Self {
        Self { url, processors: processors.map(u64::from), session: None }
    }

    /// A look, and its time.
    fn look(&mut self) -> anyhow::Result<(Instant, Mongo)> {
        if self.session.is_none() {
            let mut session = Connection::connect(&self.url)?;
            session.processors = match self.processors {
                None => session.run(&Mongo::machine_command())?.as_ref().and_then(Mongo::read_processors),
                given => given,
            };
            session.lifetime_s = session.run(&Mongo::lifetime_command())?.as_ref().and_then(Mongo::read_lifetime_s);
            self.session = Some(session);
        }
        self.session.as_mut().expect("it was just connected to").look()
    }
}

impl Source for MongoDb {
    fn look(&mut self, began: Instant) -> anyhow::Result<Line> {
        let looked = self.look();
        if looked.is_err() {
            // It may have been restarted: the next look connects anew.
            self.session = None;
        }
        let (at, look) = looked?;
        let at_us = at.saturating_duration_since(began).as_micros() as u64;
        Ok(Line::MongoDb { at_us, look: Box::new(look) })
    }

    fn clients(&mut self) -> anyhow::Result<Vec<Client>> {
        Ok(Vec::new())
    }
}

impl Connection {
    fn connect(url: &Secret) -> anyhow::Result<Self> {
        let mut this = Self {
            querier: Querier::connect(url, ANSWER_TIMEOUT)?,
            own_id: None,
            processors: None,
            lifetime_s: None,
            last_listed: None,
            repeats: 0,
            hidden_because: None,
        };
        for hello in Mongo::hello_commands() {
            if let Some(answer) = this.run(&hello)? {
                this.own_id = Mongo::read_connection_id(&answer);
                break;
            }
        }
        if this.run(&Mongo::pooler_command())?.as_ref().is_some_and(Mongo::is_of_pooler) {
            let why = "a Poolhouse answers at this address: name the server's own, or look at the Poolhouse \
                       (`poolhouse doctor http://ADMIN`)";
            this.hidden_because = Some(why.to_owned());
        }
        Ok(this)
    }

    /// The answer; `None` if the server refuses the command.
    fn run(&mut self, command: &Command) -> anyhow::Result<Option<Value>> {
        Ok(match self.querier.query(ADMIN, command, ANSWER_TIMEOUT)? {
            Reply::Done(answer) => Some(answer),
            Reply::Refused { .. } => None,
        })
    }

    fn look(&mut self) -> anyhow::Result<(Instant, Mongo)> {
        let answer = match self.querier.query(ADMIN, &Mongo::status_command(), ANSWER_TIMEOUT)? {
            Reply::Done(answer) => answer,
            Reply::Refused { code: UNAUTHORIZED, message } => {
                bail!("{message}: the user that looks needs the role clusterMonitor on admin")
            }
            Reply::Refused { message, .. } => bail!("serverStatus is refused: {message}"),
        };
        // Counters are as of now. Lists take some time, each a different one.
        let at = Instant::now();
        let mut look = Mongo::read(&answer).map_err(anyhow::Error::msg)?;
        (look.processors, look.transaction_lifetime_s) = (self.processors, self.lifetime_s);
        self.list(&mut look)?;
        Ok((at, look))
    }

    /// Lists connections, if that is allowed, they are not too many, and the last list is old enough.
    fn list(&mut self, look: &mut Mongo) -> anyhow::Result<()> {
        if look.current > MAX_SESSIONS {
            look.hides_sessions = Some(format!("they are not listed where there are more than {MAX_SESSIONS}"));
            return Ok(());
        }
        if self.hidden_because.is_none() && self.last_listed.is_none_or(|listed| listed.elapsed() >= LIST_INTERVAL) {
            let command = Mongo::connections_command(self.own_id, look.process.starts_with("mongos"));
            match self.querier.query(ADMIN, &command, ANSWER_TIMEOUT)? {
                Reply::Done(answer) => {
                    let seen = Mongo::read_sessions(&answer);
                    let again = self.list_again(&seen, &command)?;
                    look.are_listed_twice = again.is_some();
                    look.sessions = Some(again.unwrap_or(seen));
                }
                Reply::Refused { code: UNAUTHORIZED, .. } => {
                    self.hidden_because =
                        Some("$currentOp is refused; the role clusterMonitor on admin would show it".to_owned());
                }
                Reply::Refused { message, .. } => {
                    self.hidden_because = Some(format!("$currentOp is refused: {message}"))
                }
            }
            self.last_listed = Some(Instant::now());
        }
        look.hides_sessions = self.hidden_because.clone();
        Ok(())
    }

    /// The connections a moment later, with how long transactions pause. `None` if too few of the `seen` transactions
    /// pause, or the server refuses.
    fn list_again(&mut self, seen: &[SessionRow], command: &Command) -> anyhow::Result<Option<Vec<SessionRow>>> {
        if seen.iter().filter(|session| session.paused_ms.is_some()).count() < MIN_PAUSING {
            return Ok(None);
        }
        self.repeats = self.repeats.wrapping_add(1);
        thread::sleep(MAX_REPEAT_DELAY.mul_f64((f64::from(self.repeats) * GOLDEN).fract()));
        let began = Instant::now();
        let Some(before) = self.run(command)? else { return Ok(None) };
        let answered = Instant::now();
        thread::sleep(REPEAT_PAUSE);
        let least = answered.elapsed();
        let Some(now) = self.run(command)? else { return Ok(None) };
        let apart = least..=began.elapsed();
        Ok(Some(Mongo::measure_pauses(&Mongo::read_sessions(&before), Mongo::read_sessions(&now), &apart)))
    }
}
