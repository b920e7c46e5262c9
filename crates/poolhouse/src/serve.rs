//! `poolhouse serve`: turns the command line into a configuration and serves it.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Args, CommandFactory, builder::PossibleValuesParser, builder::TypedValueParser, value_parser};
use serve::{Config, Endpoint, Flags, LogFormat, LogOptions, Mode, Preset, ServeError, ServeOptions, TlsFlags};
use settings::{Problem, Problems, Secret};

use crate::{
    BAD_USAGE, Command, usage,
    variables::{self, Subject},
};

const EXAMPLE: &str = "\
Examples:
  poolhouse serve 'postgres://app:${APP_PASSWORD}@10.0.0.5:5432/shop' --max-size 20
  poolhouse serve 'postgres://app:${APP_PASSWORD}@10.0.0.5:5432/shop' --max-size auto --auto-max-size 40
  poolhouse serve 'redis://:${REDIS_PASSWORD}@10.0.0.7:6379' --max-size 20
  poolhouse serve --url-file /run/secrets/database-url --listen 0.0.0.0:6432
  poolhouse serve 'redis://10.0.0.7:6379' --http 0.0.0.0:8079 --http-token-file rest.token
  poolhouse serve --config poolhouse.toml
  poolhouse serve --config poolhouse.toml --take-over

Clients log in with the URL's own user and password; with a URL that has no password, only from this
machine. At SIGTERM or Ctrl-C Poolhouse lets transactions end; at a second one it ends at once. At
SIGHUP it reads the configuration again. Durations: 250ms, 310s, 5m, off.

Each flag may come from the environment instead: --max-size from POOLHOUSE_MAX_SIZE, and so on. Without a URL,
--url-file or --config on the command line, POOLHOUSE_CONFIG, POOLHOUSE_URL_FILE or DATABASE_URL is served.";

/// Serve clients on a few warm connections to a database
#[derive(Args)]
#[command(after_help = EXAMPLE)]
pub struct ServeArgs {
    /// The database: postgres://user:password@host:port/name or redis://user:password@host:port. Other users can read
    /// it (`ps`): write ${ENV} in single quotes for the password, or use --url-file
    #[arg(value_name = "URL")]
    url: Option<String>,

    /// Read the URL from a file
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    url_file: Option<PathBuf>,

    /// Read everything from a configuration file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "url_file"])]
    config: Option<PathBuf>,

    /// Accept clients from other machines although no user has a password
    #[arg(long)]
    insecure_no_auth: bool,

    /// Take over the sockets of the process that serves the same configuration, if there is one, and let that process
    /// finish: an upgrade that no client notices
    #[arg(long)]
    take_over: bool,

    /// Format of the log
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = log_format())]
    log_format: LogFormat,

    /// Log events from this level on: error, warn, info, debug, trace [default: that of the file, or info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,

    #[command(flatten)]
    flags: UrlFlags,
}

/// What goes with a URL but not with a configuration file.
#[derive(Args, PartialEq, Default)]
#[command(next_help_heading = "With a URL")]
struct UrlFlags {
    /// Where clients connect: address:port, or the path of a Unix socket. May be given several times
    /// [default: 127.0.0.1:6432, for Redis 127.0.0.1:7379]
    #[arg(long, value_name = "ADDR", value_parser = Endpoint::parse, value_delimiter = ',')]
    listen: Vec<Endpoint>,

    /// The certificate that clients get to see, and those that link it to an authority, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Its key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Whether clients may do without TLS [default: allow]
    #[arg(long, value_name = "RULE", value_parser = ["allow", "require"], requires = "tls_cert")]
    tls: Option<String>,

    /// The authorities that sign certificates of clients, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,

    /// Whether clients may do without a certificate [default: optional]
    #[arg(long, value_name = "RULE", value_parser = ["optional", "require"], requires = "tls_client_ca")]
    tls_client_auth: Option<String>,

    /// Where clients of Redis over HTTP connect: address:port, or the path of a Unix socket
    #[arg(long, value_name = "ADDR", value_parser = Endpoint::parse)]
    http: Option<Endpoint>,

    /// The file with the token that these clients send as `Authorization: Bearer TOKEN`; make one: openssl rand -hex 32
    #[arg(long, value_name = "FILE")]
    http_token_file: Option<PathBuf>,

    /// Where to serve metrics and health: address:port, or off [default: 127.0.0.1:9930]
    #[arg(long, value_name = "ADDR", value_parser = admin)]
    admin: Option<Off<SocketAddr>>,

    /// A host name by which the admin address may be asked, beside addresses and localhost. May be given several times
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    admin_name: Vec<String>,

    /// The file with the token that orders at the admin address take; make one: openssl rand -hex 32
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,

    /// Worker threads; 0 is one per CPU [default: 1]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(..=255))]
    workers: Option<u32>,

    /// When a server returns to its pool [default: transaction]
    #[arg(long, value_name = "MODE", value_parser = mode())]
    mode: Option<Mode>,

    /// Most servers of a pool, which is one database and user; auto: have the best number found while it serves
    /// [default: 20]
    #[arg(long, value_name = "N|auto", value_parser = size)]
    max_size: Option<Size>,

    /// With --max-size auto: the fewest servers that are tried [default: 1]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    auto_min_size: Option<u32>,

    /// With --max-size auto: the most servers that are tried [default: 60]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    auto_max_size: Option<u32>,

    /// With --max-size auto: the number that a pool begins with [default: 20, or the nearest within the bounds]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    auto_start_size: Option<u32>,

    /// Servers kept even when idle [default: 0]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(..=1_000_000))]
    min_size: Option<u32>,

    /// Most servers being opened at a time [default: 2]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    max_connecting: Option<u32>,

    /// Number of clients above which those idle longest are evicted [default: 80% of the hard limit]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    soft_limit: Option<u32>,

    /// Number of clients at which new ones are refused [default: 12500]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    hard_limit: Option<u32>,

    /// Defaults for a kind of client: serverless (idle clients are closed after 310s)
    #[arg(long, value_name = "PRESET", value_parser = preset())]
    preset: Option<Preset>,

    /// How long a client waits for a server while all are busy [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    max_wait_time: Option<Off<Duration>>,

    /// How long a client waits for a server while the database is down [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    unavailable_wait_time: Option<Off<Duration>>,

    /// When an idle server is closed [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = time)]
    max_idle_time: Option<Off<Duration>>,

    /// When a server is replaced by a new one [default: 30m]
    #[arg(long, value_name = "TIME", value_parser = time)]
    max_life_time: Option<Off<Duration>>,

    /// How long a newcomer waits for a place at hard_limit; off: it is refused at once [default: 6s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    newcomer_wait_time: Option<Off<Duration>>,

    /// How long a client may take to log in [default: 15s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    login_time: Option<Off<Duration>>,

    /// When an idle client is closed [default: off]
    #[arg(long, value_name = "TIME", value_parser = time)]
    client_idle_time: Option<Off<Duration>>,

    /// Longest time of a request [default: off]
    #[arg(long, value_name = "TIME", value_parser = time)]
    query_time: Option<Off<Duration>>,

    /// Longest pause between the requests of a transaction [default: off]
    #[arg(long, value_name = "TIME", value_parser = time)]
    transaction_idle_time: Option<Off<Duration>>,

    /// How long transactions may take to end when Poolhouse stops [default: 25s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    drain_time: Option<Off<Duration>>,
}

/// A value, or `off`. A type of its own because clap takes an `Option` for a flag that is missing.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Off<T>(pub(crate) Option<T>);

/// A number of servers; `None`: the best one is found.
#[derive(Clone, Copy, PartialEq)]
struct Size(Option<u32>);

fn size(text: &str) -> Result<Size, String> {
    match text {
        "auto" => Ok(Size(None)),
        _ => match text.parse() {
            Ok(size @ 1..=1_000_000) => Ok(Size(Some(size))),
            _ => Err("write a number from 1 to 1000000, or auto".to_owned()),
        },
    }
}

pub(crate) fn time(text: &str) -> Result<Off<Duration>, String> {
    settings::parse_duration(text).map(Off)
}

fn admin(text: &str) -> Result<Off<SocketAddr>, String> {
    match text {
        "off" => Ok(Off(None)),
        _ => serve::parse_tcp(text).map(|address| Off(Some(address))),
    }
}

fn words<T: std::str::FromStr<Err = String> + Clone + Send + Sync + 'static>(
    words: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words.iter().map(|(word, _)| *word)).try_map(|word: String| word.parse::<T>())
}

fn mode() -> impl TypedValueParser<Value = Mode> {
    words(Mode::WORDS)
}

fn preset() -> impl TypedValueParser<Value = Preset> {
    words(Preset::WORDS)
}

fn log_format() -> impl TypedValueParser<Value = LogFormat> {
    words(LogFormat::WORDS)
}

/// Runs the verb.
pub fn run(mut args: ServeArgs) -> anyhow::Result<ExitCode> {
    if args.url.is_none() && args.url_file.is_none() && args.config.is_none() {
        match variables::subject() {
            Some(Subject::Url(url)) => args.url = Some(url),
            Some(Subject::UrlFile(file)) => args.url_file = Some(file.into()),
            Some(Subject::Config(file)) => args.config = Some(file.into()),
            None => {
                eprintln!("{}", usage::explain_nothing_to_serve(&Command::command()));
                return Ok(BAD_USAGE.into());
            }
        }
    }
    let log = LogOptions { format: args.log_format, level: args.log_level.clone(), quiet: false };
    let options = ServeOptions { log, take_over: args.take_over, on_serving: &|| () };
    let served = configuration(args)
        .map_err(ServeError::from)
        .and_then(|config| serve::serve(config, &options, || Box::<doctor::PoolerWindow>::default()));
    match served {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(ServeError::Configuration(problems)) => {
            eprintln!("{problems}");
            Ok(BAD_USAGE.into())
        }
        Err(ServeError::Logging(message)) => {
            eprintln!("error: {message}");
            Ok(BAD_USAGE.into())
        }
        Err(error) => Err(error.into()),
    }
}

fn configuration(args: ServeArgs) -> Result<Config, Problems> {
    if let Some(path) = &args.config {
        if args.flags != UrlFlags::default() {
            return Err(flags_beside_config().into());
        }
        return serve::from_file(path, args.insecure_no_auth);
    }
    let url = match (args.url, &args.url_file) {
        (Some(url), _) if is_file(&url) => return Err(no_url(&url).into()),
        (Some(url), _) => url,
        (None, Some(path)) => settings::read_small(path)
            .map_err(|error| Problem::error(format!("cannot read it: {error}")).in_file(path))?,
        (None, None) => unreachable!("`run` asks for a URL, a file with it, or a configuration"),
    };
    let read = |path: &PathBuf| {
        settings::read_small(path)
            .map(|text| Secret::new(text.trim_end_matches(['\n', '\r'])))
            .map_err(|error| Problems::from(Problem::error(format!("cannot read it: {error}")).in_file(path)))
    };
    let http_token = args.flags.http_token_file.as_ref().map(read).transpose()?;
    let admin_token = args.flags.admin_token_file.as_ref().map(read).transpose()?;
    let flags = Flags { insecure_no_auth: args.insecure_no_auth, http_token, admin_token, ..args.flags.into() };
    serve::from_url(&url, &flags, &settings::environment)
}

/// Flags go with a URL. Those of the environment are named, because they are easily forgotten.
fn flags_beside_config() -> Problem {
    let problem = Problem::error("with --config, everything but logs stands in the file");
    let of_urls = UrlFlags::augment_args(clap::Command::new("serve"));
    let set = variables::set_ones(of_urls.get_arguments().filter_map(clap::Arg::get_long));
    match set.is_empty() {
        true => problem,
        false => problem.hint(format!("these are set in the environment: {}", set.join(", "))),
    }
}

/// Whether the name of a file stands where a URL belongs.
fn is_file(text: &str) -> bool {
    let path = Path::new(text);
    let has_name_of_one = path.extension().is_some_and(|end| ["toml", "ini", "conf"].iter().any(|known| end == *known));
    !text.contains("://") && (has_name_of_one || path.is_file())
}

fn no_url(file: &str) -> Problem {
    let problem = Problem::error(format!("`{file}` is a file, and here belongs a URL"));
    if Path::new(file).extension().is_some_and(|end| end == "ini") {
        let hint = format!(
            "PgBouncer's file is named with --config {file}, or given to `poolhouse pgbouncer {file}`; see \
             docs/from-pgbouncer.md"
        );
        return problem.hint(hint);
    }
    problem
        .hint(format!("a configuration file is named with --config {file}, a file with a URL with --url-file {file}"))
}

impl From<UrlFlags> for Flags {
    fn from(flags: UrlFlags) -> Self {
        let time = |time: Option<Off<Duration>>| time.map(|Off(time)| time);
        Self {
            listen: flags.listen,
            tls: flags.tls_cert.zip(flags.tls_key).map(|(cert, key)| TlsFlags {
                cert,
                key,
                required: flags.tls.is_some_and(|rule| rule == "require"),
                client_ca: flags.tls_client_ca,
                clients_required: flags.tls_client_auth.is_some_and(|rule| rule == "require"),
            }),
            http: flags.http,
            http_token: None,
            admin: flags.admin.map(|Off(admin)| admin),
            admin_names: flags.admin_name,
            admin_token: None,
            workers: flags.workers,
            mode: flags.mode,
            max_size: flags.max_size.and_then(|Size(size)| size),
            auto_size: flags.max_size.is_some_and(|Size(size)| size.is_none()),
            auto_min_size: flags.auto_min_size,
            auto_max_size: flags.auto_max_size,
            auto_start_size: flags.auto_start_size,
            min_size: flags.min_size,
            max_connecting: flags.max_connecting,
            soft_limit: flags.soft_limit,
            hard_limit: flags.hard_limit,
            preset: flags.preset,
            max_wait_time: time(flags.max_wait_time),
            unavailable_wait_time: time(flags.unavailable_wait_time),
            max_idle_time: time(flags.max_idle_time),
            max_life_time: time(flags.max_life_time),
            newcomer_wait_time: time(flags.newcomer_wait_time),
            login_time: time(flags.login_time),
            client_idle_time: time(flags.client_idle_time),
            query_time: time(flags.query_time),
            transaction_idle_time: time(flags.transaction_idle_time),
            drain_time: time(flags.drain_time),
            insecure_no_auth: false,
        }
    }
}
