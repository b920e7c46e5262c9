//! A small PostgreSQL for tests: lets everybody in, answers what it is told to, and writes down what it was asked.
//! Speaks the simple protocol only. Knows no load.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

#[derive(Clone)]
pub enum Reply {
    /// Rows of one column each, and the transaction's status afterwards.
    Rows(&'static [&'static str], u8),
    /// An error with this SQLSTATE, and the transaction's status afterwards.
    Error(&'static str, u8),
    /// The connection ends with a FATAL error of this SQLSTATE.
    Fatal(&'static str),
    /// The connection ends without a word.
    Gone,
    Silence,
}

/// A running server. Its threads end with the process.
pub struct Server {
    pub port: u16,
    /// Queries by connection, in the order in which the connections came.
    pub asked: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Server {
    /// Answers each query as `reply` says; its arguments are the number of the connection and the query.
    pub fn start(reply: impl Fn(usize, &str) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (reply, books) = (Arc::new(reply), Arc::clone(&asked));
        thread::spawn(move || {
            for socket in listener.incoming() {
                let (reply, books) = (Arc::clone(&reply), Arc::clone(&books));
                let number = {
                    let mut books: std::sync::MutexGuard<'_, Vec<Vec<String>>> = books.lock().unwrap();
                    books.push(Vec::new());
                    books.len() - 1
                };
                // A client that goes away ends its thread.
                thread::spawn(move || _ = serve(socket.unwrap(), number, &*reply, &books));
            }
        });
        Self { port, asked }
    }

    /// All queries that were asked on all connections.
    pub fn queries(&self) -> Vec<String> {
        self.asked.lock().unwrap().concat()
    }
}

fn serve(
    mut socket: TcpStream,
    number: usize,
    reply: &dyn Fn(usize, &str) -> Reply,
    books: &Mutex<Vec<Vec<String>>>,
) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let mut start = vec![0; u32::from_be_bytes(length) as usize - 4];
    socket.read_exact(&mut start)?;
    let mut out = message(b'R', &[0; 4]);
    out.extend(message(b'S', b"server_version\x0015.99\0"));
    out.extend(message(b'Z', b"I"));
    socket.write_all(&out)?;
    loop {
        let mut header = [0; 5];
        socket.read_exact(&mut header)?;
        let mut body = vec![0; u32::from_be_bytes(header[1..].try_into().unwrap()) as usize - 4];
        socket.read_exact(&mut body)?;
        if header[0] != b'Q' {
            return Ok(());
        }
        let query = String::from_utf8_lossy(&body[..body.len() - 1]).into_owned();
        books.lock().unwrap()[number].push(query.clone());
        let out = match reply(number, &query) {
            Reply::Rows(rows, status) => answer(rows, status),
            Reply::Error(code, status) => [error("ERROR", code), message(b'Z', &[status])].concat(),
            Reply::Fatal(code) => {
                socket.write_all(&error("FATAL", code))?;
                return Ok(());
            }
            Reply::Gone => return Ok(()),
            Reply::Silence => continue,
        };
        socket.write_all(&out)?;
    }
}

fn answer(rows: &[&str], status: u8) -> Vec<u8> {
    let mut out = message(b'T', &[&b"\0\x01v\0"[..], &[0; 18]].concat());
    for row in rows {
        out.extend(message(b'D', &[&[0, 1][..], &(row.len() as u32).to_be_bytes(), row.as_bytes()].concat()));
    }
    out.extend(message(b'C', b"SELECT\0"));
    out.extend(message(b'Z', &[status]));
    out
}

fn error(severity: &str, code: &str) -> Vec<u8> {
    message(b'E', format!("S{severity}\0V{severity}\0C{code}\0Mas the test wants it\0\0").as_bytes())
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}
