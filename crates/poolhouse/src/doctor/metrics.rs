//! An application's own pools as something to look at: HikariCP, by the metrics that the application shows over HTTP as
//! Prometheus text. What they mean is known elsewhere.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use admin_api::{Client, Hikari, Scrape};
use anyhow::{Context, bail};
use doctor::{INCOMPLETE_SERIES, Line};

use super::sources::{ANSWER_TIMEOUT, Source, micros_since};
use crate::remote::without_login;

/// Bytes of an answer.
const MAX_ANSWER: u64 = 32 * 1024 * 1024;
/// For how long HikariCP shows the same connections and waiters, whatever has become of them; what it counts is shown
/// at once.
const GAUGES_LAST: Duration = Duration::from_secs(1);
/// What Poolhouse's own metrics have.
const OWN: &str = "poolhouse_build_info";

/// An application.
pub struct Metrics {
    page: Page,
    hikari: Hikari,
}

/// Where it shows its metrics, and who asks.
struct Page {
    url: String,
    token: Option<String>,
}

impl Metrics {
    /// What is at a URL, if that shows something of HikariCP's. `token_file`: who asks; the token of a Poolhouse is not
    /// for others, so the one of the environment is not sent.
    ///
    /// # Errors
    /// These are the metrics of a Poolhouse, which show less than its admin address; or the token cannot be read.
    pub fn at(url: &str, token_file: Option<&Path>) -> anyhow::Result<Option<Self>> {
        if !has_path(url) {
            return Ok(None);
        }
        let read = |path: &Path| settings::read_small(path).with_context(|| format!("cannot read {}", path.display()));
        let token = token_file.map(read).transpose()?.map(|token| token.trim().to_owned());
        let page = Page { url: url.to_owned(), token };
        // Who does not answer is told so when it is looked at.
        let Ok(text) = page.fetch() else { return Ok(None) };
        if text.contains(OWN) {
            bail!("these are the metrics of a Poolhouse: give its admin address alone, without a path");
        }
        let scrape = Scrape::read(&text);
        if scrape.has_pools() && !scrape.has_whole_pools() {
            bail!("{}: {INCOMPLETE_SERIES}", without_login(url));
        }
        Ok(scrape.has_pools().then(|| Self { page, hikari: Hikari::default() }))
    }
}

/// Whether a URL has a path. Without one it is the admin address of a Poolhouse; with one it may be another server.
pub fn has_path(url: &str) -> bool {
    let rest = url.strip_prefix("http://").unwrap_or_default();
    rest.find(['/', '?', '#']).is_some_and(|at| &rest[at..] != "/")
}

impl Source for Metrics {
    fn look(&mut self, began: Instant) -> anyhow::Result<Line> {
        let text = self.page.fetch()?;
        let at_us = micros_since(began);
        let look = self.hikari.make_look(at_us as f64 / 1e3, &Scrape::read(&text));
        Ok(Line::Pooler { at_us, look: Box::new(look), holders: Vec::new() })
    }

    fn clients(&mut self) -> anyhow::Result<Vec<Client>> {
        Ok(Vec::new())
    }

    fn refresh_interval(&self) -> Duration {
        GAUGES_LAST
    }
}

impl Page {
    fn fetch(&self) -> anyhow::Result<String> {
        let agent = ureq::Agent::config_builder()
            // The environment's proxy cannot reach what is on this machine, and would see what is asked for.
            .proxy(None)
            .timeout_connect(Some(ANSWER_TIMEOUT))
            .timeout_global(Some(ANSWER_TIMEOUT))
            .user_agent(concat!("poolhouse/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        let get = agent.get(&self.url);
        let get = match &self.token {
            Some(token) => get.header("Authorization", format!("Bearer {token}")),
            None => get,
        };
        let mut response = get.call().with_context(|| format!("cannot ask {}", without_login(&self.url)))?;
        let text = response.body_mut().with_config().limit(MAX_ANSWER).read_to_string();
        text.with_context(|| format!("cannot read the answer of {}", without_login(&self.url)))
    }
}
