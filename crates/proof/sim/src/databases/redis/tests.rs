//! Several connections to the model, over time.

use super::*;

struct Server {
    redis: Redis,
    now: Duration,
    sent: BTreeMap<Connection, Vec<u8>>,
}

impl Server {
    fn new() -> Self {
        Self { redis: Redis::default(), now: Duration::from_secs(1), sent: BTreeMap::new() }
    }

    fn connect(&mut self) -> Connection {
        self.redis.connect(self.now)
    }

    /// Takes what was sent to a connection.
    fn received(&mut self, connection: Connection) -> String {
        for (to, bytes) in self.redis.take_output() {
            self.sent.entry(to).or_default().extend(bytes);
        }
        String::from_utf8(self.sent.remove(&connection).unwrap_or_default()).expect("text")
    }

    /// Sends commands, one in each line, and takes the replies.
    fn ask(&mut self, connection: Connection, commands: &str) -> String {
        for command in commands.lines() {
            let words: Vec<_> = command.split(' ').map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
            let array = format!("*{}\r\n{}", words.len(), words.concat());
            self.redis.receive(connection, array.as_bytes(), self.now);
        }
        self.received(connection)
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
        self.redis.tick(self.now);
    }
}

#[test]
fn connections_that_wait_for_a_list_are_served_in_order() {
    let mut server = Server::new();
    let [first, second, gone, third] = [(); 4].map(|()| server.connect());
    assert_eq!(server.ask(first, "BLPOP l 0"), "");
    server.ask(gone, "BLPOP l 0");
    assert_eq!(server.ask(second, "BLPOP other l 0\nPING"), "", "it waits");
    server.redis.hang_up(gone, server.now);
    assert_eq!(server.ask(third, "RPUSH l a b c"), ":3\r\n");
    assert_eq!(server.received(first), "*2\r\n$1\r\nl\r\n$1\r\na\r\n");
    assert_eq!(server.received(second), "*2\r\n$1\r\nl\r\n$1\r\nb\r\n+PONG\r\n");
    assert_eq!(server.redis.list(b"l"), [b"c"]);
}

#[test]
fn a_wait_ends_with_its_time_out() {
    let mut server = Server::new();
    let first = server.connect();
    server.ask(first, "BLPOP l 0.5");
    assert_eq!(server.redis.leftovers(first), ["a wait for a list"]);
    server.pass(499);
    assert_eq!(server.received(first), "");
    assert_eq!(server.redis.due(), Some(server.now + Duration::from_millis(1)));
    server.pass(1);
    assert_eq!(server.received(first), "*-1\r\n");
}

#[test]
fn exec_fails_after_an_error_or_a_change_of_a_watched_key() {
    let mut server = Server::new();
    let [client, other] = [(); 2].map(|()| server.connect());
    server.ask(client, "MULTI");
    assert!(server.ask(client, "GET").starts_with("-ERR wrong number"));
    assert_eq!(server.ask(client, "EXEC"), "-EXECABORT Transaction discarded because of previous errors.\r\n");
    server.ask(client, "WATCH a");
    server.ask(other, "SET a 1");
    assert_eq!(server.ask(client, "MULTI\nSET a 2\nEXEC"), "+OK\r\n+QUEUED\r\n*-1\r\n");
    let received = server.ask(client, "MULTI\nINCR a\nBLPOP l 0\nEXEC\nGET a");
    assert_eq!(received, "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:2\r\n*-1\r\n$1\r\n2\r\n");
    server.ask(client, "WATCH a\nSUBSCRIBE c\nUNSUBSCRIBE\nMULTI\nGET a");
    assert_eq!(server.redis.leftovers(client), ["a transaction with 1 commands", "the watched key `a`"]);
}

#[test]
fn messages_come_in_the_protocol_version_of_the_subscriber() {
    let mut server = Server::new();
    let [old, new, publisher] = [(); 3].map(|()| server.connect());
    assert!(server.ask(new, "HELLO 3").starts_with("%7\r\n"));
    assert_eq!(server.ask(old, "SUBSCRIBE c"), "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
    assert_eq!(server.ask(new, "SUBSCRIBE c"), ">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
    assert_eq!(server.ask(publisher, "PUBLISH c m"), ":2\r\n");
    assert_eq!(server.received(old), "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n");
    assert_eq!(server.received(new), ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n");
    assert!(server.ask(old, "GET a").starts_with("-ERR Can't execute 'get': only (P|S)SUBSCRIBE"));
    assert_eq!(server.ask(old, "PING"), "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
    assert_eq!(server.ask(new, "PING"), "+PONG\r\n");
}

#[test]
fn a_connection_that_breaks_the_protocol_or_is_killed_is_closed() {
    let mut server = Server::new();
    let [client, other] = [(); 2].map(|()| server.connect());
    server.redis.receive(client, b"*1\r\n$4\r\nPI", server.now);
    assert_eq!(server.redis.leftovers(client), ["an incomplete command"]);
    server.redis.receive(client, b"NG\r\n*x\r\n*1\r\n$4\r\nPING\r\n", server.now);
    assert_eq!(server.received(client), "+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n");
    server.redis.kill(other, true, server.now);
    assert_eq!(server.redis.take_closed(), [client, other]);
    assert!(server.redis.open_connections().is_empty());
}
