//! Ends the process when its terminal goes away. A hang-up signal does that, too, except under `nohup` and the like,
//! where it is ignored: then the reader of keys would read the end of the input again and again.

use std::{
    fs::File,
    io::{self, IsTerminal},
    os::fd::AsFd,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

/// The exit status of a program that a hang-up signal has ended, as a shell reports it.
const HANGUP_STATUS: i32 = 129;

/// Starts a thread that exits the process when the terminal of the keys goes away: standard input, or the controlling
/// terminal.
///
/// # Errors
/// There is no terminal, or no thread.
pub(crate) fn exit_on_hangup() -> io::Result<()> {
    let terminal = if io::stdin().is_terminal() { None } else { Some(File::open("/dev/tty")?) };
    std::thread::Builder::new().name("hang-up".to_owned()).spawn(move || {
        let input = io::stdin();
        let watched = terminal.as_ref().map_or(input.as_fd(), File::as_fd);
        // No event is asked for: poll always reports a hang-up.
        let mut terminals = [PollFd::from_borrowed_fd(watched, PollFlags::empty())];
        while matches!(poll(&mut terminals, None), Ok(0) | Err(Errno::INTR)) {}
        std::process::exit(HANGUP_STATUS);
    })?;
    Ok(())
}
