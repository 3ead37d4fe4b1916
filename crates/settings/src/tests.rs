//! The journal and its rules, on settings in memory.

use crate::journal::SHORTEN_ABOVE_BYTES;
use crate::{Entry, Journal, Outcome, Refusal, Settings, State, Stopped, Trouble, Unusable, normalise, read};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use tempfile::TempDir;

const READAHEAD: &str = "/sys/class/bdi/253:0/read_ahead_kb";
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Settings that take every value; the pool at most so many pages.
struct Place {
    directory: TempDir,
    values: BTreeMap<String, String>,
    pool_limit: u64,
    stop_at: Option<&'static str>,
    /// The owners run.
    lives: bool,
}

impl Settings for Place {
    fn text(&mut self, path: &str) -> Result<String, Trouble> {
        if path == "/sys/class/bdi" {
            return Err(Trouble::Refused(io::ErrorKind::IsADirectory.into()));
        }
        let found = self.values.get(path).map(|value| format!("{value}\n"));
        Ok(found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?)
    }

    fn write(&mut self, path: &str, value: &str) -> Result<(), Trouble> {
        let pages = value.parse::<u64>().ok().filter(|_| path == POOL);
        let value = pages.map_or(value.to_owned(), |pages| pages.min(self.pool_limit).to_string());
        let known = self.values.get_mut(path).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        *known = value;
        Ok(())
    }

    fn step(&mut self, name: &str) -> Result<(), Stopped> {
        if self.stop_at == Some(name) { Err(Stopped) } else { Ok(()) }
    }

    fn is_alive(&mut self, _entry: &Entry) -> Result<bool, Stopped> {
        Ok(self.lives)
    }
}

impl Place {
    fn new() -> Place {
        let values = [(READAHEAD, "128"), (POOL, "0")].map(|(path, value)| (path.to_owned(), value.to_owned()));
        let directory = TempDir::new().expect("directory");
        Place { directory, values: values.into(), pool_limit: 437, stop_at: None, lives: false }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("journal.jsonl")
    }

    fn journal(&self) -> Journal {
        Journal::lock_as(&self.path(), "boot".to_owned(), &mut |_| false).expect("journal")
    }

    fn try_change(&mut self, path: &str, value: &str, by: &str) -> Result<Option<Entry>, Refusal> {
        let mut journal = self.journal();
        journal.change(self, &[(path, value)], 1, by).expect("not stopped").remove(0)
    }

    fn change(&mut self, by: &str) -> String {
        self.try_change(READAHEAD, "0", by).expect("changed").expect("an entry").id
    }

    fn undo(&mut self, id: &str) -> Outcome {
        let mut journal = self.journal();
        journal.undo(self, &[id.to_owned()], false).expect("not stopped").remove(0).outcome
    }

    fn value(&self, path: &str) -> &str {
        &self.values[path]
    }

    fn length(&self) -> u64 {
        fs::metadata(self.path()).expect("journal").len()
    }
}

#[test]
fn a_change_is_undone_to_the_value_before() {
    let mut place = Place::new();
    let id = place.change("test");
    assert_eq!(place.value(READAHEAD), "0");
    assert!(matches!(place.undo(&id), Outcome::Restored { surplus: 0 }));
    assert_eq!(place.value(READAHEAD), "128");
    assert!(place.journal().active_of(1, None).is_empty());
}

#[test]
fn two_owners_may_leave_in_any_order() {
    for first_leaves_first in [true, false] {
        let mut place = Place::new();
        let (first, second) = (place.change("first"), place.change("second"));
        let (one, two) = if first_leaves_first { (first, second) } else { (second, first) };
        place.undo(&one);
        assert_eq!(place.value(READAHEAD), "0", "the other owner still needs it");
        place.undo(&two);
        assert_eq!(place.value(READAHEAD), "128");
    }
}

#[test]
fn what_was_set_between_two_owners_is_what_the_second_restores() {
    for first_leaves_first in [true, false] {
        let mut place = Place::new();
        let first = place.change("first");
        place.values.insert(READAHEAD.to_owned(), "30".to_owned());
        let second = place.change("second");
        if first_leaves_first {
            let left = place.undo(&first);
            assert!(matches!(left, Outcome::Superseded { by, old } if (&*by, &*old) == ("second", "30")));
            assert!(matches!(place.undo(&second), Outcome::Restored { .. }));
            assert!(place.journal().active_of(1, None).is_empty());
        } else {
            place.undo(&second);
            assert!(matches!(place.undo(&first), Outcome::Changed { present } if present == "30"));
        }
        assert_eq!(place.value(READAHEAD), "30");
    }
}

#[test]
fn a_setting_that_is_only_hidden_stays_active() {
    for (path, value, vanishes) in [(READAHEAD, "0", true), (POOL, "4", false)] {
        let mut place = Place::new();
        let entry = place.try_change(path, value, "test").expect("changed").expect("an entry");
        let hidden = place.values.remove(path).expect("there");
        match place.undo(&entry.id) {
            Outcome::Gone => assert!(vanishes),
            Outcome::Failed(error) => assert!(!vanishes && error.kind() == io::ErrorKind::NotFound),
            other => panic!("{other:?}"),
        }
        place.values.insert(path.to_owned(), hidden);
        assert_eq!(place.journal().active_of(1, None).is_empty(), vanishes);
    }
}

#[test]
fn a_value_that_somebody_else_set_is_left_alone() {
    let mut place = Place::new();
    let id = place.change("test");
    place.values.insert(READAHEAD.to_owned(), "777".to_owned());
    assert!(matches!(place.undo(&id), Outcome::Changed { present } if present == "777"));
    assert_eq!(place.journal().active_of(1, None).len(), 1);
}

#[test]
fn force_writes_over_what_others_set_and_takes_nothing_from_a_running_owner() {
    let mut place = Place::new();
    place.change("test");
    place.values.insert(READAHEAD.to_owned(), "777".to_owned());
    for (lives, force, value) in [(true, true, "777"), (false, false, "777"), (false, true, "128")] {
        place.lives = lives;
        let done = place.journal().restore(&mut place, force).expect("not stopped");
        assert_eq!(done.len(), 1);
        assert_eq!(place.value(READAHEAD), value);
    }
}

#[test]
fn a_shortfall_is_backed_out_and_named() {
    let mut place = Place::new();
    let refused = place.try_change(POOL, "512", "test").expect_err("more than there is");
    assert!(matches!(refused, Refusal::Short { old, got } if old == "0" && got == "437"));
    assert_eq!(place.value(POOL), "0");
    assert_eq!(place.journal().snapshot.entries[0].state, State::Failed);
}

#[test]
fn a_writer_that_died_is_settled_by_what_is_found() {
    for (step, left) in [("intended", "128"), ("written", "0"), ("checked", "0"), ("applied", "0")] {
        let mut place = Place::new();
        place.stop_at = Some(step);
        let mut journal = place.journal();
        assert!(journal.change(&mut place, &[(READAHEAD, "0")], 1, "dies").is_err());
        drop(journal);
        assert_eq!(place.value(READAHEAD), left, "{step}");
        place.stop_at = None;
        let mut journal = place.journal();
        let done = journal.restore(&mut place, false).expect("not stopped");
        assert_eq!(done.len(), 1);
        assert_eq!(place.value(READAHEAD), "128", "{step}");
        assert_eq!(journal.snapshot.active("boot").count(), 0);
    }
}

#[test]
fn a_refused_setting_does_not_keep_the_others_from_being_changed() {
    let mut place = Place::new();
    let mut journal = place.journal();
    let wanted = [("/sys/class/bdi/none/read_ahead_kb", "1"), (READAHEAD, "0")];
    let results = journal.change(&mut place, &wanted, 1, "test").expect("not stopped");
    assert!(matches!(results.as_slice(), [Err(Refusal::Setting(_)), Ok(Some(_))]));
    assert_eq!(place.value(READAHEAD), "0");
}

#[test]
fn another_boots_changes_are_closed_without_writing() {
    let mut place = Place::new();
    place.change("test");
    let mut journal = Journal::lock_as(&place.path(), "another".to_owned(), &mut |_| false).expect("journal");
    let done = journal.restore(&mut place, false).expect("not stopped");
    assert!(matches!(done.as_slice(), [one] if matches!(one.outcome, Outcome::Stale)));
    assert_eq!(place.value(READAHEAD), "0");
}

#[test]
fn a_journal_that_names_another_file_is_not_obeyed() {
    let others = [
        "/etc/passwd",
        "/proc/sys/../../etc/passwd",
        "/proc/sys/kernel/core_pattern",
        "/sys/class/bdi/../read_ahead_kb",
        "/sys/class/bdi/a/b/read_ahead_kb",
    ];
    for path in others {
        let mut place = Place::new();
        place.change("test");
        let text = fs::read_to_string(place.path()).expect("journal");
        fs::write(place.path(), text.replace(READAHEAD, path)).expect("written");
        place.values.insert(path.to_owned(), "0".to_owned());
        let done = place.journal().restore(&mut place, false).expect("not stopped");
        assert!(matches!(done.as_slice(), [one] if matches!(one.outcome, Outcome::Forbidden)));
        assert_eq!(place.value(path), "0");
    }
}

#[test]
fn of_a_journal_of_any_size_the_beginning_is_read() {
    let mut place = Place::new();
    let id = place.change("test");
    fs::File::options().write(true).open(place.path()).and_then(|file| file.set_len(1 << 40)).expect("a hole");
    let entries = read(&place.path()).expect("read").entries;
    assert_eq!(entries.iter().map(|entry| &entry.id).collect::<Vec<_>>(), [&id]);
}

/// Whoever owns a directory can put any file of root's with suitable lines in the place of the journal.
#[test]
fn a_journal_that_others_can_replace_is_not_used_by_root() {
    if rustix::process::geteuid().as_raw() != 0 {
        return;
    }
    let place = TempDir::new().expect("directory");
    let theirs = place.path().join("theirs");
    fs::create_dir(&theirs).expect("made");
    let of_theirs = |uid, mode| {
        std::os::unix::fs::chown(&theirs, Some(uid), None).expect("given");
        fs::set_permissions(&theirs, Permissions::from_mode(mode)).expect("set");
        ["journal.jsonl", "deep/er/journal.jsonl"]
            .map(|name| Journal::lock_as(&theirs.join(name), "boot".to_owned(), &mut |_| false).map(drop))
    };
    for (uid, mode) in [(65534, 0o755), (0, 0o777), (0, 0o775)] {
        for refused in of_theirs(uid, mode) {
            let refused = refused.expect_err("others can replace it");
            assert!(matches!(refused, Unusable::Replaceable { .. }), "{refused}");
            assert!(refused.to_string().contains(&format!("{} belongs to uid {uid}", theirs.display())));
        }
        assert!(fs::read_dir(&theirs).expect("there").next().is_none(), "nothing was made");
    }
    assert!(of_theirs(0, 0o1777).into_iter().all(|done| done.is_ok()));
}

/// Regression: with one change in force (`doctor --fix` before a study) the journal grew with each run, for ever.
#[test]
fn of_a_long_journal_only_what_is_open_is_kept() {
    let mut place = Place::new();
    place.try_change(POOL, "400", "doctor").expect("changed");
    let first = place.change("kept");
    fs::set_permissions(place.path(), Permissions::from_mode(0o640)).expect("set");
    for _ in 0..30 {
        let again = place.change(&"x".repeat(4096));
        place.undo(&again);
        assert!(place.length() < SHORTEN_ABOVE_BYTES + (16 << 10), "{}", place.length());
    }
    let known = read(&place.path()).expect("read");
    let held: Vec<&str> = known.active("boot").map(|entry| &*entry.path).collect();
    assert_eq!(held, [POOL, READAHEAD], "in their order");
    let mode = fs::metadata(place.path()).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "as before");
    assert!(matches!(place.undo(&first), Outcome::Restored { .. }));
    let rest = place.journal().restore(&mut place, false).expect("not stopped");
    assert_eq!(rest.len(), 1);
    assert_eq!((place.value(POOL), place.value(READAHEAD)), ("0", "128"));
}

#[test]
fn a_long_journal_is_emptied_when_nothing_is_left_to_undo() {
    let mut place = Place::new();
    let filler = "x".repeat(usize::try_from(SHORTEN_ABOVE_BYTES).expect("a length"));
    let id = place.change(&filler);
    assert!(place.length() > SHORTEN_ABOVE_BYTES);
    place.undo(&id);
    assert_eq!(place.length(), 0);
}

/// Who waited for the lock writes into the file that is there then.
#[test]
fn a_writer_that_waited_while_the_journal_was_replaced_writes_the_new_one() {
    let mut place = Place::new();
    place.try_change(POOL, "400", "doctor").expect("changed");
    let long = place.change(&"x".repeat(usize::try_from(SHORTEN_ABOVE_BYTES).expect("a length")));
    let mut first = Some(place.journal());
    let path = place.path();
    let mut second = Journal::lock_as(&path, "boot".to_owned(), &mut |_| {
        let mut writer = first.take().expect("waits once");
        writer.undo(&mut place, std::slice::from_ref(&long), false).expect("not stopped");
        true
    })
    .expect("journal");
    second.change(&mut place, &[(READAHEAD, "0")], 1, "second").expect("not stopped").remove(0).expect("changed");
    assert!(place.length() < SHORTEN_ABOVE_BYTES);
    assert!(read(&path).expect("read").holds(READAHEAD, "boot"));
}

#[test]
fn of_a_choice_the_chosen_word_counts() {
    assert_eq!(normalise("always [madvise] never\n"), "madvise");
    assert_eq!(normalise(" 4\t4\t1\n"), "4 4 1");
}

#[test]
fn a_torn_last_line_is_cut_off() {
    let mut place = Place::new();
    place.change("test");
    let whole = fs::read(place.path()).expect("journal");
    fs::write(place.path(), [whole.as_slice(), b"{\"id\":\"torn"].concat()).expect("torn");
    assert_eq!(place.journal().active_of(1, None).len(), 1);
    assert_eq!(fs::read(place.path()).expect("journal"), whole);
}

#[test]
fn damage_is_counted_and_the_rest_is_read() {
    let mut place = Place::new();
    place.change("one");
    let whole = fs::read_to_string(place.path()).expect("journal");
    let deep = "[".repeat(100_000);
    let odd = whole.lines().next().expect("a line").replace("intended", "x");
    for line in ["garbage", "[]", "{}", "{\"id\": 1}", "\0\0", &deep, &odd] {
        fs::write(place.path(), format!("{whole}{line}\n")).expect("written");
        let snapshot = read(&place.path()).expect("read");
        assert_eq!((snapshot.entries.len(), snapshot.damaged_lines), (1, 1), "{line:.20}");
    }
}

#[test]
fn an_older_line_without_pid_start_and_a_newer_one_with_more_keys_are_read() {
    let mut place = Place::new();
    place.change("one");
    let text = fs::read_to_string(place.path()).expect("journal");
    let older = text.replace("\"pid_start\":null,", "").replace("{\"id\"", "{\"note\":\"later\",\"id\"");
    assert_ne!(older, text);
    fs::write(place.path(), older).expect("written");
    let snapshot = read(&place.path()).expect("read");
    assert_eq!((snapshot.entries.len(), snapshot.damaged_lines), (1, 0));
}

#[test]
fn a_file_of_somebody_else_is_refused_and_left_as_it_is() {
    let place = Place::new();
    for content in ["precious, without a newline", "two\nlines\n", "{\"name\": 1}", "{\"idea\": 1}\nx"] {
        fs::write(place.path(), content).expect("written");
        assert!(
            matches!(Journal::lock(&place.path(), &mut |_| false), Err(Unusable::NotJournal(_))),
            "{content:?}"
        );
        assert_eq!(fs::read_to_string(place.path()).expect("there"), content);
    }
    for torn in ["", "{\"bo", "{\"id\": \"abc", "{\"boot_id\":\"x\",\"by"] {
        fs::write(place.path(), torn).expect("written");
        assert!(Journal::lock(&place.path(), &mut |_| false).is_ok(), "{torn:?}");
        assert_eq!(fs::read_to_string(place.path()).expect("there"), "");
    }
}

#[test]
fn a_line_behind_one_that_was_cut_short_still_counts() {
    let mut place = Place::new();
    let id = place.change("first");
    let whole = fs::read(place.path()).expect("journal");
    // As an older writer left it whose first write was short: half a line, and then a whole one.
    let glued = [b"{\"boot_id\":\"x\",\"by\":\"to", whole.as_slice()].concat();
    fs::write(place.path(), glued).expect("written");
    assert!(matches!(place.undo(&id), Outcome::Restored { .. }));
    assert_eq!(place.value(READAHEAD), "128");
}

#[test]
fn a_short_write_leaves_no_half_line_behind() {
    let mut place = Place::new();
    let id = place.change("first");
    let mut journal = place.journal();
    // As a write that came up short and could not be undone leaves it, in the middle of one writer's work.
    let whole = fs::read(place.path()).expect("journal");
    fs::write(place.path(), [whole.as_slice(), b"{\"boot_id\":\"to"].concat()).expect("torn");
    let done = journal.undo(&mut place, &[id], false).expect("not stopped");
    assert!(matches!(done.as_slice(), [one] if matches!(one.outcome, Outcome::Restored { .. })));
    let lines = fs::read_to_string(place.path()).expect("journal");
    assert!(lines.lines().all(|line| serde_json::from_str::<Entry>(line).is_ok()), "{lines}");
}

/// Regression: whoever could read the journal could hold its lock, and every run and restore waited for ever.
#[test]
fn a_reader_of_the_journal_cannot_hold_its_lock() {
    use std::os::unix::fs::PermissionsExt;
    let mut place = Place::new();
    place.change("first");
    let reader = fs::File::open(place.path()).expect("readable");
    reader.lock().expect("locked");
    let mut attempts = 0;
    let journal = Journal::lock(&place.path(), &mut |_| {
        attempts += 1;
        false
    });
    assert!(journal.is_ok() && attempts == 0, "{journal:?}");
    let lock = fs::metadata(place.directory.path().join("journal.jsonl.lock")).expect("a file of its own");
    assert_eq!(lock.permissions().mode() & 0o777, 0o600, "nobody else can open it");
}

/// Regression: it was told as the journal, whose user could write it, and the advice could not help.
#[test]
fn a_lock_that_cannot_be_made_is_told_as_such() {
    let place = Place::new();
    drop(place.journal());
    let lock = place.directory.path().join("journal.jsonl.lock");
    fs::remove_file(&lock).expect("removed");
    fs::create_dir(&lock).expect("in its place");
    let why = Journal::lock(&place.path(), &mut |_| false).expect_err("no lock").to_string();
    assert!(why.starts_with("cannot make the lock ") && why.contains("in a directory that you may write"), "{why}");
}

/// Regression: waiting for the lock could not be given up, and its holder was not named.
#[test]
fn who_waits_for_the_lock_can_give_up_and_is_told_the_holder() {
    let place = Place::new();
    let _held = place.journal();
    let mut attempts = 0;
    let refused = Journal::lock(&place.path(), &mut |_| {
        attempts += 1;
        attempts < 5
    });
    let why = refused.expect_err("held").to_string();
    assert_eq!(attempts, 5);
    assert!(why.contains("journal.jsonl.lock") && why.contains("run: "), "{why}");
}

/// Regression: a setting stayed changed if the journal could not be written when its writer's death was settled.
#[test]
fn a_setting_goes_back_although_the_journal_cannot_be_written() {
    let mut place = Place::new();
    place.stop_at = Some("written");
    assert!(place.journal().change(&mut place, &[(READAHEAD, "0")], 1, "dies").is_err());
    place.stop_at = None;
    let mut journal = place.journal();
    let id = journal.snapshot.entries[0].id.clone();
    journal.cannot_be_written();
    let done = journal.undo(&mut place, std::slice::from_ref(&id), false).expect("not stopped");
    assert!(matches!(done.as_slice(), [one] if matches!(one.outcome, Outcome::Unrecorded(_))), "{done:?}");
    assert_eq!(place.value(READAHEAD), "128");
    drop(journal);
    assert!(matches!(place.undo(&id), Outcome::Already), "the next writer finds it done");
}

/// Regression: changes of an earlier process that had the same number were undone with those of a killed launcher.
#[test]
fn changes_of_an_earlier_process_with_the_same_number_are_not_its_own() {
    let mut place = Place::new();
    let own = i32::try_from(std::process::id()).expect("a pid");
    let mut journal = place.journal();
    journal.change(&mut place, &[(READAHEAD, "0")], own, "test").expect("not stopped");
    let start = crate::process_start(own).expect("it runs");
    assert_eq!(journal.active_of(own, Some(start)).len(), 1);
    assert_eq!(journal.active_of(own, Some(start + 1)).len(), 0);
}

/// Regression: where the kernel does not tell the boot's identity, open changes were closed as if made before a restart.
#[test]
fn changes_are_undone_where_the_boot_is_not_known() {
    let mut place = Place::new();
    place.change("test");
    let mut journal = Journal::lock_as(&place.path(), String::new(), &mut |_| false).expect("journal");
    let done = journal.restore(&mut place, false).expect("not stopped");
    assert!(matches!(done.as_slice(), [one] if matches!(one.outcome, Outcome::Restored { .. })), "{done:?}");
    assert_eq!(place.value(READAHEAD), "128");
}
