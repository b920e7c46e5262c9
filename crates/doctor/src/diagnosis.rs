//! All that was found, for people and for programs.

use serde::Serialize;
use watch::Pooler;

use crate::{
    database::DatabaseWindow,
    finding::{Finding, Undecided},
    symptoms::{self, Verdict},
    window::Window,
};

/// What a window tells.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// What was looked at.
    pub of: Source,
    /// That, in words.
    pub looked_at: String,
    /// Seconds that were looked at.
    pub window_s: f64,
    /// Pools that were looked at; none where it was the database alone.
    pub pools: usize,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// What may be.
    pub undecided: Vec<Undecided>,
    /// What cannot be seen from there.
    pub unseen: Vec<String>,
}

/// What can be looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A Poolhouse.
    Poolhouse,
    /// A PgBouncer.
    #[serde(rename = "pgbouncer")]
    PgBouncer,
    /// A PostgreSQL itself.
    Postgres,
    /// A MongoDB itself.
    #[serde(rename = "mongodb")]
    MongoDb,
    /// A Redis itself.
    Redis,
    /// HikariCP, a pool of applications in Java.
    #[serde(rename = "hikaricp")]
    HikariCp,
    /// The pools of a driver of MongoDB.
    #[serde(rename = "mongodb_driver")]
    MongoDriver,
}

/// Examines a pooler's window.
pub fn examine(window: &Window) -> Diagnosis {
    let pools = window.pools();
    let verdicts = pools.iter().flat_map(symptoms::of_pool).chain(symptoms::of_clients(window));
    let look = window.look();
    let plural = if pools.len() == 1 { "" } else { "s" };
    let (of, whose) = match look.map(|look| look.pooler) {
        Some(Pooler::PgBouncer) => {
            (Source::PgBouncer, format!(" of PgBouncer {}", look.map_or("", |look| look.version.as_str())))
        }
        Some(Pooler::HikariCp) => (Source::HikariCp, " of HikariCP".to_owned()),
        Some(Pooler::MongoDriver) => (Source::MongoDriver, " of a driver of MongoDB".to_owned()),
        Some(Pooler::Poolhouse) | None => (Source::Poolhouse, String::new()),
    };
    let looked_at = format!("{} pool{plural}{whose}", pools.len());
    let none = Diagnosis {
        of,
        looked_at,
        window_s: window.lasts().as_secs_f64(),
        pools: pools.len(),
        findings: Vec::new(),
        undecided: Vec::new(),
        unseen: symptoms::unseen(window),
    };
    none.with(verdicts)
}

/// Examines a database's window.
pub fn examine_database(window: &DatabaseWindow) -> Diagnosis {
    let looked_at = match window.ends() {
        Some((_, last)) => format!(
            "{} connections of PostgreSQL {}",
            last.backends.len() as u64 + last.hidden + last.left_out,
            last.version
        ),
        None => "nothing".to_owned(),
    };
    let none = Diagnosis {
        of: Source::Postgres,
        looked_at,
        window_s: window.lasts().as_secs_f64(),
        pools: 0,
        findings: Vec::new(),
        undecided: Vec::new(),
        unseen: symptoms::database::unseen(window),
    };
    none.with(symptoms::database::examine(window))
}

/// Names and errors may have been chosen by strangers, who are not to steer the terminal.
fn harmless(diagnosis: &Diagnosis) -> Diagnosis {
    let clean = |text: &mut String| {
        *text = text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect();
    };
    let mut clean_one = diagnosis.clone();
    clean(&mut clean_one.looked_at);
    clean_one.unseen.iter_mut().for_each(clean);
    for finding in &mut clean_one.findings {
        clean(&mut finding.of);
        finding.evidence.iter_mut().for_each(clean);
    }
    for undecided in &mut clean_one.undecided {
        clean(&mut undecided.of);
        undecided.seen.iter_mut().for_each(clean);
    }
    clean_one
}

impl Diagnosis {
    pub(crate) fn with(mut self, verdicts: impl IntoIterator<Item = Verdict>) -> Self {
        for verdict in verdicts {
            match verdict {
                Verdict::Absent => {}
                Verdict::Present(finding) => self.findings.push(finding),
                Verdict::Undecided(undecided) => self.undecided.push(undecided),
            }
        }
        self
    }

    /// There was nothing to look at: a pooler without a pool.
    pub fn is_of_nothing(&self) -> bool {
        !matches!(self.of, Source::Postgres | Source::MongoDb | Source::Redis) && self.pools == 0
    }

    /// For people. `bold` puts a heading into whatever a terminal makes bold.
    pub fn text(&self, bold: impl Fn(&str) -> String) -> String {
        harmless(self).written(bold)
    }

    /// A line for each finding and for each that is undecided, or one that nothing was found: for a report of something else.
    pub fn in_short(&self) -> Vec<String> {
        let this = harmless(self);
        let found = this.findings.iter().map(|finding| {
            let set = finding.setting.as_ref().map(|setting| format!("; set {} = {}", setting.key, setting.to));
            let seen = finding.evidence.first().map(|seen| format!(" ({seen})")).unwrap_or_default();
            format!("{}: {}{seen}{}", finding.of, finding.symptom.name(), set.unwrap_or_default())
        });
        let undecided = this.undecided.iter().map(|undecided| {
            let between: Vec<_> = undecided.between.iter().map(|symptom| symptom.name()).collect();
            format!("{}: undetermined: {}", undecided.of, between.join(", or "))
        });
        let lines: Vec<String> = found.chain(undecided).collect();
        match lines.is_empty() {
            true if this.is_of_nothing() => vec!["there was no pool to look at".to_owned()],
            true => vec![format!("healthy, as far as {} tell", this.looked_at)],
            false => lines,
        }
    }

    fn written(&self, bold: impl Fn(&str) -> String) -> String {
        let mut text = format!("Looked at {} for {:.0} s.\n", self.looked_at, self.window_s);
        for finding in &self.findings {
            text += &format!("\n{}\n", bold(&format!("{}: {}", finding.of, finding.symptom.name())));
            finding.evidence.iter().for_each(|evidence| text += &format!("  seen      {evidence}\n"));
            text += &format!("  not       {}\n", finding.rules_out);
            if let Some(setting) = &finding.setting {
                let from = setting.from.as_ref().map(|from| format!(" (now {from})")).unwrap_or_default();
                text += &format!("  set       {} = {}{from}\n", setting.key, setting.to);
            }
            text += &format!("  do        {}\n", finding.advice);
        }
        for undecided in &self.undecided {
            let between: Vec<_> = undecided.between.iter().map(|symptom| symptom.name()).collect();
            text += &format!("\n{}\n", bold(&format!("{}: undetermined: {}", undecided.of, between.join(", or "))));
            undecided.seen.iter().for_each(|seen| text += &format!("  seen      {seen}\n"));
            text += &format!("  decides   {}\n", undecided.needs);
        }
        if self.findings.is_empty() && self.undecided.is_empty() {
            text += match self.of {
                _ if self.is_of_nothing() => "There is no pool yet: nobody has asked for a database.\n",
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
