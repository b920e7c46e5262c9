//! What the screen shows of the last report, and how keys change that. Draws nothing.

use std::{
    cmp::Ordering,
    time::{Duration, Instant},
};

use crate::{
    columns::{CLIENTS, Column, POOLS},
    names::format_name,
    report::{ClientRow, PoolRow, Report},
};

/// Characters of a filter.
const MAX_FILTER: usize = 64;

/// The screen says that figures are old when a report is late by this. An interval between reports that is shorter
/// counts as this long.
const MAX_LATENESS: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum View {
    /// The pools, and below them the clients that have held servers longest.
    Pools,
    /// All clients that hold a server or wait for one.
    Clients,
    /// The clients whose server is pinned.
    Pinned,
}

/// A key, independent of the terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    Char(char),
    Tab,
    /// Ends the filter's text.
    Enter,
    /// Removes the filter, or ends.
    Escape,
    /// Removes a character of the filter.
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
}

/// What the caller has to do after a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Continue,
    Quit,
}

#[derive(Debug)]
pub struct Screen {
    pub(crate) address: String,
    pub(crate) report: Report,
    /// When the report was made.
    pub(crate) report_at: Option<Instant>,
    /// When the last report came, also on a frozen screen; before the first, when the screen was made.
    last_report_at: Instant,
    /// The screen tells a longer time without a report.
    max_silence: Duration,
    /// The silence, in seconds, that was last drawn.
    pub(crate) drawn_silence_s: Option<u64>,
    /// Why there is no newer report.
    pub(crate) error: Option<String>,
    pub(crate) view: View,
    pub(crate) sort: [Sort; 2],
    pub(crate) filter: String,
    /// Keys write the filter.
    pub(crate) is_editing_filter: bool,
    /// New reports are not shown.
    pub(crate) is_frozen: bool,
    pub(crate) shows_help: bool,
    /// Without colours an alarm is only bold.
    pub(crate) has_colours: bool,
    /// Rows above the first visible one.
    pub(crate) skipped: usize,
    /// Rows of a page when the screen was last drawn.
    pub(crate) page: usize,
}

/// The column by which a table is sorted, and the direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sort {
    pub(crate) column: usize,
    pub(crate) is_reversed: bool,
}

impl Screen {
    /// A screen before the first report. `interval`: the time between two reports.
    pub fn new(address: &str, has_colours: bool, interval: Duration, now: Instant) -> Self {
        let at = |columns: Vec<&str>, head: &str| columns.iter().position(|own| *own == head).expect("a column");
        let by = |column| Sort { column, is_reversed: false };
        let sort = [
            by(at(POOLS.iter().map(|column| column.head).collect(), "WAIT")),
            by(at(CLIENTS.iter().map(|column| column.head).collect(), "FOR")),
        ];
        Self {
            address: format_name(address),
            report: Report::default(),
            report_at: None,
            last_report_at: now,
            max_silence: interval.max(MAX_LATENESS).saturating_add(MAX_LATENESS),
            drawn_silence_s: None,
            error: None,
            view: View::Pools,
            sort,
            filter: String::new(),
            is_editing_filter: false,
            is_frozen: false,
            shows_help: false,
            has_colours,
            skipped: 0,
            page: 1,
        }
    }

    /// Takes a new report.
    pub fn show(&mut self, report: Report, now: Instant) {
        (self.error, self.last_report_at) = (None, now);
        if !self.is_frozen {
            (self.report, self.report_at) = (report, Some(now));
        }
    }

    /// Takes the reason why there is no new report: the last one stays.
    pub fn fail(&mut self, why: &str) {
        self.error = Some(printable::line(why));
    }

    /// The seconds since the last report, if that is longer than usual.
    pub(crate) fn silence_s(&self, now: Instant) -> Option<u64> {
        let silence = now.saturating_duration_since(self.last_report_at);
        (silence >= self.max_silence).then_some(silence.as_secs())
    }

    /// Whether the silence to be drawn has changed.
    pub(crate) fn has_aged(&self, now: Instant) -> bool {
        self.silence_s(now) != self.drawn_silence_s
    }

    pub fn press(&mut self, key: Key) -> Outcome {
        if self.is_editing_filter {
            self.edit_filter(key);
            return Outcome::Continue;
        }
        self.shows_help = key == Key::Char('?') && !self.shows_help;
        match key {
            Key::Char('q') => return Outcome::Quit,
            Key::Escape if self.filter.is_empty() => return Outcome::Quit,
            Key::Escape => self.filter.clear(),
            Key::Char('/') => self.is_editing_filter = true,
            Key::Char(' ') => self.is_frozen = !self.is_frozen,
            Key::Char('s') => self.sort_by_next(1),
            Key::Char('S') => self.sort_by_next(self.column_count() - 1),
            Key::Char('r') => self.sort[self.sort_index()].is_reversed ^= true,
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
        Outcome::Continue
    }

    fn edit_filter(&mut self, key: Key) {
        match key {
            Key::Enter => self.is_editing_filter = false,
            Key::Escape => (self.is_editing_filter, self.filter) = (false, String::new()),
            Key::Backspace => _ = self.filter.pop(),
            Key::Char(c) if self.filter.chars().count() < MAX_FILTER => self.filter.push(c),
            _ => {}
        }
        self.skipped = 0;
    }

    fn turn_to(&mut self, view: View) {
        (self.view, self.skipped) = (view, 0);
    }

    /// The index of the sort in force.
    pub(crate) fn sort_index(&self) -> usize {
        usize::from(self.view != View::Pools)
    }

    fn column_count(&self) -> usize {
        if self.view == View::Pools { POOLS.len() } else { CLIENTS.len() }
    }

    fn sort_by_next(&mut self, steps: usize) {
        let (columns, table) = (self.column_count(), self.sort_index());
        let sort = &mut self.sort[table];
        *sort = Sort { column: (sort.column + steps) % columns, is_reversed: false };
    }

    /// The visible pools, in their order.
    pub(crate) fn pools(&self) -> Vec<&PoolRow> {
        let named =
            |pool: &PoolRow| [&pool.database, &pool.user, &pool.protocol, &pool.address].map(String::as_str).join("\n");
        ordered(self.report.pools.iter(), POOLS, self.sort[0], |pool| self.passes(&named(pool)))
    }

    /// The visible clients: those that have a server before those that wait for one, each in their order.
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
        let mut screen = Screen::new("127.0.0.1:9930", true, MAX_LATENESS, Instant::now());
        screen.show(report, Instant::now());
        screen
    }

    fn pools(screen: &Screen) -> Vec<&str> {
        screen.pools().iter().map(|pool| &*pool.database).collect()
    }

    fn type_keys(screen: &mut Screen, text: &str) {
        text.chars().for_each(|c| assert_eq!(screen.press(Key::Char(c)), Outcome::Continue));
    }

    #[test]
    fn pools_with_most_waiters_and_clients_that_hold_longest_come_first() {
        let screen = screen();
        assert_eq!(pools(&screen), ["Audit", "mail", "shop"]);
        assert_eq!(screen.clients().iter().map(|client| client.id).collect::<Vec<_>>(), [2, 3, 1]);
    }

    #[test]
    fn waiting_clients_stand_behind_holders_however_long_they_wait() {
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
        assert_eq!(screen.press(Key::Escape), Outcome::Continue, "it takes the filter back first");
        assert_eq!(pools(&screen).len(), 3);
        assert_eq!(screen.press(Key::Escape), Outcome::Quit);
    }

    #[test]
    fn q_within_a_filter_is_a_letter() {
        let mut screen = screen();
        type_keys(&mut screen, "/q");
        assert_eq!(screen.filter, "q");
        screen.press(Key::Enter);
        assert_eq!(screen.press(Key::Char('q')), Outcome::Quit);
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
    fn each_second_of_silence_is_told_from_the_second_one_on() {
        let mut screen = screen();
        let heard = screen.last_report_at;
        let told: Vec<_> = (0..5).map(|second| screen.silence_s(heard + Duration::from_millis(second * 999))).collect();
        assert_eq!(told, [None, None, None, Some(2), Some(3)]);
        assert!(screen.has_aged(heard + 2 * MAX_LATENESS) && !screen.has_aged(heard + MAX_LATENESS));
        type_keys(&mut screen, " ");
        screen.show(Report::default(), heard + 9 * MAX_LATENESS);
        assert_eq!(screen.silence_s(heard + 10 * MAX_LATENESS), None, "one that stands still hears answers, too");
        screen.fail("refused");
        assert_eq!(screen.silence_s(heard + 12 * MAX_LATENESS), Some(3), "what went wrong is no answer");
    }

    #[test]
    fn a_long_interval_does_not_count_as_silence() {
        let now = Instant::now();
        let screen = Screen::new("127.0.0.1:9930", true, 10 * MAX_LATENESS, now);
        assert_eq!(
            (screen.silence_s(now + 10 * MAX_LATENESS), screen.silence_s(now + 11 * MAX_LATENESS)),
            (None, Some(11))
        );
        let screen = Screen::new("127.0.0.1:9930", true, MAX_LATENESS / 10, now);
        assert_eq!((screen.silence_s(now + MAX_LATENESS), screen.silence_s(now + 2 * MAX_LATENESS)), (None, Some(2)));
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
