//! The display during a run: two lines on standard error, only if that is a terminal. It is erased at the end.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::figures;
use crate::result::Second;

/// More redraws would flicker, and take processor time from the load.
const MAX_REDRAWS_PER_S: u8 = 5;
/// Most characters of a name and of a step.
const MAX_NAME_CHARS: usize = 32;
/// The second line is cut at the width of the terminal.
const WITH_END: &str = "[{bar:20}] {prefix}\n  {wide_msg}";
const WITHOUT_END: &str = "{spinner} {prefix}\n  {wide_msg}";

/// Erases itself when dropped.
pub struct Live {
    bar: ProgressBar,
    label: String,
    length: Option<Duration>,
}

/// Operations since the beginning of the run, the warm-up included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub requests: u64,
    pub errors: u64,
    pub dropped: u64,
}

impl Live {
    /// `length`: the length of the run, if known. Nothing is drawn before [`Self::show`].
    pub fn new(label: &str, length: Option<Duration>) -> Self {
        Self::with_target(ProgressDrawTarget::stderr_with_hz(MAX_REDRAWS_PER_S), label, length)
    }

    fn with_target(target: ProgressDrawTarget, label: &str, length: Option<Duration>) -> Self {
        let bar = ProgressBar::with_draw_target(length.map(millis), target);
        let style = ProgressStyle::with_template(if length.is_some() { WITH_END } else { WITHOUT_END })
            .expect("a valid template");
        bar.set_style(style.progress_chars("=> "));
        Self { bar, label: cut_name(label), length }
    }

    /// Draws the state at `at` from the beginning of the run. `step` may be empty; `last`: the last whole second. To be
    /// called a few times a second.
    pub fn show(&mut self, at: Duration, step: &str, last: Option<&Second>, counts: Counts) {
        let of =
            self.length.map(|length| format!(" of {}", figures::seconds(length.as_secs_f64()))).unwrap_or_default();
        let step = if step.is_empty() { String::new() } else { format!(", {}", cut_name(step)) };
        self.bar.set_prefix(format!("{}{of}  {}{step}", figures::seconds(at.as_secs_f64().floor()), self.label));
        self.bar.set_message(message(last, counts));
        self.bar.set_position(millis(at).min(self.length.map_or(u64::MAX, millis)));
        self.bar.tick();
    }

    /// Erases the display.
    pub fn finish(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.finish();
    }
}

fn message(last: Option<&Second>, counts: Counts) -> String {
    let mut parts = Vec::new();
    if let Some(last) = last {
        parts.push(format!("{}/s", figures::rate(Some(last.requests as f64))));
        parts.push(format!("p50 {} ms  p99 {} ms", figures::ms(last.p50_ms), figures::ms(last.p99_ms)));
        let waiting = if last.waiting > 0 { format!(", {} waiting", last.waiting) } else { String::new() };
        parts.push(format!("{} of {} connections in use{waiting}", last.in_use, last.connections));
    }
    parts.push(format!("errors {}", figures::percent(counts.errors, counts.errors + counts.requests)));
    if counts.dropped > 0 {
        parts.push(format!("dropped {}", figures::count(counts.dropped)));
    }
    parts.join("  ")
}

fn cut_name(text: &str) -> String {
    let text = figures::printable(text);
    if text.chars().count() <= MAX_NAME_CHARS {
        text
    } else {
        text.chars().take(MAX_NAME_CHARS - 1).chain(['…']).collect()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use indicatif::InMemoryTerm;

    use super::*;

    fn terminal(columns: u16) -> (InMemoryTerm, ProgressDrawTarget) {
        let terminal = InMemoryTerm::new(10, columns);
        (terminal.clone(), ProgressDrawTarget::term_like(Box::new(terminal)))
    }

    fn second() -> Second {
        let times = (Some(1.234), Some(45.6));
        Second {
            requests: 1234,
            p50_ms: times.0,
            p99_ms: times.1,
            connections: 20,
            in_use: 17,
            waiting: 3,
            ..Second::default()
        }
    }

    const COUNTS: Counts = Counts { requests: 999, errors: 1, dropped: 1234 };

    #[test]
    fn two_lines_show_the_state_of_the_run() {
        let (terminal, target) = terminal(120);
        let mut live = Live::with_target(target, "churn", Some(Duration::from_secs(10)));
        live.show(Duration::from_millis(5_700), "burst 3", Some(&second()), COUNTS);
        let shown = terminal.contents();
        let (first, last) = shown.split_once('\n').expect("two lines");
        assert!(first.starts_with("[=====") && first.ends_with("] 5 s of 10 s  churn, burst 3"), "{first}");
        assert_eq!(
            last,
            "  1,234/s  p50 1.23 ms  p99 45.6 ms  17 of 20 connections in use, 3 waiting  errors 0.10%  dropped 1,234"
        );
    }

    #[test]
    fn a_dropped_display_leaves_nothing_behind() {
        let (terminal, target) = terminal(80);
        let mut live = Live::with_target(target, "churn", Some(Duration::from_secs(10)));
        live.show(Duration::from_secs(5), "", Some(&second()), COUNTS);
        assert_ne!(terminal.contents(), "");
        drop(live);
        assert_eq!(terminal.contents(), "");
    }

    #[test]
    fn unknown_figures_are_not_shown_as_zero() {
        let (terminal, target) = terminal(100);
        let mut live =
            Live::with_target(target, "a\u{1b}[2Jname that is so long that it would not fit into a line", None);
        live.show(Duration::ZERO, "", Some(&Second::default()), Counts::default());
        let shown = terminal.contents();
        assert!(
            shown.contains("p50 - ms")
                && shown.contains("errors -")
                && shown.contains('…')
                && !shown.contains("\u{1b}"),
            "{shown}"
        );
    }

    #[test]
    fn a_bar_of_an_overdue_run_is_full() {
        let (terminal, target) = terminal(100);
        let mut live = Live::with_target(target, "slow", Some(Duration::from_secs(1)));
        live.show(Duration::from_secs(7), "", None, Counts::default());
        assert!(terminal.contents().starts_with("[====================] 7 s of 1 s  slow"), "{}", terminal.contents());
    }
}
