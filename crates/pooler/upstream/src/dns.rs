//! Questions to a name server that the system's resolver does not answer: which servers a service has (SRV), and what
//! is written about a name (TXT). Over UDP, and over TCP where an answer is cut short (RFC 1035, 2782, 6891). Knows no
//! database.

use std::{
    collections::hash_map::RandomState,
    fs,
    hash::{BuildHasher, Hasher},
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

/// Where the system's name servers stand.
const RESOLV_CONF: &str = "/etc/resolv.conf";
const DNS_PORT: u16 = 53;
/// Name servers that are queried, as many as the system's resolver asks.
const MAX_NAME_SERVERS: usize = 3;
/// Attempts with each name server, and the wait for its answer.
const ATTEMPTS_PER_SERVER: usize = 2;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Characters of a name, and of a part of it.
const MAX_NAME_CHARS: usize = 253;
const MAX_LABEL_CHARS: usize = 63;
/// Bytes that an answer over UDP may have, so that it is seldom cut short and never in fragments.
const MAX_DATAGRAM_BYTES: u16 = 1232;
/// Records of an answer that are read; further ones are ignored.
const MAX_RECORDS: usize = 128;
/// Compression pointers of one name.
const MAX_JUMPS: usize = 32;

const HEADER_BYTES: usize = 12;
const SRV: u16 = 33;
const TXT: u16 = 16;
const OPT: u16 = 41;
const INTERNET: u16 = 1;
const RECURSION_DESIRED: u16 = 0x0100;
const IS_ANSWER: u16 = 0x8000;
const TRUNCATED: u16 = 0x0200;
const NO_SUCH_NAME: u16 = 3;

/// The type of records that a query asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// The servers of a service.
    Srv,
    /// Texts about a name.
    Txt,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Its name, without a dot at the end.
    pub host: String,
    pub port: u16,
}

/// The records in a reply.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// Of [`Question::Srv`].
    pub targets: Vec<Target>,
    /// Of [`Question::Txt`], the strings of each joined.
    pub texts: Vec<String>,
    /// The shortest time to live; `None` without records.
    pub ttl: Option<Duration>,
}

/// The system's name servers.
///
/// # Errors
/// They are not told.
pub fn name_servers() -> Result<Vec<SocketAddr>, String> {
    let text = fs::read_to_string(RESOLV_CONF).map_err(|error| format!("cannot read {RESOLV_CONF}: {error}"))?;
    let servers = parse_resolv_conf(&text);
    if servers.is_empty() { Err(format!("{RESOLV_CONF} names no name server")) } else { Ok(servers) }
}

fn parse_resolv_conf(text: &str) -> Vec<SocketAddr> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let ip: IpAddr = (words.next()? == "nameserver").then(|| words.next()?.parse().ok()).flatten()?;
        Some(SocketAddr::new(ip, DNS_PORT))
    };
    text.lines().filter_map(address).take(MAX_NAME_SERVERS).collect()
}

/// Queries one server after the other until one answers. A name that does not exist has an empty answer. May block for
/// some seconds.
///
/// # Errors
/// None of them answers, or the name is none.
pub fn query_servers(servers: &[SocketAddr], name: &str, question: Question) -> Result<Answer, String> {
    let mut last = "there is no name server".to_owned();
    for server in servers.iter().cycle().take(servers.len() * ATTEMPTS_PER_SERVER) {
        match query_server(*server, name, question) {
            Ok(answer) => return Ok(answer),
            Err(Failure::Name(why)) => return Err(why),
            Err(Failure::Server(why)) => last = format!("the name server {server} {why}"),
        }
    }
    Err(last)
}

enum Failure {
    /// Another server would say the same.
    Name(String),
    Server(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Server("does not answer".to_owned()),
            _ => Self::Server(format!("cannot be asked: {error}")),
        }
    }
}

impl From<Malformed> for Failure {
    fn from(Malformed(why): Malformed) -> Self {
        Self::Server(format!("answers with what is no answer: {why}"))
    }
}

fn query_server(server: SocketAddr, name: &str, question: Question) -> Result<Answer, Failure> {
    // What it is keyed with is random.
    let id = RandomState::new().build_hasher().finish() as u16;
    let query = encode_query(id, name, question).map_err(Failure::Name)?;
    let message = by_udp(server, &query)?;
    let read = match Reply::read(&message, &query)? {
        Reply::Truncated => Reply::read(&by_tcp(server, &query)?, &query)?,
        reply => reply,
    };
    match read {
        Reply::Known(answer) => Ok(answer),
        Reply::Refused(code) => Err(Failure::Server(format!("refuses to answer (code {code})"))),
        Reply::Truncated => Err(Failure::Server("cuts its answer short over TCP, too".to_owned())),
    }
}

fn by_udp(server: SocketAddr, query: &[u8]) -> Result<Vec<u8>, Failure> {
    let any: IpAddr = if server.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u16; 8].into() };
    let socket = UdpSocket::bind((any, 0))?;
    // From here on the socket receives datagrams of this server only.
    socket.connect(server)?;
    socket.send(query)?;
    let until = Instant::now() + ANSWER_TIMEOUT;
    let mut buffer = vec![0; MAX_DATAGRAM_BYTES.into()];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        socket.set_read_timeout(Some(left))?;
        let length = socket.recv(&mut buffer)?;
        // A late answer to another question is not this one's.
        if buffer[..length].get(..2) == query.get(..2) {
            buffer.truncate(length);
            return Ok(buffer);
        }
    }
}

fn by_tcp(server: SocketAddr, query: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut stream = TcpStream::connect_timeout(&server, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let length = u16::try_from(query.len()).expect("a question is short").to_be_bytes();
    stream.write_all(&[&length, query].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message)?;
    Ok(message)
}

/// Encodes a query.
fn encode_query(id: u16, name: &str, question: Question) -> Result<Vec<u8>, String> {
    let name = name.trim_end_matches('.');
    let wrong = || format!("`{}` is no name of a host", name.escape_debug());
    if name.is_empty() || name.len() > MAX_NAME_CHARS {
        return Err(wrong());
    }
    let mut message = Vec::new();
    // One question, and in the end what this side can take.
    for word in [id, RECURSION_DESIRED, 1, 0, 0, 1] {
        message.extend(word.to_be_bytes());
    }
    for label in name.split('.') {
        if label.is_empty() || label.len() > MAX_LABEL_CHARS || !label.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong());
        }
        message.push(label.len() as u8);
        message.extend(label.bytes());
    }
    let kind = if question == Question::Srv { SRV } else { TXT };
    message.push(0);
    [kind, INTERNET].iter().for_each(|word| message.extend(word.to_be_bytes()));
    message.push(0);
    [OPT, MAX_DATAGRAM_BYTES, 0, 0, 0].iter().for_each(|word| message.extend(word.to_be_bytes()));
    Ok(message)
}

/// Why a message is not valid.
#[derive(Debug, PartialEq, Eq)]
struct Malformed(&'static str);

#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Known(Answer),
    Truncated,
    Refused(u16),
}

/// Reads a message from a place on.
struct Cursor<'m> {
    message: &'m [u8],
    at: usize,
}

impl Cursor<'_> {
    fn bytes(&mut self, count: usize) -> Result<&[u8], Malformed> {
        let bytes = self.message.get(self.at..self.at.saturating_add(count)).ok_or(Malformed("it ends too early"))?;
        self.at += count;
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.bytes(1)?[0])
    }

    fn word(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    fn long(&mut self) -> Result<u32, Malformed> {
        Ok((u32::from(self.word()?) << 16) | u32::from(self.word()?))
    }

    /// A name, which may go on where another one stands.
    fn name(&mut self) -> Result<String, Malformed> {
        let (mut name, mut jumps, mut behind) = (String::new(), 0, None);
        loop {
            let length = self.byte()?;
            match length {
                0 => break,
                1..=63 => {
                    let label = self.bytes(length.into())?;
                    if !label.iter().all(u8::is_ascii_graphic) {
                        return Err(Malformed("a name has odd letters"));
                    }
                    if !name.is_empty() {
                        name.push('.');
                    }
                    name.extend(label.iter().map(|byte| char::from(*byte)));
                }
                192.. => {
                    let to = (usize::from(length & 63) << 8) | usize::from(self.byte()?);
                    jumps += 1;
                    behind = behind.or(Some(self.at));
                    self.at = to;
                }
                _ => return Err(Malformed("a name is of an unknown form")),
            }
            if name.len() > MAX_NAME_CHARS || jumps > MAX_JUMPS {
                return Err(Malformed("a name has no end"));
            }
        }
        self.at = behind.unwrap_or(self.at);
        Ok(name)
    }
}

impl Reply {
    /// Reads the reply to a query.
    fn read(message: &[u8], query: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor { message, at: 0 };
        let (id, flags, questions, answers) = (cursor.word()?, cursor.word()?, cursor.word()?, cursor.word()?);
        cursor.at = HEADER_BYTES;
        if query.get(..2) != Some(&id.to_be_bytes()) || flags & IS_ANSWER == 0 {
            return Err(Malformed("it answers something else"));
        }
        if flags & TRUNCATED != 0 {
            return Ok(Self::Truncated);
        }
        match flags & 0xf {
            0 => {}
            NO_SUCH_NAME => return Ok(Self::Known(Answer::default())),
            code => return Ok(Self::Refused(code)),
        }
        let mut own = Cursor { message: query, at: HEADER_BYTES };
        let (queried_name, queried_kind) = (own.name()?, own.word()?);
        if questions != 1 || !cursor.name()?.eq_ignore_ascii_case(&queried_name) || cursor.word()? != queried_kind {
            return Err(Malformed("it answers another question"));
        }
        cursor.word()?;
        let mut answer = Answer::default();
        for _ in 0..usize::from(answers).min(MAX_RECORDS) {
            // Aliases come before what they stand for; whose record it is then says the server that was trusted to
            // look.
            cursor.name()?;
            let (kind, class, ttl, length) = (cursor.word()?, cursor.word()?, cursor.long()?, cursor.word()?);
            let end = cursor.at + usize::from(length);
            if class == INTERNET && kind == queried_kind {
                answer.add(kind, &mut cursor, end)?;
                let ttl = Duration::from_secs(ttl.into());
                answer.ttl = Some(answer.ttl.map_or(ttl, |others| others.min(ttl)));
            }
            if end > message.len() {
                return Err(Malformed("a record ends too late"));
            }
            cursor.at = end;
        }
        Ok(Self::Known(answer))
    }
}

impl Answer {
    fn add(&mut self, kind: u16, cursor: &mut Cursor<'_>, end: usize) -> Result<(), Malformed> {
        if kind == SRV {
            let (_priority, _weight, port) = (cursor.word()?, cursor.word()?, cursor.word()?);
            let host = cursor.name()?;
            // A dot alone says that there is no such service.
            if !host.is_empty() {
                self.targets.push(Target { host, port });
            }
            return Ok(());
        }
        let mut text = Vec::new();
        while cursor.at < end {
            let length = cursor.byte()?;
            text.extend_from_slice(cursor.bytes(length.into())?);
        }
        self.texts.push(String::from_utf8(text).map_err(|_| Malformed("a text is not UTF-8"))?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    /// An answer to a question, with these records behind it: type, time to live, data.
    fn reply(query: &[u8], flags: u16, records: &[(u16, u32, Vec<u8>)]) -> Vec<u8> {
        let question = &query[HEADER_BYTES..query.len() - 11];
        let mut message = query[..2].to_vec();
        for word in [IS_ANSWER | flags, 1, records.len() as u16, 0, 0] {
            message.extend(word.to_be_bytes());
        }
        message.extend(question);
        for (kind, ttl, data) in records {
            // The name in the query.
            message.extend([192, HEADER_BYTES as u8]);
            [*kind, INTERNET].iter().for_each(|word| message.extend(word.to_be_bytes()));
            message.extend(ttl.to_be_bytes());
            message.extend((data.len() as u16).to_be_bytes());
            message.extend(data);
        }
        message
    }

    fn srv(port: u16, labels: &[&str], end: &[u8]) -> Vec<u8> {
        let mut data = vec![0, 0, 0, 5];
        data.extend(port.to_be_bytes());
        for label in labels {
            data.push(label.len() as u8);
            data.extend(label.bytes());
        }
        data.extend(end);
        data
    }

    fn known(message: &[u8], query: &[u8]) -> Answer {
        match Reply::read(message, query) {
            Ok(Reply::Known(answer)) => answer,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn servers_and_texts_are_read_with_the_shortest_time_that_they_hold() {
        let query = encode_query(7, "_mongodb._tcp.c.example.net", Question::Srv).unwrap();
        // The end of the second name is that of the queried name, after its first two labels.
        let records = [
            (SRV, 300, srv(27_017, &["a", "example", "net"], &[0])),
            (SRV, 60, srv(27_018, &["b"], &[192, HEADER_BYTES as u8 + 9 + 5])),
            (5, 1, vec![0]),
        ];
        let answer = known(&reply(&query, 0, &records), &query);
        let target = |host: &str, port| Target { host: host.to_owned(), port };
        assert_eq!(answer.targets, [target("a.example.net", 27_017), target("b.c.example.net", 27_018)]);
        assert_eq!(answer.ttl, Some(Duration::from_secs(60)));
        let query = encode_query(7, "c.example.net", Question::Txt).unwrap();
        let text = [&[10][..], b"authSource", &[6], b"=admin"].concat();
        assert_eq!(known(&reply(&query, 0, &[(TXT, 5, text)]), &query).texts, ["authSource=admin"]);
        assert_eq!(known(&reply(&query, NO_SUCH_NAME, &[]), &query), Answer::default());
    }

    #[test]
    fn what_is_no_answer_to_this_question_is_refused() {
        let query = encode_query(7, "c.example.net", Question::Txt).unwrap();
        let right = reply(&query, 0, &[(TXT, 5, vec![1, b'a'])]);
        assert!(matches!(Reply::read(&right, &query), Ok(Reply::Known(_))));
        let other = encode_query(7, "d.example.net", Question::Txt).unwrap();
        assert_eq!(Reply::read(&reply(&other, 0, &[]), &query), Err(Malformed("it answers another question")));
        let other = encode_query(8, "c.example.net", Question::Txt).unwrap();
        assert_eq!(Reply::read(&reply(&other, 0, &[]), &query), Err(Malformed("it answers something else")));
        assert_eq!(Reply::read(&reply(&query, 2, &[]), &query), Ok(Reply::Refused(2)));
        // Any beginning of a message, and any with a byte changed, is read to an end.
        for cut in 0..right.len() {
            assert!(Reply::read(&right[..cut], &query).is_err() || cut >= right.len() - 2, "{cut}");
            for byte in [0, 1, 63, 64, 192, 255] {
                let mut changed = right.clone();
                changed[cut] = byte;
                _ = Reply::read(&changed, &query);
            }
        }
        // A name that goes on where it stands.
        let endless = reply(&query, 0, &[(TXT, 5, vec![])]);
        let at = endless.len() - 12;
        let mut endless = endless;
        endless[at + 1] = at as u8;
        assert_eq!(Reply::read(&endless, &query), Err(Malformed("a name has no end")));
    }

    #[test]
    fn an_answer_that_is_cut_short_is_asked_for_over_tcp_and_a_silent_server_is_passed_by() {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()) {
                break (udp, tcp);
            }
        };
        let server = udp.local_addr().unwrap();
        let serving = thread::spawn(move || {
            let mut query = [0; 512];
            let (length, from) = udp.recv_from(&mut query).unwrap();
            udp.send_to(&[0; 12], from).unwrap();
            udp.send_to(&reply(&query[..length], TRUNCATED, &[]), from).unwrap();
            let (mut stream, _) = tcp.accept().unwrap();
            let mut begin = [0; 2];
            stream.read_exact(&mut begin).unwrap();
            let mut query = vec![0; u16::from_be_bytes(begin).into()];
            stream.read_exact(&mut query).unwrap();
            let records: Vec<_> = (0..100).map(|n| (SRV, 60, srv(n, &["a", "example", "net"], &[0]))).collect();
            let message = reply(&query, 0, &records);
            stream.write_all(&(message.len() as u16).to_be_bytes()).unwrap();
            stream.write_all(&message).unwrap();
        });
        // Nothing is at the first one's port, which says so at once.
        let gone = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let answer = query_servers(&[gone, server], "_mongodb._tcp.c.example.net", Question::Srv).unwrap();
        serving.join().unwrap();
        assert_eq!((answer.targets.len(), answer.targets[99].port), (100, 99));
    }

    #[test]
    fn name_servers_are_read_as_the_system_writes_them() {
        let text = "# x\nsearch example.net\nnameserver 10.0.0.2\nnameserver\tfd00::1\n nameserver x\n\
                    nameserver 1.1.1.1\nnameserver 9.9.9.9\n";
        let shown: Vec<String> = parse_resolv_conf(text).iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.0.0.2:53", "[fd00::1]:53", "1.1.1.1:53"]);
        for wrong in ["", ".", "a..b", "a b.c", &"a".repeat(64), &"a.".repeat(200)] {
            assert!(encode_query(1, wrong, Question::Srv).is_err(), "{wrong}");
        }
    }
}
