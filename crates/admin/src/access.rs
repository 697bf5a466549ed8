//! Who may call what changes the pool: optionally only over an address of its own, only with a token, or both.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use serde_json::json;

use crate::answer::answer_with;
use crate::desk::Desk;
use crate::token::shows;

/// The rules for calls that remove, move or configure something. Off by default, as in the peer.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct WriteRules {
    /// Such calls are answered here only; `None`: where all others are.
    pub listen: Option<String>,
    /// Such calls need `Authorization: Bearer TOKEN`.
    pub token: Option<String>,
}

impl std::fmt::Debug for WriteRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("WriteRules").field("listen", &self.listen).field("token", &token).finish()
    }
}

/// What a listener does with such calls.
#[derive(Clone, Debug)]
pub(crate) enum Gate {
    /// Answers them; with a token, if there is one.
    Open(Option<Arc<str>>),
    /// Refuses them and names the address that takes them.
    Elsewhere(Arc<str>),
}

impl Gate {
    /// Puts the gate before a handler.
    pub(crate) fn before(&self, handler: MethodRouter<Desk>) -> MethodRouter<Desk> {
        match self {
            Gate::Open(None) => handler,
            gate => {
                let gate = gate.clone();
                handler.layer(from_fn(move |request, next| check(gate.clone(), request, next)))
            }
        }
    }
}

async fn check(gate: Gate, request: Request, next: Next) -> Response {
    match gate {
        Gate::Open(Some(token)) if !shows(request.headers(), &token) => {
            let body = refused("this call needs a token: Authorization: Bearer …");
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            (challenge, answer_with(StatusCode::UNAUTHORIZED, body)).into_response()
        }
        Gate::Open(_) => next.run(request).await,
        Gate::Elsewhere(address) => answer_with(
            StatusCode::FORBIDDEN,
            refused(&format!("calls that change something are answered at {address}")),
        ),
    }
}

fn refused(message: &str) -> serde_json::Value {
    json!({"success": false, "error_code": yb_types::ErrorCode::UNAVAILABLE_IN_CURRENT_MODE.0, "error_message": message})
}
