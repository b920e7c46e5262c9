//! What people read on standard output and standard error, in place of the macros of the standard library, which panic
//! where nothing can be written. A reader may have seen enough, as `head` has: that is no failure. Any other reason is
//! told once, and the verb has failed.

use std::{
    fmt,
    io::{self, Write},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// Something could not be written to standard output.
static LOST: AtomicBool = AtomicBool::new(false);

/// Whether standard output lacks something, on a full disk for example.
pub fn is_lost() -> bool {
    LOST.load(Relaxed)
}

/// Writes to standard output.
pub fn aloud(text: fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe && !LOST.swap(true, Relaxed) => {
            aside(format_args!("error: cannot write to standard output: {error}\n"));
        }
        _ => {}
    }
}

/// Writes to standard error. Where that fails there is no place left to tell it.
pub fn aside(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

macro_rules! print {
    ($($part:tt)+) => { $crate::told::aloud(format_args!($($part)+)) };
}

macro_rules! println {
    () => { $crate::told::aloud(format_args!("\n")) };
    ($($part:tt)+) => { $crate::told::aloud(format_args!("{}\n", format_args!($($part)+))) };
}

macro_rules! eprint {
    ($($part:tt)+) => { $crate::told::aside(format_args!($($part)+)) };
}

macro_rules! eprintln {
    ($($part:tt)+) => { $crate::told::aside(format_args!("{}\n", format_args!($($part)+))) };
}
