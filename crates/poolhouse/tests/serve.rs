//! The program as a user starts it, without a database behind it: addresses, admin pages, signals, exit status.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// The longest that anything here may take.
const PATIENCE: Duration = Duration::from_secs(20);

fn poolhouse() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A running Poolhouse, killed when dropped.
struct Running {
    child: Child,
    stderr: BufReader<ChildStderr>,
    admin: SocketAddr,
    banner: String,
}

impl Running {
    fn start(socket: &Path) -> Self {
        let mut command = poolhouse();
        command.env("APP_PASSWORD", "hunter2").args(["serve", "postgres://app:${APP_PASSWORD}@127.0.0.1:1/shop"]);
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--hard-limit", "100", "--listen"]);
        let mut child = command.arg(socket).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut banner = String::new();
        while !banner.contains("/metrics\n") {
            assert!(stderr.read_line(&mut banner).unwrap() > 0, "it ended: {banner}");
        }
        let address = banner.rsplit("http://").next().and_then(|rest| rest.split('/').next()).unwrap();
        Self { child, stderr, admin: address.parse().unwrap(), banner }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.admin).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Its exit status and what it wrote since the banner.
    fn wait(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        (status.code(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn it_serves_its_admin_pages_and_drains_on_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join(".s.PGSQL.7000");
    let running = Running::start(&socket);
    assert!(running.banner.contains("-U app shop"), "{}", running.banner);
    assert!(!running.banner.contains("hunter2"), "{}", running.banner);
    assert!(socket.exists());
    for (path, part) in [
        ("/health", "ok\n"),
        ("/ready", "ready\n"),
        ("/", "<h1>Poolhouse "),
        ("/metrics", "poolhouse_clients_limit{listener=\"127.0.0.1:"),
        ("/api/pools", "\"hard_limit\":100"),
        ("/api/clients", "{\"clients\":[]}"),
        ("/api/servers?limit=5", "{\"servers\":[]}"),
    ] {
        let answer = running.get(path);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(part), "{path}: {answer}");
    }
    assert!(running.get("/nothing").starts_with("HTTP/1.1 404"));
    assert!(running.get("/api/clients?limit=0").starts_with("HTTP/1.1 400"));
    running.signal(Signal::TERM);
    let (status, log) = running.wait();
    assert_eq!(status, Some(0), "{log}");
    assert!(log.contains("draining") && log.contains("stopped"), "{log}");
    assert!(!socket.exists());
}

#[test]
fn a_taken_address_is_a_failure_and_names_the_address() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let running = Running::start(&socket);
    let output =
        poolhouse().args(["serve", "postgres://h/d", "--admin", "off", "--listen"]).arg(&socket).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot listen on unix:") && said.contains("--take-over"), "{said}");
    assert_eq!(said.matches("somebody else listens there").count(), 1, "{said}");
    running.signal(Signal::INT);
    assert_eq!(running.wait().0, Some(0));
}

#[test]
fn bad_usage_and_bad_configuration_have_exit_status_2() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.toml");
    std::fs::write(&file, "[[database]]\nname = \"d\"\nurl = \"postgres://h/d\"\nmax_sise = 1\n").unwrap();
    let file = file.to_str().unwrap();
    let ini = folder.path().join("pooler.cfg");
    std::fs::write(&ini, "[databases]\nshop = host=h password=hunter2\n[pgbouncer]\nlisten_addr = *\n").unwrap();
    let ini = ini.to_str().unwrap();
    for (args, part) in [
        (&["serve"][..], "takes the URL of a database"),
        (&["serve", "postgres://h/d", "--mode", "x"], "transaction, session, statement"),
        (&["serve", "postgres://h/d", "--query-time", "5"], "no unit"),
        (&["serve", "mysql://h/d"], "postgres://"),
        (&["serve", "postgres://u:${NOT_SET_ANYWHERE}@h/d"], "NOT_SET_ANYWHERE is not set"),
        (&["serve", "postgres://h/d", "--listen", "0.0.0.0:1"], "--insecure-no-auth"),
        (&["serve", "postgres://h/d", "--log-level", "a=b=c", "--listen", "127.0.0.1:0"], "log level"),
        (&["serve", file], "--config"),
        (&["serve", "pgbouncer.ini"], "docs/from-pgbouncer.md"),
        (&["serve", "--config", ini], "no client could log in"),
        (&["serve", "--config", file], "did you mean `max_size`?"),
        (&["serve", "--config", file, "--max-size", "5"], "--config"),
        (&["check", file], "p.toml:4:1: error: unknown key `max_sise`"),
        (&["check", "/no/such/file"], "cannot read it"),
    ] {
        let output = poolhouse().args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: {said}");
    }
}

#[test]
fn a_usable_configuration_is_said_to_be_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.toml");
    std::fs::write(&file, "[[database]]\nname = \"d\"\nurl = \"postgres://h/d\"\n").unwrap();
    let output = poolhouse().arg("check").arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("1 listener, 1 database, 0 users; 0 errors"), "{said}");
}

#[test]
fn a_reader_who_has_left_is_no_failure_and_a_full_device_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.toml");
    std::fs::write(&file, "[[database]]\nname = \"d\"\nurl = \"postgres://h/d\"\n").unwrap();
    let check = |file: &Path, out: Stdio, err: Stdio| {
        let mut command = poolhouse();
        command.arg("check").arg(file).stdin(Stdio::null()).stdout(out).stderr(err);
        command.output().unwrap()
    };
    let left = || std::io::pipe().unwrap().1;
    let output = check(&file, left().into(), Stdio::piped());
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()), (Some(0), String::new()));
    let output = check(Path::new("/no/such/file"), Stdio::null(), left().into());
    assert_eq!(output.status.code(), Some(2));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = check(&file, full.into(), Stdio::piped());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: cannot write to standard output: ") && said.lines().count() == 1, "{said}");
}
