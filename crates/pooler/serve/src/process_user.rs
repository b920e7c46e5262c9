//! Changes the user of the process, before it has a thread, a socket or a file.

use std::{ffi::CString, io};

use nix::unistd::{User, geteuid, initgroups, setgid, setuid};

/// Makes the process that of a user, with that user's groups.
///
/// # Errors
/// There is no such user, or the process is neither root's nor the user's already.
pub fn become_user(name: &str) -> io::Result<()> {
    let user = User::from_name(name)?;
    let user = user.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no such user"))?;
    if geteuid() == user.uid {
        return Ok(());
    }
    if !geteuid().is_root() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "only root can become another user"));
    }
    let name = CString::new(name)?;
    initgroups(&name, user.gid)?;
    setgid(user.gid)?;
    setuid(user.uid)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_that_is_not_there_is_an_error() {
        assert_eq!(become_user("no-such-user-here").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
