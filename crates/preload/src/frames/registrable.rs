//! Memory that can be registered, and its registration by the library's own threads.

use crate::boundary::maps::{self, Mapping};
use crate::boundary::span::Span;
use crate::boundary::sys::{Result, task};
use crate::frames::kernel::uffd::Uffd;
use crate::state::plan;

use super::areas;

/// Registers `span`, for the library's own threads. If `pinned`, its pages are locked as they come in, as far as the
/// limit on locked memory allows.
pub fn prepare(uffd: Uffd, span: Span, pinned: bool) -> Result<()> {
    if pinned {
        let _ = task::mlock(span.start, span.len(), true);
    }
    uffd.register(span)
}

/// Calls `visit` with every span that is, or could be, registered.
pub fn each_registrable(visit: &mut dyn FnMut(Span)) -> Result<()> {
    maps::each(&mut |mapping| {
        if is_placeable(mapping) {
            areas::each(mapping.span, &mut |part, number| {
                if number.is_some() {
                    untiled(part, visit);
                }
            });
        }
        true
    })
}

/// Whether the library can supply missing pages of `mapping`.
pub fn is_placeable(mapping: &Mapping<'_>) -> bool {
    !mapping.shared && !mapping.is_file() && !mapping.name.starts_with(b"[v")
}

/// Calls `visit` with the parts of `span` that are not in tiles of larger pages.
pub fn untiled(span: Span, visit: &mut dyn FnMut(Span)) {
    match plan::layout_at(span.start) {
        None => visit(span),
        Some(layout) => layout.each(span, &mut |piece, part| {
            if !piece.backing.is_tiled() {
                visit(part);
            }
        }),
    }
}
