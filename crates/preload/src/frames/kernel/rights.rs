//! The engine's two descriptors: opened with the process's own rights, or by the launcher.
//!
//! Where the program runs with fewer rights than the launcher, the launcher listens at a socket in the run directory.
//! It gives processes of the run the frame numbers of their own pages, and the device that makes userfaultfds.

use pagelab_abi::guest::EngineFailure;

use crate::boundary::sys::{self, Errno, Result, socket};
use crate::state::plan;

use super::pagemap::Pagemap;
use super::uffd::Uffd;

/// Why the engine cannot be started.
pub struct Stop {
    /// The reason.
    pub failure: EngineFailure,
    /// errno.
    pub errno: Option<Errno>,
}

const NAME: &[u8] = b"/frames.sock";

/// Opens both descriptors, or reports why not.
pub fn get() -> core::result::Result<(Uffd, Pagemap), Stop> {
    let own = by_own();
    if own.is_ok() {
        return own;
    }
    by_broker().or(own)
}

fn by_own() -> core::result::Result<(Uffd, Pagemap), Stop> {
    let uffd = Uffd::open().map_err(|errno| Stop {
        failure: if errno == Errno::EINVAL { EngineFailure::NoMove } else { EngineFailure::Userfaultfd },
        errno: Some(errno),
    })?;
    match telling(Pagemap::open()) {
        Ok(pagemap) => Ok((uffd, pagemap)),
        Err(errno) => {
            sys::close(uffd.0);
            Err(Stop { failure: EngineFailure::FrameNumbers, errno: Some(errno) })
        }
    }
}

/// Returns `pagemap` if it shows frame numbers.
fn telling(pagemap: Result<Pagemap>) -> Result<Pagemap> {
    let pagemap = pagemap?;
    if pagemap.tells() {
        return Ok(pagemap);
    }
    sys::close(pagemap.0);
    Err(Errno::EPERM)
}

fn by_broker() -> Result<(Uffd, Pagemap)> {
    let run_dir = plan::current().ok_or(Errno::ENOENT)?.run_dir();
    let mut path = [0u8; 128];
    let (dir, name) = path.split_at_mut_checked(run_dir.len()).ok_or(Errno::EINVAL)?;
    dir.copy_from_slice(run_dir);
    name.get_mut(..NAME.len()).ok_or(Errno::EINVAL)?.copy_from_slice(NAME);
    let path = path.get(..run_dir.len() + NAME.len()).unwrap_or(&[]);
    let slash = run_dir.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    // After a change of user or root the directory may be out of reach.
    let hidden = || socket::connect_abstract(path.get(slash..).unwrap_or(&[]));
    let connection = socket::connect(path).or_else(|_| hidden())?;
    let received = socket::receive(connection);
    sys::close(connection);
    let (errno, given) = received?;
    let [pagemap, device] = given.ok_or(Errno(errno as i32))?;
    let uffd = Uffd::open().or_else(|_| Uffd::of_device(device));
    sys::close(device);
    match (uffd, telling(Ok(Pagemap(pagemap)))) {
        (Ok(uffd), Ok(pagemap)) => Ok((uffd, pagemap)),
        (Err(errno), Ok(pagemap)) => {
            sys::close(pagemap.0);
            Err(errno)
        }
        (uffd, Err(errno)) => {
            if let Ok(uffd) = uffd {
                sys::close(uffd.0);
            }
            Err(errno)
        }
    }
}
