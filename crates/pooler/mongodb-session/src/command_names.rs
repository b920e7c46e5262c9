//! The names of commands that Poolhouse treats in a way of its own.

/// Commands that tell of the last write of a connection, which may have been another client's.
const LAST_ERROR_COMMANDS: [&str; 5] = ["getLastError", "getPrevError", "resetError", "forceerror", "getlasterror"];

/// Commands that Poolhouse answers itself.
const LOCAL: [&str; 8] =
    ["hello", "isMaster", "ismaster", "saslStart", "saslContinue", "isdbgrid", "logout", "authenticate"];

/// Commands whose cursors, sessions and transactions are looked at: whose these are, and which host has them.
const ROUTED: [&str; 8] = [
    "getMore",
    "killCursors",
    "endSessions",
    "killSessions",
    "killAllSessions",
    "killAllSessionsByPattern",
    "commitTransaction",
    "abortTransaction",
];

/// Whether a command has the name of one that Poolhouse answers or routes by itself, but in another case. Some servers
/// would carry it out.
pub fn is_misspelt(name: &str) -> bool {
    let special = || LOCAL.iter().chain(&ROUTED);
    special().all(|known| *known != name) && special().any(|known| known.eq_ignore_ascii_case(name))
}

const REPLICATION: &str = "replSet";

/// Whether it is a command for a replica set's own members and operators, in whatever case.
pub fn is_of_replication(name: &str) -> bool {
    name.get(..REPLICATION.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(REPLICATION))
}

pub fn is_hello(name: &str) -> bool {
    matches!(name, "hello" | "isMaster" | "ismaster")
}

/// Whether Poolhouse answers a command of this name itself, which has to be there whole then.
pub fn is_local(name: &str) -> bool {
    is_hello(name) || matches!(name, "saslStart" | "saslContinue" | "isdbgrid")
}

/// Whether a command tells of the last write of a connection, in whatever case.
pub fn is_last_error(name: &str) -> bool {
    LAST_ERROR_COMMANDS.iter().any(|other| other.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_at_is_taken_in_its_own_spelling_only() {
        for name in ["getMore", "killAllSessions", "commitTransaction", "hello", "ismaster", "find", "FIND"] {
            assert!(!is_misspelt(name), "{name}");
        }
        for name in
            ["getmore", "GetMore", "killallsessions", "KillCursors", "endsessions", "committransaction", "Hello"]
        {
            assert!(is_misspelt(name), "{name}");
        }
        assert!(is_of_replication("replSetStepDown") && is_of_replication("replsetreconfig"));
        assert!(!is_of_replication("repl") && !is_of_replication("replSeé") && !is_of_replication("find"));
    }
}
