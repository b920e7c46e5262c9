//! Draws a screen into a frame of whatever size, from 80 columns and 24 rows on without loss. Decides nothing about
//! what is shown.

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
    foreign::{name, width},
    screen::{Screen, Sort, View},
    words::{rate, time},
};

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const HEAD: Style = Style::new().add_modifier(Modifier::REVERSED);
const ALARM: Style = BOLD.fg(ratatui::style::Color::Red);

/// Workers whose shares stand one by one. Those of more would push what follows them out of a line of 80 columns.
const FEW_WORKERS: usize = 4;

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
    /// Draws it as it is at this time.
    pub fn draw(&mut self, frame: &mut Frame<'_>, now: Instant) {
        self.told = self.silence(now);
        let doors = u16::try_from(self.report.listeners.len().clamp(1, 4)).unwrap_or(1);
        let parts = [Constraint::Length(1), Constraint::Length(doors), Constraint::Min(1), Constraint::Length(1)];
        let [title, listeners, body, foot] = Layout::vertical(parts).areas(frame.area());
        frame.render_widget(self.title(), title);
        frame.render_widget(self.listeners(usize::from(doors)), listeners);
        match self.view {
            _ if self.shows_help => frame.render_widget(Paragraph::new(HELP).wrap(Wrap { trim: false }), body),
            View::Pools => {
                let pools = u16::try_from(self.pools().len()).unwrap_or(u16::MAX).saturating_add(1);
                let most = (body.height * 2 / 3).max(2);
                let parts = [Constraint::Length(pools.min(most)), Constraint::Length(1), Constraint::Min(0)];
                let [above, _, below] = Layout::vertical(parts).areas(body);
                self.list(frame, above, true);
                self.list(frame, below, false);
            }
            View::Clients | View::Pinned => self.list(frame, body, false),
        }
        frame.render_widget(self.foot(now), foot);
    }

    fn alarm(&self) -> Style {
        // A colour that the terminal is not told would take what is bold with it.
        if self.has_colours { ALARM } else { BOLD }
    }

    /// What a list of clients says that has none; `None`: below the pools there is no room for words.
    fn nothing(&self) -> Option<String> {
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
        let version = if summary.version.is_empty() { String::new() } else { name(&summary.version) };
        let mut spans = Vec::new();
        // Before all else: whatever else there is must not push it out of sight.
        if let Some(seconds) = self.told {
            let what = if self.trouble.is_some() { "figures" } else { "answer" };
            spans.push(Span::styled(format!("no {what} for {seconds} s"), self.alarm()));
            spans.push(Span::raw("  "));
        }
        spans.extend([Span::styled(format!("Poolhouse {version} "), BOLD), Span::raw(&self.address)]);
        if !summary.cpu.is_empty() {
            spans.push(Span::raw(format!("  {}", cpu(&summary.cpu))));
        }
        if summary.accepted_per_s.is_some_and(|rate| rate > 0.0) {
            spans.push(Span::raw(format!("  clients come {}/s", rate(summary.accepted_per_s))));
        }
        for (what, per_second) in [
            ("turned away", summary.rejected_per_s),
            ("sent away", summary.evicted_per_s),
            ("failed logins", summary.auth_failures_per_s),
        ] {
            if per_second.is_some_and(|rate| rate > 0.0) {
                spans.push(Span::styled(format!("  {what} {}/s", rate(per_second)), self.alarm()));
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
        let line = |door: &crate::Door| {
            let states = ["active", "waiting", "idle", "subscribed", "login"];
            let some =
                states.iter().filter_map(|state| Some((*state, *door.clients.get(state)?))).filter(|(_, n)| *n > 0);
            let states: Vec<_> = some.map(|(state, n)| format!("{n} {state}")).collect();
            let colon = if states.is_empty() { "" } else { ": " };
            let text = format!(
                "{} {}  clients {} of {}{colon}{}",
                name(&door.protocol),
                name(&door.name),
                door.total,
                door.hard_limit,
                states.join(", ")
            );
            let style = if door.total >= door.soft_limit { self.alarm() } else { Style::new() };
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
        if self.is_writing {
            return Line::from(vec![Span::styled("filter: ", BOLD), Span::raw(&self.filter), Span::styled("_", BOLD)]);
        }
        if let Some(trouble) = &self.trouble {
            let age = self.at.map(|at| format!("{} s old: ", now.saturating_duration_since(at).as_secs()));
            return Line::styled(age.unwrap_or_default() + trouble, self.alarm());
        }
        if self.at.is_none() {
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

    fn list(&mut self, frame: &mut Frame<'_>, area: Rect, pools: bool) {
        if area.height == 0 {
            return;
        }
        let page = usize::from(area.height - 1).max(1);
        let moves = pools || self.view != View::Pools;
        if moves {
            self.page = page;
            let rows = if pools { self.pools().len() } else { self.clients().len() };
            self.skipped = self.skipped.min(rows.saturating_sub(page));
        }
        let seen = if moves { self.skipped..self.skipped + page } else { 0..page };
        let alarm = self.alarm();
        let table = match pools {
            true => {
                let alarms = |pool: &crate::PoolRow| {
                    pool.waiters > 0 || pool.state != "ready" || pool.failed_per_s.is_some_and(|failed| failed > 0.0)
                };
                let style = |pool: &crate::PoolRow| if alarms(pool) { alarm } else { Style::new() };
                table(POOLS, &self.pools(), seen, area.width, self.sort[0], style)
            }
            false => {
                let style = |client: &crate::ClientRow| match client {
                    client if client.is_forgotten() => alarm,
                    client if client.waits() => DIM,
                    _ => Style::new(),
                };
                let clients = self.clients();
                if let (true, Some(nothing)) = (clients.is_empty() && self.at.is_some(), self.nothing()) {
                    return frame.render_widget(Paragraph::new(nothing).wrap(Wrap { trim: false }), area);
                }
                table(CLIENTS, &clients, seen, area.width, self.sort[1], style)
            }
        };
        frame.render_widget(table, area);
    }
}

/// The share of a core that each worker uses, or between what it lies.
fn cpu(shares: &[f64]) -> String {
    let percent = |share: f64| format!("{:.0}%", (share * 100.0).clamp(0.0, 9_999.0));
    if shares.len() > FEW_WORKERS {
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
    // A number that lost its first digits would be another one.
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
        for door in &self.listeners {
            let (protocol, name) = (name(&door.protocol), name(&door.name));
            text += &format!("{protocol} {name}  clients {} of {}\n", door.total, door.hard_limit);
        }
        text += "\n";
        text += &plain(POOLS, &self.pools);
        if !self.clients.is_empty() {
            let longest = self.clients.iter().map(|client| client.state_ms).fold(0.0, f64::max);
            let (many, longest) = (self.clients.len(), time(Some(longest)));
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
        (0..columns.len()).map(|n| lines.iter().map(|line| width(&line[n])).max().unwrap_or(0)).collect();
    let line = |cells: &Vec<String>| {
        let padded = cells.iter().zip(&widths).zip(columns).map(|((cell, most), column)| {
            let blanks = " ".repeat(most - width(cell));
            if column.is_number() { blanks + cell } else { format!("{cell}{blanks}") }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::{Terminal, backend::TestBackend};

    use super::*;
    use crate::{ClientRow, Door, Key, PoolRow, Report, Summary};

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
        let door = Door {
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
            listeners: vec![door],
            pools: (0..pools).map(pool).collect(),
            clients: (0..clients).map(client).collect(),
            more_clients: false,
        }
    }

    fn drawn(width: u16, height: u16, keys: &[Key]) -> Vec<String> {
        drawn_of(report(100, 200), width, height, keys)
    }

    fn drawn_of(report: Report, width: u16, height: u16, keys: &[Key]) -> Vec<String> {
        let mut screen = Screen::new("127.0.0.1:9930", true, Duration::from_secs(1), Instant::now());
        screen.show(report, Instant::now());
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame, Instant::now())).unwrap();
        for key in keys {
            screen.press(*key);
            terminal.draw(|frame| screen.draw(frame, Instant::now())).unwrap();
        }
        let cells = terminal.backend().buffer().content();
        cells.chunks(usize::from(width)).map(|row| row.iter().map(|cell| cell.symbol()).collect()).collect()
    }

    #[test]
    fn eighty_columns_show_what_matters_of_pools_and_of_who_holds_servers() {
        let lines = drawn(80, 24, &[]);
        assert_eq!(lines[0].trim_end(), "Poolhouse 0.1.0 127.0.0.1:9930  workers' CPU 31% 28%  sent away 2.0/s");
        assert_eq!(lines[1].trim_end(), "postgres 0.0.0.0:6432  clients 1003 of 10000: 3 active, 1000 idle");
        for head in
            ["DATABASE", "USER", "WAIT", "OLDEST", "USE/MAX", "TPS", "HOLD", "QUEUED", "CREATED", "FAIL/S", "STATE"]
        {
            assert!(lines[2].contains(head), "{head} in {}", lines[2]);
        }
        let cells: Vec<_> = lines[3].split_whitespace().collect();
        assert_eq!(cells, ["database99", "app", "99", "-", "3/20", "12345", "1.2ms", "-", "-", "0", "ready"]);
        let clients = lines.iter().position(|line| line.starts_with("  FOR ")).expect("the clients");
        assert!(lines[clients + 1].starts_with("199ms    199 transaction"), "{}", lines[clients + 1]);
    }

    #[test]
    fn figures_that_are_old_are_told_to_be_in_the_header_and_what_is_wrong_in_the_foot() {
        let began = Instant::now();
        let mut screen = Screen::new(&"long.name.".repeat(12), true, Duration::from_secs(1), began);
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        let mut lines = |screen: &mut Screen, seconds| {
            let now = began + Duration::from_secs(seconds);
            terminal.draw(|frame| screen.draw(frame, now)).unwrap();
            let cells = terminal.backend().buffer().content();
            let line =
                |row: usize| cells[80 * row..80 * (row + 1)].iter().map(|cell| cell.symbol()).collect::<String>();
            (line(0), line(23))
        };
        assert!(lines(&mut screen, 4).0.starts_with("no answer for 4 s  Poolhouse "), "before the first answer, too");
        screen.show(report(3, 3), began + Duration::from_secs(5));
        assert!(lines(&mut screen, 6).0.starts_with("Poolhouse 0.1.0 "));
        let (head, foot) = lines(&mut screen, 9);
        assert!(head.starts_with("no answer for 4 s  Poolhouse 0.1.0 "), "{head}");
        assert!(foot.starts_with("1 pools"), "keys go on doing what they do: {foot}");
        screen.fail("no \u{1b}[2J\u{202e}answer");
        let (head, foot) = lines(&mut screen, 15);
        assert!(head.starts_with("no figures for 10 s  Poolhouse "), "{head}");
        assert!(foot.starts_with("10 s old: no \u{fffd}[2J\u{fffd}answer"), "{foot}");
        assert!(lines(&mut screen, 21).1.starts_with("16 s old: "), "its age goes on");
        screen.show(report(3, 3), began + Duration::from_secs(21));
        assert!(lines(&mut screen, 21).0.starts_with("Poolhouse 0.1.0 "));
    }

    #[test]
    fn a_page_down_shows_the_rows_that_follow_and_ends_with_the_last_one() {
        let down = |pages: usize| drawn(100, 24, &[vec![Key::Char('2')], vec![Key::PageDown; pages]].concat());
        let id = |line: &str| line.split_whitespace().next().unwrap().to_owned();
        assert_eq!(id(&down(0)[3]), "199ms");
        assert_eq!(id(&down(1)[3]), "179ms");
        assert_eq!(id(&down(20)[22]), "0us");
    }

    #[test]
    fn a_number_keeps_all_its_digits() {
        let mut report = report(1, 1);
        (report.clients[0].id, report.pools[0].waiters) = (1_234_567_890, 123_456);
        let text = drawn_of(report, 80, 24, &[]).concat();
        assert!(text.contains(" 1234567890 ") && text.contains(" 123456 "), "{text}");
    }

    #[test]
    fn a_list_without_a_client_says_so() {
        let lines = |key| drawn_of(report(1, 0), 80, 24, &[Key::Char(key)]);
        assert!(lines('3')[2].starts_with("No client keeps its server"), "{:?}", lines('3'));
        assert!(lines('2')[2].starts_with("No client holds a server"), "{:?}", lines('2'));
    }

    #[test]
    fn in_eighty_columns_a_holder_is_seen_before_those_who_wait() {
        let mut report = report(1, 60);
        report
            .clients
            .iter_mut()
            .skip(1)
            .for_each(|client| (client.state, client.state_ms) = ("waiting".to_owned(), 60_000.0));
        report.clients[0].state_ms = 39_500.0;
        let lines = drawn_of(report, 80, 24, &[]);
        let clients = lines.iter().position(|line| line.starts_with("  FOR ")).expect("the clients");
        assert!(lines[clients + 1].contains("transaction") && lines[clients + 2].contains("waiting"), "{lines:?}");
    }

    #[test]
    fn the_filter_in_force_is_seen_in_eighty_columns() {
        let lines = drawn(80, 24, &[Key::Char('/'), Key::Char('x'), Key::Enter]);
        assert!(lines[23].starts_with("1 pools 2 clients 3 pinned  /x "), "{}", lines[23]);
    }

    #[test]
    fn nothing_breaks_in_a_window_of_whatever_size() {
        for (width, height) in [(1, 1), (3, 2), (20, 5), (80, 3), (300, 100)] {
            for view in ['1', '2', '3', '?'] {
                drawn(width, height, &[Key::Char(view), Key::PageDown]);
            }
        }
    }

    #[test]
    fn no_text_on_the_screen_turns_its_direction() {
        let mut report = report(1, 1);
        let evil = || "a\u{202e}b".to_owned();
        (report.summary.version, report.listeners[0].protocol, report.clients[0].database) = (evil(), evil(), evil());
        let mut screen = Screen::new("127.0.0.1:9930", true, Duration::from_secs(1), Instant::now());
        screen.show(report, Instant::now());
        screen.fail(&evil());
        let mut terminal = Terminal::new(TestBackend::new(120, 24)).unwrap();
        terminal.draw(|frame| screen.draw(frame, Instant::now())).unwrap();
        let text: String = terminal.backend().buffer().content().iter().map(|cell| cell.symbol()).collect();
        assert!(!text.contains(printable::steers), "{text:?}");
        assert_eq!(text.matches("a\u{fffd}b").count(), 4, "{text}");
    }

    #[test]
    fn what_is_printed_once_steers_no_terminal() {
        let mut report = report(1, 1);
        let evil = || "a\u{1b}[2J\u{202e}".to_owned();
        (report.listeners[0].protocol, report.listeners[0].name) = (evil(), evil());
        (report.pools[0].protocol, report.pools[0].address, report.clients[0].state) = (evil(), evil(), evil());
        let text = report.lines();
        assert!(!text.lines().any(|line| line.contains(printable::steers)), "{text}");
        assert_eq!(text.matches("a\u{fffd}[2J\u{fffd}").count(), 5, "{text}");
    }

    #[test]
    fn of_many_workers_an_alarm_is_still_seen_in_eighty_columns() {
        let mut report = report(1, 1);
        report.summary.cpu = (0..64).map(|n| n as f64 / 100.0).collect();
        let lines = drawn_of(report, 80, 24, &[]);
        let title = "Poolhouse 0.1.0 127.0.0.1:9930  CPU of 64 workers 0% to 63%  sent away 2.0/s";
        assert_eq!(lines[0].trim_end(), title);
    }

    #[test]
    fn nothing_that_the_server_tells_of_itself_reaches_the_terminal_unless_it_is_seen_there() {
        let mut report = report(1, 1);
        report.summary.version = "1\u{202e}2".to_owned();
        report.listeners[0].protocol = "post\u{202e}\u{1b}[2Jgres".to_owned();
        report.pools[0].database = "ben\u{200b}ch".to_owned();
        let printed = report.lines();
        let drawn = drawn_of(report, 80, 24, &[]).concat();
        for text in [drawn, printed.replace('\n', "")] {
            assert!(!text.contains(['\u{202e}', '\u{200b}', '\u{1b}']), "{text:?}");
            assert!(text.contains("post\u{fffd}\u{fffd}[2Jgres") && text.contains("ben\u{fffd}ch"), "{text}");
        }
    }

    #[test]
    fn whoever_wants_no_colours_gets_none_and_still_sees_alarms() {
        for has_colours in [true, false] {
            let mut screen = Screen::new("127.0.0.1:9930", has_colours, Duration::from_secs(1), Instant::now());
            screen.show(report(3, 3), Instant::now());
            let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
            terminal.draw(|frame| screen.draw(frame, Instant::now())).unwrap();
            let cells = terminal.backend().buffer().content();
            let colours = cells.iter().filter(|cell| cell.fg != ratatui::style::Color::Reset).count();
            assert_eq!(colours > 0, has_colours);
            assert!(cells[80 * 3].modifier.contains(Modifier::BOLD), "a pool with waiters");
        }
    }

    #[test]
    fn columns_stay_in_line_whatever_script_a_name_is_in() {
        let mut report = report(2, 0);
        report.pools[1].database = "数据库".to_owned();
        let text = report.lines();
        let places: Vec<_> = text
            .lines()
            .filter(|line| line.contains(" app "))
            .map(|line| width(&line[..line.find(" app ").unwrap()]))
            .collect();
        assert!(places.len() == 2 && places[0] == places[1], "{text}");
    }

    #[test]
    fn it_is_told_that_only_those_are_listed_who_hold_longest() {
        let mut report = report(1, 5);
        report.more_clients = true;
        assert!(
            report.lines().contains("\nthe 5 that hold a server or wait longest, the first for 4.0ms\n"),
            "{}",
            report.lines()
        );
        let lines = drawn_of(report, 80, 24, &[Key::Char('2')]);
        assert!(lines[23].starts_with("1 pools 2 clients 3 pinned  the 5 longest alone "), "{}", lines[23]);
    }

    #[test]
    fn what_is_printed_once_has_all_columns() {
        let text = report(2, 1).lines();
        assert!(text.contains("ADDRESS") && text.contains("NEW/MIN"), "{text}");
        assert!(text.contains("\n1 hold a server or wait, the first for 0us\n"), "{text}");
    }
}
