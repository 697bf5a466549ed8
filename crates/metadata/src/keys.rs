//! The keys under which engines stand in a store.

/// Makes keys, with the prefix of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    prefix: String,
}

impl Keys {
    /// `cluster` is `MC_METADATA_CLUSTER_ID`; empty = none.
    pub fn new(cluster: &str) -> Self {
        let slash = if cluster.is_empty() || cluster.ends_with('/') { "" } else { "/" };
        Keys { prefix: format!("{cluster}{slash}") }
    }

    /// Of a segment's description. Names with a `/` in them, such as `nvmeof/x`, stand beside the memory segments.
    pub fn segment(&self, name: &str) -> String {
        let folder = if name.contains('/') { "" } else { "ram/" };
        format!("mooncake/{}{folder}{name}", self.prefix)
    }

    /// Of the address of an engine's handshake.
    pub fn rpc_meta(&self, name: &str) -> String {
        format!("mooncake/{}rpc_meta/{name}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_peers() {
        assert_eq!(Keys::default().segment("nodeA:44201"), "mooncake/ram/nodeA:44201");
        assert_eq!(Keys::default().rpc_meta("nodeA:44201"), "mooncake/rpc_meta/nodeA:44201");
        assert_eq!(Keys::new("c").segment("n"), "mooncake/c/ram/n");
        assert_eq!(Keys::new("c/").rpc_meta("n"), "mooncake/c/rpc_meta/n");
        assert_eq!(Keys::new("").segment("nvmeof/seg0"), "mooncake/nvmeof/seg0");
    }
}
