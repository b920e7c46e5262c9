//! The terminal: its keys, and the loop that draws.

use std::{
    io::{self, stdout},
    sync::mpsc::{Receiver, TryRecvError},
    time::{Duration, Instant},
};

use ratatui::{
    DefaultTerminal, Terminal,
    backend::CrosstermBackend,
    crossterm::{
        event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
        execute,
        terminal::{Clear, ClearType, EnterAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
};
use rustix::process::{Signal, getpid, kill_process};

use crate::{Key, Report, Screen, Wish, hangup, signals::Signals};

/// Bounds the wait for a key, after which reports and signals are handled.
const EVENT_TIMEOUT: Duration = Duration::from_millis(50);

#[derive(PartialEq, Eq, Debug)]
enum Next {
    /// Something has changed: it is drawn.
    Draw,
    /// The process stops until SIGCONT, as after Ctrl-Z in any program.
    Stop,
    /// It has been stopped and goes on.
    GoOn,
    /// It ends, with this status.
    End(u8),
}

/// Shows reports as they come, one in the time `every`, or why none comes, until a key or a signal ends it. Returns the
/// exit status. The terminal is left as it was found, after a panic, too, and while the process is stopped. Where the
/// terminal goes away, the process ends.
///
/// # Errors
/// The terminal fails, or the thread that makes the reports has ended.
pub fn run(
    address: &str,
    has_colours: bool,
    every: Duration,
    reports: &Receiver<Result<Report, String>>,
) -> io::Result<u8> {
    hangup::ends_the_process()?;
    let signals = Signals::watched()?;
    let mut terminal = ratatui::try_init()?;
    let screen = Screen::new(address, has_colours, every, Instant::now());
    let done = shown(&mut terminal, screen, reports, &signals);
    ratatui::try_restore()?;
    done
}

fn shown(
    terminal: &mut DefaultTerminal,
    mut screen: Screen,
    reports: &Receiver<Result<Report, String>>,
    signals: &Signals,
) -> io::Result<u8> {
    loop {
        terminal.draw(|frame| screen.draw(frame, Instant::now()))?;
        match next(&mut screen, reports, signals)? {
            Next::Draw => {}
            Next::Stop => {
                ratatui::try_restore()?;
                terminal.show_cursor()?;
                // From here on another process has the terminal, until SIGCONT.
                kill_process(getpid(), Signal::TSTP)?;
                *terminal = taken_again()?;
            }
            Next::GoOn => *terminal = taken_again()?,
            Next::End(status) => return Ok(status),
        }
    }
}

/// Whatever it was used for meanwhile.
fn taken_again() -> io::Result<DefaultTerminal> {
    // A shell has changed the mode behind our back: it counts as set until it is given back.
    disable_raw_mode()?;
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, Clear(ClearType::All))?;
    Terminal::new(CrosstermBackend::new(stdout()))
}

/// Waits until something is to be done.
fn next(screen: &mut Screen, reports: &Receiver<Result<Report, String>>, signals: &Signals) -> io::Result<Next> {
    loop {
        if let Some(status) = signals.end() {
            return Ok(Next::End(status));
        }
        if signals.goes_on() {
            return Ok(Next::GoOn);
        }
        if has_news(screen, reports)? || screen.has_aged(Instant::now()) {
            return Ok(Next::Draw);
        }
        if !event::poll(EVENT_TIMEOUT)? {
            continue;
        }
        match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => return Ok(pressed(screen, key)),
            Event::Resize(..) => return Ok(Next::Draw),
            _ => {}
        }
    }
}

/// Whether there is a report, or a reason why there is none.
fn has_news(screen: &mut Screen, reports: &Receiver<Result<Report, String>>) -> io::Result<bool> {
    match reports.try_recv() {
        Ok(Ok(report)) => screen.show(report, Instant::now()),
        Ok(Err(why)) => screen.fail(&why),
        Err(TryRecvError::Empty) => return Ok(false),
        // It has panicked: what is on the screen would stay as it is for ever.
        Err(TryRecvError::Disconnected) => return Err(io::Error::other("nobody looks any more")),
    }
    Ok(true)
}

fn pressed(screen: &mut Screen, key: KeyEvent) -> Next {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        match key.code {
            KeyCode::Char('c' | 'd') => return Next::End(0),
            KeyCode::Char('z') => return Next::Stop,
            // As some terminals send it.
            KeyCode::Char('h') => _ = screen.press(Key::Backspace),
            _ => {}
        }
        return Next::Draw;
    }
    if key.modifiers.contains(KeyModifiers::ALT) {
        return Next::Draw;
    }
    match key_of(key.code).map_or(Wish::GoOn, |key| screen.press(key)) {
        Wish::GoOn => Next::Draw,
        Wish::Quit => Next::End(0),
    }
}

fn key_of(code: KeyCode) -> Option<Key> {
    Some(match code {
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Tab => Key::Tab,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    fn press(screen: &mut Screen, code: KeyCode, modifiers: KeyModifiers) -> Next {
        pressed(screen, KeyEvent::new(code, modifiers))
    }

    #[test]
    fn keys_that_are_held_with_control_write_nothing_and_sort_nothing() {
        let mut screen = Screen::new("a", true, EVENT_TIMEOUT, Instant::now());
        press(&mut screen, KeyCode::Char('/'), KeyModifiers::NONE);
        for c in "abu".chars() {
            press(&mut screen, KeyCode::Char(c), KeyModifiers::NONE);
            assert_eq!(press(&mut screen, KeyCode::Char('u'), KeyModifiers::CONTROL), Next::Draw);
            assert_eq!(press(&mut screen, KeyCode::Char('b'), KeyModifiers::ALT), Next::Draw);
        }
        press(&mut screen, KeyCode::Char('h'), KeyModifiers::CONTROL);
        assert_eq!(screen.filter, "ab");
        assert_eq!(press(&mut screen, KeyCode::Char('z'), KeyModifiers::CONTROL), Next::Stop);
        assert_eq!(press(&mut screen, KeyCode::Char('c'), KeyModifiers::CONTROL), Next::End(0));
    }

    #[test]
    fn it_does_not_go_on_for_ever_when_whoever_looks_has_ended() {
        let mut screen = Screen::new("a", true, EVENT_TIMEOUT, Instant::now());
        let (reports, incoming) = sync_channel(1);
        assert!(!has_news(&mut screen, &incoming).unwrap());
        reports.send(Err("no answer".to_owned())).unwrap();
        drop(reports);
        assert!(has_news(&mut screen, &incoming).unwrap(), "what was told before is shown");
        assert_eq!(screen.trouble.as_deref(), Some("no answer"));
        assert!(has_news(&mut screen, &incoming).is_err());
    }
}
