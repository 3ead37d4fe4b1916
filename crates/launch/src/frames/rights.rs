//! Rights that placing frames needs: a userfaultfd that sees the kernel's own accesses and can move pages, and frame
//! numbers. Each is tried, not guessed from a version.

use crate::error::{Error, Result};
use crate::sys::{self, userfault};
use std::io;

/// How processes of the run come to a userfaultfd and to frame numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// By themselves: they have the launcher's rights.
    Own,
    /// The launcher opens both for them.
    Broker,
}

/// What this machine and these rights offer.
#[derive(Debug)]
pub struct Facts {
    /// The program will have the launcher's rights.
    pub keeps_rights: bool,
    /// userfaultfd(2), for the launcher.
    pub call: io::Result<()>,
    /// /dev/userfaultfd, for the launcher.
    pub device: io::Result<()>,
    /// Anybody may have a userfaultfd (vm.unprivileged_userfaultfd).
    pub for_anybody: bool,
    /// Moving a page by it.
    pub moves: io::Result<()>,
    /// Frame number of a page of the launcher's; 0: kept back.
    pub frame_number: io::Result<u64>,
    /// The kernel's release, for messages.
    pub release: String,
}

impl Facts {
    /// Tries everything, in this process.
    pub fn gather(keeps_rights: bool) -> Facts {
        let (call, device) = (userfault::by_call(), userfault::by_device());
        let moves = match call.as_ref().or(device.as_ref()) {
            Ok(uffd) => userfault::try_move(uffd),
            Err(error) => {
                Err(error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error))
            }
        };
        let read = |path| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        Facts {
            keeps_rights,
            call: call.map(drop),
            device: device.map(drop),
            for_anybody: read("/proc/sys/vm/unprivileged_userfaultfd") == "1",
            moves,
            frame_number: userfault::own_frame_number(),
            release: read("/proc/sys/kernel/osrelease"),
        }
    }

    /// The way to the rights, or what is missing.
    ///
    /// # Errors
    /// Exit code 3, with the next command to type.
    pub fn judge(&self) -> Result<Route> {
        if let (Err(call), Err(device)) = (&self.call, &self.device) {
            return Err(self.no_userfaultfd(call, device));
        }
        self.moves.as_ref().map_err(|error| self.no_move(error))?;
        match &self.frame_number {
            Ok(0) => return Err(no_frame_numbers("they read as 0 without CAP_SYS_ADMIN")),
            Ok(_) => {}
            Err(error) => return Err(no_frame_numbers(&sys::errno_text(error))),
        }
        if self.keeps_rights {
            return Ok(Route::Own);
        }
        match &self.device {
            Err(error) if !self.for_anybody => Err(Error::Cannot(format!(
                "cannot hand a userfaultfd on to the program, which runs with fewer rights than pagelab: {}: {}; \
                 run: sudo sysctl vm.unprivileged_userfaultfd=1, or run the program as the launcher's own user: \
                 pagelab run --user root …{}",
                userfault::DEVICE,
                sys::errno_text(error),
                crate::sandbox::hint(error)
            ))),
            _ => Ok(Route::Broker),
        }
    }

    fn no_userfaultfd(&self, call: &io::Error, device: &io::Error) -> Error {
        let sandbox = crate::sandbox::hint(call);
        if call.raw_os_error() == Some(libc::ENOSYS) {
            return Error::Cannot(format!(
                "cannot place frames: this kernel ({}) has no userfaultfd (ENOSYS); it needs Linux 6.8 with \
                 CONFIG_USERFAULTFD=y; run: pagelab doctor{sandbox}",
                self.release
            ));
        }
        Error::Cannot(format!(
            "cannot place frames: no userfaultfd that sees the kernel's own accesses can be had: userfaultfd: {}; \
             {}: {}; it needs CAP_SYS_PTRACE, and frame numbers need CAP_SYS_ADMIN; run: sudo pagelab run …{sandbox}",
            sys::errno_text(call),
            userfault::DEVICE,
            sys::errno_text(device)
        ))
    }

    fn no_move(&self, error: &io::Error) -> Error {
        Error::Cannot(format!(
            "cannot place frames: this kernel ({}) cannot move pages by userfaultfd (UFFDIO_MOVE: {}); it needs Linux 6.8 \
             or later; run: uname -r; for page colouring without it: pagelab run --pages 2M (a tile has every colour)",
            self.release,
            sys::errno_text(error)
        ))
    }
}

fn no_frame_numbers(why: &str) -> Error {
    Error::Cannot(format!(
        "cannot place frames: frame numbers cannot be read from /proc/self/pagemap: {why}; run: sudo pagelab run …"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno(number: i32) -> io::Error {
        io::Error::from_raw_os_error(number)
    }

    fn good() -> Facts {
        Facts {
            keeps_rights: true,
            call: Ok(()),
            device: Ok(()),
            for_anybody: false,
            moves: Ok(()),
            frame_number: Ok(4711),
            release: "6.18.0".to_owned(),
        }
    }

    fn refused(facts: Facts) -> String {
        let error = facts.judge().expect_err("refused");
        assert_eq!(error.exit_code(), 3);
        error.to_string()
    }

    #[test]
    fn with_all_rights_the_program_helps_itself() {
        assert_eq!(good().judge().expect("good"), Route::Own);
        assert_eq!(
            Facts { device: Err(errno(libc::ENOENT)), ..good() }.judge().expect("the call does"),
            Route::Own
        );
        assert_eq!(Facts { call: Err(errno(libc::EPERM)), ..good() }.judge().expect("the device does"), Route::Own);
    }

    #[test]
    fn a_program_with_fewer_rights_needs_something_to_be_handed_on() {
        assert_eq!(Facts { keeps_rights: false, ..good() }.judge().expect("by device"), Route::Broker);
        let no_device = || Facts { keeps_rights: false, device: Err(errno(libc::ENOENT)), ..good() };
        let message = refused(no_device());
        assert!(message.contains("/dev/userfaultfd: ") && message.contains("ENOENT"), "{message}");
        assert!(message.contains("sysctl vm.unprivileged_userfaultfd=1"), "{message}");
        assert_eq!(Facts { for_anybody: true, ..no_device() }.judge().expect("for anybody"), Route::Broker);
    }

    #[test]
    fn what_is_missing_is_named_with_the_next_command() {
        let denied = || Err(errno(libc::EPERM));
        let message = refused(Facts { call: denied(), device: Err(errno(libc::EACCES)), ..good() });
        assert!(message.contains("userfaultfd: Operation not permitted (EPERM)"), "{message}");
        assert!(message.contains("CAP_SYS_PTRACE") && message.contains("sudo pagelab run"), "{message}");
        let absent = || Err(errno(libc::ENOSYS));
        let message = refused(Facts { call: absent(), device: Err(errno(libc::ENOENT)), ..good() });
        assert!(message.contains("(6.18.0) has no userfaultfd (ENOSYS)"), "{message}");
        let old = Facts { moves: Err(errno(libc::EINVAL)), release: "6.1.0".to_owned(), ..good() };
        let message = refused(old);
        assert!(message.contains("this kernel (6.1.0) cannot move pages") && message.contains("6.8"), "{message}");
        let message = refused(Facts { frame_number: Ok(0), ..good() });
        assert!(message.contains("they read as 0 without CAP_SYS_ADMIN; run: sudo pagelab run"), "{message}");
        assert!(refused(Facts { frame_number: Err(errno(libc::EACCES)), ..good() }).contains("EACCES"));
    }
}
