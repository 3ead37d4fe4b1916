//! Foreign traces: lines and bytes as their tools write them.

use pagelab_trace::foreign::{Foreign, Format};
use pagelab_trace::{Kind, Reference, Run, TraceError};
use proptest::prelude::*;

type Records = Vec<(u16, u32, Reference)>;

fn references(format: Format, bytes: &[u8]) -> Result<Records, TraceError> {
    let Foreign::References(mut source) = format.open(bytes, 12)? else { panic!("runs") };
    let mut records = Vec::new();
    while let Some(batch) = source.next_references()? {
        for segment in batch.segments() {
            records.extend(segment.references.iter().map(|reference| (segment.asid, segment.thread, *reference)));
        }
    }
    Ok(records)
}

fn runs(format: Format, bytes: &[u8]) -> Result<Vec<Run>, TraceError> {
    let Foreign::Runs(mut source) = format.open(bytes, 12)? else { panic!("references") };
    let mut runs = Vec::new();
    while let Some(batch) = source.next_runs()? {
        runs.extend_from_slice(batch);
    }
    Ok(runs)
}

fn plain(references: &[(u64, Kind, u32)]) -> Records {
    references.iter().map(|(address, kind, size)| (0, 0, Reference::new(*address, *kind, *size))).collect()
}

#[test]
fn lackey() {
    let text =
        b"==6899== Command: true\n==6899== \nI  0401ab70,3\n S 1fff000758,8\n M 1fff000750,16\n L 04222cac,4\r\n";
    let expected = [
        (0x401_ab70, Kind::Fetch, 3),
        (0x1f_ff00_0758, Kind::Store, 8),
        (0x1f_ff00_0750, Kind::Load, 16),
        (0x1f_ff00_0750, Kind::Store, 16),
        (0x422_2cac, Kind::Load, 4),
    ];
    assert_eq!(references(Format::Lackey, text).unwrap(), plain(&expected));
}

#[test]
fn a_wrong_line_is_named_with_its_number() {
    let error = references(Format::Lackey, b"I  0401ab70,3\nhello\n").unwrap_err();
    assert_eq!(error.to_string(), "line 2: not a line of lackey's: hello");
    for line in ["I  xyz,3", "I  12", " L 12,", " L 1122334455667788990,1"] {
        assert!(references(Format::Lackey, line.as_bytes()).is_err(), "{line}");
    }
}

#[test]
fn dinero_in_both_forms() {
    let text = b"0 1000 rest is ignored\n1 7fff0008\n2 400000\n3 10\n4 0\n\nr 1000 8\nw 0x2000 10\ni 400000 4\n";
    let expected = [
        (0x1000, Kind::Load, 0),
        (0x7fff_0008, Kind::Store, 0),
        (0x40_0000, Kind::Fetch, 0),
        (0x10, Kind::Other, 0),
        (0x1000, Kind::Load, 8),
        (0x2000, Kind::Store, 16),
        (0x40_0000, Kind::Fetch, 4),
    ];
    assert_eq!(references(Format::Dinero, text).unwrap(), plain(&expected));
    assert!(references(Format::Dinero, b"7 1000\n").is_err());
}

#[test]
fn champsim() {
    let mut record = [0u8; 64];
    record[..8].copy_from_slice(&0x40_1000u64.to_le_bytes());
    record[8] = 1;
    record[16..24].copy_from_slice(&0x7000u64.to_le_bytes());
    record[40..48].copy_from_slice(&0x8000u64.to_le_bytes());
    record[56..64].copy_from_slice(&0x9000u64.to_le_bytes());
    let expected =
        [(0x40_1000, Kind::Fetch, 0), (0x8000, Kind::Load, 0), (0x9000, Kind::Load, 0), (0x7000, Kind::Store, 0)];
    let twice = [record, record].concat();
    assert_eq!(references(Format::ChampSim, &twice).unwrap(), plain(&[expected, expected].concat()));
    let error = references(Format::ChampSim, &twice[..100]).unwrap_err().to_string();
    assert!(error.contains("36 bytes follow the 1 instructions"), "{error}");
}

#[test]
fn csv_of_references() {
    let text = b"thread, address,kind,size,asid\n1,0x1000,load,8,0\n0,8192,W,4,3\n";
    let expected = [(0, 1, Reference::new(0x1000, Kind::Load, 8)), (3, 0, Reference::new(8192, Kind::Store, 4))];
    assert_eq!(references(Format::Csv, text).unwrap(), expected);
    assert_eq!(references(Format::Csv, b"address\n16\n").unwrap(), plain(&[(16, Kind::Load, 0)]));
}

#[test]
fn csv_of_pages() {
    let expected = [Run::new(0, 7, 3), Run::new(0, 8, 1), Run::new(0, 7, 1)];
    assert_eq!(runs(Format::Csv, b"page\n7\n7\n7\n8\n7\n").unwrap(), expected);
    assert_eq!(runs(Format::Csv, b"asid,page,count\n2,0x10,5\n").unwrap(), [Run::new(2, 16, 5)]);
}

#[test]
fn csv_that_cannot_be_meant() {
    for text in
        ["", "when,address\n", "address,page\n", "page,kind\n", "address,count\n", "kind\n", "address,address\n"]
    {
        assert!(Format::Csv.open(text.as_bytes(), 12).is_err(), "{text}");
    }
    for row in ["0x", "-1", "+1", "a,b", ""] {
        let text = format!("address,asid\n{row},0\n");
        assert!(references(Format::Csv, text.as_bytes()).is_err(), "{row}");
    }
    assert!(references(Format::Csv, b"address,asid\n1,4096\n").is_err());
    assert!(runs(Format::Csv, b"page,count\n1,0\n").is_err());
}

/// `1,234` was address 1.
#[test]
fn csv_lines_with_other_fields_than_the_first_are_refused() {
    for (text, count) in [
        ("address\n1,234\n", 2),
        ("address,kind\n16,load,8\n", 3),
        ("address,asid\n16\n", 1),
        ("address\n16,\n", 2),
        ("address\n1,2,3,4,5,6,7,8,9\n", 9),
    ] {
        let error = references(Format::Csv, text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("line 2: fields: {count}, and the first line names")), "{error}");
    }
    let error = runs(Format::Csv, b"page,count\n7,1\n7,1,2\n").unwrap_err().to_string();
    assert!(error.starts_with("line 3: fields: 3, and the first line names 2"), "{error}");
}

/// The page of another size and the bits of the address space are no part of a number.
#[test]
fn pages_that_no_address_has_are_refused_in_every_page_size() {
    for (page_bits, bits) in [(4, 52), (12, 44), (21, 35)] {
        for (number, fits) in [((1_u64 << bits) - 1, true), (1 << bits, false), (u64::MAX, false)] {
            let text = format!("page\n{number}\n");
            for (format, bytes) in [(Format::Csv, text.as_bytes()), (Format::RawPages, &number.to_le_bytes()[..])] {
                let Ok(Foreign::Runs(mut source)) = format.open(bytes, page_bits) else { panic!("no runs") };
                assert_eq!(source.next_runs().is_ok(), fits, "{format:?} {page_bits} {number:#x}");
            }
        }
    }
}

#[test]
fn raw_integers() {
    let bytes: Vec<u8> = [5u64, 5, 6, 5].iter().flat_map(|page| page.to_le_bytes()).collect();
    let load = |address| (address, Kind::Load, 0);
    assert_eq!(references(Format::RawAddresses, &bytes).unwrap(), plain(&[load(5), load(5), load(6), load(5)]));
    assert_eq!(runs(Format::RawPages, &bytes).unwrap(), [Run::new(0, 5, 2), Run::new(0, 6, 1), Run::new(0, 5, 1)]);
    assert!(references(Format::RawAddresses, &bytes[..13]).is_err());
    assert!(runs(Format::RawPages, &u64::MAX.to_le_bytes()).is_err());
}

#[test]
fn perf_script_gives_processes_and_threads_and_is_a_sample() {
    let text = b" 6519/6519  25119.846402: page-faults:     562870d5f1e0\n 6519/6520  25119.8: cpu/mem-stores,ldlat=30/P:  10\n\
                 7/7 25120.0:     page-faults:  20\n";
    let expected = [
        (0, 0, Reference::new(0x5628_70d5_f1e0, Kind::Load, 0)),
        (0, 1, Reference::new(0x10, Kind::Store, 0)),
        (1, 0, Reference::new(0x20, Kind::Load, 0)),
    ];
    assert_eq!(references(Format::PerfScript, text).unwrap(), expected);
    assert!(Format::PerfScript.sampling().is_some());
    assert!(Format::ALL.iter().filter(|format| format.sampling().is_some()).count() == 1);
    assert!(references(Format::PerfScript, b"true  6519 25119.846402: 1 page-faults: ff elf_load\n").is_err());
}

#[test]
fn long_streams_come_in_many_batches_and_lose_nothing() {
    let text: Vec<u8> = (0..200_000u64).flat_map(|at| format!("0 {at:x}\n").into_bytes()).collect();
    let records = references(Format::Dinero, &text).unwrap();
    assert!(records.iter().map(|(_, _, reference)| reference.address()).eq(0..200_000));
    let raw: Vec<u8> = (0..200_000u64).flat_map(u64::to_le_bytes).collect();
    assert_eq!(runs(Format::RawPages, &raw).unwrap().len(), 200_000);
}

/// If addresses were cut to 56 bits, two of these would be one page.
#[test]
fn addresses_of_more_than_56_bits_are_refused_with_their_place() {
    let high = 1_u64 << 56;
    let words = |last: u64| [high - 1, 5, last].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let champsim = |at: usize, address: u64| {
        let mut bytes = vec![0; 128];
        bytes[64 + at..64 + at + 8].copy_from_slice(&address.to_le_bytes());
        bytes
    };
    let line = |text: &str, address: u64| {
        text.replace("HEX", &format!("{address:x}")).replace("DEC", &address.to_string()).into_bytes()
    };
    for address in [high, high + 0x1000, 1 << 63, u64::MAX] {
        let refused: [(Format, Vec<u8>, &str); 9] = [
            (Format::Lackey, line("I  10,3\n M HEX,8\n", address), "line 2"),
            (Format::Dinero, line("0 10\n1 HEX\n", address), "line 2"),
            (Format::Csv, line("address,kind\n16,load\nDEC,store\n", address), "line 3"),
            (Format::Csv, line("address\n0xHEX\n", address), "line 2"),
            (
                Format::PerfScript,
                line(" 7/7 25120.0: page-faults: 20\n 7/7 25121.0: page-faults: HEX\n", address),
                "line 2",
            ),
            (Format::RawAddresses, words(address), "integer 3"),
            (Format::ChampSim, champsim(0, address), "instruction 2"),
            (Format::ChampSim, champsim(16, address), "instruction 2"),
            (Format::ChampSim, champsim(56, address), "instruction 2"),
        ];
        for (format, bytes, place) in refused {
            let error = references(format, &bytes).unwrap_err().to_string();
            assert!(error.starts_with(place) && error.contains("more than 56 bits"), "{format:?}: {error}");
        }
    }
    assert_eq!(references(Format::RawAddresses, &words(high - 1)).unwrap().len(), 3);
    let error = runs(Format::RawPages, &words(1 << 52)).unwrap_err().to_string();
    assert!(error.starts_with("integer 1"), "{error}");
}

proptest! {
    #[test]
    fn any_bytes_are_a_trace_or_refused(
        begin in prop::sample::select(vec!["", "address,kind\n", "page,count\n", "I  ", " L 10,", "0 10\n", " 7/7  1.5: x: 10\n"]),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let bytes = [begin.as_bytes(), &bytes].concat();
        for format in Format::ALL {
            // Whether it is accepted is each format's own test; here it must end, and not by a panic.
            match format.open(&bytes[..], 12) {
                Ok(Foreign::References(mut source)) => while source.next_references().is_ok_and(|batch| batch.is_some()) {},
                Ok(Foreign::Runs(mut source)) => while source.next_runs().is_ok_and(|batch| batch.is_some()) {},
                Err(_) => {}
            }
        }
    }
}
