//! The name of this process's console in the namespace of abstract Unix sockets. Such a socket has no file, so it needs
//! no folder, outlives no process, and cannot be left behind.

use std::sync::OnceLock;

static NAME: OnceLock<String> = OnceLock::new();

/// The same for as long as the process lives. It is random, because any program may take a name that it can guess.
pub fn name() -> &'static str {
    NAME.get_or_init(|| {
        let mut random = [0; 16];
        getrandom::fill(&mut random).expect("the system has random numbers");
        format!("poolhouse-console-{:032x}", u128::from_ne_bytes(random))
    })
}
