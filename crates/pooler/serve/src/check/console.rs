//! Users of the console who cannot log in.

use settings::Problem;
use upstream::Kind;

use crate::config::Config;

pub fn console(config: &Config, found: &mut Vec<Problem>) {
    let console = &config.console;
    if console.is_on() && config.databases_of(Kind::Postgres).next().is_none() {
        let problem = Problem::warning("the console is reached by clients of PostgreSQL, and there are none here");
        found.push(config.locate(problem.hint("poolhouse ctl looks and gives orders, too"), &console.spots, ""));
        return;
    }
    // Where no user has a password, clients of this machine may be who they say.
    if !config.authenticates(Kind::Postgres) || console.auth.is_some() {
        return;
    }
    for (key, users) in [("admins", &console.admins), ("viewers", &console.viewers)] {
        for user in users.iter().filter(|user| !config.users.iter().any(|known| known.name == **user)) {
            let problem = Problem::warning(format!("`{}` cannot log in to the console", user.escape_debug()));
            let problem = problem.hint(
                "add a [[user]] of this name with a password, list it in the [auth] file, or name in auth_server where \
                 users are looked up",
            );
            found.push(config.locate(problem, &console.spots, key));
        }
    }
}
