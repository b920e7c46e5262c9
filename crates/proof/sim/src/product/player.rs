//! A client that knows what every answer must be: it sends each request to a database of its own too, the reference,
//! and compares the answers message by message. It knows the protocol only through [`Speech`].
//!
//! A player makes several connections, one after the other; each is a life: it logs in, asks and leaves, politely or
//! not. After a fault (a killed session of the database, a broken connection) an answer may be missing, or replaced by
//! an error that says so. Then the life is over, and the outcome of its pending requests is unknown. A wrong answer is
//! never excused.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use pool::Time;

use super::{
    site::elapsed,
    speech::{Kind, Message, Request, Speech},
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
/// The longest that a message from other clients may take.
const MAX_ASIDE_WAIT: Duration = Duration::from_secs(10);

pub struct Player<S: Speech> {
    pub number: usize,
    speech: S,
    own: S::Database,
    rng: Rng,
    life: Option<Life>,
    /// How many faults there had been when the oldest life began whose past counts.
    faults: u64,
    lives: u64,
    /// Most requests of a life.
    requests: u64,
    /// When it does something by itself.
    pub wake: Time,
    /// Connections that carry a cancel request.
    cancels: Vec<EndId>,
    /// In how many of a hundred turns it asks more before it is answered.
    haste: u64,
    /// In how many of ten thousand turns it leaves before it is answered. Only one that never does sees that it waits
    /// for ever.
    impatience: u64,
    /// In how many of ten thousand turns it cancels what it has asked.
    regret: u64,
    /// In how many of ten thousand turns it asks nothing for so long that its pool would be forgotten if it were
    /// unused.
    rest: u64,
}

/// How often a player lives, and how much it asks at most in a life.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Connections, one after the other.
    pub lives: u64,
    /// Requests on each of them.
    pub requests: u64,
}

struct Life {
    end: EndId,
    own: Connection,
    unsent: VecDeque<u8>,
    expected: VecDeque<Message>,
    /// What parameters are to be known at the end of each answer that is due.
    known: VecDeque<BTreeMap<Vec<u8>, Vec<u8>>>,
    told: BTreeMap<Vec<u8>, Vec<u8>>,
    heard_of: BTreeMap<Vec<u8>, Vec<u8>>,
    asides: VecDeque<Message>,
    /// What was told before the reference told it: within a pipeline that depends on when its parts arrive.
    early: VecDeque<Message>,
    received: Vec<u8>,
    heard: Vec<Message>,
    opening: bool,
    requests: u64,
    due: usize,
    since: Time,
    faults: u64,
    cancelled: bool,
    /// What was asked, for people.
    story: Vec<String>,
    /// It has said farewell, and waits for the end.
    left: bool,
    /// It vanishes at its next turn, which is about when its answer is under way.
    hurries: bool,
    awaits_asides: Option<Time>,
}

fn learn(parameters: &mut BTreeMap<Vec<u8>, Vec<u8>>, message: &Message) {
    let end = message.text.iter().position(|byte| *byte == 0).expect("a name ends");
    parameters.insert(message.text[..end].to_vec(), message.text[end + 1..].to_vec());
}

impl Life {
    /// Checks that no answer is overdue.
    fn check_answer_time(&self, player: usize, now: Time) {
        let in_time = self.due == 0 || now.since(self.since) < MAX_ANSWER_TIME;
        assert!(in_time, "{} waits for ever for {:?}", self.tale(player), self.expected.front());
    }

    /// An answer has ended: the client knows of its parameters what it is to know.
    fn check_settings(&mut self, number: usize) {
        let known = self.known.pop_front().expect("an answer was due");
        if known != self.heard_of {
            let differ = |(name, value): &(&Vec<u8>, &Vec<u8>)| self.heard_of.get(*name) != Some(*value);
            let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
            let wrong: Vec<_> = known.iter().filter(differ).map(|(name, value)| (text(name), text(value))).collect();
            let told: Vec<_> =
                wrong.iter().map(|(name, _)| self.heard_of.get(name.as_bytes()).map(|told| text(told))).collect();
            panic!("{} was not told {wrong:?}, but {told:?}", self.tale(number));
        }
    }

    /// Who it is, and what it has asked.
    fn tale(&self, number: usize) -> String {
        format!("{}\nplayer {number}", self.story.join("\n"))
    }
}

/// The surroundings of a player.
pub struct Around<'a, D> {
    pub network: &'a Network,
    pub real: &'a D,
    pub now: Time,
    pub faults: u64,
    /// Those of them that can still be felt by who connects now.
    pub felt: u64,
    /// Whether to print all that is said.
    pub trace: bool,
}

impl<S: Speech> Player<S> {
    /// A player that will live so often.
    pub fn new(number: usize, speech: S, size: Size, mut rng: Rng) -> Self {
        let wake = Time(rng.below(50_000_000));
        let (haste, impatience) = (rng.pick(&[4, 4, 30]), rng.pick(&[0, 40, 400]));
        let regret = rng.pick(&[60, 60, 600]);
        let rest = if wake.0.is_multiple_of(4) { 300 } else { 0 };
        let Size { lives, requests } = size;
        let own = speech.reference();
        Self {
            number,
            own,
            speech,
            rng,
            life: None,
            faults: 0,
            lives,
            requests,
            wake,
            cancels: Vec::new(),
            haste,
            impatience,
            regret,
            rest,
        }
    }

    /// It is connected, or about to be.
    pub fn is_here(&self) -> bool {
        self.life.is_some()
    }

    /// It does not come again.
    pub fn retire(&mut self) {
        self.lives = 0;
    }

    /// Whether an end is its own.
    pub fn has(&self, end: EndId) -> bool {
        self.life.as_ref().is_some_and(|life| life.end == end) || self.cancels.contains(&end)
    }

    /// Whether all its connections have ended.
    pub fn is_done(&self) -> bool {
        self.life.is_none() && self.lives == 0 && self.cancels.is_empty()
    }

    /// Acts by itself: connects, asks, cancels or leaves.
    pub fn act(&mut self, around: &Around<'_, S::Database>) {
        let pause = if self.rng.percent(70) { Duration::from_micros(200) } else { Duration::from_millis(8) };
        self.wake = around.now + self.rng.around(pause);
        let Some(life) = &mut self.life else {
            if self.lives > 0 {
                self.begin(around);
            } else {
                self.wake = Time(u64::MAX);
            }
            return;
        };
        life.check_answer_time(self.number, around.now);
        if life.left {
            return;
        }
        if life.due == 0 && !life.asides.is_empty() && self.speech.is_idle() {
            let until = *life.awaits_asides.get_or_insert(around.now + MAX_ASIDE_WAIT);
            let hurt = around.faults > life.faults;
            assert!(around.now < until || hurt, "{} is not told: {:?}", life.tale(self.number), life.asides);
            if !hurt {
                return;
            }
        }
        if life.due == 0 && self.speech.is_idle() {
            let right = life.early.is_empty() || around.faults > life.faults;
            assert!(right, "{} is told {:?}, which no client sent", life.tale(self.number), life.early);
        }
        if self.rest > 0 && life.due == 0 && self.speech.is_idle() && self.rng.per_myriad(self.rest) {
            self.wake = around.now + self.rng.around(MEAN_IDLE_PAUSE);
            return;
        }
        // It vanishes, now and then, whatever is under way.
        if life.hurries || self.rng.per_myriad(if life.due > 0 { self.impatience } else { 15 }) {
            return self.vanish(around);
        }
        if life.due > 0 && self.rng.per_myriad(self.regret) && !life.opening {
            self.send_cancel(around);
            return;
        }
        let life = self.life.as_mut().expect("it lives");
        // It waits for its answers, mostly; and for what it is to be told, which takes a way of its own, before it asks
        // for anything else.
        let hasty = life.due < 4 && life.asides.is_empty() && self.rng.percent(self.haste) && self.speech.is_hasty();
        if life.opening || (life.due > 0 && !hasty) {
            return;
        }
        if life.requests == 0 {
            if life.due > 0 {
                return;
            }
            if self.rng.percent(30) {
                return self.vanish(around);
            }
            let farewell = self.speech.farewell();
            if farewell.is_empty() {
                return self.end_life(around, false);
            }
            life.left = true;
            life.unsent.extend(farewell);
            self.flush(around.network);
            return;
        }
        life.requests -= 1;
        let request = self.speech.ask(&mut self.rng);
        self.say(request, around);
        if self.rng.per_myriad(self.impatience) {
            self.life.as_mut().expect("it lives").hurries = true;
            self.wake = around.now + self.rng.around(Duration::from_micros(20));
        }
    }

    fn begin(&mut self, around: &Around<'_, S::Database>) {
        self.lives -= 1;
        let faults = around.faults - around.felt;
        self.faults = if self.speech.remembers() { self.faults.min(faults) } else { faults };
        let end = around.network.connect();
        let own = self.own.connect(elapsed(around.now));
        self.life = Some(Life {
            end,
            own,
            unsent: VecDeque::new(),
            expected: VecDeque::new(),
            known: VecDeque::new(),
            told: BTreeMap::new(),
            heard_of: BTreeMap::new(),
            asides: VecDeque::new(),
            early: VecDeque::new(),
            received: Vec::new(),
            heard: Vec::new(),
            opening: true,
            requests: (1 + self.rng.below(24)).min(self.requests),
            due: 0,
            since: around.now,
            faults: self.faults,
            cancelled: false,
            story: Vec::new(),
            left: false,
            hurries: false,
            awaits_asides: None,
        });
        let request = self.speech.open(&mut self.rng);
        self.say(request, around);
    }

    /// Says something, to the product and to the reference.
    fn say(&mut self, request: Request, around: &Around<'_, S::Database>) {
        let life = self.life.as_mut().expect("who speaks lives");
        if life.due == 0 {
            life.since = around.now;
        }
        if around.trace {
            println!("{:>12.6}   player {}: {}", around.now.0 as f64 / 1e9, self.number, request.bytes.escape_ascii());
        }
        life.story.push(request.bytes.escape_ascii().to_string());
        life.unsent.extend(self.speech.addressed(request.bytes.clone()));
        self.own.receive(life.own, &request.bytes, elapsed(around.now));
        while let Some(due) = self.own.due() {
            self.own.tick(due);
        }
        let mut said: Vec<u8> = Vec::new();
        for (connection, bytes) in self.own.take_output() {
            assert_eq!(connection, life.own, "it is the only connection");
            said.extend(bytes);
        }
        let mut messages = Vec::new();
        let mut at = 0;
        while let Some((length, message)) = self.speech.cut(&said[at..], life.opening) {
            at += length;
            messages.extend(message);
        }
        assert_eq!(at, said.len(), "a reference says whole messages");
        if life.opening {
            self.speech.sort_opening(&mut messages);
        }
        life.due += match request.answers {
            Request::AS_MANY_AS_COME => messages.iter().filter(|message| message.kind == Kind::End).count(),
            answers => answers,
        };
        for message in messages {
            self.speech.learn(&message);
            match message.kind {
                Kind::Aside if life.early.front() == Some(&message) => _ = life.early.pop_front(),
                Kind::Aside => life.asides.push_back(message),
                Kind::Setting => learn(&mut life.told, &message),
                kind => {
                    life.expected.push_back(message);
                    if kind == Kind::End {
                        life.known.push_back(life.told.clone());
                    }
                }
            }
        }
        self.flush(around.network);
    }

    fn flush(&mut self, network: &Network) {
        let Some(life) = &mut self.life else { return };
        if life.unsent.is_empty() || network.is_reset(life.end) {
            return;
        }
        let most = if self.rng.percent(20) { 1 + self.rng.index(life.unsent.len()) } else { life.unsent.len() };
        let sent = network.send(life.end, &life.unsent.make_contiguous()[..most]);
        life.unsent.drain(..sent);
    }

    fn vanish(&mut self, around: &Around<'_, S::Database>) {
        let end = self.life.as_ref().expect("who vanishes lives").end;
        if self.rng.percent(30) {
            around.network.reset(end);
        }
        self.end_life(around, true);
    }

    fn end_life(&mut self, around: &Around<'_, S::Database>, uncertain: bool) {
        let life = self.life.take().expect("it ends once");
        if around.trace {
            println!("{:>12.6}   player {} has gone", around.now.0 as f64 / 1e9, self.number);
        }
        around.network.close(life.end);
        if uncertain && life.due > 0 {
            self.speech.check_after_fault(around.real, &self.own);
        }
        self.own.hang_up(life.own, elapsed(around.now));
        while let Some(due) = self.own.due() {
            self.own.tick(due);
        }
        self.own.take_output();
        self.own.take_closed();
        self.wake = around.now + self.rng.around(Duration::from_millis(3));
    }

    fn send_cancel(&mut self, around: &Around<'_, S::Database>) {
        let Some(bytes) = self.speech.cancel() else { return };
        let life = self.life.as_mut().expect("it lives");
        life.cancelled = true;
        let end = around.network.connect();
        around.network.send(end, &bytes);
        self.cancels.push(end);
    }

    /// Something has happened to an end of its own.
    pub fn listen(&mut self, end: EndId, around: &Around<'_, S::Database>) {
        if let Some(at) = self.cancels.iter().position(|cancel| *cancel == end) {
            if around.network.is_over(end) {
                around.network.close(end);
                self.cancels.remove(at);
            }
            return;
        }
        self.flush(around.network);
        let Some(life) = &mut self.life else { return };
        let bytes = around.network.receive(end, usize::MAX);
        life.received.extend(bytes);
        while let Some(life) = &mut self.life {
            let opening = life.opening;
            let Some((length, message)) = self.speech.cut(&life.received, opening) else { break };
            let bytes: Vec<u8> = life.received.drain(..length).collect();
            self.speech.hear(&bytes);
            if let Some(message) = message {
                self.compare(message, around);
            }
        }
        if self.life.is_some() && around.network.is_over(end) {
            self.lose(around);
        }
    }

    fn compare(&mut self, message: Message, around: &Around<'_, S::Database>) {
        let life = self.life.as_mut().expect("who hears lives");
        let hurt = around.faults > life.faults;
        if message.kind == Kind::Setting {
            return learn(&mut life.heard_of, &message);
        }
        if message.kind == Kind::Aside {
            match life.asides.pop_front() {
                None => life.early.push_back(message),
                Some(expected) => {
                    let right = expected == message || hurt;
                    assert!(right, "{} is told {message:?} instead of {expected:?}", life.tale(self.number));
                }
            }
            return;
        }
        if life.opening {
            let done = message.kind == Kind::End;
            let fault = message.kind == Kind::Fault;
            life.heard.push(message);
            if fault && hurt {
                return self.end_life(around, true);
            }
            if done {
                let mut heard = std::mem::take(&mut life.heard);
                self.speech.sort_opening(&mut heard);
                for message in heard {
                    let expected = life.expected.pop_front();
                    assert_eq!(expected.as_ref(), Some(&message), "player {} is welcomed otherwise", self.number);
                }
                life.check_settings(self.number);
                life.opening = false;
                life.due -= 1;
                life.since = around.now;
            }
            return;
        }
        let expected = life.expected.front();
        if expected.is_some_and(|expected| *expected == message || self.speech.is_as_good(expected, &message, hurt)) {
            life.expected.pop_front();
        } else {
            let excused = (hurt && message.kind == Kind::Fault) || (life.cancelled && message.kind == Kind::Cancelled);
            let excused = excused || self.speech.is_parting(&message);
            assert!(excused, "{} gets {message:?} instead of {expected:?}", life.tale(self.number));
            if let Some(again) = self.speech.again(&message) {
                life.unsent.extend(again);
                return self.flush(around.network);
            }
            return self.end_life(around, true);
        }
        if message.kind == Kind::End {
            life.check_settings(self.number);
            life.due = life.due.checked_sub(1).expect("no answer comes that was not asked for");
            life.since = around.now;
            if life.due == 0 && !life.cancelled {
                assert!(life.expected.is_empty(), "{} is owed {:?}", life.tale(self.number), life.expected);
                self.speech.check(around.real, &self.own);
                if !hurt {
                    self.speech.check_unhurt(around.real, &self.own);
                }
            }
            self.wake = self.wake.min(around.now + self.rng.around(Duration::from_micros(100)));
        }
    }

    /// The product has ended the connection.
    fn lose(&mut self, around: &Around<'_, S::Database>) {
        let life = self.life.as_ref().expect("who is left alone lives");
        let hurt = around.faults > life.faults;
        let next = life.expected.front();
        assert!(life.left || hurt, "{} is disconnected; due: {next:?}", life.tale(self.number));
        let uncertain = life.due > 0;
        self.end_life(around, uncertain);
    }
}
