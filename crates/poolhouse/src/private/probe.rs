//! The smallest PostgreSQL client: logs in without a password, runs simple queries one at a time, reads text rows. It
//! counts refused connections and times recoveries, which pgbench cannot do.
//!
//! Refuses to know poolers: it sees only what any application sees.

use std::{
    fmt,
    io::{self, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

/// No message of these sessions is longer.
const MAX_MESSAGE: usize = 1 << 20;
/// Nothing here takes longer than this unless it hangs.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Where and as whom to log in.
#[derive(Clone, Debug)]
pub struct Target {
    place: Place,
    user: String,
    database: String,
}

#[derive(Clone, Debug)]
enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A session.
pub struct Probe {
    stream: BufReader<Box<dyn Stream>>,
}

/// Why a request got no answer.
#[derive(Debug)]
pub enum ProbeError {
    /// The other side said so; `fatal` means that the session is over.
    Refused {
        /// SQLSTATE.
        code: String,
        /// For humans.
        message: String,
        /// Whether the session ended with it.
        fatal: bool,
    },
    /// The connection failed or was closed.
    Lost(io::Error),
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

impl Target {
    /// Over TCP.
    pub fn tcp(address: SocketAddr, user: &str, database: &str) -> Target {
        Target { place: Place::Tcp(address), user: user.to_owned(), database: database.to_owned() }
    }

    /// Through a Unix socket.
    pub fn unix(path: &Path, user: &str, database: &str) -> Target {
        Target { place: Place::Unix(path.to_path_buf()), user: user.to_owned(), database: database.to_owned() }
    }
}

impl Probe {
    /// Logs in and waits until the other side is ready for a query.
    pub fn connect(target: &Target) -> Result<Probe, ProbeError> {
        let stream: Box<dyn Stream> = match &target.place {
            Place::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, TIMEOUT)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                Box::new(stream)
            }
            Place::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                Box::new(stream)
            }
        };
        let mut probe = Probe { stream: BufReader::with_capacity(1024, stream) };
        probe.stream.get_mut().write_all(&startup(&target.user, &target.database))?;
        probe.until_ready()?;
        Ok(probe)
    }

    /// Runs a query and returns its rows as text; NULL becomes an empty string.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Vec<String>>, ProbeError> {
        let mut message = vec![b'Q'];
        message.extend(length(sql.len() + 5));
        message.extend(sql.as_bytes());
        message.push(0);
        self.stream.get_mut().write_all(&message)?;
        self.until_ready()
    }

    fn until_ready(&mut self) -> Result<Vec<Vec<String>>, ProbeError> {
        let mut rows = Vec::new();
        let mut refusal: Option<(String, String)> = None;
        loop {
            let (kind, body) = match self.message() {
                Ok(message) => message,
                Err(lost) => {
                    return Err(match refusal {
                        Some((code, message)) => ProbeError::Refused { code, message, fatal: true },
                        None => ProbeError::Lost(lost),
                    });
                }
            };
            match kind {
                b'R' if !body.starts_with(&[0; 4]) => {
                    return Err(ProbeError::Lost(io::Error::other("a password is asked for")));
                }
                b'D' => rows.push(columns(&body)?),
                b'E' => refusal = Some((field(&body, b'C'), field(&body, b'M'))),
                b'Z' => {
                    return match refusal {
                        Some((code, message)) => Err(ProbeError::Refused { code, message, fatal: false }),
                        None => Ok(rows),
                    };
                }
                _ => {}
            }
        }
    }

    fn message(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut header = [0; 5];
        self.stream.read_exact(&mut header)?;
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
        if !(4..=MAX_MESSAGE).contains(&length) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message of impossible length"));
        }
        let mut body = vec![0; length - 4];
        self.stream.read_exact(&mut body)?;
        Ok((header[0], body))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.stream.get_mut().write_all(&[b'X', 0, 0, 0, 4]);
    }
}

impl ProbeError {
    /// Whether the session can go on.
    pub fn session_survives(&self) -> bool {
        matches!(self, ProbeError::Refused { fatal: false, .. })
    }
}

impl From<io::Error> for ProbeError {
    fn from(error: io::Error) -> ProbeError {
        ProbeError::Lost(error)
    }
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProbeError::Refused { code, message, .. } => write!(f, "{message} (SQLSTATE {code})"),
            ProbeError::Lost(error) => write!(f, "connection lost: {error}"),
        }
    }
}

impl std::error::Error for ProbeError {}

fn startup(user: &str, database: &str) -> Vec<u8> {
    let mut parameters = Vec::new();
    for word in ["user", user, "database", database, "application_name", "poolhouse-demo"] {
        parameters.extend(word.as_bytes());
        parameters.push(0);
    }
    parameters.push(0);
    // Protocol version 3.0.
    let mut message = length(parameters.len() + 8).to_vec();
    message.extend([0, 3, 0, 0]);
    message.extend(parameters);
    message
}

fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).expect("our own messages are short").to_be_bytes()
}

/// One field of an ErrorResponse.
fn field(body: &[u8], kind: u8) -> String {
    body.split(|&byte| byte == 0)
        .find_map(|part| part.strip_prefix(&[kind]))
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .unwrap_or_default()
}

/// The columns of a DataRow.
fn columns(body: &[u8]) -> io::Result<Vec<String>> {
    let short = || io::Error::from(io::ErrorKind::InvalidData);
    let (count, mut rest) = body.split_first_chunk::<2>().ok_or_else(short)?;
    let mut columns = Vec::new();
    for _ in 0..i16::from_be_bytes(*count) {
        let (size, tail) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        // NULL has the size -1.
        let size = usize::try_from(i32::from_be_bytes(*size)).unwrap_or(0);
        let (text, tail) = tail.split_at_checked(size).ok_or_else(short)?;
        columns.push(String::from_utf8_lossy(text).into_owned());
        rest = tail;
    }
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_column_by_column() {
        let body = [0, 2, 0, 0, 0, 2, b'4', b'2', 255, 255, 255, 255];
        assert_eq!(columns(&body).unwrap(), ["42", ""]);
    }

    #[test]
    fn a_row_cut_short_is_an_error() {
        assert!(columns(&[0, 1, 0, 0, 0, 9, b'4']).is_err());
        assert!(columns(&[0]).is_err());
    }

    #[test]
    fn an_error_response_gives_code_and_message() {
        let body = b"SFATAL\0VFATAL\0C53300\0Msorry\0\0";
        assert_eq!(field(body, b'C'), "53300");
        assert_eq!(field(body, b'M'), "sorry");
    }
}
