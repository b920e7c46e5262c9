//! What a session has set: for its transaction, and for good. It knows no statements.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    failure::Failure,
    parameters::{ALL, Parameter, Rights, find},
    wire::{message, text},
};

/// Values by names in small letters; those that are not there have their value of the session's start.
type Values = BTreeMap<String, Option<String>>;

/// The settings of a session.
#[derive(Default)]
pub(super) struct Settings {
    user: String,
    /// What RESET leads back to, where that is not the default.
    start: BTreeMap<String, String>,
    /// What the server's configuration says, where that is not the default.
    configured: BTreeMap<&'static str, &'static str>,
    /// What has been set and holds now; `None` is set to the session's start.
    now: Values,
    /// What will hold when the transaction has ended well.
    lasting: Values,
    /// What held before it, if it has changed anything.
    before: Option<Values>,
    /// Names of custom parameters that there have been: they are empty, then, and not unknown.
    custom: BTreeSet<String>,
    /// What was reported last.
    told: BTreeMap<&'static str, String>,
    /// Nothing has changed since then.
    all_told: bool,
    /// The time-outs, as they were asked for most lately; `None` after a change.
    limits: Cell<Option<[u64; LIMITS.len()]>>,
}

/// Time-outs, which are asked for at every step.
const LIMITS: [&str; 4] =
    ["statement_timeout", "lock_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout"];

/// Settings at some point of a transaction.
#[derive(Clone)]
pub(super) struct Mark(Values, Values);

impl Settings {
    pub(super) fn new(user: &str) -> Self {
        let mut settings = Self { user: user.to_owned(), ..Self::default() };
        settings.start.insert("session_authorization".into(), user.to_owned());
        settings
    }

    /// What the client wants from the start on.
    pub(super) fn begin_with(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let value = self.check(name, value)?;
        self.start.insert(name.to_ascii_lowercase(), value);
        self.touch();
        Ok(())
    }

    /// The configuration was read again, and says this. `name` is in small letters.
    pub(super) fn configure(&mut self, name: &'static str, value: &'static str) {
        if self.configured.insert(name, value) != Some(value) {
            self.touch();
        }
    }

    /// The value as it is kept.
    fn check(&mut self, name: &str, value: &str) -> Result<String, Failure> {
        let Some(parameter) = known(name)? else {
            self.custom.insert(name.to_ascii_lowercase());
            return Ok(value.to_owned());
        };
        let lower = name.to_ascii_lowercase();
        if lower == "session_authorization" && value == "postgres" && self.user != value {
            return Err(Failure::new("42501", format!("permission denied to set session authorization \"{value}\"")));
        }
        may_be_set(parameter, name)?;
        let now = self.raw(&lower).unwrap_or_default();
        parameter.accept(name, value, now, &self.user)
    }

    fn of_start(&self, name: &str) -> Option<&str> {
        let default = || find(name).map(|parameter| parameter.default);
        let configured = || self.configured.get(name).copied();
        self.start.get(name).map(String::as_str).or_else(configured).or_else(default)
    }

    fn set_now(&self, name: &str) -> Option<&str> {
        self.now.get(name)?.as_deref()
    }

    /// The value as it is kept; `None` if there is no such parameter. `name` is in small letters.
    fn raw(&self, name: &str) -> Option<&str> {
        let emptied = || self.custom.contains(name).then_some("");
        self.set_now(name).or_else(|| self.of_start(name)).or_else(emptied)
    }

    /// The value as it is shown, or that there is none.
    pub(super) fn show(&self, name: &str) -> Result<String, Failure> {
        let lower = name.to_ascii_lowercase();
        let Some(value) = self.raw(&lower) else {
            return Err(Failure::new("42704", format!("unrecognized configuration parameter \"{name}\"")));
        };
        Ok(find(name).map_or_else(|| value.to_owned(), |parameter| parameter.show(value)))
    }

    /// A time-out, in milliseconds.
    pub(super) fn milliseconds(&self, name: &str) -> u64 {
        let limits = self.limits.get().unwrap_or_else(|| {
            LIMITS.map(|name| self.raw(name).and_then(|value| value.parse().ok()).unwrap_or_default())
        });
        self.limits.set(Some(limits));
        limits[LIMITS.iter().position(|limit| *limit == name).expect("a time-out")]
    }

    /// Something may have changed.
    fn touch(&mut self) {
        self.all_told = false;
        self.limits.set(None);
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.raw(name) == Some("on")
    }

    /// The user has said how bytes are to be read.
    pub(super) fn is_latin1(&self) -> bool {
        self.set_now("client_encoding").or_else(|| self.of_start("client_encoding")) == Some("LATIN1")
    }

    /// Sets a parameter; to the session's start, if `value` is `None`.
    pub(super) fn set(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<(), Failure> {
        let lower = name.to_ascii_lowercase();
        let value = match value {
            Some(value) => Some(self.check(name, value)?),
            None => {
                match known(name)? {
                    Some(parameter) => may_be_set(parameter, name)?,
                    None => _ = self.custom.insert(lower.clone()),
                }
                None
            }
        };
        self.change();
        let put = |values: &mut Values| match &value {
            Some(value) => _ = values.insert(lower.clone(), Some(value.clone())),
            None => _ = values.remove(&lower),
        };
        put(&mut self.now);
        if !local {
            put(&mut self.lasting);
        }
        Ok(())
    }

    /// A SET with a list of words.
    pub(super) fn assign(&mut self, name: &str, words: &[String], local: bool) -> Result<(), Failure> {
        let value = match known(name)? {
            Some(parameter) => parameter.join(words)?,
            None => words.join(", "),
        };
        self.set(name, Some(&value), local)
    }

    pub(super) fn reset_all(&mut self) {
        self.change();
        for values in [&mut self.now, &mut self.lasting] {
            values.retain(|name, _| name == "role" || name == "session_authorization");
        }
    }

    fn change(&mut self) {
        self.touch();
        if self.before.is_none() {
            self.before = Some(self.lasting.clone());
        }
    }

    /// The transaction has ended well.
    pub(super) fn commit(&mut self) {
        if self.before.take().is_some() {
            self.touch();
            self.now = self.lasting.clone();
        }
    }

    pub(super) fn roll_back(&mut self) {
        if let Some(before) = self.before.take() {
            self.touch();
            self.now = before.clone();
            self.lasting = before;
        }
    }

    pub(super) fn mark(&self) -> Mark {
        Mark(self.now.clone(), self.lasting.clone())
    }

    pub(super) fn return_to(&mut self, mark: &Mark) {
        self.change();
        (self.now, self.lasting) = (mark.0.clone(), mark.1.clone());
    }

    /// Names and values, as they are kept, of all that the session has set, but custom ones, and who acts.
    pub(super) fn of_session(&self) -> Vec<(&'static str, String)> {
        let set = |name: &str| self.set_now(name).map(str::to_owned);
        let hidden = |name: &str| matches!(name, "role" | "session_authorization");
        let all = ALL.iter().filter(|parameter| !hidden(parameter.name));
        let all = all.filter_map(|parameter| Some((parameter.name, set(&parameter.name.to_ascii_lowercase())?)));
        all.collect()
    }

    /// The names of all that is reported, and where the value of each comes from.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        ALL.iter().filter(|parameter| parameter.reported).map(|parameter| {
            let name = parameter.name.to_ascii_lowercase();
            let configured = if self.configured.contains_key(&*name) { "configuration file" } else { "default" };
            let started = if self.start.contains_key(&name) { "client" } else { configured };
            (parameter.name, if self.set_now(&name).is_some() { "session" } else { started })
        })
    }

    /// What a session that has just begun would not have.
    pub(super) fn leftovers(&self) -> Vec<String> {
        let differs = |name: &String, value: &String| {
            let start = self.of_start(name);
            start != Some(value.as_str()) && !(start.is_none() && value.is_empty())
        };
        let set = self.lasting.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        set.filter(|(name, value)| differs(name, value)).map(|(name, value)| format!("{name} = {value}")).collect()
    }

    /// Appends a ParameterStatus for each that is reported and has another value than was told last.
    pub(super) fn report(&mut self, to: &mut Vec<u8>) {
        if std::mem::replace(&mut self.all_told, true) {
            return;
        }
        for parameter in ALL.iter().filter(|parameter| parameter.reported) {
            let value = self.raw(&parameter.name.to_ascii_lowercase()).unwrap_or_default().to_owned();
            if self.told.get(parameter.name) != Some(&value) {
                message(to, b'S', |to| {
                    text(to, parameter.name.as_bytes());
                    text(to, value.as_bytes());
                });
                self.told.insert(parameter.name, value);
            }
        }
    }
}

/// The parameter, if it is not a custom one.
fn known(name: &str) -> Result<Option<&'static Parameter>, Failure> {
    if let Some(parameter) = find(name) {
        return Ok(Some(parameter));
    }
    if !name.contains('.') {
        return Err(Failure::new("42704", format!("unrecognized configuration parameter \"{name}\"")));
    }
    let begins = |c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
    let plain = |c: char| begins(c) || c.is_ascii_digit() || c == '$';
    if name.split('.').all(|part| part.starts_with(begins) && part.chars().all(plain)) {
        return Ok(None);
    }
    let detail = "Custom parameter names must be two or more simple identifiers separated by dots.";
    Err(Failure::new("42602", format!("invalid configuration parameter name \"{name}\"")).detail(detail))
}

fn may_be_set(parameter: &Parameter, name: &str) -> Result<(), Failure> {
    let (code, message) = match parameter.rights {
        Rights::Anybody => return Ok(()),
        Rights::Superuser => ("42501", format!("permission denied to set parameter \"{name}\"")),
        Rights::Start => ("55P02", format!("parameter \"{name}\" cannot be changed without restarting the server")),
        Rights::Nobody => ("55P02", format!("parameter \"{name}\" cannot be changed")),
    };
    Err(Failure::new(code, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_holds_as_long_as_it_was_said_to() {
        let mut settings = Settings::new("app");
        settings.set("app.x", Some("1"), false).unwrap();
        settings.commit();
        settings.set("app.x", Some("2"), true).unwrap();
        settings.set("jit", Some("off"), false).unwrap();
        assert_eq!(settings.show("app.x").unwrap(), "2");
        settings.commit();
        assert_eq!(settings.show("app.x").unwrap(), "1");
        assert_eq!(settings.leftovers(), ["app.x = 1", "jit = off"]);
        settings.reset_all();
        assert_eq!(settings.show("app.x").unwrap(), "");
        settings.roll_back();
        assert_eq!(settings.show("app.x").unwrap(), "1");
        assert_eq!(settings.of_session(), [("jit", "off".to_owned())]);
    }

    #[test]
    fn a_reset_leads_back_to_the_start_of_the_session() {
        let mut settings = Settings::new("app");
        settings.begin_with("timezone", "CET").unwrap();
        settings.set("TimeZone", Some("UTC"), false).unwrap();
        settings.set("timezone", None, false).unwrap();
        assert_eq!(settings.show("timezone").unwrap(), "CET");
        assert!(settings.leftovers().is_empty());
    }

    #[test]
    fn another_configuration_is_seen_where_nothing_is_set() {
        let (mut settings, mut bytes) = (Settings::new("app"), Vec::new());
        settings.set("intervalstyle", Some("iso_8601"), false).unwrap();
        settings.report(&mut bytes);
        bytes.clear();
        settings.configure("intervalstyle", "iso_8601");
        settings.set("intervalstyle", None, false).unwrap();
        settings.report(&mut bytes);
        assert!(bytes.is_empty(), "what was reported last is the same");
        settings.configure("intervalstyle", "sql_standard");
        settings.report(&mut bytes);
        assert_eq!(bytes, b"S\0\0\0\x1fIntervalStyle\0sql_standard\0");
        assert!(settings.sources().any(|source| source == ("IntervalStyle", "configuration file")));
    }

    #[test]
    fn changes_are_reported_once() {
        let mut settings = Settings::new("app");
        let mut bytes = Vec::new();
        settings.report(&mut bytes);
        bytes.clear();
        settings.set("datestyle", Some("german"), false).unwrap();
        settings.report(&mut bytes);
        assert_eq!(bytes, b"S\0\0\0\x1aDateStyle\0German, DMY\0");
        settings.roll_back();
        settings.report(&mut bytes);
        assert!(bytes.ends_with(b"DateStyle\0ISO, MDY\0"));
    }

    #[test]
    fn what_there_is_not_cannot_be_set() {
        let mut settings = Settings::new("app");
        assert_eq!(settings.set("nosuch", Some("1"), false).unwrap_err().code, "42704");
        assert_eq!(settings.set("a b.c", Some("1"), false).unwrap_err().code, "42602");
        assert_eq!(settings.set("server_version", Some("1"), false).unwrap_err().code, "55P02");
        assert_eq!(settings.show("app.y").unwrap_err().code, "42704");
    }
}
