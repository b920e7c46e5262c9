//! The grammar of SCRAM messages: attributes `x=value` separated by commas, nonces, the GS2 header.

use crate::verifier::{MAX_ITERATIONS, iterations_from, salt_from};

/// Longest nonce accepted from a peer, in bytes.
pub(crate) const MAX_NONCE_BYTES: usize = 512;

/// What a peer did wrong. The text may be shown and logged; it repeats nothing that the peer sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The message breaks the grammar; what was expected.
    Malformed(&'static str),
    /// The peer wants what is not offered.
    Unsupported(&'static str),
    /// The peer does not know the password or the verifier.
    WrongProof,
    /// The peer is bound to another TLS connection: there is a man in the middle.
    WrongChannel,
    OutOfTurn,
    /// The server's number of iterations is not from 1 to [`MAX_ITERATIONS`].
    Iterations,
    /// The server ended the exchange with an error (`e=`).
    Rejected,
    /// No keys are known that fit the server's salt and iterations.
    NoKeys,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(what) => write!(f, "malformed SCRAM message: expected {what}"),
            Self::Unsupported(what) => write!(f, "SCRAM: {what} is not supported"),
            Self::WrongProof => f.write_str("SCRAM: the proof is wrong"),
            Self::WrongChannel => {
                f.write_str("SCRAM: the channel binding does not match: somebody is between the two sides")
            }
            Self::OutOfTurn => f.write_str("SCRAM: message out of turn"),
            Self::Iterations => {
                write!(
                    f,
                    "SCRAM: the server's number of iterations is not from 1 to {MAX_ITERATIONS}: set the password \
                     anew there"
                )
            }
            Self::Rejected => f.write_str("SCRAM: the server rejected the exchange"),
            Self::NoKeys => f.write_str("SCRAM: no keys are known for the server's salt and iterations"),
        }
    }
}

impl std::error::Error for Error {}

/// Walks over the attributes of a message.
pub(crate) struct Attributes<'a> {
    rest: Option<&'a str>,
}

impl<'a> Attributes<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { rest: Some(text) }
    }

    /// The value of the next attribute, which must have this name.
    pub(crate) fn expect(&mut self, name: char, what: &'static str) -> Result<&'a str, Error> {
        let (attribute, rest) = match self.rest.ok_or(Error::Malformed(what))?.split_once(',') {
            Some((attribute, rest)) => (attribute, Some(rest)),
            None => (self.rest.unwrap_or_default(), None),
        };
        let value = attribute.strip_prefix(name).and_then(|a| a.strip_prefix('=')).ok_or(Error::Malformed(what))?;
        self.rest = rest;
        Ok(value)
    }

    /// Optional extensions may follow; they are ignored, as the RFC demands, if they look like attributes.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let Some(rest) = self.rest else { return Ok(()) };
        let well_formed = rest.split(',').all(|attribute| {
            let mut bytes = attribute.bytes();
            bytes.next().is_some_and(|b| b.is_ascii_alphabetic()) && bytes.next() == Some(b'=')
        });
        if well_formed { Ok(()) } else { Err(Error::Malformed("an extension attribute")) }
    }
}

/// The first message of a server.
pub(crate) struct Challenge<'a> {
    pub(crate) text: &'a str,
    pub(crate) nonce: &'a str,
    pub(crate) salt: Box<[u8]>,
    pub(crate) iterations: u32,
}

impl<'a> Challenge<'a> {
    /// Reads the first message of a server, whose nonce must extend the client's.
    pub(crate) fn read(server_first: &'a [u8], client_nonce: &str) -> Result<Self, Error> {
        let text = text(server_first)?;
        if text.starts_with("m=") {
            return Err(Error::Unsupported("a mandatory extension"));
        }
        let mut attributes = Attributes::new(text);
        let nonce = nonce(attributes.expect('r', "a nonce")?)?;
        if !nonce.starts_with(client_nonce) || nonce.len() == client_nonce.len() {
            return Err(Error::Malformed("a nonce that extends ours"));
        }
        let salt = salt_from(attributes.expect('s', "a salt")?).ok_or(Error::Malformed("a salt in base64"))?;
        let iterations = attributes.expect('i', "a number of iterations")?;
        let iterations = iterations_from(iterations).ok_or(Error::Iterations)?;
        attributes.finish()?;
        Ok(Self { text, nonce, salt, iterations })
    }
}

/// A nonce: printable ASCII without a comma, not empty, of bounded length.
pub(crate) fn nonce(text: &str) -> Result<&str, Error> {
    let printable = text.bytes().all(|b| (0x21..=0x7e).contains(&b) && b != b',');
    if text.is_empty() || text.len() > MAX_NONCE_BYTES || !printable {
        return Err(Error::Malformed("a nonce of 1 to 512 printable characters"));
    }
    Ok(text)
}

/// What the client said about channel binding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BindingFlag<'a> {
    /// `n`: the client cannot bind.
    Unsupported,
    /// `y`: the client could bind, but believes that the server cannot.
    Unused,
    /// `p=`: the client binds with the method of this name.
    Bound(&'a str),
}

/// Splits the first message of a client into its binding flag, the whole GS2 header (which returns, encoded, in the
/// last message) and the bare message.
pub(crate) fn gs2_header(text: &str) -> Result<(BindingFlag<'_>, &str, &str), Error> {
    let (flag, rest) = text.split_once(',').ok_or(Error::Malformed("a channel-binding flag"))?;
    let flag = match flag {
        "n" => BindingFlag::Unsupported,
        "y" => BindingFlag::Unused,
        _ => BindingFlag::Bound(flag.strip_prefix("p=").ok_or(Error::Malformed("a channel-binding flag"))?),
    };
    let (authorization, bare) = rest.split_once(',').ok_or(Error::Malformed("an authorization identity"))?;
    if !authorization.is_empty() {
        return Err(Error::Unsupported("an authorization identity"));
    }
    let header = &text[..text.len() - bare.len()];
    Ok((flag, header, bare))
}

/// Reads the last message of a server: its signature, in base64.
pub(crate) fn signature(server_final: &[u8]) -> Result<&str, Error> {
    let text = text(server_final)?;
    if text.starts_with("e=") {
        return Err(Error::Rejected);
    }
    let mut attributes = Attributes::new(text);
    let shown = attributes.expect('v', "a signature")?;
    attributes.finish()?;
    Ok(shown)
}

pub(crate) fn text(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|_| Error::Malformed("UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gs2_header_is_split_off() {
        assert_eq!(gs2_header("n,,n=,r=x"), Ok((BindingFlag::Unsupported, "n,,", "n=,r=x")));
        assert_eq!(gs2_header("y,,n=,r=x"), Ok((BindingFlag::Unused, "y,,", "n=,r=x")));
        let bound = BindingFlag::Bound("tls-server-end-point");
        assert_eq!(gs2_header("p=tls-server-end-point,,n=,r=x"), Ok((bound, "p=tls-server-end-point,,", "n=,r=x")));
        assert!(gs2_header("q,,n=,r=x").is_err());
        assert!(gs2_header("n,a=root,n=,r=x").is_err());
        assert!(gs2_header("n").is_err());
        assert!(gs2_header("").is_err());
    }

    #[test]
    fn attributes_come_in_their_order_and_extensions_are_ignored() {
        let mut attributes = Attributes::new("r=a=b,s=,x=1,y=2");
        assert_eq!(attributes.expect('r', "r"), Ok("a=b"));
        assert_eq!(attributes.expect('i', "i"), Err(Error::Malformed("i")));
        assert_eq!(attributes.expect('s', "s"), Ok(""));
        assert_eq!(attributes.finish(), Ok(()));
        assert!(Attributes::new("x=1,,").finish().is_err());
    }
}
