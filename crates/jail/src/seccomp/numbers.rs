//! The libc crate's constants, and the call numbers it lacks (a local name shadows a glob).

#![expect(non_upper_case_globals, reason = "spelled as in libc")]

pub(super) use libc::*;

// Since number 424 a new call has the same number on every architecture.
pub(super) const SYS_cachestat: c_long = 451;
pub(super) const SYS_fchmodat2: c_long = 452;
#[cfg(target_arch = "x86_64")]
pub(super) const SYS_map_shadow_stack: c_long = 453;
pub(super) const SYS_futex_wake: c_long = 454;
pub(super) const SYS_futex_wait: c_long = 455;
pub(super) const SYS_futex_requeue: c_long = 456;
pub(super) const SYS_statmount: c_long = 457;
pub(super) const SYS_listmount: c_long = 458;
pub(super) const SYS_lsm_get_self_attr: c_long = 459;
pub(super) const SYS_lsm_set_self_attr: c_long = 460;
pub(super) const SYS_lsm_list_modules: c_long = 461;
pub(super) const SYS_setxattrat: c_long = 463;
pub(super) const SYS_getxattrat: c_long = 464;
pub(super) const SYS_listxattrat: c_long = 465;
pub(super) const SYS_removexattrat: c_long = 466;
pub(super) const SYS_open_tree_attr: c_long = 467;
pub(super) const SYS_file_getattr: c_long = 468;
pub(super) const SYS_file_setattr: c_long = 469;

#[cfg(target_arch = "aarch64")]
mod generic {
    use libc::c_long;

    pub(in super::super) const SYS_renameat: c_long = 38;
    pub(in super::super) const SYS_sync_file_range: c_long = 84;
    pub(in super::super) const SYS_getrlimit: c_long = 163;
    pub(in super::super) const SYS_setrlimit: c_long = 164;
    pub(in super::super) const SYS_kexec_file_load: c_long = 294;
}
#[cfg(target_arch = "aarch64")]
pub(super) use generic::{
    SYS_getrlimit, SYS_kexec_file_load, SYS_renameat, SYS_setrlimit, SYS_sync_file_range,
};

// Socket options.
pub(super) const SO_ATTACH_BPF: c_int = 50;
pub(super) const SO_ATTACH_REUSEPORT_EBPF: c_int = 52;
pub(super) const SO_ZEROCOPY: c_int = 60;
pub(super) const TCP_AO_ADD_KEY: c_int = 38;
