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

use crate::{Key, Outcome, Report, Screen, hangup, signals::Signals};

/// Bounds the wait for a key, after which reports and signals are handled.
const EVENT_TIMEOUT: Duration = Duration::from_millis(50);

#[derive(PartialEq, Eq, Debug)]
enum Action {
    /// The screen has changed.
    Draw,
    /// Stop the process until SIGCONT, as after Ctrl-Z in any program.
    Stop,
    /// The process was stopped and continues.
    Continue,
    /// End with this exit status.
    End(u8),
}

/// Shows reports as they come, one in each `interval`, or why none comes, until a key or a signal ends it. Returns the
/// exit status. The terminal is left as it was found, after a panic, too, and while the process is stopped. When the
/// terminal goes away, the process ends.
///
/// # Errors
/// The terminal fails, or the thread that makes the reports has ended.
pub fn run(
    address: &str,
    has_colours: bool,
    interval: Duration,
    reports: &Receiver<Result<Report, String>>,
) -> io::Result<u8> {
    hangup::exit_on_hangup()?;
    let signals = Signals::watch()?;
    let mut terminal = ratatui::try_init()?;
    let screen = Screen::new(address, has_colours, interval, Instant::now());
    let done = run_screen(&mut terminal, screen, reports, &signals);
    ratatui::try_restore()?;
    done
}

fn run_screen(
    terminal: &mut DefaultTerminal,
    mut screen: Screen,
    reports: &Receiver<Result<Report, String>>,
    signals: &Signals,
) -> io::Result<u8> {
    loop {
        terminal.draw(|frame| screen.draw(frame, Instant::now()))?;
        match wait_for_action(&mut screen, reports, signals)? {
            Action::Draw => {}
            Action::Stop => {
                ratatui::try_restore()?;
                terminal.show_cursor()?;
                // Another process has the terminal from here until SIGCONT.
                kill_process(getpid(), Signal::TSTP)?;
                *terminal = retake_terminal()?;
            }
            Action::Continue => *terminal = retake_terminal()?,
            Action::End(status) => return Ok(status),
        }
    }
}

/// Takes the terminal back from a shell.
fn retake_terminal() -> io::Result<DefaultTerminal> {
    // The shell has reset the raw mode, which crossterm does not know: it sets the mode only after a reset of its own.
    disable_raw_mode()?;
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, Clear(ClearType::All))?;
    Terminal::new(CrosstermBackend::new(stdout()))
}

fn wait_for_action(
    screen: &mut Screen,
    reports: &Receiver<Result<Report, String>>,
    signals: &Signals,
) -> io::Result<Action> {
    loop {
        if let Some(status) = signals.end() {
            return Ok(Action::End(status));
        }
        if signals.take_continuation() {
            return Ok(Action::Continue);
        }
        if take_report(screen, reports)? || screen.has_aged(Instant::now()) {
            return Ok(Action::Draw);
        }
        if !event::poll(EVENT_TIMEOUT)? {
            continue;
        }
        match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => return Ok(pressed(screen, key)),
            Event::Resize(..) => return Ok(Action::Draw),
            _ => {}
        }
    }
}

/// Takes a report, or a reason why there is none, into the screen. False if neither has come.
fn take_report(screen: &mut Screen, reports: &Receiver<Result<Report, String>>) -> io::Result<bool> {
    match reports.try_recv() {
        Ok(Ok(report)) => screen.show(report, Instant::now()),
        Ok(Err(why)) => screen.fail(&why),
        Err(TryRecvError::Empty) => return Ok(false),
        // The thread that makes reports has panicked: the screen would stay as it is forever.
        Err(TryRecvError::Disconnected) => return Err(io::Error::other("no thread makes reports any more")),
    }
    Ok(true)
}

fn pressed(screen: &mut Screen, key: KeyEvent) -> Action {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        match key.code {
            KeyCode::Char('c' | 'd') => return Action::End(0),
            KeyCode::Char('z') => return Action::Stop,
            // As some terminals send it.
            KeyCode::Char('h') => _ = screen.press(Key::Backspace),
            _ => {}
        }
        return Action::Draw;
    }
    if key.modifiers.contains(KeyModifiers::ALT) {
        return Action::Draw;
    }
    match key_of(key.code).map_or(Outcome::Continue, |key| screen.press(key)) {
        Outcome::Continue => Action::Draw,
        Outcome::Quit => Action::End(0),
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

    fn press(screen: &mut Screen, code: KeyCode, modifiers: KeyModifiers) -> Action {
        pressed(screen, KeyEvent::new(code, modifiers))
    }

    #[test]
    fn keys_with_control_or_alt_write_nothing() {
        let mut screen = Screen::new("a", true, EVENT_TIMEOUT, Instant::now());
        press(&mut screen, KeyCode::Char('/'), KeyModifiers::NONE);
        for c in "abu".chars() {
            press(&mut screen, KeyCode::Char(c), KeyModifiers::NONE);
            assert_eq!(press(&mut screen, KeyCode::Char('u'), KeyModifiers::CONTROL), Action::Draw);
            assert_eq!(press(&mut screen, KeyCode::Char('b'), KeyModifiers::ALT), Action::Draw);
        }
        press(&mut screen, KeyCode::Char('h'), KeyModifiers::CONTROL);
        assert_eq!(screen.filter, "ab");
        assert_eq!(press(&mut screen, KeyCode::Char('z'), KeyModifiers::CONTROL), Action::Stop);
        assert_eq!(press(&mut screen, KeyCode::Char('c'), KeyModifiers::CONTROL), Action::End(0));
    }

    #[test]
    fn the_loop_ends_when_the_thread_that_makes_reports_has_ended() {
        let mut screen = Screen::new("a", true, EVENT_TIMEOUT, Instant::now());
        let (reports, incoming) = sync_channel(1);
        assert!(!take_report(&mut screen, &incoming).unwrap());
        reports.send(Err("no answer".to_owned())).unwrap();
        drop(reports);
        assert!(take_report(&mut screen, &incoming).unwrap(), "what was told before is shown");
        assert_eq!(screen.error.as_deref(), Some("no answer"));
        assert!(take_report(&mut screen, &incoming).is_err());
    }
}
