//! Sets of ways in the order of their last use. Each operation has the same number of steps for every way: which way is
//! hit is unpredictable, and a branch for it would cost more than all the steps.

use crate::cpu;

/// Uses the way of `wanted` (a key with its lowest bit set), which moves to the front, and adds `flag` to its flag.
/// Returns its flag before; `None` if it is not there.
#[inline(always)]
pub(super) fn touch(words: &mut [u64], wanted: u64, flag: u64) -> Option<bool> {
    let first = words[0];
    if first | 1 == wanted {
        if first & 1 < flag {
            words[0] = first | flag;
        }
        return Some(first & 1 == 1);
    }
    if let Ok(words) = <&mut [u64; 4]>::try_from(&mut *words) {
        return touch_all(words, wanted, flag);
    }
    if let Ok(words) = <&mut [u64; 8]>::try_from(&mut *words) {
        return touch_all(words, wanted, flag);
    }
    if let Ok(words) = <&mut [u64; 12]>::try_from(&mut *words) {
        return touch_all(words, wanted, flag);
    }
    if let Ok(words) = <&mut [u64; 16]>::try_from(&mut *words) {
        return touch_all(words, wanted, flag);
    }
    let at = words.iter().position(|word| word | 1 == wanted)?;
    let word = words[at];
    push(&mut words[..=at], word | flag);
    Some(word & 1 == 1)
}

#[inline(always)]
fn touch_all<const W: usize>(words: &mut [u64; W], wanted: u64, flag: u64) -> Option<bool> {
    let old = *words;
    let mut found = 0_u32;
    for (way, word) in old.iter().enumerate() {
        found |= u32::from(word | 1 == wanted) << way;
    }
    if found == 0 {
        return None;
    }
    let at = found.trailing_zeros() as usize;
    let word = words[at];
    for way in 1..W {
        words[way] = if way <= at { old[way - 1] } else { old[way] };
    }
    words[0] = word | flag;
    Some(word & 1 == 1)
}

/// Puts `word` in front; returns the word that leaves at the end. (A loop: `copy_within` calls memmove for a few
/// words.)
#[inline(always)]
pub(super) fn push(words: &mut [u64], word: u64) -> u64 {
    if let Ok(words) = <&mut [u64; 4]>::try_from(&mut *words) {
        return push_all(words, word);
    }
    if let Ok(words) = <&mut [u64; 8]>::try_from(&mut *words) {
        return push_all(words, word);
    }
    if let Ok(words) = <&mut [u64; 12]>::try_from(&mut *words) {
        return push_all(words, word);
    }
    if let Ok(words) = <&mut [u64; 16]>::try_from(&mut *words) {
        return push_all(words, word);
    }
    words.iter_mut().fold(word, |carried, word| std::mem::replace(word, carried))
}

#[inline(always)]
fn push_all<const W: usize>(words: &mut [u64; W], word: u64) -> u64 {
    let old = *words;
    words[1..].copy_from_slice(&old[..W - 1]);
    words[0] = word;
    old[W - 1]
}

/// The way that has `wanted`, a key with its lowest bit set.
#[inline(always)]
pub(in crate::cache) fn position<const W: usize, const LEVEL: u8>(words: &[u64], wanted: u64) -> Option<usize> {
    match <&[u64; W]>::try_from(words) {
        Ok(words) if W > 0 => {
            let found = cpu::equal_words::<W, 1, LEVEL>(words, wanted);
            (found != 0).then(|| found.trailing_zeros() as usize % W)
        }
        _ => words.iter().position(|word| word | 1 == wanted),
    }
}

/// Puts `word` in front; each way up to `way` gets the word of the way before it.
#[inline(always)]
pub(in crate::cache) fn to_front<const W: usize, const LEVEL: u8>(words: &mut [u64], way: usize, word: u64) {
    match <&mut [u64; W]>::try_from(&mut *words) {
        Ok(words) if W > 0 => cpu::to_front::<W, LEVEL>(words, way, word),
        _ => _ = words[..=way].iter_mut().fold(word, |carried, word| std::mem::replace(word, carried)),
    }
}
