//! The header of the PROXY protocol, version 2: a proxy tells in it whom it speaks for, before anything else.

use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

use ppp::v2::{Addresses, Command, Header, ParseError};

/// Longest header; what is longer than its addresses are extensions, which are not looked at.
const MAX_HEADER: usize = 4096;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ProxyHeader {
    /// More bytes are needed.
    Incomplete,
    /// The header takes this many bytes, and names this client. `None`: the proxy speaks for itself, as in a health
    /// check, or does not know whom it speaks for.
    Complete { length: usize, client: Option<SocketAddr> },
}

/// Reads the header at the beginning of what a proxy has sent.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read(bytes: &[u8]) -> Result<ProxyHeader, String> {
    match Header::try_from(bytes) {
        Ok(header) => {
            let length = header.header.len();
            if length > MAX_HEADER {
                return Err(format!("it is longer than {MAX_HEADER} bytes"));
            }
            let client = match (header.command, header.addresses) {
                (Command::Local, _) | (_, Addresses::Unspecified | Addresses::Unix(_)) => None,
                (Command::Proxy, Addresses::IPv4(of)) => {
                    Some(SocketAddrV4::new(of.source_address, of.source_port).into())
                }
                (Command::Proxy, Addresses::IPv6(of)) => {
                    Some(SocketAddrV6::new(of.source_address, of.source_port, 0, 0).into())
                }
            };
            Ok(ProxyHeader::Complete { length, client })
        }
        Err(ParseError::Incomplete(_)) => Ok(ProxyHeader::Incomplete),
        Err(ParseError::Partial(_, length)) if length <= MAX_HEADER => Ok(ProxyHeader::Incomplete),
        Err(ParseError::Prefix) if bytes.starts_with(b"PROXY ") => {
            Err("it is of version 1, and must be of version 2 (send-proxy-v2)".to_owned())
        }
        Err(ParseError::Prefix) => Err("there is none".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

    fn header(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        [PREFIX, &[command, family], &(body.len() as u16).to_be_bytes(), body].concat()
    }

    #[test]
    fn the_client_is_the_source_and_what_follows_is_its_own() {
        let body = [10, 1, 2, 3, 127, 0, 0, 1, 0x30, 0x39, 0x19, 0x20, 4, 0, 1, 9];
        let bytes = [header(0x21, 0x11, &body), b"hello".to_vec()].concat();
        let client = Some("10.1.2.3:12345".parse().unwrap());
        assert_eq!(read(&bytes), Ok(ProxyHeader::Complete { length: 16 + 16, client }));
        for end in 0..32 {
            assert_eq!(read(&bytes[..end]), Ok(ProxyHeader::Incomplete), "{end}");
        }
        let mut body = [0; 36];
        (body[15], body[33]) = (1, 7);
        let client = Some("[::1]:7".parse().unwrap());
        assert_eq!(read(&header(0x21, 0x21, &body)), Ok(ProxyHeader::Complete { length: 52, client }));
    }

    #[test]
    fn a_proxy_may_speak_for_itself() {
        for bytes in
            [header(0x20, 0, &[]), header(0x20, 0x11, &[1; 12]), header(0x21, 0, &[]), header(0x21, 0x31, &[0; 216])]
        {
            assert_eq!(read(&bytes), Ok(ProxyHeader::Complete { length: bytes.len(), client: None }));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for bytes in [
            b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n".to_vec(),
            b"\0\0\0\x08\x04\xd2\x16\x2f".to_vec(),
            header(0x11, 0x11, &[0; 12]),
            header(0x22, 0x11, &[0; 12]),
            header(0x21, 0x51, &[0; 12]),
            header(0x21, 0x11, &[0; 11]),
            header(0x21, 0x11, &[0; 5000]),
            header(0x21, 0x11, &[0; 5000])[..16].to_vec(),
        ] {
            assert!(read(&bytes).is_err(), "{bytes:?}");
        }
    }
}
