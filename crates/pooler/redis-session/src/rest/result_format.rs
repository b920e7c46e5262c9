//! The format of the results, as header fields ask for it.

use http_sansio::Denied;

/// The header field that asks for base64.
pub(super) const ENCODING: &str = "upstash-encoding";

/// The header field that asks for RESP2.
pub(super) const FORMAT: &str = "upstash-response-format";

/// How results are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ResultFormat {
    #[default]
    Json,
    /// JSON, with strings in base64.
    Base64,
    /// Redis's replies, in RESP2.
    Resp2,
}

impl ResultFormat {
    /// The format that header fields ask for.
    /// Fails if they contradict each other.
    pub(crate) fn read(fields: &[(&str, Vec<u8>)]) -> Result<Self, Denied> {
        let (mut base64, mut resp2) = (false, false);
        for (name, value) in fields {
            match *name {
                ENCODING => base64 = value.eq_ignore_ascii_case(b"base64"),
                FORMAT => resp2 = value.eq_ignore_ascii_case(b"resp2"),
                _ => {}
            }
        }
        match (base64, resp2) {
            (true, true) => {
                Err(Denied::new(400, "base64 is for JSON: leave Upstash-Encoding or Upstash-Response-Format out"))
            }
            (true, false) => Ok(Self::Base64),
            (false, true) => Ok(Self::Resp2),
            (false, false) => Ok(Self::Json),
        }
    }
}
