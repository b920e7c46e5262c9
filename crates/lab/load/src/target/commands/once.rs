//! One connection that is asked something before any load. Measures nothing.

use std::{
    fmt,
    time::{Duration, Instant},
};

use driver::{Event, Lines};

use super::{Link, News};
use crate::target::{TargetError, on_lines::Down};

/// The only connection.
const KEY: u32 = 0;
/// A target that takes longer is taken for dead.
pub(in crate::target) const CHECK_TIME: Duration = Duration::from_secs(10);

/// Opens a connection, has `question` append a command as soon as it takes one, and has `told` read the answer. `told` may ask again: `Ok(None)`.
/// `None`: the server hung up at the question.
///
/// # Errors
/// There is nobody, or nobody who lets us in, or `told` says so.
pub(in crate::target) fn ask_once<L: Link, T>(
    place: &L::Place,
    address: &dyn fmt::Display,
    within: Duration,
    mut question: impl FnMut(&mut L, &mut Vec<u8>),
    mut told: impl FnMut(&mut L) -> Result<Option<T>, String>,
) -> Result<Option<T>, TargetError> {
    let mut lines = Lines::new(Instant::now()).map_err(|error| TargetError::machine(error.to_string()))?;
    let now = lines.now();
    let mut link = L::open(KEY, &mut lines, place, now);
    let mut out = Vec::new();
    let mut patience = CHECK_TIME.min(within);
    let mut until = now + patience;
    let mut asked = false;
    while lines.now() < until {
        lines.wait(Some(until)).map_err(|error| TargetError::machine(error.to_string()))?;
        while let Some(event) = lines.next() {
            let news = match event {
                Event::Received { bytes, .. } => {
                    let news = link.received(&bytes, &mut lines, place, &mut out);
                    lines.done(bytes);
                    news
                }
                event => link.happened(event, &mut lines, place, &mut out),
            };
            match news {
                News::Nothing => continue,
                News::Up => {
                    patience = within;
                    until = lines.now() + within;
                }
                News::Answered => match told(&mut link) {
                    Ok(None) => {}
                    Ok(told) => {
                        link.close(&mut lines);
                        return Ok(told);
                    }
                    Err(message) => return Err(TargetError::target(format!("{address}: {message}"))),
                },
                // Some that stand for a database (twemproxy) hang up at a command that they do not know; the load asks others.
                News::Down(_) if asked => return Ok(None),
                News::Down(Down { message, .. }) => {
                    let lead =
                        if message.contains(&address.to_string()) { String::new() } else { format!("{address}: ") };
                    return Err(TargetError::target(format!("{lead}{message}")));
                }
            }
            out.clear();
            question(&mut link, &mut out);
            lines.send(KEY, &out);
            asked = true;
        }
    }
    Err(TargetError::target(format!("{address} does not answer within {} s", patience.as_secs())))
}
