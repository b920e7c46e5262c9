//! A client that sends arbitrary bytes: damaged requests, or a fuzzer's input. No other client may notice it, and it
//! leaves nothing behind. It checks no answers.

use std::time::Duration;

use pool::Time;

use super::checked_protocol::CheckedProtocol;
use crate::{
    network::{EndId, Network},
    random::Rng,
};

/// Bytes that it sends at once, at most.
const MAX_SEND: u64 = 4096;
/// Mean time that it stays connected after its last byte.
const MEAN_STAY: Duration = Duration::from_millis(20);
/// Poolhouse stops reading from a client that does not read. The client leaves after this many failed sends.
const MAX_FAILED_SENDS: u32 = 1000;

pub struct RawClient {
    bytes: Vec<u8>,
    sent: usize,
    reads_nothing: bool,
    /// Sends in a row that the network did not take.
    failed_sends: u32,
    rng: Rng,
    end: Option<EndId>,
    done: bool,
    /// When it acts next by itself.
    pub wake: Time,
}

impl RawClient {
    pub fn new(bytes: Vec<u8>, mut rng: Rng) -> Self {
        let (reads_nothing, wake) = (rng.percent(10), Time(rng.below(20_000_000)));
        Self { bytes, sent: 0, reads_nothing, failed_sends: 0, rng, end: None, done: false, wake }
    }

    /// A raw client that sends these bytes without the first. If that is even, a valid opening goes before them.
    pub fn sending(protocol: &mut impl CheckedProtocol, bytes: &[u8], mut rng: Rng) -> Self {
        let opening = bytes.first().is_none_or(|byte| byte % 2 == 0).then(|| protocol.first_request(&mut rng).bytes);
        Self::new([&opening.unwrap_or_default()[..], bytes.get(1..).unwrap_or_default()].concat(), rng)
    }

    /// A raw client that sends damaged requests.
    pub fn damaged(protocol: &mut impl CheckedProtocol, mut rng: Rng) -> Self {
        let mut bytes = protocol.first_request(&mut rng).bytes;
        let opening = bytes.len();
        for _ in 0..1 + rng.below(8) {
            bytes.extend(protocol.next_request(&mut rng).bytes);
        }
        // Most of the damage spares the opening: what follows a damaged opening is seldom read.
        let least = if rng.percent(80) { opening } else { 0 };
        for _ in 0..1 + rng.below(3) {
            let at = least + rng.index(bytes.len() - least);
            match rng.below(5) {
                0 => bytes[at] = rng.below(256) as u8,
                1 => bytes[at] ^= 1 << rng.below(8),
                2 => _ = bytes.remove(at),
                3 => bytes.insert(at, rng.below(256) as u8),
                _ => bytes.truncate(at.max(1)),
            }
            if bytes.len() <= least {
                break;
            }
        }
        Self::new(bytes, rng)
    }

    /// From now on the client does not connect. A connected client goes on until it leaves.
    pub fn retire(&mut self) {
        if self.end.is_none() {
            (self.done, self.wake) = (true, Time(u64::MAX));
        }
    }

    /// Whether this end belongs to it.
    pub fn owns_end(&self, end: EndId) -> bool {
        self.end == Some(end)
    }

    pub fn is_done(&self) -> bool {
        self.done
    }

    pub fn act(&mut self, network: &Network, now: Time) {
        let Some(end) = self.end else {
            self.end = Some(network.connect());
            self.wake = now + self.rng.exponential(Duration::from_micros(100));
            return;
        };
        if network.is_reset(end) {
            // A client that reads nothing does not notice the end of the connection.
            return self.leave(network);
        }
        if self.sent == self.bytes.len() || (self.reads_nothing && self.failed_sends > MAX_FAILED_SENDS) {
            if self.rng.percent(30) {
                network.reset(end);
            }
            return self.leave(network);
        }
        self.send(network);
        let all = self.sent == self.bytes.len();
        self.wake = now + self.rng.exponential(if all { MEAN_STAY } else { Duration::from_micros(300) });
    }

    fn send(&mut self, network: &Network) {
        let Some(end) = self.end else { return };
        let rest = &self.bytes[self.sent..];
        let most = if self.rng.percent(50) { rest.len() } else { 1 + self.rng.below(MAX_SEND) as usize };
        let sent = network.send(end, &rest[..most.min(rest.len())]);
        self.failed_sends = if sent > 0 { 0 } else { self.failed_sends + 1 };
        self.sent += sent;
    }

    pub fn on_event(&mut self, network: &Network) {
        let Some(end) = self.end else { return };
        if !self.reads_nothing {
            network.receive(end, usize::MAX);
        }
        if network.has_input_ended(end) {
            self.leave(network);
        }
    }

    fn leave(&mut self, network: &Network) {
        network.close(self.end.take().expect("it leaves once"));
        (self.done, self.wake) = (true, Time(u64::MAX));
    }
}
