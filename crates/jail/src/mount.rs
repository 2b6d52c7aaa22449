//! Builds the root that zygote and sandboxes share, and the mounts of one sandbox.

use crate::plan::{JailError, JailStep, RootStep, VOLUMES, VolumeContent, VolumeMount};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive,
    mount_change, unmount,
};
use rustix::process::{chdir, fchdir, pivot_root};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The directory in which the new root is assembled: a directory that exists on every host and holds no source of a
/// bind mount. The mount hides it in this mount namespace only.
const NEW_ROOT: &str = "/sys";
const TMPFS_FLAGS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// Size of the tmpfs that holds the mount points of volumes, which are empty directories.
const VOLUMES_BYTES: u64 = 64 * 1024;
const VOLUMES_INODES: u64 = 1024;

/// Devices that ordinary programs expect. None of them reaches hardware.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// Builds the root on a new tmpfs and makes it read-only, as `/` of this mount namespace.
///
/// It makes every mount before `pivot_root`, because sources are paths of the host.
pub(crate) fn build_root(steps: &[RootStep]) -> Result<(), JailError> {
    // No mount made here may propagate to the host.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|error| JailStep::UnshareMounts.failed(error))?;
    let whole = |path: &str| JailStep::BuildRoot(PathBuf::from(path));
    mount("tmpfs", NEW_ROOT, "tmpfs", TMPFS_FLAGS, Some(c"mode=0755,size=16m"))
        .map_err(|error| whole("/").failed(error))?;
    for step in steps {
        let path = match step {
            RootStep::Dir { path }
            | RootStep::Symlink { path, .. }
            | RootStep::File { path, .. }
            | RootStep::Bind { to: path, .. } => path,
        };
        apply_root_step(step).map_err(|error| JailStep::BuildRoot(path.clone()).failed(error))?;
    }
    bind_devices().map_err(|error| whole("/dev").failed(error))?;
    bind(Path::new("/proc"), &staged(Path::new("/proc")))
        .map_err(|error| whole("/proc").failed(error))?;
    enter_root().map_err(|error| JailStep::PivotRoot.failed(error))
}

fn apply_root_step(step: &RootStep) -> io::Result<()> {
    match step {
        RootStep::Dir { path } => fs::create_dir_all(staged(path)),
        RootStep::Symlink { path, target } => {
            make_parent(&staged(path))?;
            symlink(target, staged(path))
        }
        RootStep::File { path, content } => {
            make_parent(&staged(path))?;
            fs::write(staged(path), content)
        }
        RootStep::Bind { from, to } => {
            bind(from, &staged(to))?;
            make_read_only(&staged(to))
        }
    }
}

fn bind_devices() -> io::Result<()> {
    // A read-only mount protects the times and modes of the host's device nodes. It does not
    // restrict writes to the device itself.
    let attributes = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
    for name in DEVICES {
        let path = Path::new("/dev").join(name);
        bind(&path, &staged(&path))?;
        set_attributes(&staged(&path), attributes, 0)?;
    }
    Ok(())
}

fn staged(path: &Path) -> PathBuf {
    Path::new(NEW_ROOT).join(path.strip_prefix("/").unwrap_or(path))
}

fn make_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

fn bind(from: &Path, to: &Path) -> io::Result<()> {
    if fs::metadata(from)?.is_dir() {
        fs::create_dir_all(to)?;
    } else {
        make_parent(to)?;
        fs::write(to, "")?;
    }
    Ok(mount_bind_recursive(from, to)?)
}

/// Makes a mount and all below it read-only, without setuid programs and devices.
///
/// `mount_setattr` only adds attributes. A remount would have to repeat those that a user namespace
/// must not remove, and they differ from host to host.
fn make_read_only(path: &Path) -> io::Result<()> {
    let attributes = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    set_attributes(path, attributes, libc::AT_RECURSIVE)
}

fn set_attributes(path: &Path, attributes: u64, flags: libc::c_int) -> io::Result<()> {
    let target = rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: all-zero is a valid mount_attr: nothing set, nothing cleared.
    let mut change: libc::mount_attr = unsafe { std::mem::zeroed() };
    change.attr_set = attributes;
    // SAFETY: the path is an empty C string, and `change` outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            target.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            &raw const change,
            size_of_val(&change),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn enter_root() -> io::Result<()> {
    set_attributes(Path::new(NEW_ROOT), libc::MOUNT_ATTR_RDONLY, 0)?;
    chdir(NEW_ROOT)?;
    let old = rustix::fs::open("/", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // pivot_root stacks the old root on the same path; the next call detaches it from there.
    pivot_root(".", ".")?;
    fchdir(&old)?;
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")?;
    Ok(())
}

/// Mounts a `/proc` of the current pid namespace over the existing one.
///
/// `subset=pid` omits everything that is not about processes. It is an allow-list: with masks for
/// single files each new Linux release could add a leak.
pub(crate) fn proc(options: Option<&CStr>) -> Result<(), JailError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, options)
        .map_err(|error| JailStep::MountProc.failed(error))
}

/// Mounts a tmpfs of bounded size over `path`.
pub(crate) fn tmpfs(path: &str, bytes: u64, inodes: u64, mode: &str) -> Result<(), JailError> {
    let failed = |error: io::Error| JailStep::MountScratch(PathBuf::from(path)).failed(error);
    let options = std::ffi::CString::new(format!("size={bytes},nr_inodes={inodes},mode={mode}"))
        .map_err(|_| failed(io::ErrorKind::InvalidInput.into()))?;
    mount("tmpfs", path, "tmpfs", TMPFS_FLAGS, Some(options.as_c_str()))
        .map_err(|error| failed(error.into()))
}

/// Mounts the volumes of one jail, and returns the directories of the held ones.
pub(crate) fn volumes(volumes: &[VolumeMount]) -> Result<Vec<OwnedFd>, JailError> {
    if volumes.is_empty() {
        return Ok(Vec::new());
    }
    // The root is read-only; the mount points need a writable file system.
    tmpfs(VOLUMES, VOLUMES_BYTES, VOLUMES_INODES, "0755")?;
    let mut held = Vec::new();
    for volume in volumes {
        let mounted = match &volume.content {
            VolumeContent::Shown { from } => bind_read_only(from, &volume.path).map(|()| None),
            VolumeContent::Held { bytes, inodes } => {
                mount_writable(&volume.path, *bytes, *inodes).map(Some)
            }
        };
        held.extend(
            mounted.map_err(|error| JailStep::MountVolume(volume.path.clone()).failed(error))?,
        );
    }
    set_attributes(Path::new(VOLUMES), libc::MOUNT_ATTR_RDONLY, 0)
        .map_err(|error| JailStep::MountVolume(VOLUMES.into()).failed(error))?;
    Ok(held)
}

/// The source is read-only already, and a user namespace cannot remove that flag.
fn bind_read_only(from: &Path, path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    Ok(mount_bind(from, path)?)
}

fn mount_writable(path: &Path, bytes: u64, inodes: u64) -> io::Result<OwnedFd> {
    fs::create_dir_all(path)?;
    let options = std::ffi::CString::new(format!("size={bytes},nr_inodes={inodes},mode=0755"))?;
    mount("tmpfs", path, "tmpfs", TMPFS_FLAGS, Some(options.as_c_str()))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Hides a directory behind an empty one.
pub(crate) fn hide(path: &Path) -> Result<(), JailError> {
    let flags = TMPFS_FLAGS | MountFlags::RDONLY | MountFlags::NOEXEC;
    mount("tmpfs", path, "tmpfs", flags, Some(c"size=4k,nr_inodes=1,mode=0555"))
        .map_err(|error| JailStep::Hide(path.to_owned()).failed(error))
}
