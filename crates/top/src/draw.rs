//! Draws a screen into a frame of whatever size, from 80 columns and 24 rows on without loss. Decides nothing about what is shown.

use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::{Line, Span},
    widgets::{Paragraph, Row, Table, Wrap},
};

use crate::{
    columns::{CLIENTS, Column, POOLS},
    screen::{Screen, Sort, View},
    words::{rate, time},
};

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const HEAD: Style = Style::new().add_modifier(Modifier::REVERSED);
const ALARM: Style = Style::new().fg(ratatui::style::Color::Red).add_modifier(Modifier::BOLD);

const HELP: &str = "\
WAIT     clients that wait for a server; OLDEST: for how long the first of them has
USE/MAX  servers with a client, of the most that the pool may have
TPS      leases of servers that ended, a second
HOLD     99th percentile of how long servers were held
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
    /// Draws it.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
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
        frame.render_widget(self.foot(), foot);
    }

    fn title(&self) -> Line<'_> {
        let summary = &self.report.summary;
        let version = crate::words::name(&summary.version);
        let mut spans = vec![Span::styled(format!("Poolhouse {version} "), BOLD), Span::raw(&self.address)];
        if !summary.cpu.is_empty() {
            let shares: Vec<_> = summary.cpu.iter().map(|share| format!("{:.0}%", share * 100.0)).collect();
            spans.push(Span::raw(format!("  workers' CPU {}", shares.join(" "))));
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
                spans.push(Span::styled(format!("  {what} {}/s", rate(per_second)), ALARM));
            }
        }
        if summary.draining {
            spans.push(Span::styled("  draining", ALARM));
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
                crate::words::name(&door.protocol),
                crate::words::name(&door.name),
                door.total,
                door.hard_limit,
                states.join(", ")
            );
            let style = if door.total >= door.soft_limit { ALARM } else { Style::new() };
            Line::styled(text, style)
        };
        let mut lines: Vec<_> = self.report.listeners.iter().take(most).map(line).collect();
        let more = self.report.listeners.len().saturating_sub(most);
        if let Some(last) = lines.last_mut().filter(|_| more > 0) {
            last.push_span(Span::styled(format!("  and {more} more listeners"), DIM));
        }
        Paragraph::new(lines)
    }

    fn foot(&self) -> Line<'_> {
        if self.is_writing {
            return Line::from(vec![Span::styled("filter: ", BOLD), Span::raw(&self.filter), Span::styled("_", BOLD)]);
        }
        if let Some(trouble) = &self.trouble {
            return Line::styled(trouble.as_str(), ALARM);
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
        let table = match pools {
            true => {
                let alarms = |pool: &crate::PoolRow| {
                    pool.waiters > 0 || pool.state != "ready" || pool.failed_per_s.is_some_and(|failed| failed > 0.0)
                };
                table(POOLS, &self.pools(), seen, area.width, self.sort[0], alarms)
            }
            false => {
                table(CLIENTS, &self.clients(), seen, area.width, self.sort[1], |client| client.state == "waiting")
            }
        };
        frame.render_widget(table, area);
    }
}

/// As many columns as fit; names take what is left of the width.
fn table<'t, R>(
    columns: &'static [Column<R>],
    rows: &[&R],
    seen: std::ops::Range<usize>,
    width: u16,
    sort: Sort,
    alarms: impl Fn(&R) -> bool,
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
    let body = rows.iter().map(|row| {
        let style = if alarms(row) { ALARM } else { Style::new() };
        Row::new(columns.iter().map(|column| cell(column.cell(row), column))).style(style)
    });
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
            let (protocol, name) = (crate::words::name(&door.protocol), crate::words::name(&door.name));
            text += &format!("{protocol} {name}  clients {} of {}\n", door.total, door.hard_limit);
        }
        text += "\n";
        text += &plain(POOLS, &self.pools);
        if !self.clients.is_empty() {
            let longest = self.clients.iter().map(|client| client.state_ms).fold(0.0, f64::max);
            text += &format!("\n{} hold a server or wait, the first for {}\n", self.clients.len(), time(Some(longest)));
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
        (0..columns.len()).map(|n| lines.iter().map(|line| line[n].chars().count()).max().unwrap_or(0)).collect();
    let line = |cells: &Vec<String>| {
        let padded = cells.iter().zip(&widths).zip(columns).map(|((cell, width), column)| match column.is_number() {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

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
        }
    }

    fn drawn(width: u16, height: u16, keys: &[Key]) -> Vec<String> {
        let mut screen = Screen::new("127.0.0.1:9930");
        screen.show(report(100, 200), SystemTime::UNIX_EPOCH);
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        for key in keys {
            screen.press(*key);
            terminal.draw(|frame| screen.draw(frame)).unwrap();
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
    fn a_page_down_shows_the_rows_that_follow_and_ends_with_the_last_one() {
        let down = |pages: usize| drawn(100, 24, &[vec![Key::Char('2')], vec![Key::PageDown; pages]].concat());
        let id = |line: &str| line.split_whitespace().next().unwrap().to_owned();
        assert_eq!(id(&down(0)[3]), "199ms");
        assert_eq!(id(&down(1)[3]), "179ms");
        assert_eq!(id(&down(20)[22]), "0us");
    }

    #[test]
    fn a_number_keeps_all_its_digits() {
        let mut screen = Screen::new("127.0.0.1:9930");
        let mut report = report(1, 1);
        (report.clients[0].id, report.pools[0].waiters) = (1_234_567_890, 123_456);
        screen.show(report, SystemTime::UNIX_EPOCH);
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let text: String = terminal.backend().buffer().content().iter().map(|cell| cell.symbol()).collect();
        assert!(text.contains(" 1234567890 ") && text.contains(" 123456 "), "{text}");
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
        let mut screen = Screen::new("127.0.0.1:9930");
        screen.show(report, SystemTime::UNIX_EPOCH);
        screen.fail(&evil(), SystemTime::UNIX_EPOCH);
        let mut terminal = Terminal::new(TestBackend::new(120, 24)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
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
    fn what_is_printed_once_has_all_columns() {
        let text = report(2, 1).lines();
        assert!(text.contains("ADDRESS") && text.contains("NEW/MIN"), "{text}");
        assert!(text.contains("\n1 hold a server or wait, the first for 0us\n"), "{text}");
    }
}
