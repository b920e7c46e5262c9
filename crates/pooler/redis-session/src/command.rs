//! What a command is to a proxy. Knows nothing of who sends it.

/// Longest name of a command that means something here.
const MAX_NAME: usize = 16;

/// How a command is dealt with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Goes to a server and gets one reply; leaves nothing behind on the connection.
    Ordinary,
    /// The same, but the reply may take until another client does something: others must not wait behind it.
    Blocking,
    /// A script or a function. While one runs for long Redis reads nothing more of its connection, though it answers
    /// others: these must not be behind it.
    Script,
    /// Lets others go on whose commands Redis is at or keeps, or tells of these, whatever database they are in: it must
    /// not wait behind them.
    Rescue,
    Multi,
    /// Keys are watched from here on.
    Watch,
    /// Ends a transaction, or the watching of keys: EXEC, DISCARD, UNWATCH.
    Ending,
    /// Asks how far the writes of this connection have come: WAIT, WAITAOF.
    Wait,
    /// Tells subscribers something; the reply counts them.
    Publish(Topic),
    /// Asks how many have subscribed to something.
    Audience(Topic),
    /// Begins or ends subscriptions.
    Subscription(Subscription),
    /// Changes the connection itself, or is answered by more or less than one reply: the server is the client's from
    /// here on.
    Keeping,
    Auth,
    /// Which protocol it speaks.
    Hello,
    /// In which logical database it is.
    Select,
    /// What the client is called.
    Client(Own),
    /// Which clients there are.
    Roster(Roster),
    Quit,
    Reset,
    /// Another protocol: what follows is not meant as commands, whatever it looks like.
    Http,
}

/// A command of SUBSCRIBE's kin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subscription {
    /// Otherwise it ends some.
    pub begins: bool,
    pub topic: Topic,
}

/// What can be subscribed to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Topic {
    Channel,
    /// All channels whose name matches.
    Pattern,
    /// A channel of a cluster's shard; apart from the others wherever there is no cluster, too.
    Shard,
}

impl Topic {
    /// All there are, each at its number.
    pub const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::Shard];
}

impl Subscription {
    /// The command's name, as replies have it.
    pub fn name(self) -> &'static str {
        match (self.begins, self.topic) {
            (true, Topic::Channel) => "subscribe",
            (true, Topic::Pattern) => "psubscribe",
            (true, Topic::Shard) => "ssubscribe",
            (false, Topic::Channel) => "unsubscribe",
            (false, Topic::Pattern) => "punsubscribe",
            (false, Topic::Shard) => "sunsubscribe",
        }
    }
}

/// Subcommands of CLIENT that concern what Poolhouse keeps of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Own {
    SetName,
    GetName,
    SetInfo,
    Id,
    /// None that is known: it may concern the connection itself, which is not the client's own.
    Unknown,
}

/// Subcommands of CLIENT that concern all clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Roster {
    List,
    /// INFO: the client itself.
    Info,
    /// KILL, with options that say whom.
    Kill,
    /// KILL as it was at first, of an address.
    KillOne,
    Unblock,
}

impl Roster {
    const NAMES: [(Self, &str); 5] = [
        (Self::List, "LIST"),
        (Self::Info, "INFO"),
        (Self::Kill, "KILL"),
        (Self::KillOne, "KILL1"),
        (Self::Unblock, "UNBLOCK"),
    ];

    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// What such a word stands for.
    pub fn of(name: &[u8]) -> Self {
        let found = Self::NAMES.iter().find(|(_, known)| known.as_bytes() == name);
        found.expect("a word of its own").0
    }
}

impl Kind {
    /// Whether it may go to a server together with the commands of other clients.
    pub fn can_share(self) -> bool {
        matches!(self, Self::Ordinary | Self::Publish(_) | Self::Audience(_))
    }

    /// Whether a server may be kept by it for as long as others, or the client, like.
    pub fn lasts(self) -> bool {
        matches!(self, Self::Blocking | Self::Wait | Self::Keeping)
    }
}

/// The kind of a command by its name, and for some, by what stands behind it. Of a long command the first arguments
/// will do.
pub fn kind(name: &[u8], rest: &[&[u8]]) -> Kind {
    let second = rest.first().copied();
    let mut upper = [0; MAX_NAME];
    match uppercase(name, &mut upper) {
        b"MULTI" => Kind::Multi,
        b"EXEC" | b"DISCARD" | b"UNWATCH" => Kind::Ending,
        b"WATCH" => Kind::Watch,
        b"WAIT" | b"WAITAOF" => Kind::Wait,
        b"BLPOP" | b"BRPOP" | b"BRPOPLPUSH" | b"BLMOVE" | b"BLMPOP" | b"BZPOPMIN" | b"BZPOPMAX" | b"BZMPOP" => {
            Kind::Blocking
        }
        b"XREAD" | b"XREADGROUP" if blocks(rest) => Kind::Blocking,
        b"SCRIPT" | b"FUNCTION" if is(second, b"KILL") => Kind::Rescue,
        b"FUNCTION" if is(second, b"STATS") => Kind::Rescue,
        b"INFO" => Kind::Rescue,
        b"EVAL" | b"EVALSHA" | b"FCALL" | b"EVAL_RO" | b"EVALSHA_RO" | b"FCALL_RO" => Kind::Script,
        b"SHUTDOWN" => Kind::Rescue,
        b"PUBLISH" => Kind::Publish(Topic::Channel),
        b"PUBSUB" if is(second, b"NUMSUB") => Kind::Audience(Topic::Channel),
        b"PUBSUB" if is(second, b"SHARDNUMSUB") => Kind::Audience(Topic::Shard),
        b"SPUBLISH" => Kind::Publish(Topic::Shard),
        b"SUBSCRIBE" => subscription(true, Topic::Channel),
        b"PSUBSCRIBE" => subscription(true, Topic::Pattern),
        b"SSUBSCRIBE" => subscription(true, Topic::Shard),
        b"UNSUBSCRIBE" => subscription(false, Topic::Channel),
        b"PUNSUBSCRIBE" => subscription(false, Topic::Pattern),
        b"SUNSUBSCRIBE" => subscription(false, Topic::Shard),
        b"MONITOR" | b"SYNC" | b"PSYNC" | b"REPLCONF" => Kind::Keeping,
        b"AUTH" => Kind::Auth,
        b"HELLO" => Kind::Hello,
        b"SELECT" => Kind::Select,
        b"POST" | b"HOST:" => Kind::Http,
        b"QUIT" => Kind::Quit,
        b"RESET" => Kind::Reset,
        b"CLIENT" => second.map_or(Kind::Ordinary, client),
        b"SCRIPT" if is(second, b"DEBUG") => Kind::Keeping,
        _ => Kind::Ordinary,
    }
}

fn subscription(begins: bool, topic: Topic) -> Kind {
    Kind::Subscription(Subscription { begins, topic })
}

fn client(subcommand: &[u8]) -> Kind {
    let mut upper = [0; MAX_NAME];
    match uppercase(subcommand, &mut upper) {
        b"SETNAME" => Kind::Client(Own::SetName),
        b"GETNAME" => Kind::Client(Own::GetName),
        b"SETINFO" => Kind::Client(Own::SetInfo),
        b"ID" => Kind::Client(Own::Id),
        b"TRACKING" | b"CACHING" | b"REPLY" | b"NO-EVICT" | b"NO-TOUCH" => Kind::Keeping,
        // Of the server's connections these would tell, close or unblock those of other clients.
        b"LIST" => Kind::Roster(Roster::List),
        b"INFO" => Kind::Roster(Roster::Info),
        b"KILL" => Kind::Roster(Roster::Kill),
        b"UNBLOCK" => Kind::Roster(Roster::Unblock),
        b"PAUSE" | b"UNPAUSE" => Kind::Rescue,
        b"GETREDIR" | b"TRACKINGINFO" | b"HELP" => Kind::Ordinary,
        _ => Kind::Client(Own::Unknown),
    }
}

/// The name in upper case; empty if it is longer than any that means something.
fn uppercase<'a>(name: &[u8], room: &'a mut [u8; MAX_NAME]) -> &'a [u8] {
    let Some(room) = room.get_mut(..name.len()) else { return b"" };
    room.copy_from_slice(name);
    room.make_ascii_uppercase();
    room
}

/// Whether XREAD or XREADGROUP has the option to wait, or options that are not understood.
fn blocks(rest: &[&[u8]]) -> bool {
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        let mut upper = [0; MAX_NAME];
        at += match uppercase(word, &mut upper) {
            b"STREAMS" => return false,
            b"NOACK" => 1,
            b"COUNT" | b"CLAIM" => 2,
            b"GROUP" => 3,
            _ => return true,
        };
    }
    true
}

fn is(argument: Option<&[u8]>, word: &[u8]) -> bool {
    argument.is_some_and(|argument| argument.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_in_any_case() {
        for name in ["multi", "MULTI", "MuLtI"] {
            assert_eq!(kind(name.as_bytes(), &[]), Kind::Multi);
        }
        assert_eq!(kind(b"client", &[b"setname"]), Kind::Client(Own::SetName));
        assert_eq!(kind(b"client", &[b"List"]), Kind::Roster(Roster::List));
        for what in [Roster::List, Roster::Info, Roster::Kill, Roster::KillOne, Roster::Unblock] {
            assert_eq!(Roster::of(what.name().as_bytes()), what);
        }
        assert_eq!(kind(b"client", &[b"tracking"]), Kind::Keeping);
        assert_eq!(kind(b"script", &[b"load"]), Kind::Ordinary);
        assert_eq!(kind(b"script", &[b"Debug"]), Kind::Keeping);
        assert_eq!(kind(b"function", &[b"kill"]), Kind::Rescue);
        assert_eq!(kind(b"evalsha", &[b"abc"]), Kind::Script);
    }

    #[test]
    fn what_is_not_known_goes_to_the_server() {
        for name in ["", "GET", "a name that is longer than any that is known here", "CLIENTS"] {
            assert_eq!(kind(name.as_bytes(), &[]), Kind::Ordinary, "{name}");
        }
        assert_eq!(kind(b"client", &[]), Kind::Ordinary);
        assert_eq!(kind(b"client", &[b"help"]), Kind::Ordinary);
        assert_eq!(kind(b"client", &[b"maint_notifications"]), Kind::Client(Own::Unknown));
    }

    #[test]
    fn a_stream_is_waited_for_only_if_that_is_asked() {
        assert_eq!(kind(b"XREAD", &[b"COUNT", b"2", b"block", b"0", b"STREAMS", b"s", b"$"]), Kind::Blocking);
        assert_eq!(kind(b"XREAD", &[b"STREAMS", b"BLOCK", b"0"]), Kind::Ordinary);
        for group in [&b"g"[..], b"streams"] {
            let read = |more: &[&'static [u8]]| kind(b"XREADGROUP", &[&[b"GROUP", group, b"c"], more].concat());
            assert_eq!(read(&[b"BLOCK", b"5", b"STREAMS", b"s", b">"]), Kind::Blocking);
            assert_eq!(read(&[b"COUNT", b"1", b"NOACK", b"STREAMS", b"s", b">"]), Kind::Ordinary);
        }
        // More words than are looked at.
        assert_eq!(kind(b"XREAD", &[&b"COUNT"[..], b"1"].repeat(40)), Kind::Blocking);
    }
}
