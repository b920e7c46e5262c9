//! Accepts connections to the admin address, a bounded number at a time, and closes those that are silent for long:
//! otherwise they could use up the descriptors that clients and servers need. If all slots are taken, the connection
//! that has sent no request for longest is closed for the next one. Knows no page.

mod slots;

use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{Extension, Router, extract::ConnectInfo, middleware::from_fn_with_state};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};

use self::slots::{Slot, Slots};

/// Connections at a time, with those whose order is being carried out. One more waits for a slot, and further ones in
/// the kernel's queue.
const MAX_CONNECTIONS: usize = 64;
/// Bounds the wait for a request, at first and after an answer.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Bounds the time in which a client reads nothing of its answer.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Bounds the time in which a client whose connection is to close reads nothing of its last answer.
const LAST_READ_TIMEOUT: Duration = Duration::from_secs(3);
/// The pause after an accept that failed, mostly for want of descriptors.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Makes a listening socket one of this runtime. Must be called within one.
pub fn prepare(socket: std::net::TcpListener) -> io::Result<TcpListener> {
    // Accepted sockets inherit it.
    SockRef::from(&socket).set_tcp_user_timeout(Some(READ_TIMEOUT))?;
    TcpListener::from_std(socket)
}

/// Answers all connections, without end.
pub async fn serve(socket: TcpListener, router: Router) {
    let slots = Slots::new(MAX_CONNECTIONS);
    loop {
        match socket.accept().await {
            Ok((stream, peer)) => {
                let slot = slots.take().await;
                let router = router.clone().layer(Extension(ConnectInfo(peer)));
                tokio::spawn(answer(stream, peer, router, slot));
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept at the admin address");
                tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
            }
        }
    }
}

async fn answer(stream: TcpStream, peer: SocketAddr, router: Router, slot: Arc<Slot>) {
    let router = router.layer(from_fn_with_state(Arc::clone(&slot), slots::track_request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = slot.wait_until_asked_to_close() => {
            if !slot.has_requested() {
                return;
            }
            // A request that arrives at this moment is answered.
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = slot.wait_until_idle_for(LAST_READ_TIMEOUT) => {
                    tracing::debug!(%peer, "a connection to the admin address does not read, \
                                            and another needs its place");
                    return;
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection to the admin address");
    }
}
