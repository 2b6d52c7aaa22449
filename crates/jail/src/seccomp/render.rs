//! The policy as text, for the golden file that shows a reviewer every change of it.

use std::fmt;

use super::{ArgumentCase, ArgumentTest, Policy, SyscallGroup, SyscallRule, SyscallVerdict};

impl Policy {
    /// Describes the verdict for a call number and its reason: one line, and one more for each case
    /// of its arguments.
    pub fn describe(&self, number: u32) -> String {
        match self.find(number) {
            Some((name, group)) => line(number, name, &group.rule, group.why),
            None => line(number, "-", &SyscallRule::Always(self.unlisted), "unlisted"),
        }
    }

    fn find(&self, number: u32) -> Option<(&'static str, &'static SyscallGroup)> {
        self.syscall_groups()
            .flat_map(|group| group.calls.iter().map(move |call| (call, group)))
            .find(|(call, _)| call.number == number)
            .map(|(call, group)| (call.name, group))
    }
}

fn line(number: u32, name: &str, rule: &SyscallRule, why: &str) -> String {
    match rule {
        SyscallRule::Always(verdict) => format!("{number:>4} {name:<24} {verdict:<12} {why}"),
        SyscallRule::ByArgument(decision) => {
            let mut text = format!("{number:>4} {name:<24} {:<12} {why}", "conditional:");
            for case in decision.cases {
                text += &format!("\n{:>29} {case}", "");
            }
            text + &format!("\n{:>29} otherwise {}", "", decision.otherwise)
        }
    }
}

impl fmt::Display for ArgumentCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} when", self.then)?;
        for (position, test) in self.tests.iter().enumerate() {
            write!(f, "{} {test}", if position == 0 { "" } else { " and" })?;
        }
        Ok(())
    }
}

impl fmt::Display for ArgumentTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.argument.name)?;
        if self.mask != u32::MAX {
            write!(f, " & {:#x}", self.mask)?;
        }
        let names: Vec<_> = self.any_of.iter().map(|value| value.name).collect();
        write!(f, " is {}", names.join("|"))
    }
}

impl fmt::Display for SyscallVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            SyscallVerdict::Allow => f.pad("allow"),
            SyscallVerdict::Succeed => f.pad("pretend"),
            SyscallVerdict::Errno(libc::EPERM) => f.pad("EPERM"),
            SyscallVerdict::Errno(libc::ENOMEM) => f.pad("ENOMEM"),
            SyscallVerdict::Errno(libc::EINVAL) => f.pad("EINVAL"),
            SyscallVerdict::Errno(libc::ENOTTY) => f.pad("ENOTTY"),
            SyscallVerdict::Errno(libc::ENOSYS) => f.pad("ENOSYS"),
            SyscallVerdict::Errno(libc::ENOPROTOOPT) => f.pad("ENOPROTOOPT"),
            SyscallVerdict::Errno(libc::EPROTONOSUPPORT) => f.pad("EPROTONOSUPPORT"),
            SyscallVerdict::Errno(libc::EOPNOTSUPP) => f.pad("EOPNOTSUPP"),
            SyscallVerdict::Errno(libc::EAFNOSUPPORT) => f.pad("EAFNOSUPPORT"),
            SyscallVerdict::Errno(other) => f.pad(&format!("errno {other}")),
        }
    }
}
