//! What the screen shows of the last report, and what keys change about that. Draws nothing.

use std::{
    cmp::Ordering,
    time::{Duration, Instant},
};

use crate::{
    columns::{CLIENTS, Column, POOLS},
    foreign::name,
    report::{ClientRow, PoolRow, Report},
};

/// Characters of a filter.
const MAX_FILTER: usize = 64;

/// Figures are told to be old when no others have come for the time between two looks, or this if that is less, and
/// this besides.
const LATE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum View {
    /// The pools, and below them who holds servers longest.
    Pools,
    /// All clients that hold a server or wait for one.
    Clients,
    /// Those alone whose server is pinned.
    Pinned,
}

/// A key, whatever terminal it comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    Char(char),
    Tab,
    /// Ends the filter's text.
    Enter,
    /// Takes the filter back, or ends.
    Escape,
    /// Takes a character back.
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
}

/// What a key asks of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    GoOn,
    Quit,
}

#[derive(Debug)]
pub struct Screen {
    pub(crate) address: String,
    pub(crate) report: Report,
    /// When the report was made.
    pub(crate) at: Option<Instant>,
    /// When the last one came, though the screen stands still; before the first, when it was begun.
    heard: Instant,
    /// After so long without another one it is told.
    patience: Duration,
    /// What was told of that when it was last drawn.
    pub(crate) told: Option<u64>,
    /// Why there is no newer report.
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
    /// Before the first report. `every` is the time between two.
    pub fn new(address: &str, has_colours: bool, every: Duration, now: Instant) -> Self {
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
            heard: now,
            patience: every.max(LATE).saturating_add(LATE),
            told: None,
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
        (self.trouble, self.heard) = (None, now);
        if !self.is_frozen {
            (self.report, self.at) = (report, Some(now));
        }
    }

    /// There is none: the last one stays.
    pub fn fail(&mut self, why: &str) {
        self.trouble = Some(printable::line(why));
    }

    /// For how many seconds nothing new has come, if that is longer than usual.
    pub(crate) fn silence(&self, now: Instant) -> Option<u64> {
        let silence = now.saturating_duration_since(self.heard);
        (silence >= self.patience).then_some(silence.as_secs())
    }

    /// Whether something is to be drawn that only time has changed.
    pub(crate) fn has_aged(&self, now: Instant) -> bool {
        self.silence(now) != self.told
    }

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

    /// The clients that are to be seen: who has a server before who waits for one, each in their order.
    pub(crate) fn clients(&self) -> Vec<&ClientRow> {
        let named = |client: &ClientRow| {
            let pinned = client.pinned.as_deref().unwrap_or_default();
            let own = [&client.database, &client.user, &client.protocol, &client.address, &client.state];
            own.map(String::as_str).join("\n") + "\n" + pinned
        };
        let only_pinned = self.view == View::Pinned;
        let is_seen = |client: &ClientRow| (!only_pinned || client.pinned.is_some()) && self.passes(&named(client));
        let mut clients = ordered(self.report.clients.iter(), CLIENTS, self.sort[1], is_seen);
        clients.sort_by_key(|client| client.waits());
        clients
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
        let mut screen = Screen::new("127.0.0.1:9930", true, LATE, Instant::now());
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
    fn who_waits_stands_behind_who_holds_however_long() {
        let mut screen = screen();
        let waiting = |id| ClientRow { id, state: "waiting".to_owned(), state_ms: 90_000.0, ..ClientRow::default() };
        screen.report.clients.splice(0..0, [waiting(7), waiting(8)]);
        assert_eq!(screen.clients().iter().map(|client| client.id).collect::<Vec<_>>(), [2, 3, 1, 7, 8]);
        type_keys(&mut screen, "2r");
        assert_eq!(screen.clients().iter().map(|client| client.id).collect::<Vec<_>>(), [1, 3, 2, 7, 8]);
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
    fn two_seconds_without_an_answer_are_told_and_each_that_follows() {
        let mut screen = screen();
        let heard = screen.heard;
        let told: Vec<_> = (0..5).map(|second| screen.silence(heard + Duration::from_millis(second * 999))).collect();
        assert_eq!(told, [None, None, None, Some(2), Some(3)]);
        assert!(screen.has_aged(heard + 2 * LATE) && !screen.has_aged(heard + LATE));
        type_keys(&mut screen, " ");
        screen.show(Report::default(), heard + 9 * LATE);
        assert_eq!(screen.silence(heard + 10 * LATE), None, "one that stands still hears answers, too");
        screen.fail("refused");
        assert_eq!(screen.silence(heard + 12 * LATE), Some(3), "what went wrong is no answer");
    }

    #[test]
    fn who_looks_seldom_is_not_told_that_figures_are_as_old_as_that() {
        let now = Instant::now();
        let screen = Screen::new("127.0.0.1:9930", true, 10 * LATE, now);
        assert_eq!((screen.silence(now + 10 * LATE), screen.silence(now + 11 * LATE)), (None, Some(11)));
        let screen = Screen::new("127.0.0.1:9930", true, LATE / 10, now);
        assert_eq!((screen.silence(now + LATE), screen.silence(now + 2 * LATE)), (None, Some(2)));
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
