//! Environment variables with our prefixes that are set and that nobody reads.
//!
//! A misspelt one is silently nothing: with `YUEBING_SECRT_FILE` a pool would run open. So whoever starts names them.

use std::fmt;

use crate::nearest::nearest;

/// Those that programs, clients and the Python package read.
const KNOWN: &[&str] = &[
    "YB_ALLOW_EMPTY",
    "YB_CLIENT_HTTP_HOST",
    "YB_CUDA_LIBRARY",
    "YB_CXL_FLUSH",
    "YB_FILE_DIRECT",
    "YB_FILE_DURABLE",
    "YB_FILE_URING",
    "YB_HOST_ID",
    "YB_LOCAL_FIRST",
    "YB_LOG",
    "YB_METADATA_LEASE_SECONDS",
    "YB_POPULATE",
    "YB_REPLICAS",
    "YB_REST_TOKEN",
    "YB_SHARED_SEGMENT_FORM",
    "YB_SHM",
    "YUEBING_ADMIN",
    "YUEBING_ADMIN_TOKEN",
    "YUEBING_ADMIN_TOKEN_FILE",
    "YUEBING_PARENT",
    "YUEBING_PLAIN_FROM",
    "YUEBING_PLAIN_TO",
    "YUEBING_SECRET",
    "YUEBING_SECRET_FILE",
    "YUEBING_TLS_CA",
    "YUEBING_TLS_CERT",
    "YUEBING_TLS_KEY",
    "YUEBING_TLS_MUTUAL",
    "YUEBING_TLS_NAME",
];

/// How those of the project's own tests and scripts begin: whoever runs the tests starts programs with them set.
const OF_TESTS: &[&str] = &[
    "YB_BINARY",
    "YB_BLESS",
    "YB_CASES",
    "YB_DEAD_WRITER",
    "YB_DIFFERENTIAL_",
    "YB_DUMMY_CHILD",
    "YB_ELSEWHERE",
    "YB_FUZZ_",
    "YB_INTEG_",
    "YB_LARGEST",
    "YB_MANY",
    "YB_MIXED_",
    "YB_OURS_PYTHON",
    "YB_PEER_VENVS",
    "YB_RDMA_",
    "YB_RESTART_KEYS",
    "YB_SCHEDULES",
    "YB_TEST_",
    "YB_TORCH_PYTHON",
    "YB_TRACES",
];

/// A variable with our prefix that means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVariable {
    /// As it is set.
    pub name: String,
    /// The nearest that means something.
    pub nearest: Option<&'static str>,
}

impl fmt::Display for UnknownVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the environment variable {} does nothing: nobody reads it", self.name)?;
        self.nearest.map_or(Ok(()), |nearest| write!(f, "; did you mean {nearest}?"))
    }
}

/// Those of `names` that begin with `YUEBING_` or `YB_` and that nothing reads.
///
/// ```
/// let names = ["YUEBING_SECRT_FILE", "YB_SHM", "HOME"].map(str::to_owned);
/// let unknown = yb_settings::unknown_variables(names);
/// assert_eq!(unknown.len(), 1);
/// assert_eq!(unknown[0].nearest, Some("YUEBING_SECRET_FILE"));
/// ```
pub fn unknown_variables(names: impl IntoIterator<Item = String>) -> Vec<UnknownVariable> {
    let ours = |name: &String| name.starts_with("YUEBING_") || name.starts_with("YB_");
    let read =
        |name: &String| KNOWN.contains(&name.as_str()) || OF_TESTS.iter().any(|beginning| name.starts_with(beginning));
    let unknown = names.into_iter().filter(|name| ours(name) && !read(name));
    unknown.map(|name| UnknownVariable { nearest: nearest(&name, KNOWN.iter().copied()), name }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Names with our prefixes that stand as literals in sources below a folder.
    fn named(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                named(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs" || end == "py") {
                let text = std::fs::read_to_string(&path).unwrap();
                let literals =
                    text.split(['"', '\'']).filter(|part| part.starts_with("YUEBING_") || part.starts_with("YB_"));
                let is_name = |part: &&str| part.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
                found.extend(literals.filter(is_name).map(str::to_owned));
            }
        }
    }

    #[test]
    fn every_variable_that_is_read_is_known_and_the_other_way_round() {
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir(home.join("crates")).unwrap().map(Result::unwrap) {
            let own = entry.file_name() == "settings" || entry.file_name() == "tidy";
            let sources = entry.path().join("src");
            if !own && sources.is_dir() {
                named(&sources, &mut found);
            }
        }
        named(&home.join("python"), &mut found);
        let unread: Vec<_> = KNOWN.iter().filter(|name| !found.contains(**name)).collect();
        let in_sources: Vec<_> = unknown_variables(found.iter().cloned());
        assert!(unread.is_empty(), "nobody reads {unread:?} any more");
        assert!(in_sources.is_empty(), "read, but not in the list: {in_sources:?}");
    }

    #[test]
    fn what_is_misspelt_is_told_with_its_neighbour() {
        let names = ["YB_SHMM", "YUEBING_WHATEVER_THAT_IS", "YB_PEER_VENVS", "MC_YB_SHM", "YB_LOG"].map(str::to_owned);
        let told: Vec<String> = unknown_variables(names).iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("YB_SHMM") && told[0].ends_with("did you mean YB_SHM?"), "{told:?}");
        assert!(told[1].contains("YUEBING_WHATEVER_THAT_IS"), "{told:?}");
    }
}
