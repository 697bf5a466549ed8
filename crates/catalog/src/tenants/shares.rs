//! Quotas when there is less memory than was promised.

/// Cuts `capacity` into shares. Everyone gets its request when there is enough for all; else a share in proportion to
/// the request, rounded by largest remainder, ties going to those that come first. The shares sum up to the smaller of
/// `capacity` and the sum of requests.
pub(super) fn shares(requests: &[u64], capacity: u64) -> Vec<u64> {
    let sum: u128 = requests.iter().map(|request| u128::from(*request)).sum();
    if sum <= u128::from(capacity) {
        return requests.to_vec();
    }
    let product = |request: &u64| u128::from(*request) * u128::from(capacity);
    let mut shares: Vec<u64> = requests.iter().map(|request| (product(request) / sum) as u64).collect();
    let missing = capacity - shares.iter().sum::<u64>();
    let mut by_remainder: Vec<usize> = (0..requests.len()).collect();
    by_remainder.sort_by_key(|at| std::cmp::Reverse(product(&requests[*at]) % sum));
    for at in by_remainder.into_iter().take(usize::try_from(missing).unwrap_or(usize::MAX)) {
        shares[at] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::shares;

    #[test]
    fn enough_for_all() {
        assert_eq!(shares(&[3, 4], 7), [3, 4]);
        assert_eq!(shares(&[3, 4], 100), [3, 4]);
        assert!(shares(&[], 5).is_empty());
    }

    /// The peer's master, asked for these, gave these.
    #[test]
    fn as_the_peer() {
        assert_eq!(shares(&[8_388_608, 100_000_000], 67_108_864), [5_193_811, 61_915_053]);
    }

    #[test]
    fn sums_are_exact_and_ties_go_to_the_first() {
        assert_eq!(shares(&[1, 1, 1], 2), [1, 1, 0]);
        assert_eq!(shares(&[5, 5], 0), [0, 0]);
        let huge = (1 << 63) - 1;
        for capacity in [0, 1, 2, 1000, u64::MAX / 3] {
            let given = shares(&[huge, huge, 7], capacity);
            assert_eq!(given.iter().sum::<u64>(), capacity);
        }
    }
}
