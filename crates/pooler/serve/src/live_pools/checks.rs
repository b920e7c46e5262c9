//! What logins wait for, by the configuration in force.

use postgres_session::{CheckVerdict, LoginCheck, LoginQuestion};

use super::LivePools;
use crate::{config::Method, pools::Preparation};

impl LivePools {
    /// Has something found out that no worker may find out itself.
    pub(super) fn begin_login_check(&self, mut check: LoginCheck) {
        let checks = self.checks.as_ref().expect("a process that serves checks logins");
        let pools = self.current();
        match std::mem::replace(&mut check.question, LoginQuestion::Proof) {
            LoginQuestion::Password(password) => match pools.method(&check.attempt) {
                Ok(Method::Ldap(options)) => {
                    checks.ask_directory_server(check, password, options, pools.verified_passwords());
                }
                _ => {
                    let why = "the configuration has changed meanwhile".to_owned();
                    checks.end(&check, CheckVerdict::Unavailable(why));
                }
            },
            LoginQuestion::Comparison(comparison) => checks.compute(&check, move || comparison.verdict()),
            LoginQuestion::Proof => match pools.preparation(&check.attempt) {
                Some(Preparation::SystemUser(uid)) => checks.look_up_name(&check, uid),
                Some(Preparation::Verifiers(password, others)) => checks.compute(&check, move || {
                    password.derive_verifiers(&others);
                    CheckVerdict::Known
                }),
                // Another client has waited for the same.
                None => checks.end(&check, CheckVerdict::Known),
            },
        }
    }
}
