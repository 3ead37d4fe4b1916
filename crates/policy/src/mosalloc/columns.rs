//! Parser from lines of CSV to named fields.

use crate::error::{Place, PolicyError};

/// One line, split.
pub(super) struct Row {
    pub(super) fields: Vec<String>,
    pub(super) place: Place,
}

/// Splits at commas outside quotes and square brackets: Mosalloc's lists hold commas, quoted or not.
pub(super) fn fields(line: &str, place: &Place) -> Result<Vec<String>, PolicyError> {
    let mut fields = vec![String::new()];
    let (mut quoted, mut depth) = (false, 0_u32);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted && depth == 0 => fields.push(String::new()),
            _ => {
                match c {
                    '[' => depth += 1,
                    ']' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if let Some(last) = fields.last_mut() {
                    last.push(c);
                }
            }
        }
    }
    if quoted || depth != 0 {
        let what = if quoted { "a quotation mark" } else { "a bracket" };
        return Err(PolicyError::new(place, format!("{what} is not closed")));
    }
    Ok(fields.into_iter().map(|field| field.trim().to_owned()).collect())
}

/// Whether two column names are the same but for case, spaces, underscores and Mosalloc's spelling of «regions».
pub(super) fn same(written: &str, known: &str) -> bool {
    let plain = |name: &str| {
        let letters = name.chars().filter(|c| !matches!(c, ' ' | '_'));
        letters.collect::<String>().to_ascii_lowercase().replace("ragions", "regions")
    };
    plain(written) == plain(known)
}

/// Where each wanted column stands in the rows.
pub(super) struct Columns {
    wanted: &'static [&'static str],
    positions: Vec<usize>,
    width: usize,
}

impl Columns {
    pub(super) fn find(header: &Row, wanted: &'static [&'static str]) -> Result<Columns, PolicyError> {
        let mut positions = Vec::new();
        for name in wanted {
            let mut matches = header.fields.iter().enumerate().filter(|(_, field)| same(field, name));
            let position = match (matches.next(), matches.next()) {
                (Some((position, _)), None) => position,
                (None, _) => {
                    let message = format!("column `{name}` is missing");
                    return Err(PolicyError::new(&header.place, message).allowed(wanted));
                }
                (Some(_), Some(_)) => {
                    let message = format!("column `{name}` stands there twice");
                    return Err(PolicyError::new(&header.place, message).allowed(wanted));
                }
            };
            positions.push(position);
        }
        let known = |field: &String| wanted.iter().any(|name| same(field, name));
        if let Some(unknown) = header.fields.iter().find(|field| !known(field)) {
            let message = format!("unknown column {unknown:?}");
            return Err(PolicyError::new(&header.place, message).allowed(wanted));
        }
        Ok(Columns { wanted, positions, width: header.fields.len() })
    }

    /// The fields of a row in the order of the wanted columns.
    pub(super) fn pick<'r, const N: usize>(&self, row: &'r Row) -> Result<[&'r str; N], PolicyError> {
        if row.fields.len() != self.width {
            let message = format!("{} fields instead of {}", row.fields.len(), self.width);
            return Err(PolicyError::new(&row.place, message).allowed([self.wanted.join(",")]));
        }
        let mut picked = [""; N];
        for (slot, position) in picked.iter_mut().zip(&self.positions) {
            *slot = row.fields.get(*position).map_or("", String::as_str);
        }
        Ok(picked)
    }
}
