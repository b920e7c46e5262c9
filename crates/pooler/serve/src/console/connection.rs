//! One connection to the console: moves bytes between a socket and its session, and has commands carried out.

use std::{io, sync::Arc, time::Duration};

use console::{Command, Failure, NOT_ALLOWED, Next, Role, Session};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::OwnedSemaphorePermit,
    time::timeout,
};

use super::{Console, orders, running::Entry};

/// From the connection to the end of the login.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);
/// What a user hears who may only look, where all places of such users are taken.
const NO_VIEWER_PLACE: &str = "no more connections allowed to the console";
/// Bytes that one read takes.
const READ_BYTES: usize = 4096;
/// Bytes that are kept of what a client sends while a command of its runs.
const MAX_WAITING_BYTES: usize = 64 * 1024;

/// A user who has logged in.
struct Visit {
    entry: Entry,
    user: String,
    is_owner: bool,
    /// The place of a user who may only look.
    _place: Option<OwnedSemaphorePermit>,
}

pub async fn serve(mut stream: UnixStream, console: Arc<Console>) -> io::Result<()> {
    let mut session = Session::default();
    let mut out = Vec::new();
    let mut visit: Option<Visit> = None;
    loop {
        if let Some(Visit { user, is_owner, .. }) = &visit {
            // A reload may have taken the role away.
            session.set_role(console.role(user, *is_owner), &mut out);
        }
        let next = session.next(&mut out);
        stream.write_all(&std::mem::take(&mut out)).await?;
        match next {
            Next::Input => {
                let read = receive(&mut stream, &mut session);
                let count = match visit {
                    None => timeout(LOGIN_TIMEOUT, read).await.map_err(|_| io::ErrorKind::TimedOut)??,
                    Some(_) => read.await?,
                };
                if count == 0 {
                    return Ok(());
                }
            }
            Next::Login { user, is_owner } => {
                let role = console.role(&user, is_owner);
                let place = Arc::clone(&console.viewer_places).try_acquire_owned().ok();
                match role {
                    None => session.refuse(NOT_ALLOWED, &mut out),
                    Some(Role::Viewer) if place.is_none() => session.refuse(NO_VIEWER_PLACE, &mut out),
                    Some(role) => {
                        let entry = console.running.enter();
                        console.statistics.count_login();
                        session.admit(role, &console.parameters(), entry.key(), &mut out);
                        tracing::info!(user, "at the console");
                        let place = place.filter(|_| role == Role::Viewer);
                        visit = Some(Visit { entry, user, is_owner, _place: place });
                    }
                }
            }
            Next::Run(command) => {
                let Visit { entry, user, .. } = visit.as_ref().expect("a command comes after the login");
                orders::log(&command, user);
                console.statistics.count_command();
                let outcome = tokio::select! {
                    biased;
                    () = entry.cancelled() => Err(Failure::cancelled()),
                    outcome = run(&console, command) => outcome,
                    ended = drain_input(&mut stream, &mut session) => return ended,
                };
                session.complete(outcome, &mut out);
            }
            Next::Cancel { process, secret } => {
                console.running.cancel((process, secret));
                return Ok(());
            }
            Next::Close => return stream.shutdown().await,
        }
    }
}

async fn run(console: &Arc<Console>, command: Command) -> Result<console::Answer, Failure> {
    match command {
        Command::Show(show) => {
            let console = Arc::clone(console);
            let list = tokio::task::spawn_blocking(move || console.show(show)).await;
            list.map(console::Answer::table).map_err(|_| Failure::new("the list could not be made"))
        }
        order => console.carry_out(order).await,
    }
}

/// Takes bytes from the client. 0 is the end.
async fn receive(stream: &mut UnixStream, session: &mut Session) -> io::Result<usize> {
    let mut bytes = [0; READ_BYTES];
    let count = stream.read(&mut bytes).await?;
    session.receive(&bytes[..count]);
    Ok(count)
}

/// Takes bytes from the client while its command runs, as far as they are kept. Returns when the client has left.
async fn drain_input(stream: &mut UnixStream, session: &mut Session) -> io::Result<()> {
    while session.waiting_bytes() < MAX_WAITING_BYTES {
        if receive(stream, session).await? == 0 {
            return Ok(());
        }
    }
    std::future::pending().await
}
