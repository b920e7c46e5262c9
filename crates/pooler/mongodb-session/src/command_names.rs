//! Names of commands that Poolhouse treats specially.

/// Commands about the last write of a connection, which may have been another client's.
const LAST_ERROR_COMMANDS: [&str; 5] = ["getLastError", "getPrevError", "resetError", "forceerror", "getlasterror"];

/// Commands that Poolhouse answers or refuses.
const NEVER_RELAYED: [&str; 8] =
    ["hello", "isMaster", "ismaster", "saslStart", "saslContinue", "isdbgrid", "logout", "authenticate"];

/// Commands that are routed by the cursors, sessions or transactions that they name.
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

/// Whether the name is that of a command that is routed or never relayed, in another case. Some servers ignore case,
/// and would carry it out.
pub fn is_misspelt(name: &str) -> bool {
    let special = || NEVER_RELAYED.iter().chain(&ROUTED);
    special().all(|known| *known != name) && special().any(|known| known.eq_ignore_ascii_case(name))
}

const REPLICATION: &str = "replSet";

/// Whether it is a command for replica set members and operators, in any case of letters.
pub fn is_of_replication(name: &str) -> bool {
    name.get(..REPLICATION.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(REPLICATION))
}

pub fn is_hello(name: &str) -> bool {
    matches!(name, "hello" | "isMaster" | "ismaster")
}

/// Whether Poolhouse answers a command of this name itself. It needs the whole message for that.
pub fn is_local(name: &str) -> bool {
    is_hello(name) || matches!(name, "saslStart" | "saslContinue" | "isdbgrid")
}

/// Whether a command is about the last write of a connection, in any case of letters.
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
