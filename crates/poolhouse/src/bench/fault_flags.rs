//! Faults between generator and target, as flags of the command line.

use std::time::Duration;

use ::load::plan::{self, Fault, Window};
use clap::Args;

/// Faults between generator and target.
#[derive(Args, PartialEq, Default)]
#[command(next_help_heading = "Faults on the way (by a relay on this machine)")]
pub struct FaultFlags {
    /// Extra delay of everything, in each direction
    #[arg(long, value_name = "TIME", value_parser = settings::parse_duration_on)]
    delay: Option<Duration>,

    /// Up to this much more delay, at random
    #[arg(long, value_name = "TIME", value_parser = settings::parse_duration_on, requires = "delay")]
    jitter: Option<Duration>,

    /// Answers come later in some windows: DELAY/LENGTH[/EVERY][@FIRST], for example 200ms/2s/20s.
    /// FIRST is EVERY by default, or 5s
    #[arg(long, value_name = "STALL", value_parser = stall)]
    stall: Vec<Fault>,

    /// Nothing arrives in some windows, and everything arrives after them: LENGTH[/EVERY][@FIRST], as above
    #[arg(long, value_name = "WINDOW", value_parser = black_hole)]
    black_hole: Vec<Fault>,

    /// Forget connections that are silent for longer: nothing arrives on them any more, and neither side is told
    #[arg(long, value_name = "TIME", value_parser = settings::parse_duration_on)]
    forget: Option<Duration>,

    /// Cut all connections after FIRST, and again after each EVERY: FIRST[/EVERY]
    #[arg(long, value_name = "TIMES", value_parser = cut)]
    cut: Vec<Fault>,

    /// Not on the way: run the load in a process of its own, and freeze that in some windows: LENGTH[/EVERY][@FIRST] as
    /// above
    #[arg(long, value_name = "WINDOW", value_parser = window)]
    freeze: Option<Window>,
}

impl FaultFlags {
    /// When the process of the load is frozen.
    pub fn freeze(&self) -> Option<Window> {
        self.freeze
    }

    /// The faults that are given.
    pub fn faults(&self) -> Vec<Fault> {
        let delay = self.delay.map(|delay| Fault::Delay { delay, jitter: self.jitter.unwrap_or_default() });
        let forget = self.forget.map(|idle| Fault::Forget { idle });
        let others = self.stall.iter().chain(&self.black_hole).chain(&self.cut).copied();
        delay.into_iter().chain(forget).chain(others).collect()
    }
}

/// `DELAY/LENGTH[/EVERY][@FIRST]`
pub fn stall(text: &str) -> Result<Fault, String> {
    let (delay, rest) =
        text.split_once('/').ok_or("a stall is DELAY/LENGTH or DELAY/LENGTH/EVERY, for example 200ms/2s/20s")?;
    Ok(Fault::Stall { delay: settings::parse_duration_on(delay)?, window: window(rest)? })
}

fn black_hole(text: &str) -> Result<Fault, String> {
    Ok(Fault::BlackHole { window: window(text)? })
}

fn cut(text: &str) -> Result<Fault, String> {
    let (first, every) = text.split_once('/').map_or((text, None), |(first, every)| (first, Some(every)));
    let every = every.map(settings::parse_duration_on).transpose()?;
    Ok(Fault::Cut { window: plan::cut(Some(settings::parse_duration_on(first)?), every) })
}

/// `LENGTH[/EVERY][@FIRST]`
fn window(text: &str) -> Result<Window, String> {
    let (window, first) = text.split_once('@').map_or((text, None), |(window, first)| (window, Some(first)));
    let (length, every) = window.split_once('/').map_or((window, None), |(length, every)| (length, Some(every)));
    let first = first.map(settings::parse_duration_on).transpose()?;
    let every = every.map(settings::parse_duration_on).transpose()?;
    let length = settings::parse_duration_on(length)?;
    plan::window(first, length, every).map_err(|_| format!("`{text}`: a window must be over before the next begins"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_stall_says_how_long_and_how_often() {
        let window =
            |first, every: Option<u64>| Window { first: seconds(first), length: seconds(2), every: every.map(seconds) };
        let delay = Duration::from_millis(200);
        assert_eq!(stall("200ms/2s/20s"), Ok(Fault::Stall { delay, window: window(20, Some(20)) }));
        assert_eq!(stall("200ms/2s"), Ok(Fault::Stall { delay, window: window(5, None) }));
        assert_eq!(stall("200ms/2s@1s"), Ok(Fault::Stall { delay, window: window(1, None) }));
        assert_eq!(black_hole("2s/20s@3s"), Ok(Fault::BlackHole { window: window(3, Some(20)) }));
        assert!(stall("200ms").is_err() && stall("200ms/2").is_err() && stall("200ms/2s/2s").is_err());
    }
}
