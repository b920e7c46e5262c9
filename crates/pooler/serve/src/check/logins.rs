//! Ways to log in that let more in than was probably meant, cannot work, or are not for all listeners.

use settings::{Problem, Spots};
use upstream::Kind;

use crate::config::{AuthType, ClientAuth, Config, Listener, Method};

pub fn logins(config: &Config, found: &mut Vec<Problem>) {
    certificates_asked_for(config, found);
    if config.auth.is_default() {
        return;
    }
    let reachable = |listener: &&Listener| listener.kind == Kind::Postgres && !listener.listen.is_local();
    let open = match &config.auth {
        AuthType::Any => Some(("any", "under any name")),
        AuthType::One(Method::Trust) => Some(("trust", "under the name of any user")),
        _ => None,
    };
    for listener in config.listeners.iter().filter(reachable) {
        if let Some((word, how)) = open {
            let message = format!(
                "{} can be reached from other machines, and type = \"{word}\" lets every client in {how}",
                listener.listen
            );
            let problem = Problem::warning(message).hint("a type = \"hba\" can limit it to addresses");
            found.push(config.locate(problem, &listener.spots, "listen"));
        }
        let unencrypted = !listener.tls.as_ref().is_some_and(|tls| tls.required);
        if unencrypted && matches!(config.auth, AuthType::One(Method::Cleartext | Method::Ldap(_))) {
            let message = format!("at {} clients may send passwords over the network without TLS", listener.listen);
            let problem = Problem::warning(message).hint("set tls = \"require\" there");
            found.push(config.locate(problem, &listener.spots, "listen"));
        }
    }
    if let Some(other) = config.listeners.iter().find(|listener| listener.kind != Kind::Postgres) {
        let what = if other.http.is_some() { "HTTP" } else { other.kind.name() };
        let message =
            format!("the type of [auth] is for clients of PostgreSQL, and not for those of {what} at {}", other.listen);
        let problem =
            Problem::warning(message).hint("they log in with the passwords of [[user]], or with tokens, as ever");
        found.push(config.locate(problem, &other.spots, "listen"));
    }
}

/// Logins by certificate where no listener asks for one.
pub fn certificates_asked_for(config: &Config, found: &mut Vec<Problem>) {
    let asks = |listener: &Listener| listener.tls.as_ref().is_some_and(|tls| tls.clients != ClientAuth::Off);
    if config.listeners.iter().any(asks) {
        return;
    }
    let hint = "give a listener tls_client_ca";
    if let Some(user) = config.users.iter().find(|user| user.certificate) {
        let message = format!("the user `{}` must show a certificate, but no listener asks for one", user.name);
        found.push(config.locate(Problem::error(message).hint(hint), &user.spots, "certificate"));
    }
    if config.auth.methods().iter().any(|method| matches!(method, Method::Certificate(_))) {
        let message = "[auth] lets clients in by certificate, but no listener asks for one";
        let is_one_of_many = config.auth.methods().len() > 1 && config.is_in_place_of_pgbouncer();
        let problem = if is_one_of_many { Problem::warning(message) } else { Problem::error(message) };
        found.push(config.locate(problem.hint(hint), &Spots::new(), ""));
    }
}
