//! The sessions of the other side of a relay as one protocol sees them: sessions of other protocols do not exist.

use seam::{ClientTag, ServerTag, Sessions};

use super::{Client, Server};

pub struct SessionsOf<'a, Tag, S>(pub &'a mut dyn Sessions<Tag, S>);

macro_rules! only {
    ($tag:ident, $all:ident, $kind:ident, $session:ty) => {
        impl Sessions<$tag, $session> for SessionsOf<'_, $tag, $all> {
            #[inline]
            fn get(&mut self, tag: $tag) -> Option<&mut $session> {
                if let $all::$kind(session) = self.0.get(tag)? { Some(session) } else { None }
            }
        }
    };
}

only!(ServerTag, Server, Postgres, postgres_session::Server);
only!(ServerTag, Server, Redis, redis_session::Server);
only!(ServerTag, Server, MongoDb, mongodb_session::Server);
only!(ClientTag, Client, Postgres, postgres_session::Client);
only!(ClientTag, Client, Redis, redis_session::Client);
only!(ClientTag, Client, MongoDb, mongodb_session::Client);
