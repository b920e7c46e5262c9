//! How a directory server is asked whether a password is right: PostgreSQL's options of the HBA method `ldap`, in a
//! line of an HBA file or in `ldap_options`. Connects to nothing.

use settings::Secret;

/// Where the directory is, and how a user is found in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LdapOptions {
    /// Host names or addresses, tried in this order; at least one.
    pub servers: Vec<String>,
    pub port: u16,
    pub encryption: LdapEncryption,
    pub bind: LdapBind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LdapEncryption {
    Off,
    /// TLS that begins after the connection is open.
    StartTls,
    /// `ldaps://`
    Tls,
}

/// How a user's distinguished name is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LdapBind {
    /// The user's name between two texts.
    Simple { prefix: String, suffix: String },
    /// An entry that is searched for.
    Search {
        base_dn: String,
        /// Who searches; empty: a guest.
        bind_dn: String,
        bind_password: Option<Secret>,
        /// An LDAP filter with `$username` in it.
        filter: String,
        scope: LdapScope,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LdapScope {
    Base,
    One,
    Subtree,
}

/// The options as they were written.
#[derive(Default)]
struct Written {
    server: Option<String>,
    port: Option<u16>,
    ldaps: bool,
    start_tls: bool,
    prefix: Option<String>,
    suffix: Option<String>,
    base_dn: Option<String>,
    bind_dn: Option<String>,
    bind_password: Option<Secret>,
    attribute: Option<String>,
    filter: Option<String>,
    scope: Option<LdapScope>,
}

impl LdapOptions {
    /// Reads `name=value` pairs, separated by spaces; a value with spaces stands in double quotes.
    ///
    /// # Errors
    /// What is wrong, in a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let pairs = split(text)?;
        Self::from_pairs(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())))
    }

    /// # Errors
    /// What is wrong, in a sentence.
    pub fn from_pairs<'p>(pairs: impl Iterator<Item = (&'p str, &'p str)>) -> Result<Self, String> {
        let mut written = Written::default();
        for (name, value) in pairs {
            written.take(name, value)?;
        }
        written.resolve()
    }
}

impl Written {
    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        let text = || Some(value.to_owned());
        match name {
            "ldapurl" => self.take_url(value)?,
            "ldapserver" => self.server = text(),
            "ldapport" => self.port = Some(port(value)?),
            "ldapscheme" => self.ldaps = scheme(value)?,
            "ldaptls" => {
                self.start_tls = match value {
                    "1" => true,
                    "0" => false,
                    _ => return Err("ldaptls is 0 or 1".to_owned()),
                }
            }
            "ldapprefix" => self.prefix = text(),
            "ldapsuffix" => self.suffix = text(),
            "ldapbasedn" => self.base_dn = text(),
            "ldapbinddn" => self.bind_dn = text(),
            "ldapbindpasswd" => self.bind_password = Some(Secret::new(value)),
            "ldapsearchattribute" => self.attribute = text(),
            "ldapsearchfilter" => self.filter = text(),
            _ => return Err(format!("ldap has no option `{name}`")),
        }
        Ok(())
    }

    /// `ldap[s]://host[:port]/basedn[?[attribute][?[scope][?filter]]]`
    fn take_url(&mut self, url: &str) -> Result<(), String> {
        let (word, rest) =
            url.split_once("://").ok_or("ldapurl has the form ldap://host/basedn?attribute?scope?filter")?;
        self.ldaps = scheme(word)?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, own_port) = match host.rsplit_once(':').filter(|(host, _)| !host.ends_with(':')) {
            Some((host, own_port)) if !own_port.contains(']') => (host, Some(port(own_port)?)),
            _ => (host, None),
        };
        if !host.is_empty() {
            self.server = Some(host.trim_matches(['[', ']']).to_owned());
        }
        self.port = own_port.or(self.port);
        let decode = |part: &str| percent_decoded(part);
        let mut parts = path.split('?');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        self.base_dn = next().map(decode).transpose()?.or(self.base_dn.take());
        self.attribute = next().map(decode).transpose()?.or(self.attribute.take());
        self.scope = match next() {
            None => self.scope,
            Some("base") => Some(LdapScope::Base),
            Some("one") => Some(LdapScope::One),
            Some("sub") => Some(LdapScope::Subtree),
            Some(other) => return Err(format!("the scope of ldapurl is base, one or sub, not `{other}`")),
        };
        self.filter = next().map(decode).transpose()?.or(self.filter.take());
        Ok(())
    }

    fn resolve(self) -> Result<LdapOptions, String> {
        let server = self.server.ok_or("ldap needs `ldapserver` or `ldapurl`")?;
        let servers: Vec<String> = server.split_whitespace().map(str::to_owned).collect();
        if servers.is_empty() {
            return Err("`ldapserver` names no server".to_owned());
        }
        if self.ldaps && self.start_tls {
            return Err("ldaptls=1 begins TLS on a connection without it, and ldaps has it from the start".to_owned());
        }
        let encryption = match (self.ldaps, self.start_tls) {
            (true, _) => LdapEncryption::Tls,
            (false, true) => LdapEncryption::StartTls,
            (false, false) => LdapEncryption::Off,
        };
        let simple = self.prefix.is_some() || self.suffix.is_some();
        let bind = match self.base_dn {
            Some(_) if simple => {
                return Err("`ldapprefix` and `ldapsuffix` do not go together with a search (`ldapbasedn`)".to_owned());
            }
            None if !simple => return Err("ldap needs `ldapprefix`, `ldapsuffix` or `ldapbasedn`".to_owned()),
            None => {
                let search = self.bind_dn.is_some() || self.bind_password.is_some() || self.attribute.is_some();
                if search || self.filter.is_some() {
                    return Err("options of a search do not go together with `ldapprefix` and `ldapsuffix`".to_owned());
                }
                let (prefix, suffix) = (self.prefix.unwrap_or_default(), self.suffix.unwrap_or_default());
                LdapBind::Simple { prefix, suffix }
            }
            Some(base_dn) => {
                let filter = match (self.filter, self.attribute) {
                    (Some(_), Some(_)) => {
                        return Err("`ldapsearchattribute` and `ldapsearchfilter` do not go together".to_owned());
                    }
                    (Some(filter), None) => filter,
                    (None, attribute) => format!("({}=$username)", attribute.as_deref().unwrap_or("uid")),
                };
                LdapBind::Search {
                    base_dn,
                    bind_dn: self.bind_dn.unwrap_or_default(),
                    bind_password: self.bind_password,
                    filter,
                    scope: self.scope.unwrap_or(LdapScope::Subtree),
                }
            }
        };
        let default_port = if self.ldaps { 636 } else { 389 };
        Ok(LdapOptions { servers, port: self.port.unwrap_or(default_port), encryption, bind })
    }
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().ok().filter(|port| *port > 0).ok_or_else(|| "the port of ldap is a number from 1 to 65535".to_owned())
}

/// Whether a scheme is that of TLS.
fn scheme(word: &str) -> Result<bool, String> {
    match word {
        "ldap" => Ok(false),
        "ldaps" => Ok(true),
        _ => Err(format!("the scheme of ldap is ldap or ldaps, not `{word}`")),
    }
}

fn percent_decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("a % in ldapurl is not followed by two hexadecimal digits")?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| "ldapurl is not UTF-8".to_owned())
}

/// The pairs of a text.
fn split(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, behind) = rest.split_once('=').ok_or("the options of ldap have the form name=value")?;
        let mut value = String::new();
        let (mut in_quotes, mut end) = (false, behind.len());
        for (at, next) in behind.char_indices() {
            match next {
                '"' => in_quotes = !in_quotes,
                _ if next.is_whitespace() && !in_quotes => {
                    end = at;
                    break;
                }
                _ => value.push(next),
            }
        }
        if in_quotes {
            return Err("a quote in the options of ldap is not closed".to_owned());
        }
        pairs.push((name.trim().to_owned(), value));
        rest = behind[end..].trim_start();
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_all_that_a_search_needs() {
        let options = LdapOptions::parse("ldapurl=\"ldap://127.0.0.1:12345/dc=example,dc=net?uid?sub\"").unwrap();
        assert_eq!((&options.servers[..], options.port), (&["127.0.0.1".to_owned()][..], 12345));
        let LdapBind::Search { base_dn, filter, scope, .. } = options.bind else { panic!("it searches") };
        assert_eq!((&*base_dn, &*filter, scope), ("dc=example,dc=net", "(uid=$username)", LdapScope::Subtree));
        let options = LdapOptions::parse("ldapurl=ldaps://[::1]/o=a%20b??one?(cn=$username)").unwrap();
        assert_eq!((&*options.servers[0], options.port, options.encryption), ("::1", 636, LdapEncryption::Tls));
        let LdapBind::Search { base_dn, filter, scope, .. } = options.bind else { panic!("it searches") };
        assert_eq!((&*base_dn, &*filter, scope), ("o=a b", "(cn=$username)", LdapScope::One));
    }

    #[test]
    fn a_simple_bind_puts_the_name_between_two_texts() {
        let options =
            LdapOptions::parse("ldapserver=\"a b\" ldaptls=1 ldapprefix=cn= ldapsuffix=\", dc=example\"").unwrap();
        assert_eq!(options.servers, ["a", "b"]);
        assert_eq!((options.port, options.encryption), (389, LdapEncryption::StartTls));
        assert_eq!(options.bind, LdapBind::Simple { prefix: "cn=".to_owned(), suffix: ", dc=example".to_owned() });
    }

    #[test]
    fn options_that_do_not_go_together_are_refused() {
        for (text, word) in [
            ("ldapprefix=cn=", "ldapserver"),
            ("ldapserver=a", "ldapbasedn"),
            ("ldapserver=a ldapprefix=x ldapbasedn=y", "do not go together"),
            ("ldapserver=a ldapprefix=x ldapbinddn=y", "do not go together"),
            ("ldapserver=a ldapbasedn=x ldapsearchattribute=a ldapsearchfilter=b", "do not go together"),
            ("ldapserver=a ldapscheme=ldaps ldaptls=1 ldapprefix=x", "ldaps"),
            ("ldapserver=a ldapport=0 ldapprefix=x", "65535"),
            ("ldapserver=a ldapfoo=b", "ldapfoo"),
            ("ldapurl=http://a/b", "http"),
            ("ldapserver=\"a", "quote"),
            ("ldapserver", "name=value"),
        ] {
            let message = LdapOptions::parse(text).unwrap_err();
            assert!(message.contains(word), "{text}: {message}");
        }
    }
}
