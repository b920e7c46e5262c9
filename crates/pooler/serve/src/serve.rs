//! The life of a serving process: it opens the sockets, starts the driver, serves the admin address, and shuts down
//! when a signal or an order asks for it.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    num::NonZero,
    path::Path,
    sync::Arc,
    time::Duration,
};

use admin_api::NewExaminer;
use driver::{Driver, DriverConfig, Handle, TcpOptions};
use mongodb_session::MongoDb;
use postgres_session::Postgres;
use redis_session::Redis;
use settings::{Problem, Problems, Severity};

use crate::{
    activation::Activated,
    admin::{Admin, Control, DrainOrder, EndingOrder, ProtocolMemory, connections},
    banner,
    check::{Machine, check},
    config::Config,
    console::{Console, ConsoleSocket},
    file_watch::watch_files,
    handover::{self, Inherited, LimitShares, Predecessors, Sockets, SuccessorListener},
    host_names::follow_hosts,
    live_pools::LivePools,
    logs::{LogFormat, LogOptions, Logs, PgBouncerLines},
    password_commands::PasswordCommands,
    peers::Peers,
    pid_file::PidFile,
    pools::ConfigPools,
    process_user::become_user,
    protocols::Protocols,
    refresh::follow_names,
    reload::{Reloader, one_line},
    seeds::look_up_hosts,
    signals::{Ending, Manner, Signals, Wish},
    sockets::{Bound, SocketFile, adopt, bind, bind_admin, lacks_ipv6, spec},
    stats_line, systemd,
    tls::Tls,
    tuning::Tuning,
};

/// Threads for requests at the admin address that block.
const ADMIN_BLOCKING_THREADS: usize = 4;

const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Why a process cannot serve, or has stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{0}")]
    Configuration(#[from] Problems),
    /// The log level is invalid.
    #[error("{0}")]
    Logging(String),
    /// A system call failed.
    #[error("{what}")]
    System { what: String, source: io::Error },
    /// A worker thread panicked.
    #[error("a worker ended by a defect of Poolhouse; its message is above")]
    Defect,
}

impl ServeError {
    fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}

/// What the command line says beside the configuration.
pub struct ServeOptions<'a> {
    pub log: LogOptions,
    /// The process that now serves this configuration hands over its sockets; if there is no such process, this one
    /// opens its own.
    pub take_over: bool,
    /// Is called once clients are served.
    pub on_serving: &'a dyn Fn(),
}

/// Serves until a signal ends the process. SIGTERM and SIGINT let transactions finish; a second one does not. SIGHUP
/// reloads the configuration. In PgBouncer's place signals mean what they mean there. `new_examiner` makes what answers
/// `/api/findings`.
///
/// # Errors
/// When the configuration is wrong, a system call fails, or a worker panics.
pub fn serve(config: Config, options: &ServeOptions<'_>, new_examiner: NewExaminer) -> Result<(), ServeError> {
    let ServeOptions { log, take_over, on_serving } = options;
    let config = look_up_hosts(config, None)?;
    let problems = check(&config, Machine::here());
    if problems.iter().any(|problem| problem.severity == Severity::Error) {
        return Err(Problems(problems).into());
    }
    let descriptors = driver::raise_descriptor_limit();
    if let Some(user) = &config.serve.user {
        become_user(user).map_err(ServeError::system(format!("cannot become the user {user}")))?;
    }
    let error = ServeError::system("cannot take over from the present process");
    let mut inherited = if *take_over { handover::take_over(&config).map_err(error)? } else { None };
    // Signals are handled before the first client can connect, so that no signal can end the process abruptly.
    let (runtime, signals) = admin_runtime(&config)?;
    let pid_path = config.serve.pid_file.as_deref();
    let error = |path: &Path| ServeError::system(format!("cannot have the pid file {}", path.display()));
    // Before any socket: another process that serves the same says so best by its number.
    pid_path.map_or(Ok(()), |path| PidFile::refuse_holder(path, inherited.is_some()).map_err(error(path)))?;
    // Sockets are opened before any thread starts: `sockets::bind` changes the umask.
    let Opened { listeners, admin_socket, admin_problem, copies } = Opened::open(&config, inherited.as_mut())?;
    let pid_file = pid_path.map(|path| PidFile::write(path, inherited.is_some()).map_err(error(path))).transpose()?;
    let logs = start_logs(&config, log)?;
    problems.iter().chain(&admin_problem).for_each(|problem| announce(problem, log));
    announce_translation(&config, log);
    tracing::debug!(descriptors, "limit of file descriptors");

    let config = Arc::new(config);
    let (mut specs, files, endpoints) = take_apart(&config, listeners);
    let tls = load_tls(&config, &mut specs)?;
    let commands = PasswordCommands::of(&config);
    let pools = ConfigPools::new(Arc::clone(&config), Arc::clone(&tls)).with_commands(Arc::clone(&commands));
    let peers = Arc::new(Peers::new(&config, runtime.handle().clone()));
    let pools = LivePools::new(pools).checking_logins_on(runtime.handle().clone()).with_peers(peers);
    let pools = Arc::new(pools);
    let (protocols, memory) = protocols(&config, &pools);
    let before = Predecessors::find(&config, inherited.as_ref().map(Inherited::before));
    let console = ConsoleSocket::bind().map_err(ServeError::system("cannot open the console's socket"))?;
    let driver_config = DriverConfig { reserved: before.held(), ..configure_driver(&config) };
    let driver = Driver::start(driver_config, Arc::new(protocols), pools.clone(), specs);
    let driver = driver.map_err(ServeError::system("cannot start the workers"))?;
    let admin_address = admin_socket.as_ref().and_then(|socket| socket.local_addr().ok());
    banner::show(&config, &endpoints, admin_address, if log.quiet { LogFormat::Json } else { log.format });

    let dropped = logs.dropped();
    let tuning = Arc::new(Tuning::new(driver.handle(), pools.clone()));
    let reloader = Reloader::new(driver.handle(), pools, Arc::clone(&config), tls, commands, logs.control());
    let reloader = Arc::new(reloader);
    let (drain, ending) = (DrainOrder::default(), EndingOrder::default());
    let control = Control { reloader, tuning: Arc::clone(&tuning), drain, ending, hosts: Arc::default() };
    let admin = Admin::new(driver.handle(), control, new_examiner, move || dropped.dropped_lines() as u64, memory);
    let handle = driver.handle();
    let limits = Arc::new(before.limit_shares(driver.handle()));
    let shared = (Arc::clone(&limits), Arc::clone(&tuning));
    let told = runtime.spawn_blocking(move || tell_predecessor(before, inherited, &shared));
    // The runtime checks logins of the clients that are served already.
    runtime.block_on(told).map_err(io::Error::other).map_err(ServeError::system("cannot take over"))?;
    let giver = SuccessorListener::wait(&config, driver.handle(), Arc::clone(&limits), tuning, copies);
    on_serving();
    let ended = runtime.block_on(watch(signals, &handle, &admin, (admin_socket, console), &giver));
    // Dropping the runtime waits for requests that are being answered.
    drop(runtime);
    let joined = join(driver, ended);
    if !giver.has_given() {
        files.iter().for_each(SocketFile::remove);
    }
    pid_file.iter().for_each(PidFile::remove);
    tracing::info!("stopped");
    joined
}

/// Waits for the workers, which are stopped if the admin thread has failed.
fn join(driver: Driver, ended: io::Result<()>) -> Result<(), ServeError> {
    if ended.is_err() {
        driver.handle().stop();
    }
    let intact = driver.join();
    ended.map_err(ServeError::system("the admin thread failed"))?;
    if intact { Ok(()) } else { Err(ServeError::Defect) }
}

type MemoryReading = Box<dyn Fn() -> ProtocolMemory + Send + Sync>;

/// All protocols, and what tells how much memory they hold for all clients together.
fn protocols(config: &Config, pools: &Arc<LivePools>) -> (Protocols, MemoryReading) {
    let postgres = new_postgres(config, Arc::clone(pools));
    let http: Vec<bool> = config.listeners.iter().map(|listener| listener.http.is_some()).collect();
    let redis = Redis::new(Arc::clone(pools) as _).with_http(&http);
    let (statements, http) = (postgres.memory(), redis.listener_memory());
    let spoken = config.listeners.iter().map(|listener| listener.kind).collect();
    let mongodb = MongoDb::new(Arc::clone(pools) as _);
    let protocols = Protocols::new(postgres, redis, mongodb, spoken, Arc::clone(pools));
    (protocols, Box::new(move || ProtocolMemory { statements: statements(), http: http() }))
}

/// Reads certificates and keys, and gives listeners what accepts TLS there.
fn load_tls(config: &Config, specs: &mut [driver::ListenerSpec]) -> Result<Arc<Tls>, Problems> {
    let tls = Arc::new(Tls::load(config)?);
    for (listener, spec) in specs.iter_mut().enumerate() {
        spec.tls = tls.acceptor(listener);
    }
    Ok(tls)
}

/// The listening sockets of a process.
struct Opened {
    /// The sockets of each listener.
    listeners: Vec<Vec<Bound>>,
    admin_socket: Option<TcpListener>,
    admin_problem: Option<Problem>,
    copies: Sockets,
}

impl Opened {
    /// Opens the sockets that are not inherited.
    fn open(config: &Config, mut inherited: Option<&mut Inherited>) -> Result<Self, ServeError> {
        // The admin address is opened first, so that it is open once a client's port is. An error of a listener is
        // still reported before one of the admin address.
        let admin = admin_socket(config, inherited.as_deref_mut());
        let mut activated =
            Activated::take().map_err(ServeError::system("cannot use the sockets that systemd passes"))?;
        let open = |listener| open(listener, &config.tcp, inherited.as_deref_mut(), &mut activated);
        let listeners = config.listeners.iter().map(open);
        let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
        activated.require_none().map_err(Problems::from)?;
        let (admin_socket, admin_problem) = admin?;
        let copies = copies(config, &listeners, admin_socket.as_ref());
        let copies = copies.map_err(ServeError::system("cannot copy a socket"))?;
        Ok(Self { listeners, admin_socket, admin_problem, copies })
    }
}

/// The runtime of the admin address, and the signals that it waits for. Starts no thread yet.
fn admin_runtime(config: &Config) -> Result<(tokio::runtime::Runtime, Signals), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(ADMIN_BLOCKING_THREADS)
        .build()
        .map_err(ServeError::system("cannot make the admin thread"))?;
    let signals = {
        let _inside = runtime.enter();
        Signals::new(config.is_in_place_of_pgbouncer()).map_err(ServeError::system("cannot watch for signals"))?
    };
    Ok((runtime, signals))
}

/// Tells the predecessor, if there is one, that clients are served here from now on.
fn tell_predecessor(
    before: Predecessors,
    inherited: Option<Inherited>,
    (limits, tuning): &(Arc<LimitShares>, Arc<Tuning>),
) {
    if let Err(error) = before.follow(limits) {
        tracing::error!(%error, "limits do not hold together with the processes before this one");
    }
    let Some(inherited) = inherited else { return };
    match inherited.serving(limits) {
        Ok(sizes) => tuning.resume(sizes),
        Err(error) => tracing::error!(%error, "the process before this one may still be there: end it"),
    }
    systemd::notify_main_process();
}

/// The sockets of a listener: inherited from the predecessor, passed by systemd, or new ones. Beside others, that of
/// all IPv6 addresses is left out where the machine has none.
fn open(
    listener: &crate::config::Listener,
    tcp: &TcpOptions,
    mut inherited: Option<&mut Inherited>,
    activated: &mut Activated,
) -> Result<Vec<Bound>, ServeError> {
    let mut opened = Vec::new();
    for endpoint in listener.endpoints() {
        let name = endpoint.to_string();
        let is_activated = inherited.as_deref().is_some_and(|inherited| inherited.is_activated(&name));
        let bound = match inherited.as_deref_mut().and_then(|inherited| inherited.listener(&name)) {
            Some(socket) if is_activated => adopt(endpoint, socket.into()).map(Bound::of_systemd),
            Some(socket) => adopt(endpoint, socket.into()),
            None => activated.adopt(listener, endpoint, tcp).unwrap_or_else(|| bind(listener, endpoint, tcp)),
        };
        match bound {
            Ok(bound) => opened.push(bound),
            Err(error) if lacks_ipv6(endpoint, &error) && !listener.more.is_empty() => {}
            Err(source) => {
                let what = format!("cannot listen on {endpoint}{}", hint_of(&source));
                return Err(ServeError::system(what)(source));
            }
        }
    }
    Ok(opened)
}

/// What to do when an address cannot be listened on.
fn hint_of(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => " (if another Poolhouse serves there, --take-over has it hand over)",
        _ => "",
    }
}

/// Duplicates of the sockets, to hand to a process that takes over.
fn copies(config: &Config, bound: &[Vec<Bound>], admin: Option<&TcpListener>) -> io::Result<Sockets> {
    let copy = |bound: &Bound| Ok((bound.configured.to_string(), bound.socket.try_clone()?));
    let listeners = bound.iter().flatten().map(copy).collect::<io::Result<_>>()?;
    let copy = |(address, socket): (SocketAddr, &TcpListener)| Ok((address.to_string(), socket.try_clone()?.into()));
    let admin: Option<io::Result<_>> = config.admin.listen.zip(admin).map(copy);
    let activated = bound.iter().flatten().filter(|bound| bound.is_activated).map(|bound| bound.configured.to_string());
    Ok(Sockets { listeners, activated: activated.collect(), admin: admin.transpose()? })
}

/// The socket of the admin address, if there is one. If the default address is in use, there is none, and a warning
/// says so; an address that was configured must be free.
fn admin_socket(
    config: &Config,
    inherited: Option<&mut Inherited>,
) -> Result<(Option<TcpListener>, Option<Problem>), ServeError> {
    let Some(address) = config.admin.listen else { return Ok((None, None)) };
    if let Some(socket) = inherited.and_then(|inherited| inherited.admin(&address.to_string())) {
        return Ok((Some(socket.into()), None));
    }
    match bind_admin(address) {
        Ok(socket) => Ok((Some(socket), None)),
        Err(source) if config.admin.is_configured => {
            let what = format!("cannot listen on the admin address {address}{}", hint_of(&source));
            Err(ServeError::system(what)(source))
        }
        Err(error) => {
            let problem = Problem::warning(format!("no admin address: cannot listen on {address}: {error}"));
            Ok((None, Some(problem.hint("name another one, or \"off\""))))
        }
    }
}

type Parts = (Vec<driver::ListenerSpec>, Vec<SocketFile>, Vec<Vec<crate::config::Endpoint>>);

fn take_apart(config: &Config, bound: Vec<Vec<Bound>>) -> Parts {
    let mut parts = Parts::default();
    for (listener, mut bound) in config.listeners.iter().zip(bound) {
        parts.1.extend(bound.iter_mut().filter_map(|bound| bound.file.take()));
        parts.2.push(bound.iter().map(|bound| bound.endpoint.clone()).collect());
        parts.0.push(spec(listener, bound));
    }
    parts
}

fn new_postgres(config: &Config, pools: Arc<LivePools>) -> Postgres {
    let wording = config.serve.compatible_with.wording();
    Postgres::new(pools).with_node(config.serve.node_id).with_wording(wording)
}

fn start_logs(config: &Config, log: &LogOptions) -> Result<Logs, ServeError> {
    let shape = PgBouncerLines::wanted(&config.serve);
    Logs::start(log, &config.log, shape).map_err(ServeError::Logging)
}

fn configure_driver(config: &Config) -> DriverConfig {
    let workers = match config.serve.workers {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get).min(crate::config::MAX_WORKERS as usize),
        workers => workers as usize,
    };
    let in_pgbouncers_place = config.is_in_place_of_pgbouncer();
    DriverConfig {
        workers,
        max_auth_failures: config.serve.max_auth_failures,
        name_failure_ttl: config.dns.failure_ttl,
        max_clients: config.limits.max_clients,
        tcp: config.tcp,
        logged: config.logged_connections(),
        log_servers: in_pgbouncers_place,
        drain_waiting: in_pgbouncers_place,
        ..DriverConfig::default()
    }
}

/// What became of a file of PgBouncer's.
fn announce_translation(config: &Config, log: &LogOptions) {
    let Some(source) = config.source.as_ref().filter(|source| source.translation.is_some()) else { return };
    source.notes().for_each(|note| announce(note, log));
    let file = source.path.display();
    tracing::info!(%file, "a file of PgBouncer's is served; `poolhouse convert` prints what it is translated to");
}

fn announce(problem: &Problem, log: &LogOptions) {
    match log.format {
        LogFormat::Text if log.quiet => tracing::warn!("{}", one_line(problem)),
        LogFormat::Text => banner::write_stderr(&format!("{problem}\n")),
        LogFormat::Json => tracing::warn!(hint = problem.hint, "{}", problem.message),
    }
}

/// Serves the admin address, reloads when asked to, and returns when the process is to end.
async fn watch(
    mut signals: Signals,
    handle: &Handle,
    admin: &Admin,
    (socket, console): (Option<TcpListener>, ConsoleSocket),
    giver: &SuccessorListener,
) -> io::Result<()> {
    let lists = Console::new(handle.clone(), admin.clone());
    let pages = admin.router(lists.routes());
    tokio::spawn(lists.serve(console.listen()?));
    let mut serving = None;
    if let Some(socket) = socket {
        serving = Some(tokio::spawn(connections::serve(connections::prepare(socket)?, pages)));
        tokio::spawn(admin.clone().keep_history());
    }
    systemd::notify_ready();
    start_background_tasks(handle, admin);
    let times = || admin.control().reloader.in_force().serve.clone();
    let mut drained_at = None;
    let ending = loop {
        tokio::select! {
            wish = signals.next() => match wish {
                Wish::End(ending) => break ending,
                Wish::Reload => reload(admin).await,
                Wish::Pause => order(handle, "paused", |handle| handle.pause(None)),
                Wish::Resume => order(handle, "resumed", |handle| handle.resume(None)),
            },
            over = admin.control().drain.wait() => {
                let Some(over) = over else { break Ending::drain("an order") };
                tracing::info!(?over, "draining over time: clients are sent away one after the other");
                admin.set_draining();
                handle.drain_over(over);
                drained_at = Some(tokio::time::Instant::now() + over);
            }
            () = at(drained_at) => break Ending::drain("the time of the drain is over"),
            manner = admin.control().ending.next() => break Ending { why: "an order at the console", manner },
            () = giver.wait_until_left() => {
                // The successor serves the admin address now.
                if let Some(serving) = serving.take() {
                    serving.abort();
                }
                tracing::info!("another process has taken over: clients may stay until they leave or stay_time \
                    is over");
                tokio::select! {
                    () = drained(handle) => return Ok(()),
                    ending = signals.next_ending() => break ending,
                    () = after(times().stay_time) => break Ending::drain("stay_time is over"),
                }
            }
            // Workers that end by themselves have failed; `join` reports it.
            () = tokio::time::sleep(Duration::from_secs(1)) => if handle.is_over() { return Ok(()) },
        }
    };
    if !giver.has_left() {
        systemd::notify_stopping();
    }
    giver.close();
    admin.set_draining();
    end(ending, signals, handle, admin).await;
    Ok(())
}

fn start_background_tasks(handle: &Handle, admin: &Admin) {
    let reloader = || Arc::clone(&admin.control().reloader);
    tokio::spawn(systemd::watchdog(handle.clone()));
    let tuning = Arc::clone(&admin.control().tuning);
    tokio::spawn(async move { tuning.run().await });
    tokio::spawn(watch_files(reloader()));
    tokio::spawn(follow_names(reloader()));
    tokio::spawn(follow_hosts(reloader(), handle.clone(), Arc::clone(&admin.control().hosts)));
    tokio::spawn(stats_line::write(handle.clone(), reloader()));
}

/// Ends the clients, and returns when the process can end.
async fn end(ending: Ending, mut signals: Signals, handle: &Handle, admin: &Admin) {
    let control = admin.control();
    let drain_time = control.reloader.in_force().serve.drain_time;
    match ending.manner {
        Manner::Drain => {
            tracing::info!(
                signal = ending.why,
                "draining: no new clients, transactions may end; a second signal ends it"
            );
            handle.drain();
        }
        Manner::Leave => {
            tracing::info!(
                signal = ending.why,
                "shutting down: no new clients, and those that are here may stay; a second signal ends it"
            );
            handle.leave();
        }
        Manner::AtOnce => {
            tracing::info!(signal = ending.why, "ending at once");
            return handle.stop();
        }
    }
    tokio::select! {
        () = drained(handle) => return,
        ending = signals.next_ending() => tracing::warn!(signal = ending.why, "ending at once"),
        () = control.ending.next_at_once() => tracing::warn!(signal = "an order at the console", "ending at once"),
        () = after(drain_time) => tracing::warn!("drain_time is over: ending at once"),
    }
    handle.stop();
}

/// Gives an order that a signal stands for.
fn order(handle: &Handle, done: &str, give: impl FnOnce(&Handle) -> bool) {
    match give(handle) {
        true => tracing::info!("{done}"),
        false => tracing::error!("too many databases have orders of their own: not {done}"),
    }
}

/// Reloads the configuration. The outcome is logged.
async fn reload(admin: &Admin) {
    let reloader = Arc::clone(&admin.control().reloader);
    systemd::notify_reloading();
    let _ = tokio::task::spawn_blocking(move || reloader.reload()).await;
    systemd::notify_ready();
}

async fn drained(handle: &Handle) {
    while !handle.is_over() {
        tokio::time::sleep(DRAIN_POLL_INTERVAL).await;
    }
}

async fn at(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn after(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
