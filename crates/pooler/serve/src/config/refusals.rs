//! Parts of a file that are each valid, and not together.

use std::collections::HashMap;

use settings::{Document, Problem, Section};
use upstream::Kind;

use super::{AuthType, Console, Database, FALLBACK, Limits, Listener, User, passwords::PASSWORD_KEYS};

/// A database is of no use where no listener speaks its protocol.
pub fn refuse_unreachable(document: &Document<'_>, databases: &[Database], listeners: &[Listener]) {
    let speaks = |kind| listeners.iter().any(|listener| listener.kind == kind);
    for database in databases.iter().filter(|database| !listeners.is_empty() && !speaks(database.kind)) {
        let name = database.kind.name();
        let span = database.spots.get("url").or_else(|| database.spots.get("url_file")).cloned().unwrap_or_default();
        let problem = Problem::error(format!("no [[listener]] is for clients of {name}"));
        let hint = format!("add one with protocol = \"{}\"", database.kind.word());
        document.report(span, problem.hint(hint));
    }
}

/// Each host of MongoDB has a connection that asks what it is, which counts as any other.
pub fn refuse_monitors_only(document: &Document<'_>, limits: &Limits, databases: &[Database]) {
    let of_mongodb = databases.iter().filter(|database| database.kind == Kind::MongoDb);
    let hosts: usize = of_mongodb.map(|database| database.hosts.addresses.len()).sum();
    let most = limits.max_server_connections as usize;
    if most == 0 || most > hosts {
        return;
    }
    let span = limits.spots.get("max_server_connections").cloned().unwrap_or_default();
    let problem = Problem::error(format!(
        "with max_server_connections = {most} no client is served: a connection to each of the {hosts} hosts of \
         MongoDB asks what it is"
    ));
    document.report(span, problem.hint(format!("write {} or more", hosts + 1)));
}

/// The console's database hides one of the same name.
pub fn refuse_shadowed(document: &Document<'_>, console: &Console, databases: &[Database]) {
    let same = |database: &&Database| database.kind == Kind::Postgres && database.name == console.name;
    if let Some(database) = databases.iter().find(same).filter(|_| console.is_on()) {
        let span = database.spots.get("name").or_else(|| database.spots.get("")).cloned().unwrap_or_default();
        let problem = Problem::error(format!("the console is called `{}`, too", console.name.escape_debug()));
        document.report(span, problem.hint("give it another `name` in [console]"));
    }
}

pub fn refuse_duplicates(document: &Document<'_>, databases: &[Database], users: &[User]) {
    let mut seen = HashMap::new();
    let named = databases.iter().map(|d| ("database", Some(d.kind), &d.name, &d.spots));
    for (what, kind, name, spots) in named.chain(users.iter().map(|u| ("user", None, &u.name, &u.spots))) {
        if seen.insert((kind, name.clone()), ()).is_some() {
            let span = spots.get("name").or_else(|| spots.get("")).cloned().unwrap_or_default();
            document.error(span, format!("the {what} `{}` is configured twice", name.escape_debug()));
        }
    }
}

/// Users that can never log in, databases that nothing can be logged in to, and servers that are not there to be asked.
pub fn refuse_impossible_logins(
    document: &Document<'_>,
    (auth_type, users_may_lack_passwords): (&AuthType, bool),
    auth: Option<&Section<'_>>,
    users: &[User],
    databases: &[Database],
) {
    if databases.iter().all(|database| database.auth.is_none()) && !users_may_lack_passwords {
        refuse_users_without_password(document, users, databases);
    }
    if let (Some(auth), AuthType::Any) = (auth, auth_type) {
        refuse_databases_without_user(auth, databases);
    }
    refuse_unknown_servers(document, auth, databases);
}

/// Each `auth_server` is the name of a `[[database]]` of this file.
fn refuse_unknown_servers(document: &Document<'_>, auth: Option<&Section<'_>>, databases: &[Database]) {
    // One that cannot be read is not missing.
    if !document.problems.borrow().is_empty() {
        return;
    }
    let of_postgres = databases.iter().filter(|database| database.kind == Kind::Postgres);
    let names: Vec<&str> = of_postgres.map(|database| database.name.as_str()).collect();
    let problem = |server: &str| {
        let is_there = names.iter().any(|name| *name == server || *name == FALLBACK);
        let server = server.escape_debug();
        let message = format!("there is no [[database]] `{server}`, at whose server users are looked up");
        (!is_there).then(|| Problem::error(message).hint("name one of this file"))
    };
    if let Some(auth) = auth
        && let Some(problem) = auth.string("auth_server").and_then(|server| problem(&server))
    {
        auth.report("auth_server", problem);
    }
    for database in databases {
        if let Some(span) = database.spots.get("auth_server")
            && let Some(problem) = database.auth.as_ref().and_then(|auth| problem(auth.server.as_ref()?))
        {
            document.report(span.clone(), problem);
        }
    }
}

/// Users without a password are only rules, which is allowed while no user has a password, and for users that
/// Poolhouse itself logs in as.
fn refuse_users_without_password(document: &Document<'_>, users: &[User], databases: &[Database]) {
    if users.iter().all(|user| user.password.is_none() && !user.certificate) {
        return;
    }
    // One that cannot be read is told as that.
    let has_key = |user: &User| PASSWORD_KEYS.iter().any(|key| user.spots.contains_key(key));
    let of_url = |user: &User| databases.iter().any(|database| database.user.as_ref() == Some(&user.name));
    let without = |user: &&User| user.password.is_none() && !user.certificate && !has_key(user) && !of_url(user);
    for user in users.iter().filter(without) {
        let span = user.spots.get("name").cloned().unwrap_or_default();
        let problem = Problem::error(format!("the user `{}` has no password, though others have", user.name));
        document.report(span, problem.hint("give it one, here or in the [auth] file"));
    }
}

/// Where clients get in under any name, their names cannot be those that Poolhouse logs in with.
fn refuse_databases_without_user(auth: &Section<'_>, databases: &[Database]) {
    let without = |database: &&Database| database.kind == Kind::Postgres && database.user.is_none();
    if let Some(database) = databases.iter().find(without) {
        let problem = Problem::error(format!(
            "type = \"any\" ignores clients' names, and the url of `{}` has no user",
            database.name
        ));
        auth.report("type", problem.hint("add one to the url: servers log in as this user"));
    }
}
