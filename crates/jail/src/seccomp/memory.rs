//! Calls that allocate memory. Their rules differ between sandboxes whose memory a cgroup counts
//! and sandboxes whose memory the supervisor adds up.

use super::arguments::{ALLOW, FORBIDDEN, argument, bits, by_argument, values, when};
use super::numbers::*;
use super::table::{absent, allow};
use super::{
    ArgumentCase, NamedValue, Syscall, SyscallArgument, SyscallGroup, SyscallVerdict, calls,
};

const MMAP: &[Syscall] = calls![SYS_mmap];
const UNMAPPED: &[Syscall] = calls![SYS_memfd_create SYS_shmget];
const LANDLOCK: &[Syscall] =
    calls![SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self];

pub(super) const COUNTED: &[SyscallGroup] = &[
    by_argument(
        "allocate and map memory, but no reserved huge pages of the host: no cgroup limit counts \
         them; ENOMEM is the answer of a host that has reserved none",
        MMAP,
        &[NO_HUGE_PAGES],
        ALLOW,
    ),
    by_argument(
        "os.memfd_create, whose pages are charged to the cgroup; no reserved huge pages",
        calls![SYS_memfd_create],
        &[when(&[bits(MFD_HUGETLB, argument(1, "flags"), values![MFD_HUGETLB])], NO_MEMORY)],
        ALLOW,
    ),
    allow(
        "System V segments in the own ipc namespace, without which PostgreSQL and MPI will not \
         start; their pages are charged to the cgroup (huge ones take a capability)",
        calls![SYS_shmget],
    ),
    allow("a program may restrict itself further; its rules are charged to the cgroup", LANDLOCK),
];

pub(super) const UNCOUNTED: &[SyscallGroup] = &[
    by_argument(
        "as with a cgroup, but no shared anonymous memory: it outlives the pages that a process \
         has mapped of it, and only a cgroup counts the rest; mmap.mmap(-1, n) uses a file",
        MMAP,
        &[NO_HUGE_PAGES, when(&[bits(KIND_AND_ANONYMOUS, FLAGS, SHARED_ANONYMOUS)], FORBIDDEN)],
        ALLOW,
    ),
    absent(
        "memory that no process has mapped is counted by a cgroup alone, and here there is none; \
         multiprocessing.shared_memory uses files, which are counted",
        UNMAPPED,
    ),
    absent(
        "a ruleset of Landlock holds up to 4.5 MB behind one descriptor, which a cgroup alone counts; \
         programs take a kernel without it for granted",
        LANDLOCK,
    ),
];

const NO_MEMORY: SyscallVerdict = SyscallVerdict::Errno(ENOMEM);
const FLAGS: SyscallArgument = argument(3, "flags");
const HUGE_PAGES: u32 = MAP_HUGETLB as u32;
const NO_HUGE_PAGES: ArgumentCase =
    when(&[bits(HUGE_PAGES, FLAGS, values![MAP_HUGETLB])], NO_MEMORY);
const KIND_AND_ANONYMOUS: u32 = (MAP_TYPE | MAP_ANONYMOUS) as u32;
const SHARED: i32 = MAP_SHARED | MAP_ANONYMOUS;
const SHARED_VALIDATED: i32 = MAP_SHARED_VALIDATE | MAP_ANONYMOUS;
const SHARED_ANONYMOUS: &[NamedValue] = values![SHARED SHARED_VALIDATED];
