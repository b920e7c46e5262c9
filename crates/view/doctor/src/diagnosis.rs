//! All that was found, for people and for programs.

use admin_api::Pooler;
use serde::Serialize;

use crate::{
    database::DatabaseWindow,
    finding::{Finding, Predicted, Setting, Told, Undecided},
    forecast::{Effect, Forecast},
    symptoms::{self, Verdict},
    values,
    window::Window,
};

#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    pub of: Source,
    pub looked_at: String,
    /// Seconds that were looked at.
    pub window_s: f64,
    /// Pools that were looked at; none where it was the database alone.
    pub pools: usize,
    /// Nothing was asked of these pools meanwhile: that none of them has trouble tells little.
    pub is_quiet: bool,
    pub findings: Vec<Told>,
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

/// Examines a pooler's window. Values of settings are those of rules.
pub fn examine(window: &Window) -> Diagnosis {
    examine_with(window, None)
}

/// Examines a pooler's window. Who can predict what a pool does gives the values of settings.
pub fn examine_with(window: &Window, forecast: Option<&dyn Forecast>) -> Diagnosis {
    let pools = window.pools();
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
        is_quiet: window.is_quiet(),
        findings: Vec::new(),
        undecided: Vec::new(),
        unseen: symptoms::unseen(window),
    };
    let of_pools = pools.iter().fold(none, |all, pool| {
        all.with_told(symptoms::of_pool(pool), |finding| values::planned(pool, finding, forecast))
    });
    of_pools.with(symptoms::of_clients(window))
}

/// Examines a database's window.
pub fn examine_database(window: &DatabaseWindow) -> Diagnosis {
    let looked_at = match window.ends() {
        Some((_, last)) => format!(
            "{} connections of PostgreSQL {}",
            admin_api::sum(&[last.backends.len() as u64, last.hidden, last.left_out]),
            last.version
        ),
        None => "nothing".to_owned(),
    };
    let none = Diagnosis {
        of: Source::Postgres,
        looked_at,
        window_s: window.lasts().as_secs_f64(),
        pools: 0,
        is_quiet: false,
        findings: Vec::new(),
        undecided: Vec::new(),
        unseen: symptoms::database::unseen(window),
    };
    none.with(symptoms::database::examine(window))
}

/// Names and errors may have been chosen by strangers, who are not to steer the terminal.
fn harmless(diagnosis: &Diagnosis) -> Diagnosis {
    let clean = |text: &mut String| *text = printable::line(text);
    let mut clean_one = diagnosis.clone();
    clean(&mut clean_one.looked_at);
    clean_one.unseen.iter_mut().for_each(clean);
    for finding in &mut clean_one.findings {
        clean(&mut finding.of);
        finding.evidence.iter_mut().for_each(clean);
        clean(&mut finding.rules_out);
        clean(&mut finding.advice);
        if let Some(Setting { key: _, from, to }) = &mut finding.setting {
            from.iter_mut().for_each(clean);
            clean(to);
        }
        if let Some(Predicted { instead, note, .. }) = &mut finding.predicted {
            instead.iter_mut().for_each(|instead| clean(&mut instead.to));
            clean(note);
        }
        finding.not_planned.iter_mut().for_each(clean);
    }
    for undecided in &mut clean_one.undecided {
        clean(&mut undecided.of);
        undecided.seen.iter_mut().for_each(clean);
        clean(&mut undecided.needs);
    }
    clean_one
}

/// Where the value comes from, and what it will do: a word and a line each.
fn told_of_value(finding: &Told) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(predicted) = &finding.predicted {
        lines.push(("now", done(&predicted.now)));
        lines.extend(
            predicted.played.as_ref().map(|played| ("played", format!("{}, with the present settings", done(played)))),
        );
        lines.push(("then", format!("{}: {}", done(&predicted.then), predicted.note)));
        let instead = predicted.instead.as_ref();
        lines.extend(instead.map(|other| ("or set", format!("{} = {}: {}", other.key, other.to, done(&other.then)))));
    }
    if let Some(why) = &finding.not_planned {
        let value = if finding.setting.is_some() { "the value is that of a rule, not of a plan" } else { "no value" };
        lines.push(("rule", format!("{value}: {why}")));
    }
    lines
}

/// What a pool does, for people.
fn done(effect: &Effect) -> String {
    let mut parts = vec![match effect.transactions_per_s {
        few if few < 10.0 => format!("{few:.1} transactions a second"),
        rate => format!("{rate:.0} transactions a second"),
    }];
    parts.extend(effect.wait_p95_ms.map(|ms| match ms {
        ms if ms < 0.01 => "fewer than one in twenty waits".to_owned(),
        ms => format!("one in twenty waits over {}", symptoms::time(ms)),
    }));
    parts.extend(effect.created_an_hour.map(|many| format!("{many:.0} new connections an hour")));
    parts.join(", ")
}

/// What is said where nothing happened.
const QUIET: &str = "Nothing happened in this time: no transaction ended, no server was in use, no client waited. So there is nothing to find; \
                     look again under load.\n";

impl Diagnosis {
    pub(crate) fn with(self, verdicts: impl IntoIterator<Item = Verdict>) -> Self {
        self.with_told(verdicts, values::unplanned)
    }

    fn with_told(mut self, verdicts: impl IntoIterator<Item = Verdict>, tell: impl Fn(Finding) -> Told) -> Self {
        for verdict in verdicts {
            match verdict {
                Verdict::Absent => {}
                Verdict::Present(finding) => self.findings.push(tell(finding)),
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

    /// A line for each finding and for each that is undecided, or one that nothing was found: for a report of something
    /// else.
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
            true if this.is_quiet => vec![format!("nothing was asked of {}", this.looked_at)],
            true => {
                let blind = this.unseen.iter().any(|unseen| unseen.contains("wait for a connection"));
                let blind = if blind { "; whether clients wait cannot be seen from there" } else { "" };
                vec![format!("healthy, as far as {} tell{blind}", this.looked_at)]
            }
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
            told_of_value(finding).iter().for_each(|(what, line)| text += &format!("  {what:<8}  {line}\n"));
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
                _ if self.is_quiet => QUIET,
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
    use crate::finding::{Instead, Symptom};

    #[test]
    fn names_that_strangers_chose_steer_no_terminal_wherever_they_stand() {
        let evil = || "a\u{1b}]0;b\u{7}\nc\u{9b}d\u{202e}e\u{200b}".to_owned();
        let setting = Setting { key: "max_size", from: Some(evil()), to: evil() };
        let finding = Finding {
            symptom: Symptom::PoolTooSmall,
            of: evil(),
            evidence: vec![evil()],
            rules_out: evil(),
            setting: None,
            advice: evil(),
        };
        let now = Effect { transactions_per_s: 1.0, wait_p95_ms: None, created_an_hour: None };
        let then = now;
        let instead = Some(Instead { key: "min_size", to: evil(), then });
        let predicted = Predicted { now, played: None, then, instead, note: evil() };
        let seen = Undecided { between: vec![Symptom::Leak], of: evil(), seen: vec![evil()], needs: evil() };
        let diagnosis = Diagnosis {
            of: Source::Poolhouse,
            looked_at: evil(),
            window_s: 1.0,
            pools: 1,
            is_quiet: false,
            findings: vec![Told::by_plan(finding.clone(), setting, predicted), Told::by_rule(finding, evil())],
            undecided: vec![seen],
            unseen: vec![evil()],
        };
        let told = diagnosis.text(str::to_owned);
        let steering: Vec<&str> = told.lines().filter(|line| line.contains(printable::steers)).collect();
        assert!(steering.is_empty(), "{steering:?}");
        // Each of the texts is there, and begins no line of its own.
        assert_eq!(told.matches("a\u{fffd}]0;b\u{fffd}\u{fffd}c\u{fffd}d\u{fffd}e\u{fffd}").count(), 18, "{told}");
        assert!(diagnosis.in_short().iter().all(|line| !line.contains(printable::steers)));
    }
}
