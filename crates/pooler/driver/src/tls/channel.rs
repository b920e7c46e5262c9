//! One TLS connection over slices: what was received goes in, plaintext and what must be sent come out. An idle channel
//! holds no buffer. Knows no socket.
//!
//! It keeps the beginning of a record whose rest has not come, and nothing else. What it encrypts is bounded by what
//! was submitted. After an error it never calls rustls again, which would take that for a defect. It moves between
//! workers with its server, the beginning of a record included.

use rustls::{
    CommonState, Error, ProtocolVersion,
    client::{ClientConnectionData, UnbufferedClientConnection},
    server::{ServerConnectionData, UnbufferedServerConnection},
    unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus},
};
use seam::Secured;

use super::certificate;

/// The longest record of TLS, header included: more than that need not be kept to make progress.
pub(crate) const MAX_RECORD: usize = 5 + (1 << 14) + 2048;
/// Room made for what is to be sent, beyond the plaintext itself: per record of 16 KiB, and in all.
const OVERHEAD: usize = 64;
/// Type, version and length, before what is encrypted.
const RECORD_HEADER: usize = 5;
/// What encryption adds to the plaintext of a record: a type and a tag (RFC 8446, 5.2); in TLS 1.2 the nonce and the
/// tag of AES-GCM (RFC 5288, 3), which is more than other suites add.
const OVERHEAD_OF_TLS13: usize = 1 + 16;
const OVERHEAD_OF_TLS12: usize = 8 + 16;
/// Handshake messages that one input can lead to, and alerts that an error can: more is a defect.
const MAX_ANSWERS_TO_ONE_INPUT: usize = 64;

/// One TLS connection. Only a reactor of sockets has a use for it.
pub struct Channel {
    side: Side,
    /// The beginning of a record whose rest has not come. Without memory when there is none.
    incoming: Vec<u8>,
    /// Plaintext that came together with the end of the handshake.
    early: Vec<u8>,
    /// `incoming` has not been looked at yet.
    unread: bool,
    established: bool,
    /// The peer has said that nothing more follows.
    ended: bool,
    notified_close: bool,
    /// An error has ended it. The connection below must not be asked anything then: it takes that for a defect.
    failed: bool,
    /// Of our own certificate.
    end_point: Option<Box<[u8]>>,
}

enum Side {
    Accepting(UnbufferedServerConnection),
    Connecting(UnbufferedClientConnection),
}

/// What an input has brought.
pub(crate) struct Decrypted {
    /// Bytes of plaintext.
    pub(crate) length: usize,
    /// The handshake has ended.
    pub(crate) secured: Option<Secured>,
}

impl Channel {
    /// The version of TLS and the cipher suite, as OpenSSL calls them.
    pub(crate) fn describe(&self) -> Option<String> {
        let state: &CommonState = match &self.side {
            Side::Accepting(connection) => connection,
            Side::Connecting(connection) => connection,
        };
        let version = match state.protocol_version()? {
            ProtocolVersion::TLSv1_3 => "TLSv1.3",
            ProtocolVersion::TLSv1_2 => "TLSv1.2",
            _ => "TLS",
        };
        let suite = state.negotiated_cipher_suite()?.suite().as_str()?.replace("TLS13_", "TLS_");
        Some(format!("{version}/{suite}"))
    }

    pub(super) fn accepting(connection: UnbufferedServerConnection, end_point: Option<Box<[u8]>>) -> Self {
        Self::new(Side::Accepting(connection), end_point)
    }

    pub(super) fn connecting(connection: UnbufferedClientConnection) -> Self {
        Self::new(Side::Connecting(connection), None)
    }

    fn new(side: Side, end_point: Option<Box<[u8]>>) -> Self {
        Self {
            side,
            incoming: Vec::new(),
            early: Vec::new(),
            unread: false,
            established: false,
            ended: false,
            notified_close: false,
            failed: false,
            end_point,
        }
    }

    /// Begins the handshake. `received` came from the peer already; what is to be sent is appended to `out`.
    pub(crate) fn begin(&mut self, received: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        assert!(self.incoming.is_empty() && !self.established, "a handshake begins once");
        let decrypted = self.process(&mut [], &mut [], out)?;
        assert!(decrypted.length == 0 && decrypted.secured.is_none(), "nothing has been decrypted yet");
        self.incoming = received.to_vec();
        self.unread = !received.is_empty();
        Ok(())
    }

    /// Something to be received is here and not in the socket.
    pub(crate) fn has_input(&self) -> bool {
        self.unread || self.ended || !self.early.is_empty()
    }

    /// Bytes of plaintext that the peer has said and that were not taken: of the records that are here, and in the
    /// socket as far as it was looked at.
    pub(crate) fn unreceived(&self, in_socket: &[u8]) -> usize {
        let all = [&self.incoming[..], in_socket].concat();
        let overhead = match self.common().protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => OVERHEAD_OF_TLS13,
            _ => OVERHEAD_OF_TLS12,
        };
        let (mut at, mut plain) = (0, self.early.len());
        while let Some([_, _, _, high, low]) = all.get(at..at + RECORD_HEADER) {
            at += RECORD_HEADER;
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            plain += length.min(all.len() - at).saturating_sub(overhead);
            at += length;
        }
        plain
    }

    /// The peer has ended the connection in order, and all it said has been taken.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended && self.early.is_empty()
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        !self.established
    }

    /// What was received before may be worth looking at by itself.
    pub(crate) fn has_unread(&self) -> bool {
        self.unread
    }

    /// Takes plaintext that came before it was asked for. Returns how much.
    pub(crate) fn take_early(&mut self, plain: &mut [u8]) -> usize {
        let early = std::mem::take(&mut self.early);
        plain[..early.len()].copy_from_slice(&early);
        early.len()
    }

    /// Keeps plaintext until it is asked for.
    pub(crate) fn keep_early(&mut self, plain: &[u8]) {
        assert!(self.early.is_empty(), "a handshake ends once");
        self.early = plain.to_vec();
    }

    /// Puts what is left of earlier input in front of a buffer. Returns how much.
    pub(crate) fn copy_incoming(&self, cipher: &mut [u8]) -> usize {
        cipher[..self.incoming.len()].copy_from_slice(&self.incoming);
        self.incoming.len()
    }

    /// Takes input: what was laid before it, and what was received. Plaintext goes to the front of `plain`, which must
    /// be as long; what is to be sent is appended to `out`, after an error too.
    pub(crate) fn receive(
        &mut self,
        cipher: &mut [u8],
        plain: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Result<Decrypted, Error> {
        self.unread = false;
        self.incoming = Vec::new();
        self.process(cipher, plain, out)
    }

    fn process(&mut self, cipher: &mut [u8], plain: &mut [u8], out: &mut Vec<u8>) -> Result<Decrypted, Error> {
        if self.failed {
            return Err(Error::General("the connection has failed before".to_owned()));
        }
        let taken = match &mut self.side {
            Side::Accepting(connection) => take(connection, cipher, plain, out),
            Side::Connecting(connection) => take(connection, cipher, plain, out),
        };
        self.failed = taken.is_err();
        let taken = taken?;
        self.ended |= taken.ended;
        self.incoming = cipher[taken.consumed..].to_vec();
        let is_handshaking = self.common().is_handshaking();
        let secured = (!self.established && !is_handshaking).then(|| self.secured());
        self.established = !is_handshaking;
        Ok(Decrypted { length: taken.length, secured })
    }

    /// Encrypts. What is to be sent is appended to `out`: nothing before the handshake is done, or after the end.
    pub(crate) fn encrypt(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        if !self.established || self.notified_close || self.failed {
            return Ok(());
        }
        self.give(Some(plain), out)
    }

    /// Says that nothing more follows; appended to `out`.
    pub(crate) fn close_notify(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        if !self.established || self.failed || std::mem::replace(&mut self.notified_close, true) {
            return Ok(());
        }
        self.give(None, out)
    }

    fn give(&mut self, plain: Option<&[u8]>, out: &mut Vec<u8>) -> Result<(), Error> {
        let incoming = &mut self.incoming;
        let given = match &mut self.side {
            Side::Accepting(connection) => give(connection, incoming, plain, out),
            Side::Connecting(connection) => give(connection, incoming, plain, out),
        };
        self.failed = given.is_err();
        given
    }

    fn common(&self) -> &CommonState {
        match &self.side {
            Side::Accepting(connection) => connection,
            Side::Connecting(connection) => connection,
        }
    }

    fn secured(&mut self) -> Secured {
        let accepted = matches!(self.side, Side::Accepting(_));
        let own = self.end_point.take();
        let common = self.common();
        let peer = common.peer_certificates().and_then(|chain| chain.first());
        Secured {
            end_point: if accepted { own } else { peer.and_then(|der| certificate::end_point(der)) },
            peer_name: peer.filter(|_| accepted).and_then(|der| certificate::common_name(der)),
            alpn_agreed: common.alpn_protocol().is_some(),
        }
    }
}

/// What the two kinds of connection have in common.
trait Connection {
    type Data;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    /// Whether there is something to be encoded, which `process` gives before it looks at any input.
    fn has_output(&self) -> bool;
}

impl Connection for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn has_output(&self) -> bool {
        self.wants_write()
    }
}

impl Connection for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn has_output(&self) -> bool {
        self.wants_write()
    }
}

struct Taken {
    consumed: usize,
    length: usize,
    ended: bool,
}

/// Lets a connection take all the records there are.
fn take<C: Connection>(
    connection: &mut C,
    cipher: &mut [u8],
    plain: &mut [u8],
    out: &mut Vec<u8>,
) -> Result<Taken, Error> {
    let mut taken = Taken { consumed: 0, length: 0, ended: false };
    loop {
        let UnbufferedStatus { mut discard, state, .. } = connection.process(&mut cipher[taken.consumed..]);
        let mut more = true;
        match state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    let record = record?;
                    discard += record.discard;
                    let end = taken.length + record.payload.len();
                    plain[taken.length..end].copy_from_slice(record.payload);
                    taken.length = end;
                }
            }
            Ok(ConnectionState::EncodeTlsData(mut data)) => encode(out, |to| data.encode(to))?,
            // The caller sends `out` before anything else.
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                (taken.ended, more) = (true, false);
            }
            Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => more = false,
            Ok(_) => return Err(Error::General("data before the end of the handshake".to_owned())),
            Err(error) => {
                taken.consumed += discard;
                write_alert(connection, &mut cipher[taken.consumed..], out);
                return Err(error);
            }
        }
        taken.consumed += discard;
        if !more {
            return Ok(taken);
        }
    }
}

/// The alert that tells the peer of an error. The input that led to it is not looked at again.
fn write_alert<C: Connection>(connection: &mut C, cipher: &mut [u8], out: &mut Vec<u8>) {
    for _ in 0..MAX_ANSWERS_TO_ONE_INPUT {
        if !connection.has_output() {
            return;
        }
        let Ok(ConnectionState::EncodeTlsData(mut data)) = connection.process(cipher).state else { return };
        if encode(out, |to| data.encode(to)).is_err() {
            return;
        }
    }
}

/// Encrypts plaintext, or the end of it. `incoming` holds no whole record, and so nothing to be read.
fn give<C: Connection>(
    connection: &mut C,
    incoming: &mut Vec<u8>,
    plain: Option<&[u8]>,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    for _ in 0..MAX_ANSWERS_TO_ONE_INPUT {
        let UnbufferedStatus { discard, state, .. } = connection.process(incoming);
        let done = match state? {
            ConnectionState::WriteTraffic(mut traffic) => {
                match plain {
                    Some(plain) => encrypt(out, plain.len(), |to| traffic.encrypt(plain, to))?,
                    None => encrypt(out, 0, |to| traffic.queue_close_notify(to))?,
                }
                true
            }
            ConnectionState::EncodeTlsData(mut data) => {
                encode(out, |to| data.encode(to))?;
                false
            }
            ConnectionState::TransmitTlsData(data) => {
                data.done();
                false
            }
            // The peer will not send any more; it may still listen, but no database and no driver of one does.
            ConnectionState::PeerClosed | ConnectionState::Closed => true,
            _ => return Err(Error::General("a record was not taken before sending".to_owned())),
        };
        incoming.drain(..discard);
        if done {
            return Ok(());
        }
    }
    Err(Error::General("no end of handshake messages".to_owned()))
}

fn encode(out: &mut Vec<u8>, write: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>) -> Result<(), Error> {
    append(out, OVERHEAD, write, |error| match error {
        EncodeError::InsufficientSize(size) => Some(size.required_size),
        EncodeError::AlreadyEncoded => None,
    })
}

fn encrypt(
    out: &mut Vec<u8>,
    plain: usize,
    write: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), Error> {
    let room = plain + (plain / (1 << 14) + 1) * OVERHEAD;
    append(out, room, write, |error| match error {
        EncryptError::InsufficientSize(size) => Some(size.required_size),
        EncryptError::EncryptExhausted => None,
    })
}

/// Appends what `write` writes into a slice with `room`, or with the room it then asks for.
fn append<E>(
    out: &mut Vec<u8>,
    room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, E>,
    required: impl Fn(E) -> Option<usize>,
) -> Result<(), Error> {
    let start = out.len();
    out.resize(start + room, 0);
    let written = match write(&mut out[start..]) {
        Ok(written) => Ok(written),
        Err(error) => match required(error) {
            Some(room) => {
                out.resize(start + room, 0);
                write(&mut out[start..]).map_err(|_| ())
            }
            None => Err(()),
        },
    };
    out.truncate(start + written.unwrap_or(0));
    written.map(drop).map_err(|()| Error::EncryptError)
}
