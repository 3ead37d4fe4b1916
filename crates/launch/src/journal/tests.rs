//! The journal, on a directory of its own.

use super::*;

struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        let token = u64::from_ne_bytes(sys::random::<8>().expect("random"));
        let path = std::env::temp_dir().join(format!("pagelab-journal-test-{token:016x}"));
        fs::create_dir(&path).expect("fresh directory");
        fs::write(path.join("setting"), "128\n").expect("setting");
        Place(path)
    }

    fn setting(&self) -> PathBuf {
        self.0.join("setting")
    }

    fn journal(&self) -> Journal {
        Journal::lock(&self.0.join("journal.jsonl")).expect("journal")
    }

    fn change(&self, by: &str) -> String {
        let results = self.journal().change(&[(self.setting().as_path(), "000")], by);
        results.into_iter().next().expect("one").expect("changed").expect("an id")
    }

    fn undo(&self, id: &str) -> Undone {
        self.journal().undo(&[id.to_owned()]).remove(0).expect("undone")
    }

    fn value(&self) -> String {
        read_value(&self.setting()).expect("value")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

// A real file keeps the tail of a longer old value, as sysfs does not: tests use values of equal length.
#[test]
fn a_change_is_undone_to_the_value_before() {
    let place = Place::new();
    let id = place.change("test");
    assert_eq!(place.value(), "000");
    assert_eq!(place.undo(&id), Undone::Restored);
    assert_eq!(place.value(), "128");
    assert!(place.journal().active_of(sys::process::own_pid()).is_empty());
}

#[test]
fn two_owners_may_leave_in_any_order() {
    for first_leaves_first in [true, false] {
        let place = Place::new();
        let (first, second) = (place.change("first"), place.change("second"));
        let (one, two) = if first_leaves_first { (first, second) } else { (second, first) };
        place.undo(&one);
        assert_eq!(place.value(), "000", "the other owner still needs it");
        place.undo(&two);
        assert_eq!(place.value(), "128");
    }
}

#[test]
fn a_value_that_somebody_else_set_is_left_alone() {
    let place = Place::new();
    let id = place.change("test");
    fs::write(place.setting(), "777\n").expect("somebody else");
    assert_eq!(place.undo(&id), Undone::ChangedByOthers { present: "777".to_owned() });
    assert_eq!(place.journal().active_of(sys::process::own_pid()).len(), 1);
}

#[test]
fn a_torn_last_line_is_cut_off() {
    let place = Place::new();
    let path = place.0.join("journal.jsonl");
    place.change("test");
    let whole = fs::read(&path).expect("journal");
    fs::write(&path, [whole.as_slice(), b"{\"id\":\"torn"].concat()).expect("torn");
    assert_eq!(place.journal().active_of(sys::process::own_pid()).len(), 1);
    assert_eq!(fs::read(&path).expect("journal"), whole);
}

#[test]
fn a_writer_that_died_before_writing_left_nothing_to_undo() {
    let place = Place::new();
    place.change("test");
    let mut journal = place.journal();
    let mut entry = journal.entries[0].clone();
    (entry.id, entry.state, entry.old) = ("dead".to_owned(), State::Intended, "000".to_owned());
    journal.append(entry).expect("append");
    journal.settle(&place.setting().display().to_string()).expect("settle");
    assert_eq!(journal.entries[1].state, State::Failed);
}

#[test]
fn a_refused_setting_does_not_keep_the_others_from_being_changed() {
    let place = Place::new();
    let missing = place.0.join("missing");
    let results = place.journal().change(&[(missing.as_path(), "1"), (place.setting().as_path(), "000")], "test");
    assert!(matches!(results.as_slice(), [Err(_), Ok(Some(_))]));
    assert_eq!(place.value(), "000");
}

#[test]
fn a_long_journal_is_emptied_when_nothing_is_left_to_undo() {
    let place = Place::new();
    let path = place.0.join("journal.jsonl");
    let kept = place.change("kept");
    for _ in 0..100 {
        place.undo(&place.change("again"));
    }
    assert!(fs::metadata(&path).expect("journal").len() > EMPTY_ABOVE_BYTES / 2);
    for _ in 0..200 {
        place.undo(&place.change("again"));
    }
    assert!(fs::metadata(&path).expect("journal").len() > EMPTY_ABOVE_BYTES, "one change is still active");
    place.undo(&kept);
    assert_eq!(fs::metadata(&path).expect("journal").len(), 0);
    assert_eq!(place.value(), "128");
}

#[test]
fn of_a_choice_the_chosen_word_counts() {
    let place = Place::new();
    fs::write(place.setting(), "always [madvise] never\n").expect("setting");
    assert_eq!(place.value(), "madvise");
}

#[test]
fn a_file_of_somebody_else_is_refused_and_left_as_it_is() {
    let place = Place::new();
    let path = place.0.join("foreign");
    for content in ["precious, without a newline", "two\nlines\n", "{\"name\": 1}", "{\"idea\": 1}\nx"] {
        fs::write(&path, content).expect("written");
        assert!(Journal::lock(&path).is_err(), "{content:?}");
        assert_eq!(fs::read_to_string(&path).expect("there"), content);
    }
    for torn in ["", "{\"bo", "{\"id\": \"abc", "{\"boot_id\":\"x\",\"by"] {
        fs::write(&path, torn).expect("written");
        assert!(Journal::lock(&path).is_ok(), "{torn:?}");
        assert_eq!(fs::read_to_string(&path).expect("there"), "");
    }
}

#[test]
fn a_line_behind_one_that_was_cut_short_still_counts() {
    let place = Place::new();
    let id = place.change("first");
    let path = place.0.join("journal.jsonl");
    let whole = fs::read(&path).expect("journal");
    // As an older writer left it whose first write was short: half a line, and then a whole one.
    let glued = [b"{\"boot_id\":\"x\",\"by\":\"to", whole.as_slice()].concat();
    fs::write(&path, glued).expect("written");
    assert_eq!(place.value(), "000");
    assert_eq!(place.undo(&id), Undone::Restored);
    assert_eq!(place.value(), "128");
}

#[test]
fn a_short_write_leaves_no_half_line_behind() {
    let place = Place::new();
    let id = place.change("first");
    let mut journal = place.journal();
    let path = place.0.join("journal.jsonl");
    // As a write that came up short and could not be undone leaves it, in the middle of one writer's work.
    let whole = fs::read(&path).expect("journal");
    fs::write(&path, [whole.as_slice(), b"{\"boot_id\":\"to"].concat()).expect("torn");
    assert_eq!(journal.undo(&[id]).remove(0).expect("undone"), Undone::Restored);
    let lines = fs::read_to_string(&path).expect("journal");
    assert!(lines.lines().all(|line| serde_json::from_str::<Entry>(line).is_ok()), "{lines}");
}
