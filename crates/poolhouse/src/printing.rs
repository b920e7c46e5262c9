//! Printing to standard output and standard error, in place of the macros of the standard library, which panic where
//! they cannot write. A reader may close the pipe early, as `head` does: that is no failure. Any other failure is
//! reported once, and the verb fails.

use std::{
    fmt,
    io::{self, Write},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// Something could not be written to standard output.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Whether something could not be written to standard output, for example because a disk is full.
pub fn has_failed() -> bool {
    FAILED.load(Relaxed)
}

/// Writes to standard output.
pub fn write_stdout(text: fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe && !FAILED.swap(true, Relaxed) => {
            write_stderr(format_args!("error: cannot write to standard output: {error}\n"));
        }
        _ => {}
    }
}

/// Writes to standard error. A failure cannot be reported anywhere.
pub fn write_stderr(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

macro_rules! print {
    ($($part:tt)+) => { $crate::printing::write_stdout(format_args!($($part)+)) };
}

macro_rules! println {
    () => { $crate::printing::write_stdout(format_args!("\n")) };
    ($($part:tt)+) => { $crate::printing::write_stdout(format_args!("{}\n", format_args!($($part)+))) };
}

macro_rules! eprint {
    ($($part:tt)+) => { $crate::printing::write_stderr(format_args!($($part)+)) };
}

macro_rules! eprintln {
    ($($part:tt)+) => { $crate::printing::write_stderr(format_args!("{}\n", format_args!($($part)+))) };
}
