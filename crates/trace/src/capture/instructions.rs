//! Instructions that synchronise threads: the plugin's knowledge of machine code.

/// Effect of an instruction on the order between threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// Nothing that could be seen from the instruction.
    None,
    /// The thread waits: another thread may have written the value that it reads next.
    Waits,
    /// An atomic access or a fence: it may release other threads, and may have waited for them.
    Meets,
}

/// The meaning of an instruction of a guest architecture (as in the emulator's name). On other architectures, only
/// system calls and repeated loads order threads.
pub fn meeting(target: &str, code: &[u8]) -> Meeting {
    match target {
        "x86_64" | "i386" => x86(code, target == "x86_64"),
        "aarch64" => code.first_chunk().map_or(Meeting::None, |word| aarch64(u32::from_le_bytes(*word))),
        _ => Meeting::None,
    }
}

fn x86(code: &[u8], long: bool) -> Meeting {
    let (mut locked, mut repeated, mut at) = (false, false, 0);
    while let Some(byte) = code.get(at) {
        match byte {
            0xf0 => locked = true,
            0xf3 => repeated = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf2 => {}
            0x40..=0x4f if long => {}
            _ => break,
        }
        at += 1;
    }
    let in_memory = |at: usize| code.get(at).is_some_and(|modrm| modrm >> 6 != 3);
    match &code[at..] {
        // XCHG with memory is locked without a prefix.
        [0x86 | 0x87, ..] if locked || in_memory(at + 1) => Meeting::Meets,
        // Without REX.B: with it, it is XCHG R8, RAX.
        [0x90, ..] if repeated => Meeting::Waits,
        // LFENCE, MFENCE, SFENCE.
        [0x0f, 0xae, 0xe8..=0xff, ..] if !repeated => Meeting::Meets,
        _ if locked => Meeting::Meets,
        _ => Meeting::None,
    }
}

fn aarch64(word: u32) -> Meeting {
    // Load and store exclusive, ordered, compare and swap.
    let exclusive = word & 0x3f00_0000 == 0x0800_0000;
    // Atomic memory operations, swaps, LDAPR.
    let atomic = word & 0x3f20_0c00 == 0x3820_0000 || word & 0x3fff_fc00 == 0x38bf_c000;
    // LDAPUR, STLUR.
    let ordered = word & 0x3f20_0c00 == 0x1900_0000;
    let barrier = word & 0xffff_f01f == 0xd503_301f;
    if exclusive || atomic || ordered || barrier {
        Meeting::Meets
    } else if matches!(word, 0xd503_203f | 0xd503_205f) {
        // YIELD, WFE.
        Meeting::Waits
    } else {
        Meeting::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x86_instructions_by_which_threads_meet_are_known() {
        // As GNU as 2.40 assembles them.
        let meet: [&[u8]; 9] = [
            &[0xf0, 0x83, 0x2f, 0x01],                   // lock subl $1,(%rdi)
            &[0xf0, 0x48, 0x0f, 0xb1, 0x0f],             // lock cmpxchg %rcx,(%rdi)
            &[0xf0, 0x49, 0x0f, 0xc7, 0x08],             // lock cmpxchg16b (%r8)
            &[0x66, 0xf0, 0x0f, 0xc1, 0x07],             // lock xadd %ax,(%rdi)
            &[0x87, 0x07],                               // xchg %eax,(%rdi)
            &[0x41, 0x86, 0x44, 0x24, 0x08],             // xchg %al,8(%r12)
            &[0x64, 0x48, 0x87, 0x04, 0x25, 0, 0, 0, 0], // xchg %rax,%fs:0
            &[0x0f, 0xae, 0xf0],                         // mfence
            &[0x0f, 0xae, 0xe8],                         // lfence
        ];
        for code in meet {
            assert_eq!(meeting("x86_64", code), Meeting::Meets, "{code:x?}");
        }
        assert_eq!(meeting("x86_64", &[0xf3, 0x90]), Meeting::Waits);
        let others: [&[u8]; 7] = [
            &[0x90],             // nop
            &[0x48, 0x87, 0xc8], // xchg %rcx,%rax
            &[0x49, 0x90],       // xchg %rax,%r8
            &[0x8b, 0x07],       // mov (%rdi),%eax
            &[0x0f, 0xae, 0x07], // fxsave (%rdi)
            &[0xf3, 0x48, 0xa5], // rep movsq
            &[],
        ];
        for code in others {
            assert_eq!(meeting("x86_64", code), Meeting::None, "{code:x?}");
        }
    }

    #[test]
    fn aarch64_instructions_by_which_threads_meet_are_known() {
        let meet = [
            0x885f_fc01, // ldaxr w1, [x0]
            0x8802_fc01, // stlxr w2, w1, [x0]
            0x88df_fc01, // ldar w1, [x0]
            0x889f_fc01, // stlr w1, [x0]
            0x88e1_fc02, // casal w1, w2, [x0]
            0xb8e1_0002, // ldaddal w1, w2, [x0]
            0xb8e1_8002, // swpal w1, w2, [x0]
            0xb8bf_c001, // ldapr w1, [x0]
            0xd503_3bbf, // dmb ish
        ];
        for word in meet {
            assert_eq!(aarch64(word), Meeting::Meets, "{word:x}");
        }
        assert_eq!(aarch64(0xd503_203f), Meeting::Waits);
        for word in [0xb940_0001, 0xf900_0001, 0xa9bf_7bfd, 0xd503_201f, 0x3dc0_0000, 0xb860_6801] {
            assert_eq!(aarch64(word), Meeting::None, "{word:x}");
        }
    }
}
