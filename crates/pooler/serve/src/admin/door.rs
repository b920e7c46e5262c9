//! Accepts connections to the admin address, a bounded number at a time, and closes those that are silent for long.
//! Otherwise anyone who reaches the address could use up the descriptors that clients and servers need. If all places
//! are taken, the connection that has sent no request for longest gives way to the next. Knows no page.

mod seats;

use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{Extension, Router, extract::ConnectInfo, middleware::from_fn_with_state};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};

use self::seats::{Seat, Seats};

/// Connections at a time, those included that wait for what they ordered. One more waits for a place, and further ones
/// in the kernel's queue.
const MAX_CONNECTIONS: usize = 64;
/// How long a connection may take to say what it wants, at first and between questions.
const HEADER_TIME: Duration = Duration::from_secs(5);
/// How long a connection may take to read a part of its answer.
const READ_TIME: Duration = Duration::from_secs(30);
/// How long a connection that gives way may take to read the rest of its last answer.
const LAST_READ_TIME: Duration = Duration::from_secs(3);
/// The pause after an accept that failed, mostly for want of descriptors.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Makes a listening socket one of this runtime. Must be called within one.
pub fn prepare(socket: std::net::TcpListener) -> io::Result<TcpListener> {
    // Those that are accepted inherit it.
    SockRef::from(&socket).set_tcp_user_timeout(Some(READ_TIME))?;
    TcpListener::from_std(socket)
}

/// Answers all connections, without end.
pub async fn serve(socket: TcpListener, router: Router) {
    let seats = Seats::new(MAX_CONNECTIONS);
    loop {
        match socket.accept().await {
            Ok((stream, peer)) => {
                let seat = seats.take().await;
                let router = router.clone().layer(Extension(ConnectInfo(peer)));
                tokio::spawn(answer(stream, peer, router, seat));
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept at the admin address");
                tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
            }
        }
    }
}

async fn answer(stream: TcpStream, peer: SocketAddr, router: Router, seat: Arc<Seat>) {
    let router = router.layer(from_fn_with_state(Arc::clone(&seat), seats::note));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = seat.gives_way() => {
            if !seat.has_asked() {
                return;
            }
            // What it asks at this moment is answered.
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = seat.has_been_answered_for(LAST_READ_TIME) => {
                    tracing::debug!(%peer, "a connection to the admin address does not read, and another needs its place");
                    return;
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection to the admin address");
    }
}
