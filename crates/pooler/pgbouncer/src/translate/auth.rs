//! Who may log in: `[auth]`.

use super::{
    Writer,
    databases::{CONSOLE, FALLBACK},
};
use crate::{
    general::Given,
    ini::{SectionName, Setting},
    pairs::pairs,
};

impl Writer<'_> {
    pub(super) fn auth(&mut self) {
        self.open("auth");
        let kind = self.get("auth_type");
        match kind.word() {
            "pam" => {
                let hint = "use auth_query, ldap, or a list of users; PAM would load foreign code into the pooler";
                self.refuse_given(kind, "auth_type = pam is not supported", hint);
            }
            word => self.set("type", word, kind),
        }
        self.require_users();
        for (name, key) in [("auth_file", "file"), ("auth_hba_file", "hba_file"), ("auth_ident_file", "ident_file")] {
            let given = self.get(name);
            if key != "file" && kind.word() != "hba" {
                continue;
            }
            if let Some(path) = given.text() {
                self.set(key, self.path(path), given);
            }
        }
        let ldap = self.get("auth_ldap_options");
        if kind.word() == "ldap" {
            self.set_unless_default("ldap_options", ldap.value, ldap);
        }
        let iterations = self.get("scram_iterations");
        self.set_unless_default("scram_iterations", iterations.number(), iterations);
        self.lookups();
    }

    /// With passwords asked for and none to be had, no client could log in.
    fn require_users(&mut self) {
        let kind = self.get("auth_type");
        let asks = matches!(kind.word(), "md5" | "scram-sha-256" | "plain" | "trust");
        let of_database = self.ini.settings.iter().any(asks_its_database);
        let is_known = ["auth_file", "auth_user"].iter().any(|name| self.get(name).text().is_some());
        if asks && !is_known && !of_database {
            let message = format!("with auth_type = {} and no users, no client could log in", kind.word());
            self.refuse_given(kind, message, "set auth_file, or auth_user and auth_query");
        }
    }

    /// Users that are looked up in databases.
    fn lookups(&mut self) {
        let (user, query, database) = (self.get("auth_user"), self.get("auth_query"), self.get("auth_dbname"));
        if let Some(name) = user.text() {
            self.set("auth_user", name, user);
        }
        // Without a user here, the query is for the databases that name one.
        let is_asked = user.text().is_some();
        // The console has no query of its own. One that names no user is for none.
        let for_console = database.text().is_some() && query.value.contains("$1");
        if is_asked && (for_console || !self.ini.settings.iter().filter(is_database).all(has_its_own_query)) {
            self.set("auth_query", query.value, query);
        }
        if database.text().is_some() && is_asked {
            self.lookup_server(database);
        }
    }

    /// The entry of `[databases]` at whose server users are looked up.
    pub(super) fn lookup_server(&mut self, given: Given<'_>) {
        let name = given.value;
        if name == CONSOLE {
            let hint = "name an entry of [databases]: the console knows no users";
            return self.refuse_given(given, "cannot use the reserved \"pgbouncer\" database as an auth_dbname", hint);
        }
        let covers = |setting: &Setting| {
            setting.section == SectionName::Databases && (setting.key == name || setting.key == FALLBACK)
        };
        if !self.ini.settings.iter().any(covers) {
            let message = format!("auth_dbname: there is no database \"{}\" in [databases]", name.escape_debug());
            return self.refuse_given(given, message, "add it: users are looked up at its server");
        }
        self.set("auth_server", name, given);
    }
}

fn is_database(setting: &&Setting) -> bool {
    setting.section == SectionName::Databases
}

/// Whether an entry of `[databases]` has a query of its own for its users.
fn has_its_own_query(setting: &Setting) -> bool {
    pairs(&setting.value).is_ok_and(|pairs| pairs.iter().any(|pair| pair.key == "auth_query"))
}

/// Whether an entry of `[databases]` has its users looked up.
fn asks_its_database(setting: &Setting) -> bool {
    setting.section == SectionName::Databases
        && pairs(&setting.value).is_ok_and(|pairs| pairs.iter().any(|pair| pair.key == "auth_user"))
}
