//! One connection that is asked one request after the other, and waited for: before a load, or without one. Measures
//! nothing, and knows no request.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use pool::Time;

use super::{
    TargetError,
    cancel::Cancels,
    lines::{Event, Lines},
    link::{Down, Link, News},
};

/// The only connection.
const KEY: u32 = 0;
/// How long a target may take to let one connection in.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bounds how late `stop` is seen.
const STOP_POLL: Duration = Duration::from_millis(100);

pub struct Connection<'a, L: Link> {
    place: L::Place,
    address: String,
    lines: Lines,
    link: Option<L>,
    out: Vec<u8>,
    cancels: Cancels,
    /// An answer is due.
    owes: bool,
    /// When this is set, a request is given up.
    stop: Option<&'a AtomicBool>,
}

impl<'a, L: Link> Connection<'a, L> {
    /// Connects and logs in. `address` is for error messages.
    ///
    /// # Errors
    /// Why that was not possible within `timeout`.
    pub fn connect(place: L::Place, address: String, timeout: Duration) -> Result<Self, TargetError> {
        let mut lines = Lines::new(Instant::now()).map_err(|error| TargetError::machine(error.to_string()))?;
        let now = lines.now();
        let link = Some(L::open(KEY, &mut lines, &place, now));
        let cancels = Cancels::default();
        let mut this = Self { place, address, lines, link, out: Vec::new(), cancels, owes: false, stop: None };
        match this.wait(now + timeout)? {
            News::Up => Ok(this),
            News::Down(down) => Err(this.explain(&down)),
            News::Nothing => {
                let seconds = timeout.as_secs_f64();
                Err(TargetError::target(format!("{} does not answer within {seconds} s", this.address)))
            }
            News::Answered => unreachable!("nothing was asked"),
        }
    }

    /// The same connection, whose requests are given up when `stop` is set.
    pub fn until(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// The link; `None`: the connection is closed.
    pub fn link(&mut self) -> Option<&mut L> {
        self.link.as_mut()
    }

    /// Has `write` append a request, and waits for the answer, which the link then has. After an error the connection
    /// is of no use.
    ///
    /// # Errors
    /// The connection is closed, or the server takes longer than `timeout`.
    pub fn ask(&mut self, write: impl FnOnce(&mut L, &mut Vec<u8>), timeout: Duration) -> Result<&mut L, TargetError> {
        let Some(link) = self.link.as_mut().filter(|link| link.is_open()) else {
            return Err(TargetError::target(format!("{} has closed the connection", self.address)));
        };
        if self.owes {
            return Err(TargetError::target(format!("{} still owes an answer", self.address)));
        }
        self.out.clear();
        write(link, &mut self.out);
        self.lines.send(KEY, &self.out);
        self.owes = true;
        let until = self.lines.now() + timeout;
        match self.wait(until)? {
            News::Answered => {}
            News::Down(down) => return Err(self.explain(&down)),
            News::Up | News::Nothing => {
                return Err(TargetError::target(format!("{} takes too long for an answer", self.address)));
            }
        }
        self.owes = false;
        Ok(self.link.as_mut().expect("it has answered"))
    }

    /// What has become of the connection or its request; [`News::Nothing`] at `until`. Events that came in the same
    /// batch as an earlier answer come first.
    fn wait(&mut self, until: Time) -> Result<News, TargetError> {
        loop {
            while let Some(event) = self.lines.next() {
                let Self { lines, link, place, out, .. } = self;
                let link = link.as_mut().expect("the connection is there");
                let news = match event {
                    Event::Received { bytes, .. } => {
                        let news = link.received(&bytes, lines, place, out);
                        lines.done(bytes);
                        news
                    }
                    event => link.happened(event, lines, place, out),
                };
                match news {
                    News::Nothing => {}
                    News::Down(down) => {
                        self.link = None;
                        return Ok(News::Down(down));
                    }
                    news => return Ok(news),
                }
            }
            if self.lines.now() >= until {
                return Ok(News::Nothing);
            }
            let next = self.stop.map_or(until, |_| until.min(self.lines.now() + STOP_POLL));
            self.lines.wait(Some(next)).map_err(|error| TargetError::machine(error.to_string()))?;
            if self.stop.is_some_and(|stop| stop.load(Relaxed)) {
                return Err(TargetError::target("interrupted"));
            }
        }
    }

    fn explain(&self, down: &Down) -> TargetError {
        let message = &down.message;
        match message.contains(&self.address) {
            true => TargetError::target(message.clone()),
            false => TargetError::target(format!("{}: {message}", self.address)),
        }
    }
}

impl<L: Link> Drop for Connection<'_, L> {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            link.close(&mut self.lines, &self.place, &self.cancels);
            self.cancels.finish();
        }
    }
}

/// Opens a connection, asks requests of `write`, and has `read` read each answer; `Ok(None)` of `read` asks the next
/// one. Returns `None` if the server closes the connection at a request: some that stand for a database (twemproxy) do
/// at a command that they do not know, and the load asks others.
///
/// # Errors
/// The server cannot be reached, refuses the login or is slower than `timeout`; or an error of `read`.
pub fn ask_once<L: Link, T>(
    place: L::Place,
    address: String,
    timeout: Duration,
    mut write: impl FnMut(&mut L, &mut Vec<u8>),
    mut read: impl FnMut(&mut L) -> Result<Option<T>, String>,
) -> Result<Option<T>, TargetError> {
    let connect_timeout = CONNECT_TIMEOUT.min(timeout);
    let mut connection = Connection::connect(place, address.clone(), connect_timeout)?;
    loop {
        match connection.ask(&mut write, timeout).map(&mut read) {
            Ok(Ok(None)) => {}
            Ok(Ok(told)) => return Ok(told),
            Ok(Err(message)) => return Err(TargetError::target(format!("{address}: {message}"))),
            Err(_) if connection.link().is_none() => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}
