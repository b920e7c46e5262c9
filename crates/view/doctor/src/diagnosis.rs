//! All that was found, for people and for programs.

use admin_api::Pooler;
use serde::Serialize;

use crate::{
    finding::{Finding, Predicted, Setting, Symptom, Undecided},
    forecast::{Effect, Forecast},
    mongodb::MongoWindow,
    pooler::PoolerWindow,
    postgres::PostgresWindow,
    redis::RedisWindow,
    series::{ServerWindow, Tally},
    symptoms::{self, Verdict, format_ms},
    values,
};

#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// What was looked at.
    pub of: Source,
    pub looked_at: String,
    /// Seconds from the first look to the last.
    pub window_s: f64,
    /// Pools that were looked at; none where it was the database alone.
    pub pools: usize,
    /// The pools had nothing to do meanwhile: that none of them has trouble says little.
    pub is_quiet: bool,
    pub findings: Vec<Finding>,
    pub undecided: Vec<Undecided>,
    /// What cannot be seen from there.
    pub unseen: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Poolhouse,
    #[serde(rename = "pgbouncer")]
    PgBouncer,
    Postgres,
    #[serde(rename = "mongodb")]
    MongoDb,
    Redis,
    /// HikariCP, a pool of applications in Java.
    #[serde(rename = "hikaricp")]
    HikariCp,
    /// The pools of a driver of MongoDB.
    #[serde(rename = "mongodb_driver")]
    MongoDriver,
}

impl Source {
    /// A database was looked at alone, which does not know whether clients wait for a connection.
    fn is_database(self) -> bool {
        match self {
            Self::Postgres | Self::MongoDb | Self::Redis => true,
            Self::Poolhouse | Self::PgBouncer | Self::HikariCp | Self::MongoDriver => false,
        }
    }
}

/// Examines a pooler's window. Values of settings come from rules.
pub fn examine(window: &PoolerWindow) -> Diagnosis {
    examine_with(window, None)
}

/// Examines a pooler's window. A forecast gives the values of settings.
pub fn examine_with(window: &PoolerWindow, forecast: Option<&dyn Forecast>) -> Diagnosis {
    let pools = window.pools();
    let plural = if pools.len() == 1 { "" } else { "s" };
    let (of, whose) = match window.last().map(|look| (look.pooler, look.version.as_str())) {
        Some((Pooler::PgBouncer, version)) => (Source::PgBouncer, format!(" of PgBouncer {version}")),
        Some((Pooler::HikariCp, _)) => (Source::HikariCp, " of HikariCP".to_owned()),
        Some((Pooler::MongoDriver, _)) => (Source::MongoDriver, " of a driver of MongoDB".to_owned()),
        Some((Pooler::Poolhouse, _)) | None => (Source::Poolhouse, String::new()),
    };
    let mut diagnosis = Diagnosis {
        of,
        looked_at: format!("{} pool{plural}{whose}", pools.len()),
        window_s: window.duration().as_secs_f64(),
        pools: pools.len(),
        is_quiet: window.is_quiet(),
        findings: Vec::new(),
        undecided: Vec::new(),
        unseen: symptoms::name_unseen(window),
    };
    for pool in &pools {
        diagnosis.add(symptoms::examine_pool(pool), |finding| values::plan(pool, finding, forecast));
    }
    diagnosis.add(symptoms::examine_clients(window), values::leave_unplanned);
    diagnosis
}

/// Examines the window of a PostgreSQL itself.
pub fn examine_postgres(window: &PostgresWindow) -> Diagnosis {
    let looked_at = window
        .series()
        .last()
        .map(|last| format!("{} connections of PostgreSQL {}", last.count_sessions(), last.version));
    let (verdicts, unseen) = (symptoms::postgres::examine(window), symptoms::postgres::name_unseen(window));
    diagnose_server(Source::Postgres, window, looked_at, verdicts, unseen)
}

/// Examines the window of a MongoDB itself.
pub fn examine_mongodb(window: &MongoWindow) -> Diagnosis {
    let looked_at = window.series().last().map(|last| {
        let mongos = if last.process.starts_with("mongos") { " (mongos)" } else { "" };
        format!("{} connections of MongoDB {}{mongos}", last.current, last.version)
    });
    let (verdicts, unseen) = (symptoms::mongodb::examine(window), symptoms::mongodb::name_unseen(window));
    diagnose_server(Source::MongoDb, window, looked_at, verdicts, unseen)
}

/// Examines the window of a Redis itself.
pub fn examine_redis(window: &RedisWindow) -> Diagnosis {
    let looked_at =
        window.series().last().map(|last| format!("{} connections of Redis {}", last.connected, last.version));
    let (verdicts, unseen) = (symptoms::redis::examine(window), symptoms::redis::name_unseen(window));
    diagnose_server(Source::Redis, window, looked_at, verdicts, unseen)
}

fn diagnose_server<T: Tally>(
    of: Source,
    window: &ServerWindow<T>,
    looked_at: Option<String>,
    verdicts: Vec<Verdict>,
    unseen: Vec<String>,
) -> Diagnosis {
    let mut diagnosis = Diagnosis {
        of,
        looked_at: looked_at.unwrap_or_else(|| "nothing".to_owned()),
        window_s: window.duration().as_secs_f64(),
        pools: 0,
        is_quiet: false,
        findings: Vec::new(),
        undecided: Vec::new(),
        unseen,
    };
    diagnosis.add(verdicts, values::leave_unplanned);
    diagnosis
}

/// The same diagnosis, of which no text steers a terminal: clients and servers choose names and errors.
fn printable(diagnosis: &Diagnosis) -> Diagnosis {
    let clean = |text: &mut String| *text = printable::line(text);
    let mut clean_one = diagnosis.clone();
    clean(&mut clean_one.looked_at);
    clean_one.unseen.iter_mut().for_each(clean);
    for finding in &mut clean_one.findings {
        let Finding { symptom: _, of, evidence, rules_out, setting, advice, predicted, not_planned } = finding;
        [of, rules_out, advice].into_iter().chain(evidence).chain(not_planned).for_each(clean);
        if let Some(Setting { key: _, from, to }) = setting {
            from.iter_mut().chain([to]).for_each(clean);
        }
        if let Some(Predicted { instead, note, now: _, simulated: _, after: _ }) = predicted.as_deref_mut() {
            instead.iter_mut().map(|instead| &mut instead.to).chain([note]).for_each(clean);
        }
    }
    for Undecided { between: _, of, seen, needs } in &mut clean_one.undecided {
        [of, needs].into_iter().chain(seen).for_each(clean);
    }
    clean_one
}

/// Where the value of a setting comes from, and what it will do: a word and a line each.
fn describe_value(finding: &Finding) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(predicted) = &finding.predicted {
        lines.push(("now", describe_effect(&predicted.now)));
        let simulated = predicted.simulated.as_ref();
        lines.extend(
            simulated.map(|simulated| ("played", format!("{}, with the present settings", describe_effect(simulated)))),
        );
        lines.push(("then", format!("{}: {}", describe_effect(&predicted.after), predicted.note)));
        let instead = predicted.instead.as_ref();
        lines.extend(
            instead.map(|other| ("or set", format!("{} = {}: {}", other.key, other.to, describe_effect(&other.after)))),
        );
    }
    if let Some(why) = &finding.not_planned {
        let value = if finding.setting.is_some() { "the value is that of a rule, not of a plan" } else { "no value" };
        lines.push(("rule", format!("{value}: {why}")));
    }
    lines
}

/// What a pool does, for people.
fn describe_effect(effect: &Effect) -> String {
    let mut parts = vec![match effect.transactions_per_s {
        few if few < 10.0 => format!("{few:.1} transactions a second"),
        rate => format!("{rate:.0} transactions a second"),
    }];
    parts.extend(effect.wait_p95_ms.map(|ms| match ms {
        ms if ms < 0.01 => "fewer than one in twenty waits".to_owned(),
        ms => format!("one in twenty waits over {}", format_ms(ms)),
    }));
    parts.extend(effect.created_an_hour.map(|created| format!("{created:.0} new connections an hour")));
    parts.join(", ")
}

fn name_alternatives(symptoms: &[Symptom]) -> String {
    symptoms.iter().map(|symptom| symptom.name()).collect::<Vec<_>>().join(", or ")
}

/// What is said where nothing happened.
const QUIET_TEXT: &str = "Nothing happened in this time: no transaction ended, no server was in use, no client waited. \
                          So there is nothing to find; look again under load.\n";

impl Diagnosis {
    /// Adds what is present or undecided. `plan` gives a finding the value of its setting.
    fn add(&mut self, verdicts: impl IntoIterator<Item = Verdict>, plan: impl Fn(Finding) -> Finding) {
        for verdict in verdicts {
            match verdict {
                Verdict::Absent => {}
                Verdict::Present(finding) => self.findings.push(plan(finding)),
                Verdict::Undecided(undecided) => self.undecided.push(undecided),
            }
        }
    }

    /// A pooler was looked at, and it has no pool.
    pub fn has_no_pools(&self) -> bool {
        !self.of.is_database() && self.pools == 0
    }

    /// The text for people. `bold` makes a heading bold in a terminal.
    pub fn text(&self, bold: impl Fn(&str) -> String) -> String {
        printable(self).write(bold)
    }

    /// A line for each finding and for each that is undecided, or one that nothing was found: for a report of something
    /// else.
    pub fn in_short(&self) -> Vec<String> {
        let this = printable(self);
        let found = this.findings.iter().map(|finding| {
            let set = finding.setting.as_ref().map(|setting| format!("; set {} = {}", setting.key, setting.to));
            let seen = finding.evidence.first().map(|seen| format!(" ({seen})")).unwrap_or_default();
            format!("{}: {}{seen}{}", finding.of, finding.symptom.name(), set.unwrap_or_default())
        });
        let undecided =
            this.undecided.iter().map(|one| format!("{}: undetermined: {}", one.of, name_alternatives(&one.between)));
        let lines: Vec<String> = found.chain(undecided).collect();
        match lines.is_empty() {
            true if this.has_no_pools() => vec!["there was no pool to look at".to_owned()],
            true if this.is_quiet => vec![format!("nothing was asked of {}", this.looked_at)],
            true => {
                let blind = if this.of.is_database() { "; whether clients wait cannot be seen from there" } else { "" };
                vec![format!("healthy, as far as {} tell{blind}", this.looked_at)]
            }
            false => lines,
        }
    }

    fn write(&self, bold: impl Fn(&str) -> String) -> String {
        let mut text = format!("Looked at {} for {:.0} s.\n", self.looked_at, self.window_s);
        for finding in &self.findings {
            text += &format!("\n{}\n", bold(&format!("{}: {}", finding.of, finding.symptom.name())));
            finding.evidence.iter().for_each(|evidence| text += &format!("  seen      {evidence}\n"));
            text += &format!("  not       {}\n", finding.rules_out);
            if let Some(setting) = &finding.setting {
                let from = setting.from.as_ref().map(|from| format!(" (now {from})")).unwrap_or_default();
                text += &format!("  set       {} = {}{from}\n", setting.key, setting.to);
            }
            describe_value(finding).iter().for_each(|(what, line)| text += &format!("  {what:<8}  {line}\n"));
            text += &format!("  do        {}\n", finding.advice);
        }
        for undecided in &self.undecided {
            let between = name_alternatives(&undecided.between);
            text += &format!("\n{}\n", bold(&format!("{}: undetermined: {between}", undecided.of)));
            undecided.seen.iter().for_each(|seen| text += &format!("  seen      {seen}\n"));
            text += &format!("  decides   {}\n", undecided.needs);
        }
        if self.findings.is_empty() && self.undecided.is_empty() {
            text += match self.of {
                _ if self.has_no_pools() => "There is no pool yet: no client has asked for a database.\n",
                _ if self.is_quiet => QUIET_TEXT,
                Source::Poolhouse => "Healthy: none of the symptoms that it knows.\n",
                _ => "Healthy: none of the symptoms that can be seen from here.\n",
            };
        }
        if !self.unseen.is_empty() {
            text += "\nNot seen from here:\n";
            self.unseen.iter().for_each(|unseen| text += &format!("  {unseen}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Instead;

    #[test]
    fn untrusted_names_steer_no_terminal_wherever_they_stand() {
        let evil = || "a\u{1b}]0;b\u{7}\nc\u{9b}d\u{202e}e\u{200b}".to_owned();
        let setting = Setting { key: "max_size", from: Some(evil()), to: evil() };
        let finding = Finding::new(Symptom::PoolTooSmall, evil()).evidence(evil()).rules_out(evil()).advice(evil());
        let after = Effect { transactions_per_s: 1.0, wait_p95_ms: None, created_an_hour: None };
        let instead = Some(Instead { key: "min_size", to: evil(), after });
        let predicted = Predicted { now: after, simulated: None, after, instead, note: evil() };
        let diagnosis = Diagnosis {
            of: Source::Poolhouse,
            looked_at: evil(),
            window_s: 1.0,
            pools: 1,
            is_quiet: false,
            findings: vec![finding.clone().planned(setting, predicted), finding.not_planned(evil())],
            undecided: vec![Undecided::new([Symptom::Leak], evil()).seen(evil()).needs(evil())],
            unseen: vec![evil()],
        };
        let text = diagnosis.text(str::to_owned);
        let steering: Vec<&str> = text.lines().filter(|line| line.contains(printable::steers)).collect();
        assert!(steering.is_empty(), "{steering:?}");
        // Each of the texts is there, and begins no line of its own.
        assert_eq!(text.matches("a\u{fffd}]0;b\u{fffd}\u{fffd}c\u{fffd}d\u{fffd}e\u{fffd}").count(), 18, "{text}");
        assert!(diagnosis.in_short().iter().all(|line| !line.contains(printable::steers)));
    }
}
