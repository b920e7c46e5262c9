//! Percent-encoding of URLs. The `percent-encoding` crate passes what is malformed on; here it is an error.

/// Undoes percent-encoding.
///
/// # Errors
/// A `%` without two digits behind it, a zero byte, or bytes that are not UTF-8.
pub fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| (b as char).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err("a `%` without two hexadecimal digits: write a literal one as %25".to_owned());
        };
        bytes.push((high * 16 + low) as u8);
    }
    if bytes.contains(&0) {
        return Err("a zero byte (%00) cannot be part of it".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "percent-encoded bytes that are not UTF-8".to_owned())
}
