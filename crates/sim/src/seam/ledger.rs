//! What the world knows about every request: who sent it, how it ended, how often it was executed. It sees neither
//! sessions nor driver, only what comes out at the two ends.

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Its reply reached its client.
    Answered,
    /// Its client was told that it failed.
    Failed,
    /// Its client's connection ended first.
    Cut,
}

struct Request {
    client: u64,
    parts: u32,
    executed: u32,
    outcome: Option<Outcome>,
}

/// All requests of a schedule; a nonce is an index plus one.
#[derive(Default)]
pub struct Ledger {
    requests: Vec<Request>,
    /// A request that was reported as failed must not be executed afterwards.
    pub strict: bool,
    /// How many ended in which way: answered, failed, cut.
    pub ended: [u64; 3],
}

impl Ledger {
    /// A client sends a request that servers execute in so many parts.
    pub fn sent(&mut self, client: u64, parts: impl Fn(u32) -> u32) -> u32 {
        let nonce = self.requests.len() as u32 + 1;
        self.requests.push(Request { client, parts: parts(nonce), executed: 0, outcome: None });
        nonce
    }

    fn of(&mut self, nonce: u32) -> &mut Request {
        let request = (nonce as usize).checked_sub(1).and_then(|i| self.requests.get_mut(i));
        request.unwrap_or_else(|| panic!("nobody sent request {nonce}"))
    }

    /// Who sent it.
    pub fn client(&mut self, nonce: u32) -> u64 {
        self.of(nonce).client
    }

    /// A server executes a part of it.
    pub fn executed(&mut self, nonce: u32, part: u32) {
        let strict = self.strict;
        let request = self.of(nonce);
        assert!(part < request.parts, "request {nonce} has no part {part}");
        assert!(request.executed & (1 << part) == 0, "request {nonce} is executed twice");
        let late = strict && request.outcome == Some(Outcome::Failed);
        assert!(!late, "request {nonce} is executed after its client was told that it failed");
        request.executed |= 1 << part;
    }

    /// It ended.
    pub fn ended(&mut self, nonce: u32, client: u64, outcome: Outcome) {
        let request = self.of(nonce);
        assert_eq!(request.client, client, "what belongs to request {nonce} reached another client");
        assert_eq!(request.outcome, None, "request {nonce} ends twice, now {outcome:?}");
        if outcome == Outcome::Answered {
            assert_eq!(request.executed, (1 << request.parts) - 1, "request {nonce} is answered but not executed");
        }
        request.outcome = Some(outcome);
        self.ended[outcome as usize] += 1;
    }

    /// Nothing may be left open at the end.
    pub fn check_all_ended(&self) {
        for (i, request) in self.requests.iter().enumerate() {
            assert!(request.outcome.is_some(), "request {} of client {} was never answered", i + 1, request.client);
        }
    }
}
