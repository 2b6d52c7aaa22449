//! The policy in words, for the golden file that shows every change of it to a reviewer.

use std::fmt;

use super::{Case, Group, Policy, Rule, Test, Verdict};

impl Policy {
    /// What happens to a call number, and why: one line, and one more for each case that its
    /// arguments make.
    pub fn describe(&self, number: u32) -> String {
        match self.find(number) {
            Some((name, group)) => line(number, name, &group.rule, group.why),
            None => line(number, "-", &Rule::Always(self.unlisted), "unlisted"),
        }
    }

    fn find(&self, number: u32) -> Option<(&'static str, &'static Group)> {
        self.groups()
            .flat_map(|group| group.calls.iter().map(move |call| (call, group)))
            .find(|(call, _)| call.number == number)
            .map(|(call, group)| (call.name, group))
    }
}

fn line(number: u32, name: &str, rule: &Rule, why: &str) -> String {
    match rule {
        Rule::Always(verdict) => format!("{number:>4} {name:<24} {verdict:<12} {why}"),
        Rule::ByArgument(decision) => {
            let mut text = format!("{number:>4} {name:<24} {:<12} {why}", "conditional:");
            for case in decision.cases {
                text += &format!("\n{:>29} {case}", "");
            }
            text + &format!("\n{:>29} otherwise {}", "", decision.otherwise)
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} when", self.then)?;
        for (position, test) in self.tests.iter().enumerate() {
            write!(f, "{} {test}", if position == 0 { "" } else { " and" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.argument.name)?;
        if self.mask != u32::MAX {
            write!(f, " & {:#x}", self.mask)?;
        }
        let names: Vec<_> = self.any_of.iter().map(|value| value.name).collect();
        write!(f, " is {}", names.join("|"))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Verdict::Allow => f.pad("allow"),
            Verdict::Pretend => f.pad("pretend"),
            Verdict::Errno(libc::EPERM) => f.pad("EPERM"),
            Verdict::Errno(libc::ENOMEM) => f.pad("ENOMEM"),
            Verdict::Errno(libc::EINVAL) => f.pad("EINVAL"),
            Verdict::Errno(libc::ENOTTY) => f.pad("ENOTTY"),
            Verdict::Errno(libc::ENOSYS) => f.pad("ENOSYS"),
            Verdict::Errno(libc::ENOPROTOOPT) => f.pad("ENOPROTOOPT"),
            Verdict::Errno(libc::EPROTONOSUPPORT) => f.pad("EPROTONOSUPPORT"),
            Verdict::Errno(libc::EOPNOTSUPP) => f.pad("EOPNOTSUPP"),
            Verdict::Errno(libc::EAFNOSUPPORT) => f.pad("EAFNOSUPPORT"),
            Verdict::Errno(other) => f.pad(&format!("errno {other}")),
        }
    }
}
