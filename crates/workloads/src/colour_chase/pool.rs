//! Populated base pages in the order of their frame numbers, with their colours.

use std::fs::File;
use std::os::unix::fs::FileExt;

use memmap2::{Advice, MmapMut, MmapOptions};

/// Bytes of a base page (the tool's address arithmetic; other page sizes are refused).
pub const PAGE_BYTES: usize = 4096;
const FRAME_BITS: u64 = (1 << 55) - 1;
const PRESENT: u64 = 1 << 63;

/// The colour of a frame.
pub struct ColourFunction {
    colours: u64,
    masks: Vec<u64>,
}

impl ColourFunction {
    /// Low bits of the frame number, or parities under `masks`, of which there must then be log2 of `colours`.
    pub fn new(colours: u32, masks: &[u64]) -> Result<Self, String> {
        if !masks.is_empty() && u64::from(colours) != 1 << masks.len() {
            return Err(format!(
                "--masks: {} masks make {} colours, not --colours {colours}",
                masks.len(),
                1_u64 << masks.len()
            ));
        }
        Ok(Self { colours: u64::from(colours), masks: masks.to_vec() })
    }

    /// The colour of a frame, below the number of colours.
    pub fn of(&self, frame: u64) -> usize {
        if self.masks.is_empty() {
            return (frame % self.colours) as usize;
        }
        let parity = |mask: &u64| ((frame & mask).count_ones() & 1) as usize;
        self.masks.iter().enumerate().fold(0, |colour, (bit, mask)| colour | (parity(mask) << bit))
    }

    /// Number of colours.
    pub fn count(&self) -> usize {
        self.colours as usize
    }
}

/// Pages by rising frame number; page `i` is `memory[start(i)..]`.
pub struct Pool {
    memory: MmapMut,
    /// By rank: where the page is, and its frame.
    pages: Vec<(usize, u64)>,
}

impl Pool {
    /// Populates `count` base pages and reads their frame numbers.
    pub fn populate(count: usize) -> Result<Self, String> {
        let bytes = count * PAGE_BYTES;
        let mut memory = MmapOptions::new()
            .len(bytes)
            .map_anon()
            .map_err(|error| format!("cannot map a pool of {bytes} bytes: {error}; ask for fewer --pool-pages"))?;
        memory
            .advise(Advice::NoHugePage)
            .map_err(|error| format!("cannot keep the pool at base pages (MADV_NOHUGEPAGE): {error}"))?;
        for at in (0..bytes).step_by(PAGE_BYTES) {
            memory[at] = 1;
        }
        let frames = frames(memory.as_ptr() as usize, count)?;
        let mut pages: Vec<(usize, u64)> =
            frames.into_iter().enumerate().map(|(index, frame)| (index * PAGE_BYTES, frame)).collect();
        pages.sort_unstable_by_key(|&(_, frame)| frame);
        Ok(Self { memory, pages })
    }

    /// Pages.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Offset of the page's first byte in [`Pool::memory`].
    pub fn start(&self, page: usize) -> usize {
        self.pages[page].0
    }

    /// Frame number of the page.
    pub fn frame(&self, page: usize) -> u64 {
        self.pages[page].1
    }

    /// All bytes.
    pub fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// All bytes, for writing chains into.
    pub fn memory_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// The pages of each colour.
    pub fn by_colour(&self, colour: &ColourFunction) -> Vec<Vec<usize>> {
        let mut lists = vec![Vec::new(); colour.count()];
        for page in 0..self.len() {
            lists[colour.of(self.frame(page))].push(page);
        }
        lists
    }
}

/// The frame numbers of `count` pages from `address` on.
fn frames(address: usize, count: usize) -> Result<Vec<u64>, String> {
    let failed = |error| format!("cannot read frame numbers from /proc/self/pagemap: {error}; run as root (sudo)");
    let file = File::open("/proc/self/pagemap").map_err(failed)?;
    let mut bytes = vec![0_u8; count * 8];
    file.read_exact_at(&mut bytes, (address / PAGE_BYTES * 8) as u64).map_err(failed)?;
    let entries = bytes.chunks_exact(8).map(|chunk| {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    });
    let frames: Vec<u64> = entries.map(|entry| if entry & PRESENT == 0 { 0 } else { entry & FRAME_BITS }).collect();
    if frames.contains(&0) {
        return Err("the kernel shows no frame numbers here (CAP_SYS_ADMIN is needed); run as root: \
                    sudo pagelab doctor --probe-colours"
            .to_owned());
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::ColourFunction;

    #[test]
    fn colours_are_low_bits_or_parities() {
        let low = ColourFunction::new(12, &[]).unwrap();
        assert_eq!((low.of(11), low.of(12), low.of(25)), (11, 0, 1));
        let masked = ColourFunction::new(4, &[0b101, 0b10]).unwrap();
        assert_eq!([0b000, 0b001, 0b100, 0b101, 0b010, 0b111].map(|frame| masked.of(frame)), [0, 1, 1, 0, 2, 2]);
    }

    #[test]
    fn masks_must_make_as_many_colours_as_asked() {
        assert!(ColourFunction::new(8, &[1, 2]).is_err_and(|message| message.contains("2 masks make 4 colours")));
    }
}
