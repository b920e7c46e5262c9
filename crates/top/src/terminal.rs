//! The terminal: its keys, and the loop that draws.

use std::{
    io,
    sync::mpsc::{Receiver, TryRecvError},
    time::{Duration, SystemTime},
};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::{Key, Report, Screen, Wish, hangup};

/// How soon a report is seen that comes while no key is pressed.
const PACE: Duration = Duration::from_millis(50);

/// Shows reports as they come, or why none comes, until a key ends it. The terminal is left as it was found, after a panic, too. Where the
/// terminal goes away, the process ends.
///
/// # Errors
/// The terminal fails.
pub fn run(address: &str, reports: &Receiver<Result<Report, String>>) -> io::Result<()> {
    hangup::ends_the_process()?;
    let mut terminal = ratatui::try_init()?;
    let mut screen = Screen::new(address);
    let done = loop {
        if let Err(error) = terminal.draw(|frame| screen.draw(frame)) {
            break Err(error);
        }
        match next(&mut screen, reports) {
            Ok(Wish::GoOn) => {}
            Ok(Wish::Quit) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    ratatui::try_restore()?;
    done
}

/// Waits until something is to be drawn anew.
fn next(screen: &mut Screen, reports: &Receiver<Result<Report, String>>) -> io::Result<Wish> {
    loop {
        match reports.try_recv() {
            Ok(Ok(report)) => {
                screen.show(report, SystemTime::now());
                return Ok(Wish::GoOn);
            }
            Ok(Err(why)) => {
                screen.fail(&why, SystemTime::now());
                return Ok(Wish::GoOn);
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
        }
        if !event::poll(PACE)? {
            continue;
        }
        match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                let ends =
                    key.modifiers.contains(KeyModifiers::CONTROL) && matches!(key.code, KeyCode::Char('c' | 'd'));
                return Ok(if ends {
                    Wish::Quit
                } else {
                    pressed(key.code).map_or(Wish::GoOn, |key| screen.press(key))
                });
            }
            Event::Resize(..) => return Ok(Wish::GoOn),
            _ => {}
        }
    }
}

fn pressed(code: KeyCode) -> Option<Key> {
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
