//! Files that were changed in any way: nothing panics, and all chunks before the first change come out whole.

use pagelab_trace::{
    Chunk, Content, Header, Index, Kind, Kinds, Reference, ReferenceSource, Run, RunSource, Settings, TraceReader,
    TraceWriter,
};
use proptest::prelude::*;
use std::io::Cursor;

#[derive(Debug, Clone)]
enum Edit {
    Set(u8),
    Cut,
    /// Bytes that are left out.
    Skip(usize),
    Insert(Vec<u8>),
    /// Bytes that are there a second time.
    Repeat(usize),
}

fn edits() -> impl Strategy<Value = Vec<(prop::sample::Index, Edit)>> {
    let edit = prop_oneof![
        6 => any::<u8>().prop_map(Edit::Set),
        1 => Just(Edit::Cut),
        1 => (1..200_usize).prop_map(Edit::Skip),
        1 => prop::collection::vec(any::<u8>(), 1..40).prop_map(Edit::Insert),
        1 => (1..200_usize).prop_map(Edit::Repeat),
    ];
    prop::collection::vec((any::<prop::sample::Index>(), edit), 1..12)
}

/// The damaged bytes, and how many at their beginning are as they were.
fn damaged(whole: &[u8], edits: &[(prop::sample::Index, Edit)]) -> (Vec<u8>, usize) {
    let mut bytes = whole.to_vec();
    for (at, edit) in edits.iter().filter(|_| !whole.is_empty()) {
        if bytes.is_empty() {
            break;
        }
        let at = at.index(bytes.len());
        let end = |length: &usize| (at + length).min(bytes.len());
        match edit {
            Edit::Set(value) => bytes[at] = *value,
            Edit::Cut => bytes.truncate(at),
            Edit::Skip(length) => drop(bytes.drain(at..end(length))),
            Edit::Insert(new) => drop(bytes.splice(at..at, new.iter().copied())),
            Edit::Repeat(length) => {
                let again = bytes[at..end(length)].to_vec();
                bytes.splice(at..at, again);
            }
        }
    }
    let same = bytes.iter().zip(whole).take_while(|(one, other)| one == other).count();
    (bytes, same)
}

/// Records of the chunks that lie within the first `same` bytes.
fn untouched(whole: &[u8], same: usize) -> usize {
    let entries = Index::read(&mut Cursor::new(whole)).unwrap().entries;
    let within = entries.iter().filter(|entry| entry.offset + 56 + u64::from(entry.stored) <= same as u64);
    within.map(|entry| entry.records as usize).sum()
}

/// Reads on after errors, as a careless consumer would; returns the records of the first pass.
fn read_chunks(bytes: &[u8]) -> Vec<(u64, u64)> {
    let Ok(mut reader) = TraceReader::new(bytes) else { return vec![] };
    let mut found = vec![];
    for _ in 0..3 {
        while let Ok(Some(chunk)) = reader.next_chunk() {
            match chunk {
                Chunk::References(batch) => found.extend(batch.all().iter().map(|one| (one.bits(), 0))),
                Chunk::Runs(runs) => found.extend(runs.iter().map(|run| (run.page, run.count))),
            }
        }
    }
    found
}

/// Every other way to read a file.
fn read_otherwise(bytes: &[u8]) {
    for index in [Index::read(&mut Cursor::new(bytes)), Index::scan(&mut Cursor::new(bytes))].into_iter().flatten()
    {
        for shard in index.shards(3) {
            if let Ok(mut reader) = TraceReader::select(Cursor::new(bytes), &index.entries[shard]) {
                while let Ok(Some(_)) = reader.next_chunk() {}
            }
        }
    }
    if let Ok(mut references) = TraceReader::new(bytes).and_then(TraceReader::into_references) {
        while let Ok(Some(_)) = references.next_references() {}
    }
    if let Ok(mut runs) = TraceReader::new(bytes).and_then(|reader| reader.into_runs(12, Kinds::ALL)) {
        while let Ok(Some(_)) = runs.next_runs() {}
    }
}

fn check(whole: &[u8], records: &[(u64, u64)], edits: &[(prop::sample::Index, Edit)]) {
    let (bytes, same) = damaged(whole, edits);
    let untouched = untouched(whole, same);
    let found = read_chunks(&bytes);
    assert!(found.len() >= untouched, "{} of {untouched} records before byte {same}", found.len());
    assert_eq!(found[..untouched], records[..untouched]);
    read_otherwise(&bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn damaged_runs(
        records in prop::collection::vec((0..1_u64 << 40, 1..1000_u64), 1..120), chunk in 1..40_usize, edits in edits(),
    ) {
        let settings = Settings { chunk_records: chunk, ..Settings::default() };
        let header = Header::new(Content::Runs { page_bits: 12 });
        let mut writer = TraceWriter::new(Vec::new(), &header, settings).unwrap();
        let runs: Vec<Run> = records.iter().map(|&(page, count)| Run { page, count }).collect();
        writer.runs(&runs).unwrap();
        check(&writer.finish(&serde_json::json!({"exit": 0})).unwrap(), &records, &edits);
    }

    #[test]
    fn damaged_references(
        records in prop::collection::vec((0..1_u64 << 47, 0..4_u8, 0..100_u32, 0..3_u32), 1..120),
        chunk in 1..40_usize,
        edits in edits(),
    ) {
        let settings = Settings { chunk_records: chunk, ..Settings::default() };
        let mut writer = TraceWriter::new(Vec::new(), &Header::new(Content::References), settings).unwrap();
        let mut written = vec![];
        for (address, kind, size, thread) in records {
            let reference = Reference::new(address, Kind::from_code(kind), size);
            writer.references(0, thread, &[reference]).unwrap();
            written.push((reference.bits(), 0));
        }
        check(&writer.finish(&serde_json::json!({"exit": 0})).unwrap(), &written, &edits);
    }
}

/// Records of every whole chunk that can be had.
fn recovered(bytes: &[u8]) -> Option<Vec<(u64, u64)>> {
    let (mut reader, _) = TraceReader::recover(Cursor::new(bytes)).ok()?;
    let mut found = vec![];
    while let Ok(Some(chunk)) = reader.next_chunk() {
        match chunk {
            Chunk::References(batch) => found.extend(batch.all().iter().map(|one| (one.bits(), 0))),
            Chunk::Runs(runs) => found.extend(runs.iter().map(|run| (run.page, run.count))),
        }
    }
    Some(found)
}

/// A trace of some chunks, with provenance, and where its first chunk begins.
fn with_provenance(content: Content) -> (Vec<u8>, Vec<(u64, u64)>, usize) {
    let header = Header { provenance: serde_json::json!({"argv": ["sort", "words"]}), ..Header::new(content) };
    let settings = Settings { chunk_records: 7, ..Settings::default() };
    let mut writer = TraceWriter::new(Vec::new(), &header, settings).unwrap();
    let mut written = vec![];
    for at in 0..40_u64 {
        if content == Content::References {
            let reference = Reference::new(at * 4096, Kind::Store, 8);
            writer.references(0, 0, &[reference]).unwrap();
            written.push((reference.bits(), 0));
        } else {
            writer.runs(&[Run { page: at * at, count: at + 1 }]).unwrap();
            written.push((at * at, at + 1));
        }
    }
    let bytes = writer.finish(&serde_json::json!({"exit": 0})).unwrap();
    let begin = TraceReader::new(&bytes[..]).unwrap().position() as usize;
    (bytes, written, begin)
}

#[test]
fn every_flipped_bit_of_the_header_and_its_copy_leaves_every_chunk() {
    for content in [Content::References, Content::Runs { page_bits: 12 }] {
        let (whole, written, begin) = with_provenance(content);
        let header = TraceReader::new(&whole[..]).unwrap().header().clone();
        assert!(begin > 200);
        for bit in 0..begin * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(recovered(&bytes).as_ref(), Some(&written), "bit {bit}");
            // The first copy is what counts where nobody recovers: damaged, it is refused; the second may be damaged.
            match TraceReader::new(&bytes[..]) {
                Ok(reader) => {
                    assert!(bit / 8 >= begin / 2 && !reader.copy_is_whole(), "bit {bit}");
                    assert_eq!(*reader.header(), header);
                    assert_eq!(read_chunks(&bytes), written);
                }
                Err(_) => assert!(bit / 8 < begin / 2, "bit {bit}"),
            }
        }
    }
}

/// Regression: with as many bytes before it as a header has, its own header was taken for another trace's.
#[test]
fn bytes_before_the_header_leave_every_chunk() {
    let (whole, written, _) = with_provenance(Content::References);
    for before in 1..100 {
        let bytes = [&vec![0; before][..], &whole].concat();
        assert_eq!(recovered(&bytes).as_ref(), Some(&written), "{before}");
    }
}

/// The first of two files in one was read as if it were all, and what was recovered had the pages of both.
#[test]
fn bytes_behind_the_end_are_noticed_and_are_of_no_trace() {
    let (first, written, _) = with_provenance(Content::Runs { page_bits: 12 });
    let (second, ..) = with_provenance(Content::Runs { page_bits: 21 });
    for behind in [&second[..], b"x", &[0; 100], &first[..first.len() / 2]] {
        let both = [&first, behind].concat();
        let end = end_of(TraceReader::new(&both[..]).unwrap());
        assert!(end.contains("bytes follow its end") && end.contains(&format!("byte {}", first.len())), "{end}");
        let last = TraceReader::shard(Cursor::new(&both), 1, 2).unwrap();
        assert!(end_of(last).contains("bytes follow its end"));
        assert_eq!(read_chunks(&both), written);
        assert!(!Index::read(&mut Cursor::new(&both)).unwrap().complete);
        assert_eq!(recovered(&both).as_ref(), Some(&written));
    }
    // Nor where the first has no end.
    let cut = [&first[..first.len() - 60], &second[..]].concat();
    assert_eq!(recovered(&cut).as_ref(), Some(&written));
}

/// The error at the end of a trace.
fn end_of(mut reader: TraceReader<impl std::io::Read>) -> String {
    loop {
        match reader.next_chunk() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it ends without an error"),
            Err(error) => return error.to_string(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// As long as one copy is whole, and with damage in the chunks, too.
    #[test]
    fn either_copy_is_enough(
        edits in edits(), first: bool, chunk in any::<prop::sample::Index>(), also: bool,
    ) {
        let (whole, written, begin) = with_provenance(Content::References);
        let (damaged_copy, _) = if first {
            damaged(&whole[..begin / 2], &edits)
        } else {
            damaged(&whole[begin / 2..begin], &edits)
        };
        let mut bytes =
            if first { [&damaged_copy, &whole[begin / 2..]].concat() } else { [&whole[..begin / 2], &damaged_copy, &whole[begin..]].concat() };
        let found = recovered(&bytes).unwrap();
        prop_assert_eq!(&found, &written);
        if also {
            let at = bytes.len() - 1 - chunk.index((whole.len() - begin) / 2);
            bytes[at] ^= 0x10;
            let found = recovered(&bytes).unwrap();
            prop_assert!(found.len() + 7 >= written.len());
            prop_assert!(found.iter().all(|record| written.contains(record)));
        }
    }
}
