//! The admin address's door: so many connections at a time, and none that says nothing for long. Without that, whoever reaches
//! the address could use up the descriptors that clients and servers need. Knows no page.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Extension, Router, extract::ConnectInfo};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use socket2::SockRef;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

/// Connections at a time, those included that wait for what they ordered; further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 64;
/// How long a connection may take to say what it wants, at first and between questions.
const HEADER_TIME: Duration = Duration::from_secs(5);
/// How long a connection may take to read a part of its answer.
const READ_TIME: Duration = Duration::from_secs(30);
/// After an accept that failed, mostly for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Makes a listening socket one of this runtime. Must be called within one.
pub fn prepare(socket: std::net::TcpListener) -> io::Result<TcpListener> {
    // Those that are accepted inherit it.
    SockRef::from(&socket).set_tcp_user_timeout(Some(READ_TIME))?;
    TcpListener::from_std(socket)
}

/// Answers whoever comes in, without end.
pub async fn serve(socket: TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
        match socket.accept().await {
            Ok((stream, peer)) => {
                let router = router.clone().layer(Extension(ConnectInfo(peer)));
                tokio::spawn(async move {
                    answer(stream, peer, router).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept at the admin address");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn answer(stream: TcpStream, peer: SocketAddr, router: Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = connection.await {
        tracing::debug!(%peer, %error, "a connection to the admin address");
    }
}
