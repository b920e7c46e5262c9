//! Scripts: the model knows two texts.

use super::{Connection, Done, Redis, Refusal, Reply, arguments::required_integer, keyspace::Text};

const GET: &[u8] = b"return redis.call('get', KEYS[1])";
const GET_SHA1: &str = "4e6d8fc8bb01276962cce5371fa795a7763657ae";
const INCREMENT: &[u8] = b"return redis.call('incr', KEYS[1])";
const INCREMENT_SHA1: &str = "2bab3b661081db58bd2341920e0ba7cf5dc77b25";

/// An error within a script.
fn script_error(Refusal(why): &Refusal, sha1: &str) -> Refusal {
    Refusal([why, format!(" script: {sha1}, on @user_script:1.").as_bytes()].concat())
}

impl Redis {
    pub(super) fn eval(&mut self, client: Connection, words: &[Vec<u8>], reply: &mut Reply) -> Done {
        let keys = match required_integer(&words[2])? {
            count if count > words.len() as i64 - 3 => {
                return Err("ERR Number of keys can't be greater than number of args".into());
            }
            count if count < 0 => return Err("ERR Number of keys can't be negative".into()),
            count => &words[3..3 + count as usize],
        };
        let database = self.database(client);
        let key = keys.first().ok_or("ERR Lua redis lib command arguments must be strings or integers".into());
        match words[1].as_slice() {
            GET => {
                let text = key.and_then(|key| self.keys.find::<Text>(database, key));
                reply.maybe(text.map_err(|why| script_error(&why, GET_SHA1))?);
            }
            INCREMENT => {
                let number = key.and_then(|key| self.increment(database, key));
                reply.number(number.map_err(|why| script_error(&why, INCREMENT_SHA1))?);
            }
            _ => {
                let why =
                    "ERR Error compiling script (new function): user_script:1: the model does not know this script";
                return Err(why.into());
            }
        }
        Ok(())
    }
}
