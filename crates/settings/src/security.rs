//! Who may connect, and how: the same settings for every process of a pool.

use crate::setting::{Kind, Setting, Unit};

/// Title of the group.
pub const SECURITY_TITLE: &str = "Security";

/// The rows. The secret itself is no setting: arguments and files of settings are seen by too many.
pub const SECURITY: &[Setting] = &[
    Setting::ours("secret_file", Kind::Text, "", "File with the secret that both ends of a connection must know, one a line: the first is used, all are accepted; read again when it changes. Or the secret itself in the variable YUEBING_SECRET.")
        .unit(Unit::Path)
        .env("YUEBING_SECRET_FILE"),
    Setting::ours("tls_ca", Kind::Text, "", "PEM file of the authority of the pool's certificates; connections to others are TLS.")
        .unit(Unit::Path)
        .env("YUEBING_TLS_CA"),
    Setting::ours("tls_cert", Kind::Text, "", "PEM file of the own certificate; connections from others must be TLS.")
        .unit(Unit::Path)
        .env("YUEBING_TLS_CERT"),
    Setting::ours("tls_key", Kind::Text, "", "PEM file of its key.").unit(Unit::Path).env("YUEBING_TLS_KEY"),
    Setting::ours("tls_mutual", Kind::Bool, "false", "Others must show a certificate of the authority too.")
        .env("YUEBING_TLS_MUTUAL"),
    Setting::ours("tls_name", Kind::Text, "yuebing", "Name in the certificates of others; `address`: the address that was dialled.")
        .env("YUEBING_TLS_NAME"),
    Setting::ours("plain_from", Kind::Text, "", "From where the plain wire is taken: any, none, or addresses and networks such as 10.0.0.0/8,::1. Empty: any, but none where there is a secret or TLS.")
        .env("YUEBING_PLAIN_FROM"),
    Setting::ours("plain_to", Kind::Text, "", "To where connections are plain although there is a secret or TLS, in the same form. Empty: none.")
        .env("YUEBING_PLAIN_TO"),
];
