//! The processor of this machine, from /proc/cpuinfo.

use super::table::{self, Microarchitecture, Processors};

/// The identification of a processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Processor {
    /// x86: vendor, family, model.
    X86 {
        /// `GenuineIntel`, `AuthenticAMD`.
        vendor: String,
        /// Family.
        family: u32,
        /// Model.
        model: u32,
    },
    /// Arm: implementer, part number.
    Arm {
        /// 0x41: Arm Limited.
        implementer: u32,
        /// Part number.
        part: u32,
    },
}

/// Parses /proc/cpuinfo (the first processor in it).
pub fn parse(cpuinfo: &str) -> Option<Processor> {
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
        Some(line.split_once(':')?.1.trim())
    };
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16).ok(),
        None => text.parse().ok(),
    };
    if let Some(vendor) = field("vendor_id") {
        let (family, model) = (number(field("cpu family")?)?, number(field("model")?)?);
        return Some(Processor::X86 { vendor: vendor.to_owned(), family, model });
    }
    Some(Processor::Arm { implementer: number(field("CPU implementer")?)?, part: number(field("CPU part")?)? })
}

/// This machine's processor.
pub fn own() -> Option<Processor> {
    parse(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
}

impl Processor {
    /// Its row in the table.
    pub fn microarchitecture(&self) -> Option<&'static Microarchitecture> {
        table::ALL.into_iter().flatten().find(|known| self.is_one_of(&known.processors))
    }

    fn is_one_of(&self, processors: &Processors) -> bool {
        match (self, processors) {
            (Processor::X86 { vendor, family: 6, model }, Processors::Intel(models)) => {
                vendor == "GenuineIntel" && models.contains(model)
            }
            (Processor::X86 { vendor, family, model }, Processors::Amd(of_family, ranges)) => {
                vendor == "AuthenticAMD"
                    && family == of_family
                    && ranges.iter().any(|(from, to)| (from..=to).contains(&model))
            }
            (Processor::Arm { implementer: 0x41, part }, Processors::Arm(known)) => part == known,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(cpuinfo: &str) -> Option<&'static str> {
        parse(cpuinfo)?.microarchitecture().map(|found| found.name)
    }

    #[test]
    fn processors_are_recognised_by_family_and_model() {
        let x86 = |vendor, family, model| {
            format!(
                "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: x\n"
            )
        };
        assert_eq!(name(&x86("AuthenticAMD", 25, 17)), Some("AMD Zen 4"));
        assert_eq!(name(&x86("AuthenticAMD", 25, 1)), Some("AMD Zen 3"));
        assert_eq!(name(&x86("AuthenticAMD", 23, 49)), Some("AMD Zen 2"));
        assert_eq!(name(&x86("AuthenticAMD", 23, 1)), None);
        assert_eq!(name(&x86("AuthenticAMD", 26, 2)), Some("AMD Zen 5"));
        assert_eq!(name(&x86("GenuineIntel", 6, 0x55)), Some("Intel Skylake (to Cascade and Comet Lake)"));
        assert_eq!(name(&x86("GenuineIntel", 6, 0x8f)), Some("Intel Sapphire and Emerald Rapids"));
        assert_eq!(name("processor: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"), Some("Arm Neoverse N1"));
    }

    #[test]
    fn no_processor_is_claimed_twice_and_no_role_counted_twice() {
        let all: Vec<&Microarchitecture> = table::ALL.into_iter().flatten().collect();
        for model in 0..=0xff {
            for (vendor, family) in [("GenuineIntel", 6), ("AuthenticAMD", 0x17), ("AuthenticAMD", 0x19)] {
                let processor = Processor::X86 { vendor: vendor.to_owned(), family, model };
                let claims = all.iter().filter(|known| processor.is_one_of(&known.processors)).count();
                assert!(claims <= 1, "{processor:?}");
            }
        }
        for known in all {
            let mut roles: Vec<&str> = known.rows.iter().map(|row| row.role).collect();
            roles.sort_unstable();
            roles.dedup();
            assert_eq!(roles.len(), known.rows.len(), "{}", known.name);
            assert!(known.rows.iter().all(|row| !row.source.is_empty() && !row.events.is_empty()));
        }
    }
}
