//! The table of commands: the number of words of each, and when it may be run.

use super::{
    Connection, Redis,
    reply::{Done, Refusal, Reply},
};

/// It begins, ends or guards transactions, and is never queued for one.
pub const NOT_QUEUED: u8 = 1;
/// A subscriber may send it in RESP2.
pub const FOR_SUBSCRIBERS: u8 = 2;

pub struct Command {
    pub name: &'static str,
    /// Number of words, the name included; negative: at least that many.
    words: i32,
    flags: u8,
    pub run: fn(&mut Redis, Connection, &[Vec<u8>], &mut Reply) -> Done,
}

impl Command {
    pub fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The command of these words.
pub fn find(words: &[Vec<u8>]) -> Result<&'static Command, Refusal> {
    let name = words[0].to_ascii_lowercase();
    let full = match words.get(1) {
        Some(second) if name == b"client" => [&name, &b"|"[..], &second.to_ascii_lowercase()].concat(),
        _ => name.clone(),
    };
    match COMMANDS.iter().find(|command| command.name.as_bytes() == full) {
        Some(command) => {
            let count = words.len() as i32;
            let fits = if command.words > 0 { count == command.words } else { count >= -command.words };
            if fits { Ok(command) } else { Err(wrong_number(command.name)) }
        }
        None if name == b"client" && words.len() == 1 => Err(wrong_number("client")),
        None if name == b"client" => {
            let second = printable(&words[1], 128);
            Err(Refusal([b"ERR unknown subcommand '", second, b"'. Try CLIENT HELP."].concat()))
        }
        None => Err(unknown(words)),
    }
}

pub fn wrong_number(name: &str) -> Refusal {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

fn unknown(words: &[Vec<u8>]) -> Refusal {
    let mut arguments = Vec::new();
    for word in &words[1..] {
        if arguments.len() >= 128 {
            break;
        }
        let room = 128 - arguments.len();
        arguments.extend([b"'", printable(word, room), b"' "].concat());
    }
    let name = printable(&words[0], 128);
    Refusal([b"ERR unknown command '", name, b"', with args beginning with: ", &arguments].concat())
}

/// The part that C prints: `most` bytes, and none from the first zero byte on.
fn printable(text: &[u8], most: usize) -> &[u8] {
    let text = &text[..text.len().min(most)];
    &text[..text.iter().position(|&byte| byte == 0).unwrap_or(text.len())]
}

const fn command(
    name: &'static str,
    words: i32,
    flags: u8,
    run: fn(&mut Redis, Connection, &[Vec<u8>], &mut Reply) -> Done,
) -> Command {
    Command { name, words, flags, run }
}

static COMMANDS: &[Command] = &[
    command("append", 3, 0, Redis::append),
    command("blpop", -3, 0, Redis::blpop),
    command("client|getname", 2, 0, Redis::client_getname),
    command("client|setname", 3, 0, Redis::client_setname),
    command("del", -2, 0, Redis::del),
    command("discard", 1, NOT_QUEUED, Redis::discard),
    command("echo", 2, 0, Redis::echo),
    command("eval", -3, 0, Redis::eval),
    command("exec", 1, NOT_QUEUED, Redis::exec),
    command("exists", -2, 0, Redis::exists),
    command("get", 2, 0, Redis::get),
    command("hello", -1, 0, Redis::hello),
    command("incr", 2, 0, Redis::incr),
    command("lpush", -3, 0, Redis::lpush),
    command("lrange", 4, 0, Redis::lrange),
    command("mget", -2, 0, Redis::mget),
    command("multi", 1, NOT_QUEUED, Redis::multi),
    command("ping", -1, FOR_SUBSCRIBERS, Redis::ping),
    command("publish", 3, 0, Redis::publish),
    command("rpop", 2, 0, Redis::rpop),
    command("rpush", -3, 0, Redis::rpush),
    command("select", 2, 0, Redis::select),
    command("set", -3, 0, Redis::set),
    command("subscribe", -2, FOR_SUBSCRIBERS, Redis::subscribe),
    command("unsubscribe", -1, FOR_SUBSCRIBERS, Redis::unsubscribe),
    command("unwatch", 1, 0, Redis::unwatch),
    command("watch", -2, NOT_QUEUED, Redis::watch),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_any_case_and_others_are_refused_in_the_words_of_redis() {
        for (words, expected) in [
            (&["gEt", "a"][..], Ok("get")),
            (&["CLIENT", "SetName", "x"], Ok("client|setname")),
            (&["GET"], Err("wrong number of arguments for 'get' command")),
            (&["client"], Err("wrong number of arguments for 'client' command")),
            (&["Client", "Foo"], Err("unknown subcommand 'Foo'. Try CLIENT HELP.")),
            (&["FOO", "a", "b\0c"], Err("unknown command 'FOO', with args beginning with: 'a' 'b' ")),
        ] {
            let words: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            let found = find(&words).map(|command| command.name);
            assert_eq!(found, expected.map_err(|why| format!("ERR {why}").into()));
        }
    }
}
