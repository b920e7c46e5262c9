//! What the screen shows of the last report, and what keys change about that. Draws nothing.

use std::{cmp::Ordering, time::Instant};

use crate::{
    columns::{CLIENTS, Column, POOLS},
    foreign::name,
    report::{ClientRow, PoolRow, Report},
};

/// Characters of a filter.
const MAX_FILTER: usize = 64;

/// What is listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum View {
    /// The pools, and below them who holds servers longest.
    Pools,
    /// Everybody who holds a server or waits for one.
    Clients,
    /// Those alone whose server is pinned.
    Pinned,
}

/// A key, whatever terminal it comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// One that writes.
    Char(char),
    /// The next view.
    Tab,
    /// Ends the filter's text.
    Enter,
    /// Takes the filter back, or ends.
    Escape,
    /// Takes a character back.
    Backspace,
    /// A row up.
    Up,
    /// A row down.
    Down,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
}

/// What a key asks of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Go on.
    GoOn,
    /// End.
    Quit,
}

/// See the file's head.
#[derive(Debug)]
pub struct Screen {
    /// Where it looks.
    pub(crate) address: String,
    pub(crate) report: Report,
    /// When the report was made.
    pub(crate) at: Option<Instant>,
    /// Why there is no newer report, and how old the present one is.
    pub(crate) trouble: Option<String>,
    pub(crate) view: View,
    pub(crate) sort: [Sort; 2],
    pub(crate) filter: String,
    /// The filter is being written.
    pub(crate) is_writing: bool,
    /// The report stands still.
    pub(crate) is_frozen: bool,
    pub(crate) shows_help: bool,
    /// Where colours are not wanted, what is bold must do.
    pub(crate) has_colours: bool,
    /// Rows that are above the screen.
    pub(crate) skipped: usize,
    /// Rows of a page when it was last drawn.
    pub(crate) page: usize,
}

/// By which column a table is sorted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sort {
    pub(crate) column: usize,
    pub(crate) is_reversed: bool,
}

impl Screen {
    /// Before the first report.
    pub fn new(address: &str, has_colours: bool) -> Self {
        let at = |columns: Vec<&str>, head: &str| columns.iter().position(|own| *own == head).expect("a column");
        let by = |column| Sort { column, is_reversed: false };
        let sort = [
            by(at(POOLS.iter().map(|column| column.head).collect(), "WAIT")),
            by(at(CLIENTS.iter().map(|column| column.head).collect(), "FOR")),
        ];
        Self {
            address: name(address),
            report: Report::default(),
            at: None,
            trouble: None,
            view: View::Pools,
            sort,
            filter: String::new(),
            is_writing: false,
            is_frozen: false,
            shows_help: false,
            has_colours,
            skipped: 0,
            page: 1,
        }
    }

    /// There is a newer report.
    pub fn show(&mut self, report: Report, now: Instant) {
        self.trouble = None;
        if !self.is_frozen {
            (self.report, self.at) = (report, Some(now));
        }
    }

    /// There is none: the last one stays.
    pub fn fail(&mut self, why: &str, now: Instant) {
        let why = printable::line(why);
        self.trouble = Some(match self.at {
            Some(at) => format!("{} s old: {why}", now.saturating_duration_since(at).as_secs()),
            None => why,
        });
    }

    /// A key was pressed.
    pub fn press(&mut self, key: Key) -> Wish {
        if self.is_writing {
            self.write(key);
            return Wish::GoOn;
        }
        self.shows_help = key == Key::Char('?') && !self.shows_help;
        match key {
            Key::Char('q') => return Wish::Quit,
            Key::Escape if self.filter.is_empty() => return Wish::Quit,
            Key::Escape => self.filter.clear(),
            Key::Char('/') => self.is_writing = true,
            Key::Char(' ') => self.is_frozen = !self.is_frozen,
            Key::Char('s') => self.sort_by_next(1),
            Key::Char('S') => self.sort_by_next(self.columns() - 1),
            Key::Char('r') => self.sort[self.table()].is_reversed ^= true,
            Key::Char('1') => self.turn_to(View::Pools),
            Key::Char('2') => self.turn_to(View::Clients),
            Key::Char('3') => self.turn_to(View::Pinned),
            Key::Tab => self.turn_to(match self.view {
                View::Pools => View::Clients,
                View::Clients => View::Pinned,
                View::Pinned => View::Pools,
            }),
            Key::Up | Key::Char('k') => self.skipped = self.skipped.saturating_sub(1),
            Key::Down | Key::Char('j') => self.skipped += 1,
            Key::PageUp => self.skipped = self.skipped.saturating_sub(self.page),
            Key::PageDown => self.skipped += self.page,
            Key::Enter | Key::Backspace | Key::Char(_) => {}
        }
        Wish::GoOn
    }

    fn write(&mut self, key: Key) {
        match key {
            Key::Enter => self.is_writing = false,
            Key::Escape => (self.is_writing, self.filter) = (false, String::new()),
            Key::Backspace => _ = self.filter.pop(),
            Key::Char(c) if self.filter.chars().count() < MAX_FILTER => self.filter.push(c),
            _ => {}
        }
        self.skipped = 0;
    }

    fn turn_to(&mut self, view: View) {
        (self.view, self.skipped) = (view, 0);
    }

    /// Which of the sorts is in force.
    pub(crate) fn table(&self) -> usize {
        usize::from(self.view != View::Pools)
    }

    fn columns(&self) -> usize {
        if self.view == View::Pools { POOLS.len() } else { CLIENTS.len() }
    }

    fn sort_by_next(&mut self, steps: usize) {
        let columns = self.columns();
        let sort = &mut self.sort[usize::from(self.view != View::Pools)];
        *sort = Sort { column: (sort.column + steps) % columns, is_reversed: false };
    }

    /// The pools that are to be seen, in their order.
    pub(crate) fn pools(&self) -> Vec<&PoolRow> {
        let named =
            |pool: &PoolRow| [&pool.database, &pool.user, &pool.protocol, &pool.address].map(String::as_str).join("\n");
        ordered(self.report.pools.iter(), POOLS, self.sort[0], |pool| self.passes(&named(pool)))
    }

    /// The clients that are to be seen, in their order.
    pub(crate) fn clients(&self) -> Vec<&ClientRow> {
        let named = |client: &ClientRow| {
            let pinned = client.pinned.as_deref().unwrap_or_default();
            let own = [&client.database, &client.user, &client.protocol, &client.address, &client.state];
            own.map(String::as_str).join("\n") + "\n" + pinned
        };
        let only_pinned = self.view == View::Pinned;
        let is_seen = |client: &ClientRow| (!only_pinned || client.pinned.is_some()) && self.passes(&named(client));
        ordered(self.report.clients.iter(), CLIENTS, self.sort[1], is_seen)
    }

    fn passes(&self, names: &str) -> bool {
        self.filter.is_empty() || names.to_lowercase().contains(&self.filter.to_lowercase())
    }
}

fn ordered<'r, R>(
    rows: impl Iterator<Item = &'r R>,
    columns: &[Column<R>],
    sort: Sort,
    is_seen: impl Fn(&R) -> bool,
) -> Vec<&'r R> {
    let mut seen: Vec<&R> = rows.filter(|row| is_seen(row)).collect();
    let order = |a: &&R, b: &&R| -> Ordering {
        let order = columns[sort.column].order(a, b);
        if sort.is_reversed { order.reverse() } else { order }
    };
    seen.sort_by(order);
    seen
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn screen() -> Screen {
        let pool = |database: &str, waiters| PoolRow { database: database.to_owned(), waiters, ..PoolRow::default() };
        let client = |id, state_ms, pinned: Option<&str>| ClientRow {
            id,
            state_ms,
            pinned: pinned.map(str::to_owned),
            ..ClientRow::default()
        };
        let report = Report {
            pools: vec![pool("shop", 0), pool("Audit", 7), pool("mail", 2)],
            clients: vec![client(1, 5.0, None), client(2, 900.0, Some("listen")), client(3, 70.0, None)],
            ..Report::default()
        };
        let mut screen = Screen::new("127.0.0.1:9930", true);
        screen.show(report, Instant::now());
        screen
    }

    fn pools(screen: &Screen) -> Vec<&str> {
        screen.pools().iter().map(|pool| &*pool.database).collect()
    }

    fn type_keys(screen: &mut Screen, text: &str) {
        text.chars().for_each(|c| assert_eq!(screen.press(Key::Char(c)), Wish::GoOn));
    }

    #[test]
    fn pools_with_most_waiters_and_clients_that_hold_longest_come_first() {
        let screen = screen();
        assert_eq!(pools(&screen), ["Audit", "mail", "shop"]);
        assert_eq!(screen.clients().iter().map(|client| client.id).collect::<Vec<_>>(), [2, 3, 1]);
    }

    #[test]
    fn s_sorts_by_the_next_column_and_r_turns_the_order_round() {
        let mut screen = screen();
        let steps = POOLS.len() - screen.sort[0].column;
        type_keys(&mut screen, &"s".repeat(steps));
        assert_eq!(pools(&screen), ["Audit", "mail", "shop"], "by the name of the database");
        type_keys(&mut screen, "r");
        assert_eq!(pools(&screen), ["shop", "mail", "Audit"]);
        type_keys(&mut screen, "sS");
        assert_eq!(pools(&screen), ["Audit", "mail", "shop"], "a column is sorted anew in its own order");
    }

    #[test]
    fn a_filter_keeps_what_contains_it_whatever_the_case() {
        let mut screen = screen();
        type_keys(&mut screen, "/au");
        assert_eq!(pools(&screen), ["Audit"]);
        screen.press(Key::Backspace);
        assert_eq!(pools(&screen), ["Audit", "mail"]);
        screen.press(Key::Enter);
        assert_eq!(screen.press(Key::Escape), Wish::GoOn, "it takes the filter back first");
        assert_eq!(pools(&screen).len(), 3);
        assert_eq!(screen.press(Key::Escape), Wish::Quit);
    }

    #[test]
    fn q_within_a_filter_is_a_letter() {
        let mut screen = screen();
        type_keys(&mut screen, "/q");
        assert_eq!(screen.filter, "q");
        screen.press(Key::Enter);
        assert_eq!(screen.press(Key::Char('q')), Wish::Quit);
    }

    #[test]
    fn the_third_view_has_pinned_clients_alone() {
        let mut screen = screen();
        screen.press(Key::Tab);
        screen.press(Key::Tab);
        assert_eq!(screen.view, View::Pinned);
        assert_eq!(screen.clients().iter().map(|client| client.id).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn how_old_a_report_is_stands_before_the_trouble_which_cannot_steer_the_terminal() {
        let mut screen = screen();
        screen.fail("no \u{1b}[2J\u{202e}answer", screen.at.unwrap() + Duration::from_secs(7));
        assert_eq!(screen.trouble.as_deref(), Some("7 s old: no \u{fffd}[2J\u{fffd}answer"));
    }

    #[test]
    fn a_frozen_screen_keeps_its_report() {
        let mut screen = screen();
        type_keys(&mut screen, " ");
        screen.show(Report::default(), Instant::now());
        assert_eq!(screen.report.pools.len(), 3);
        type_keys(&mut screen, " ");
        screen.show(Report::default(), Instant::now());
        assert_eq!(screen.report.pools.len(), 0);
    }
}
