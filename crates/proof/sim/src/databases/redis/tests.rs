//! What connections see of each other, and of the time.

use super::*;

/// A server, and what it has said to whom.
struct Table {
    redis: Redis,
    now: Duration,
    said: BTreeMap<Connection, Vec<u8>>,
}

impl Table {
    fn new() -> Self {
        Self { redis: Redis::new(None), now: Duration::from_secs(1), said: BTreeMap::new() }
    }

    fn connect(&mut self) -> Connection {
        self.redis.connect(self.now)
    }

    fn gather(&mut self) {
        for (to, bytes) in self.redis.take_output() {
            self.said.entry(to).or_default().extend(bytes);
        }
    }

    /// What a connection has heard since this was asked last.
    fn heard(&mut self, connection: Connection) -> String {
        self.gather();
        String::from_utf8(self.said.remove(&connection).unwrap_or_default()).expect("text")
    }

    /// A line is sent, and what comes back is returned.
    fn ask(&mut self, connection: Connection, line: &str) -> String {
        self.redis.receive(connection, format!("{line}\r\n").as_bytes(), self.now);
        self.heard(connection)
    }

    /// So much time goes by, and everything happens when it is due.
    fn pass(&mut self, milliseconds: u64) {
        let end = self.now + Duration::from_millis(milliseconds);
        while let Some(due) = self.redis.due().filter(|due| *due <= end) {
            self.redis.tick(due);
            assert!(self.redis.due().is_none_or(|next| next > due), "what was due is done");
        }
        self.now = end;
    }
}

const SPIN: &str = "EVAL 'while true do end' 0";

#[test]
fn those_who_wait_for_a_list_are_served_in_the_order_of_their_coming() {
    let mut table = Table::new();
    let [first, second, third] = [table.connect(), table.connect(), table.connect()];
    assert_eq!(table.ask(first, "BLPOP l 0"), "");
    assert_eq!(table.ask(second, "BRPOP other l 0"), "");
    assert_eq!(table.ask(second, "PING"), "", "it waits");
    assert_eq!(table.ask(third, "RPUSH l a b c"), ":3\r\n");
    assert_eq!(table.heard(first), "*2\r\n$1\r\nl\r\n$1\r\na\r\n");
    assert_eq!(table.heard(second), "*2\r\n$1\r\nl\r\n$1\r\nc\r\n+PONG\r\n");
    assert_eq!(table.redis.list(b"l"), [b"b"]);
}

#[test]
fn a_wait_ends_when_its_time_is_over_or_somebody_ends_it() {
    let mut table = Table::new();
    let [first, second] = [table.connect(), table.connect()];
    table.ask(first, "BLPOP l 0.5");
    assert_eq!(table.redis.leftovers(first), ["a wait for a list"]);
    table.pass(499);
    assert_eq!(table.heard(first), "");
    table.pass(1);
    assert_eq!(table.heard(first), "*-1\r\n");
    table.ask(first, "BLPOP l 0");
    assert_eq!(table.ask(second, &format!("CLIENT UNBLOCK {first} ERROR")), ":1\r\n");
    assert_eq!(table.heard(first), "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n");
    assert_eq!(table.ask(second, &format!("CLIENT UNBLOCK {first}")), ":0\r\n");
}

#[test]
fn who_hangs_up_gets_nothing_that_others_wait_for() {
    let mut table = Table::new();
    let [first, second, third] = [table.connect(), table.connect(), table.connect()];
    table.ask(first, "BLPOP l 0");
    table.ask(second, "BLPOP l 0");
    table.redis.hang_up(first, table.now);
    table.ask(third, "RPUSH l a");
    assert_eq!(table.heard(second), "*2\r\n$1\r\nl\r\n$1\r\na\r\n");
    assert_eq!(table.redis.open(), [second, third]);
    assert!(table.redis.take_closed().is_empty());
}

#[test]
fn a_transaction_is_not_carried_out_after_an_error_or_a_change_of_what_is_watched() {
    let mut table = Table::new();
    let [me, other] = [table.connect(), table.connect()];
    table.ask(me, "MULTI");
    assert!(table.ask(me, "GET").starts_with("-ERR wrong number"));
    assert_eq!(table.ask(me, "EXEC"), "-EXECABORT Transaction discarded because of previous errors.\r\n");
    table.ask(me, "WATCH a");
    table.ask(other, "SET a 1");
    assert_eq!(table.ask(me, "MULTI\r\nSET a 2\r\nEXEC"), "+OK\r\n+QUEUED\r\n*-1\r\n");
    assert_eq!(
        table.ask(me, "MULTI\r\nINCR a\r\nBLPOP l 0\r\nEXEC"),
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:2\r\n*-1\r\n"
    );
    assert_eq!(table.redis.get(b"a"), Some(b"2".to_vec()));
}

#[test]
fn a_key_that_ends_by_itself_has_changed() {
    let mut table = Table::new();
    let me = table.connect();
    table.ask(me, "SET a 1 PX 100");
    table.ask(me, "WATCH a");
    assert_eq!(table.ask(me, "PTTL a"), ":100\r\n");
    table.pass(101);
    assert_eq!(table.ask(me, "MULTI\r\nPING\r\nEXEC"), "+OK\r\n+QUEUED\r\n*-1\r\n");
    assert_eq!(table.redis.get(b"a"), None);
}

#[test]
fn messages_come_in_the_words_of_the_version_that_their_hearer_speaks() {
    let mut table = Table::new();
    let [old, new, speaker] = [table.connect(), table.connect(), table.connect()];
    table.ask(new, "HELLO 3");
    assert_eq!(table.ask(old, "SUBSCRIBE c"), "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
    assert_eq!(table.ask(new, "PSUBSCRIBE *"), ">3\r\n$10\r\npsubscribe\r\n$1\r\n*\r\n:1\r\n");
    assert_eq!(table.ask(speaker, "PUBLISH c m"), ":2\r\n");
    assert_eq!(table.heard(old), "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n");
    assert_eq!(table.heard(new), ">4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$1\r\nc\r\n$1\r\nm\r\n");
    assert!(table.ask(old, "GET a").starts_with("-ERR Can't execute 'get': only (P|S)SUBSCRIBE"));
    assert_eq!(table.ask(old, "PING"), "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
    assert_eq!(table.ask(new, "PING"), "+PONG\r\n");
}

#[test]
fn while_a_script_runs_nobody_is_heard_and_later_everybody_is_refused_until_it_is_ended() {
    let mut table = Table::new();
    let [runner, other, gone] = [table.connect(), table.connect(), table.connect()];
    let transaction = format!("MULTI\r\nSET a 1\r\n{SPIN}\r\nSET b 2\r\nEXEC\r\nPING");
    assert_eq!(table.ask(runner, &transaction), "", "that it is queued is said later, too");
    assert_eq!(table.ask(other, "GET a"), "");
    table.redis.receive(gone, b"FOO\r\n", table.now);
    table.redis.hang_up(gone, table.now);
    assert_eq!(table.redis.open(), [runner, other]);
    table.pass(4999);
    assert_eq!(table.heard(other), "");
    table.pass(1);
    assert!(table.heard(other).starts_with("-BUSY Redis is busy"));
    assert_eq!(table.heard(runner), "");
    assert!(table.ask(other, "FUNCTION KILL").starts_with("-BUSY"));
    assert!(table.ask(other, "SCRIPT KILL\r\nPING").starts_with("+OK\r\n-BUSY"));
    let heard = table.heard(runner);
    assert!(
        heard.starts_with("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n-ERR Script killed by user"),
        "{heard}"
    );
    assert!(heard.ends_with("\r\n+OK\r\n+PONG\r\n"), "{heard}");
    assert_eq!(table.redis.get(b"b"), Some(b"2".to_vec()));
    assert!(table.ask(other, "SCRIPT KILL").starts_with("-NOTBUSY"));
}

#[test]
fn a_script_outlives_the_connection_that_runs_it() {
    let mut table = Table::new();
    let [runner, other] = [table.connect(), table.connect()];
    table.ask(runner, SPIN);
    table.redis.hang_up(runner, table.now);
    table.pass(5000);
    assert!(table.ask(other, "PING").starts_with("-BUSY"));
    assert_eq!(table.ask(other, "SCRIPT KILL"), "+OK\r\n");
    assert_eq!(table.ask(other, "PING"), "+PONG\r\n");
    assert!(table.redis.leftovers(runner).is_empty());
}

#[test]
fn what_is_held_up_by_a_pause_is_carried_out_in_order_when_it_ends() {
    let mut table = Table::new();
    let [me, first, second] = [table.connect(), table.connect(), table.connect()];
    assert_eq!(table.ask(me, "CLIENT PAUSE 100 WRITE"), "+OK\r\n");
    assert_eq!(table.ask(first, "APPEND a 1\r\nPING"), "");
    assert_eq!(table.ask(second, "APPEND a 2"), "");
    assert_eq!(table.ask(me, "GET a"), "$-1\r\n");
    assert_eq!(table.redis.leftovers(second), ["a command that is held up"]);
    table.pass(100);
    assert_eq!(table.heard(first), ":1\r\n+PONG\r\n");
    assert_eq!(table.redis.get(b"a"), Some(b"12".to_vec()));
    table.ask(me, "CLIENT PAUSE 100");
    assert_eq!(table.ask(me, "CLIENT UNPAUSE"), "", "that is held up, too");
    table.pass(100);
    assert_eq!(table.heard(me), "+OK\r\n");
}

#[test]
fn silence_is_of_replies_and_not_of_messages() {
    let mut table = Table::new();
    let [me, other] = [table.connect(), table.connect()];
    table.ask(me, "HELLO 3\r\nSUBSCRIBE c");
    assert_eq!(table.ask(me, "CLIENT REPLY SKIP\r\nPING\r\nECHO a"), "$1\r\na\r\n");
    assert_eq!(table.ask(me, "CLIENT REPLY OFF\r\nPING"), "");
    table.ask(other, "PUBLISH c m");
    assert!(table.heard(me).starts_with(">3\r\n$7\r\nmessage"));
    assert_eq!(table.ask(me, "CLIENT REPLY ON"), "+OK\r\n");
    assert_eq!(table.ask(me, "CLIENT REPLY OFF\r\nQUIT\r\nCLIENT REPLY ON"), "");
    assert_eq!(table.redis.open(), [me, other], "Redis closes behind what it says only");
}

#[test]
fn who_has_to_log_in_may_say_little_before() {
    let mut redis = Redis::new(Some("secret"));
    let me = redis.connect(Duration::ZERO);
    let mut ask = |line: &str| {
        redis.receive(me, format!("{line}\r\n").as_bytes(), Duration::ZERO);
        redis.take_output().into_iter().map(|(_, bytes)| String::from_utf8(bytes).expect("text")).collect::<String>()
    };
    assert_eq!(ask("GET a"), "-NOAUTH Authentication required.\r\n");
    assert!(ask("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert!(ask("AUTH wrong").starts_with("-WRONGPASS "));
    assert!(ask("HELLO 3 AUTH default secret").starts_with("%7\r\n"));
    assert_eq!(ask("GET a"), "_\r\n");
    assert_eq!(ask("RESET"), "+RESET\r\n");
    assert_eq!(ask("GET a"), "-NOAUTH Authentication required.\r\n");
}

#[test]
fn nothing_is_left_after_a_reset() {
    let mut table = Table::new();
    let me = table.connect();
    table.ask(me, "HELLO 3 SETNAME n\r\nSELECT 2\r\nWATCH a\r\nSUBSCRIBE c\r\nCLIENT TRACKING on\r\nMULTI\r\nGET a");
    let left = [
        "database 2",
        "the name `n`",
        "a transaction with 1 commands",
        "the watched key `a`",
        "a subscription to the channel `c`",
        "tracking",
    ];
    assert_eq!(table.redis.leftovers(me), left);
    assert_eq!(table.ask(me, "RESET"), "+RESET\r\n");
    assert!(table.redis.leftovers(me).is_empty());
    table.redis.receive(me, b"*1\r\n$4\r\nPI", table.now);
    assert_eq!(table.redis.leftovers(me), ["a command that has not come whole"]);
}

#[test]
fn who_breaks_the_protocol_is_told_and_closed_and_not_read_any_further() {
    let mut table = Table::new();
    let me = table.connect();
    assert_eq!(table.ask(me, "PING\r\n*x\r\nPING"), "+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n");
    assert_eq!(table.redis.take_closed(), [me]);
    assert_eq!(table.ask(me, "PING"), "");
}

#[test]
fn an_administrator_or_another_connection_closes_one() {
    let mut table = Table::new();
    let [me, second, third] = [table.connect(), table.connect(), table.connect()];
    assert_eq!(table.ask(me, &format!("CLIENT KILL ID {second}")), ":1\r\n");
    table.redis.kill(third, true, table.now);
    assert_eq!(table.ask(me, &format!("CLIENT KILL ID {me} SKIPME no\r\nPING")), ":1\r\n");
    assert_eq!(table.redis.take_closed(), [second, third, me]);
    assert!(table.redis.open().is_empty());
}

#[test]
fn who_has_read_a_key_is_told_when_it_changes() {
    let mut table = Table::new();
    let [me, other] = [table.connect(), table.connect()];
    table.ask(me, "HELLO 3\r\nCLIENT TRACKING on\r\nGET a");
    assert_eq!(table.ask(other, "SET a 1"), "+OK\r\n");
    assert_eq!(table.heard(me), ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n");
    table.ask(other, "SET a 2");
    assert_eq!(table.heard(me), "", "it is told once");
    table.ask(me, "GET a");
    assert_eq!(table.ask(me, "INCR a"), ":3\r\n>2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n");
}

#[test]
fn bytes_may_come_in_any_pieces() {
    let mut table = Table::new();
    let me = table.connect();
    for byte in b"*2\r\n$4\r\nECHO\r\n$2\r\nab\r\nPING\r\n" {
        table.redis.receive(me, &[*byte], table.now);
    }
    assert_eq!(table.heard(me), "$2\r\nab\r\n+PONG\r\n");
}
