//! Certificates that have expired, or will soon.

use std::time::SystemTime;

use settings::Problem;

use crate::{certificates::certificates, config::Config};

/// A certificate that expires within this time is worth a warning.
const WARNING_DAYS: f64 = 30.0;

const SECONDS_OF_A_DAY: f64 = 86_400.0;

pub fn expiry(config: &Config, found: &mut Vec<Problem>) {
    let now = SystemTime::now();
    for known in certificates(config) {
        let days = known.remaining_seconds(now) / SECONDS_OF_A_DAY;
        let (subject, name) = (printable::line(&known.facts.subject), &known.name);
        let message = match days {
            days if days <= 0.0 => format!("the certificate {subject} of `{name}` has expired"),
            days if days < WARNING_DAYS => {
                format!("the certificate {subject} of `{name}` expires in {} days", days.floor())
            }
            _ => continue,
        };
        let problem = Problem::warning(message).in_file(&known.file);
        found.push(problem.hint("put a new one into the file: it is read again by itself"));
    }
}
