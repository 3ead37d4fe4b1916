use super::*;

const BY_INTERVAL: &str = "type,pageSize,startOffset,endOffset\n\
    brk,-1,0,3221225472\nmmap,-1,0,134217728\nfile,-1,0,16777216\nbrk,2097152,0,1073741824\n";
const BY_POOL: &str = "pool_type,pool_size,ragions_list_2mb,offset_2mb,ragions_list_1gb,offset_1gb\n\
    brk,3GB,[0-512],0,[],0\nmmap,128MB,[],0,[],0\nfile,16MB,[],0,[],0\n";

fn layout(text: &str) -> RawLayout {
    read_layout(text, "l.csv").unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn refused(text: &str) -> PolicyError {
    match read_layout(text, "l.csv") {
        Ok(layout) => panic!("accepted as {layout:?}:\n{text}"),
        Err(error) => error,
    }
}

/// (start, end, size) of each interval of a pool.
fn tiles(mosaic: Option<&RawMosaic>) -> Vec<(String, String, String)> {
    let tiles = &mosaic.expect("the pool is there").tiles;
    tiles.iter().map(|at| (at.value.start.clone(), at.value.end.clone(), at.value.size.clone())).collect()
}

fn tile(start: u64, end: u64, size: u64) -> (String, String, String) {
    (start.to_string(), end.to_string(), size.to_string())
}

#[test]
fn both_forms_of_one_layout_mean_the_same() {
    let (by_interval, by_pool) = (layout(BY_INTERVAL), layout(BY_POOL));
    assert_eq!(tiles(by_interval.brk.as_ref()), [tile(0, 1 << 30, 2 << 20)]);
    assert_eq!(tiles(by_pool.brk.as_ref()), tiles(by_interval.brk.as_ref()));
    assert_eq!(tiles(by_pool.mmap.as_ref()), []);
    assert_eq!(tiles(by_interval.file.as_ref()), []);
    let otherwise = by_pool.mmap.and_then(|mosaic| mosaic.otherwise).map(|at| at.value);
    assert_eq!(otherwise.as_deref(), Some("4K"));
}

#[test]
fn page_lists_ranges_singles_and_offsets() {
    let text = BY_POOL.replace("[0-512],0,[],0", "[0-2,4],4194304,[1],1GB");
    let (m, g) = (2 << 20, 1 << 30);
    let expected = [tile(2 * m, 4 * m, m), tile(6 * m, 7 * m, m), tile(2 * g, 3 * g, g)];
    assert_eq!(tiles(layout(&text).brk.as_ref()), expected);
    let quoted = BY_POOL.replace("[0-512],0,[],0", "\"[0-2,4]\",4194304,\"[1]\",1GB");
    assert_eq!(tiles(layout(&quoted).brk.as_ref()), expected);
}

#[test]
fn neighbouring_pages_are_all_kept() {
    let text = BY_POOL.replace("[0-512]", "[3,4]");
    let m = 2 << 20;
    assert_eq!(tiles(layout(&text).brk.as_ref()), [tile(3 * m, 4 * m, m), tile(4 * m, 5 * m, m)]);
}

#[test]
fn columns_are_found_by_name_in_any_order_and_spelling() {
    let text = "end offset,type,page size,start offset\r\n8388608,brk,-1,0\r\n\r\n4194304,brk,2097152,2097152\r\n";
    assert_eq!(tiles(layout(text).brk.as_ref()), [tile(2 << 20, 4 << 20, 2 << 20)]);
    assert_eq!(layout(text).mmap, None);
    assert!(read_layout(&BY_POOL.replace("ragions", "regions"), "l.csv").is_ok());
    assert!(read_layout(&format!("\u{feff}{BY_POOL}"), "l.csv").is_ok());
}

#[test]
fn what_is_refused() {
    let cases: &[(&str, u32, &[&str])] = &[
        ("", 0, &["empty"]),
        ("\n \n", 0, &["empty"]),
        ("type,pageSize,startOffset,endOffset\n", 1, &["no rows"]),
        ("type,pageSize,startOffset\nbrk,-1,0\n", 1, &["column `endOffset` is missing"]),
        ("pool_type,pool_size\nbrk,4GB\n", 1, &["column `ragions_list_2mb` is missing"]),
        ("type,pageSize,startOffset,endOffset,end_offset\nbrk,-1,0,1,1\n", 1, &["`endOffset` stands there twice"]),
        ("type,pageSize,startOffset,endOffset,colour\nbrk,-1,0,1,1\n", 1, &["unknown column \"colour\""]),
        ("type,pageSize,startOffset,endOffset\nbrk,-1,0\n", 2, &["3 fields instead of 4"]),
        ("type,pageSize,startOffset,endOffset\nheap,-1,0,4096\n", 2, &["unknown pool \"heap\""]),
        ("type,pageSize,startOffset,endOffset\nbrk,-2,0,4096\n", 2, &["pageSize", "negative"]),
        ("type,pageSize,startOffset,endOffset\nbrk,-1,0,x\n", 2, &["endOffset", "\"x\""]),
        ("type,pageSize,startOffset,endOffset\nbrk,-1,4096,8192\n", 2, &["starts at offset 0"]),
        ("type,pageSize,startOffset,endOffset\nbrk,-1,0,1\nbrk,-1,0,2\n", 3, &["given twice"]),
        ("type,pageSize,startOffset,endOffset\nbrk,2097152,0,2097152\n", 2, &["no size", "brk,-1,0,SIZE"]),
        ("type,pageSize,startOffset,endOffset\nbrk,-1,0,1048576\nbrk,2097152,0,2097152\n", 3, &["beyond its pool"]),
        ("type,pageSize,startOffset,endOffset\nfile,-1,0,4194304\nfile,2097152,0,2097152\n", 3, &["page cache"]),
        ("type,pageSize,startOffset,endOffset\nbrk,\"-1,0,1\n", 2, &["quotation mark is not closed"]),
    ];
    for (text, line, words) in cases {
        let error = refused(text);
        assert_eq!(error.place.line.unwrap_or(0), *line, "line of {error} in:\n{text}");
        assert_eq!(&*error.place.source, "l.csv");
        assert!(words.iter().all(|word| error.message.contains(word)), "{words:?} are not all in {error}");
    }
}

#[test]
fn intervals_may_fill_their_pool_to_the_last_byte() {
    let text = |size: u64| format!("type,pageSize,startOffset,endOffset\nbrk,-1,0,{size}\nbrk,2097152,0,2097152\n");
    assert!(read_layout(&text(2_097_152), "l.csv").is_ok());
    assert!(refused(&text(2_097_151)).message.contains("beyond its pool"));
}

#[test]
fn page_lists_that_are_refused() {
    for list in ["[a]", "[0-]", "[-3]", "[1-2-3]", "[1.5]", "[99999999999999999999]", "[0-9223372036854775807]"] {
        let error = refused(&BY_POOL.replace("[0-512]", list));
        assert_eq!(error.place.line, Some(2), "{list}: {error}");
    }
    assert_eq!(refused(&BY_POOL.replace("[0-512]", "[0-512")).message, "a bracket is not closed");
}
