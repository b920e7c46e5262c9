//! Draws a screen into a frame of any size, from 80 columns and 24 rows on without loss. Decides nothing about what is
//! shown.

use std::time::Instant;

use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::{Line, Span},
    widgets::{Paragraph, Row, Table, Wrap},
};

use crate::{
    columns::{CLIENTS, Column, POOLS},
    names::{format_name, text_width},
    numbers::{format_rate, format_time},
    screen::{Screen, Sort, View},
};

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const HEAD: Style = Style::new().add_modifier(Modifier::REVERSED);
const ALARM: Style = BOLD.fg(ratatui::style::Color::Red);

/// Workers whose shares are listed one by one. A longer list would push what follows out of a line of 80 columns.
const MAX_LISTED_WORKERS: usize = 4;

const HELP: &str = "\
WAIT     clients that wait for a server; OLDEST: for how long the first of them has
USE/MAX  servers with a client, of the most that the pool may have
TPS      leases of servers that ended, a second
HOLD     99th percentile of how long servers were held; 60s: or longer
QUEUED   99th percentile of the time to get a server that others had first
CREATED  99th percentile of the time to get a server that had to be made first
FAIL/S   check-outs that failed, a second
STATE    pause, drain: an operator's order; down: the database cannot be reached
PINNED   why a server stays with its client after the transaction

1 2 3 Tab  pools, clients that hold a server or wait, pinned clients
s S        sort by the next column, by the one before
r          turn the order round
/          filter by whatever name contains this; Esc takes it back
up down    move, as do k, j, PageUp and PageDown
space      let the screen stand still
q          end

Only the time since the screen's last change counts in rates and percentiles.
`poolhouse ctl ADMIN_URL kill ID` closes a client.";

impl Screen {
    /// Draws the screen as it is at this time.
    pub fn draw(&mut self, frame: &mut Frame<'_>, now: Instant) {
        self.drawn_silence_s = self.silence_s(now);
        let lines = u16::try_from(self.report.listeners.len().clamp(1, 4)).unwrap_or(1);
        let parts = [Constraint::Length(1), Constraint::Length(lines), Constraint::Min(1), Constraint::Length(1)];
        let [title, listeners, body, foot] = Layout::vertical(parts).areas(frame.area());
        frame.render_widget(self.title(), title);
        frame.render_widget(self.listeners(usize::from(lines)), listeners);
        match self.view {
            _ if self.shows_help => frame.render_widget(Paragraph::new(HELP).wrap(Wrap { trim: false }), body),
            View::Pools => {
                let pools = u16::try_from(self.pools().len()).unwrap_or(u16::MAX).saturating_add(1);
                let most = (body.height * 2 / 3).max(2);
                let parts = [Constraint::Length(pools.min(most)), Constraint::Length(1), Constraint::Min(0)];
                let [above, _, below] = Layout::vertical(parts).areas(body);
                self.draw_rows(frame, above, true);
                self.draw_rows(frame, below, false);
            }
            View::Clients | View::Pinned => self.draw_rows(frame, body, false),
        }
        frame.render_widget(self.foot(now), foot);
    }

    fn alarm(&self) -> Style {
        // A style whose colour is left out would lose the bold, too.
        if self.has_colours { ALARM } else { BOLD }
    }

    /// The text in place of an empty list of clients; `None` below the pools, where there is no room.
    fn describe_empty_list(&self) -> Option<String> {
        let which = match self.view {
            View::Pools => return None,
            View::Clients => "No client holds a server or waits for one",
            View::Pinned => "No client keeps its server after its transaction: none is pinned",
        };
        let filter = if self.filter.is_empty() { "" } else { ", as far as the filter shows them" };
        Some(format!("{which}{filter}."))
    }

    fn title(&self) -> Line<'_> {
        let summary = &self.report.summary;
        let version = if summary.version.is_empty() { String::new() } else { format_name(&summary.version) };
        let mut spans = Vec::new();
        // First in the line, so that nothing pushes it out of sight.
        if let Some(seconds) = self.drawn_silence_s {
            let what = if self.error.is_some() { "figures" } else { "answer" };
            spans.push(Span::styled(format!("no {what} for {seconds} s"), self.alarm()));
            spans.push(Span::raw("  "));
        }
        spans.extend([Span::styled(format!("Poolhouse {version} "), BOLD), Span::raw(&self.address)]);
        if !summary.cpu.is_empty() {
            spans.push(Span::raw(format!("  {}", cpu(&summary.cpu))));
        }
        if summary.accepted_per_s.is_some_and(|rate| rate > 0.0) {
            spans.push(Span::raw(format!("  clients come {}/s", format_rate(summary.accepted_per_s))));
        }
        for (what, per_second) in [
            ("turned away", summary.rejected_per_s),
            ("sent away", summary.evicted_per_s),
            ("failed logins", summary.auth_failures_per_s),
        ] {
            if per_second.is_some_and(|rate| rate > 0.0) {
                spans.push(Span::styled(format!("  {what} {}/s", format_rate(per_second)), self.alarm()));
            }
        }
        if summary.draining {
            spans.push(Span::styled("  draining", self.alarm()));
        }
        if self.is_frozen {
            spans.push(Span::styled("  standing still", BOLD));
        }
        spans.into()
    }

    fn listeners(&self, most: usize) -> Paragraph<'_> {
        let line = |listener: &crate::ListenerRow| {
            let states = ["active", "waiting", "idle", "subscribed", "login"];
            let some =
                states.iter().filter_map(|state| Some((*state, *listener.clients.get(state)?))).filter(|(_, n)| *n > 0);
            let states: Vec<_> = some.map(|(state, n)| format!("{n} {state}")).collect();
            let colon = if states.is_empty() { "" } else { ": " };
            let text = format!(
                "{} {}  clients {} of {}{colon}{}",
                format_name(&listener.protocol),
                format_name(&listener.name),
                listener.total,
                listener.hard_limit,
                states.join(", ")
            );
            let style = if listener.total >= listener.soft_limit { self.alarm() } else { Style::new() };
            Line::styled(text, style)
        };
        let mut lines: Vec<_> = self.report.listeners.iter().take(most).map(line).collect();
        let more = self.report.listeners.len().saturating_sub(most);
        if let Some(last) = lines.last_mut().filter(|_| more > 0) {
            last.push_span(Span::styled(format!("  and {more} more listeners"), DIM));
        }
        Paragraph::new(lines)
    }

    fn foot(&self, now: Instant) -> Line<'_> {
        if self.is_editing_filter {
            return Line::from(vec![Span::styled("filter: ", BOLD), Span::raw(&self.filter), Span::styled("_", BOLD)]);
        }
        if let Some(error) = &self.error {
            let age = self.report_at.map(|at| format!("{} s old: ", now.saturating_duration_since(at).as_secs()));
            return Line::styled(age.unwrap_or_default() + error, self.alarm());
        }
        if self.report_at.is_none() {
            return Line::raw("looking …");
        }
        let views = [(View::Pools, "1 pools"), (View::Clients, "2 clients"), (View::Pinned, "3 pinned")];
        let mut spans = Vec::new();
        for (view, name) in views {
            spans.push(Span::styled(name, if view == self.view { HEAD } else { DIM }));
            spans.push(Span::raw(" "));
        }
        if !self.filter.is_empty() {
            spans.push(Span::styled(format!(" /{} ", self.filter), BOLD));
        }
        if self.view != View::Pools && self.report.more_clients {
            spans.push(Span::styled(format!(" the {} longest alone ", self.report.clients.len()), BOLD));
        }
        spans.push(Span::styled(" s sort  r reverse  / filter  space stop  ? help  q", DIM));
        spans.into()
    }

    fn draw_rows(&mut self, frame: &mut Frame<'_>, area: Rect, is_of_pools: bool) {
        if area.height == 0 {
            return;
        }
        let page = usize::from(area.height - 1).max(1);
        let moves = is_of_pools || self.view != View::Pools;
        if moves {
            self.page = page;
            let rows = if is_of_pools { self.pools().len() } else { self.clients().len() };
            self.skipped = self.skipped.min(rows.saturating_sub(page));
        }
        let seen = if moves { self.skipped..self.skipped + page } else { 0..page };
        let alarm = self.alarm();
        let table = match is_of_pools {
            true => {
                let alarms = |pool: &crate::PoolRow| {
                    pool.waiters > 0 || pool.state != "ready" || pool.failed_per_s.is_some_and(|failed| failed > 0.0)
                };
                let style = |pool: &crate::PoolRow| if alarms(pool) { alarm } else { Style::new() };
                table(POOLS, &self.pools(), seen, area.width, self.sort[0], style)
            }
            false => {
                let style = |client: &crate::ClientRow| match client {
                    client if client.pauses_for_long() => alarm,
                    client if client.waits() => DIM,
                    _ => Style::new(),
                };
                let clients = self.clients();
                if let (true, Some(nothing)) =
                    (clients.is_empty() && self.report_at.is_some(), self.describe_empty_list())
                {
                    return frame.render_widget(Paragraph::new(nothing).wrap(Wrap { trim: false }), area);
                }
                table(CLIENTS, &clients, seen, area.width, self.sort[1], style)
            }
        };
        frame.render_widget(table, area);
    }
}

/// The share of a core that each worker uses, or the range of all shares.
fn cpu(shares: &[f64]) -> String {
    let percent = |share: f64| format!("{:.0}%", (share * 100.0).clamp(0.0, 9_999.0));
    if shares.len() > MAX_LISTED_WORKERS {
        let (least, most) =
            shares.iter().fold((f64::MAX, 0.0_f64), |(least, most), one| (least.min(*one), most.max(*one)));
        return format!("CPU of {} workers {} to {}", shares.len(), percent(least), percent(most));
    }
    format!("workers' CPU {}", shares.iter().map(|share| percent(*share)).collect::<Vec<_>>().join(" "))
}

/// As many columns as fit; names take what is left of the width.
fn table<'t, R>(
    columns: &'static [Column<R>],
    rows: &[&R],
    seen: std::ops::Range<usize>,
    width: u16,
    sort: Sort,
    style: impl Fn(&R) -> Style,
) -> Table<'t> {
    let rows: Vec<&R> = rows.iter().skip(seen.start).take(seen.len()).copied().collect();
    // A number without its first digits would be another one.
    let wide = |column: &Column<R>| {
        let cells = rows.iter().map(|row| column.cell(row).chars().count() as u16).filter(|_| column.is_number());
        cells.max().unwrap_or(0).max(column.width)
    };
    let mut used = 0;
    let fit = columns.iter().take_while(|column| {
        used += wide(column) + u16::from(used > 0);
        used <= width
    });
    let fit = fit.count().max(1);
    let columns = &columns[..fit];
    let cell = |text: String, column: &Column<R>| {
        let alignment = if column.is_number() { Alignment::Right } else { Alignment::Left };
        Line::from(text).alignment(alignment)
    };
    let head = columns.iter().enumerate().map(|(n, column)| {
        let style = if n == sort.column { BOLD.add_modifier(Modifier::UNDERLINED) } else { Style::new() };
        cell(column.head.to_owned(), column).style(style)
    });
    let body =
        rows.iter().map(|row| Row::new(columns.iter().map(|column| cell(column.cell(row), column))).style(style(row)));
    let widths = columns.iter().map(|column| match column.is_number() {
        true => Constraint::Length(wide(column)),
        false => Constraint::Min(column.width),
    });
    let widths: Vec<_> = widths.collect();
    Table::new(body.collect::<Vec<_>>(), widths).header(Row::new(head).style(HEAD)).column_spacing(1)
}

/// A report as lines for people, without a terminal.
impl crate::Report {
    /// A table of the pools and one of the clients.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        for listener in &self.listeners {
            let (protocol, name) = (format_name(&listener.protocol), format_name(&listener.name));
            text += &format!("{protocol} {name}  clients {} of {}\n", listener.total, listener.hard_limit);
        }
        text += "\n";
        text += &plain(POOLS, &self.pools);
        if !self.clients.is_empty() {
            let longest = self.clients.iter().map(|client| client.state_ms).fold(0.0, f64::max);
            let (many, longest) = (self.clients.len(), format_time(Some(longest)));
            text += &match self.more_clients {
                true => format!("\nthe {many} that hold a server or wait longest, the first for {longest}\n"),
                false => format!("\n{many} hold a server or wait, the first for {longest}\n"),
            };
            text += &plain(CLIENTS, &self.clients);
        }
        text
    }
}

fn plain<R>(columns: &[Column<R>], rows: &[R]) -> String {
    let head = columns.iter().map(|column| column.head.to_owned()).collect::<Vec<_>>();
    let cells = rows.iter().map(|row| columns.iter().map(|column| column.cell(row)).collect::<Vec<_>>());
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(cells).collect();
    let widths: Vec<usize> =
        (0..columns.len()).map(|n| lines.iter().map(|line| text_width(&line[n])).max().unwrap_or(0)).collect();
    let line = |cells: &Vec<String>| {
        let padded = cells.iter().zip(&widths).zip(columns).map(|((cell, most), column)| {
            let blanks = " ".repeat(most - text_width(cell));
            if column.is_number() { blanks + cell } else { format!("{cell}{blanks}") }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::{Terminal, backend::TestBackend, buffer::Cell};

    use super::*;
    use crate::{ClientRow, Key, ListenerRow, PoolRow, Report, Summary};

    fn report(pools: usize, clients: usize) -> Report {
        let pool = |n: usize| PoolRow {
            database: format!("database{n}"),
            user: "app".to_owned(),
            state: "ready",
            waiters: n as u64,
            in_use: 3,
            max_size: 20,
            transactions_per_s: Some(12_345.0),
            hold_p99_ms: Some(1.234),
            failed_per_s: Some(0.0),
            ..PoolRow::default()
        };
        let client = |n: usize| ClientRow {
            id: n as u64,
            state: "transaction".to_owned(),
            state_ms: n as f64,
            database: "shop".to_owned(),
            pinned: n.is_multiple_of(2).then(|| "listen".to_owned()),
            address: "10.0.0.5:40000".to_owned(),
            ..ClientRow::default()
        };
        let listener = ListenerRow {
            name: "0.0.0.0:6432".to_owned(),
            protocol: "postgres".to_owned(),
            clients: [("active", 3), ("idle", 1000)].into(),
            total: 1003,
            soft_limit: 8000,
            hard_limit: 10_000,
        };
        Report {
            summary: Summary {
                version: "0.1.0".to_owned(),
                cpu: vec![0.31, 0.28],
                evicted_per_s: Some(2.0),
                ..Summary::default()
            },
            listeners: vec![listener],
            pools: (0..pools).map(pool).collect(),
            clients: (0..clients).map(client).collect(),
            more_clients: false,
        }
    }

    fn drawn(width: u16, height: u16, keys: &[Key]) -> Vec<String> {
        drawn_of(report(100, 200), width, height, keys)
    }

    fn drawn_of(report: Report, width: u16, height: u16, keys: &[Key]) -> Vec<String> {
        let now = Instant::now();
        let mut screen = Screen::new("127.0.0.1:9930", true, Duration::from_secs(1), now);
        screen.show(report, now);
        lines(&mut screen, width, height, now);
        for key in keys {
            screen.press(*key);
            lines(&mut screen, width, height, now);
        }
        lines(&mut screen, width, height, now)
    }

    fn cells(screen: &mut Screen, width: u16, height: u16, now: Instant) -> Vec<Cell> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame, now)).unwrap();
        terminal.backend().buffer().content().to_vec()
    }

    fn lines(screen: &mut Screen, width: u16, height: u16, now: Instant) -> Vec<String> {
        let cells = cells(screen, width, height, now);
        cells.chunks(usize::from(width)).map(|row| row.iter().map(Cell::symbol).collect()).collect()
    }

    /// The index of the line with the heads of the clients.
    fn clients_head(lines: &[String]) -> usize {
        lines.iter().position(|line| line.starts_with("  FOR ")).expect("the clients")
    }

    #[test]
    fn eighty_columns_show_what_matters_of_pools_and_of_holders() {
        let lines = drawn(80, 24, &[]);
        assert_eq!(lines[0].trim_end(), "Poolhouse 0.1.0 127.0.0.1:9930  workers' CPU 31% 28%  sent away 2.0/s");
        assert_eq!(lines[1].trim_end(), "postgres 0.0.0.0:6432  clients 1003 of 10000: 3 active, 1000 idle");
        let heads = "DATABASE USER WAIT OLDEST USE/MAX TPS HOLD QUEUED CREATED FAIL/S STATE";
        assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), heads.split(' ').collect::<Vec<_>>());
        let cells: Vec<_> = lines[3].split_whitespace().collect();
        assert_eq!(cells, ["database99", "app", "99", "-", "3/20", "12345", "1.2ms", "-", "-", "0", "ready"]);
        let first = &lines[clients_head(&lines) + 1];
        assert!(first.starts_with("199ms    199 transaction"), "{first}");
    }

    #[test]
    fn the_header_tells_that_figures_are_old_and_the_foot_why() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut screen = Screen::new(&"long.name.".repeat(12), true, Duration::from_secs(1), began);
        let head_and_foot = |screen: &mut Screen, seconds| {
            let lines = lines(screen, 80, 24, at(seconds));
            (lines[0].clone(), lines[23].clone())
        };
        let (head, _) = head_and_foot(&mut screen, 4);
        assert!(head.starts_with("no answer for 4 s  Poolhouse "), "before the first answer, too: {head}");
        screen.show(report(3, 3), at(5));
        assert!(head_and_foot(&mut screen, 6).0.starts_with("Poolhouse 0.1.0 "));
        let (head, foot) = head_and_foot(&mut screen, 9);
        assert!(head.starts_with("no answer for 4 s  Poolhouse 0.1.0 "), "{head}");
        assert!(foot.starts_with("1 pools"), "keys still work: {foot}");
        screen.fail("no \u{1b}[2J\u{202e}answer");
        let (head, foot) = head_and_foot(&mut screen, 15);
        assert!(head.starts_with("no figures for 10 s  Poolhouse "), "{head}");
        assert!(foot.starts_with("10 s old: no \u{fffd}[2J\u{fffd}answer"), "{foot}");
        assert!(head_and_foot(&mut screen, 21).1.starts_with("16 s old: "), "the age grows");
        screen.show(report(3, 3), at(21));
        assert!(head_and_foot(&mut screen, 21).0.starts_with("Poolhouse 0.1.0 "));
    }

    #[test]
    fn a_page_down_shows_the_rows_that_follow_and_ends_with_the_last_one() {
        let age = |pages: usize, row: usize| {
            let keys = [vec![Key::Char('2')], vec![Key::PageDown; pages]].concat();
            drawn(100, 24, &keys)[row].split_whitespace().next().unwrap().to_owned()
        };
        assert_eq!((age(0, 3), age(1, 3), age(20, 22)), ("199ms".to_owned(), "179ms".to_owned(), "0us".to_owned()));
    }

    #[test]
    fn a_number_keeps_all_its_digits() {
        let mut report = report(1, 1);
        (report.clients[0].id, report.pools[0].waiters) = (1_234_567_890, 123_456);
        let text = drawn_of(report, 80, 24, &[]).concat();
        assert!(text.contains(" 1234567890 ") && text.contains(" 123456 "), "{text}");
    }

    #[test]
    fn an_empty_list_of_clients_says_so() {
        for (key, text) in [('3', "No client keeps its server"), ('2', "No client holds a server")] {
            let lines = drawn_of(report(1, 0), 80, 24, &[Key::Char(key)]);
            assert!(lines[2].starts_with(text), "{lines:?}");
        }
    }

    #[test]
    fn in_eighty_columns_a_holder_is_seen_before_waiting_clients() {
        let mut report = report(1, 60);
        for client in report.clients.iter_mut().skip(1) {
            (client.state, client.state_ms) = ("waiting".to_owned(), 60_000.0);
        }
        report.clients[0].state_ms = 39_500.0;
        let lines = drawn_of(report, 80, 24, &[]);
        let head = clients_head(&lines);
        assert!(lines[head + 1].contains("transaction") && lines[head + 2].contains("waiting"), "{lines:?}");
    }

    #[test]
    fn the_filter_in_force_is_seen_in_eighty_columns() {
        let lines = drawn(80, 24, &[Key::Char('/'), Key::Char('x'), Key::Enter]);
        assert!(lines[23].starts_with("1 pools 2 clients 3 pinned  /x "), "{}", lines[23]);
    }

    #[test]
    fn a_window_of_any_size_is_drawn() {
        for (width, height) in [(1, 1), (3, 2), (20, 5), (80, 3), (300, 100)] {
            for view in ['1', '2', '3', '?'] {
                drawn(width, height, &[Key::Char(view), Key::PageDown]);
            }
        }
    }

    #[test]
    fn untrusted_text_steers_no_terminal() {
        let mut report = report(1, 1);
        let evil = || "a\u{1b}[2J\u{202e}\u{200b}b".to_owned();
        (report.summary.version, report.listeners[0].protocol, report.listeners[0].name) = (evil(), evil(), evil());
        (report.pools[0].database, report.pools[0].address, report.clients[0].state) = (evil(), evil(), evil());
        let printed = report.lines();
        let now = Instant::now();
        let mut screen = Screen::new("127.0.0.1:9930", true, Duration::from_secs(1), now);
        screen.show(report, now);
        screen.fail(&evil());
        for (text, names) in [(lines(&mut screen, 200, 24, now).concat(), 7), (printed.replace('\n', ""), 5)] {
            assert!(!text.contains(printable::steers), "{text:?}");
            assert_eq!(text.matches("a\u{fffd}[2J\u{fffd}\u{fffd}b").count(), names, "{text}");
        }
    }

    #[test]
    fn an_alarm_is_seen_beside_many_workers_in_eighty_columns() {
        let mut report = report(1, 1);
        report.summary.cpu = (0..64).map(|n| n as f64 / 100.0).collect();
        let lines = drawn_of(report, 80, 24, &[]);
        let title = "Poolhouse 0.1.0 127.0.0.1:9930  CPU of 64 workers 0% to 63%  sent away 2.0/s";
        assert_eq!(lines[0].trim_end(), title);
    }

    #[test]
    fn alarms_are_seen_without_colours() {
        for has_colours in [true, false] {
            let now = Instant::now();
            let mut screen = Screen::new("127.0.0.1:9930", has_colours, Duration::from_secs(1), now);
            screen.show(report(3, 3), now);
            let cells = cells(&mut screen, 80, 24, now);
            let colours = cells.iter().filter(|cell| cell.fg != ratatui::style::Color::Reset).count();
            assert_eq!(colours > 0, has_colours);
            assert!(cells[80 * 3].modifier.contains(Modifier::BOLD), "a pool with waiters");
        }
    }

    #[test]
    fn columns_stay_in_line_in_every_script() {
        let mut report = report(2, 0);
        report.pools[1].database = "数据库".to_owned();
        let text = report.lines();
        let users = text.lines().filter_map(|line| Some(text_width(&line[..line.find(" app ")?])));
        let users: Vec<_> = users.collect();
        assert!(users.len() == 2 && users[0] == users[1], "{text}");
    }

    #[test]
    fn a_cut_list_says_so() {
        let mut report = report(1, 5);
        report.more_clients = true;
        let text = report.lines();
        assert!(text.contains("\nthe 5 that hold a server or wait longest, the first for 4.0ms\n"), "{text}");
        let lines = drawn_of(report, 80, 24, &[Key::Char('2')]);
        assert!(lines[23].starts_with("1 pools 2 clients 3 pinned  the 5 longest alone "), "{}", lines[23]);
    }

    #[test]
    fn the_printed_table_has_all_columns() {
        let text = report(2, 1).lines();
        assert!(text.contains("ADDRESS") && text.contains("NEW/MIN"), "{text}");
        assert!(text.contains("\n1 hold a server or wait, the first for 0us\n"), "{text}");
    }
}
