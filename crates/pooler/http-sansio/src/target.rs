//! Request targets: path and query (RFC 9112, section 3.2; RFC 3986, sections 3.3 and 3.4).

use percent_encoding::percent_decode;

/// A decoded request target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The decoded segments of the path; none for `/`.
    pub path: Vec<Vec<u8>>,
    /// The decoded query parameters in order, without the token. The value of a parameter without `=` is `None`.
    pub query: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub(crate) token: Option<Vec<u8>>,
}

impl Target {
    /// Decodes a request target. The query parameter with the name `query_token` holds a token.
    pub fn read(target: &str, query_token: &str) -> Self {
        // The absolute form begins with scheme and authority.
        let target = match target.split_once("://") {
            Some((_, rest)) if !target.starts_with('/') => rest.find(['/', '?']).map_or("/", |at| &rest[at..]),
            _ => target,
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let decode = |text: &str| percent_decode(text.as_bytes()).collect::<Vec<u8>>();
        let path = path.strip_prefix('/').unwrap_or(path);
        let path = if path.is_empty() { Vec::new() } else { path.split('/').map(decode).collect() };
        let (mut token, mut given) = (None, Vec::new());
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (part, None),
            };
            if name == query_token {
                token = value.map(decode);
                continue;
            }
            given.push((decode(name), value.map(decode)));
        }
        Self { path, query: given, token }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Path and query as text. A value that is empty looks like one that is missing.
    fn shown(target: &str) -> String {
        let Target { path, query, .. } = Target::read(target, "token");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let path: Vec<_> = path.iter().map(|segment| text(segment)).collect();
        let query: Vec<_> = query
            .iter()
            .map(|(name, value)| [text(name), text(value.as_deref().unwrap_or_default())].join("="))
            .collect();
        format!("{} {}", path.join(" "), query.join(" ")).trim().to_owned()
    }

    #[test]
    fn a_target_is_a_path_and_a_query() {
        for (target, expected) in [
            ("/", ""),
            ("", ""),
            ("/a/b%2Fc", "a b/c"),
            ("/a//b", "a  b"),
            ("/a?x=1&y", "a x=1 y="),
            ("/a?x=%20&&token=secret", "a x= "),
            ("http://host/a/b?x=1", "a b x=1"),
            ("http://host?x=1", "x=1"),
            ("http://host", ""),
            ("/a://b", "a:  b"),
        ] {
            assert_eq!(shown(target), expected.trim_end(), "{target}");
        }
    }

    #[test]
    fn a_token_in_the_query_is_no_parameter() {
        let target = Target::read("/a?token=s%20t&x", "token");
        assert_eq!((target.token.as_deref(), target.query.len()), (Some(&b"s t"[..]), 1));
        assert_eq!(Target::read("/a?token", "token").token, None);
    }
}
