//! Restrictions for a trusted host program that processes untrusted input: it reads what its user
//! can read, writes only below given directories, and ends with its parent.
//!
//! This is no jail: the program is trusted, only its input is not.

use crate::landlock;
use crate::plan::PathAccess;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// The limits on what a host program may write.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// Existing directories below which it may write.
    pub writable: Vec<PathBuf>,
    /// Maximum length of a file in bytes.
    pub file_bytes: u64,
}

impl Confinement {
    /// Applies the restrictions to `command`. Its process is killed when the thread that starts it
    /// ends.
    pub fn apply_to(&self, command: &mut Command) -> io::Result<()> {
        let everywhere = (PathBuf::from("/"), PathAccess::Read);
        let null = (PathBuf::from("/dev/null"), PathAccess::Device);
        let writable = self.writable.iter().map(|path| (path.clone(), PathAccess::Write));
        let rules: Vec<_> = [everywhere, null].into_iter().chain(writable).collect();
        let ruleset = landlock::ruleset(&rules)?;
        let (file_bytes, parent) = (self.file_bytes, std::process::id());
        // SAFETY: between fork and exec only system calls are made, on memory that exists already.
        unsafe { command.pre_exec(move || confine_process(&ruleset, file_bytes, parent)) };
        Ok(())
    }
}

fn confine_process(ruleset: &OwnedFd, file_bytes: u64, parent: u32) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: file_bytes, rlim_max: file_bytes };
    // SAFETY: all three take numbers, or a struct that outlives the call.
    let results = unsafe {
        [
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL),
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit),
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        ]
    };
    if results.iter().any(|result| *result != 0) {
        return Err(io::Error::last_os_error());
    }
    // The parent may have exited before PR_SET_PDEATHSIG took effect.
    // SAFETY: takes no arguments.
    if u32::try_from(unsafe { libc::getppid() }) != Ok(parent) {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    landlock::restrict_self(ruleset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn shell(script: &str, bounds: &Confinement, here: &Path) -> bool {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).current_dir(here);
        bounds.apply_to(&mut command).unwrap();
        command.output().unwrap().status.success()
    }

    #[test]
    fn a_bound_program_writes_where_it_may_and_no_more_than_it_may() {
        let here = std::env::temp_dir().join(format!("belljar-bounds-{}", std::process::id()));
        let [open, closed] = ["open", "closed"].map(|name| here.join(name));
        fs::create_dir_all(&open).unwrap();
        fs::create_dir_all(&closed).unwrap();
        let bounds = Confinement { writable: vec![open.clone()], file_bytes: 4096 };
        assert!(shell("echo x > open/file && cat open/file > /dev/null", &bounds, &here));
        assert!(shell(
            "mkdir open/a open/b && mv open/file open/a && ln open/a/file open/b/",
            &bounds,
            &here
        ));
        assert!(!shell("echo x > closed/file", &bounds, &here));
        assert!(!shell("ln open/b/file closed/file", &bounds, &here));
        assert!(!shell("trap '' XFSZ; head -c 8192 /dev/zero > open/large", &bounds, &here));
        assert_eq!(fs::metadata(open.join("large")).unwrap().len(), 4096);
        assert_eq!(fs::read_dir(&closed).unwrap().count(), 0);
        fs::remove_dir_all(here).unwrap();
    }
}
