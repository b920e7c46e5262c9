//! All that was found, for people and for programs.

use serde::Serialize;

use crate::{
    finding::{Finding, Undecided},
    symptoms::{self, Verdict},
    window::Window,
};

/// What a window tells.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// Seconds that were looked at.
    pub window_s: f64,
    /// Pools that were looked at.
    pub pools: usize,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// What may be.
    pub undecided: Vec<Undecided>,
}

/// Examines a window.
pub fn examine(window: &Window) -> Diagnosis {
    let pools = window.pools();
    let mut diagnosis = Diagnosis {
        window_s: window.lasts().as_secs_f64(),
        pools: pools.len(),
        findings: Vec::new(),
        undecided: Vec::new(),
    };
    let verdicts = pools.iter().flat_map(symptoms::of_pool).chain(symptoms::of_clients(window));
    for verdict in verdicts {
        match verdict {
            Verdict::Absent => {}
            Verdict::Present(finding) => diagnosis.findings.push(finding),
            Verdict::Undecided(undecided) => diagnosis.undecided.push(undecided),
        }
    }
    diagnosis
}

/// Names and errors may have been chosen by strangers, who are not to steer the terminal.
fn harmless(diagnosis: &Diagnosis) -> Diagnosis {
    let clean = |text: &mut String| {
        *text = text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect();
    };
    let mut clean_one = diagnosis.clone();
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
    /// For people. `bold` puts a heading into whatever a terminal makes bold.
    pub fn text(&self, bold: impl Fn(&str) -> String) -> String {
        harmless(self).written(bold)
    }

    fn written(&self, bold: impl Fn(&str) -> String) -> String {
        let mut text = format!(
            "Looked at {} pool{} for {:.0} s.\n",
            self.pools,
            if self.pools == 1 { "" } else { "s" },
            self.window_s
        );
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
            text += match self.pools {
                0 => "There is no pool yet: nobody has asked for a database.\n",
                _ => "Healthy: none of the symptoms that it knows.\n",
            };
        }
        text
    }
}
