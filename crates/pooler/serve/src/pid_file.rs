//! The file with the number of the process, by which scripts find it. It keeps a second process with the same file from
//! starting.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
};

use rustix::process::{Pid, test_kill_process};

/// The file of this process.
pub struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file. `is_successor`: the process whose number is in it hands over to this one.
    ///
    /// # Errors
    /// A living process has the file, or it cannot be written.
    pub fn write(path: &Path, is_successor: bool) -> io::Result<Self> {
        Self::refuse_holder(path, is_successor)?;
        // It replaces the file at once: a reader never sees a part of it.
        let new = path.with_extension("pid.new");
        fs::write(&new, format!("{}\n", process::id()))?;
        fs::rename(&new, path)?;
        Ok(Self(path.to_owned()))
    }

    /// Fails if a living process has the file, unless that process hands over to this one.
    pub fn refuse_holder(path: &Path, is_successor: bool) -> io::Result<()> {
        if let Some(other) = holder(path).filter(|_| !is_successor) {
            let text = format!("{} is that of the living process {other}: end it first", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        Ok(())
    }

    /// Removes the file, unless another process has it now.
    pub fn remove(&self) {
        if number(&self.0).is_some_and(|number| number.unsigned_abs() == process::id()) {
            let _ = fs::remove_file(&self.0);
        }
    }
}

fn number(path: &Path) -> Option<i32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The living process, other than this one, whose number is in the file.
fn holder(path: &Path) -> Option<i32> {
    let number = number(path).filter(|number| number.unsigned_abs() != process::id())?;
    let is_alive = match test_kill_process(Pid::from_raw(number)?) {
        Ok(()) => true,
        // One of another user.
        Err(error) => error == rustix::io::Errno::PERM,
    };
    is_alive.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_living_process_is_kept_and_one_of_a_dead_one_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.pid");
        let mut child = process::Command::new("sleep").arg("60").spawn().unwrap();
        fs::write(&path, format!("{}\n", child.id())).unwrap();
        let refused = PidFile::write(&path, false).err().unwrap();
        assert!(refused.to_string().contains("living process"), "{refused}");
        let successor = PidFile::write(&path, true).unwrap();
        assert_eq!(number(&path), Some(process::id() as i32));
        fs::write(&path, format!("{}\n", child.id())).unwrap();
        successor.remove();
        assert!(path.exists(), "it is another's now");
        child.kill().unwrap();
        child.wait().unwrap();
        let own = PidFile::write(&path, false).unwrap();
        own.remove();
        assert!(!path.exists());
    }
}
