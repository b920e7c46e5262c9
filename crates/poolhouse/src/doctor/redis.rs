//! A Redis as something to look at: what it is asked over one connection that stays, and how often. What the answers
//! mean is known elsewhere.

use std::time::{Duration, Instant};

use admin_api::{Client, MAX_INFO, MAX_LIST, MAX_LISTED, Redis as Look};
use anyhow::bail;
use clients::redis::{Querier, Reply};
use doctor::Line;
use settings::Secret;

use super::sources::{ANSWER_TIMEOUT, Source, micros};

/// Lists of connections are so far apart at least, and for each connection in the list so much more: the server does
/// nothing else meanwhile.
const LIST_EVERY: Duration = Duration::from_secs(1);
const FOR_EACH: Duration = Duration::from_millis(1);
/// Bytes of an answer that holds one number.
const MAX_SHORT: usize = 4 * 1024;
/// What a server says when it takes no more connections.
const FULL: &str = "max number of clients";

/// A Redis.
pub struct Redis {
    url: Secret,
    known: Option<Known>,
}

/// One that is connected to.
struct Known {
    querier: Querier,
    /// The number of this connection.
    own: Option<u64>,
    /// How many it takes, where INFO does not tell.
    limit: Option<u64>,
    /// When its connections were listed last.
    listed: Option<Instant>,
    /// Why they are not to be listed.
    hides: Option<String>,
}

impl Redis {
    /// Asks nothing yet.
    pub fn new(url: Secret) -> Self {
        Self { url, known: None }
    }

    fn look(&mut self) -> anyhow::Result<Look> {
        if self.known.is_none() {
            self.known = Some(Known::connect(&self.url)?);
        }
        self.known.as_mut().expect("it was just connected to").look()
    }
}

impl Source for Redis {
    fn look(&mut self, began: Instant) -> anyhow::Result<Line> {
        let looked = self.look();
        if looked.is_err() {
            // It may have been restarted: the next look connects anew.
            self.known = None;
        }
        Ok(Line::Redis { at_us: micros(began), look: Box::new(looked?) })
    }

    fn clients(&mut self) -> anyhow::Result<Vec<Client>> {
        Ok(Vec::new())
    }
}

impl Known {
    fn connect(url: &Secret) -> anyhow::Result<Self> {
        let querier = Querier::connect(url, ANSWER_TIMEOUT).map_err(|error| full(error.to_string()))?;
        Ok(Self { querier, own: None, limit: None, listed: None, hides: None })
    }

    fn look(&mut self) -> anyhow::Result<Look> {
        let is_first = self.listed.is_none();
        let info =
            match self.querier.query(&Look::INFO, MAX_INFO, ANSWER_TIMEOUT).map_err(|error| full(error.to_string()))? {
                Reply::Text { text, .. } => text,
                Reply::Refused(message) if message.contains(FULL) => return Err(full(message)),
                Reply::Refused(message) => bail!("INFO is refused: {message}"),
            };
        let mut look = Look::read(&info).map_err(anyhow::Error::msg)?;
        if is_first && look.max_clients.is_none() {
            self.limit = self.short(&Look::LIMIT)?.as_deref().and_then(Look::limit);
        }
        look.max_clients = look.max_clients.or(self.limit);
        self.list(&mut look)?;
        Ok(look)
    }

    /// A short answer; `None` if the server refuses to give it.
    fn short(&mut self, words: &[&str]) -> anyhow::Result<Option<String>> {
        Ok(match self.querier.query(words, MAX_SHORT, ANSWER_TIMEOUT)? {
            Reply::Text { text, .. } => Some(text),
            Reply::Refused(_) => None,
        })
    }

    /// Its connections, if they may be seen, are not too many, and were not listed a moment ago.
    fn list(&mut self, look: &mut Look) -> anyhow::Result<()> {
        if look.connected > MAX_LISTED {
            look.hides_clients = Some(format!("they are not listed where there are more than {MAX_LISTED}"));
            self.listed = self.listed.or(Some(Instant::now()));
            return Ok(());
        }
        let every = LIST_EVERY + FOR_EACH * u32::try_from(look.connected).expect("they are few enough");
        if self.hides.is_none() && self.listed.is_none_or(|listed| listed.elapsed() >= every) {
            if self.own.is_none() {
                self.own = self.short(&Look::OWN)?.as_deref().and_then(Look::own);
            }
            match self.querier.query(&Look::CLIENTS, MAX_LIST, ANSWER_TIMEOUT)? {
                Reply::Text { text, .. } if Look::is_of_pooler(&text) => {
                    let why = "a Poolhouse answers at this address, and lists its own clients: name Redis's own address, or look at the Poolhouse \
                               (`poolhouse doctor http://ADMIN`)";
                    self.hides = Some(why.to_owned());
                }
                Reply::Text { text, is_whole } => {
                    let (clients, left_out) = Look::clients(&text, is_whole, self.own);
                    let lacking = if is_whole { 0 } else { look.connected.saturating_sub(clients.len() as u64) };
                    (look.clients, look.left_out) = (Some(clients), left_out.max(lacking));
                }
                Reply::Refused(message) => {
                    self.hides =
                        Some(format!("CLIENT LIST is refused ({message}); ACL SETUSER ... +client|list allows it"));
                }
            }
            self.listed = Some(Instant::now());
        }
        look.hides_clients = self.hides.clone();
        Ok(())
    }
}

fn full(message: String) -> anyhow::Error {
    if message.contains(FULL) {
        return anyhow::anyhow!(
            "{message}: every connection that it takes is taken, and that itself is what is wrong. A connection made before, or maxclients, \
             raised for a moment by CONFIG SET, lets CLIENT LIST tell by whom"
        );
    }
    anyhow::Error::msg(message)
}
