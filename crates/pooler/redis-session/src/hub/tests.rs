use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use seam::{Bytes, ServerTag};

use super::*;
use crate::resp::{self, Limits, Request};

const POOL: PoolId = PoolId(0);
const SERVER: ServerTag = ServerTag(7);

/// A model of Redis for subscriptions, with clients that record their posts.
#[derive(Default)]
struct World {
    hubs: Hubs,
    key: Option<u64>,
    /// What Redis has subscribed to, once it has read all that was sent.
    subscribed: BTreeSet<(Topic, Vec<u8>)>,
    forbidden: BTreeSet<Vec<u8>>,
    /// Redis's answers that have not been read.
    answers: VecDeque<Vec<u8>>,
    told: BTreeMap<u64, Vec<Vec<u8>>>,
    notified: usize,
}

impl World {
    fn run(&mut self, mut out: Outbox) {
        for effect in std::mem::take(&mut out.effects) {
            match effect {
                Effect::Post { to: Peer::Client(_), key, bytes } => {
                    self.told.entry(key).or_default().push(out.inserted[bytes].to_vec());
                }
                Effect::Post { to: Peer::Server(SERVER), .. } => self.notified += 1,
                Effect::Send { to: Peer::Server(SERVER), bytes: Bytes::Insert(range) } => {
                    let mut bytes = &out.inserted[range];
                    while !bytes.is_empty() {
                        let Ok(Request::Command(length, words)) = resp::read(bytes, &Limits::AUTHENTICATED) else {
                            panic!()
                        };
                        self.execute(words.map(<[u8]>::to_vec).collect());
                        bytes = &bytes[length..];
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn execute(&mut self, words: Vec<Vec<u8>>) {
        if words[1..].iter().any(|name| self.forbidden.contains(name)) && words[0].starts_with(b"S") {
            return self.answers.push_back(b"-NOPERM no\r\n".to_vec());
        }
        if words == [b"PING"] {
            self.answers.push_back(b"+PONG\r\n".to_vec());
        }
        for name in &words[1..] {
            match words[0].as_slice() {
                b"SUBSCRIBE" => self.subscribed.insert((Topic::Channel, name.clone())),
                b"UNSUBSCRIBE" => self.subscribed.remove(&(Topic::Channel, name.clone())),
                other => panic!("{other:?}"),
            };
            let mut answer = b"*3\r\n".to_vec();
            resp::text(&mut answer, &words[0].to_ascii_lowercase());
            resp::text(&mut answer, name);
            answer.extend_from_slice(b":1\r\n");
            self.answers.push_back(answer);
        }
    }

    fn wish(&mut self, client: u64, begins: bool, names: &[&str]) {
        let mut out = Outbox::new();
        let names = names.iter().map(|name| name.as_bytes().into()).collect();
        let wish =
            SubscriptionChange { key: client, what: SubscriptionCommand { begins, topic: Topic::Channel }, names };
        if self.hubs.request(POOL, ClientTag(client as u32), wish, &mut out) {
            self.told.entry(client).or_default().push(vec![notice::SEEK]);
        }
        self.run(out);
    }

    fn leave(&mut self, client: u64, names: &[&str]) {
        let mut out = Outbox::new();
        let names: Vec<Name> = names.iter().map(|name| name.as_bytes().into()).collect();
        self.hubs.leave(POOL, client, names.iter().map(|name| (Topic::Channel, name)), &mut out);
        self.run(out);
    }

    /// A client that was told to seek a server has it.
    fn arrive(&mut self, client: u64) {
        assert!(self.told.get_mut(&client).is_some_and(|told| told.pop() == Some(vec![notice::SEEK])));
        let mut out = Outbox::new();
        self.key = self.hubs.on_server_found(POOL, client, SERVER);
        assert!(self.key.is_some());
        self.look(&mut out);
        self.run(out);
    }

    fn look(&mut self, out: &mut Outbox) {
        let Some(key) = self.key else { return };
        if !self.hubs.with_hub(POOL, key, |hub| hub.send_changes(SERVER, out)) {
            self.key = None;
            assert!(self.answers.is_empty(), "a server is given back that has been asked for something");
        }
    }

    /// The server's session does what it is notified of, and reads one answer if there is any.
    fn step(&mut self) {
        let mut out = Outbox::new();
        if let (Some(answer), Some(key)) = (self.answers.pop_front(), self.key) {
            let said = resp::read_pubsub(&answer).expect("an answer");
            assert!(self.hubs.with_hub(POOL, key, |hub| hub.answered(SERVER, said, &mut out)));
            self.notified += 1;
        }
        if std::mem::take(&mut self.notified) > 0 {
            self.look(&mut out);
        }
        self.run(out);
    }

    fn settle(&mut self) {
        while self.notified > 0 || !self.answers.is_empty() {
            self.step();
        }
    }

    fn lose(&mut self) {
        let mut out = Outbox::new();
        let key = self.key.take().expect("there is a server");
        (self.answers, self.subscribed, self.notified) = (VecDeque::new(), BTreeSet::new(), 0);
        self.hubs.with_hub(POOL, key, |hub| hub.on_server_lost(&mut out));
        self.run(out);
    }

    fn publish(&mut self, channel: &str) {
        let (Some(key), mut out) = (self.key, Outbox::new()) else { return };
        self.hubs.with_hub(POOL, key, |hub| {
            if hub.fan_out(Topic::Channel, channel.as_bytes(), b"*message", &mut out) {
                let start = out.inserted.len();
                out.inserted.extend_from_slice(b"dmade");
                hub.fan_out_events(Topic::Channel, channel.as_bytes(), start..start + 5, &mut out);
            }
            true
        });
        self.run(out);
    }

    fn told(&mut self, client: u64) -> Vec<String> {
        let told = self.told.remove(&client).unwrap_or_default();
        told.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }
}

#[test]
fn events_are_made_once_for_all_their_subscribers() {
    let mut world = World::default();
    let hears = [1, 2, 3].map(|client| client | OF_EVENTS);
    for client in [1, hears[0], 2, hears[1], hears[2]] {
        world.wish(client, true, &["a"]);
    }
    world.arrive(1);
    (0..6).for_each(|_| world.step());
    for client in [1, 2, hears[0], hears[1], hears[2]] {
        assert_eq!(world.told(client), ["="]);
    }
    world.publish("a");
    assert_eq!([1, 2].map(|client| world.told(client)), [["*message"], ["*message"]]);
    assert_eq!(hears.map(|client| world.told(client)), [["dmade"], ["dmade"], ["dmade"]]);
}

#[test]
fn after_a_loss_names_and_changes_are_sent_again() {
    let mut world = World::default();
    world.wish(1, true, &["a", "b"]);
    world.arrive(1);
    world.settle();
    world.wish(2, true, &["c"]);
    world.step();
    world.forbidden.insert(b"b".to_vec());
    world.lose();
    let seeker = if world.told[&1].last() == Some(&vec![notice::SEEK]) { 1 } else { 2 };
    world.arrive(seeker);
    world.settle();
    assert_eq!(world.told(1), ["=", "!NOPERM no"], "what Redis does not allow any more is lost, and only that");
    assert_eq!(world.told(2), ["="]);
    world.publish("a");
    assert_eq!(world.told(1), ["*message"]);
    assert_eq!(world.subscribed.len(), 2);
}

#[test]
fn all_clients_are_told_that_there_is_no_server() {
    let mut world = World::default();
    world.wish(1, true, &["a"]);
    world.wish(2, true, &["b"]);
    let mut out = Outbox::new();
    world.hubs.on_no_server(POOL, 2, "not the one who sought", &mut out);
    assert!(out.effects.is_empty());
    world.hubs.on_no_server(POOL, 1, "ERR no", &mut out);
    world.run(out);
    assert_eq!((world.told(1).pop(), world.told(2).pop()), (Some("!ERR no".to_owned()), Some("!ERR no".to_owned())));
    world.wish(2, true, &["b"]);
    assert_eq!(world.told(2), ["?"], "the next one seeks anew");
}

/// The subscriptions of each client, and the change that it waits for.
type Clients = BTreeMap<u64, (BTreeSet<&'static str>, Option<(bool, &'static str)>)>;

/// A client hears what it is told, and seeks a server if it has to.
fn hear(world: &mut World, clients: &mut Clients, key: u64) {
    for told in world.told.remove(&key).unwrap_or_default() {
        let (has, waits) = clients.get_mut(&key).expect("only who is there is told");
        match told[0] {
            notice::CHANGED => match waits.take() {
                Some((true, name)) => _ = has.insert(name),
                Some((false, name)) => _ = has.remove(name),
                None => panic!("nothing was wished"),
            },
            // It has left since, and another seeks.
            notice::SEEK if has.is_empty() && waits.is_none() => {}
            notice::SEEK => {
                world.told.insert(key, vec![told]);
                world.arrive(key);
            }
            _ => panic!("nothing is refused here"),
        }
        if has.is_empty() && waits.is_none() {
            world.leave(key, &[]);
        }
    }
}

proptest! {
    /// Redis is subscribed to all names whose subscription was confirmed to a client, and in the end to no others.
    #[test]
    fn redis_has_what_clients_have(steps in proptest::collection::vec((0u64..4, 0usize..3, 0u8..8, 0u8..16), 1..80)) {
        const NAMES: [&str; 3] = ["a", "b", "c"];
        let mut world = World::default();
        let mut clients = Clients::new();
        let mut next = 10;
        let mut keys = [0, 1, 2, 3];
        for (client, name, action, hears) in steps {
            let key = keys[client as usize];
            let (has, waits) = clients.entry(key).or_default();
            match action {
                0..=2 if waits.is_none() => {
                    *waits = Some((true, NAMES[name]));
                    world.wish(key, true, &[NAMES[name]]);
                }
                3 if waits.is_none() && has.contains(NAMES[name]) => {
                    *waits = Some((false, NAMES[name]));
                    world.wish(key, false, &[NAMES[name]]);
                }
                4 => {
                    // What it wished may have been done although it has not heard of it.
                    let wished = waits.map(|(_, name)| name);
                    let names: Vec<&str> = has.iter().copied().chain(wished).collect();
                    world.leave(key, &names);
                    clients.remove(&key);
                    world.told.remove(&key);
                    (keys[client as usize], next) = (next, next + 1);
                }
                5 if world.key.is_some() && name == 0 => world.lose(),
                _ => world.step(),
            }
            for (place, key) in keys.into_iter().enumerate() {
                if hears & 1 << place != 0 {
                    hear(&mut world, &mut clients, key);
                }
            }
            if world.key.is_some() {
                for (has, waits) in clients.values() {
                    // Its end may have come, and not have been heard of.
                    for name in has.iter().filter(|name| *waits != Some((false, **name))) {
                        let topic = (Topic::Channel, name.as_bytes().to_vec());
                        prop_assert!(world.subscribed.contains(&topic), "{}", name);
                    }
                }
            }
        }
        for _ in 0..20 {
            world.settle();
            for key in keys {
                hear(&mut world, &mut clients, key);
            }
        }
        let names = clients.values().flat_map(|(has, _)| has.iter());
        let wanted: BTreeSet<_> = names.map(|name| (Topic::Channel, name.as_bytes().to_vec())).collect();
        prop_assert!(clients.values().all(|(_, waits)| waits.is_none()));
        prop_assert_eq!(wanted, std::mem::take(&mut world.subscribed));
    }
}
