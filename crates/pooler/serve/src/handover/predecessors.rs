//! Those before this one: finds out which processes of the configuration still have clients though they listen no
//! longer, and keeps to what each leaves of the limits until it has ended. It need not have taken over from them.

use std::sync::Arc;

use driver::Handle;

use super::{
    limits::{Before, Held, Limits, held_before},
    *,
};

/// How long a process may take to say for the first time what it holds.
const FIRST_WORD_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of the process that this one takes over from. Others have higher ones.
pub(super) const TAKEN_OVER_FROM: usize = 0;

/// A process that says what it holds.
pub struct Predecessor {
    pub(super) number: usize,
    pub(super) stream: UnixStream,
    pub(super) lines: Lines,
    pub(super) word: Word,
}

pub struct Predecessors {
    /// Without the one that this process takes over from.
    others: Vec<Predecessor>,
    /// What each holds, by its number.
    words: HashMap<usize, Word>,
}

impl Predecessors {
    /// Asks all that can be found. To be called when the sockets are here that clients come by: a process that had them
    /// before has said by then that it serves no longer.
    pub fn find(config: &Config, taken_over_from: Option<&Predecessor>) -> Self {
        let streams = Meeting::of(config).map(|meeting| meeting.find_tellers()).unwrap_or_default();
        let numbered = streams.into_iter().zip(TAKEN_OVER_FROM + 1..);
        let mut others: Vec<_> =
            numbered.filter_map(|(stream, number)| first_word(stream, number).ok().flatten()).collect();
        // It says the same twice if it began to end when it had given its sockets.
        let giver = taken_over_from.map_or(0, |giver| giver.word.process);
        others.retain(|other| giver == 0 || other.word.process != giver);
        let words = others.iter().chain(taken_over_from).map(|one| (one.number, one.word.clone())).collect();
        Self { others, words }
    }

    pub fn held(&self) -> Held {
        held_before(self.words.values())
    }

    /// Leaves each what it holds.
    pub fn limits(&self, handle: Handle) -> Limits {
        Limits::new(handle, self.words.clone())
    }

    /// Goes on leaving each what it holds until it has ended, which a thread watches.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn keep_to(self, limits: &Arc<Limits>) -> io::Result<()> {
        let kept_to = self.others.into_iter().map(|predecessor| {
            let pid = pid(&predecessor.stream);
            tracing::info!(pid, "a process of this configuration still has clients: limits hold for both together");
            predecessor.keep_to(limits)
        });
        kept_to.fold(Ok(()), Result::and)
    }
}

/// `None`: it serves clients, or is ending just now.
fn first_word(stream: UnixStream, number: usize) -> io::Result<Option<Predecessor>> {
    stream.set_read_timeout(Some(FIRST_WORD_TIMEOUT))?;
    let mut lines = Lines::of(&stream)?;
    let word = match lines.next() {
        Ok(word) => word,
        Err(error) if is_end(&error) => return Ok(None),
        // It is there and says nothing, so it may hold anything.
        Err(error) => {
            let pid = pid(&stream);
            let reason = "a process of this configuration does not say what it holds: limits may be exceeded until it \
                          does or ends";
            tracing::warn!(%error, pid, "{reason}");
            Word::default()
        }
    };
    Ok(Some(Predecessor { number, stream, lines, word }))
}

impl Predecessor {
    /// Goes on leaving it what it holds until it has ended.
    pub(super) fn keep_to(self, limits: &Arc<Limits>) -> io::Result<()> {
        let before = limits.before(self.number);
        self.stream.set_read_timeout(None)?;
        let watch = move || follow(self.lines, before);
        std::thread::Builder::new().name("handover".into()).spawn(watch)?;
        Ok(())
    }
}

/// One that is stopped, or says what is not understood, holds what it held.
fn follow(mut lines: Lines, before: Before) {
    loop {
        match lines.next() {
            Ok(word) => before.holds(word),
            Err(error) if is_end(&error) => break,
            Err(error) => tracing::debug!(%error, "a process before this one"),
        }
    }
    match before.end() {
        0 => tracing::info!("the process before has ended: all limits are this one's own"),
        others => tracing::info!(others, "a process before this one has ended; others have not"),
    }
}

/// Whether the other process has ended, and does not only say nothing, or what is not understood.
pub(super) fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, Other, TimedOut, WouldBlock};
    !matches!(error.kind(), InvalidData | Other | TimedOut | WouldBlock)
}

pub(super) fn pid(stream: &UnixStream) -> i32 {
    rustix::net::sockopt::socket_peercred(stream).map_or(0, |peer| peer.pid.as_raw_nonzero().get())
}
