//! The target of a request: its path and its query (RFC 9112, section 3.2; RFC 3986, sections 3.3 and 3.4).

use percent_encoding::percent_decode;

/// What a request is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The segments of the path, decoded. `/` alone has none.
    pub path: Vec<Vec<u8>>,
    /// The parameters of the query in their order, decoded, without the token; `None` is the value of one without `=`.
    pub query: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub(crate) token: Option<Vec<u8>>,
}

impl Target {
    /// Takes apart a path and a query, as they stand in a request's first line. The parameter with the name
    /// `query_token` holds a token.
    pub fn read(target: &str, query_token: &str) -> Self {
        // In its absolute form it says where it is, too.
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

    /// The path and the query as text, in which `=` without a value cannot be told from none.
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
