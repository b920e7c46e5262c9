//! A Redis as a source of looks: the commands that one lasting connection carries, and how often.

use std::time::{Duration, Instant};

use admin_api::{Client, MAX_INFO_BYTES, MAX_LIST_BYTES, MAX_LISTED_CLIENTS, Redis as Look};
use anyhow::bail;
use clients::redis::{Querier, Reply};
use doctor::Line;
use settings::Secret;

use super::sources::{ANSWER_TIMEOUT, Source, micros_since};

/// Bounds the time between two lists of connections, with an addition for each connection in the list: the server does
/// nothing else while it makes the list.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
const LIST_INTERVAL_PER_CLIENT: Duration = Duration::from_millis(1);
/// Bytes of an answer that holds one number.
const MAX_NUMBER_REPLY: usize = 4 * 1024;
/// The error of a server that takes no more connections.
const TOO_MANY_CLIENTS: &str = "max number of clients";

/// A Redis.
pub struct Redis {
    url: Secret,
    session: Option<Connection>,
}

/// A connection.
struct Connection {
    querier: Querier,
    /// The id of this connection.
    own_id: Option<u64>,
    /// The limit of connections, where INFO does not have it.
    limit: Option<u64>,
    /// When connections were listed last.
    last_listed: Option<Instant>,
    /// Why connections are not listed.
    hidden_because: Option<String>,
}

impl Redis {
    /// Sends nothing yet.
    pub fn new(url: Secret) -> Self {
        Self { url, session: None }
    }

    fn look(&mut self) -> anyhow::Result<Look> {
        if self.session.is_none() {
            self.session = Some(Connection::connect(&self.url)?);
        }
        self.session.as_mut().expect("it was just connected to").look()
    }
}

impl Source for Redis {
    fn look(&mut self, began: Instant) -> anyhow::Result<Line> {
        let looked = self.look();
        if looked.is_err() {
            // It may have been restarted: the next look connects anew.
            self.session = None;
        }
        Ok(Line::Redis { at_us: micros_since(began), look: Box::new(looked?) })
    }

    fn clients(&mut self) -> anyhow::Result<Vec<Client>> {
        Ok(Vec::new())
    }
}

impl Connection {
    fn connect(url: &Secret) -> anyhow::Result<Self> {
        let querier = Querier::connect(url, ANSWER_TIMEOUT).map_err(|error| explain_full(error.to_string()))?;
        Ok(Self { querier, own_id: None, limit: None, last_listed: None, hidden_because: None })
    }

    fn look(&mut self) -> anyhow::Result<Look> {
        let is_first = self.last_listed.is_none();
        let info = match self
            .querier
            .query(&Look::INFO_COMMAND, MAX_INFO_BYTES, ANSWER_TIMEOUT)
            .map_err(|error| explain_full(error.to_string()))?
        {
            Reply::Text { text, .. } => text,
            Reply::Refused(message) if message.contains(TOO_MANY_CLIENTS) => return Err(explain_full(message)),
            Reply::Refused(message) => bail!("INFO is refused: {message}"),
        };
        let mut look = Look::read(&info).map_err(anyhow::Error::msg)?;
        if is_first && look.max_clients.is_none() {
            self.limit = self.query_number(&Look::MAX_CLIENTS_COMMAND)?.as_deref().and_then(Look::read_max_clients);
        }
        look.max_clients = look.max_clients.or(self.limit);
        self.list(&mut look)?;
        Ok(look)
    }

    /// A short answer; `None` if the server refuses to give it.
    fn query_number(&mut self, words: &[&str]) -> anyhow::Result<Option<String>> {
        Ok(match self.querier.query(words, MAX_NUMBER_REPLY, ANSWER_TIMEOUT)? {
            Reply::Text { text, .. } => Some(text),
            Reply::Refused(_) => None,
        })
    }

    /// Lists connections, if that is allowed, they are not too many, and the last list is old enough.
    fn list(&mut self, look: &mut Look) -> anyhow::Result<()> {
        if look.connected > MAX_LISTED_CLIENTS {
            look.hides_clients = Some(format!("they are not listed where there are more than {MAX_LISTED_CLIENTS}"));
            self.last_listed = self.last_listed.or(Some(Instant::now()));
            return Ok(());
        }
        let every =
            LIST_INTERVAL + LIST_INTERVAL_PER_CLIENT * u32::try_from(look.connected).expect("they are few enough");
        if self.hidden_because.is_none() && self.last_listed.is_none_or(|listed| listed.elapsed() >= every) {
            if self.own_id.is_none() {
                self.own_id = self.query_number(&Look::OWN_ID_COMMAND)?.as_deref().and_then(Look::read_own_id);
            }
            match self.querier.query(&Look::CLIENTS_COMMAND, MAX_LIST_BYTES, ANSWER_TIMEOUT)? {
                Reply::Text { text, .. } if Look::is_of_pooler(&text) => {
                    let why = "a Poolhouse answers at this address, and lists its own clients: name Redis's own \
                               address, or look at the Poolhouse (`poolhouse doctor http://ADMIN`)";
                    self.hidden_because = Some(why.to_owned());
                }
                Reply::Text { text, is_whole } => {
                    let (clients, left_out) = Look::read_clients(&text, is_whole, self.own_id);
                    let lacking = if is_whole { 0 } else { look.connected.saturating_sub(clients.len() as u64) };
                    (look.clients, look.left_out) = (Some(clients), left_out.max(lacking));
                }
                Reply::Refused(message) => {
                    self.hidden_because =
                        Some(format!("CLIENT LIST is refused ({message}); ACL SETUSER ... +client|list allows it"));
                }
            }
            self.last_listed = Some(Instant::now());
        }
        look.hides_clients = self.hidden_because.clone();
        Ok(())
    }
}

fn explain_full(message: String) -> anyhow::Error {
    if message.contains(TOO_MANY_CLIENTS) {
        return anyhow::anyhow!(
            "{message}: every connection that it takes is taken, and that itself is what is wrong. A connection made \
             before, or maxclients, raised for a moment by CONFIG SET, lets CLIENT LIST tell by whom"
        );
    }
    anyhow::Error::msg(message)
}
