//! Users, groups and capabilities.

use super::check_long;
use nix::unistd::{self, Gid, Uid, User};
use rustix::process;
use rustix::thread::{self, CapabilitySet, CapabilitySets};
use std::ffi::CString;
use std::io;

/// The user and groups of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// All groups, the primary one too.
    pub groups: Vec<u32>,
    /// The user's name, where the user data base has one.
    pub name: Option<String>,
}

/// Whether this process may count what its user may not: by file capabilities, not by its user, root.
pub fn counts_by_capabilities_of_its_own() -> bool {
    let counting = CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN;
    own_uids().0 != 0 && thread::capabilities(None).map_or(true, |sets| sets.permitted.intersects(counting))
}

/// This process's (real, effective) user ids.
pub fn own_uids() -> (u32, u32) {
    (process::getuid().as_raw(), process::geteuid().as_raw())
}

/// The identity of this process's real user, with its present groups.
pub fn own_identity() -> io::Result<Identity> {
    let groups = process::getgroups()?.into_iter().map(process::Gid::as_raw).collect();
    let (uid, gid) = (own_uids().0, process::getgid().as_raw());
    Ok(Identity { uid, gid, groups, name: look_up_uid(uid).map(|found| found.name) })
}

fn look_up_uid(uid: u32) -> Option<User> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten()
}

/// `None`: a user data base that knows the user but not its groups (too many).
fn identity(user: User) -> Option<Identity> {
    let groups = unistd::getgrouplist(&CString::new(user.name.clone()).ok()?, user.gid).ok()?;
    let groups = groups.into_iter().map(Gid::as_raw).collect();
    Some(Identity { uid: user.uid.as_raw(), gid: user.gid.as_raw(), groups, name: Some(user.name) })
}

/// The identity of a user by name, or by number when no user has that name.
pub fn identity_of(user: &str) -> Option<Identity> {
    let by_name = User::from_name(user).ok().flatten();
    by_name.or_else(|| look_up_uid(user.parse().ok()?)).and_then(identity)
}

/// The identity of a user id; a bare one with only the given group when the user data base does not know it.
pub fn identity_of_uid(uid: u32, gid: u32) -> Identity {
    look_up_uid(uid).and_then(identity).unwrap_or(Identity { uid, gid, groups: vec![gid], name: None })
}

/// Becomes another user for good, keeping no capability. Async-signal-safe: these are the calls of one thread, where
/// libc's wrappers would synchronise with others, of which the child has none.
pub fn become_user(identity: &Identity) -> io::Result<()> {
    let (uid, gid) = (process::Uid::from_raw(identity.uid), process::Gid::from_raw(identity.gid));
    set_groups(&identity.groups)?;
    thread::set_thread_res_gid(gid, gid, gid)?;
    thread::set_thread_res_uid(uid, uid, uid)?;
    drop_capabilities()
}

fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: a raw system call with a live array and its length.
    check_long(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) }).map(drop)
}

/// Does `work` with another user's rights to files, then takes this process's own rights back. A file that the user may
/// not open stays closed, whatever its path means by then.
pub fn with_files_of<T>(identity: &Identity, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let own = own_identity()?;
    let capabilities = thread::capabilities(None)?;
    let set = |groups: &[u32], uid: u32, gid: u32| {
        set_groups(groups)?;
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        unistd::setfsgid(gid);
        unistd::setfsuid(uid);
        // Both return the id in force before, and with an invalid one change nothing.
        let (none, no_group) = (Uid::from_raw(u32::MAX), Gid::from_raw(u32::MAX));
        let now = (unistd::setfsuid(none), unistd::setfsgid(no_group));
        if now == (uid, gid) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
    };
    let done = set(&identity.groups, identity.uid, identity.gid).and_then(|()| work());
    set(&own.groups, process::geteuid().as_raw(), process::getegid().as_raw())?;
    // The kernel raises all capabilities for files with the return to user 0, also those that were given up.
    thread::set_capabilities(None, capabilities)?;
    done
}

/// Does `work` with the rights that this process's user has without file capabilities; root has all of its own.
pub fn with_the_users_rights<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if own_uids().1 == 0 {
        return work();
    }
    let own = thread::capabilities(None)?;
    thread::set_capabilities(None, CapabilitySets { effective: CapabilitySet::empty(), ..own })?;
    let done = work();
    thread::set_capabilities(None, own)?;
    done
}

/// Gives up every capability, the ambient and inheritable ones too. Async-signal-safe.
pub fn drop_capabilities() -> io::Result<()> {
    // Kernels without ambient capabilities answer EINVAL, which is as good as an empty set.
    let _ = thread::clear_ambient_capability_set();
    let none = CapabilitySet::empty();
    Ok(thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

/// Those of `needed` (bit by number) that this process has not in effect, by name.
pub fn lacks(needed: u64) -> io::Result<Vec<String>> {
    let missing = CapabilitySet::from_bits_retain(needed) - thread::capabilities(None)?.effective;
    Ok(missing.iter_names().map(|(name, _)| format!("CAP_{name}")).collect())
}

/// Acts with no capability that is not in `kept` (bit by number); none is gained. `for_good`: nor can it take one up
/// again.
pub fn keep_capabilities(kept: u64, for_good: bool) -> io::Result<()> {
    let kept = CapabilitySet::from_bits_retain(kept);
    let mut sets = thread::capabilities(None)?;
    sets.effective &= kept;
    if for_good {
        sets.permitted &= kept;
    }
    Ok(thread::set_capabilities(None, sets)?)
}
