//! Which commands there are, and what holds for each: how many words it has, and when it may be carried out.

use super::{
    Connection, Redis,
    reply::{Done, Refusal, Reply, printable},
};

pub const WRITES: u8 = 1;
/// Who has not logged in may say it.
pub const FREE: u8 = 2;
/// It is carried out while a script runs.
pub const IN_TIME: u8 = 4;
/// It ends or begins transactions, and is never a part of one.
pub const AT_ONCE: u8 = 8;
/// It is among the few that a subscriber may say in the old version of the protocol.
pub const SUBSCRIBER: u8 = 16;
/// It may have effects elsewhere, though it does not write itself.
pub const REPLICATES: u8 = 32;
/// It reads keys, and changes none.
pub const READS: u8 = 64;

pub struct Spec {
    pub name: &'static str,
    /// How many words it has, its name included; negative: at least so many.
    pub words: i32,
    pub flags: u8,
    pub run: fn(&mut Redis, Connection, &[Vec<u8>], &mut Reply) -> Done,
}

impl Spec {
    pub fn is(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }
}

/// Commands whose second word says what they are.
const CONTAINERS: [&str; 5] = ["acl", "client", "function", "pubsub", "script"];

/// The command that is meant by these words.
pub fn find(words: &[Vec<u8>]) -> Result<&'static Spec, Refusal> {
    let name = words[0].to_ascii_lowercase();
    let container = CONTAINERS.iter().find(|container| container.as_bytes() == name);
    let full = match (container, words.get(1)) {
        (Some(_), Some(second)) => [&name, &b"|"[..], &second.to_ascii_lowercase()].concat(),
        _ => name,
    };
    match (COMMANDS.iter().find(|spec| spec.name.as_bytes() == full), container, words.get(1)) {
        (Some(spec), ..) => {
            let count = words.len() as i32;
            let fits = if spec.words > 0 { count == spec.words } else { count >= -spec.words };
            if fits { Ok(spec) } else { Err(wrong_number(spec.name)) }
        }
        (None, Some(container), Some(second)) => {
            let behind = format!("'. Try {} HELP.", container.to_ascii_uppercase());
            Err(Refusal::quoting("ERR unknown subcommand '", second, &behind))
        }
        (None, Some(container), None) => Err(wrong_number(container)),
        (None, None, _) => Err(unknown(words)),
    }
}

/// A command has too many words, or too few.
pub fn wrong_number(name: &str) -> Refusal {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

fn unknown(words: &[Vec<u8>]) -> Refusal {
    let mut told = Vec::new();
    for word in &words[1..] {
        if told.len() >= 128 {
            break;
        }
        let room = 128 - told.len();
        told.extend([b"'", printable(word, room), b"' "].concat());
    }
    let name = printable(&words[0], 128);
    Refusal([b"ERR unknown command '", name, b"', with args beginning with: ", &told].concat())
}

const fn spec(
    name: &'static str,
    words: i32,
    flags: u8,
    run: fn(&mut Redis, Connection, &[Vec<u8>], &mut Reply) -> Done,
) -> Spec {
    Spec { name, words, flags, run }
}

static COMMANDS: &[Spec] = &[
    spec("acl|whoami", 2, 0, Redis::acl_whoami),
    spec("append", 3, WRITES, Redis::append),
    spec("auth", -2, FREE | IN_TIME, Redis::auth),
    spec("blmove", 6, WRITES, Redis::blmove),
    spec("blpop", -3, WRITES, Redis::blpop),
    spec("brpop", -3, WRITES, Redis::brpop),
    spec("brpoplpush", 4, WRITES, Redis::brpoplpush),
    spec("client|caching", 3, 0, Redis::client_caching),
    spec("client|getname", 2, 0, Redis::client_getname),
    spec("client|getredir", 2, 0, Redis::client_getredir),
    spec("client|id", 2, 0, Redis::client_id),
    spec("client|info", 2, 0, Redis::client_info),
    spec("client|kill", -3, 0, Redis::client_kill),
    spec("client|list", -2, 0, Redis::client_list),
    spec("client|no-evict", 3, 0, Redis::client_no_evict),
    spec("client|pause", -3, 0, Redis::client_pause),
    spec("client|reply", 3, 0, Redis::client_reply),
    spec("client|setname", 3, 0, Redis::client_setname),
    spec("client|tracking", -3, 0, Redis::client_tracking),
    spec("client|trackinginfo", 2, 0, Redis::client_trackinginfo),
    spec("client|unblock", -3, 0, Redis::client_unblock),
    spec("client|unpause", 2, 0, Redis::client_unpause),
    spec("dbsize", 1, 0, Redis::dbsize),
    spec("decr", 2, WRITES, Redis::decr),
    spec("decrby", 3, WRITES, Redis::decrby),
    spec("del", -2, WRITES, Redis::del),
    spec("discard", 1, IN_TIME | AT_ONCE, Redis::discard),
    spec("echo", 2, 0, Redis::echo),
    spec("eval", -3, REPLICATES, Redis::eval),
    spec("evalsha", -3, REPLICATES, Redis::evalsha),
    spec("exec", 1, AT_ONCE, Redis::exec),
    spec("exists", -2, READS, Redis::exists),
    spec("expire", -3, WRITES, Redis::expire),
    spec("flushall", -1, WRITES, Redis::flushall),
    spec("flushdb", -1, WRITES, Redis::flushdb),
    spec("function|kill", 2, IN_TIME, Redis::function_kill),
    spec("function|stats", 2, IN_TIME, Redis::function_stats),
    spec("get", 2, READS, Redis::get_command),
    spec("getdel", 2, WRITES, Redis::getdel),
    spec("getset", 3, WRITES, Redis::getset),
    spec("hdel", -3, WRITES, Redis::hdel),
    spec("hello", -1, FREE | IN_TIME, Redis::hello),
    spec("hexists", 3, READS, Redis::hexists),
    spec("hget", 3, READS, Redis::hget),
    spec("hgetall", 2, READS, Redis::hgetall),
    spec("hlen", 2, READS, Redis::hlen),
    spec("hset", -4, WRITES, Redis::hset),
    spec("incr", 2, WRITES, Redis::incr),
    spec("incrby", 3, WRITES, Redis::incrby),
    spec("info", -1, 0, Redis::info),
    spec("keys", 2, 0, Redis::keys_command),
    spec("lindex", 3, READS, Redis::lindex),
    spec("llen", 2, READS, Redis::llen),
    spec("lmove", 5, WRITES, Redis::lmove),
    spec("lpop", -2, WRITES, Redis::lpop),
    spec("lpush", -3, WRITES, Redis::lpush),
    spec("lpushx", -3, WRITES, Redis::lpushx),
    spec("lrange", 4, READS, Redis::lrange),
    spec("mget", -2, READS, Redis::mget),
    spec("mset", -3, WRITES, Redis::mset),
    spec("multi", 1, IN_TIME | AT_ONCE, Redis::multi),
    spec("persist", 2, WRITES, Redis::persist),
    spec("pexpire", -3, WRITES, Redis::pexpire),
    spec("ping", -1, SUBSCRIBER, Redis::ping),
    spec("psetex", 4, WRITES, Redis::psetex),
    spec("psubscribe", -2, SUBSCRIBER, Redis::psubscribe),
    spec("pttl", 2, READS, Redis::pttl),
    spec("publish", 3, REPLICATES, Redis::publish),
    spec("pubsub|channels", -2, 0, Redis::pubsub_channels),
    spec("pubsub|numpat", 2, 0, Redis::pubsub_numpat),
    spec("pubsub|numsub", -2, 0, Redis::pubsub_numsub),
    spec("pubsub|shardchannels", -2, 0, Redis::pubsub_shardchannels),
    spec("pubsub|shardnumsub", -2, 0, Redis::pubsub_shardnumsub),
    spec("punsubscribe", -1, SUBSCRIBER, Redis::punsubscribe),
    spec("reset", 1, FREE | IN_TIME | AT_ONCE | SUBSCRIBER, Redis::reset),
    spec("role", 1, 0, Redis::role),
    spec("rpop", -2, WRITES, Redis::rpop),
    spec("rpoplpush", 3, WRITES, Redis::rpoplpush),
    spec("rpush", -3, WRITES, Redis::rpush),
    spec("rpushx", -3, WRITES, Redis::rpushx),
    spec("sadd", -3, WRITES, Redis::sadd),
    spec("scard", 2, READS, Redis::scard),
    spec("script|exists", -3, 0, Redis::script_exists),
    spec("script|flush", -2, 0, Redis::script_flush),
    spec("script|kill", 2, IN_TIME, Redis::script_kill),
    spec("script|load", 3, 0, Redis::script_load),
    spec("select", 2, 0, Redis::select),
    spec("set", -3, WRITES, Redis::set),
    spec("setex", 4, WRITES, Redis::setex),
    spec("setnx", 3, WRITES, Redis::setnx),
    spec("sismember", 3, READS, Redis::sismember),
    spec("smembers", 2, READS, Redis::smembers),
    spec("spublish", 3, REPLICATES, Redis::spublish),
    spec("srem", -3, WRITES, Redis::srem),
    spec("ssubscribe", -2, SUBSCRIBER, Redis::ssubscribe),
    spec("strlen", 2, READS, Redis::strlen),
    spec("subscribe", -2, SUBSCRIBER, Redis::subscribe),
    spec("sunsubscribe", -1, SUBSCRIBER, Redis::sunsubscribe),
    spec("ttl", 2, READS, Redis::ttl),
    spec("type", 2, READS, Redis::type_command),
    spec("unlink", -2, WRITES, Redis::del),
    spec("unsubscribe", -1, SUBSCRIBER, Redis::unsubscribe),
    spec("unwatch", 1, IN_TIME, Redis::unwatch),
    spec("wait", 3, 0, Redis::wait),
    spec("watch", -2, IN_TIME | AT_ONCE, Redis::watch),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn found(words: &[&str]) -> Result<&'static str, String> {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        find(&words).map(|spec| spec.name).map_err(|Refusal(why)| String::from_utf8(why).expect("text"))
    }

    #[test]
    fn commands_are_found_by_their_names_in_any_case() {
        assert_eq!(found(&["gEt", "a"]), Ok("get"));
        assert_eq!(found(&["CLIENT", "No-Evict", "on"]), Ok("client|no-evict"));
    }

    #[test]
    fn what_is_no_command_is_refused_in_the_words_of_redis() {
        for (words, why) in [
            (&["GET"][..], "wrong number of arguments for 'get' command"),
            (&["client"], "wrong number of arguments for 'client' command"),
            (&["Client", "Foo"], "unknown subcommand 'Foo'. Try CLIENT HELP."),
            (&["FOO", "a", "b\0c"], "unknown command 'FOO', with args beginning with: 'a' 'b' "),
            (&["FOO"], "unknown command 'FOO', with args beginning with: "),
        ] {
            assert_eq!(found(words), Err(format!("ERR {why}")));
        }
    }
}
