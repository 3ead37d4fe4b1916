//! The file format: a reader returns what was written; of a cut or damaged file it returns all that is whole, and
//! reports the rest.

use pagelab_trace::{
    Chunk, Content, Header, Index, Kind, Reference, Run, Settings, TraceError, TraceReader, TraceWriter,
};
use proptest::prelude::*;
use serde_json::json;
use std::io::Cursor;

type Record = (u16, u32, Reference);

fn header(content: Content) -> Header {
    Header { provenance: json!({"argv": ["sort", "f"]}), ..Header::new(content) }
}

fn references() -> impl Strategy<Value = Vec<Record>> {
    let near = (0x5555_0000_0000u64..0x5555_0001_0000).boxed();
    let address = prop_oneof![near, any::<u64>().boxed()];
    let record = (0..3u16, 0..3u32, address, 0..4u8, 0..5000u32).prop_map(|(asid, thread, address, kind, size)| {
        (asid, thread, Reference::new(address, Kind::from_code(kind), size))
    });
    prop::collection::vec(record, 0..300)
}

fn runs() -> impl Strategy<Value = Vec<Run>> {
    // Numbers of 4 KiB pages have 44 bits.
    let run = (0..4096u16, any::<u64>(), 1..=u64::MAX >> 16);
    prop::collection::vec(run.prop_map(|(asid, page, count)| Run::new(asid, page >> 20, count)), 0..300)
}

fn write_references(records: &[Record], chunk_records: usize) -> Vec<u8> {
    let settings = Settings { chunk_records, ..Settings::default() };
    let mut writer = TraceWriter::new(Vec::new(), &header(Content::References), settings).unwrap();
    for (asid, thread, reference) in records {
        writer.references(*asid, *thread, &[*reference]).unwrap();
    }
    writer.finish(&json!({"exit": 0})).unwrap()
}

fn write_runs(runs: &[Run], chunk_records: usize) -> Vec<u8> {
    let settings = Settings { chunk_records, ..Settings::default() };
    let mut writer = TraceWriter::new(Vec::new(), &header(Content::Runs { page_bits: 12 }), settings).unwrap();
    writer.runs(runs).unwrap();
    writer.finish(&json!({"exit": 0})).unwrap()
}

/// Everything a reader gives, and how it ends.
fn read(mut reader: TraceReader<impl std::io::Read>) -> (Vec<Record>, Vec<Run>, Result<(), TraceError>) {
    let (mut references, mut runs) = (Vec::new(), Vec::new());
    loop {
        match reader.next_chunk() {
            Ok(Some(Chunk::References(batch))) => {
                for segment in batch.segments() {
                    let records = segment.references.iter();
                    references.extend(records.map(|reference| (segment.asid, segment.thread, *reference)));
                }
            }
            Ok(Some(Chunk::Runs(batch))) => runs.extend_from_slice(batch),
            Ok(None) => return (references, runs, Ok(())),
            Err(error) => {
                assert!(reader.next_chunk().unwrap().is_none(), "a reader goes on after an error");
                return (references, runs, Err(error));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn references_come_back(records in references(), chunk in 1..100usize) {
        let bytes = write_references(&records, chunk);
        let (back, _, end) = read(TraceReader::new(&bytes[..]).unwrap());
        prop_assert!(end.is_ok());
        prop_assert_eq!(back, records);
    }

    #[test]
    fn runs_come_back(records in runs(), chunk in 1..100usize) {
        let bytes = write_runs(&records, chunk);
        let (_, back, end) = read(TraceReader::new(&bytes[..]).unwrap());
        prop_assert!(end.is_ok());
        prop_assert_eq!(back, records);
    }

    #[test]
    fn the_index_is_what_a_scan_finds_and_shards_make_the_whole(records in runs(), chunk in 1..50usize, parts in 1..6usize) {
        let bytes = write_runs(&records, chunk);
        let index = Index::read(&mut Cursor::new(&bytes)).unwrap();
        let scanned = Index::scan(&mut Cursor::new(&bytes)).unwrap();
        prop_assert!(index.complete && !scanned.complete);
        prop_assert_eq!(&index.ending, &json!({"exit": 0}));
        prop_assert_eq!(&index.entries, &scanned.entries);
        prop_assert_eq!(index.records(), records.len() as u64);
        let shards = index.shards(parts);
        prop_assert!(shards.len() <= parts);
        let (mut selected, mut back) = (Vec::new(), Vec::new());
        for shard in shards {
            let reader = TraceReader::select(Cursor::new(&bytes), &index.entries[shard]).unwrap();
            let (_, runs, end) = read(reader);
            prop_assert!(end.is_ok());
            selected.extend(runs);
        }
        prop_assert_eq!(&selected, &records);
        for number in 0..parts {
            let (_, runs, end) = read(TraceReader::shard(Cursor::new(&bytes), number, parts).unwrap());
            prop_assert!(end.is_ok());
            back.extend(runs);
        }
        prop_assert_eq!(back, records);
        prop_assert!(TraceReader::shard(Cursor::new(&bytes), parts, parts).is_err());
    }

    #[test]
    fn one_wrong_byte_is_noticed_and_what_is_whole_is_found(
        records in prop::collection::vec((0..1000u64, 1..9u64).prop_map(|(page, count)| Run { page, count }), 20..60),
        at in any::<prop::sample::Index>(), bit in 0..8u32,
    ) {
        let whole = write_runs(&records, 10);
        let mut bytes = whole.clone();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        // A part of the file hears of it, too.
        if let Ok(first) = TraceReader::shard(Cursor::new(&bytes), 0, 2) {
            let second = TraceReader::shard(Cursor::new(&bytes), 1, 2).unwrap();
            prop_assert!(read(first).2.is_err() || read(second).2.is_err());
        }
        let index = Index::read(&mut Cursor::new(&whole)).unwrap();
        if let Ok(reader) = TraceReader::new(&bytes[..]) {
            let (_, back, end) = read(reader);
            prop_assert!(end.is_err());
            prop_assert_eq!(&back[..], &records[..back.len()]);
            let hurt = index.entries.iter().rposition(|entry| entry.offset <= at as u64);
            let hurt = hurt.filter(|hurt| at as u64 - index.entries[*hurt].offset < 56 + u64::from(index.entries[*hurt].stored));
            let expected: Vec<_> = index.entries.iter().enumerate()
                .filter(|(number, _)| Some(*number) != hurt).map(|(_, entry)| *entry).collect();
            prop_assert_eq!(Index::scan(&mut Cursor::new(&bytes)).unwrap().entries, expected);
        }
    }
}

#[test]
fn cut_at_every_byte_it_gives_all_complete_chunks_and_says_where_it_ends() {
    let records: Vec<Run> = (0..60).map(|page| Run { page: page * page, count: page + 1 }).collect();
    let whole = write_runs(&records, 7);
    let entries = Index::read(&mut Cursor::new(&whole)).unwrap().entries;
    let first = entries[0].offset as usize;
    for length in 0..whole.len() {
        let cut = &whole[..length];
        let complete: Vec<_> =
            entries.iter().filter(|entry| entry.offset + 56 + u64::from(entry.stored) <= length as u64).collect();
        let kept: u64 = complete.iter().map(|entry| u64::from(entry.records)).sum();
        match TraceReader::new(cut) {
            Err(TraceError::NotATrace) => assert_eq!(length, 0),
            Err(TraceError::Header(_)) => assert!(length < first),
            Err(error) => panic!("{error} with {length} bytes"),
            Ok(reader) => {
                let (_, back, end) = read(reader);
                assert_eq!(back, records[..kept as usize], "{length} bytes");
                let Err(TraceError::Torn(place)) = end else { panic!("{end:?} with {length} bytes") };
                assert_eq!((place.chunks, place.records), (complete.len() as u64, kept));
                let index = Index::read(&mut Cursor::new(cut)).unwrap();
                assert!(!index.complete);
                assert_eq!(index.entries.len(), complete.len());
            }
        }
    }
}

#[test]
fn other_files_and_other_versions_are_told_from_ours() {
    assert!(matches!(
        TraceReader::new(&b"I  04016b80,3\n L 1ffefff0,8\n and so on"[..]),
        Err(TraceError::NotATrace)
    ));
    let mut bytes = write_runs(&[], 10);
    bytes[8] = 3;
    assert!(matches!(TraceReader::new(&bytes[..]), Err(TraceError::Version(3))));
}

#[test]
fn what_the_format_cannot_hold_is_refused() {
    let refused = |content| TraceWriter::new(Vec::new(), &Header::new(content), Settings::default()).is_err();
    assert!(refused(Content::Runs { page_bits: 3 }) && refused(Content::Runs { page_bits: 41 }));
    let mut writer = TraceWriter::new(Vec::new(), &Header::new(Content::References), Settings::default()).unwrap();
    assert!(writer.references(4096, 0, &[]).is_err());
    assert!(writer.runs(&[Run { page: 0, count: 1 }]).is_err());
}

/// Parts of a cut file ended where its whole chunks do, without an error: references were missing, and nobody heard.
#[test]
fn the_last_part_of_a_cut_file_says_where_it_ends() {
    let records: Vec<Run> = (0..60).map(|page| Run { page: page * page, count: page + 1 }).collect();
    let whole = write_runs(&records, 10);
    for cut in 0..whole.len() {
        let bytes = &whole[..cut];
        let (Ok(reader), parts) = (TraceReader::new(bytes), 1 + cut % 3) else { continue };
        let (_, expected, end) = read(reader);
        let mut back = Vec::new();
        for number in 0..parts {
            let (_, runs, end_of_part) = read(TraceReader::shard(Cursor::new(bytes), number, parts).unwrap());
            back.extend(runs);
            match number + 1 == parts {
                true => assert_eq!(format!("{end_of_part:?}"), format!("{end:?}"), "byte {cut}"),
                false => assert!(end_of_part.is_ok()),
            }
        }
        assert_eq!(back, expected, "byte {cut}");
    }
}

/// In a run they would be another page of another address space.
#[test]
fn pages_that_no_address_has_are_refused_with_their_number() {
    for (page_bits, bits) in [(4, 52), (12, 44), (21, 35), (40, 16)] {
        let header = Header::new(Content::Runs { page_bits });
        let mut writer = TraceWriter::new(Vec::new(), &header, Settings::default()).unwrap();
        writer.runs(&[Run::new(4095, (1 << bits) - 1, 1), Run::new(0, 0, 1)]).unwrap();
        if bits < 52 {
            let error = writer.runs(&[Run::new(0, 7, 1), Run::new(0, 1 << bits, 1)]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("run 4: {:#x} is no page number", 1_u64 << bits)), "{error}");
        }
    }
}

/// Their sum was 0 in 64 bits, and a merged run of so many was left out.
#[test]
fn counts_that_add_up_to_more_than_64_bits_are_refused() {
    let header = Header::new(Content::Runs { page_bits: 12 });
    let mut writer = TraceWriter::new(Vec::new(), &header, Settings::default()).unwrap();
    writer.runs(&[Run::new(0, 1, 1 << 63)]).unwrap();
    writer.runs(&[Run::new(0, 2, (1 << 63) - 1)]).unwrap();
    let error = writer.runs(&[Run::new(0, 3, 1)]).unwrap_err().to_string();
    assert!(error.contains("add up to 18446744073709551616"), "{error}");
}
