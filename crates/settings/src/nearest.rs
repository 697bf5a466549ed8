//! The nearest known name of a misspelt one.

/// The candidate with the smallest edit distance (insert, delete, replace, swap of neighbours), `None` when even the
/// best is more than half of `word` away.
///
/// ```
/// assert_eq!(yb_settings::nearest("rpc_prot", ["rpc_port", "port"]), Some("rpc_port"));
/// assert_eq!(yb_settings::nearest("zzz", ["rpc_port"]), None);
/// ```
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 2).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(d, _)| *d <= limit)
        .min_by_key(|(d, candidate)| (*d, candidate.len()))
        .map(|(_, candidate)| candidate)
}

/// The candidate that is at most two edits away, or one where `word` is short: what was surely meant.
///
/// ```
/// assert_eq!(yb_settings::misspelt("MOONCAKE_MASTR", ["MOONCAKE_MASTER"]), Some("MOONCAKE_MASTER"));
/// assert_eq!(yb_settings::misspelt("MC_TCP_PORT", ["MC_RPC_HOST"]), None);
/// ```
pub fn misspelt<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = if word.len() > 12 { 2 } else { 1 };
    nearest(word, candidates).filter(|candidate| distance(word, candidate) <= limit)
}

/// Restricted Damerau-Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replace = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replace.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn counts_edits() {
        assert_eq!(distance("port", "port"), 0);
        assert_eq!(distance("prot", "port"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
