//! Fuzz targets of what strangers send first, and of what people write; `cargo test` runs them as property tests.

use bolero::check;
use yb_secure::{HELLO_LEN, Networks, Opening, Refusal, SecuritySettings};

#[test]
fn first_bytes() {
    check!().with_iterations(20_000).for_each(|input: &[u8]| {
        for bytes in [input.to_vec(), [b"\x89YBSEC", input].concat()] {
            match Opening::parse(&bytes) {
                Opening::NeedMore => assert!(bytes.len() < HELLO_LEN),
                Opening::Plain => assert!(!bytes.starts_with(b"\x89YBSEC")),
                Opening::Secured(_) | Opening::Unknown => {
                    assert!(Refusal::found_in(&bytes).is_none() || bytes[7] >= 0x80)
                }
            }
            // What is decided by some bytes is not changed by more of them.
            let short = bytes.get(..bytes.len().min(HELLO_LEN)).unwrap_or_default();
            assert_eq!(Opening::parse(short), Opening::parse(&bytes));
        }
    });
}

#[test]
fn settings() {
    check!().with_iterations(5_000).for_each(|input: &[u8]| {
        let text = String::from_utf8_lossy(input).into_owned();
        if let Ok(networks) = text.parse::<Networks>() {
            assert_eq!(networks.to_string().parse::<Networks>(), Ok(networks));
        }
        let read = SecuritySettings::from_env(|name| name.starts_with("YUEBING_").then(|| text.clone()));
        if let Err(error) = read {
            // A text that is long enough for a secret is not repeated.
            let secret = text.trim().len() >= 16 && error.to_string().contains("secret");
            assert!(!secret || !error.to_string().contains(text.trim()), "{error}");
        }
    });
}
