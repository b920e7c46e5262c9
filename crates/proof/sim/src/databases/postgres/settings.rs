//! Settings of a session: those of its transaction, and lasting ones. It knows no statements.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    failure::Failure,
    parameters::{ALL, Parameter, find},
    wire::{message, text},
};

/// Values by names in small letters. Other parameters have the value of the session's start.
type Values = BTreeMap<String, String>;

/// The current and the lasting values at a savepoint.
pub(super) struct Mark(Values, Values);

#[derive(Default)]
pub(super) struct Settings {
    user: String,
    /// Values of the start-up message, to which RESET returns.
    start: BTreeMap<String, String>,
    /// Values of the server's configuration that differ from the default.
    configured: BTreeMap<&'static str, &'static str>,
    /// Values that hold now.
    current: Values,
    /// Values that will hold after a commit.
    lasting: Values,
    /// Lasting values before the transaction, if it has changed any.
    before: Option<Values>,
    /// Custom parameters so far: after a reset they are empty, and not unknown.
    custom: BTreeSet<String>,
    /// Values reported last.
    reported: BTreeMap<&'static str, String>,
    /// Nothing has changed since then.
    all_told: bool,
}

impl Settings {
    pub(super) fn new(user: &str) -> Self {
        let mut settings = Self { user: user.to_owned(), ..Self::default() };
        settings.start.insert("session_authorization".into(), user.to_owned());
        settings
    }

    /// Sets a parameter of the start-up message.
    pub(super) fn begin_with(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let value = self.check(name, value)?;
        self.start.insert(name.to_ascii_lowercase(), value);
        self.all_told = false;
        Ok(())
    }

    /// Sets a parameter of the configuration. `name` is in small letters.
    pub(super) fn configure(&mut self, name: &'static str, value: &'static str) {
        if self.configured.insert(name, value) != Some(value) {
            self.all_told = false;
        }
    }

    /// The value as it is kept.
    fn check(&mut self, name: &str, value: &str) -> Result<String, Failure> {
        let Some(parameter) = known(name)? else {
            self.custom.insert(name.to_ascii_lowercase());
            return Ok(value.to_owned());
        };
        parameter.accept(value, &self.user)
    }

    fn of_start(&self, name: &str) -> Option<&str> {
        let default = || find(name).map(|parameter| parameter.default);
        let configured = || self.configured.get(name).copied();
        self.start.get(name).map(String::as_str).or_else(configured).or_else(default)
    }

    fn current_value(&self, name: &str) -> Option<&str> {
        self.current.get(name).map(String::as_str)
    }

    /// The value as it is kept; `None` if there is no such parameter. `name` is in small letters.
    fn raw(&self, name: &str) -> Option<&str> {
        let emptied = || self.custom.contains(name).then_some("");
        self.current_value(name).or_else(|| self.of_start(name)).or_else(emptied)
    }

    /// The value as SHOW shows it.
    pub(super) fn show(&self, name: &str) -> Result<String, Failure> {
        let lower = name.to_ascii_lowercase();
        let Some(value) = self.raw(&lower) else {
            return Err(Failure::new("42704", format!("unrecognized configuration parameter \"{name}\"")));
        };
        Ok(find(name).map_or_else(|| value.to_owned(), |parameter| parameter.show(value)))
    }

    /// Sets a parameter; to the session's start, if `value` is `None`.
    pub(super) fn set(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<(), Failure> {
        let lower = name.to_ascii_lowercase();
        let value = match value {
            Some(value) => Some(self.check(name, value)?),
            None => {
                if known(name)?.is_none() {
                    self.custom.insert(lower.clone());
                }
                None
            }
        };
        self.change();
        let put = |values: &mut Values| match &value {
            Some(value) => _ = values.insert(lower.clone(), value.clone()),
            None => _ = values.remove(&lower),
        };
        put(&mut self.current);
        if !local {
            put(&mut self.lasting);
        }
        Ok(())
    }

    /// A SET with a list of values.
    pub(super) fn assign(&mut self, name: &str, words: &[String], local: bool) -> Result<(), Failure> {
        if words.len() > 1 && known(name)?.is_some() {
            return Err(Failure::new("22023", format!("SET {name} takes only one argument")));
        }
        self.set(name, Some(&words.join(", ")), local)
    }

    pub(super) fn reset_all(&mut self) {
        self.change();
        for values in [&mut self.current, &mut self.lasting] {
            values.retain(|name, _| name == "role" || name == "session_authorization");
        }
    }

    pub(super) fn mark(&self) -> Mark {
        Mark(self.current.clone(), self.lasting.clone())
    }

    pub(super) fn return_to(&mut self, mark: &Mark) {
        self.change();
        (self.current, self.lasting) = (mark.0.clone(), mark.1.clone());
    }

    fn change(&mut self) {
        self.all_told = false;
        if self.before.is_none() {
            self.before = Some(self.lasting.clone());
        }
    }

    pub(super) fn commit(&mut self) {
        if self.before.take().is_some() {
            self.all_told = false;
            self.current = self.lasting.clone();
        }
    }

    pub(super) fn roll_back(&mut self) {
        if let Some(before) = self.before.take() {
            self.all_told = false;
            self.current = before.clone();
            self.lasting = before;
        }
    }

    /// Names and kept values of parameters that the session has set, except custom ones and roles.
    pub(super) fn of_session(&self) -> Vec<(&'static str, String)> {
        let set = |name: &str| self.current_value(name).map(str::to_owned);
        let hidden = |name: &str| matches!(name, "role" | "session_authorization");
        let all = ALL.iter().filter(|parameter| !hidden(parameter.name));
        let all = all.filter_map(|parameter| Some((parameter.name, set(&parameter.name.to_ascii_lowercase())?)));
        all.collect()
    }

    /// Names and sources of reported parameters.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        ALL.iter().filter(|parameter| parameter.reported).map(|parameter| {
            let name = parameter.name.to_ascii_lowercase();
            let configured = if self.configured.contains_key(&*name) { "configuration file" } else { "default" };
            let started = if self.start.contains_key(&name) { "client" } else { configured };
            (parameter.name, if self.current_value(&name).is_some() { "session" } else { started })
        })
    }

    /// Settings that a new session would not have.
    pub(super) fn leftovers(&self) -> Vec<String> {
        let differs = |name: &String, value: &String| {
            let start = self.of_start(name);
            start != Some(value.as_str()) && !(start.is_none() && value.is_empty())
        };
        let differing = self.lasting.iter().filter(|(name, value)| differs(name, value));
        differing.map(|(name, value)| format!("{name} = {value}")).collect()
    }

    /// Appends a ParameterStatus for each reported parameter that has changed.
    pub(super) fn report(&mut self, to: &mut Vec<u8>) {
        if std::mem::replace(&mut self.all_told, true) {
            return;
        }
        for parameter in ALL.iter().filter(|parameter| parameter.reported) {
            let value = self.raw(&parameter.name.to_ascii_lowercase()).unwrap_or_default().to_owned();
            if self.reported.get(parameter.name) != Some(&value) {
                message(to, b'S', |to| {
                    text(to, parameter.name.as_bytes());
                    text(to, value.as_bytes());
                });
                self.reported.insert(parameter.name, value);
            }
        }
    }
}

/// The parameter; `None` for a custom one.
fn known(name: &str) -> Result<Option<&'static Parameter>, Failure> {
    if let Some(parameter) = find(name) {
        return Ok(Some(parameter));
    }
    if !name.contains('.') {
        return Err(Failure::new("42704", format!("unrecognized configuration parameter \"{name}\"")));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_lasts_for_its_transaction_or_the_session() {
        let mut settings = Settings::new("app");
        settings.set("app.x", Some("1"), false).unwrap();
        settings.commit();
        settings.set("app.x", Some("2"), true).unwrap();
        settings.set("work_mem", Some("8MB"), false).unwrap();
        assert_eq!(settings.show("app.x").unwrap(), "2");
        settings.commit();
        assert_eq!(settings.show("app.x").unwrap(), "1");
        assert_eq!(settings.leftovers(), ["app.x = 1", "work_mem = 8192"]);
        settings.reset_all();
        assert_eq!(settings.show("app.x").unwrap(), "");
        settings.roll_back();
        assert_eq!(settings.show("app.x").unwrap(), "1");
        assert_eq!(settings.of_session(), [("work_mem", "8192".to_owned())]);
    }

    #[test]
    fn a_reset_leads_back_to_the_start_of_the_session() {
        let mut settings = Settings::new("app");
        settings.begin_with("timezone", "CET").unwrap();
        settings.set("TimeZone", Some("UTC"), false).unwrap();
        settings.set("timezone", None, false).unwrap();
        assert_eq!(settings.show("timezone").unwrap(), "CET");
        assert!(settings.leftovers().is_empty());
        assert_eq!(settings.set("nosuch", Some("1"), false).unwrap_err().code, "42704");
        assert_eq!(settings.show("app.y").unwrap_err().code, "42704");
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
}
