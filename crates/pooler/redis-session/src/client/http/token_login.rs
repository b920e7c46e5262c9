//! The login of a client over HTTP, by the token of its first request.

use std::sync::Arc;

use http_sansio::{Denied, Door};
use seam::PoolId;

use crate::{Client, Directory, HttpRules, Version, rest::rules::Access};

/// Asks the directory while a client's bytes are read. The client's state is changed afterwards.
pub(super) struct TokenLogin<'d> {
    directory: &'d dyn Directory,
    listener: u16,
    version: Version,
    /// The client has shown a token.
    authenticated: bool,
    /// The token with which the client has logged in, and the pool that serves it.
    pub(super) entered: Option<(Arc<Access>, PoolId)>,
    pub(super) has_refused: bool,
}

impl<'d> TokenLogin<'d> {
    pub(super) fn new(directory: &'d dyn Directory, client: &mut Client) -> Self {
        Self {
            directory,
            listener: client.http_mut().listener,
            version: client.settings.version(),
            authenticated: client.identity.is_authenticated(),
            entered: None,
            has_refused: false,
        }
    }
}

impl Door for TokenLogin<'_> {
    type Caller = Arc<Access>;

    fn rules(&self) -> Option<Arc<HttpRules>> {
        self.directory.http(self.listener)
    }

    fn recognise(&mut self, token: &[u8]) -> Option<Arc<Access>> {
        let access = self.directory.access(token);
        self.has_refused |= access.is_none();
        access
    }

    fn enter(&mut self, access: &Arc<Access>) -> Result<(), Denied> {
        if !self.authenticated {
            let pool = self
                .directory
                .route(&access.user, access.database, self.version)
                .map_err(|why| Denied::new(503, format!("ERR Poolhouse: {why}")))?;
            self.entered = Some((Arc::clone(access), pool));
            self.authenticated = true;
        }
        Ok(())
    }
}
