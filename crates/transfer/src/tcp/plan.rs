//! How a batch is cut over connections (pure).

/// Stripes start at multiples of this from the start of their request.
const GRAIN: u64 = 4096;

/// A part of a request on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stripe {
    /// Index of the request.
    pub(crate) request: usize,
    /// First byte of the request.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// Which of the connections.
    pub(crate) lane: usize,
}

/// Cuts requests of these lengths over at most `max_lanes` connections, each with at least `stripe_min` bytes where
/// there is more than one. Order is kept; every byte is in exactly one stripe.
pub(crate) fn plan(lens: &[u64], max_lanes: usize, stripe_min: u64) -> Vec<Stripe> {
    let total = lens.iter().fold(0_u64, |total, len| total.saturating_add(*len));
    let lanes = (total / stripe_min.max(GRAIN)).clamp(1, max_lanes.max(1) as u64);
    let share = total.div_ceil(lanes).next_multiple_of(GRAIN);
    let mut stripes = Vec::with_capacity(lens.len() + lanes as usize);
    let (mut lane, mut room) = (0, share);
    for (request, len) in lens.iter().copied().enumerate() {
        let mut offset = 0;
        while offset < len {
            let left = len - offset;
            let is_last = lane as u64 + 1 >= lanes;
            let cut = room / GRAIN * GRAIN;
            let take = if is_last || left <= room || cut == 0 { left } else { cut };
            stripes.push(Stripe { request, offset, len: take, lane });
            offset += take;
            room = room.saturating_sub(take);
            if room < GRAIN && !is_last {
                (lane, room) = (lane + 1, share);
            }
        }
    }
    stripes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_is_covered_once_and_in_order(
            lens in proptest::collection::vec(0_u64..40_000_000, 0..20),
            max_lanes in 0_usize..17,
            stripe_min in 0_u64..10_000_000,
        ) {
            let stripes = plan(&lens, max_lanes, stripe_min);
            let mut at = vec![0_u64; lens.len()];
            for stripe in &stripes {
                prop_assert!(stripe.len > 0);
                prop_assert_eq!(at[stripe.request], stripe.offset);
                at[stripe.request] += stripe.len;
                prop_assert!(stripe.lane < max_lanes.max(1));
            }
            prop_assert_eq!(at, lens);
            prop_assert!(stripes.windows(2).all(|pair| pair[0].lane <= pair[1].lane));
        }
    }

    #[test]
    fn a_large_request_is_shared_evenly_and_small_ones_stay_together() {
        let shares: Vec<u64> = plan(&[64 << 20], 4, 4 << 20).iter().map(|stripe| stripe.len).collect();
        assert_eq!(shares, [16 << 20; 4]);
        assert!(plan(&[65_536; 32], 4, 4 << 20).iter().all(|stripe| stripe.lane == 0));
    }
}
