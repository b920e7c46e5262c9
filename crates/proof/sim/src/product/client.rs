//! A client that checks every answer: it sends each request to its reference too, and compares the answers
//! message by message. It knows the protocol only through [`CheckedProtocol`].
//!
//! A client makes several connections, one after the other. On each it logs in, sends requests and leaves, with a
//! goodbye or without. After a fault (a killed session of the database, a broken connection) an answer may be missing,
//! or replaced by an error. Then the connection ends, and the outcome of its pending requests is unknown.
//! A wrong answer is never allowed.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use pool::Time;

use super::{
    checked_protocol::{CheckedProtocol, Kind, Message, Request},
    client_times::{ClientTimes, TimeOuts},
    database_server::elapsed,
    environment::Environment,
};
use crate::{
    databases::{Connection, Database},
    network::{EndId, Network},
    random::Rng,
};

/// The longest that an answer may take: longer than any configured time-out.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(100);
/// Mean time that a client stays idle between requests.
const MEAN_IDLE_PAUSE: Duration = Duration::from_millis(300);
/// The longest until the pooler hears that a client has left.
const MAX_CLOSE_DELAY: Duration = Duration::from_millis(50);
/// How often in a hundred turns a client stays in its transaction until that times out, or nearly.
const LINGERING_PERCENT: u64 = 4;
/// The longest that a message from other clients may take.
const MAX_ASIDE_WAIT: Duration = Duration::from_secs(10);

pub struct Client<S: CheckedProtocol> {
    pub number: usize,
    protocol: S,
    reference: S::Database,
    rng: Rng,
    connection: Option<ClientConnection>,
    /// Faults before the oldest connection that still matters.
    faults_before: u64,
    connections: u64,
    /// Most requests on a connection.
    requests: u64,
    /// When it acts next by itself.
    pub wake: Time,
    /// Connections that carry a cancel request.
    cancels: Vec<EndId>,
    /// How often it sends a request before the last one is answered.
    pipelining_percent: u64,
    /// How often it leaves before it is answered. Only a client that never does notices an answer that never comes.
    vanish_per_myriad: u64,
    /// How often it cancels a request.
    cancel_per_myriad: u64,
    /// How often it pauses for so long that an unused pool would be forgotten.
    idle_per_myriad: u64,
    time_outs: TimeOuts,
    /// When its last connection ended.
    left: Time,
}

#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub connections: u64,
    /// The most on each connection.
    pub requests: u64,
}

struct ClientConnection {
    end: EndId,
    reference: Connection,
    unsent: VecDeque<u8>,
    expected: VecDeque<Message>,
    /// The parameters that have to be reported by the end of each answer that is due.
    expected_settings: VecDeque<BTreeMap<Vec<u8>, Vec<u8>>>,
    reference_settings: BTreeMap<Vec<u8>, Vec<u8>>,
    received_settings: BTreeMap<Vec<u8>, Vec<u8>>,
    expected_asides: VecDeque<Message>,
    /// Asides that arrived before the reference sent them. Within a pipeline their order depends on timing.
    early_asides: VecDeque<Message>,
    received: Vec<u8>,
    opening_messages: Vec<Message>,
    opening: bool,
    requests: u64,
    answers_due: usize,
    waiting_since: Time,
    times: ClientTimes,
    /// Faults before the oldest connection that still matters to this one.
    faults_before: u64,
    cancelled: bool,
    /// All requests, for the message of a failed check.
    sent_log: Vec<String>,
    /// It waits for the end of the connection.
    said_goodbye: bool,
    /// It vanishes at its next turn, at about the time of its answer.
    vanishes_next: bool,
    /// When the missing asides are overdue, once the client waits for them.
    asides_deadline: Option<Time>,
}

fn note_setting(parameters: &mut BTreeMap<Vec<u8>, Vec<u8>>, message: &Message) {
    let end = message.text.iter().position(|byte| *byte == 0).expect("a name ends");
    parameters.insert(message.text[..end].to_vec(), message.text[end + 1..].to_vec());
}

impl ClientConnection {
    /// A connection that is to make this many requests.
    fn new(
        end: EndId,
        reference: Connection,
        requests: u64,
        times: ClientTimes,
        now: Time,
        faults_before: u64,
    ) -> Self {
        Self {
            end,
            reference,
            unsent: VecDeque::new(),
            expected: VecDeque::new(),
            expected_settings: VecDeque::new(),
            reference_settings: BTreeMap::new(),
            received_settings: BTreeMap::new(),
            expected_asides: VecDeque::new(),
            early_asides: VecDeque::new(),
            received: Vec::new(),
            opening_messages: Vec::new(),
            opening: true,
            requests,
            answers_due: 0,
            waiting_since: now,
            times,
            faults_before,
            cancelled: false,
            sent_log: Vec::new(),
            said_goodbye: false,
            vanishes_next: false,
            asides_deadline: None,
        }
    }

    /// Checks that no answer is overdue.
    fn check_answer_time(&self, client: usize, now: Time) {
        let in_time = self.answers_due == 0 || now.since(self.waiting_since) < MAX_ANSWER_TIME;
        assert!(in_time, "{} waits for ever for {:?}", self.describe(client), self.expected.front());
    }

    /// Checks at the end of an answer that all changed parameters were reported.
    fn check_settings(&mut self, number: usize) {
        let expected_settings = self.expected_settings.pop_front().expect("an answer was due");
        if expected_settings != self.received_settings {
            let differ = |(name, value): &(&Vec<u8>, &Vec<u8>)| self.received_settings.get(*name) != Some(*value);
            let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
            let wrong: Vec<_> =
                expected_settings.iter().filter(differ).map(|(name, value)| (text(name), text(value))).collect();
            let received: Vec<_> = wrong
                .iter()
                .map(|(name, _)| self.received_settings.get(name.as_bytes()).map(|value| text(value)))
                .collect();
            panic!("{} was to get {wrong:?}, but got {received:?}", self.describe(number));
        }
    }

    /// Fails if an aside is overdue, or has come though no client sent it. Returns whether the client still waits for
    /// asides. The first call that finds some missing sets their deadline.
    fn check_asides(&mut self, number: usize, now: Time, faults: u64) -> bool {
        let after_fault = faults > self.faults_before;
        if !self.expected_asides.is_empty() {
            let until = *self.asides_deadline.get_or_insert(now + MAX_ASIDE_WAIT);
            let in_time = now < until || after_fault;
            assert!(in_time, "{} does not get {:?}", self.describe(number), self.expected_asides);
            if !after_fault {
                return true;
            }
        }
        let right = self.early_asides.is_empty() || after_fault;
        assert!(right, "{} gets {:?}, which no client sent", self.describe(number), self.early_asides);
        false
    }

    /// Compares an aside with the first one expected.
    fn check_aside(&mut self, message: Message, number: usize, after_fault: bool) {
        let Some(expected) = self.expected_asides.pop_front() else {
            self.early_asides.push_back(message);
            return;
        };
        let right = expected == message || after_fault;
        assert!(right, "{} gets {message:?} instead of {expected:?}", self.describe(number));
        if self.expected_asides.is_empty() {
            self.asides_deadline = None;
        }
    }

    fn describe(&self, number: usize) -> String {
        format!("{}\nclient {number}", self.sent_log.join("\n"))
    }
}

impl<S: CheckedProtocol> Client<S> {
    pub fn new(number: usize, protocol: S, size: Size, mut rng: Rng) -> Self {
        let wake = Time(rng.below(50_000_000));
        let (pipelining_percent, vanish_per_myriad) = (rng.pick(&[4, 4, 30]), rng.pick(&[0, 40, 400]));
        let cancel_per_myriad = rng.pick(&[60, 60, 600]);
        let idle_per_myriad = if wake.0.is_multiple_of(4) { 300 } else { 0 };
        let Size { connections, requests } = size;
        let reference = protocol.new_reference();
        Self {
            number,
            reference,
            protocol,
            rng,
            connection: None,
            faults_before: 0,
            connections,
            requests,
            wake,
            cancels: Vec::new(),
            pipelining_percent,
            vanish_per_myriad,
            cancel_per_myriad,
            idle_per_myriad,
            time_outs: TimeOuts::default(),
            left: Time(0),
        }
    }

    /// The time-outs that it expects.
    pub fn with_time_outs(self, time_outs: TimeOuts) -> Self {
        Self { time_outs, ..self }
    }

    /// Whether it may have a request that the pooler has held for this time: one that is not answered, or one of a
    /// connection that has just ended. What a client that listens has the pooler do is not known.
    pub fn may_have_waited(&self, time: Duration, now: Time) -> bool {
        let waits = |connection: &ClientConnection| {
            let listens = || connection.sent_log.iter().any(|sent| sent.contains("LISTEN"));
            let waits = connection.answers_due > 0 && now - connection.waiting_since >= time;
            waits || connection.times.has_waited(time, now) || listens()
        };
        self.connection.as_ref().is_some_and(waits) || self.left > Time(0) && now - self.left < MAX_CLOSE_DELAY
    }

    /// Whether it has a connection, or is making one.
    pub fn has_connection(&self) -> bool {
        self.connection.is_some()
    }

    /// Whether it is connected, and has had nothing to do for this time.
    pub fn has_been_idle_for(&self, time: Duration, now: Time) -> bool {
        let idle = |connection: &ClientConnection| {
            !connection.opening && connection.answers_due == 0 && connection.times.has_been_idle_for(time, now)
        };
        self.connection.as_ref().is_some_and(idle)
    }

    /// From now on the client does not connect. A present connection goes on.
    pub fn retire(&mut self) {
        self.connections = 0;
    }

    /// Whether this end belongs to it.
    pub fn owns_end(&self, end: EndId) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.end == end) || self.cancels.contains(&end)
    }

    /// Whether all its connections have ended.
    pub fn is_done(&self) -> bool {
        self.connection.is_none() && self.connections == 0 && self.cancels.is_empty()
    }

    /// Connects, sends a request, cancels one, or leaves.
    pub fn act(&mut self, env: &Environment<'_, S::Database>) {
        let pause = if self.rng.percent(70) { Duration::from_micros(200) } else { Duration::from_millis(8) };
        self.wake = env.now + self.rng.exponential(pause);
        let Some(connection) = &mut self.connection else {
            if self.connections > 0 {
                self.begin(env);
            } else {
                self.wake = Time(u64::MAX);
            }
            return;
        };
        connection.check_answer_time(self.number, env.now);
        if connection.said_goodbye {
            return;
        }
        let is_idle = connection.answers_due == 0 && self.protocol.is_idle();
        if is_idle && connection.check_asides(self.number, env.now, env.faults) {
            return;
        }
        if is_idle && self.idle_per_myriad > 0 && self.rng.per_myriad(self.idle_per_myriad) {
            self.wake = env.now + self.rng.exponential(MEAN_IDLE_PAUSE);
            return;
        }
        if let Some(limit) = connection.times.lingering_time().filter(|_| self.rng.percent(LINGERING_PERCENT)) {
            self.wake = env.now + self.rng.exponential(limit * 2);
            return;
        }
        if connection.vanishes_next
            || self.rng.per_myriad(if connection.answers_due > 0 { self.vanish_per_myriad } else { 15 })
        {
            return self.vanish(env);
        }
        if connection.answers_due > 0 && self.rng.per_myriad(self.cancel_per_myriad) && !connection.opening {
            self.send_cancel(env);
            return;
        }
        let connection = self.connection.as_mut().expect("there is a connection");
        // It waits for its answers, mostly, and always for its asides: these reach it by another connection.
        let hasty = connection.answers_due < 4
            && connection.expected_asides.is_empty()
            && self.rng.percent(self.pipelining_percent)
            && self.protocol.may_pipeline();
        if connection.opening || (connection.answers_due > 0 && !hasty) {
            return;
        }
        if connection.requests == 0 {
            if connection.answers_due == 0 {
                self.leave(env);
            }
            return;
        }
        connection.requests -= 1;
        let request = self.protocol.next_request(&mut self.rng);
        self.send_request(request, env);
        if self.rng.per_myriad(self.vanish_per_myriad) {
            self.connection.as_mut().expect("there is a connection").vanishes_next = true;
            self.wake = env.now + self.rng.exponential(Duration::from_micros(20));
        }
    }

    /// Ends the connection after its last request, mostly with the protocol's goodbye.
    fn leave(&mut self, env: &Environment<'_, S::Database>) {
        if self.rng.percent(30) {
            return self.vanish(env);
        }
        let goodbye = self.protocol.goodbye();
        if goodbye.is_empty() {
            return self.end_connection(env, false);
        }
        let connection = self.connection.as_mut().expect("there is a connection");
        connection.said_goodbye = true;
        connection.unsent.extend(goodbye);
        self.flush(env.network);
    }

    fn begin(&mut self, env: &Environment<'_, S::Database>) {
        self.connections -= 1;
        let faults = env.faults - env.lingering_faults;
        self.faults_before = if self.protocol.uses_earlier_state() { self.faults_before.min(faults) } else { faults };
        let end = env.network.connect();
        let reference = self.reference.connect(elapsed(env.now));
        let requests = (1 + self.rng.below(24)).min(self.requests);
        let times = ClientTimes::new(self.time_outs, env.now);
        self.connection = Some(ClientConnection::new(end, reference, requests, times, env.now, self.faults_before));
        let request = self.protocol.first_request(&mut self.rng);
        self.send_request(request, env);
    }

    /// Sends a request to the product and to the reference.
    fn send_request(&mut self, request: Request, env: &Environment<'_, S::Database>) {
        let connection = self.connection.as_mut().expect("a request needs a connection");
        if connection.answers_due == 0 {
            connection.waiting_since = env.now;
        }
        if env.trace {
            println!("{:>12.6}   client {}: {}", env.now.0 as f64 / 1e9, self.number, request.bytes.escape_ascii());
        }
        connection.sent_log.push(request.bytes.escape_ascii().to_string());
        connection.unsent.extend(self.protocol.for_product(request.bytes.clone()));
        self.reference.receive(connection.reference, &request.bytes, elapsed(env.now));
        while let Some(due) = self.reference.due() {
            self.reference.tick(due);
        }
        let mut said: Vec<u8> = Vec::new();
        for (from, bytes) in self.reference.take_output() {
            assert_eq!(from, connection.reference, "it is the only connection");
            said.extend(bytes);
        }
        let mut messages = Vec::new();
        let mut at = 0;
        while let Some((length, message)) = self.protocol.split_first(&said[at..], connection.opening) {
            at += length;
            messages.extend(message);
        }
        assert_eq!(at, said.len(), "a reference sends whole messages");
        if connection.opening {
            self.protocol.sort_opening(&mut messages);
        }
        connection.answers_due += match request.answers {
            Request::AS_MANY_AS_COME => messages.iter().filter(|message| message.kind == Kind::End).count(),
            answers => answers,
        };
        for message in messages {
            self.protocol.on_reference_message(&message);
            match message.kind {
                Kind::Aside if connection.early_asides.front() == Some(&message) => {
                    _ = connection.early_asides.pop_front()
                }
                Kind::Aside => connection.expected_asides.push_back(message),
                Kind::Setting => note_setting(&mut connection.reference_settings, &message),
                kind => {
                    connection.expected.push_back(message);
                    if kind == Kind::End {
                        connection.expected_settings.push_back(connection.reference_settings.clone());
                    }
                }
            }
        }
        self.flush(env.network);
    }

    fn flush(&mut self, network: &Network) {
        let Some(connection) = &mut self.connection else { return };
        if connection.unsent.is_empty() || network.is_reset(connection.end) {
            return;
        }
        let most =
            if self.rng.percent(20) { 1 + self.rng.index(connection.unsent.len()) } else { connection.unsent.len() };
        let sent = network.send(connection.end, &connection.unsent.make_contiguous()[..most]);
        connection.unsent.drain(..sent);
    }

    fn vanish(&mut self, env: &Environment<'_, S::Database>) {
        let end = self.connection.as_ref().expect("there is a connection").end;
        if self.rng.percent(30) {
            env.network.reset(end);
        }
        self.end_connection(env, true);
    }

    fn end_connection(&mut self, env: &Environment<'_, S::Database>, uncertain: bool) {
        let connection = self.connection.take().expect("a connection ends once");
        if env.trace {
            println!("{:>12.6}   client {} has left", env.now.0 as f64 / 1e9, self.number);
        }
        env.network.close(connection.end);
        self.left = env.now;
        if uncertain && connection.answers_due > 0 {
            self.protocol.check_after_fault(env.product_database, &self.reference);
        }
        self.reference.hang_up(connection.reference, elapsed(env.now));
        while let Some(due) = self.reference.due() {
            self.reference.tick(due);
        }
        self.reference.take_output();
        self.reference.take_closed();
        self.wake = env.now + self.rng.exponential(Duration::from_millis(3));
    }

    fn send_cancel(&mut self, env: &Environment<'_, S::Database>) {
        let Some(bytes) = self.protocol.cancel() else { return };
        let connection = self.connection.as_mut().expect("there is a connection");
        connection.cancelled = true;
        let end = env.network.connect();
        env.network.send(end, &bytes);
        self.cancels.push(end);
    }

    /// Handles a change of one of its ends.
    pub fn on_event(&mut self, end: EndId, env: &Environment<'_, S::Database>) {
        if let Some(at) = self.cancels.iter().position(|cancel| *cancel == end) {
            if env.network.has_input_ended(end) {
                env.network.close(end);
                self.cancels.remove(at);
            }
            return;
        }
        self.flush(env.network);
        let Some(connection) = &mut self.connection else { return };
        let bytes = env.network.receive(end, usize::MAX);
        connection.received.extend(bytes);
        while let Some(connection) = &mut self.connection {
            let opening = connection.opening;
            let Some((length, message)) = self.protocol.split_first(&connection.received, opening) else { break };
            let bytes: Vec<u8> = connection.received.drain(..length).collect();
            self.protocol.on_message(&bytes);
            if let Some(message) = message {
                self.check_message(message, env);
            }
        }
        if self.connection.is_some() && env.network.has_input_ended(end) {
            self.on_closed(env);
        }
    }

    fn check_message(&mut self, message: Message, env: &Environment<'_, S::Database>) {
        let connection = self.connection.as_mut().expect("there is a connection");
        let after_fault = env.faults > connection.faults_before;
        if message.kind == Kind::Setting {
            return note_setting(&mut connection.received_settings, &message);
        }
        if message.kind == Kind::Aside {
            return connection.check_aside(message, self.number, after_fault);
        }
        if connection.opening {
            return self.check_welcome(message, after_fault, env);
        }
        let expected = connection.expected.front();
        if expected.is_some_and(|expected| {
            *expected == message || self.protocol.is_equivalent(expected, &message, after_fault)
        }) {
            connection.expected.pop_front();
        } else {
            let excused = (after_fault && message.kind == Kind::Fault)
                || (connection.cancelled && message.kind == Kind::Cancelled);
            let asked = (connection.answers_due > 0).then_some(connection.waiting_since);
            let time_out = self.protocol.time_out(&message);
            let excused = excused
                || self.protocol.ends_connection(&message)
                || time_out.is_some_and(|why| connection.times.allow(why, asked, env.now))
                || env.departing && !connection.times.is_in_transaction() && self.protocol.is_departure(&message);
            assert!(excused, "{} gets {message:?} instead of {expected:?}", connection.describe(self.number));
            if let Some(again) = self.protocol.retry(&message) {
                connection.unsent.extend(again);
                return self.flush(env.network);
            }
            return self.end_connection(env, true);
        }
        if message.kind == Kind::End {
            connection.check_settings(self.number);
            let in_transaction = self.protocol.is_in_transaction_after(&message);
            if let Err(what) = connection.times.note_answer(in_transaction, connection.waiting_since, env.now) {
                panic!("{}: {what}", connection.describe(self.number));
            }
            connection.answers_due =
                connection.answers_due.checked_sub(1).expect("no answer comes that was not asked for");
            connection.waiting_since = env.now;
            if connection.answers_due == 0 && !connection.cancelled {
                let owed = &connection.expected;
                assert!(owed.is_empty(), "{} is owed {owed:?}", connection.describe(self.number));
                self.protocol.check(env.product_database, &self.reference);
                if !after_fault {
                    self.protocol.check_without_fault(env.product_database, &self.reference);
                }
            }
            self.wake = self.wake.min(env.now + self.rng.exponential(Duration::from_micros(100)));
        }
    }

    /// A message before the first request, of which the order does not matter.
    fn check_welcome(&mut self, message: Message, after_fault: bool, env: &Environment<'_, S::Database>) {
        let connection = self.connection.as_mut().expect("there is a connection");
        let (done, fault) = (message.kind == Kind::End, message.kind == Kind::Fault);
        connection.opening_messages.push(message);
        if fault && after_fault {
            return self.end_connection(env, true);
        }
        if done {
            let mut opening_messages = std::mem::take(&mut connection.opening_messages);
            self.protocol.sort_opening(&mut opening_messages);
            for message in opening_messages {
                let expected = connection.expected.pop_front();
                assert_eq!(expected.as_ref(), Some(&message), "client {} gets another welcome", self.number);
            }
            connection.check_settings(self.number);
            connection.opening = false;
            connection.answers_due -= 1;
            _ = connection.times.note_answer(false, connection.waiting_since, env.now);
            connection.waiting_since = env.now;
        }
    }

    /// The product has closed the connection.
    fn on_closed(&mut self, env: &Environment<'_, S::Database>) {
        let connection = self.connection.as_ref().expect("there is a connection");
        let after_fault = env.faults > connection.faults_before;
        let next = connection.expected.front();
        assert!(
            connection.said_goodbye || after_fault,
            "{} is disconnected; due: {next:?}",
            connection.describe(self.number)
        );
        let uncertain = connection.answers_due > 0;
        self.end_connection(env, uncertain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_aside_has_its_own_deadline() {
        let times = ClientTimes::new(TimeOuts::default(), Time(0));
        let mut connection = ClientConnection::new(0, 0, 1, times, Time(0), 0);
        let aside = || Message { kind: Kind::Aside, text: b"a message".to_vec() };
        for now in [Time(0), Time(0) + MAX_ASIDE_WAIT * 3] {
            connection.expected_asides.push_back(aside());
            assert!(connection.check_asides(1, now, 0));
            connection.check_aside(aside(), 1, false);
            assert!(!connection.check_asides(1, now, 0));
        }
    }
}
