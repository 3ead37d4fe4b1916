//! The limit of open descriptors: each process image that is captured has one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// While this lives, the present process may open as many descriptors as it may allow itself.
#[derive(Debug)]
pub(super) struct MoreDescriptors {
    before: Rlimit,
}

impl MoreDescriptors {
    /// Raises the limit; `None` where the system refuses.
    pub(super) fn allow() -> Option<MoreDescriptors> {
        let before = getrlimit(Resource::Nofile);
        let most = Rlimit { current: before.maximum, maximum: before.maximum };
        setrlimit(Resource::Nofile, most).ok().map(|()| MoreDescriptors { before })
    }
}

impl Drop for MoreDescriptors {
    fn drop(&mut self) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: self.before.current, maximum: self.before.maximum });
    }
}
