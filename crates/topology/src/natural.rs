//! Names with numbers in them, in the order that people expect: `mlx5_2` before `mlx5_10`.

use std::cmp::Ordering;

/// Compares two names; runs of digits count as numbers. Total: names that look equal are ordered by their bytes.
pub fn compare(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let (text_a, rest_a) = split(left, |c| !c.is_ascii_digit());
        let (text_b, rest_b) = split(right, |c| !c.is_ascii_digit());
        let (digits_a, next_a) = split(rest_a, |c| c.is_ascii_digit());
        let (digits_b, next_b) = split(rest_b, |c| c.is_ascii_digit());
        let by_text = text_a.cmp(text_b);
        let order = by_text.then_with(|| number(digits_a).cmp(&number(digits_b)));
        if order != Ordering::Equal {
            return order;
        }
        if next_a.is_empty() || next_b.is_empty() {
            return next_a.len().cmp(&next_b.len()).then_with(|| a.cmp(b));
        }
        (left, right) = (next_a, next_b);
    }
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

/// Digits of any length: more digits (without leading zeros) is more.
fn number(digits: &str) -> (usize, &str) {
    let digits = digits.trim_start_matches('0');
    (digits.len(), digits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_count_as_numbers() {
        let mut names = ["mlx5_10", "mlx5_2", "mlx5_bond_0", "mlx5_1", "a9", "a10b2", "a10b10", "", "mlx5_01"];
        names.sort_by(|a, b| compare(a, b));
        assert_eq!(names, ["", "a9", "a10b2", "a10b10", "mlx5_01", "mlx5_1", "mlx5_2", "mlx5_10", "mlx5_bond_0"]);
    }

    proptest! {
        #[test]
        fn the_order_is_total(a in "[a-b0-2_]{0,6}", b in "[a-b0-2_]{0,6}", c in "[a-b0-2_]{0,6}") {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            prop_assert_eq!(compare(&a, &b) == Ordering::Equal, a == b);
            if compare(&a, &b) != Ordering::Greater && compare(&b, &c) != Ordering::Greater {
                prop_assert_ne!(compare(&a, &c), Ordering::Greater);
            }
        }
    }
}
