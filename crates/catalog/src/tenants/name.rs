//! What may be a tenant's name.

/// Whether a name may be a tenant's: not empty, no `_` at its start, no control characters; the peer's rules.
pub fn is_valid_tenant_name(name: &[u8]) -> bool {
    name.first().is_some_and(|first| *first != b'_') && name.iter().all(|byte| *byte >= 0x20 && *byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::is_valid_tenant_name;

    #[test]
    fn rules() {
        for good in ["a", "default", "a_b", "A b", "\u{e9}"] {
            assert!(is_valid_tenant_name(good.as_bytes()), "{good}");
        }
        for bad in ["", "_a", "a\nb", "a\x7f", "\0"] {
            assert!(!is_valid_tenant_name(bad.as_bytes()), "{bad:?}");
        }
    }
}
