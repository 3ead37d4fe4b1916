//! Users, groups and capabilities.

use super::{check, check_long};
use std::ffi::CString;
use std::io;

/// Who a program runs as.
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

/// This process's (real, effective) user ids.
pub fn own_uids() -> (u32, u32) {
    // SAFETY: these calls have no arguments and cannot fail.
    unsafe { (libc::getuid(), libc::geteuid()) }
}

/// The identity of this process's real user, with its present groups.
pub fn own_identity() -> io::Result<Identity> {
    // SAFETY: a null buffer of size 0 asks for the number of groups.
    let count = check(unsafe { libc::getgroups(0, std::ptr::null_mut()) })?;
    let mut groups = vec![0; count as usize];
    // SAFETY: the buffer has room for `count` groups.
    let count = check(unsafe { libc::getgroups(count, groups.as_mut_ptr()) })?;
    groups.truncate(count as usize);
    let uid = own_uids().0;
    // SAFETY: getgid has no arguments and cannot fail.
    let gid = unsafe { libc::getgid() };
    Ok(Identity { uid, gid, groups, name: look_up_uid(uid).map(|found| found.1) })
}

struct Found(u32, String, u32);

fn read_passwd(
    call: impl Fn(*mut libc::passwd, &mut [libc::c_char], *mut *mut libc::passwd) -> i32,
) -> Option<Found> {
    // SAFETY: all-zero bytes are a valid `passwd` (null pointers and zero ids).
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut buffer = vec![0; 16 * 1024];
    let mut result = std::ptr::null_mut();
    if call(&mut entry, &mut buffer, &mut result) != 0 || result.is_null() {
        return None;
    }
    // SAFETY: on success pw_name points to a NUL-terminated string inside `buffer`, which is alive.
    let name = unsafe { std::ffi::CStr::from_ptr(entry.pw_name) };
    Some(Found(entry.pw_uid, name.to_string_lossy().into_owned(), entry.pw_gid))
}

fn look_up_uid(uid: u32) -> Option<Found> {
    // SAFETY: all pointers are live, and the length is the buffer's.
    read_passwd(|entry, buffer, result| unsafe {
        libc::getpwuid_r(uid, entry, buffer.as_mut_ptr(), buffer.len(), result)
    })
}

impl Found {
    /// `None`: a user data base that knows the user but not its groups (too many).
    fn identity(self) -> Option<Identity> {
        let Found(uid, name, gid) = self;
        let c_name = CString::new(name.clone()).ok()?;
        let mut groups = vec![0; 4096];
        let mut count = groups.len() as libc::c_int;
        // SAFETY: the name is NUL-terminated; the buffer has room for `count` groups.
        let done = unsafe { libc::getgrouplist(c_name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
        if done < 0 {
            return None;
        }
        groups.truncate(count as usize);
        Some(Identity { uid, gid, groups, name: Some(name) })
    }
}

/// The identity of a user by name, or by number when no user has that name.
pub fn identity_of(user: &str) -> Option<Identity> {
    let name = CString::new(user).ok()?;
    // SAFETY: all pointers are live, the name is NUL-terminated and the length is the buffer's.
    let by_name = read_passwd(|entry, buffer, result| unsafe {
        libc::getpwnam_r(name.as_ptr(), entry, buffer.as_mut_ptr(), buffer.len(), result)
    });
    by_name.or_else(|| look_up_uid(user.parse().ok()?)).and_then(Found::identity)
}

/// The identity of a user id; a bare one with only the given group when the user data base does not know it.
pub fn identity_of_uid(uid: u32, gid: u32) -> Identity {
    look_up_uid(uid).and_then(Found::identity).unwrap_or(Identity { uid, gid, groups: vec![gid], name: None })
}

/// Becomes another user for good, keeping no capability. Async-signal-safe.
pub fn become_user(identity: &Identity) -> io::Result<()> {
    // SAFETY: raw system calls with plain integers and a live array of groups. Raw, because libc's wrappers would
    // synchronise with threads, of which the child has none.
    unsafe {
        check_long(libc::syscall(libc::SYS_setgroups, identity.groups.len(), identity.groups.as_ptr()))?;
        check_long(libc::syscall(libc::SYS_setresgid, identity.gid, identity.gid, identity.gid))?;
        check_long(libc::syscall(libc::SYS_setresuid, identity.uid, identity.uid, identity.uid))?;
    }
    drop_capabilities()
}

/// Does `work` with another user's rights to files, and takes the own ones back. What that user may not open is not opened
/// for him, whatever its path has come to mean.
pub fn with_files_of<T>(identity: &Identity, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let own = own_identity()?;
    let set = |groups: &[u32], uid: u32, gid: u32| {
        // SAFETY: raw system calls with plain integers and a live array of groups; the launcher has one thread. The last
        // two give the ids in force before, and with an invalid id only those: so they are seen to have been set.
        unsafe {
            check_long(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()))?;
            libc::syscall(libc::SYS_setfsgid, gid);
            libc::syscall(libc::SYS_setfsuid, uid);
            let now = (libc::syscall(libc::SYS_setfsuid, -1), libc::syscall(libc::SYS_setfsgid, -1));
            let wanted = (libc::c_long::from(uid), libc::c_long::from(gid));
            if now == wanted { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
        }
    };
    let done = set(&identity.groups, identity.uid, identity.gid).and_then(|()| work());
    let (uid, gid) = own_effective();
    set(&own.groups, uid, gid)?;
    done
}

fn own_effective() -> (u32, u32) {
    // SAFETY: these calls have no arguments and cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const CAP_VERSION_3: u32 = 0x2008_0522;

/// Gives up every capability, the ambient and inheritable ones too. Async-signal-safe.
pub fn drop_capabilities() -> io::Result<()> {
    let header = CapHeader { version: CAP_VERSION_3, pid: 0 };
    let none = [CapData::default(); 2];
    // SAFETY: the structures have the kernel's layout for version 3; the prctl takes plain integers. Kernels without
    // ambient capabilities answer EINVAL, which is as good as an empty set.
    unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        check_long(libc::syscall(libc::SYS_capset, &header, none.as_ptr())).map(drop)
    }
}

/// Acts with no capability that is not in `kept` (bit by number); none is gained. `for_good`: nor can it take one up again.
pub fn keep_capabilities(kept: u64, for_good: bool) -> io::Result<()> {
    let header = CapHeader { version: CAP_VERSION_3, pid: 0 };
    let mut data = [CapData::default(); 2];
    // SAFETY: the structures have the kernel's layout for version 3.
    check_long(unsafe { libc::syscall(libc::SYS_capget, &header, data.as_mut_ptr()) })?;
    for (word, kept) in data.iter_mut().zip([kept as u32, (kept >> 32) as u32]) {
        word.effective &= kept;
        if for_good {
            word.permitted &= kept;
        }
    }
    // SAFETY: as above.
    check_long(unsafe { libc::syscall(libc::SYS_capset, &header, data.as_ptr()) }).map(drop)
}

/// Whether this process has any capability in its effective set.
pub fn has_capabilities() -> bool {
    let header = CapHeader { version: CAP_VERSION_3, pid: 0 };
    let mut data = [CapData::default(); 2];
    // SAFETY: the structures have the kernel's layout for version 3.
    let done = unsafe { libc::syscall(libc::SYS_capget, &header, data.as_mut_ptr()) };
    done == 0 && data.iter().any(|word| word.effective != 0 || word.permitted != 0)
}
