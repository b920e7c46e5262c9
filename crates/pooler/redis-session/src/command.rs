//! Sorts commands by how a proxy has to treat them. It knows neither clients nor servers.

/// Longest name, in bytes, of a command that is not [`Kind::Ordinary`].
const MAX_NAME: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Has one reply, and leaves no state in the connection.
    Ordinary,
    /// Has one reply, which may take until another client does something (BLPOP). No other client's command may wait
    /// behind it.
    Blocking,
    /// EVAL, FCALL and their variants. While a script runs for long, Redis reads nothing more from its connection, but
    /// answers other connections. So no other client's command may wait behind it.
    Script,
    /// Must overtake commands that block or run (SCRIPT KILL, CLIENT UNPAUSE), in whatever database they are.
    Control,
    Multi,
    Watch,
    EndTransaction,
    /// WAIT and WAITAOF, which are about the earlier writes of the same connection.
    Wait,
    /// PUBLISH and SPUBLISH. The reply is the number of subscribers.
    Publish(Topic),
    /// PUBSUB NUMSUB and PUBSUB SHARDNUMSUB.
    SubscriberCount(Topic),
    /// SUBSCRIBE, UNSUBSCRIBE and their variants.
    Subscription(SubscriptionCommand),
    /// Changes the connection itself, or has more or fewer replies than one (MONITOR, CLIENT TRACKING). It pins the
    /// server to the client.
    Pinning,
    Auth,
    Hello,
    Select,
    AboutSelf(AboutSelf),
    AboutClients(AboutClients),
    Quit,
    Reset,
    /// The first words of an HTTP request. The bytes that follow are not commands, even if they look like some.
    Http,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubscriptionCommand {
    /// True for SUBSCRIBE, false for UNSUBSCRIBE.
    pub begins: bool,
    pub topic: Topic,
}

/// What a subscription names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Topic {
    Channel,
    /// All channels whose name matches.
    Pattern,
    /// A shard channel. Redis keeps these apart from channels even without a cluster.
    Shard,
}

impl Topic {
    /// All topics, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::Shard];
}

impl SubscriptionCommand {
    /// The command's name in its reply.
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

/// Subcommands of CLIENT about the state of the client's own connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AboutSelf {
    SetName,
    GetName,
    SetInfo,
    Id,
    /// An unknown subcommand. It is not forwarded, because it might change the server connection, which is shared.
    Unknown,
}

/// Subcommands of CLIENT about any client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AboutClients {
    List,
    Info,
    /// KILL with filters.
    Kill,
    /// KILL with an address only, the old form.
    KillAddress,
    Unblock,
}

impl AboutClients {
    const NAMES: [(Self, &str); 5] = [
        (Self::List, "LIST"),
        (Self::Info, "INFO"),
        (Self::Kill, "KILL"),
        (Self::KillAddress, "KILL1"),
        (Self::Unblock, "UNBLOCK"),
    ];

    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// The subcommand that has this [`name`](Self::name).
    pub fn of(name: &[u8]) -> Self {
        let found = Self::NAMES.iter().find(|(_, known)| known.as_bytes() == name);
        found.expect("a name that `name` has returned").0
    }
}

impl Kind {
    /// Whether the command may be pipelined to a server together with commands of other clients.
    pub fn can_share(self) -> bool {
        matches!(self, Self::Ordinary | Self::Publish(_) | Self::SubscriberCount(_))
    }

    /// Whether the command may hold its server without a time limit.
    pub fn needs_long_term_lease(self) -> bool {
        matches!(self, Self::Blocking | Self::Wait | Self::Pinning)
    }
}

/// The kind of a command with this name and these arguments. The first arguments of a long command are enough.
pub fn kind(name: &[u8], rest: &[&[u8]]) -> Kind {
    let second = rest.first().copied();
    let mut upper = [0; MAX_NAME];
    match uppercase(name, &mut upper) {
        b"MULTI" => Kind::Multi,
        b"EXEC" | b"DISCARD" | b"UNWATCH" => Kind::EndTransaction,
        b"WATCH" => Kind::Watch,
        b"WAIT" | b"WAITAOF" => Kind::Wait,
        b"BLPOP" | b"BRPOP" | b"BRPOPLPUSH" | b"BLMOVE" | b"BLMPOP" | b"BZPOPMIN" | b"BZPOPMAX" | b"BZMPOP" => {
            Kind::Blocking
        }
        b"XREAD" | b"XREADGROUP" if block_option(rest).is_some() => Kind::Blocking,
        b"SCRIPT" | b"FUNCTION" if is(second, b"KILL") => Kind::Control,
        b"FUNCTION" if is(second, b"STATS") => Kind::Control,
        b"INFO" => Kind::Control,
        b"EVAL" | b"EVALSHA" | b"FCALL" | b"EVAL_RO" | b"EVALSHA_RO" | b"FCALL_RO" => Kind::Script,
        b"SHUTDOWN" => Kind::Control,
        b"PUBLISH" => Kind::Publish(Topic::Channel),
        b"PUBSUB" if is(second, b"NUMSUB") => Kind::SubscriberCount(Topic::Channel),
        b"PUBSUB" if is(second, b"SHARDNUMSUB") => Kind::SubscriberCount(Topic::Shard),
        b"SPUBLISH" => Kind::Publish(Topic::Shard),
        b"SUBSCRIBE" => subscription(true, Topic::Channel),
        b"PSUBSCRIBE" => subscription(true, Topic::Pattern),
        b"SSUBSCRIBE" => subscription(true, Topic::Shard),
        b"UNSUBSCRIBE" => subscription(false, Topic::Channel),
        b"PUNSUBSCRIBE" => subscription(false, Topic::Pattern),
        b"SUNSUBSCRIBE" => subscription(false, Topic::Shard),
        b"MONITOR" | b"SYNC" | b"PSYNC" | b"REPLCONF" => Kind::Pinning,
        b"AUTH" => Kind::Auth,
        b"HELLO" => Kind::Hello,
        b"SELECT" => Kind::Select,
        b"POST" | b"HOST:" => Kind::Http,
        b"QUIT" => Kind::Quit,
        b"RESET" => Kind::Reset,
        b"CLIENT" => second.map_or(Kind::Ordinary, client),
        b"SCRIPT" if is(second, b"DEBUG") => Kind::Pinning,
        _ => Kind::Ordinary,
    }
}

fn subscription(begins: bool, topic: Topic) -> Kind {
    Kind::Subscription(SubscriptionCommand { begins, topic })
}

fn client(subcommand: &[u8]) -> Kind {
    let mut upper = [0; MAX_NAME];
    match uppercase(subcommand, &mut upper) {
        b"SETNAME" => Kind::AboutSelf(AboutSelf::SetName),
        b"GETNAME" => Kind::AboutSelf(AboutSelf::GetName),
        b"SETINFO" => Kind::AboutSelf(AboutSelf::SetInfo),
        b"ID" => Kind::AboutSelf(AboutSelf::Id),
        b"TRACKING" | b"CACHING" | b"REPLY" | b"NO-EVICT" | b"NO-TOUCH" => Kind::Pinning,
        // Redis would list, close or unblock server connections, which serve other clients.
        b"LIST" => Kind::AboutClients(AboutClients::List),
        b"INFO" => Kind::AboutClients(AboutClients::Info),
        b"KILL" => Kind::AboutClients(AboutClients::Kill),
        b"UNBLOCK" => Kind::AboutClients(AboutClients::Unblock),
        b"PAUSE" | b"UNPAUSE" => Kind::Control,
        b"GETREDIR" | b"TRACKINGINFO" | b"HELP" => Kind::Ordinary,
        _ => Kind::AboutSelf(AboutSelf::Unknown),
    }
}

/// The name in upper case; empty if it is longer than [`MAX_NAME`].
fn uppercase<'a>(name: &[u8], buffer: &'a mut [u8; MAX_NAME]) -> &'a [u8] {
    let Some(buffer) = buffer.get_mut(..name.len()) else { return b"" };
    buffer.copy_from_slice(name);
    buffer.make_ascii_uppercase();
    buffer
}

/// The arguments of XREAD or XREADGROUP from its option BLOCK or from an unknown option on; `None` if it has neither.
/// A group and a consumer may be named as an option is.
pub fn block_option<'a>(rest: &'a [&'a [u8]]) -> Option<&'a [&'a [u8]]> {
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        let mut upper = [0; MAX_NAME];
        at += match uppercase(word, &mut upper) {
            b"STREAMS" => return None,
            b"NOACK" => 1,
            b"COUNT" | b"CLAIM" => 2,
            b"GROUP" => 3,
            _ => return Some(&rest[at..]),
        };
    }
    Some(&[])
}

fn is(argument: Option<&[u8]>, word: &[u8]) -> bool {
    argument.is_some_and(|argument| argument.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_commands_are_ordinary() {
        for name in ["", "GET", "a name that is longer than any that is known here", "CLIENTS"] {
            assert_eq!(kind(name.as_bytes(), &[]), Kind::Ordinary, "{name}");
        }
        assert_eq!(kind(b"client", &[]), Kind::Ordinary);
        assert_eq!(kind(b"client", &[b"help"]), Kind::Ordinary);
        assert_eq!(kind(b"client", &[b"maint_notifications"]), Kind::AboutSelf(AboutSelf::Unknown));
    }

    #[test]
    fn xread_blocks_only_with_the_option_block() {
        assert_eq!(kind(b"XREAD", &[b"COUNT", b"2", b"block", b"0", b"STREAMS", b"s", b"$"]), Kind::Blocking);
        assert_eq!(kind(b"XREAD", &[b"STREAMS", b"BLOCK", b"0"]), Kind::Ordinary);
        for group in [&b"g"[..], b"streams"] {
            let read = |more: &[&'static [u8]]| kind(b"XREADGROUP", &[&[b"GROUP", group, b"c"], more].concat());
            assert_eq!(read(&[b"BLOCK", b"5", b"STREAMS", b"s", b">"]), Kind::Blocking);
            assert_eq!(read(&[b"COUNT", b"1", b"NOACK", b"STREAMS", b"s", b">"]), Kind::Ordinary);
        }
        // The options end before STREAMS is found.
        assert_eq!(kind(b"XREAD", &[&b"COUNT"[..], b"1"].repeat(40)), Kind::Blocking);
    }
}
