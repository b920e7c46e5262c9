//! A line of an HBA file as a rule. What PgBouncer does not support, or Poolhouse does not, is an error that says so:
//! a line that is skipped could let clients in that another line was to keep out.

use std::{collections::HashSet, net::IpAddr, sync::Arc};

use driver::Network;

use super::{
    Connection, DatabaseNames, Hba, IdentMaps, Method, Rule, UserNames,
    lines::{self, Field, Token, Wrong},
};
use crate::config::ldap::LdapOptions;

/// Most rules of a file.
const MAX_RULES: usize = 10_000;

/// Most names of a file that a line includes.
const MAX_INCLUDED_NAMES: usize = 100_000;

/// Reads the text of a file that a line names behind `@`; the error is for people.
pub type ReadIncluded<'r> = &'r mut dyn FnMut(&str) -> Result<String, String>;

/// Reads an HBA file. `maps` are those of the ident file; `None` if there is none.
///
/// # Errors
/// All errors of all lines.
pub fn parse(text: &str, maps: Option<&IdentMaps>, included: ReadIncluded<'_>) -> Result<Hba, Vec<Wrong>> {
    let lines = lines::read(text).map_err(|wrong| vec![wrong])?;
    if let Some(line) = lines.get(MAX_RULES) {
        return Err(vec![line[0][0].wrong(format!("the file has more than {MAX_RULES} rules"))]);
    }
    let mut parser = Parser { maps, included };
    let (mut rules, mut wrongs) = (Vec::new(), Vec::new());
    for line in lines {
        match parser.rule(&line) {
            Ok(rule) => rules.push(rule),
            Err(wrong) => wrongs.push(wrong),
        }
    }
    if wrongs.is_empty() { Ok(Hba::new(rules)) } else { Err(wrongs) }
}

struct Parser<'p> {
    maps: Option<&'p IdentMaps>,
    included: ReadIncluded<'p>,
}

/// The fields of a line, taken one by one.
struct Fields<'l> {
    rest: &'l [Field],
    last: &'l Token,
}

impl<'l> Fields<'l> {
    /// The next field, which is `what`.
    fn list(&mut self, what: &str) -> Result<&'l [Token], Wrong> {
        let (field, rest) =
            self.rest.split_first().ok_or_else(|| self.last.wrong(format!("behind it {what} is missing")))?;
        (self.rest, self.last) = (rest, field.last().expect("a field has an item"));
        Ok(field)
    }

    /// The next field, which has one item.
    fn one(&mut self, what: &str) -> Result<&'l Token, Wrong> {
        match self.list(what)? {
            [token] => Ok(token),
            [_, second, ..] => Err(second.wrong(format!("{what} cannot be a list"))),
            [] => unreachable!("a field has an item"),
        }
    }
}

impl Parser<'_> {
    fn rule(&mut self, line: &[Field]) -> Result<Rule, Wrong> {
        let mut fields = Fields { rest: line, last: &line[0][0] };
        let connection = connection(fields.one("the kind of connection")?)?;
        let databases = self.databases(fields.list("the database")?)?;
        let users = self.users(fields.list("the user")?)?;
        let network = match connection {
            Connection::Unix => None,
            _ => network(&mut fields)?,
        };
        let method = fields.one("the method")?;
        let options = fields.rest.iter().map(option).collect::<Result<Vec<_>, _>>()?;
        let method = self.method(method, connection, &options)?;
        Ok(Rule { connection, databases, users, network, method })
    }

    fn databases(&mut self, field: &[Token]) -> Result<DatabaseNames, Wrong> {
        let mut names = DatabaseNames::default();
        for token in field {
            match &*token.text {
                _ if token.quoted => drop(names.listed.insert(token.text.clone())),
                "all" => names.all = true,
                "sameuser" => names.same_user = true,
                "replication" => names.replication = true,
                "samerole" | "samegroup" => {
                    let message =
                        format!("`{}` is not supported: Poolhouse does not know the groups of users", token.text);
                    return Err(token.wrong(message));
                }
                _ => self.listed(token, "database", &mut names.listed)?,
            }
        }
        Ok(names)
    }

    fn users(&mut self, field: &[Token]) -> Result<UserNames, Wrong> {
        let mut names = UserNames::default();
        for token in field {
            match &*token.text {
                _ if token.quoted => drop(names.listed.insert(token.text.clone())),
                "all" => names.all = true,
                text if text.starts_with('+') => {
                    let message = "groups are not supported: name the users, or a file of them behind `@`";
                    return Err(token.wrong(message));
                }
                _ => self.listed(token, "user", &mut names.listed)?,
            }
        }
        Ok(names)
    }

    /// A name, or the names in a file.
    fn listed(&mut self, token: &Token, what: &str, names: &mut HashSet<String>) -> Result<(), Wrong> {
        if token.text.starts_with('/') {
            return Err(
                token.wrong("regular expressions are not supported: list the names, or a file of them behind `@`")
            );
        }
        let Some(path) = token.text.strip_prefix('@').filter(|path| !path.is_empty()) else {
            names.insert(token.text.clone());
            return Ok(());
        };
        let text = (self.included)(path).map_err(|why| token.wrong(format!("cannot read {path}: {why}")))?;
        let lines = lines::read(&text).map_err(|wrong| token.wrong(format!("{path}: {}", wrong.message)))?;
        for item in lines.into_iter().flatten().flatten() {
            if !item.quoted && item.text.starts_with(['@', '+', '/']) {
                return Err(token.wrong(format!("{path} has `{}`, and may list names only", item.text)));
            }
            names.insert(item.text);
            if names.len() > MAX_INCLUDED_NAMES {
                return Err(token.wrong(format!("{path} lists more than {MAX_INCLUDED_NAMES} names of a {what}")));
            }
        }
        Ok(())
    }

    fn method(&self, method: &Token, connection: Connection, options: &[NamedOption]) -> Result<Method, Wrong> {
        let takes = |known: &str| -> Result<(), Wrong> {
            match options.iter().find(|option| option.name != known) {
                Some(option) => {
                    Err(option.token.wrong(format!("the method `{}` has no option `{}`", method.text, option.name)))
                }
                None => Ok(()),
            }
        };
        let found = match &*method.text {
            "trust" => Method::Trust,
            "reject" => Method::Reject,
            "md5" => Method::Md5,
            "scram-sha-256" => Method::Scram,
            "password" | "plain" => Method::Cleartext,
            "cert" => {
                takes("map")?;
                if connection == Connection::Unix {
                    return Err(method.wrong("there are no certificates on a Unix socket: use `peer` there"));
                }
                return Ok(Method::Certificate(self.map(options)?));
            }
            "peer" => {
                takes("map")?;
                if connection != Connection::Unix {
                    return Err(method.wrong("`peer` is for lines of the kind `local` only"));
                }
                return Ok(Method::Peer(self.map(options)?));
            }
            "ldap" => {
                let given = options.iter().map(|option| (option.name.as_str(), option.value.as_str()));
                let read = LdapOptions::from_pairs(given).map_err(|message| method.wrong(message))?;
                return Ok(Method::Ldap(Arc::new(read)));
            }
            "pam" => return Err(method.wrong(NO_PAM)),
            "any" => return Err(method.wrong("`any` is no method of a line: use type = \"any\" in [auth]")),
            "gss" | "sspi" | "ident" | "radius" | "bsd" | "oauth" => {
                return Err(method.wrong(format!("the method `{}` is not supported", method.text)));
            }
            _ => return Err(method.wrong(format!("there is no method `{}`: {METHODS}", method.text))),
        };
        takes("")?;
        Ok(found)
    }

    /// The map that an option names.
    fn map(&self, options: &[NamedOption]) -> Result<Option<Arc<super::IdentMap>>, Wrong> {
        let Some(option) = options.first() else { return Ok(None) };
        let Some(maps) = self.maps else {
            return Err(option.token.wrong("a map needs `ident_file` in [auth], and there is none"));
        };
        let map = maps.get(&option.value);
        map.cloned()
            .map(Some)
            .ok_or_else(|| option.token.wrong(format!("the ident file has no map `{}`", option.value)))
    }
}

/// Why PAM is not supported.
pub const NO_PAM: &str =
    "pam is not supported: its modules run inside the process and may block it. Use ldap, or a certificate";

const METHODS: &str = "use trust, reject, md5, scram-sha-256, password, cert, peer or ldap";

fn connection(token: &Token) -> Result<Connection, Wrong> {
    match &*token.text {
        "local" => Ok(Connection::Unix),
        "host" => Ok(Connection::Tcp),
        "hostssl" => Ok(Connection::Encrypted),
        "hostnossl" => Ok(Connection::Unencrypted),
        "hostgssenc" | "hostnogssenc" => Err(token.wrong("encryption by GSSAPI is not supported")),
        "include" | "include_if_exists" | "include_dir" => {
            Err(token.wrong("an HBA file cannot include others: write the lines here"))
        }
        other => Err(token.wrong(format!("a line begins with local, host, hostssl or hostnossl, not `{other}`"))),
    }
}

fn network(fields: &mut Fields<'_>) -> Result<Option<Network>, Wrong> {
    let token = fields.one("the address")?;
    if token.is("all") {
        return Ok(None);
    }
    if ["samehost", "samenet"].iter().any(|word| token.is(word)) {
        return Err(token.wrong(format!("`{}` is not supported: write the addresses", token.text)));
    }
    let (address, length) = match token.text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (&*token.text, None),
    };
    let Ok(base) = address.parse::<IpAddr>() else {
        let message = format!("`{address}` is no address: host names are not supported, write addresses or `all`");
        return Err(token.wrong(message));
    };
    let network = match length {
        Some(length) => match length.parse() {
            Ok(length) => Network::new(base, length),
            Err(_) => Err("behind the slash comes a number".to_owned()),
        },
        None => {
            let mask = fields.one("the mask of the address")?.text.parse();
            mask.ok().and_then(|mask| Network::with_mask(base, mask)).ok_or_else(|| {
                let width = if base.is_ipv4() { 32 } else { 128 };
                format!("an address has a mask: write {address}/{width} for this one alone")
            })
        }
    };
    network.map(Some).map_err(|message| token.wrong(message))
}

/// An option behind the method.
struct NamedOption<'l> {
    name: String,
    value: String,
    token: &'l Token,
}

fn option(field: &Field) -> Result<NamedOption<'_>, Wrong> {
    let [token] = &field[..] else {
        return Err(field[1].wrong("an option has one value: put it into quotes if it has a comma"));
    };
    let Some((name, value)) = token.text.split_once('=') else {
        return Err(token.wrong("an option has the form name=value"));
    };
    Ok(NamedOption { name: name.to_owned(), value: value.to_owned(), token })
}
