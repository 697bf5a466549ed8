//! What a removal of many objects did.

use crate::Result;
use crate::core::Core;

/// What became of the objects that were to be removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Objects removed.
    pub removed: u64,
    /// Objects that stayed because of a read lease; `None` if the master does not say: it is Mooncake's.
    pub leased: Option<u64>,
    /// Objects that stayed because somebody writes, copies or uses them; likewise.
    pub busy: Option<u64>,
}

impl Core {
    /// Removes what the pattern matches, everything where there is none.
    pub(crate) fn remove_matching(&self, pattern: Option<&[u8]>, force: bool) -> Result<Removed> {
        // The empty pattern matches every key of the tenant, as having none does.
        let text = pattern.unwrap_or_default();
        if let Some(told) = self.link.remove_matching(text, force, &self.start_walk()?)? {
            return Ok(Removed { removed: told.removed, leased: Some(told.leased), busy: Some(told.busy) });
        }
        let removed = match pattern {
            Some(pattern) => self.remove_by_regex(pattern, force)?,
            None => self.remove_all(force)?,
        };
        Ok(Removed { removed, ..Removed::default() })
    }
}
