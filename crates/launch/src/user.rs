//! The user of the measured program: the calling user, also when pagelab has more rights.

use crate::error::{Error, Result};
use crate::phase::TO_THE_END;
use crate::sys::{self, user};
pub use user::Identity;

/// The identity of the program, and whether the launcher must change to it.
#[derive(Debug)]
pub struct Runner {
    /// The user of the program.
    pub identity: Identity,
    /// The launcher has other rights, so the child changes before exec.
    pub change: bool,
    /// The terminal belongs to another user: the program gets no control of it. It could otherwise type commands into
    /// it (TIOCSTI), which a shell of root's would read.
    pub no_terminal: bool,
}

/// Decides: the user that the request names; else the one who called sudo; else the real user.
pub fn decide(asked: Option<&str>, sudo_uid: Option<&str>, sudo_gid: Option<&str>) -> Result<Runner> {
    let (real, effective) = user::own_uids();
    if real != effective {
        return Err(Error::Cannot(
            "will not run as a setuid program; give the launcher capabilities instead: \
             sudo setcap cap_perfmon,cap_sys_admin+ep $(command -v pagelab-launch)"
                .to_owned(),
        ));
    }
    let own = user::own_identity()
        .map_err(|error| Error::Internal(format!("cannot read the own groups: {}", sys::errno_text(&error))))?;
    let wanted = match asked {
        Some(name) => user::identity_of(name)
            .ok_or_else(|| Error::BadInput(format!("there is no user {name:?}; run: getent passwd {name}")))?,
        None => match (effective, sudo_uid.and_then(|uid| uid.parse().ok())) {
            (0, Some(uid)) => user::identity_of_uid(uid, sudo_gid.and_then(|gid| gid.parse().ok()).unwrap_or(uid)),
            _ => own.clone(),
        },
    };
    if wanted.uid == own.uid {
        return Ok(Runner { identity: own, change: false, no_terminal: false });
    }
    if effective != 0 {
        let name = asked.unwrap_or("another user");
        return Err(Error::Cannot(format!(
            "cannot run the program as {name}: changing users needs root; run: sudo pagelab run --user {name} …"
        )));
    }
    let caller = sudo_uid.and_then(|uid| uid.parse().ok());
    Ok(Runner { no_terminal: caller != Some(wanted.uid), identity: wanted, change: true })
}

/// Refuses to change the user where a right for it is missing: the program could not be given its files, and neither
/// a time-out nor Ctrl-C could end it.
pub fn check_rights(runner: &Runner) -> Result<()> {
    if !runner.change {
        return Ok(());
    }
    let lacking = user::lacks(TO_THE_END).map_err(|error| {
        Error::Internal(format!("cannot read the own capabilities: {}", sys::errno_text(&error)))
    })?;
    if lacking.is_empty() {
        return Ok(());
    }
    let Identity { uid, name, .. } = &runner.identity;
    Err(Error::Cannot(format!(
        "cannot run the program as {}: root needs {} for this, to give the program its files and to end it; allow that \
         in the unit or container; to see how, run: pagelab doctor --print systemd (or docker, or kubernetes)",
        name.clone().unwrap_or_else(|| uid.to_string()),
        lacking.join(", ")
    )))
}

/// The variables that name the user; sudo leaves those of root or of the calling user, by its configuration.
pub fn variables(identity: &Identity) -> Vec<(&'static str, String)> {
    let name = identity.name.clone();
    name.into_iter().flat_map(|name| [("USER", name.clone()), ("LOGNAME", name)]).collect()
}
