//! One reference, packed in a word.

/// Kind of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Data is read.
    Load = 0,
    /// Data is written; a read-modify-write instruction gives a load and a store.
    Store = 1,
    /// An instruction is fetched.
    Fetch = 2,
    /// A prefetch, or anything else that may not be counted as a demand reference.
    Other = 3,
}

impl Kind {
    /// Every kind, in the order of their codes.
    pub const ALL: [Kind; 4] = [Kind::Load, Kind::Store, Kind::Fetch, Kind::Other];

    /// The kind of the lowest two bits of `code`.
    #[inline]
    pub const fn from_code(code: u8) -> Kind {
        Kind::ALL[(code & 3) as usize]
    }

    /// The kind of a code; none for a code above 3.
    #[inline]
    pub const fn of_code(code: u8) -> Option<Kind> {
        if code < 4 { Some(Kind::from_code(code)) } else { None }
    }

    /// The kind with this name.
    pub fn of_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its name in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Load => "load",
            Kind::Store => "store",
            Kind::Fetch => "fetch",
            Kind::Other => "other",
        }
    }
}

/// A set of kinds: which references a consumer wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    /// Loads and stores.
    pub const DATA: Kinds = Kinds::NONE.with(Kind::Load).with(Kind::Store);
    /// Loads, stores and fetches: what can fault.
    pub const DEMAND: Kinds = Kinds::DATA.with(Kind::Fetch);
    /// Every kind.
    pub const ALL: Kinds = Kinds::DEMAND.with(Kind::Other);
    /// No kind.
    pub const NONE: Kinds = Kinds(0);

    /// This set and `kind`.
    pub const fn with(self, kind: Kind) -> Kinds {
        Kinds(self.0 | 1 << kind as u8)
    }

    /// Whether `kind` is in the set.
    #[inline]
    pub const fn has(self, kind: Kind) -> bool {
        self.0 >> kind as u8 & 1 == 1
    }

    /// The kinds that are in both sets.
    #[must_use]
    pub const fn common(self, other: Kinds) -> Kinds {
        Kinds(self.0 & other.0)
    }

    /// The kinds that are in either set.
    #[must_use]
    pub const fn and(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    /// The kinds of this set that are not in the other.
    #[must_use]
    pub const fn without(self, other: Kinds) -> Kinds {
        Kinds(self.0 & !other.0)
    }

    /// The kinds of these references. There is no branch for each, so that it takes little beside reading them.
    #[must_use]
    pub fn of(references: &[Reference]) -> Kinds {
        let mut seen = [0; 4];
        for reference in references {
            let (low, high) = (reference.0 >> KIND_SHIFT, reference.0 >> (KIND_SHIFT + 1));
            seen[0] |= !low & !high;
            seen[1] |= low & !high;
            seen[2] |= !low & high;
            seen[3] |= low & high;
        }
        let kinds = Kind::ALL.into_iter().filter(|kind| seen[*kind as usize] & 1 == 1);
        kinds.fold(Kinds::NONE, Kinds::with)
    }

    /// The kinds' names, in the order of their codes.
    pub fn names(self) -> Vec<&'static str> {
        Kind::ALL.into_iter().filter(|kind| self.has(*kind)).map(Kind::name).collect()
    }

    /// The set with these bits: a bit for each kind, at its code; others are left out.
    pub const fn from_bits(bits: u8) -> Kinds {
        Kinds(bits & Kinds::ALL.0)
    }

    /// A bit for each kind, at its code.
    pub const fn bits(self) -> u8 {
        self.0
    }
}

impl serde::Serialize for Kinds {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.names().serialize(serializer)
    }
}

impl<'de> serde::Deserialize<'de> for Kinds {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Kinds, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        names.iter().try_fold(Kinds::NONE, |kinds, name| {
            let kind = Kind::of_name(name).ok_or_else(|| {
                let known = Kinds::ALL.names().join(", ");
                serde::de::Error::custom(format_args!("kind {name:?}: none of {known}"))
            })?;
            Ok(kinds.with(kind))
        })
    }
}

/// Bits of an address that a reference holds.
pub const ADDRESS_BITS: u32 = 56;

const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;
const KIND_SHIFT: u32 = ADDRESS_BITS;
const SIZE_SHIFT: u32 = 58;

/// The size in bytes behind each size code; code 0 is "not known".
///
/// 1 to 32 are exact. Of larger sizes the usual ones are: words of pushes and string moves, vector registers and pairs
/// of them, FNSAVE (94, 108), FXSAVE (512), XSAVE areas (576, 832, 1088, 2696), cache lines and DC ZVA (64, 128).
pub const SIZES: [u16; 64] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29,
    30, 31, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72, 80, 94, 96, 108, 112, 128, 160, 192, 224, 256, 320, 384, 416,
    448, 512, 576, 832, 1024, 1088, 2048, 2696, 4096,
];

/// The code of a size: of the smallest size in [`SIZES`] that is not below it; above 4096, of 4096.
const fn size_code(bytes: u32) -> u64 {
    if bytes <= 32 {
        return bytes as u64;
    }
    let mut code = 33;
    while code < 63 && (SIZES[code] as u32) < bytes {
        code += 1;
    }
    code as u64
}

/// A memory reference: 56 bits of user-half virtual address, 2 of [`Kind`], 6 of size code ([`SIZES`]), lowest first.
///
/// Its thread and address space are those of its [`Segment`](crate::Segment).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Reference(u64);

impl Reference {
    /// A reference to `bytes` bytes at `address`; none if the address has more than 56 bits. For addresses from
    /// outside: truncation could make two pages one.
    #[inline]
    pub const fn checked(address: u64, kind: Kind, bytes: u32) -> Option<Reference> {
        if address >> ADDRESS_BITS == 0 { Some(Reference::new(address, kind, bytes)) } else { None }
    }

    /// A reference to `bytes` bytes at `address`; bits above the 56th are dropped, 0 bytes means "not known", sizes
    /// that are not in [`SIZES`] are rounded up.
    #[inline]
    pub const fn new(address: u64, kind: Kind, bytes: u32) -> Reference {
        Reference(address & ADDRESS_MASK | (kind as u64) << KIND_SHIFT | size_code(bytes) << SIZE_SHIFT)
    }

    /// The reference with these bits.
    #[inline]
    pub const fn from_bits(bits: u64) -> Reference {
        Reference(bits)
    }

    /// All 64 bits.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The reference of an address and its `meta` byte.
    #[inline]
    pub const fn with_meta(address: u64, meta: u8) -> Reference {
        Reference(address & ADDRESS_MASK | (meta as u64) << ADDRESS_BITS)
    }

    /// The upper byte: kind (bits 0–1) and size code (bits 2–7).
    #[inline]
    pub const fn meta(self) -> u8 {
        (self.0 >> ADDRESS_BITS) as u8
    }

    /// The virtual address, in bytes.
    #[inline]
    pub const fn address(self) -> u64 {
        self.0 & ADDRESS_MASK
    }

    /// Its kind.
    #[inline]
    pub const fn kind(self) -> Kind {
        Kind::from_code(self.meta())
    }

    /// Its size in bytes; 0 if not known.
    #[inline]
    pub const fn size(self) -> u16 {
        SIZES[(self.0 >> SIZE_SHIFT) as usize]
    }

    /// The address of its last byte (its first, where the size is not known).
    #[inline]
    pub const fn last_byte(self) -> u64 {
        let size = self.size() as u64;
        (self.address() + size - (size != 0) as u64) & ADDRESS_MASK
    }

    /// The number of its page of `1 << page_bits` bytes.
    #[inline]
    pub const fn page(self, page_bits: u32) -> u64 {
        self.address() >> page_bits
    }
}

impl std::fmt::Debug for Reference {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {:#x}+{}", self.kind().name(), self.address(), self.size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_sizes_are_exact() {
        let usual = [94, 96, 108, 112, 128, 192, 256, 512, 576, 832, 1024, 1088, 2048, 2696, 4096];
        for bytes in (1..=32).chain([36, 40, 48, 64, 80]).chain(usual) {
            assert_eq!(Reference::new(0, Kind::Load, bytes).size() as u32, bytes);
        }
    }

    #[test]
    fn other_sizes_are_rounded_up_and_end_at_4096() {
        assert!(SIZES.is_sorted());
        assert_eq!(Reference::new(0, Kind::Load, 33).size(), 36);
        assert_eq!(Reference::new(0, Kind::Load, 513).size(), 576);
        assert_eq!(Reference::new(0, Kind::Load, 1 << 30).size(), 4096);
        assert_eq!(Reference::new(0, Kind::Load, 0).size(), 0);
    }

    #[test]
    fn fields_do_not_touch_each_other() {
        for kind in Kind::ALL {
            let reference = Reference::new(u64::MAX, kind, 4096);
            assert_eq!((reference.address(), reference.kind(), reference.size()), (ADDRESS_MASK, kind, 4096));
            assert_eq!(Reference::with_meta(reference.address(), reference.meta()), reference);
        }
    }

    #[test]
    fn kinds_of_references_are_those_that_occur() {
        for bits in 0..16 {
            let kinds = Kinds::from_bits(bits);
            let references: Vec<Reference> = Kind::ALL
                .into_iter()
                .filter(|kind| kinds.has(*kind))
                .flat_map(|kind| [Reference::new(u64::MAX, kind, 4096), Reference::new(0, kind, 0)])
                .collect();
            assert_eq!(Kinds::of(&references), kinds);
        }
    }

    #[test]
    fn the_last_byte_of_an_unknown_size_is_the_first() {
        assert_eq!(Reference::new(4095, Kind::Load, 0).last_byte(), 4095);
        assert_eq!(Reference::new(4095, Kind::Load, 1).last_byte(), 4095);
        assert_eq!(Reference::new(4095, Kind::Load, 2).last_byte(), 4096);
    }
}
