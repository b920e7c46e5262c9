//! One connection that is asked one thing before any load: who is there? Measures nothing.

use std::time::{Duration, Instant};

use driver::{Event, Lines};

use super::{
    link::{Link, News},
    place::Place,
};
use crate::target::TargetError;

/// The only connection.
const KEY: u32 = 0;
/// A target that takes longer is taken for dead.
const CHECK_TIME: Duration = Duration::from_secs(10);

/// The server's version; `None`: it does not tell us.
///
/// # Errors
/// There is nobody, or nobody who lets us in.
pub(super) fn version(place: &Place) -> Result<Option<String>, TargetError> {
    let mut lines = Lines::new(Instant::now()).map_err(|error| TargetError::machine(error.to_string()))?;
    let now = lines.now();
    let mut link = Link::open(KEY, &mut lines, place, now);
    let mut out = Vec::new();
    let until = now + CHECK_TIME;
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
                News::Nothing => {}
                News::Up => {
                    out.clear();
                    link.requester().ask_for(&[b"INFO", b"server"], &mut out);
                    lines.send(KEY, &out);
                    asked = true;
                }
                News::Answered => {
                    let told = told(&mut link);
                    link.close(&mut lines);
                    return told.map_err(|message| TargetError::target(format!("{}: {message}", place.address)));
                }
                // Some that stand for Redis (twemproxy) hang up at a command that they do not know; the load asks others.
                News::Down(_) if asked => return Ok(None),
                News::Down(down) => {
                    let address = place.address.to_string();
                    let lead = if down.message.contains(&address) { String::new() } else { format!("{address}: ") };
                    return Err(TargetError::target(format!("{lead}{}", down.message)));
                }
            }
        }
    }
    Err(TargetError::target(format!("{} does not answer within {} s", place.address, CHECK_TIME.as_secs())))
}

/// What the answer says. Who may not ask this may be allowed what the load asks.
fn told(link: &mut Link) -> Result<Option<String>, String> {
    let requester = link.requester();
    match requester.error() {
        Some(error) if error.kind() == "NOAUTH" => {
            Err(format!("{error} Write the password in the URL: redis://user:password@host:port"))
        }
        Some(error) if error.kind() == "NOPERM" || error.kind() == "ERR" => Ok(None),
        Some(error) => Err(error.to_string()),
        None => {
            let text = String::from_utf8_lossy(requester.kept()).into_owned();
            let version = text.lines().find_map(|line| line.strip_prefix("redis_version:"));
            Ok(version.map(|version| version.trim().to_owned()))
        }
    }
}
